//! A value that is made once.
#![expect(unsafe_code, reason = "the value is there once `once` says so")]

use std::cell::UnsafeCell;
use std::fmt;

use unherd_sys::Deadline;

use super::once::Once;
use crate::TimedOut;

/// A value that the first thread that needs it makes, while the others wait.
///
/// One byte beside the value (in debug builds sixteen), and one for whether it is there, where the
/// type has no room for that. Can stand in a `static`; no path of its own allocates.
///
/// There is no poisoning: if the function that makes the value panics, there is none, and the next
/// thread that comes or waits calls its own.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::OnceLock;
///
/// static NAME: OnceLock<String> = OnceLock::new();
/// assert_eq!(NAME.get(), None);
/// assert_eq!(NAME.get_or_init(|| "unherd".to_owned()), "unherd");
/// assert_eq!(NAME.set("other".to_owned()), Err("other".to_owned()));
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// `None` until `once` is done, and written by who does it alone.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: one thread makes the value, which others may take out of a unique reference, and then all
// share it.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    /// One without a value.
    pub const fn new() -> Self {
        Self { once: Once::new(), value: UnsafeCell::new(None) }
    }

    /// The value, if it is there. One load; never sleeps.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: it is done, so nobody writes it any more.
        if self.once.is_done() { unsafe { &*self.value.get() }.as_ref() } else { None }
    }

    /// The value, which `make` makes if there is none yet. Sleeps, under the reason `once`, while
    /// another thread makes it.
    ///
    /// # Panics
    /// As `make` does; in debug builds, if `make` itself has the value made or set, which sleeps
    /// for ever in others.
    #[inline]
    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get_or_init_until(make, Deadline::NEVER) {
            Ok(value) => value,
            Err(TimedOut) => unreachable!("it has no deadline"),
        }
    }

    /// As [`OnceLock::get_or_init`]; waits for another thread until `deadline` at most. `make`
    /// itself takes as long as it takes.
    ///
    /// # Errors
    /// [`TimedOut`] if another thread had not made it by the deadline.
    ///
    /// # Panics
    /// As [`OnceLock::get_or_init`].
    #[track_caller]
    pub fn get_or_init_until(
        &self,
        make: impl FnOnce() -> T,
        deadline: Deadline,
    ) -> Result<&T, TimedOut> {
        let make = || {
            let value = make();
            // SAFETY: this thread does it, and nobody else has a reference before it is done.
            unsafe { *self.value.get() = Some(value) };
        };
        self.once.call_once_until(make, deadline)?;
        self.get().ok_or(TimedOut)
    }

    /// Makes `value` the value. Sleeps, under the reason `once`, while another thread makes one.
    ///
    /// # Errors
    /// `value`, if there is one already.
    ///
    /// # Panics
    /// As [`OnceLock::get_or_init`], called by `make`.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.once.call_once(|| {
            // SAFETY: as above.
            unsafe { *self.value.get() = value.take() };
        });
        value.map_or(Ok(()), Err)
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// The value.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}
