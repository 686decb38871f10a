//! Threads that begin together and work until their time is over.

use unherd::{Deadline, Timestamp};
use unherd_sys::primitives::{AtomicBool, AtomicUsize, Ordering, thread};
use unherd_sys::{Futex, FutexWait};

use crate::{Basis, Job, LoadError, Meter, Span};

/// When the threads begin and end. Relaxed: what they did is read when they were joined.
pub(crate) struct Region {
    ready: AtomicUsize,
    begun: AtomicBool,
    over: AtomicBool,
}

impl Region {
    /// Called by each thread when it is ready: returns when all are.
    pub(crate) fn begin(&self) {
        self.ready.fetch_add(1, Ordering::Relaxed);
        while !self.begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }

    /// Whether the time is over.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn set(&self, what: &AtomicBool) {
        what.store(true, Ordering::Relaxed);
    }
}

/// Has the job's threads do `work`, which calls [`Region::begin`] once and then works until
/// [`Region::is_over`], after `budget_ms`. Gives what each has returned, and what it cost.
pub(crate) fn work_for<R: Send>(
    job: &Job,
    budget_ms: u64,
    work: impl Fn(usize, &Region) -> R + Sync,
) -> Result<(Vec<R>, Span), LoadError> {
    let (ready, begun, over) =
        (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let region = Region { ready, begun, over };
    thread::scope(|scope| {
        let (region, work) = (&region, &work);
        let mut threads = Vec::with_capacity(job.threads);
        for index in 0..job.threads {
            let worker = thread::Builder::new().spawn_scoped(scope, move || work(index, region));
            match worker {
                Ok(worker) => threads.push(worker),
                Err(source) => {
                    region.set(&region.over);
                    region.set(&region.begun);
                    let threads = job.threads;
                    return Err(LoadError::Thread { thread: index, threads, source });
                }
            }
        }
        while region.ready.load(Ordering::Relaxed) < job.threads {
            thread::yield_now();
        }
        let meter = Meter::start(Basis::Process);
        let end_ns = Timestamp::now().as_ns().saturating_add(budget_ms.saturating_mul(1_000_000));
        region.set(&region.begun);
        let nobody = Futex::new(0);
        let end = Deadline::at(Timestamp::from_ns(end_ns));
        while nobody.wait_until(0, end) != FutexWait::TimedOut {}
        region.set(&region.over);
        let joined = threads.into_iter().enumerate().map(|(index, worker)| {
            worker.join().map_err(|panic| LoadError::panicked(index, &*panic))
        });
        let done = joined.collect::<Result<Vec<R>, _>>()?;
        Ok((done, meter?.stop(job.plant)?))
    })
}
