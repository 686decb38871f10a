//! Tasks that the test polls itself.

use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use unherd_sys::primitives::{Arc, AtomicU64, Ordering, thread};

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        // ORDER: a test's count; Release and Acquire, as an executor's queue has.
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A future that is polled when the test says so.
pub(crate) struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    wakes: Arc<Wakes>,
}

impl<'a, T> Task<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self { future: Box::pin(future), wakes: Arc::default() }
    }

    /// As new, and polled once: it waits.
    #[track_caller]
    pub(crate) fn waiting(future: impl Future<Output = T> + Send + 'a) -> Self {
        let mut task = Self::new(future);
        assert!(task.poll().is_pending(), "it did not wait");
        task
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(self.wakes.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// How often it was woken.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.0.load(Ordering::Acquire)
    }

    /// Lets others run until it has been woken at least so often.
    pub(crate) fn wait_for_wakes(&self, wakes: u64) {
        while self.wakes() < wakes {
            thread::yield_now();
        }
    }

    /// Polls it whenever it was woken, until it is ready.
    pub(crate) fn finish(mut self) -> T {
        loop {
            let wakes = self.wakes();
            if let Poll::Ready(output) = self.poll() {
                return output;
            }
            self.wait_for_wakes(wakes + 1);
        }
    }
}
