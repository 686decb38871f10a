//! A fence whose cost one side pays for both: membarrier(2).
//!
//! Two threads that each store, then load what the other stored, both need a full fence between the
//! two, or both may miss the other's store. Where one side runs far more often than the other, the
//! rare side can pay for both: the frequent one keeps only the compiler from reordering
//! ([`AsymmetricFence::light`]), and the rare one has the kernel run a full fence on every
//! processor that runs a thread of this process at the time ([`AsymmetricFence::heavy`]).
//!
//! ```text
//!  frequent side                        rare side
//!  store X                              store Y
//!  light()                     (A)      heavy()                       (B)
//!  load Y                               load X
//! ```
//!
//! Excluded: both loads miss. The fence that (B) runs on the frequent thread's processor falls
//! somewhere into that thread's program order, which (A) made the compiler keep. If it falls before
//! the load of Y, that load sees Y, stored before (B). If it falls after, the store of X came
//! before it, so X is visible when (B) returns and the load of X sees it. A thread that does not
//! run at the time passed a full fence when it was taken off its processor.
//!
//! Two light sides exclude nothing: each pair needs a heavy one, or a full fence on both sides.
//! This is the pair that C++ (P1202) calls `asymmetric_thread_fence_light` and `_heavy`. No model
//! checker that we use knows it, so it is absent from their builds, and whoever offers it keeps
//! a plain protocol beside it, which is checked.

use rustix::thread::{MembarrierCommand, membarrier};

use crate::primitives::{Ordering, compiler_fence};

/// The right to use asymmetric fences in this process, and its children made by fork(2).
///
/// ```
/// use unherd_sys::AsymmetricFence;
///
/// match AsymmetricFence::register() {
///     Some(fence) => assert!(fence.heavy()),
///     None => println!("full fences on both sides, then"),
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct AsymmetricFence(());

impl AsymmetricFence {
    /// Registers this process with the kernel; again is free. `None` where the kernel refuses: it
    /// is older than 4.14, was built without membarrier, or a container's filter forbids it.
    ///
    /// The first time in a process with several threads it blocks until every processor has passed
    /// through the scheduler: some 10 ms.
    pub fn register() -> Option<Self> {
        // KERNEL: 4.14, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED.
        membarrier(MembarrierCommand::RegisterPrivateExpedited).ok()?;
        // Registered is not permitted: a filter may look at the command.
        let fence = Self(());
        fence.heavy().then_some(fence)
    }

    /// The frequent side: orders this thread's accesses for the compiler, and for the processor
    /// together with another thread's [`AsymmetricFence::heavy`]. No instruction.
    #[inline]
    pub fn light(self) {
        // ORDER[ASYM]: the compiler's half of the fence; kernel: the processor's half comes by
        // interrupt from `heavy`, the pair of this.
        compiler_fence(Ordering::SeqCst);
    }

    /// The rare side: a full fence here and on every other processor that runs a thread of this
    /// process. Whether that was done; if not, nothing is ordered, and the caller must not rely on
    /// the frequent side's accesses.
    ///
    /// After [`AsymmetricFence::register`] the kernel refuses only where it lacks memory for a set
    /// of processors, or where a filter was put on the process since.
    ///
    /// Cost: a system call, and an interrupt on each of those processors, for whose answers it
    /// waits; on a virtual machine of two processors 0.5 µs while no other thread runs, 10 µs while
    /// one does. Since Linux 6.8 (and in the stable kernels of that time) one such call runs at a
    /// time on the whole machine: other processes' calls are waited for.
    pub fn heavy(self) -> bool {
        // ORDER[ASYM]: pairs with `light`. The system call is a full fence; that compilers see it
        // as one is not left to how it is called.
        compiler_fence(Ordering::SeqCst);
        // KERNEL: 4.14, MEMBARRIER_CMD_PRIVATE_EXPEDITED.
        let done = membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // ORDER[ASYM]: as above, for what comes after.
        compiler_fence(Ordering::SeqCst);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::{AtomicU32, thread};
    use crate::refusal::{in_child, refuse_call};

    /// The race at the top of the file, run again and again by two threads.
    #[derive(Default)]
    struct Race {
        /// The round that each side has begun: its store.
        begun: [AtomicU32; 2],
        /// The round that each side has ended, twice, and one more if its load missed the other.
        ended: [AtomicU32; 2],
    }

    impl Race {
        const ROUNDS: u32 = 20_000;

        /// Plays one side; returns in how many rounds both missed.
        fn play(&self, me: usize, fence: impl Fn()) -> u32 {
            let mut both_missed = 0;
            for round in 1..=Self::ROUNDS {
                self.begun[me].store(round, Ordering::Relaxed);
                fence();
                let missed = self.begun[1 - me].load(Ordering::Relaxed) < round;
                self.ended[me].store(round << 1 | u32::from(missed), Ordering::Release);
                let mut other = 0;
                while other >> 1 < round {
                    thread::yield_now();
                    other = self.ended[1 - me].load(Ordering::Acquire);
                }
                // The other side may have begun the next round, but ends it only after this one.
                both_missed += u32::from(missed && other == (round << 1 | 1));
            }
            both_missed
        }
    }

    #[test]
    fn a_heavy_and_a_light_side_do_not_both_miss() {
        let Some(fence) = AsymmetricFence::register() else {
            println!("skipped: this kernel refuses membarrier(2)");
            return;
        };
        let race = Race::default();
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(race.play(0, || fence.light()), 0));
            assert_eq!(race.play(1, || assert!(fence.heavy())), 0);
        });
    }

    #[test]
    fn a_refusal_is_none_and_later_false() {
        in_child(|| {
            let before = AsymmetricFence::register();
            refuse_call(libc::SYS_membarrier);
            assert!(AsymmetricFence::register().is_none());
            assert!(before.is_none_or(|fence| !fence.heavy()));
        });
    }
}
