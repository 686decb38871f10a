//! How often a thread looks at a held lock before it sleeps.

use unherd_sys::primitives::spin_loop;

/// Looks, each after twice the pause of the one before: together about as long as a sleep and a
/// wakeup take.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 4 };

/// Steps of the first pause. Each look takes the lock's line from its holder, which in short
/// sections costs more than a lock that is free for a moment: see `record/2026-11-23-locks`.
const FIRST_PAUSE: u32 = 16;

/// How often a thread has looked.
pub(super) struct Looks(u32);

impl Looks {
    pub(super) const NONE: Self = Self(0);

    /// Pauses, and says that the thread is to look once more; or that it has looked often enough.
    #[inline]
    pub(super) fn again(&mut self) -> bool {
        let again = self.0 < LOOKS;
        if again {
            (0..FIRST_PAUSE << self.0).for_each(|_| spin_loop());
            self.0 += 1;
        }
        again
    }
}
