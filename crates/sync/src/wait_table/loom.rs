//! The protocols under loom: two or three threads each, all interleavings, weak memory.
//!
//! Run twice: with futex sleeps that only a wake ends, so that a lost wakeup is a deadlock; and
//! with `--cfg model_yield`, where sleeps bring no ordering of their own.
#![expect(unsafe_code, reason = "cells whose accesses loom checks")]

mod any;
mod requeue;
mod task;
mod wake_batch;

use unherd_sys::Deadline;
use unherd_sys::primitives::{Arc, AtomicU32, AtomicUsize, Ordering, UnsafeCell, thread};

use super::*;

type Table = WaitTable<u32>;

fn table() -> Arc<Table> {
    Arc::new(WaitTable::<u32>::builder().buckets(1).seed(1).build())
}

/// Every interleaving of scenes with two threads.
const ALL: Option<usize> = None;
/// Those with three threads: all that preempt threads at most so often. A yield that preempts
/// counts too, so there the bound is lower, or two threads yield to each other for ever.
const FEW_PREEMPTIONS: Option<usize> = Some(if cfg!(model_yield) { 2 } else { 3 });

/// The same for those that need fewer to show what they are about.
const TWO_PREEMPTIONS: Option<usize> = Some(if cfg!(model_yield) { 1 } else { 2 });
const ONE_PREEMPTION: Option<usize> = Some(1);

/// Those with two threads that take two locks each.
const FOUR_PREEMPTIONS: Option<usize> = Some(4);

pub(crate) fn check(preemptions: Option<usize>, scene: impl Fn() + Send + Sync + 'static) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.max_branches = 20_000;
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        scene();
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{runs} runs");
    assert!(runs > 1, "threads that do not meet show nothing");
}

/// A node whose owner is played by the scene, at any time.
struct Queued(Node<u32>);

// SAFETY: the table's protocol orders the accesses, and loom checks that it does.
unsafe impl Send for Queued {}
// SAFETY: as above.
unsafe impl Sync for Queued {}

impl Queued {
    /// One that is queued already. It stays until the scene's table is gone, or its owner has left.
    fn queue(table: &Table, key: u32, shared: bool) -> Arc<Self> {
        let hash = table.hash_of(&key);
        let wait = Wait::new(Reason::OTHER);
        let wait = if shared { wait.shared() } else { wait };
        let node = Arc::new(Self(Node::new(key, hash, wait)));
        // SAFETY: the scene sees to it that the owner leaves before the node does.
        unsafe { table.buckets.lock(hash).push(&node.0, |other| *other == key) };
        node
    }

    /// What its owner does whose deadline has passed: the token, if it was woken.
    fn give_up(&self, table: &Table) -> Option<Token> {
        // SAFETY: it was handed back.
        (!table.unlink(&self.0)).then(|| unsafe { self.0.token() })
    }
}

/// Whether nobody waits for `key`, as a wake sees it.
fn quiet(table: &Table, key: u32) -> bool {
    table.buckets.is_empty(table.hash_of(&key))
}

fn past() -> Deadline {
    Deadline::at(unherd_sys::Timestamp::from_ns(0))
}

/// The empty check: a waker either finds the waiter, or the waiter sees the condition. `wake` wakes
/// key 1, and says whether there was somebody.
fn race_with_wait(change: fn(&AtomicU32), wake: fn(&Table) -> bool) {
    check(ALL, move || {
        let table = table();
        let condition = Arc::new(AtomicU32::new(0));
        let waiter = {
            let (table, condition) = (Arc::clone(&table), Arc::clone(&condition));
            thread::spawn(move || {
                let unmet = || condition.load(Ordering::Relaxed) == 0;
                table.wait(&1, unmet, Reason::OTHER)
            })
        };
        change(&condition);
        let is_woken = wake(&table);
        let outcome = waiter.join().unwrap();
        assert_eq!(is_woken, outcome == Outcome::Woken(Token(0)));
    });
}

fn store(condition: &AtomicU32) {
    condition.store(1, Ordering::Relaxed);
}

#[test]
fn wake_races_with_wait() {
    race_with_wait(store, |table| table.wake(&1, 1) == 1);
}

#[test]
fn wake_after_rmw_races_with_wait() {
    let change = |condition: &AtomicU32| _ = condition.fetch_add(1, Ordering::Relaxed);
    race_with_wait(change, |table| table.is_waited_for_after_rmw(&1) && table.wake(&1, 1) == 1);
}

#[test]
fn wakes_of_many_race_with_a_wait() {
    let wake =
        |table: &Table| table.waited_for([0, 1]).filter(|key| table.wake(key, 1) == 1).count() == 1;
    race_with_wait(store, wake);
}

/// What the waker wrote before the wake is visible to the woken, plain memory included.
#[test]
fn woken_sees_what_the_waker_wrote() {
    struct Shared(UnsafeCell<u32>);
    // SAFETY: the scene's own protocol orders the accesses, and loom checks that it does.
    unsafe impl Sync for Shared {}
    check(ALL, || {
        let table = table();
        let shared = Arc::new((Shared(UnsafeCell::new(0)), AtomicU32::new(0)));
        let waker = {
            let (table, shared) = (Arc::clone(&table), Arc::clone(&shared));
            thread::spawn(move || {
                // SAFETY: before the wake, this thread alone uses it.
                shared.0.0.with_mut(|value| unsafe { *value = 7 });
                while table.wake_with(&1, 1, Token(3)) == 0 {
                    thread::yield_now();
                }
            })
        };
        assert_eq!(table.wait(&1, || true, Reason::OTHER), Outcome::Woken(Token(3)));
        // SAFETY: after the wake, this thread alone uses it.
        assert_eq!(shared.0.0.with(|value| unsafe { *value }), 7);
        waker.join().unwrap();
    });
}

/// A timeout that meets a wake: exactly one of them wins, and the waker says which.
#[test]
fn timeout_races_with_wake() {
    check(ALL, || {
        let table = table();
        let waiter = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.wait(&1, || true, past()))
        };
        let woken = table.wake_with(&1, 1, Token(5));
        match waiter.join().unwrap() {
            Outcome::Woken(token) => assert_eq!((woken.total(), token), (1, Token(5))),
            Outcome::TimedOut => assert_eq!(woken, 0),
            Outcome::Invalid => panic!("validate said yes"),
        }
    });
}

/// A wake(1) that meets the timeout of one of two waiters reaches the other.
#[test]
fn a_timeout_does_not_swallow_a_wake() {
    check(FEW_PREEMPTIONS, || {
        let table = table();
        let condition = Arc::new(AtomicU32::new(0));
        let stays = {
            let (table, condition) = (Arc::clone(&table), Arc::clone(&condition));
            thread::spawn(move || {
                let unmet = || condition.load(Ordering::Relaxed) == 0;
                table.wait(&1, unmet, Reason::OTHER)
            })
        };
        let hurries = {
            let table = Arc::clone(&table);
            thread::spawn(move || match table.wait(&1, || true, past()) {
                // Chosen although it no longer cares: it passes the wake on.
                Outcome::Woken(_) => table.wake(&1, 1).total(),
                _ => 0,
            })
        };
        condition.store(1, Ordering::Relaxed);
        table.wake(&1, 1);
        hurries.join().unwrap();
        assert_ne!(stays.join().unwrap(), Outcome::TimedOut);
    });
}

/// The bucket lock excludes, publishes, and wakes who sleeps for it.
#[test]
fn bucket_lock_sleeps_and_wakes() {
    struct Shared(UnsafeCell<u32>);
    // SAFETY: guarded by the bucket lock, as loom checks.
    unsafe impl Sync for Shared {}
    check(FEW_PREEMPTIONS, || {
        let bucket = Arc::new((Buckets::<u32>::new(1), Shared(UnsafeCell::new(0))));
        let add = |bucket: &(Buckets<u32>, Shared)| {
            let _guard = bucket.0.lock(0);
            // SAFETY: the lock is held.
            bucket.1.0.with_mut(|value| unsafe { *value += 1 });
        };
        // Two threads that yield to each other go on for ever in loom, so there one must do.
        let others = if cfg!(model_yield) { 1 } else { 2 };
        let threads: Vec<_> = (0..others)
            .map(|_| {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || add(&bucket))
            })
            .collect();
        add(&bucket);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // SAFETY: the others have ended.
        assert_eq!(bucket.1.0.with(|value| unsafe { *value }), others + 1);
    });
}

/// One of two that sleep for the lock is a wake that finds nobody: it leaves, and the other is
/// woken all the same.
#[cfg(not(model_yield))] // Sleepers that yield to each other go on for ever in loom.
#[test]
fn a_wake_that_slept_wakes_the_others() {
    check(ONE_PREEMPTION, || {
        let table = table();
        let guard = table.buckets.lock(0);
        let waker = {
            let table = Arc::clone(&table);
            thread::spawn(move || drop(table.buckets.lock_unless_empty(0)))
        };
        let locker = {
            let table = Arc::clone(&table);
            thread::spawn(move || drop(table.buckets.lock(0)))
        };
        thread::yield_now();
        drop(guard);
        waker.join().unwrap();
        locker.join().unwrap();
    });
}

/// Keys that share the bucket do not wake each other, and each gets its own wake.
#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn colliding_keys_do_not_meet() {
    check(FEW_PREEMPTIONS, || {
        let table = table();
        let conditions = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let needless = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = [0_u32, 1]
            .into_iter()
            .map(|key| {
                let (table, conditions) = (Arc::clone(&table), Arc::clone(&conditions));
                let needless = Arc::clone(&needless);
                thread::spawn(move || {
                    let condition = &conditions[key as usize];
                    let unmet = || condition.load(Ordering::Relaxed) == 0;
                    if table.wait(&key, unmet, Reason::OTHER) != Outcome::Invalid && unmet() {
                        needless.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for key in [0, 1] {
            conditions[key as usize].store(1, Ordering::Relaxed);
            table.wake_all(&key);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(needless.load(Ordering::Relaxed), 0);
    });
}
