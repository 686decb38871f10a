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

use unherd_sync::Ledger;
use unherd_sys::Futex;
use unherd_sys::primitives::{Ordering, thread};

use crate::{Basis, Job, LoadError, Meter, Span, Waits};

/// Reading and writing calls go into the kernel or the cache; both stay far below this.
const STACK_BYTES: usize = 128 << 10;

/// What a phase gave.
#[derive(Debug)]
pub(super) struct Timed<D> {
    pub(super) span: Span,
    pub(super) waits: Waits,
    /// What each thread's work gave, in the order of the threads.
    pub(super) done: Vec<D>,
}

/// Runs `work` in as many threads as the job says, each with what its `prepare` gave.
pub(super) fn run<P, D: Send>(
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
        let timed = time(job, || {
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

fn time(job: &Job, work: impl FnOnce()) -> Result<(Span, Waits), LoadError> {
    let before = Ledger::snapshot();
    let meter = Meter::start(Basis::Machine { idle_busy: job.idle_busy })?;
    work();
    let span = meter.stop(job.plant)?;
    Ok((span, Ledger::snapshot().since(&before)))
}

/// A count that falls to zero.
struct Countdown(Futex);

impl Countdown {
    fn new(count: usize) -> Self {
        Self(Futex::new(count as u32))
    }

    fn guard(&self) -> CountdownGuard<'_> {
        CountdownGuard(self)
    }

    fn wait(&self) {
        loop {
            // ORDER[C1]: Acquire; pairs with the Release in `CountdownGuard::drop`. Work that was
            // counted down has happened before the meter is read.
            match self.0.word().load(Ordering::Acquire) {
                0 => return,
                left => self.0.wait(left),
            };
        }
    }
}

struct CountdownGuard<'a>(&'a Countdown);

impl Drop for CountdownGuard<'_> {
    fn drop(&mut self) {
        // ORDER[C1]: Release; pairs with the Acquire in `Countdown::wait`.
        if self.0.0.word().fetch_sub(1, Ordering::Release) == 1 {
            self.0.0.wake(1);
        }
    }
}

/// Shut until it is opened for good.
struct Gate(Futex);

const SHUT: u32 = 0;
const OPEN: u32 = 1;
const CANCELLED: u32 = 2;

impl Gate {
    fn new() -> Self {
        Self(Futex::new(SHUT))
    }

    /// Sleeps while the gate is shut; true if it was opened, false if cancelled.
    fn pass(&self) -> bool {
        loop {
            // ORDER[C2]: Acquire; pairs with the Release in `Gate::set`. The thread's work happens
            // after the meter was started.
            match self.0.word().load(Ordering::Acquire) {
                SHUT => self.0.wait(SHUT),
                state => return state == OPEN,
            };
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
        self.0.word().store(state, Ordering::Release);
        self.0.wake(u32::MAX);
    }
}
