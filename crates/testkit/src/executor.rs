//! The plainest executors: of one future, and of several.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

use unherd_sys::primitives::{Mutex, thread};

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls the future on this thread, which sleeps in between.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// That a task was woken since it was polled last, for the thread that polls it.
struct Woken {
    is_woken: Mutex<bool>,
    thread: thread::Thread,
}

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        *self.is_woken.lock() = true;
        self.thread.unpark();
    }
}

struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: std::sync::Arc<Woken>,
}

/// Futures that one thread polls, each when it was woken.
///
/// What a future has, it keeps while it is neither polled nor dropped. So between two calls of
/// [`Tasks::poll`] the thread waits for nothing that a task may have.
pub struct Tasks<'a, T>(Vec<Task<'a, T>>);

impl<'a, T> Tasks<'a, T> {
    /// None, as yet.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// How many are not ready.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all were ready, or dropped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more. It counts as woken.
    pub fn begin(&mut self, future: impl Future<Output = T> + 'a) {
        let woken = Woken { is_woken: Mutex::new(true), thread: thread::current() };
        self.0.push(Task { future: Box::pin(future), woken: std::sync::Arc::new(woken) });
    }

    /// Polls those that were woken, up to the first that is ready, whose output it gives.
    pub fn poll(&mut self) -> Option<T> {
        for at in 0..self.0.len() {
            let Task { future, woken } = &mut self.0[at];
            if !std::mem::take(&mut *woken.is_woken.lock()) {
                continue;
            }
            let waker = Waker::from(woken.clone());
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                drop(self.0.swap_remove(at));
                return Some(output);
            }
        }
        None
    }

    /// Sleeps until one was woken, or for no reason.
    pub fn park(&self) {
        if !self.0.is_empty() {
            thread::park();
        }
    }

    /// Drops one that is not ready.
    pub fn drop_one(&mut self, at: usize) {
        drop(self.0.swap_remove(at));
    }
}

impl<T> Default for Tasks<'_, T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn task_is_polled_first_and_when_woken() {
        let (polls, waker) = (Cell::new(0), RefCell::new(None));
        let mut tasks = Tasks::new();
        tasks.begin(poll_fn(|context| {
            polls.set(polls.get() + 1);
            *waker.borrow_mut() = Some(context.waker().clone());
            if polls.get() < 3 { Poll::Pending } else { Poll::Ready(7) }
        }));
        tasks.begin(std::future::pending());
        let wake = || waker.take().map(Waker::wake);
        assert_eq!((tasks.poll(), tasks.poll(), polls.get()), (None, None, 1));
        wake();
        tasks.park();
        assert_eq!((tasks.poll(), polls.get()), (None, 2));
        wake();
        assert_eq!((tasks.poll(), tasks.poll(), polls.get()), (Some(7), None, 3));
        tasks.drop_one(0);
        assert!(tasks.is_empty());
    }
}
