//! futex(2), private to the process.
#![expect(unsafe_code, reason = "system call on a raw address")]

use std::num::NonZeroU32;
use std::ptr::NonNull;
// KERNEL-WORD: the kernel reads it, so it is the processor's own also where others are modelled.
use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

use super::{FutexWait, PARK_MARK};
use crate::Deadline;

/// A 32-bit word that threads of this process can sleep on.
///
/// It is an [`AtomicU32`] and nothing more; what its value means is the owner's affair. The sleep
/// is private to the process (`FUTEX_PRIVATE_FLAG`): a child after fork(2) has words of its own.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use unherd_sys::Futex;
///
/// static DONE: Futex = Futex::new(0);
/// let worker = std::thread::spawn(|| {
///     DONE.word().store(1, Ordering::Release);
///     DONE.wake(1);
/// });
/// while DONE.word().load(Ordering::Acquire) == 0 {
///     DONE.wait(0);
/// }
/// # worker.join().unwrap();
/// ```
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Futex(AtomicU32);

impl Futex {
    /// A word that holds `value`.
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// The word itself.
    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps while the word holds `expected`, until woken or `deadline`.
    ///
    /// The comparison and the start of the sleep are one step for the wakers of this word. A value
    /// that differs wins over a deadline that has passed. One system call; spurious returns happen.
    pub fn wait_until(&self, expected: u32, deadline: Deadline) -> FutexWait {
        self.wait_as(NonZeroU32::MAX, expected, deadline)
    }

    /// As [`Futex::wait_until`], with the mark [`PARK_MARK`].
    pub fn park_until(&self, expected: u32, deadline: Deadline) -> FutexWait {
        self.wait_as(PARK_MARK, expected, deadline)
    }

    fn wait_as(&self, bits: NonZeroU32, expected: u32, deadline: Deadline) -> FutexWait {
        let timeout = deadline.timestamp().map(|at| Timespec {
            tv_sec: (at.as_ns() / 1_000_000_000) as i64,
            tv_nsec: (at.as_ns() % 1_000_000_000) as _,
        });
        // KERNEL: FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC timeout; FUTEX_WAIT's is
        // relative, and would start again after each signal.
        match futex::wait_bitset(&self.0, Flags::PRIVATE, expected, timeout.as_ref(), bits) {
            Ok(()) => FutexWait::Woken,
            Err(Errno::AGAIN) => FutexWait::Mismatch,
            Err(Errno::TIMEDOUT) => FutexWait::TimedOut,
            Err(Errno::INTR) => FutexWait::Interrupted,
            // The address is valid and aligned and the timeout in range, so the kernel has no other
            // answer; should it find one, a spurious return is the safe reading of it.
            Err(_) => FutexWait::Woken,
        }
    }

    /// Wakes up to `n` sleepers, and says how many. `n` = 0 wakes nobody. One system call.
    pub fn wake(&self, n: u32) -> usize {
        if n == 0 {
            // KERNEL: FUTEX_WAKE with n = 0 wakes one.
            return 0;
        }
        // SAFETY: `self` is alive for the whole call, which is more than is asked for.
        unsafe { Self::wake_as(NonZeroU32::MAX, NonNull::from(&self.0).cast(), n) }
    }

    /// Wakes one sleeper of a word that may be gone by now, with the mark [`PARK_MARK`].
    ///
    /// A waker often learns from its last store to the word that the sleeper may leave, and with it
    /// the word. The kernel uses the address of a private futex only as a key, and never reads it.
    ///
    /// # Safety
    /// `word` was the address of a `Futex` of this process. If another lives there now, its
    /// sleepers may return spuriously.
    pub unsafe fn unpark_address(word: NonNull<Futex>) -> usize {
        // SAFETY: the contract.
        unsafe { Self::wake_as(PARK_MARK, word, 1) }
    }

    /// # Safety
    /// That of [`Futex::unpark_address`].
    unsafe fn wake_as(bits: NonZeroU32, word: NonNull<Futex>, n: u32) -> usize {
        let n = n.min(i32::MAX as u32);
        // SAFETY: FUTEX_WAKE_BITSET takes an address as a key, and integers; a private key is made
        // from the number alone, so it need not be mapped. (rustix would ask for a reference.)
        let woken = unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG,
                n,
                std::ptr::null::<libc::timespec>(),
                std::ptr::null::<u32>(),
                bits.get(),
            )
        };
        usize::try_from(woken).unwrap_or(0)
    }
}
