//! Which of several cache lines a thread writes to, where any of them would do.

#[cfg(shuttle)]
use unherd_sys::primitives::thread_number;
#[cfg(not(shuttle))]
use unherd_sys::primitives::{AtomicUsize, Ordering};

/// As many threads write to lines of their own.
pub(crate) const STRIPES: usize = 16;

#[cfg(not(shuttle))]
static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

#[cfg(not(shuttle))]
thread_local! {
    static MINE: usize = NEXT_THREAD.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// The calling thread's, always the same; threads get them in turn.
pub(crate) fn mine() -> usize {
    #[cfg(not(shuttle))]
    return MINE.with(|mine| *mine);
    // All simulated threads are one, whose locals outlive the simulation.
    #[cfg(shuttle)]
    return thread_number() % STRIPES;
}
