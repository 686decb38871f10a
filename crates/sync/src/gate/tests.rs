//! A gate with real threads, and the arithmetic of its parts.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_sys::primitives::AtomicUsize;

use super::*;
use crate::GateAccount;

const LONG: Duration = Duration::from_secs(3600);

/// A gate whose waits end by nothing but a release.
fn gate(mode: GateMode) -> Gate {
    Gate::builder().mode(mode).max_wait(Duration::MAX).build()
}

fn past() -> Deadline {
    Deadline::at(Timestamp::from_ns(0))
}

fn reason() -> Reason {
    Reason::register("gate-test")
}

impl Gate {
    fn wait(&self, deadline: Deadline) -> Waited {
        self.wait_iff(reason(), deadline)
    }

    fn until_waiting(&self, n: usize) {
        while self.status().waiters.len() != n {
            thread::yield_now();
        }
    }
}

#[test]
fn clear_gate_keeps_nobody() {
    for mode in [GateMode::Event, GateMode::Paced] {
        let gate = gate(mode);
        assert_eq!(gate.wait(Deadline::NEVER), Waited::at_once(WaitEnd::Clear));
        drop(gate.congest());
        assert_eq!(gate.wait(Deadline::NEVER), Waited::at_once(WaitEnd::Clear));
    }
}

#[test]
fn tokens_add_up() {
    let gate = gate(GateMode::Paced);
    let (first, second) = (gate.congest().into_shared(), gate.congest().into_shared());
    assert_eq!(gate.status().congested, 2);
    drop(first);
    assert_eq!(gate.wait(past()).why, WaitEnd::Timeout);
    drop(second);
    assert_eq!(gate.wait(past()).why, WaitEnd::Clear);
}

#[test]
fn each_unit_lets_one_waiter_go() {
    let gate = gate(GateMode::Paced);
    let congested = gate.congest().into_shared();
    let gone = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(gate.wait(Deadline::NEVER).why, WaitEnd::Progress);
                gone.fetch_add(1, Ordering::Relaxed);
            });
        }
        gate.until_waiting(4);
        for left in (0..4).rev() {
            gate.progress(1);
            gate.until_waiting(left);
        }
    });
    assert_eq!(gone.into_inner(), 4);
    assert_eq!(gate.wait(past()).why, WaitEnd::Timeout);
    drop(congested);
}

/// One wake for each: nobody wakes two.
#[test]
fn waiters_wake_one_another() {
    let reason = Reason::register("gate-chain");
    let gate = Gate::builder().max_wait(Duration::MAX).reason(reason).build();
    let wakes = || Ledger::snapshot().reason(reason).wakes;
    for ends_by_progress in [false, true] {
        let (congested, before) = (gate.congest().into_shared(), wakes());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| gate.wait(Deadline::NEVER));
            }
            gate.until_waiting(4);
            if ends_by_progress {
                gate.progress(4);
            } else {
                drop(congested);
            }
        });
        assert_eq!(wakes() - before, 4);
    }
}

#[test]
fn newcomer_stands_behind_those_that_sleep() {
    let gate = gate(GateMode::Paced);
    let congested = gate.congest().into_shared();
    thread::scope(|scope| {
        // It ends also where the newcomer has taken its unit.
        scope.spawn(|| gate.wait(Deadline::after(Duration::from_secs(5))));
        gate.until_waiting(1);
        // A unit of which the sleeper has not heard yet.
        let unit = |word| Some(State(word).progress(1).0);
        gate.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, unit).unwrap();
        assert_eq!(gate.wait(past()).why, WaitEnd::Timeout);
        gate.release();
    });
    drop(congested);
}

#[test]
fn units_wait_for_those_that_come_later() {
    let gate = gate(GateMode::Paced);
    gate.progress(7);
    let congested = gate.congest().into_shared();
    assert_eq!(gate.wait(past()).why, WaitEnd::Timeout, "drained before the congestion");
    gate.progress(2);
    let ends = [(); 3].map(|()| gate.wait(past()).why);
    assert_eq!(ends, [WaitEnd::Progress, WaitEnd::Progress, WaitEnd::Timeout]);
    gate.progress(1);
    drop(congested);
    let _again = gate.congest().into_shared();
    assert_eq!(gate.wait(past()).why, WaitEnd::Timeout, "a unit of an earlier congestion");
}

/// What a release finds when the gate was congested again since it has let the first go.
#[test]
fn chain_stops_at_new_congestion() {
    let gate = gate(GateMode::Paced);
    assert_eq!(gate.let_go(), Some(CLEARED));
    let congested = gate.congest().into_shared();
    assert_eq!(gate.let_go(), None);
    gate.progress(1);
    assert_eq!((gate.let_go(), gate.let_go()), (Some(PROGRESS), None));
    drop(congested);
    assert_eq!(gate.let_go(), Some(CLEARED));
}

/// It does not know any more what it holds.
#[test]
fn thread_that_ends_is_refused() {
    struct WaitsAtTheEnd(Arc<Gate>);
    impl Drop for WaitsAtTheEnd {
        fn drop(&mut self) {
            let _congested = self.0.congest();
            assert_eq!(self.0.wait(past()).why, WaitEnd::Refused);
        }
    }
    std::thread_local!(static LAST: RefCell<Option<WaitsAtTheEnd>> = const { RefCell::new(None) });

    let gate = Arc::new(gate(GateMode::Paced));
    let theirs = Arc::clone(&gate);
    let last = move || {
        LAST.set(Some(WaitsAtTheEnd(Arc::clone(&theirs))));
        drop(theirs.duty());
    };
    thread::spawn(last).join().unwrap();
    assert!(gate.status().congested == 0);
}

#[test]
fn thread_with_a_duty_is_refused() {
    let gate = gate(GateMode::Paced);
    let other = Gate::new();
    let congested = gate.congest();
    assert_eq!(gate.wait(past()).why, WaitEnd::Refused);
    let shared = congested.into_shared();
    assert_eq!(gate.wait(past()).why, WaitEnd::Timeout);
    let (duty, twice, _others) = (gate.duty(), gate.duty(), other.duty());
    drop(duty);
    assert_eq!(gate.wait(past()).why, WaitEnd::Refused);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(gate.wait(past()).why, WaitEnd::Timeout));
    });
    drop(twice);
    assert_eq!(gate.wait(past()).why, WaitEnd::Timeout);
    drop(shared);
}

#[test]
fn panic_drops_token_and_duty() {
    let gate = gate(GateMode::Paced);
    let panics = AssertUnwindSafe(|| {
        let _congested = gate.congest();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(catch_unwind(panics).is_err());
    assert_eq!(gate.wait(Deadline::NEVER).why, WaitEnd::Clear);
    let _congested = gate.congest().into_shared();
    assert_eq!(gate.wait(past()).why, WaitEnd::Timeout);
}

#[test]
fn silent_timeouts_make_the_signal_untrusted() {
    // Any time is long.
    let gate = Gate::builder().max_wait(Duration::ZERO).build();
    let _forgotten = gate.congest().into_shared();
    let ends = [(); 4].map(|()| gate.wait(past()).why);
    let timeout = WaitEnd::Timeout;
    assert_eq!(ends, [timeout, timeout, timeout, WaitEnd::Untrusted]);
    let status = gate.status();
    assert_eq!((status.untrusted, status.is_trusted), (1, false));
    gate.progress(1);
    assert!(gate.status().is_trusted);
    assert_eq!(gate.wait(past()).why, WaitEnd::Progress);
    let again = [(); 4].map(|()| gate.wait(past()).why);
    assert_eq!(again, ends);
    drop(gate.congest());
    assert!(!gate.status().is_trusted, "nothing has changed");
}

#[test]
fn timeouts_within_a_moving_gate_are_trusted() {
    let gate = Gate::builder().max_wait(LONG).build();
    let _congested = gate.congest().into_shared();
    assert!((0..8).all(|_| gate.wait(past()).why == WaitEnd::Timeout));
    assert!(gate.status().is_trusted);
}

#[test]
fn bound_lets_an_overdue_waiter_go() {
    for mode in [GateMode::Event, GateMode::Paced] {
        let gate = Gate::builder().mode(mode).max_wait(Duration::from_millis(1)).build();
        let _congested = gate.congest().into_shared();
        assert_eq!(gate.wait(Deadline::NEVER).why, WaitEnd::Overdue, "{mode:?}");
        assert_eq!(gate.status().overdue, 1);
    }
}

#[test]
fn bound_follows_the_rate() {
    let pace = GateRow::new();
    let max = Duration::from_secs(1);
    assert_eq!(pace.bound(0, max), max, "nothing is known");
    let at = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
    pace.note_change(at(1000));
    pace.note_progress(at(1040), 4, true);
    assert_eq!(pace.unit(), Some(Duration::from_millis(10)));
    assert_eq!(pace.bound(1, max), Duration::from_millis(160));
    assert_eq!(pace.bound(0, max), Duration::from_millis(80));
    assert_eq!(pace.bound(500, max), max);
    pace.note_progress(at(9000), 1, false);
    assert_eq!(pace.unit(), Some(Duration::from_millis(10)), "idle time is no rate");
    (1..100).for_each(|step| pace.note_progress(at(9000 + step), 1, true));
    assert_eq!(pace.bound(0, max), max / 16);
}

#[test]
fn closed_gate_cancels_all() {
    for mode in [GateMode::Fixed, GateMode::Event, GateMode::Paced] {
        let gate = gate(mode);
        let _congested = gate.congest().into_shared();
        thread::scope(|scope| {
            let waiters = [(); 3].map(|()| scope.spawn(|| gate.wait(Deadline::NEVER).why));
            gate.close();
            waiters.into_iter().for_each(|waiter| {
                let why = waiter.join().unwrap();
                assert!(matches!(why, WaitEnd::Cancelled), "{mode:?}: {why:?}");
            });
        });
        assert_eq!(gate.wait(Deadline::NEVER), Waited::at_once(WaitEnd::Cancelled));
        let _duty = gate.duty();
        assert_eq!(gate.wait(Deadline::NEVER), Waited::at_once(WaitEnd::Cancelled));
    }
    let gate = gate(GateMode::Skip);
    gate.close();
    assert_eq!(gate.wait(Deadline::NEVER), Waited::at_once(WaitEnd::Cancelled));
}

#[test]
fn waiter_of_after_now_has_waited_for_no_time() {
    let now = Timestamp::from_ns(5 << 20);
    let seen = status::waiter(status::tag(reason(), Timestamp::from_ns(7 << 20), Some(0)), now);
    assert_eq!(seen.since, now);
}

#[cfg(feature = "async")]
#[test]
fn waker_that_panics_keeps_nobody_from_going() {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Wake};

    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("the test's own panic"));
        }
    }
    for by_progress in [false, true] {
        let gate = gate(GateMode::Paced);
        let congested = gate.congest().into_shared();
        let mut task = pin!(gate.wait_iff_async(reason()));
        let waker = Arc::new(Bomb).into();
        assert!(task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| gate.wait(Deadline::NEVER));
            gate.until_waiting(2);
            let release = || match by_progress {
                true => gate.progress(2),
                false => drop(congested),
            };
            assert!(catch_unwind(AssertUnwindSafe(release)).is_err());
            let asleep = gate.status().waiters.len();
            gate.close();
            waiter.join().unwrap();
            assert_eq!(asleep, 0);
        });
    }
}

#[test]
fn status_tells_a_stall() {
    let gate = gate(GateMode::Paced);
    let congested = gate.congest().into_shared();
    assert_eq!(gate.status().stalled_for(), Duration::ZERO);
    thread::scope(|scope| {
        let waiter =
            scope.spawn(|| (gate.wait(Deadline::NEVER), std::fs::read_link("/proc/thread-self")));
        gate.until_waiting(1);
        let now = Timestamp::now();
        let status = gate.status_at(now.after(LONG));
        let first = status.waiters[0];
        assert_eq!(first.reason, reason());
        assert!(first.since <= now && now.since(first.since) < LONG, "{status}");
        assert!(status.stalled_for() >= LONG, "{status}");
        assert!(status.to_string().starts_with("congested by 1; progress: never; trusted"));
        drop(congested);
        let (waited, link) = waiter.join().unwrap();
        assert_eq!(waited.why, WaitEnd::Cleared);
        let number = link.unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
        assert_eq!(first.thread, Some(number));
    });
    assert!(gate.status().waiters.is_empty());
}

#[test]
fn progress_ends_a_stall() {
    let gate = gate(GateMode::Paced);
    let _congested = gate.congest().into_shared();
    let status = gate.status();
    let congested_at = status.last_change;
    let waiter = GateWaiter { thread: None, reason: reason(), since: congested_at };
    let stalled = GateStatus { waiters: vec![waiter], now: congested_at.after(LONG), ..status };
    assert_eq!(stalled.stalled_for(), LONG);
    let moved = GateStatus { last_progress: Some(congested_at.after(LONG / 2)), ..stalled };
    assert_eq!(moved.stalled_for(), LONG / 2);
}

/// At a gate that was calm for long, one that waits is seen before the change that it waits for.
#[test]
fn stall_is_no_older_than_its_waits() {
    let last_change = Timestamp::from_ns(1);
    let now = last_change.after(LONG);
    let since = last_change.after(LONG / 2);
    let waiters = vec![GateWaiter { thread: None, reason: reason(), since }];
    let seen = GateStatus { now, last_change, waiters, ..gate(GateMode::Paced).status() };
    assert_eq!(seen.stalled_for(), LONG / 2);
    let account = GateAccount {
        now,
        reason: reason(),
        waiters: seen.waiters.clone(),
        waiting: 1,
        last_change,
        last_progress: None,
        is_trusted: true,
        untrusted: 0,
        overdue: 0,
    };
    assert_eq!(account.stalled_for(), LONG / 2);
    assert_eq!(GateAccount { waiting: 0, ..account.clone() }.stalled_for(), Duration::ZERO);
    // Its waits are short.
    assert_eq!(GateStatus { is_trusted: false, ..seen }.stalled_for(), LONG);
    assert_eq!(GateAccount { is_trusted: false, ..account }.stalled_for(), LONG);
}

#[test]
fn fixed_sleep_at_a_new_gate_is_no_stall() {
    let own = Reason::register("gate-no-stall");
    let gate = Gate::builder().mode(GateMode::Fixed).reason(own).build();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| gate.wait(Deadline::NEVER));
        while !waiter.is_finished() {
            assert_eq!(gate.status().stalled_for(), Duration::ZERO);
            let in_ledger = Ledger::gates().into_iter().find(|gate| gate.reason == own);
            assert_eq!(
                in_ledger.map(|gate| gate.stalled_for()).unwrap_or_default(),
                Duration::ZERO
            );
        }
    });
}

#[test]
fn tag_tells_what_was_packed() {
    let now = Timestamp::now();
    let since = Timestamp::from_ns(now.as_ns() - 5_000_000_000);
    let found = status::waiter(status::tag(reason(), since, None), now);
    assert_eq!((found.thread, found.reason), (None, reason()));
    assert!(since.since(found.since) < Duration::from_millis(2) && found.since <= since);
}

#[test]
fn fixed_sleeps_are_needless_when_clear() {
    let gate = Gate::builder().mode(GateMode::FixedShort).build();
    let before = Ledger::snapshot();
    let waited = gate.wait_iff(Reason::register("gate-fixed"), Deadline::NEVER);
    assert!(waited.needless && waited.slept >= FIXED_SHORT, "{waited:?}");
    let counts = Ledger::snapshot().since(&before).reason(Reason::register("gate-fixed"));
    assert_eq!((counts.waits, counts.needless_wakeups), (1, 1));
    let congested = gate.congest().into_shared();
    let waited = gate.wait(Deadline::NEVER);
    assert!(!waited.needless && waited.why == WaitEnd::Overdue, "{waited:?}");
    drop(congested);
}

#[test]
fn fixed_sleep_ends_as_the_gate_clears() {
    for mode in [GateMode::Fixed, GateMode::Skip, GateMode::Event] {
        let gate = gate(mode);
        let congested = gate.congest().into_shared();
        thread::scope(|scope| {
            let waiters = [(); 3].map(|()| scope.spawn(|| gate.wait(Deadline::NEVER)));
            gate.until_waiting(3);
            drop(congested);
            for waiter in waiters {
                let waited = waiter.join().unwrap();
                assert!(!waited.needless, "{mode:?}: {waited:?}");
            }
        });
    }
}

#[test]
fn clear_gate_is_skipped() {
    let gate = gate(GateMode::Skip);
    let waited = gate.wait(Deadline::NEVER);
    assert_eq!((waited.why, waited.needless), (WaitEnd::Clear, !waited.slept.is_zero()));
}

#[test]
fn storm_loses_no_waiter() {
    const WAITS: usize = 300;
    for mode in [GateMode::Paced, GateMode::Event] {
        let gate = gate(mode);
        let waiting = AtomicUsize::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..WAITS {
                        assert!(!gate.wait(Deadline::NEVER).needless);
                    }
                    waiting.fetch_sub(1, Ordering::Relaxed);
                });
            }
            while waiting.load(Ordering::Relaxed) > 0 {
                let congested = gate.congest();
                gate.progress(1);
                thread::yield_now();
                drop(congested);
                thread::yield_now();
            }
        });
        assert!(gate.status().waiters.is_empty());
        assert_eq!(gate.row.get(GateField::Waiting), 0);
    }
}

#[cfg(feature = "async")]
mod task {
    use unherd_testkit::block_on;

    use super::*;

    fn assert_send<T: Send>(value: T) -> T {
        value
    }

    #[test]
    fn tasks_and_threads_stand_in_one_queue() {
        let gate = gate(GateMode::Paced);
        let congested = gate.congest().into_shared();
        thread::scope(|scope| {
            let task = scope.spawn(|| block_on(assert_send(gate.wait_iff_async(reason()))));
            gate.until_waiting(1);
            let thread = scope.spawn(|| gate.wait(Deadline::NEVER));
            gate.until_waiting(2);
            assert_eq!(gate.status().waiters[0].thread, None);
            gate.progress(1);
            assert_eq!(task.join().unwrap().why, WaitEnd::Progress);
            assert_eq!(gate.status().waiters.len(), 1);
            drop(congested);
            assert_eq!(thread.join().unwrap().why, WaitEnd::Cleared);
        });
        assert_eq!(block_on(gate.wait_iff_async(reason())).why, WaitEnd::Clear);
    }

    #[test]
    fn task_at_a_clear_gate_does_not_sleep() {
        for mode in [GateMode::Fixed, GateMode::Skip, GateMode::Event, GateMode::Paced] {
            let gate = gate(mode);
            assert_eq!(block_on(gate.wait_iff_async(reason())).why, WaitEnd::Clear, "{mode:?}");
        }
    }
}

#[test]
fn an_owned_token_keeps_its_gate() {
    let gate = std::sync::Arc::new(Gate::new());
    let (owned, other) = (gate.congest_owned(), gate.congest().into_shared());
    assert_eq!(gate.status().congested, 2);
    drop(other);
    let waited = gate.wait_iff(Reason::OTHER, Deadline::at(Timestamp::from_ns(0)));
    assert_eq!(waited.why, WaitEnd::Timeout, "the thread that congests may wait");
    thread::spawn(move || drop(owned)).join().unwrap();
    assert_eq!(gate.status().congested, 0);
    assert_eq!(std::sync::Arc::strong_count(&gate), 1);
}
