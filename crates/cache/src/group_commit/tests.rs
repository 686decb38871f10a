#[cfg(not(shuttle))]
use unherd_sync::Ledger;
use unherd_sys::primitives::{AtomicU64, Ordering, thread};

use super::*;

#[cfg(not(shuttle))]
#[test]
fn a_round_that_unwinds_is_no_outcome() {
    let waits = Arc::new(WaitTable::<WaitKey>::builder().build());
    let reason = Reason::register("test-a-round-that-unwinds");
    let rounds = GroupCommit::<(), u64>::new(waits, reason);
    let (begun, runs) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = |reached: &dyn Fn() -> bool| {
        while !reached() {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let (rounds, begun, runs) = (&rounds, &begun, &runs);
        let first = scope.spawn(move || {
            let run = |_| {
                begun.store(1, Ordering::Relaxed);
                until(&|| Ledger::snapshot().reason(reason).waits == 2);
                7
            };
            rounds.run(|| (), run)
        });
        until(&|| begun.load(Ordering::Relaxed) == 1);
        let others = [0, 1].map(|_| {
            let run = |_| {
                let nth = runs.fetch_add(1, Ordering::Relaxed);
                assert!(nth > 0, "the first round that they need unwinds");
                8
            };
            scope.spawn(move || rounds.run(|| (), run))
        });
        assert_eq!(first.join().unwrap(), 7);
        let outcomes = others.map(|other| other.join().is_ok_and(|outcome| outcome == 8));
        assert!(outcomes[0] != outcomes[1], "one has unwound, and one has run");
    });
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[test]
fn callers_share_the_next_round() {
    let waits = Arc::new(WaitTable::<WaitKey>::builder().build());
    let rounds = GroupCommit::<u64, Vec<u64>>::new(waits, Reason::OTHER);
    let (runs, ready) = (AtomicU64::new(0), AtomicU64::new(0));
    let outcomes: Vec<Vec<u64>> = thread::scope(|scope| {
        let (rounds, runs, ready) = (&rounds, &runs, &ready);
        let first = move |callers: Vec<u64>| {
            runs.fetch_add(1, Ordering::Relaxed);
            while ready.load(Ordering::Relaxed) < 32 {
                thread::yield_now();
            }
            (0..100).for_each(|_| thread::yield_now());
            callers
        };
        let first = scope.spawn(move || rounds.run(|| 32, first));
        while runs.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let others = (0..32).map(|caller| {
            scope.spawn(move || {
                ready.fetch_add(1, Ordering::Relaxed);
                let run = |callers| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    callers
                };
                rounds.run(|| caller, run)
            })
        });
        let others: Vec<_> = others.collect();
        assert_eq!(first.join().unwrap(), [32], "nobody joins a round that has begun");
        others.into_iter().map(|other| other.join().unwrap()).collect()
    });
    for (caller, served) in (0..).zip(&outcomes) {
        assert!(served.contains(&caller), "{caller} has the outcome of another round: {served:?}");
    }
    assert!((2..16).contains(&runs.load(Ordering::Relaxed)), "{runs:?}");
}

/// Nobody might poll it, while the thread behind it waits.
#[cfg(all(feature = "async", not(shuttle)))]
#[test]
fn a_task_is_not_woken_to_run_a_round() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use unherd_sys::Timestamp;

    let waits = Arc::new(WaitTable::<WaitKey>::builder().build());
    let reason = Reason::register("test-a-task-runs-no-round");
    let rounds = GroupCommit::<(), u64>::new(waits, reason);
    let (begun, goes) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = |reached: &dyn Fn() -> bool| {
        while !reached() {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let (rounds, begun, goes) = (&rounds, &begun, &goes);
        let first = scope.spawn(move || {
            let run = |_| {
                begun.store(1, Ordering::Relaxed);
                until(&|| goes.load(Ordering::Relaxed) == 1);
                7
            };
            rounds.run(|| (), run)
        });
        until(&|| begun.load(Ordering::Relaxed) == 1);
        let (round, starts) = rounds.join(());
        assert!(starts);
        let mut task = pin!(rounds.ended(&round));
        let mut context = Context::from_waker(Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
        let behind = scope.spawn(move || rounds.run(|| (), |_| 8));
        until(&|| Ledger::snapshot().reason(reason).waits == 2);
        goes.store(1, Ordering::Relaxed);
        let end = Timestamp::now().after(Duration::from_secs(9));
        until(&|| behind.is_finished() || Timestamp::now() > end);
        // Had the task been woken for it, this would run the round in its place.
        rounds.run(|| (), |_| 9);
        assert_eq!((first.join().unwrap(), behind.join().unwrap()), (7, 8));
        assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(Some(8)));
    });
}

/// Tasks of the next round rely on the runner.
#[cfg(all(feature = "async", not(shuttle)))]
#[test]
fn a_task_behind_a_round_that_unwinds_is_served() {
    let waits = Arc::new(WaitTable::<WaitKey>::builder().build());
    let (rounds, stage) = (GroupCommit::<(), u64>::new(waits, Reason::OTHER), AtomicU64::new(0));
    let until = |wanted| {
        while stage.load(Ordering::Relaxed) != wanted {
            thread::yield_now();
        }
    };
    let (first, starts) = rounds.join(());
    assert!(starts);
    thread::scope(|scope| {
        let runner = scope.spawn(|| {
            rounds.run_for_tasks(|_| {
                if stage.load(Ordering::Relaxed) == 0 {
                    stage.store(1, Ordering::Relaxed);
                    until(2);
                    panic!("as a device may");
                }
                8
            });
        });
        until(1);
        let (second, starts) = rounds.join(());
        assert!(!starts, "there is a runner");
        stage.store(2, Ordering::Relaxed);
        assert!(runner.join().is_err());
        let outcome = |round: &Arc<Round<u64>>| *round.outcome.lock();
        assert_eq!((outcome(&first), outcome(&second)), (None, Some(8)));
    });
}
