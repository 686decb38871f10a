//! Which of several cache lines a thread writes to, where any of them would do.

use unherd_sys::primitives::{AtomicUsize, Ordering};

/// As many threads write to lines of their own.
pub(crate) const STRIPES: usize = 16;

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: usize = NEXT_THREAD.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// The calling thread's, always the same; threads get them in turn.
pub(crate) fn mine() -> usize {
    // Under shuttle all threads are one, whose locals outlive the model.
    if cfg!(shuttle) { 0 } else { MINE.with(|mine| *mine) }
}
