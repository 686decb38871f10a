//! The one door to atomics, mutexes and threads.
//!
//! Every crate of the workspace takes them from here, so that one build flag swaps all of them for
//! a model checker's: `--cfg loom` (weak memory, every interleaving of small scenes) or
//! `--cfg shuttle` (sequentially consistent, random interleavings of larger scenes). Words that the
//! kernel reads or writes are [`crate::Futex`]es, which are modelled as well.
//!
//! Mutexes here do not poison: what they guard is kept whole by its own code, and a panic in one
//! test thread should not hide the first failure behind a second.

#[cfg(loom)]
use loom as backend;
#[cfg(shuttle)]
use shuttle as backend;
#[cfg(not(any(loom, shuttle)))]
use std as backend;

/// A `static` of the checkers, made again for each run of a model.
#[cfg(any(loom, shuttle))]
pub use backend::lazy_static;
pub use backend::sync::Arc;
pub use backend::sync::MutexGuard;
pub use backend::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub use backend::thread;
pub use backend::thread_local;
/// Of the machine, also where threads are a checker's.
pub use std::thread::available_parallelism;

/// Which thread of a simulation this is, in the order in which they began.
#[cfg(shuttle)]
pub fn thread_number() -> usize {
    backend::current::me().into()
}

/// `fence(SeqCst)` for where an atomic read-modify-write of the same thread comes just before it.
///
/// On x86-64 that instruction is a full barrier already (Linux leaves `smp_mb__after_atomic` empty
/// there as well), so only the compiler has to be kept from reordering. Under the checkers, and on
/// every other processor, it is the fence.
#[inline]
pub fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    // ORDER[RMW]: the compiler's half; the other is the instruction before: see the kernel's
    // `smp_mb__after_atomic`.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
    // ORDER[RMW]: whatever the fence of the caller is for; kernel has `smp_mb__after_atomic` for
    // it.
    fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
pub use std::hint::spin_loop;

/// Under loom a spin lets another thread run, or the model would never end.
#[cfg(loom)]
pub fn spin_loop() {
    loom::thread::yield_now();
}

/// A mutual exclusion lock without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(backend::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that guards `value`.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self(backend::sync::Mutex::new(value))
    }

    /// A mutex that guards `value`.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self(backend::sync::Mutex::new(value))
    }

    /// Blocks until the lock is held.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        use std::sync::TryLockError;
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(backend::sync::Condvar);

impl Condvar {
    /// A condition variable that nobody waits on.
    pub fn new() -> Self {
        Self(backend::sync::Condvar::new())
    }

    /// Releases the lock, sleeps until notified (or for no reason), and takes the lock again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// As [`Condvar::wait`], for at most `timeout`. The checkers' versions may never time out.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, timeout).unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }

    /// Wakes one sleeper.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every sleeper.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Memory that is changed through a shared reference under a rule of its owner's.
///
/// Under loom every access is checked against that rule: two accesses that no ordering separates,
/// one of them a write, fail the model.
#[derive(Debug)]
pub struct UnsafeCell<T>(
    #[cfg(loom)] loom::cell::UnsafeCell<T>,
    #[cfg(not(loom))] std::cell::UnsafeCell<T>,
);

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// A cell that holds `value`.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// Gives `f` a pointer to read through. Safe to call; reading through it is the caller's duty.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        #[cfg(loom)]
        return self.0.with(f);
        #[cfg(not(loom))]
        f(self.0.get())
    }

    /// Gives `f` a pointer to write through. Safe to call; writing through it is the caller's duty.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(loom)]
        return self.0.with_mut(f);
        #[cfg(not(loom))]
        f(self.0.get())
    }
}
