//! A table of one bucket and two, that grows and shrinks under waits and wakes. The resizer is
//! driven by the scene; nobody counts.

use unherd_sys::primitives::fence;

use super::*;

/// Scenes with three threads and a resize have more to try than most.
pub(super) const ONE_PREEMPTION: Option<usize> = Some(1);
pub(super) const TWO_PREEMPTIONS: Option<usize> = Some(if cfg!(model_yield) { 1 } else { 2 });

/// A table of 2^`level` buckets, with room for two.
pub(super) fn growing(level: u32) -> Arc<Table> {
    let table = WaitTable::<u32>::builder().grow(1, 2).seed(1).build();
    table.buckets.drive_to(level);
    Arc::new(table)
}

/// A key whose hash moves to bucket 1 when there are two, or stays.
pub(super) fn key(table: &Table, moves: bool) -> u32 {
    let index = |key: &u32| word::index_at(1, table.hash_of(key));
    (0..).find(|key| index(key) == usize::from(moves)).unwrap()
}

/// A waiter, a waker that stores the condition, and a resizer.
fn wait_wake(level: u32, moves: bool, hurry: bool, to: &[u32]) {
    let table = growing(level);
    let key = key(&table, moves);
    let condition = Arc::new(AtomicU32::new(0));
    let waiter = {
        let (table, condition) = (Arc::clone(&table), Arc::clone(&condition));
        thread::spawn(move || {
            let unmet = || condition.load(Ordering::Relaxed) == 0;
            let how = if hurry { Wait::from(past()) } else { Wait::from(Reason::OTHER) };
            table.wait(&key, unmet, how)
        })
    };
    let resizer = {
        let (table, to) = (Arc::clone(&table), to.to_vec());
        thread::spawn(move || to.into_iter().for_each(|level| table.buckets.drive_to(level)))
    };
    condition.store(1, Ordering::Relaxed);
    let woken = table.wake(&key, 1);
    resizer.join().unwrap();
    let outcome = waiter.join().unwrap();
    assert_eq!(woken == 1, outcome == Outcome::Woken(Token(0)));
    assert!(hurry || outcome != Outcome::TimedOut);
    for index in 0..2 {
        let word = table.buckets.at(index).word();
        assert_eq!(word & !word::LEVEL, 0);
    }
}

#[test]
fn grow_wait_wake_moved() {
    check(TWO_PREEMPTIONS, || wait_wake(0, true, false, &[1]));
}

#[test]
fn grow_wait_wake_stays() {
    check(TWO_PREEMPTIONS, || wait_wake(0, false, false, &[1]));
}

#[test]
fn shrink_wait_wake() {
    check(ONE_PREEMPTION, || wait_wake(1, true, false, &[0]));
}

#[test]
fn grow_timeout_wake() {
    check(TWO_PREEMPTIONS, || wait_wake(0, true, true, &[1]));
}

#[test]
fn shrink_timeout_wake() {
    check(ONE_PREEMPTION, || wait_wake(1, true, true, &[0]));
}

/// A bucket goes away and is made anew, and who locks it may have known it before: what is in it
/// comes with its own word.
#[test]
fn shrink_then_grow_under_a_locker() {
    check(TWO_PREEMPTIONS, || {
        let buckets = Arc::new(Buckets::<u32>::new([0, 1], false, &Placement::NOTHING_TOLD));
        buckets.drive_to(1);
        let resizer = {
            let buckets = Arc::clone(&buckets);
            thread::spawn(move || [0, 1].into_iter().for_each(|level| buckets.drive_to(level)))
        };
        let mut guard = buckets.lock(word::hash_of_index(1));
        assert_eq!(guard.queue().classes(), 0);
        drop(guard);
        resizer.join().unwrap();
    });
}

/// Two sleep for the lock of a bucket that goes away after it was unlocked once more: the one whom
/// that woke finds it gone, and wakes the other.
#[cfg(not(model_yield))] // Sleepers that yield to each other go on for ever in loom.
#[test]
fn sleepers_for_a_retired_bucket() {
    check(ONE_PREEMPTION, || {
        let buckets = Arc::new(Buckets::<u32>::new([1, 1], false, &Placement::NOTHING_TOLD));
        let hash = word::hash_of_index(1);
        let guard = buckets.lock(hash);
        let lockers: Vec<_> = (0..2)
            .map(|_| {
                let buckets = Arc::clone(&buckets);
                thread::spawn(move || drop(buckets.lock(hash)))
            })
            .collect();
        thread::yield_now();
        drop(guard);
        let parent = buckets.lock(0);
        let child = buckets.lock(hash);
        // SAFETY: the scene has no other resizer.
        unsafe { parent.unite_with(child) };
        lockers.into_iter().for_each(|locker| locker.join().unwrap());
        assert_eq!(buckets.at(1).word(), 0);
    });
}

/// Whoever sees that a bucket was divided finds the other half.
#[test]
fn a_child_is_there_before_its_parent_says_so() {
    check(ALL, || {
        let table = growing(0);
        let resizer = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.buckets.drive_to(1))
        };
        let parent = table.buckets.at(0).word();
        fence(Ordering::Acquire);
        let child = table.buckets.at(1).word();
        let is_divided = word::level_of(parent) == Some(1);
        assert!(!is_divided || word::level_of(child) == Some(1), "{parent:x} {child:x}");
        resizer.join().unwrap();
    });
}
