//! A global allocator that is built on our mutex, and counts: locks allocate nothing. A binary of
//! its own, because a child of fork(2) has the mutex as another thread had it, so it may not
//! allocate.
#![cfg(not(any(loom, shuttle)))]
#![expect(unsafe_code, reason = "an allocator is unsafe by nature")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Barrier;

use unherd_sync::{Condvar, Deadline, Ledger, Mutex, Reason, Timestamp};
use unherd_sys::primitives::thread;
use unherd_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: LockedAllocator = LockedAllocator(Mutex::new(CountingAllocator));

struct LockedAllocator(Mutex<CountingAllocator>);

// SAFETY: passes everything on, one call at a time.
unsafe impl GlobalAlloc for LockedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { self.0.lock().alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { self.0.lock().dealloc(memory, layout) }
    }
}

/// Threads that do nothing but allocate, until they have slept for the allocator's mutex: from the
/// first sleep of the process on, which makes the table of locks.
#[test]
fn an_allocator_can_be_built_on_a_mutex() {
    let before = Ledger::snapshot();
    let sleeps = || Ledger::snapshot().since(&before).reason(Reason::register("mutex")).waits;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while sleeps() < 20 {
                    (0..1000).for_each(|n| drop(std::hint::black_box(Box::new(n))));
                }
            });
        }
    });
}

#[test]
fn locks_allocate_nothing() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    let past = Deadline::at(Timestamp::from_ns(1));
    let held = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = mutex.lock();
            held.wait();
            held.wait();
            drop(guard);
        });
        held.wait();
        let before = CountingAllocator::allocations();
        assert!(mutex.lock_until(past).is_none());
        assert_eq!(CountingAllocator::allocations(), before);
        held.wait();
    });
    let before = CountingAllocator::allocations();
    let mut guard = mutex.lock();
    assert!(changed.wait_until(&mut guard, past).is_err());
    assert_eq!(changed.notify_all(), 0);
    drop(guard);
    assert_eq!(CountingAllocator::allocations(), before);
    drop(std::hint::black_box(Box::new(1)));
    assert!(CountingAllocator::allocations() > before, "the counter counts");
}
