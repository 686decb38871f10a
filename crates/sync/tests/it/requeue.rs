//! Requeues whose keys or reasons are not what they should be.

use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::task::{Context, Waker};

use unherd_sync::{Ledger, Reason, Requeued, WaitTable};

/// A key that equals every other but itself.
#[derive(Debug, Clone, Copy)]
struct Lawless;

impl PartialEq for Lawless {
    fn eq(&self, other: &Self) -> bool {
        !std::ptr::eq(self, other)
    }
}
impl Eq for Lawless {}

impl Hash for Lawless {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn an_irreflexive_key_is_not_moved() {
    let table = WaitTable::<Lawless>::builder().buckets(1).build();
    let mut waits = Box::pin(table.wait_async(&Lawless, || true, Reason::OTHER));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let key = Lawless;
    assert_eq!(table.requeue(&key, &key, 0, 1), Requeued::default());
    // It stands where it stood, and leaves.
    drop(waits);
    assert_eq!(table.wake_all(&key), 0);
}

#[test]
fn a_requeue_within_a_bucket_takes_one_lock() {
    let reason = Reason::register("requeue-locks");
    let locks = || Ledger::snapshot().reason(reason).locks;
    let table = WaitTable::<u64>::builder().buckets(1).reason(reason).build();
    let mut waits = pin!(table.wait_async(&1, || true, Reason::OTHER));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let before = locks();
    assert_eq!(table.requeue(&1, &2, 0, 1).moved, 1);
    assert_eq!(locks() - before, 1);
}
