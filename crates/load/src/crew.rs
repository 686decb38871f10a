//! Threads that begin a phase together, with starting and ending them outside the timing.
//!
//! | thread | leader |
//! |---|---|
//! | prepare; `ready` down | |
//! | sleep until `begin` | `ready` is zero: start the meter, open `begin` |
//! | work; `working` down | |
//! | sleep until `leave` | `working` is zero: stop the meter, open `leave` |
//! | end | join |
//!
//! Both counts fall even when a thread panics, so an error never leaves the others asleep. The
//! opening of `begin` wakes all threads by one system call inside the timing, about 3 µs a thread.
//!
//! Threads that are done early sleep before `leave` inside the timing, and so does the leader until
//! `working` is zero. These sleeps are the workload's own: they are counted and taken off the
//! process's context switches. A thread that is about to sleep when the meter is read makes the
//! figure wrong by one.

use unherd::Ledger;
use unherd_sys::primitives::{AtomicU64, Ordering, thread};
use unherd_sys::{Futex, FutexWait};

use crate::{Basis, Job, LoadError, Meter, Span, Waits};

/// Reading and writing calls go into the kernel or the cache; both stay far below this.
const STACK_BYTES: usize = 128 << 10;

/// What a phase gave.
#[derive(Debug)]
pub(crate) struct Timed<D> {
    pub(crate) span: Span,
    pub(crate) waits: Waits,
    /// What each thread's work gave, in the order of the threads.
    pub(crate) done: Vec<D>,
}

/// Runs `work` in as many threads as the job says, each with what its `prepare` gave.
pub(crate) fn run<P, D: Send>(
    job: &Job,
    prepare: impl Fn(usize) -> P + Sync,
    work: impl Fn(usize, P) -> Result<D, LoadError> + Sync,
) -> Result<Timed<D>, LoadError> {
    let threads = job.threads;
    let (ready, working) = (Countdown::new(threads), Countdown::new(threads));
    let (begin, leave) = (Gate::new(), Gate::new());
    let member = |index: usize| {
        let counted = (ready.guard(), working.guard());
        let prepared = prepare(index);
        drop(counted.0);
        let result = begin.pass().then(|| work(index, prepared));
        drop(counted.1);
        leave.pass();
        result
    };
    thread::scope(|scope| {
        let member = &member;
        let mut handles = Vec::with_capacity(threads);
        for index in 0..threads {
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            match builder.spawn_scoped(scope, move || member(index)) {
                Ok(handle) => handles.push(handle),
                Err(source) => {
                    begin.cancel();
                    leave.cancel();
                    return Err(LoadError::Thread { thread: index, threads, source });
                }
            }
        }
        ready.wait();
        let own_sleeps = || begin.sleeps.count() + leave.sleeps.count() + working.sleeps.count();
        let timed = time(job, own_sleeps, || {
            begin.open();
            working.wait();
        });
        // Where the meter could not be started the threads still sleep before their work.
        begin.cancel();
        leave.open();
        let mut done = Vec::with_capacity(threads);
        let mut failed = None;
        for (index, handle) in handles.into_iter().enumerate() {
            match handle.join() {
                Ok(Some(Ok(result))) => done.push(result),
                Ok(Some(Err(error))) => failed = failed.or(Some(error)),
                Ok(None) => {}
                Err(panic) => failed = failed.or(Some(LoadError::panicked(index, &*panic))),
            }
        }
        let (span, waits) = timed?;
        failed.map_or(Ok(Timed { span, waits, done }), Err)
    })
}

/// Times `work`; the sleeps that `own_sleeps` counts meanwhile are not the work's.
fn time(
    job: &Job,
    own_sleeps: impl Fn() -> u64,
    work: impl FnOnce(),
) -> Result<(Span, Waits), LoadError> {
    let before = Ledger::snapshot();
    let own_sleeps_before = own_sleeps();
    let meter = Meter::start(Basis::WithKernel { idle_busy: job.idle_busy })?;
    work();
    let mut span = meter.stop(job.plant)?;
    let own = own_sleeps() - own_sleeps_before;
    span.voluntary_switches = span.voluntary_switches.saturating_sub(own);
    Ok((span, Ledger::snapshot().since(&before)))
}

/// How often threads have slept at one place. Relaxed: it is a statistic, and publishes nothing.
#[derive(Default)]
struct Sleeps(AtomicU64);

impl Sleeps {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps while `word` is `expected`. Counted beforehand: the sleep may outlast the timing.
    fn sleep(&self, word: &Futex, expected: u32) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if word.wait(expected) == FutexWait::Mismatch {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A count that falls to zero.
struct Countdown {
    left: Futex,
    sleeps: Sleeps,
}

impl Countdown {
    fn new(count: usize) -> Self {
        Self { left: Futex::new(count as u32), sleeps: Sleeps::default() }
    }

    fn guard(&self) -> CountdownGuard<'_> {
        CountdownGuard(self)
    }

    fn wait(&self) {
        loop {
            // ORDER[C1]: Acquire; pairs with the Release in `CountdownGuard::drop`. Work that was
            // counted down has happened before the meter is read.
            match self.left.word().load(Ordering::Acquire) {
                0 => return,
                left => self.sleeps.sleep(&self.left, left),
            }
        }
    }
}

struct CountdownGuard<'a>(&'a Countdown);

impl Drop for CountdownGuard<'_> {
    fn drop(&mut self) {
        // ORDER[C1]: Release; pairs with the Acquire in `Countdown::wait`.
        if self.0.left.word().fetch_sub(1, Ordering::Release) == 1 {
            self.0.left.wake(1);
        }
    }
}

/// Shut until it is opened for good.
struct Gate {
    state: Futex,
    sleeps: Sleeps,
}

const SHUT: u32 = 0;
const OPEN: u32 = 1;
const CANCELLED: u32 = 2;

impl Gate {
    fn new() -> Self {
        Self { state: Futex::new(SHUT), sleeps: Sleeps::default() }
    }

    /// Sleeps while the gate is shut; true if it was opened, false if cancelled.
    fn pass(&self) -> bool {
        loop {
            // ORDER[C2]: Acquire; pairs with the Release in `Gate::set`. The thread's work happens
            // after the meter was started.
            match self.state.word().load(Ordering::Acquire) {
                SHUT => self.sleeps.sleep(&self.state, SHUT),
                state => return state == OPEN,
            }
        }
    }

    fn open(&self) {
        self.set(OPEN);
    }

    fn cancel(&self) {
        self.set(CANCELLED);
    }

    fn set(&self, state: u32) {
        // ORDER[C2]: Release; pairs with the Acquire in `Gate::pass`.
        self.state.word().store(state, Ordering::Release);
        self.state.wake(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unherd_sys::Deadline;

    use super::*;
    use crate::Workload;
    use crate::tiotest::TioTest;

    #[test]
    fn a_gate_counts_those_who_slept() {
        let gate = Gate::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(gate.pass()));
            }
            while gate.sleeps.count() < 4 {
                thread::yield_now();
            }
            gate.open();
        });
        // Who had not fallen asleep when the gate was opened has taken itself off.
        assert!(gate.sleeps.count() <= 4);
        let before = gate.sleeps.count();
        assert!(gate.pass());
        assert_eq!(gate.sleeps.count(), before, "an open gate is no sleep");
        gate.sleeps.sleep(&gate.state, SHUT);
        assert_eq!(gate.sleeps.count(), before, "nor is a word that has changed");
    }

    #[test]
    fn own_sleeps_are_taken_off() {
        let job = Job::new(&TioTest.describe(), "kernel", 1);
        let sleep = || {
            Futex::new(0).wait_until(0, Deadline::after(Duration::from_millis(1)));
        };
        let (span, _) = time(&job, || 0, sleep).unwrap();
        assert!(span.voluntary_switches > 0);
        // None when the region begins, and more than anybody can have slept when it ends.
        let asked = AtomicU64::new(0);
        let own_sleeps = || asked.fetch_add(1, Ordering::Relaxed) << 40;
        let (span, _) = time(&job, own_sleeps, sleep).unwrap();
        assert_eq!(span.voluntary_switches, 0);
    }
}
