//! The least that a check and a post can be.

use std::hint::black_box;

use unherd_sys::primitives::{AtomicU64, Ordering};

use super::Sources;

#[repr(align(64))]
struct Line(AtomicU64);

/// Two cache lines: what an empty check loads. A post sets a bit of the first.
pub(super) struct Floor {
    lines: Box<[Line; 2]>,
}

impl Floor {
    pub(super) fn new() -> Self {
        Self { lines: Box::new([const { Line(AtomicU64::new(0)) }; 2]) }
    }
}

impl Sources for Floor {
    type Waiter<'s> = ();

    fn waiter(&self) {}

    #[inline]
    fn check(&self, (): &mut ()) -> usize {
        let [first, second] = &**black_box(&self.lines);
        (first.0.load(Ordering::Relaxed) + second.0.load(Ordering::Relaxed)) as usize
    }

    fn wait(&self, (): &mut ()) -> Option<usize> {
        None
    }

    #[inline]
    fn post(&self, source: usize) {
        // Relaxed: on x86-64 it is the same instruction as with any other ordering.
        black_box(&self.lines)[0].0.fetch_or(1 << source, Ordering::Relaxed);
    }
}
