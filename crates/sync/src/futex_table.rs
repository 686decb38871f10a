//! The kernel's futex operations on words of this process, on a wait table.
//!
//! A wake for which nobody waits takes no lock and makes no system call, and a wait whose word has
//! changed returns after the bucket lock: of the calls of report 002's database, up to 90 % of the
//! wakes were of the first kind, and `perf bench futex hash` consists of the second.
//!
//! # Waiting and waking
//!
//! It is the wait table's race, with the word as the condition: the waiter loads the word under the
//! bucket lock, behind its fence; the waker has stored to it before it calls, and fences before it
//! looks. So the loads here are Relaxed.
//!
//! A waiter's tag is its bitset; a plain wait's has all bits.
//!
//! # Mixed sizes
//!
//! A waiter is known by the address of its word, whatever the word's size. A wake names an address,
//! and finds those that wait there with any size; a word of another size that only overlaps is
//! another word.

use std::num::NonZeroU32;

use unherd_sys::primitives::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use unherd_sys::{Deadline, Errno};

use crate::{AnyOutcome, Outcome, Reason, Tag, Token, Verdict, WAIT_ANY_MAX, Wait, WaitTable};

/// A word that threads can wait on in a [`FutexTable`]: an atomic of 8, 16, 32 or 64 bits. Its
/// `Value`, in the signatures there, is `u8`, `u16`, `u32` or `u64`.
pub trait FutexWord: sealed::Word {}

impl FutexWord for AtomicU8 {}
impl FutexWord for AtomicU16 {}
impl FutexWord for AtomicU32 {}
impl FutexWord for AtomicU64 {}

mod sealed {
    use unherd_sys::primitives::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

    pub trait Word {
        type Value: PartialEq + Copy;
        fn holds(&self, value: Self::Value) -> bool;
    }

    macro_rules! word {
        ($atomic:ty, $value:ty) => {
            impl Word for $atomic {
                type Value = $value;
                #[inline]
                fn holds(&self, value: $value) -> bool {
                    self.load(Ordering::Relaxed) == value
                }
            }
        };
    }
    word!(AtomicU8, u8);
    word!(AtomicU16, u16);
    word!(AtomicU32, u32);
    word!(AtomicU64, u64);
}

/// What [`FutexTable::wake_op`] does with the second word: as futex(2)'s `FUTEX_OP_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FutexOp {
    /// Stores the number.
    Set(u32),
    /// Adds it, and wraps around.
    Add(u32),
    /// Sets its bits.
    Or(u32),
    /// Clears its bits.
    AndNot(u32),
    /// Flips its bits.
    Xor(u32),
}

/// futex(2) for words of this process: wait, wake, requeue, by the word's address.
///
/// Results and errors are as the kernel's, except:
///
/// - A wait never returns without cause, and no signal ends it: there is no `EINTR`.
/// - Words are references to atomics and bitsets are never zero, so there is no `EFAULT`, and no
///   `EINVAL` for these.
/// - There are no flags: the words are private to the process. Words that processes share belong to
///   the kernel's own futex(2).
/// - Words may have 8, 16 or 64 bits as well. A wake finds waiters by the address of their word,
///   whatever its size; one that only overlaps is another word.
/// - [`FutexTable::wait_any`] takes 64 words, not 128.
/// - [`FutexTable::wake_op`] compares by a closure.
/// - There is no priority inheritance, and there are no robust lists.
///
/// The ledger counts its waits under the reason `futex`. Nothing is allocated after the table was
/// built.
///
/// ```
/// # use unherd_sync as unherd;
/// use std::sync::atomic::{AtomicU32, Ordering::{Acquire, Release}};
/// use unherd::{Deadline, FutexTable};
///
/// let futexes = FutexTable::new();
/// let ready = AtomicU32::new(0);
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         while ready.load(Acquire) == 0 {
///             // EAGAIN: it has changed already.
///             let _woken = futexes.wait(&ready, 0, Deadline::NEVER);
///         }
///     });
///     ready.store(1, Release);
///     futexes.wake(&ready, 1);
/// });
/// ```
#[derive(Debug)]
pub struct FutexTable {
    table: WaitTable<usize>,
    reason: Reason,
}

impl Default for FutexTable {
    fn default() -> Self {
        Self::new()
    }
}

fn address<W>(word: &W) -> usize {
    std::ptr::from_ref(word).addr()
}

impl FutexTable {
    /// A table with 256 buckets for each processor.
    pub fn new() -> Self {
        let reason = Reason::register("futex");
        Self { table: WaitTable::builder().reason(reason).build(), reason }
    }

    /// Sleeps until a wake of `word` finds this thread, if the word holds `expected`
    /// (`FUTEX_WAIT`). Never returns without cause, and no signal ends it.
    ///
    /// # Errors
    /// `EAGAIN` if the word holds another value; that wins over a deadline that has passed.
    /// `ETIMEDOUT` if no wake had found it by the deadline.
    #[inline]
    pub fn wait<W: FutexWord>(
        &self,
        word: &W,
        expected: W::Value,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        self.wait_bitset(word, expected, NonZeroU32::MAX, deadline)
    }

    /// As [`FutexTable::wait`], for wakes whose bitset has a bit of `bits` (`FUTEX_WAIT_BITSET`).
    ///
    /// # Errors
    /// As [`FutexTable::wait`].
    #[inline]
    pub fn wait_bitset<W: FutexWord>(
        &self,
        word: &W,
        expected: W::Value,
        bits: NonZeroU32,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let how = Wait::new(self.reason).tag(Tag(bits.get().into())).deadline(deadline);
        match self.table.wait(&address(word), || word.holds(expected), how) {
            Outcome::Woken(_) => Ok(()),
            Outcome::Invalid => Err(Errno::AGAIN),
            Outcome::TimedOut => Err(Errno::TIMEDOUT),
        }
    }

    /// Sleeps until a wake of any of the words finds this thread, if each holds its value
    /// (`futex_waitv`), and says which, by its index.
    ///
    /// # Errors
    /// `EINVAL` for no words, or more than [`WAIT_ANY_MAX`]. `EAGAIN` if one holds another value;
    /// but if a wake came earlier, that is reported. `ETIMEDOUT` as
    /// [`FutexTable::wait`].
    pub fn wait_any<W: FutexWord>(
        &self,
        words: &[(&W, W::Value)],
        deadline: Deadline,
    ) -> Result<usize, Errno> {
        let keys = words.get(..words.len().min(WAIT_ANY_MAX + 1)).unwrap_or_default();
        let mut addresses = [0; WAIT_ANY_MAX + 1];
        for (place, (word, _)) in addresses.iter_mut().zip(keys) {
            *place = address(*word);
        }
        let holds = |index: usize| words[index].0.holds(words[index].1);
        let how = Wait::new(self.reason).tag(Tag(u32::MAX.into())).deadline(deadline);
        match self.table.wait_any(&addresses[..keys.len()], holds, how) {
            Ok(AnyOutcome::Woken { index, .. }) => Ok(index),
            Ok(AnyOutcome::Invalid { .. }) => Err(Errno::AGAIN),
            Ok(AnyOutcome::TimedOut) => Err(Errno::TIMEDOUT),
            Err(_) => Err(Errno::INVAL),
        }
    }

    /// Wakes up to `n` threads that wait for `word`, the longest waiting first, and says how many
    /// (`FUTEX_WAKE`). An `n` of 0 is treated as 1, as in the kernel.
    #[inline]
    pub fn wake<W: FutexWord>(&self, word: &W, n: usize) -> usize {
        self.table.wake(&address(word), n.max(1)).total()
    }

    /// As [`FutexTable::wake`], of those that wait for a bit of `bits` (`FUTEX_WAKE_BITSET`).
    pub fn wake_bitset<W: FutexWord>(&self, word: &W, n: usize, bits: NonZeroU32) -> usize {
        let is_chosen = |tag: Tag| tag.0 & u64::from(bits.get()) != 0;
        self.table.wake_chosen(&address(word), n.max(1), is_chosen).total()
    }

    /// Wakes up to `wake_n` threads that wait for `from`, has the next `move_n` wait for `to`, and
    /// gives the sum of both (`FUTEX_REQUEUE`). If both are the same word, nobody moves, but
    /// the next `move_n` are counted. A `wake_n` of 0 wakes none here.
    pub fn requeue<W: FutexWord, V: FutexWord>(
        &self,
        from: &W,
        to: &V,
        wake_n: usize,
        move_n: usize,
    ) -> usize {
        self.requeue_if(address(from), address(to), [wake_n, move_n], || true).unwrap_or(0)
    }

    /// As [`FutexTable::requeue`], if `from` holds `expected` (`FUTEX_CMP_REQUEUE`).
    ///
    /// # Errors
    /// `EAGAIN` if it holds another value at first; nothing is done then. It is looked at again
    /// after every 32 that are woken: if it has changed by then, nobody is moved, and the result is
    /// how many were woken.
    pub fn cmp_requeue<W: FutexWord, V: FutexWord>(
        &self,
        from: &W,
        expected: W::Value,
        to: &V,
        wake_n: usize,
        move_n: usize,
    ) -> Result<usize, Errno> {
        let holds = || from.holds(expected);
        // Also where nobody waits, of whom the table would ask.
        let done = holds()
            .then(|| self.requeue_if(address(from), address(to), [wake_n, move_n], holds))
            .flatten();
        done.ok_or(Errno::AGAIN)
    }

    fn requeue_if(
        &self,
        from: usize,
        to: usize,
        [wake_n, move_n]: [usize; 2],
        holds: impl Fn() -> bool,
    ) -> Option<usize> {
        if from != to {
            let done = self.table.requeue_if(&from, &to, wake_n, move_n, holds)?;
            return Some(done.woken.total() + done.moved);
        }
        let woken = if wake_n > 0 { self.table.wake(&from, wake_n).total() } else { 0 };
        let mut stay_left = move_n;
        let count = |_| match stay_left.checked_sub(1) {
            None => Verdict::Stop,
            Some(left) => {
                stay_left = left;
                Verdict::Skip
            }
        };
        let _none = self.table.wake_where(&from, count, Token(0));
        Some(woken + (move_n - stay_left))
    }

    /// Changes `other` as `op` says, wakes up to `n` threads that wait for `word` and, if the value
    /// before satisfies `compare`, up to `other_n` that wait for `other`; gives the sum of both
    /// (`FUTEX_WAKE_OP`). A number of 0 is treated as 1, as in the kernel.
    pub fn wake_op<W: FutexWord>(
        &self,
        word: &W,
        n: usize,
        other: &AtomicU32,
        other_n: usize,
        op: FutexOp,
        compare: impl FnOnce(u32) -> bool,
    ) -> usize {
        // ORDER[FUTEXOP]: AcqRel; the kernel's is a full barrier. What was written before is seen
        // by a thread that loads the word with Acquire.
        let order = Ordering::AcqRel;
        let before = match op {
            FutexOp::Set(value) => other.swap(value, order),
            FutexOp::Add(value) => other.fetch_add(value, order),
            FutexOp::Or(bits) => other.fetch_or(bits, order),
            FutexOp::AndNot(bits) => other.fetch_and(!bits, order),
            FutexOp::Xor(bits) => other.fetch_xor(bits, order),
        };
        let woken = self.wake(word, n);
        woken + if compare(before) { self.wake(other, other_n) } else { 0 }
    }
}
