//! Waiting and waking allocate nothing, counted by an allocator.
#![expect(unsafe_code, reason = "tasks that are pinned in an array")]

use std::pin::Pin;
use std::task::{Context, Waker};

use unherd_sync::{
    AnyOutcome, Deadline, Ledger, Outcome, Reason, Timestamp, Token, Verdict, WaitTable,
};
use unherd_sys::primitives::Arc;
use unherd_testkit::CountingAllocator;

use crate::sleeping::Sleeper;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn waits_and_wakes_allocate_nothing() {
    let reason = Reason::register("test-allocation");
    let table = Arc::new(WaitTable::<u64>::builder().buckets(1).reason(reason).build());
    let past = Deadline::at(Timestamp::from_ns(1));
    // The thread's first use registers it.
    table.wake_all(&0);
    let sleepers: Vec<_> = (0..1024).map(|_| Sleeper::start(&table, 7)).collect();

    let before = CountingAllocator::allocations();
    assert_eq!(table.wake_all(&0), 0);
    assert_eq!(table.wait(&1, || true, past), Outcome::TimedOut);
    assert_eq!(table.wait(&1, || false, Reason::OTHER), Outcome::Invalid);
    assert_eq!(table.wake_where(&7, |_| Verdict::Skip, Default::default()), 0);
    assert_eq!(CountingAllocator::allocations(), before);

    let ledger = Ledger::snapshot();
    let before = CountingAllocator::allocations();
    assert_eq!(table.wake_all(&7), 1024);
    assert_eq!(CountingAllocator::allocations(), before);
    // However many there are, the lock is held for 32 of them at a time.
    let counts = Ledger::snapshot().since(&ledger).reason(reason);
    assert_eq!((counts.locks, counts.wakes), (1024 / 32, 1));

    for sleeper in sleepers {
        assert_eq!(sleeper.join(), Outcome::Woken(Token(0)));
    }
    drop(std::hint::black_box(Box::new(1)));
    assert!(CountingAllocator::allocations() > before, "the counter counts");
}

#[test]
fn tasks_and_waits_for_any_key_allocate_nothing() {
    let table = WaitTable::<u64>::builder().buckets(1).build();
    let past = Deadline::at(Timestamp::from_ns(1));
    let mut context = Context::from_waker(Waker::noop());
    table.wake_all(&0);

    let before = CountingAllocator::allocations();
    assert_eq!(table.wait_any(&[1, 2], |_| true, past), Ok(AnyOutcome::TimedOut));
    {
        let mut tasks = [0; 100].map(|_| table.wait_async(&1, || true, Reason::OTHER));
        for task in &mut tasks {
            // SAFETY: they stay where they are, until they are dropped.
            assert!(unsafe { Pin::new_unchecked(task) }.poll(&mut context).is_pending());
        }
        assert_eq!(table.wake(&1, 50), 50);
        for task in &mut tasks[..25] {
            // SAFETY: as above.
            assert!(unsafe { Pin::new_unchecked(task) }.poll(&mut context).is_ready());
        }
        // Half of those that were chosen pass their wakes on, to the others.
    }
    assert_eq!(CountingAllocator::allocations(), before);
}
