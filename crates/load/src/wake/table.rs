//! The wait table.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Waker};

use unherd::{Reason, WaitKey, WaitTable};

use super::{Crowd, Wakes};

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

    fn wake_all(&self, key: usize) {
        std::hint::black_box(self.0.wake_all(&WaitKey::Address(key)));
    }

    fn wait(&self, key: usize, is_queued: impl Fn()) {
        let validate = || {
            is_queued();
            true
        };
        let _woken = self.0.wait(&WaitKey::Address(key), validate, Reason::OTHER);
    }

    fn crowd(&self, keys: Range<usize>) -> Option<Box<dyn Crowd + '_>> {
        let mut context = Context::from_waker(Waker::noop());
        let wait = |key| {
            let mut wait =
                Box::pin(self.0.wait_async(&WaitKey::Address(key), || true, Reason::OTHER));
            // Pending: `validate` says true, and nobody wakes the key.
            let _pending = Pin::as_mut(&mut wait).poll(&mut context);
            wait
        };
        Some(Box::new(keys.map(wait).collect::<Vec<_>>()))
    }
}
