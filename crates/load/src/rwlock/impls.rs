//! The reader-writer locks. That of std stands with the rivals: the checkers have none.
#![expect(unsafe_code, reason = "a lock that guards what lies beside it")]

use std::cell::UnsafeCell;

use super::{Guarded, Shared};
use crate::mutex::impls::Unlock;

impl Shared for unherd::RwLock<Guarded> {
    #[inline]
    fn read(&self, section: impl FnOnce(&Guarded)) {
        section(&self.read());
    }

    #[inline]
    fn write(&self, section: impl FnOnce(&mut Guarded)) {
        section(&mut self.write());
    }
}

/// That of the C library. In a box, since it must not move.
pub(super) struct Pthread {
    lock: Box<UnsafeCell<libc::pthread_rwlock_t>>,
    guarded: UnsafeCell<Guarded>,
}

// SAFETY: what it guards is used with it locked, and changed with it locked for writing.
unsafe impl Sync for Pthread {}

impl Pthread {
    pub(super) fn new() -> Self {
        let lock = Box::new(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
        Self { lock, guarded: UnsafeCell::default() }
    }

    /// Unlocks what the caller has locked.
    fn unlock_later(&self) -> Unlock<impl FnMut()> {
        Unlock(|| {
            // SAFETY: locked by this thread.
            unsafe { libc::pthread_rwlock_unlock(self.lock.get()) };
        })
    }
}

impl Shared for Pthread {
    #[inline]
    fn read(&self, section: impl FnOnce(&Guarded)) {
        // SAFETY: initialized, and stays where it is.
        unsafe { libc::pthread_rwlock_rdlock(self.lock.get()) };
        let _unlock = self.unlock_later();
        // SAFETY: it is locked.
        section(unsafe { &*self.guarded.get() });
    }

    #[inline]
    fn write(&self, section: impl FnOnce(&mut Guarded)) {
        // SAFETY: as above.
        unsafe { libc::pthread_rwlock_wrlock(self.lock.get()) };
        let _unlock = self.unlock_later();
        // SAFETY: it is locked for writing.
        section(unsafe { &mut *self.guarded.get() });
    }
}
