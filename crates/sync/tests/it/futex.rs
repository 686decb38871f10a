//! The functional tests of the kernel's selftests for futex(2), case by case, each under the name
//! of its original, and the cases that futex(2) itself answers beside ours.
//!
//! `docs/futex.md` lists those that are left out, as there is nothing to test: priority
//! inheritance, robust lists, words shared between processes or in mapped files, the hash of each
//! process and NUMA nodes, invalid clocks and flags, null and misaligned words.

use std::num::NonZeroU32;
use std::time::Duration;

use unherd_sync::{Deadline, FutexOp, FutexTable, WAIT_ANY_MAX};
use unherd_sys::Errno;
use unherd_sys::primitives::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, thread};

fn soon() -> Deadline {
    Deadline::after(Duration::from_micros(100))
}

/// Waits until `n` threads wait for `word`: to requeue a word to itself counts them.
fn until_waiting(table: &FutexTable, word: &AtomicU32, n: usize) {
    while table.requeue(word, word, 0, usize::MAX) < n {
        thread::yield_now();
    }
}

#[test]
fn futex_wait_private() {
    let (table, word) = (FutexTable::new(), AtomicU32::new(0));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.wait(&word, 0, Deadline::NEVER));
        until_waiting(&table, &word, 1);
        assert_eq!(table.wake(&word, 1), 1);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn futex_wait_wouldblock() {
    let (table, word) = (FutexTable::new(), AtomicU32::new(0));
    assert_eq!(table.wait(&word, 1, soon()), Err(Errno::AGAIN));
    assert_eq!(table.wait_any(&[(&word, 1)], soon()), Err(Errno::AGAIN));
    // A mismatch wins over a deadline that has passed.
    assert_eq!(table.wait(&word, 1, Deadline::after(Duration::ZERO)), Err(Errno::AGAIN));
}

#[test]
fn futex_wait_timeout() {
    let (table, word) = (FutexTable::new(), AtomicU32::new(0));
    assert_eq!(table.wait(&word, 0, soon()), Err(Errno::TIMEDOUT));
    let bits = NonZeroU32::MIN;
    assert_eq!(table.wait_bitset(&word, 0, bits, soon()), Err(Errno::TIMEDOUT));
    assert_eq!(table.wait_any(&[(&word, 0)], soon()), Err(Errno::TIMEDOUT));
}

#[test]
fn futex_requeue_single() {
    let (table, f1, f2) = (FutexTable::new(), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.wait(&f1, 0, Deadline::NEVER));
        until_waiting(&table, &f1, 1);
        assert_eq!(table.cmp_requeue(&f1, 0, &f2, 0, 1), Ok(1));
        assert_eq!(table.wake(&f2, 1), 1);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn futex_requeue_multiple() {
    let (table, f1, f2) = (FutexTable::new(), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| assert_eq!(table.wait(&f1, 0, Deadline::NEVER), Ok(())));
        }
        until_waiting(&table, &f1, 10);
        assert_eq!(table.cmp_requeue(&f1, 1, &f2, 3, 7), Err(Errno::AGAIN));
        assert_eq!(table.cmp_requeue(&f1, 0, &f2, 3, 7), Ok(10));
        assert_eq!(table.wake(&f2, i32::MAX as usize), 7);
    });
    // The value counts also where nobody waits.
    assert_eq!(table.cmp_requeue(&f1, 1, &f2, 3, 7), Err(Errno::AGAIN));
    assert_eq!(table.cmp_requeue(&f1, 0, &f2, 3, 7), Ok(0));
}

#[test]
fn futex_waitv_private() {
    let (table, words) = (FutexTable::new(), [const { AtomicU32::new(0) }; 30]);
    let all: Vec<_> = words.iter().map(|word| (word, 0)).collect();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.wait_any(&all, Deadline::NEVER));
        until_waiting(&table, &words[29], 1);
        assert_eq!(table.wake(&words[29], 1), 1);
        assert_eq!(waiter.join().unwrap(), Ok(29));
    });
}

#[test]
fn waitv_of_none_or_too_many_is_refused() {
    let (table, word) = (FutexTable::new(), AtomicU32::new(0));
    assert_eq!(table.wait_any::<AtomicU32>(&[], soon()), Err(Errno::INVAL));
    assert_eq!(table.wait_any(&[(&word, 0); WAIT_ANY_MAX + 1], soon()), Err(Errno::INVAL));
    assert_eq!(table.wait_any(&[(&word, 0); WAIT_ANY_MAX], soon()), Err(Errno::TIMEDOUT));
}

#[test]
fn bitsets_choose_among_waiters() {
    let (table, word) = (FutexTable::new(), AtomicU32::new(0));
    let bits = |bits| NonZeroU32::new(bits).unwrap();
    thread::scope(|scope| {
        let waiters = [1, 2, 6].map(|mine| {
            let (table, word) = (&table, &word);
            scope.spawn(move || table.wait_bitset(word, 0, bits(mine), Deadline::NEVER))
        });
        until_waiting(&table, &word, 3);
        assert_eq!(table.wake_bitset(&word, 9, bits(8)), 0);
        assert_eq!(table.wake_bitset(&word, 9, bits(2)), 2);
        // A plain wake finds any.
        assert_eq!(table.wake(&word, 9), 1);
        waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), Ok(())));
    });
}

/// Wakes of 0, and requeues from a word to itself.
#[test]
fn the_kernels_odd_cases() {
    let (table, word) = (FutexTable::new(), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(table.wait(&word, 0, Deadline::NEVER), Ok(())));
        }
        until_waiting(&table, &word, 4);
        assert_eq!(table.wake(&word, 0), 1);
        assert_eq!(table.wake_bitset(&word, 0, NonZeroU32::MAX), 1);
        assert_eq!(table.requeue(&word, &word, 0, 1), 1);
        assert_eq!(table.requeue(&word, &word, 1, 9), 2);
        assert_eq!(table.wake(&word, 9), 1);
    });
}

#[test]
fn wake_op_changes_then_wakes() {
    let (table, word, other) = (FutexTable::new(), AtomicU32::new(0), AtomicU32::new(6));
    let none = |op| table.wake_op(&word, 1, &other, 1, op, |_| true);
    for (op, after) in [
        (FutexOp::Add(1), 7),
        (FutexOp::AndNot(2), 5),
        (FutexOp::Or(8), 13),
        (FutexOp::Xor(1), 12),
        (FutexOp::Set(3), 3),
    ] {
        assert_eq!((none(op), other.load(Ordering::Relaxed)), (0, after));
    }
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(table.wait(&word, 0, Deadline::NEVER), Ok(())));
        scope.spawn(|| assert_eq!(table.wait(&other, 3, Deadline::NEVER), Ok(())));
        until_waiting(&table, &word, 1);
        until_waiting(&table, &other, 1);
        let add = FutexOp::Add(1);
        assert_eq!(table.wake_op(&word, 1, &other, 1, add, |before| before != 3), 1);
        assert_eq!(table.wake_op(&word, 1, &other, 1, add, |before| before == 4), 1);
    });
}

#[test]
fn words_of_other_sizes() {
    let (table, byte, long) = (FutexTable::new(), AtomicU8::new(1), AtomicU64::new(1 << 40));
    let short = AtomicU16::new(1 << 9);
    assert_eq!(table.wait(&short, 1, soon()), Err(Errno::AGAIN));
    assert_eq!(table.wait(&short, 1 << 9, soon()), Err(Errno::TIMEDOUT));
    assert_eq!(table.wait(&byte, 0, soon()), Err(Errno::AGAIN));
    assert_eq!(table.wait(&byte, 1, soon()), Err(Errno::TIMEDOUT));
    assert_eq!(table.wait(&long, 0, soon()), Err(Errno::AGAIN));
    assert_eq!(table.wait(&long, 1 << 40, soon()), Err(Errno::TIMEDOUT));
}
