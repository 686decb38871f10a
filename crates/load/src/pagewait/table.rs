//! `unherd` and `unherd-nofilter`: the wait table, keyed by page.

use unherd::{Outcome, Reason, WaitKey, WaitTable};

use super::{PageWaits, Tally};

/// The reason of these waits in the ledger.
const REASON: &str = "page-wait";

pub(super) struct TableWaits {
    table: WaitTable<WaitKey>,
    reason: Reason,
}

impl TableWaits {
    /// A table of `buckets` buckets, or of the default size.
    pub(super) fn new(buckets: Option<usize>, filtered: bool, seed: u64) -> Self {
        let reason = Reason::register(REASON);
        let builder = WaitTable::<WaitKey>::builder().reason(reason);
        let builder = match buckets {
            Some(buckets) => builder.buckets(buckets),
            None => builder,
        };
        Self { table: builder.filtered(filtered).seed(seed).build(), reason }
    }
}

fn key(page: usize) -> WaitKey {
    WaitKey::Page { file: 0, page: page as u64 }
}

impl PageWaits for TableWaits {
    // Not by `wait_until`, which tells the ledger alone: the workload counts the wakeups of all
    // implementations by the same means. The two counts must agree (see the tests).
    fn wait(&self, page: usize, tally: &Tally, pending: impl Fn() -> bool) {
        while let Outcome::Woken(_) = self.table.wait(&key(page), &pending, self.reason) {
            tally.wakeup();
            if !pending() {
                return;
            }
            tally.needless();
            self.table.note_needless(self.reason);
        }
    }

    fn complete(&self, page: usize, publish: impl FnOnce()) {
        publish();
        self.table.wake_all(&key(page));
    }

    fn wait_bytes(&self, threads: usize) -> usize {
        self.table.memory_bytes() + threads * WaitTable::<WaitKey>::WAITER_BYTES
    }
}
