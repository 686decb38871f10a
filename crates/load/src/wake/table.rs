//! The wait table.

use unherd_sync::{Reason, WaitKey, WaitTable};

use super::Wakes;

pub(super) struct TableWakes(WaitTable<WaitKey>);

impl TableWakes {
    pub(super) fn new(buckets: usize, signature: bool, seed: u64) -> Self {
        let builder = WaitTable::builder().reason(Reason::register("wake")).buckets(buckets);
        Self(builder.signature(signature).seed(seed).build())
    }
}

impl Wakes for TableWakes {
    #[inline]
    fn wake(&self, key: usize) {
        std::hint::black_box(self.0.wake(&WaitKey::Address(key), 1));
    }

    fn wait(&self, key: usize, is_queued: impl Fn()) {
        let validate = || {
            is_queued();
            true
        };
        let _woken = self.0.wait(&WaitKey::Address(key), validate, Reason::OTHER);
    }
}
