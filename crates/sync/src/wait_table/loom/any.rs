//! A wait for any of several keys that meets wakes.

use super::*;

fn any(table: &Table, keys: &[u32], valid: impl FnMut(usize) -> bool, how: Wait) -> AnyOutcome {
    table.wait_any(keys, valid, how).expect("a few keys")
}

fn spawn_wake(table: &Arc<Table>, key: u32, n: usize) -> thread::JoinHandle<usize> {
    let table = Arc::clone(table);
    thread::spawn(move || table.wake_with(&key, n, Token(u64::from(key))).total())
}

/// What a wait for keys 1 and 2 says, if the wakes of each have woken `woken` waiters.
fn agrees(outcome: AnyOutcome, woken: [usize; 2]) -> bool {
    let by = |index, token| AnyOutcome::Woken { index, token: Token(token) };
    match woken {
        [0, 0] => !matches!(outcome, AnyOutcome::Woken { .. }),
        [1, 0] => outcome == by(0, 1),
        [0, 1] => outcome == by(1, 2),
        _ => false,
    }
}

/// Two wakes of two keys: one of them wakes, or both were seen to be needless.
#[test]
fn any_two_wakers() {
    check(TWO_PREEMPTIONS, || {
        let (table, conditions) = (table(), Arc::new([AtomicU32::new(0), AtomicU32::new(0)]));
        let wakers = [0, 1].map(|index| {
            let (table, conditions) = (Arc::clone(&table), Arc::clone(&conditions));
            thread::spawn(move || {
                let key = index as u32 + 1;
                conditions[index].store(1, Ordering::Relaxed);
                table.wake_with(&key, 1, Token(u64::from(key))).total()
            })
        });
        let unmet = |index: usize| conditions[index].load(Ordering::Relaxed) == 0;
        let outcome = any(&table, &[1, 2], unmet, Reason::OTHER.into());
        let woken = wakers.map(|waker| waker.join().unwrap());
        assert!(agrees(outcome, woken), "{outcome:?} {woken:?}");
    });
}

/// A wake of the first key, and a second that is not worth waiting for.
#[test]
fn any_invalid_meets_wake() {
    check(FOUR_PREEMPTIONS, || {
        let table = table();
        let waker = spawn_wake(&table, 1, 1);
        let outcome = any(&table, &[1, 2], |index| index == 0, Reason::OTHER.into());
        let woken = waker.join().unwrap();
        assert!(agrees(outcome, [woken, 0]), "{outcome:?} {woken}");
        assert_ne!(outcome, AnyOutcome::TimedOut);
    });
}

/// (A) for the second key, in another bucket.
#[test]
fn any_second_key_meets_wake() {
    check(ALL, || {
        let (table, condition) = (requeue::two_buckets(), Arc::new(AtomicU32::new(0)));
        let [first, second, _] = requeue::keys(&table);
        let waker = {
            let (table, condition) = (Arc::clone(&table), Arc::clone(&condition));
            thread::spawn(move || {
                condition.store(1, Ordering::Relaxed);
                table.wake_with(&second, 1, Token(2)).total()
            })
        };
        let unmet = |index| index == 0 || condition.load(Ordering::Relaxed) == 0;
        let outcome = any(&table, &[first, second], unmet, Reason::OTHER.into());
        let woken = waker.join().unwrap();
        assert!(agrees(outcome, [0, woken]), "{outcome:?} {woken}");
    });
}

#[test]
fn any_timeout_meets_wake() {
    check(FOUR_PREEMPTIONS, || {
        let table = table();
        let waker = spawn_wake(&table, 2, 1);
        let outcome = any(&table, &[1, 2], |_| true, past().into());
        let woken = waker.join().unwrap();
        assert!(agrees(outcome, [0, woken]), "{outcome:?} {woken}");
    });
}

/// A wake of all, which carries one at a time, and finds two nodes of one wait. It may find the
/// first alone, and the second may come too late or not at all.
#[test]
fn any_of_one_key_twice_meets_wake_of_all() {
    check(FEW_PREEMPTIONS, || {
        let table = table();
        let waker = spawn_wake(&table, 1, usize::MAX);
        let outcome = any(&table, &[1, 1], |_| true, past().into());
        let woken = waker.join().unwrap();
        let is_woken = matches!(outcome, AnyOutcome::Woken { token: Token(1), .. });
        assert_eq!(usize::from(is_woken), woken, "{outcome:?}");
        assert!(table.buckets.is_empty(table.hash_of(&1)));
    });
}

/// The wake that loses its claim goes on to the next waiter of its key.
#[test]
fn any_that_is_lost_leaves_the_wake_to_others() {
    check(FEW_PREEMPTIONS, || {
        let table = table();
        let conditions = Arc::new(AtomicU32::new(0));
        let waiter = {
            let (table, conditions) = (Arc::clone(&table), Arc::clone(&conditions));
            thread::spawn(move || {
                any(&table, &[1, 2], |_| conditions.load(Ordering::Relaxed) == 0, past().into())
            })
        };
        let other = Queued::queue(&table, 2, false);
        conditions.store(1, Ordering::Relaxed);
        let woken = [1, 2].map(|key| table.wake_with(&key, 1, Token(u64::from(key))).total());
        let outcome = waiter.join().unwrap();
        let other = other.give_up(&table);
        let others = usize::from(other.is_some());
        assert!(agrees(outcome, [woken[0], woken[1] - others]), "{outcome:?} {woken:?} {other:?}");
        assert_eq!(woken[1], 1);
    });
}

/// One of the nodes is moved while its owner gives up, and is found where it went.
#[test]
fn any_timeout_meets_requeue() {
    check(FOUR_PREEMPTIONS, || {
        let table = requeue::two_buckets();
        let [one, to, two] = requeue::keys(&table);
        let owner = {
            let table = Arc::clone(&table);
            thread::spawn(move || any(&table, &[one, two], |_| true, past().into()))
        };
        let moved = table.requeue(&one, &to, 0, 1).moved;
        let woken = table.wake_with(&to, 1, Token(1)).total();
        let outcome = owner.join().unwrap();
        assert!(woken <= moved && agrees(outcome, [woken, 0]), "{outcome:?} {woken} {moved}");
        assert!([one, to, two].iter().all(|key| quiet(&table, *key)));
    });
}

/// One that another key has woken is not moved, and not counted; a waiter beside it is.
#[test]
fn any_that_is_lost_meets_requeue() {
    check(FOUR_PREEMPTIONS, || {
        let table = requeue::two_buckets();
        let [one, to, two] = requeue::keys(&table);
        let beside = Queued::queue(&table, one, false);
        let owner = {
            let table = Arc::clone(&table);
            thread::spawn(move || any(&table, &[one, two], |_| true, past().into()))
        };
        let by_two = table.wake_with(&two, 1, Token(2)).total();
        let moved = table.requeue(&one, &to, 0, 2).moved;
        let by_one = table.wake_with(&to, 2, Token(1)).total() - 1;
        let outcome = owner.join().unwrap();
        assert!(agrees(outcome, [by_one, by_two]), "{outcome:?} {by_one} {by_two}");
        assert!(moved > by_one && moved <= 2 - by_two, "{moved} {by_one} {by_two}");
        assert_eq!(beside.give_up(&table), Some(Token(1)));
        assert!([one, to, two].iter().all(|key| quiet(&table, *key)));
    });
}
