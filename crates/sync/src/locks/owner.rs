//! Which thread holds a lock: known in debug builds, so that a thread that locks again what it
//! holds gets a panic, not an endless sleep.

use std::io::Write;

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
mod known {
    use unherd_sys::primitives::{AtomicUsize, Ordering, thread_local};

    use super::abort;

    const HELD: &str = "this thread holds it already; unlock it first";

    thread_local! {
        /// Its address is the thread's name. Without a destructor, so it is there to the end.
        static HERE: u8 = const { 0 };
    }

    /// Relaxed: a thread finds its own name only if it wrote it.
    #[derive(Debug)]
    pub(crate) struct Owner(AtomicUsize);

    impl Owner {
        pub(crate) const fn nobody() -> Self {
            Self(AtomicUsize::new(0))
        }

        /// This thread has the lock now.
        pub(crate) fn set(&self) {
            self.0.store(HERE.with(|here| std::ptr::from_ref(here).addr()), Ordering::Relaxed);
        }

        /// This thread is about to unlock.
        pub(crate) fn clear(&self) {
            self.0.store(0, Ordering::Relaxed);
        }

        /// Panics if this thread has the lock.
        #[track_caller]
        pub(crate) fn check(&self, lock: &str, address: usize) {
            assert!(!self.is_me(), "{lock} at {address:#x}: {HELD}");
        }

        /// As `check`, and aborts.
        pub(crate) fn check_or_abort(&self, lock: &str, address: usize) {
            if self.is_me() {
                abort(format_args!("{lock} at {address:#x}: {HELD}"));
            }
        }

        fn is_me(&self) -> bool {
            let here = HERE.with(|here| std::ptr::from_ref(here).addr());
            self.0.load(Ordering::Relaxed) == here
        }
    }
}

#[cfg(not(all(debug_assertions, not(any(loom, shuttle)))))]
mod known {
    /// Nobody knows.
    #[derive(Debug)]
    pub(crate) struct Owner;

    impl Owner {
        pub(crate) const fn nobody() -> Self {
            Self
        }
        #[inline]
        pub(crate) fn set(&self) {}
        #[inline]
        pub(crate) fn clear(&self) {}
        #[inline]
        pub(crate) fn check(&self, _lock: &str, _address: usize) {}
        #[inline]
        pub(crate) fn check_or_abort(&self, _lock: &str, _address: usize) {}
    }
}

pub(super) use known::Owner;

/// Says why, and ends the process, where to unwind would leave a guard of what is not locked.
#[cold]
pub(super) fn abort(why: std::fmt::Arguments<'_>) -> ! {
    let _ = writeln!(std::io::stderr(), "{why}");
    std::process::abort()
}
