//! The waker and the waiting threads, the same for all implementations.
//!
//! # States of a page
//!
//! Each page has one thread, and two words: `completed`, how many completions the waker has
//! published, and `armed`, the completion that the thread was last seen waiting for.
//!
//! | completed | armed | the thread | the waker may complete it |
//! |---|---|---|---|
//! | n | n or less | on its way from completion n to the next wait | no |
//! | n | n + 1 | registered as waiting: asleep, or about to be | yes |
//!
//! 1. Only the waker writes `completed`; only the page's thread writes `armed`.
//! 2. `armed` becomes n + 1 inside `pending`, which an implementation calls where it has shut out
//!    wakers (under its lock, or after it was put on a list). So a completion always finds the
//!    thread registered: it has to be woken, and an implementation that wakes exactly shows exactly
//!    one wakeup an event.
//! 3. A thread that was woken for nothing writes the same n + 1 again. That is why `armed` is a
//!    number and not a flag, which would be left standing when the completion comes meanwhile.
//!
//! # Pacing
//!
//! `in_flight` counts completions whose thread has not come back. The waker goes on until it is
//! `outstanding`, then sleeps until it has fallen to half of that, so that the waker's own sleeps
//! are shared by several events. A thread counts itself back *before* it waits again: were it to do
//! so inside `pending`, it would wake the waker while it holds a lock that the waker needs.
//!
//! # The end
//!
//! When the timed events are done, each page gets one last completion outside the timing, which
//! ends its thread. So each thread has seen at least one completion in every implementation,
//! however few events it managed in the time: the first one's value, as the thread saw it, makes
//! the `check`. All others are compared with what was published.
//!
//! A thread that leaves before (it can only panic) would never count itself back. So every thread
//! that leaves sets `LEFT` in `in_flight`, however it leaves, and wakes the waker: the waker then
//! waits for nobody, ends the others, and the round fails with the panic.

use std::time::Duration;

use unherd::{Ledger, Timestamp};
use unherd_sys::Futex;
use unherd_sys::primitives::thread;
use unherd_sys::primitives::{AtomicBool, AtomicU64, Ordering};

use crate::random::{Random, mix_all};
use crate::{Basis, Job, LoadError, Meter, Round, Span};

/// The fewest events that a run with `events` = `auto` times, so that a slow implementation's
/// figure is not made of its first herd.
const EVENTS_MIN: u64 = 100;

/// The bit of `in_flight` that says that a thread has left. The count stays far below it.
const LEFT: u32 = 1 << 31;

/// Waiting threads call little; the frames of an unoptimized build are the larger part of this.
const STACK_BYTES: usize = 64 << 10;

/// A way to wait for pages and to complete them.
pub trait PageWaits: Sync {
    /// Returns once `pending` is false.
    ///
    /// `pending` must be called where no completion can slip between it and the sleep: under the
    /// lock that [`PageWaits::complete`] takes to wake, or after the thread was put on the list
    /// that it wakes. It tells the waker that the thread waits. It may be called at other times as
    /// well, but not before that. Each return from sleep is told to `tally`, and whether it was
    /// needless.
    fn wait(&self, page: usize, tally: &Tally, pending: impl Fn() -> bool);

    /// Calls `publish`, which makes `pending` false, and wakes the page's thread.
    fn complete(&self, page: usize, publish: impl FnOnce());

    /// The memory of the wait structures while `threads` wait, in bytes. What the kernel keeps for
    /// a sleeping thread is the same for all and not counted.
    fn wait_bytes(&self, threads: usize) -> usize;
}

/// The wakeups of one thread. Only that thread adds; Relaxed, as the waker reads the sums after it
/// has seen `in_flight` fall to zero, and no decision hangs on them before.
#[derive(Debug, Default)]
pub struct Tally {
    wakeups: AtomicU64,
    needless: AtomicU64,
}

impl Tally {
    /// The thread has returned from sleep.
    #[inline]
    pub fn wakeup(&self) {
        self.wakeups.store(self.wakeups.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The return from sleep that was told last found the page still pending.
    #[inline]
    pub fn needless(&self) {
        self.needless.store(self.needless.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// One thread's page. On cache lines of its own, so that pages do not slow each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Page {
    completed: AtomicU64,
    /// Relaxed: it only says that a completion may be published; the implementation's own lock
    /// orders the rest.
    armed: AtomicU64,
    /// The value of the last completion. Relaxed: published by `completed`.
    value: AtomicU64,
    tally: Tally,
}

/// What a thread saw.
struct Seen {
    first: u64,
    completions: u64,
    wrong: Option<LoadError>,
}

struct Scene<'a, W> {
    waits: &'a W,
    seed: u64,
    pages: Vec<Page>,
    /// The number of the first thread's page, and the distance to the next one's.
    page_stride: usize,
    /// The completions whose thread has not come back, and `LEFT`.
    in_flight: Futex,
    /// The waker sleeps until `in_flight` is this or less.
    in_flight_low: u32,
    /// Set before the last completions. Relaxed: published by `completed`.
    last: AtomicBool,
}

/// Runs a round of `pagewait` with `waits`, as the job's options say.
pub fn run_with<W: PageWaits>(job: &Job, waits: &W) -> Result<Round, LoadError> {
    let page_count = job.params.at_least_one("pages")?;
    let outstanding = job.params.at_least_one("outstanding")?.min(job.threads);
    if page_count < job.threads {
        return Err(LoadError::usage(format!(
            "pages={page_count}: {} threads wait for a page of their own each; give that many",
            job.threads
        )));
    }
    let scene = Scene {
        waits,
        seed: job.seed,
        pages: (0..job.threads).map(|_| Page::default()).collect(),
        page_stride: page_count / job.threads,
        in_flight: Futex::new(job.threads as u32),
        in_flight_low: outstanding as u32 / 2,
        last: AtomicBool::new(false),
    };
    let idle_bytes = waits.wait_bytes(0);
    thread::scope(|scope| {
        let scene = &scene;
        let mut threads = Vec::with_capacity(job.threads);
        let mut failed = None;
        for index in 0..job.threads {
            let sleeper = thread::Builder::new().stack_size(STACK_BYTES);
            match sleeper.spawn_scoped(scope, move || scene.sleeper(index)) {
                Ok(handle) => threads.push(handle),
                Err(source) => {
                    let threads = job.threads;
                    failed = Some(LoadError::Thread { thread: index, threads, source });
                    break;
                }
            }
        }
        let mut waker = Waker { scene, random: Random::new(job.seed), outstanding };
        let timed = match failed {
            None => waker.timed_events(job),
            Some(error) => Err(error),
        };
        // Whatever went wrong: the threads must be let go, or the scope waits for them for ever.
        waker.end(threads.len());
        let mut seen = Vec::with_capacity(threads.len());
        let mut panicked = None;
        // All are joined: a panic that nobody has taken would be the scope's own.
        for (index, handle) in threads.into_iter().enumerate() {
            match handle.join() {
                Ok(one) => seen.push(one),
                Err(panic) => panicked = panicked.or(Some(LoadError::panicked(index, &*panic))),
            }
        }
        // First, as the figures of a round that a panic has cut short mean nothing.
        panicked.map_or(Ok(()), Err)?;
        let (span, counts) = timed?;
        let check = scene.check(seen)?;
        Ok(round(idle_bytes, check, &span, counts))
    })
}

impl<W: PageWaits> Scene<'_, W> {
    /// The page's number among all pages: spread, and not at equal distances.
    fn page_number(&self, index: usize) -> usize {
        index * self.page_stride
            + Random::new(mix_all(&[self.seed, index as u64])).below(self.page_stride)
    }

    fn value(&self, index: usize, completion: u64) -> u64 {
        mix_all(&[self.seed, index as u64, completion])
    }

    fn sleeper(&self, index: usize) -> Seen {
        let page = &self.pages[index];
        let number = self.page_number(index);
        let mut seen = Seen { first: 0, completions: 0, wrong: None };
        let _leaving = Leaving(&self.in_flight);
        loop {
            self.count_back();
            let next = seen.completions + 1;
            let pending = || {
                // ORDER[SCENE1]: Acquire; pairs with the Release in `Waker::publish`. The thread
                // sees `value` and `last` as they were when the completion was published.
                let pending = page.completed.load(Ordering::Acquire) < next;
                if pending {
                    page.armed.store(next, Ordering::Relaxed);
                }
                pending
            };
            self.waits.wait(number, &page.tally, pending);
            while pending() {
                let early = LoadError::Early { page: number, completion: next };
                seen.wrong.get_or_insert(early);
                self.waits.wait(number, &page.tally, pending);
            }
            seen.completions = next;
            let found = page.value.load(Ordering::Relaxed);
            if next == 1 {
                seen.first = found;
            }
            let expected = self.value(index, next);
            if found != expected {
                let (page, completion) = (number, next);
                let wrong = LoadError::Disorder { page, completion, expected, found };
                seen.wrong.get_or_insert(wrong);
            }
            if self.last.load(Ordering::Relaxed) {
                return seen;
            }
        }
    }

    /// The thread has come back from its completion (or from its start) and goes to wait.
    fn count_back(&self) {
        // ORDER[SCENE2]: Release; pairs with the Acquire in `Waker::in_flight`. The waker that
        // sees the count fall also sees what the thread told its tally.
        let left = self.in_flight.word().fetch_sub(1, Ordering::Release) - 1;
        if left == self.in_flight_low || left == 0 {
            self.in_flight.wake(1);
        }
    }

    fn counts(&self) -> (u64, u64) {
        self.pages.iter().fold((0, 0), |(wakeups, needless), page| {
            (
                wakeups + page.tally.wakeups.load(Ordering::Relaxed),
                needless + page.tally.needless.load(Ordering::Relaxed),
            )
        })
    }

    /// The check value, if each thread saw each completion of its page.
    fn check(&self, seen: Vec<Seen>) -> Result<u64, LoadError> {
        let mut check = 0_u64;
        for (index, seen) in seen.into_iter().enumerate() {
            if let Some(wrong) = seen.wrong {
                return Err(wrong);
            }
            let published = self.pages[index].completed.load(Ordering::Relaxed);
            if seen.completions != published {
                return Err(LoadError::Disorder {
                    page: self.page_number(index),
                    completion: published,
                    expected: self.value(index, published),
                    found: self.value(index, seen.completions),
                });
            }
            check = mix_all(&[check, seen.first]);
        }
        Ok(check)
    }
}

/// Tells the waker that the thread leaves, even if it leaves by a panic.
struct Leaving<'a>(&'a Futex);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // ORDER[SCENE2]: Release; pairs with the Acquire in `Waker::in_flight`.
        self.0.word().fetch_or(LEFT, Ordering::Release);
        self.0.wake(1);
    }
}

/// The device: it completes pages.
struct Waker<'a, 'b, W> {
    scene: &'a Scene<'b, W>,
    random: Random,
    outstanding: usize,
}

/// What was counted in the timed region.
struct Counts {
    events: u64,
    wakeups: u64,
    needless: u64,
    waker_switches: u64,
    /// While all threads wait, or are about to.
    wait_bytes: usize,
    waiter_bytes: usize,
    waits: crate::Waits,
}

impl<W: PageWaits> Waker<'_, '_, W> {
    fn timed_events(&mut self, job: &Job) -> Result<(Span, Counts), LoadError> {
        let events = job.params.number("events")?;
        let budget_ms = job.params.number("budget-ms")?.unwrap_or(1000);
        self.wait_until_all_wait();

        let waits_before = Ledger::snapshot();
        let (wakeups_before, needless_before) = self.scene.counts();
        let switches_before = own_switches()?;
        let meter = Meter::start(Basis::Process)?;
        let until = Timestamp::now().after(Duration::from_millis(budget_ms));
        let mut done = 0;
        let wanted = |done| match events {
            Some(events) => done < events,
            None => done < EVENTS_MIN || Timestamp::now() < until,
        };
        while wanted(done) && self.complete_one() {
            done += 1;
        }
        self.wait_for(0);
        let span = meter.stop(job.plant)?;

        let waker_switches = own_switches()?.saturating_sub(switches_before);
        let (wakeups, needless) = self.scene.counts();
        let counts = Counts {
            events: done,
            wakeups: wakeups - wakeups_before,
            needless: needless - needless_before,
            waker_switches,
            wait_bytes: self.scene.waits.wait_bytes(job.threads),
            waiter_bytes: self
                .scene
                .waits
                .wait_bytes(1)
                .saturating_sub(self.scene.waits.wait_bytes(0)),
            waits: Ledger::snapshot().since(&waits_before),
        };
        Ok((span, counts))
    }

    /// Ends the threads: each gets one last completion.
    fn end(&mut self, threads: usize) {
        self.scene.last.store(true, Ordering::Relaxed);
        let pages = &self.scene.pages[..threads];
        let completions: Vec<u64> =
            pages.iter().map(|page| page.completed.load(Ordering::Relaxed) + 1).collect();
        // All threads have counted themselves back, so each waits or is about to. (In a round that
        // failed some may be on their way from their last but one: they skip it.) All are published
        // before the first is woken: with a condvar for all, the first wake-up ends them all.
        for (index, completion) in completions.iter().enumerate() {
            self.publish(index, *completion);
        }
        for index in 0..threads {
            self.scene.waits.complete(self.scene.page_number(index), || ());
        }
    }

    fn publish(&self, index: usize, completion: u64) {
        let page = &self.scene.pages[index];
        page.value.store(self.scene.value(index, completion), Ordering::Relaxed);
        // ORDER[SCENE1]: Release; pairs with the Acquire in `Scene::sleeper`.
        page.completed.store(completion, Ordering::Release);
    }

    /// Completes a page once there may be one more on its way; false if a thread has left.
    fn complete_one(&mut self) -> bool {
        // `LEFT` is more than any count of threads.
        if self.in_flight() >= self.outstanding as u32 && !self.wait_for(self.scene.in_flight_low) {
            return false;
        }
        let Some(index) = self.pick() else { return false };
        let scene = self.scene;
        let completion = scene.pages[index].completed.load(Ordering::Relaxed) + 1;
        scene.in_flight.word().fetch_add(1, Ordering::Relaxed);
        scene.waits.complete(scene.page_number(index), || self.publish(index, completion));
        true
    }

    /// A random page whose thread waits; `None` if a thread has left.
    fn pick(&mut self) -> Option<usize> {
        loop {
            for _ in 0..self.scene.pages.len() {
                let index = self.random.below(self.scene.pages.len());
                if self.waits_now(index) {
                    return Some(index);
                }
            }
            if self.in_flight() & LEFT != 0 {
                return None;
            }
            // That many attempts were in vain: with few threads, all may be between counting
            // themselves back and waiting. They are runnable, and this lets them run.
            thread::yield_now();
        }
    }

    fn waits_now(&self, index: usize) -> bool {
        let page = &self.scene.pages[index];
        page.armed.load(Ordering::Relaxed) == page.completed.load(Ordering::Relaxed) + 1
    }

    /// Returns early if a thread has left.
    fn wait_until_all_wait(&self) {
        self.wait_for(0);
        while self.in_flight() & LEFT == 0
            && !(0..self.scene.pages.len()).all(|index| self.waits_now(index))
        {
            thread::yield_now();
        }
    }

    fn in_flight(&self) -> u32 {
        // ORDER[SCENE2]: Acquire; pairs with the Releases in `Scene::count_back` and
        // `Leaving::drop`.
        self.scene.in_flight.word().load(Ordering::Acquire)
    }

    /// Sleeps until at most `most` are on their way; false if a thread has left instead.
    fn wait_for(&self, most: u32) -> bool {
        loop {
            match self.in_flight() {
                now if now <= most => return true,
                now if now & LEFT != 0 => return false,
                now => self.scene.in_flight.wait(now),
            };
        }
    }
}

/// How often the calling thread has given up its CPU because it had to wait.
fn own_switches() -> Result<u64, LoadError> {
    let text = std::fs::read_to_string("/proc/thread-self/status").map_err(LoadError::Switches)?;
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| LoadError::Switches(std::io::ErrorKind::InvalidData.into()))
}

fn round(idle_bytes: usize, check: u64, span: &Span, counts: Counts) -> Round {
    let events = counts.events.max(1) as f64;
    let switches = span.voluntary_switches.saturating_sub(counts.waker_switches) as f64;
    let metrics = [
        ("cpu_us_per_event", span.cpu_s * 1e6 / events),
        ("events_per_s", counts.events as f64 / span.elapsed_s),
        ("wakeups_per_event", counts.wakeups as f64 / events),
        ("needless_wakeups", counts.needless as f64),
        ("context_switches", switches),
        ("context_switches_per_event", switches / events),
        ("wait_bytes", counts.wait_bytes as f64),
        ("wait_bytes_idle", idle_bytes as f64),
        ("waiter_bytes", counts.waiter_bytes as f64),
        ("wakeups", counts.wakeups as f64),
        ("events", counts.events as f64),
        ("waker_context_switches", counts.waker_switches as f64),
        ("elapsed_s", span.elapsed_s),
        ("planted_s", span.planted_s),
    ];
    Round {
        check,
        metrics: metrics.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        waits: counts.waits,
    }
}
