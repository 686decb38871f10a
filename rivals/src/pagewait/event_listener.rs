//! event-listener: a list of listeners for each bucket. It has no keys, so a completion has to
//! notify the whole bucket.

use event_listener::{Event, Listener, listener};
use unherd_load::pagewait::{PageWaits, Tally, bucket_of};

pub(crate) struct BucketEvents(Vec<Event>);

impl BucketEvents {
    pub(crate) fn new(buckets: usize) -> Self {
        Self((0..buckets.next_power_of_two()).map(|_| Event::new()).collect())
    }

    fn bucket(&self, page: usize) -> &Event {
        &self.0[bucket_of(page, self.0.len())]
    }
}

impl PageWaits for BucketEvents {
    fn wait(&self, page: usize, tally: &Tally, pending: impl Fn() -> bool) {
        loop {
            listener!(self.bucket(page) => listener);
            // Looked at after the listener is on the list: a completion from now on notifies it.
            if !pending() {
                return;
            }
            listener.wait();
            tally.wakeup();
            // Looked at before another listener is linked, which most often is not needed.
            if !pending() {
                return;
            }
            tally.needless();
        }
    }

    fn complete(&self, page: usize, publish: impl FnOnce()) {
        publish();
        self.bucket(page).notify(usize::MAX);
    }

    /// An event is a pointer to its counted list (11 words); a listener on the stack has a link (6
    /// words), a task and a reference. (Sizes of 5.4, which does not tell them.)
    fn wait_bytes(&self, threads: usize) -> usize {
        const WORD_BYTES: usize = size_of::<usize>();
        self.0.len() * 12 * WORD_BYTES + threads * 9 * WORD_BYTES
    }
}
