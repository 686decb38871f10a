//! The mutexes.
#![expect(unsafe_code, reason = "mutexes that guard what lies beside them")]

use std::cell::UnsafeCell;

use unherd_sys::Futex;
use unherd_sys::primitives::{Mutex, Ordering};

use super::{Exclusive, Guarded};

impl<const BARGING_US: u32> Exclusive for unherd::Mutex<Guarded, BARGING_US> {
    #[inline]
    fn run(&self, section: impl FnOnce(&mut Guarded)) {
        section(&mut self.lock());
    }
}

#[derive(Default)]
pub(super) struct Std(Mutex<Guarded>);

impl Exclusive for Std {
    #[inline]
    fn run(&self, section: impl FnOnce(&mut Guarded)) {
        section(&mut self.0.lock());
    }
}

/// Unlocks when it is dropped, also by a panic.
pub(crate) struct Unlock<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Unlock<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// That of the C library. In a box, since it must not move.
pub(super) struct Pthread {
    mutex: Box<UnsafeCell<libc::pthread_mutex_t>>,
    guarded: UnsafeCell<Guarded>,
}

// SAFETY: what it guards is used with it locked.
unsafe impl Sync for Pthread {}

impl Pthread {
    pub(super) fn new() -> Self {
        let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        Self { mutex, guarded: UnsafeCell::default() }
    }
}

impl Exclusive for Pthread {
    #[inline]
    fn run(&self, section: impl FnOnce(&mut Guarded)) {
        // SAFETY: initialized, and stays where it is.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        let _unlock = Unlock(|| {
            // SAFETY: locked by this thread.
            unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
        });
        // SAFETY: it is locked.
        section(unsafe { &mut *self.guarded.get() });
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// The second mutex of U. Drepper's "Futexes are tricky".
pub(super) struct FutexMutex {
    state: Futex,
    guarded: UnsafeCell<Guarded>,
}

// SAFETY: what it guards is used with it locked.
unsafe impl Sync for FutexMutex {}

impl FutexMutex {
    pub(super) fn new() -> Self {
        Self { state: Futex::new(FREE), guarded: UnsafeCell::default() }
    }

    fn unlock(&self) {
        // ORDER[MUTEX1]: Release; pairs with the Acquires in `run`.
        if self.state.word().swap(FREE, Ordering::Release) == CONTENDED {
            self.state.wake(1);
        }
    }
}

impl Exclusive for FutexMutex {
    #[inline]
    fn run(&self, section: impl FnOnce(&mut Guarded)) {
        let word = self.state.word();
        // ORDER[MUTEX1]: Acquire; pairs with the Release in `unlock`.
        if word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // ORDER[MUTEX1]: Acquire; as above.
            while word.swap(CONTENDED, Ordering::Acquire) != FREE {
                self.state.wait(CONTENDED);
            }
        }
        let _unlock = Unlock(|| self.unlock());
        // SAFETY: it is locked.
        section(unsafe { &mut *self.guarded.get() });
    }
}
