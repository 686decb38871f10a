//! Scene `flood`: one source posts without pause, and the others once a millisecond.

use unherd::{Deadline, Timestamp};
use unherd_sys::Futex;
use unherd_sys::primitives::{AtomicBool, AtomicU64, Ordering, thread};

use super::{Metrics, Sources};
use crate::{Basis, Job, LoadError, Meter};

/// The source of the flood; all others are quiet.
const FLOOD: usize = 0;
const PERIOD_NS: u64 = 1_000_000;

/// Delays of the events of quiet sources that one waiter has taken.
#[derive(Default)]
struct Delays {
    events: u64,
    sum_ns: u64,
    max_ns: u64,
}

pub(super) fn run<S: Sources>(job: &Job, sources: &S) -> Result<(u64, Metrics), LoadError> {
    let budget_ms = job.params.at_least_one("budget-ms")? as u64;
    let count = job.params.at_least_one("sources")?;
    // When the event of each source was posted; 0 if it was taken. Relaxed: the post and the take
    // order it.
    let posted_ns: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    let meter = Meter::start(Basis::Process)?;
    let delays = thread::scope(|scope| {
        let (posted_ns, over) = (&posted_ns, &over);
        let waiters: Vec<_> = (0..job.threads)
            .map(|_| {
                scope.spawn(move || {
                    let mut waiter = sources.waiter();
                    let mut delays = Delays::default();
                    loop {
                        sources.wait_all(&mut waiter, &mut |source| {
                            let at_ns = posted_ns[source].swap(0, Ordering::Relaxed);
                            if at_ns > 0 {
                                let delay_ns = Timestamp::now().as_ns().saturating_sub(at_ns);
                                delays.events += 1;
                                delays.sum_ns += delay_ns;
                                delays.max_ns = delays.max_ns.max(delay_ns);
                            }
                        });
                        if over.load(Ordering::Relaxed) {
                            // For the next waiter.
                            sources.post(FLOOD);
                            return delays;
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                sources.post(FLOOD);
            }
        });
        post_quietly(posted_ns, budget_ms, |source| sources.post(source));
        over.store(true, Ordering::Relaxed);
        sources.post(FLOOD);
        let joined = waiters.into_iter().enumerate().map(|(index, waiter)| {
            waiter.join().map_err(|panic| LoadError::panicked(index, &*panic))
        });
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    let span = meter.stop(job.plant)?;
    let events: u64 = delays.iter().map(|delays| delays.events).sum();
    let sum_ns: u64 = delays.iter().map(|delays| delays.sum_ns).sum();
    let max_ns = delays.iter().map(|delays| delays.max_ns).max().unwrap_or(0);
    let metrics = vec![
        ("ns_per_call", sum_ns as f64 / events.max(1) as f64),
        ("delay_us_max", max_ns as f64 / 1e3),
        ("quiet_events", events as f64),
        ("cpu_ns_per_call", span.cpu_s * 1e9 / events.max(1) as f64),
        ("planted_s", span.planted_s),
    ];
    Ok((0, metrics))
}

/// Posts to all quiet sources once a millisecond.
fn post_quietly(posted_ns: &[AtomicU64], budget_ms: u64, post: impl Fn(usize)) {
    let (begin, word) = (Timestamp::now().as_ns(), Futex::new(0));
    for period in 0..budget_ms {
        let at = Deadline::at(Timestamp::from_ns(begin + period * PERIOD_NS));
        while !at.has_passed(Timestamp::now()) {
            word.wait_until(0, at);
        }
        for (source, posted_ns) in posted_ns.iter().enumerate().skip(FLOOD + 1) {
            let (now_ns, order) = (Timestamp::now().as_ns(), Ordering::Relaxed);
            // An event that was not taken yet is late from its first post on.
            let _ = posted_ns.compare_exchange(0, now_ns, order, order);
            post(source);
        }
    }
}
