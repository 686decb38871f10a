//! One event on each processor, and the thread that empties their rings while they fill.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::abi::{FLAG_ENABLE_ON_EXEC, FLAG_INHERIT};
use super::ring::{Event, EventAttr, EventRing, Record};
use super::{SampleScope, SamplerError};
use unherd_sys::Timestamp;
use unherd_sys::primitives::thread;

/// Who counts what the rings bring.
pub(super) trait Sink: Send + 'static {
    /// Takes a record. Those of one ring come in order, those of several do not.
    fn see(&mut self, record: &Record<'_>);
    /// All rings have been emptied of what was there at `since` (and may have brought later
    /// records).
    fn emptied(&mut self, since: Timestamp) {
        let _ = since;
    }
}

/// A measurement that runs. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Collector<S> {
    stop: OwnedFd,
    thread: Option<thread::JoinHandle<Collected<S>>>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Collected<S> {
    events: Events,
    pub(super) sink: S,
}

/// The events of a measurement: one with a ring on each processor, and those of further threads,
/// which write into the same rings.
#[derive(Debug, Default)]
struct Events {
    rings: Vec<EventRing>,
    others: Vec<Event>,
}

impl<S: Sink> Collector<S> {
    /// Opens the events, lets them run where nothing else will, and starts the thread.
    pub(super) fn start(
        mut attr: EventAttr,
        scope: &SampleScope,
        sink: S,
    ) -> Result<Self, SamplerError> {
        attr.wakeup = EventRing::watermark_bytes();
        attr.flags |= match scope {
            SampleScope::WholeMachine => 0,
            SampleScope::NextChild => FLAG_INHERIT | FLAG_ENABLE_ON_EXEC,
            SampleScope::Processes(_) => FLAG_INHERIT,
        };
        let events = Events::open(&attr, scope)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let stopped = stop.try_clone().map_err(|_| Errno::MFILE)?;
        if *scope != SampleScope::NextChild {
            events.enable()?;
        }
        let collected = Collected { events, sink };
        let thread = thread::spawn(move || collected.collect(&stopped));
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the measurement; nothing is lost that came before.
    pub(super) fn finish(mut self) -> Result<Collected<S>, SamplerError> {
        self.stop().ok_or(SamplerError::System(Errno::CANCELED))
    }
}

impl<S> Collector<S> {
    fn stop(&mut self) -> Option<Collected<S>> {
        let thread = self.thread.take()?;
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).ok()?;
        thread.join().ok()
    }
}

impl<S> Drop for Collector<S> {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

impl<S> Collected<S> {
    /// What all events have counted, in inheriting threads too.
    pub(super) fn count(&self) -> Result<u64, Errno> {
        let mut sum = 0;
        for event in self.events.all() {
            sum += event.count()?;
        }
        Ok(sum)
    }
}

impl<S: Sink> Collected<S> {
    /// Empties the rings as they fill, until told to stop.
    fn collect(mut self, stop: &OwnedFd) -> Self {
        let mut scratch = Vec::new();
        loop {
            let stopping = self.wait(stop);
            if stopping {
                self.events.disable();
            }
            let since = Timestamp::now();
            for ring in &mut self.events.rings {
                ring.drain(&mut scratch, |record| self.sink.see(&record));
            }
            self.sink.emptied(since);
            if stopping {
                return self;
            }
        }
    }

    /// Waits until a ring is half full or it is time to look anyway; says whether to stop.
    fn wait(&self, stop: &OwnedFd) -> bool {
        // Once a second in any case, so that the mappings of a process are read while it lives.
        const SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
        // A ring whose first thread has ended says that it is ready for ever, though others may
        // still write into it.
        const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let rings = &self.events.rings;
        let mut ready = vec![PollFd::new(stop, PollFlags::IN)];
        ready.extend(rings.iter().map(|ring| PollFd::new(ring.event().fd(), PollFlags::IN)));
        let woken = poll(&mut ready, Some(&SECOND));
        let hung_up = ready.iter().any(|fd| fd.revents().contains(PollFlags::HUP));
        let stopping = !ready[0].revents().is_empty();
        if hung_up && !stopping && woken.is_ok() {
            let mut stop = [PollFd::new(stop, PollFlags::IN)];
            return poll(&mut stop, Some(&SOON)).is_ok_and(|ready| ready > 0);
        }
        stopping
    }
}

impl Events {
    fn open(attr: &EventAttr, scope: &SampleScope) -> Result<Self, SamplerError> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online");
        let cpus = online.ok().and_then(|list| cpus_in(list.trim())).unwrap_or_else(|| vec![0]);
        let mut events = Self::default();
        match scope {
            SampleScope::WholeMachine => events.add_thread(attr, -1, &cpus)?,
            SampleScope::NextChild => events.add_thread(attr, 0, &cpus)?,
            SampleScope::Processes(pids) => {
                for pid in pids {
                    events.add_process(attr, *pid, &cpus)?;
                }
            }
        }
        Ok(events)
    }

    /// Adds all threads. Those that appear meanwhile are looked for again until there are none:
    /// their makers may not have had an event to hand on.
    fn add_process(
        &mut self,
        attr: &EventAttr,
        pid: u32,
        cpus: &[u32],
    ) -> Result<(), SamplerError> {
        let mut known = Vec::new();
        loop {
            let new: Vec<i32> =
                threads_of(pid).into_iter().filter(|thread| !known.contains(thread)).collect();
            if new.is_empty() {
                break;
            }
            for &thread in &new {
                match self.add_thread(attr, thread, cpus) {
                    // It has ended meanwhile.
                    Err(SamplerError::System(Errno::SRCH)) => {}
                    result => result?,
                }
            }
            known.extend(new);
        }
        if known.is_empty() { Err(SamplerError::NoProcess(pid)) } else { Ok(()) }
    }

    /// Adds a thread (0 for the calling one, -1 for all) on each processor.
    fn add_thread(
        &mut self,
        attr: &EventAttr,
        thread: i32,
        cpus: &[u32],
    ) -> Result<(), SamplerError> {
        for &cpu in cpus {
            let event = match Event::open(attr, thread, cpu) {
                Ok(event) => event,
                // Taken offline a moment ago.
                Err(Errno::NODEV) => continue,
                Err(Errno::ACCESS | Errno::PERM) => return Err(SamplerError::NotPermitted),
                Err(errno @ (Errno::NOENT | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL)) => {
                    return Err(SamplerError::NotSupported(errno));
                }
                Err(errno) => return Err(errno.into()),
            };
            match self.rings.iter().find(|ring| ring.event().cpu() == cpu) {
                Some(ring) => {
                    event.write_into(ring)?;
                    self.others.push(event);
                }
                None => self.rings.push(EventRing::new(event)?),
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &Event> {
        self.rings.iter().map(EventRing::event).chain(&self.others)
    }

    fn enable(&self) -> Result<(), Errno> {
        self.all().try_for_each(|event| event.enable(true))
    }

    fn disable(&self) {
        for event in self.all() {
            // A processor that went away has stopped by itself.
            let _ = event.enable(false);
        }
    }
}

/// The threads of a process; none if there is no such process.
fn threads_of(pid: u32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The numbers of a list such as `0-3,8`.
pub(super) fn cpus_in(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}
