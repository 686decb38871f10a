//! `before`: hashed wait queues that cannot tell one page from another.
//!
//! As Linux 2.6.6 had it: the completion of a page wakes all who sleep in its bucket, and each of
//! them looks whether it was its own page.

use super::{PageWaits, Tally, WaitPoint, bucket_of};

pub(super) struct BucketCondvars(Vec<WaitPoint>);

impl BucketCondvars {
    /// `buckets` is rounded up to a power of two, as the wait table does.
    pub(super) fn new(buckets: usize) -> Self {
        Self((0..buckets.next_power_of_two()).map(|_| WaitPoint::default()).collect())
    }

    fn bucket(&self, page: usize) -> &WaitPoint {
        &self.0[bucket_of(page, self.0.len())]
    }
}

impl PageWaits for BucketCondvars {
    fn wait(&self, page: usize, tally: &Tally, pending: impl Fn() -> bool) {
        self.bucket(page).wait(tally, pending);
    }

    fn complete(&self, page: usize, publish: impl FnOnce()) {
        let bucket = self.bucket(page);
        let guard = bucket.lock.lock();
        publish();
        // Woken with the lock free, or each of them would sleep a second time for it.
        drop(guard);
        bucket.wakeups.notify_all();
    }

    fn wait_bytes(&self, _threads: usize) -> usize {
        // A thread that waits on a condvar has its entry in the kernel, on its kernel stack.
        self.0.len() * size_of::<WaitPoint>()
    }
}
