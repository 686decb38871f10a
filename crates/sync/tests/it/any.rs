//! Waits for any of several keys.

use unherd_sync::{
    AnyOutcome, Deadline, Outcome, Reason, Timestamp, Token, Verdict, WAIT_ANY_MAX, WaitAnyError,
    WaitTable,
};
use unherd_sys::primitives::{Arc, AtomicUsize, Ordering, thread};

use crate::sleeping::Sleeper;

type Table = WaitTable<u64>;

fn past() -> Deadline {
    Deadline::at(Timestamp::from_ns(1))
}

fn no_validate(_: usize) -> bool {
    panic!("it is not asked")
}

/// A thread that waits for any of `keys`, and was queued for all of them.
fn start(table: &Arc<Table>, keys: &[u64]) -> thread::JoinHandle<AnyOutcome> {
    let (table, keys) = (Arc::clone(table), keys.to_vec());
    let queued = Arc::new(AtomicUsize::new(0));
    let last = keys.len() - 1;
    let thread = {
        let (table, queued) = (Arc::clone(&table), Arc::clone(&queued));
        let keys = keys.clone();
        thread::spawn(move || {
            let validate = |index: usize| {
                queued.store(index, Ordering::Relaxed);
                true
            };
            table.wait_any(&keys, validate, Reason::OTHER).expect("some keys")
        })
    };
    let mut found = false;
    while !found {
        thread::yield_now();
        let look = |_| {
            found = queued.load(Ordering::Relaxed) == last;
            Verdict::Skip
        };
        table.wake_where(&keys[last], look, Token(0));
    }
    thread
}

fn by(index: usize, token: u64) -> AnyOutcome {
    AnyOutcome::Woken { index, token: Token(token) }
}

#[test]
fn keys_that_cannot_be_waited_for_are_refused() {
    let table = Table::builder().build();
    let none = table.wait_any(&[], no_validate, Reason::OTHER);
    assert_eq!(none, Err(WaitAnyError::NoKeys));
    let keys = [7; WAIT_ANY_MAX + 1];
    let (given, max) = (keys.len(), WAIT_ANY_MAX);
    let many = table.wait_any(&keys, no_validate, Reason::OTHER);
    assert_eq!(many, Err(WaitAnyError::TooManyKeys { given, max }));
    let all = table.wait_any(&keys[1..], |_| true, past());
    assert_eq!(all, Ok(AnyOutcome::TimedOut));
    assert_eq!(table.wake_all(&7), 0);
}

#[test]
fn each_key_wakes_and_the_others_are_left() {
    for buckets in [1, 64] {
        let table = Arc::new(Table::builder().buckets(buckets).build());
        let keys: Vec<u64> = (0..WAIT_ANY_MAX as u64).collect();
        for index in [0, 31, 63] {
            let waiter = start(&table, &keys);
            assert_eq!(table.wake_with(&keys[index], 9, Token(5)), 1);
            // Counted once, whether its other nodes are still there or not.
            assert!(keys.iter().all(|key| table.wake_all(key) == 0));
            assert_eq!(waiter.join().expect("no panic"), by(index, 5));
        }
    }
}

#[test]
fn a_key_may_be_there_twice() {
    let table = Arc::new(Table::builder().buckets(1).build());
    let waiter = start(&table, &[1, 1, 1]);
    let behind = Sleeper::start(&table, 1);
    assert_eq!(table.wake_with(&1, 2, Token(3)), 2);
    assert_eq!(waiter.join().expect("no panic"), by(0, 3));
    assert_eq!(behind.join(), Outcome::Woken(Token(3)));
}

#[test]
fn a_large_wake_counts_each_wait_once() {
    let table = Arc::new(Table::builder().buckets(1).build());
    let waiters: Vec<_> = (0..20).map(|_| start(&table, &[1, 1, 2])).collect();
    let sleepers: Vec<_> = (0..40).map(|_| Sleeper::start(&table, 1)).collect();
    assert_eq!(table.wake_with(&1, usize::MAX, Token(8)), 60);
    assert_eq!(table.wake_all(&2), 0);
    for waiter in waiters {
        assert!([by(0, 8), by(1, 8)].contains(&waiter.join().expect("no panic")));
    }
    for sleeper in sleepers {
        assert_eq!(sleeper.join(), Outcome::Woken(Token(8)));
    }
}

#[test]
fn unfiltered_wakes_reach_the_bucket() {
    let table = Arc::new(Table::builder().buckets(1).filtered(false).build());
    let waiter = {
        let table = Arc::clone(&table);
        thread::spawn(move || table.wait_any(&[1, 2], |_| true, Reason::OTHER).expect("two keys"))
    };
    while table.wake_with(&3, 1, Token(5)) == 0 {
        thread::yield_now();
    }
    assert!(matches!(waiter.join().expect("no panic"), AnyOutcome::Woken { token: Token(0), .. }));
}

#[test]
fn validate_is_asked_up_to_the_first_no() {
    let table = Table::builder().buckets(1).build();
    let mut asked = Vec::new();
    let validate = |index| {
        asked.push(index);
        index < 2
    };
    let outcome = table.wait_any(&[5, 6, 7, 8], validate, Reason::OTHER);
    assert_eq!(outcome, Ok(AnyOutcome::Invalid { index: 2 }));
    assert_eq!(asked, [0, 1, 2]);
    let mut asked = 0;
    let validate = |_| {
        asked += 1;
        true
    };
    assert_eq!(table.wait_any(&[5, 6], validate, past()), Ok(AnyOutcome::TimedOut));
    assert_eq!(asked, 2);
    assert!((5..9).all(|key| table.wake_all(&key) == 0));
}

/// The filter chooses the first, which another key wakes meanwhile: the next gets the wake.
#[test]
fn a_wake_that_comes_late_goes_to_the_next() {
    let table = Arc::new(Table::builder().buckets(1 << 10).seed(1).build());
    let any = start(&table, &[1, 2]);
    let behind = {
        let table = table.clone();
        thread::spawn(move || table.wait(&1, || true, Reason::OTHER))
    };
    let mut waiting = 0;
    while waiting < 2 {
        thread::yield_now();
        waiting = 0;
        let count = |_| {
            waiting += 1;
            Verdict::Skip
        };
        table.wake_where(&1, count, Token(0));
    }
    let mut is_first = true;
    let filter = |_| {
        if std::mem::take(&mut is_first) {
            let table = table.clone();
            let other = thread::spawn(move || table.wake(&2, 1).total());
            assert_eq!(other.join().unwrap(), 1);
        }
        Verdict::WakeAndStop
    };
    assert_eq!(table.wake_where(&1, filter, Token(5)), 1);
    assert_eq!(any.join().unwrap(), by(1, 0));
    assert_eq!(behind.join().unwrap(), Outcome::Woken(Token(5)));
}
