//! Waiting for any of several keys: a thread with a node for each.
//!
//! The nodes share one *claim*, a word that says whose the wait is, and one parker.
//!
//! | claim | meaning | left by | to |
//! |---|---|---|---|
//! | OPEN | it waits, or is about to | a wake that takes node i, under the lock of its bucket | the address of node i |
//! | OPEN | | the owner: its deadline passed, or `validate` said no or panicked | CLOSED |
//! | node i | the wake of i woke it; final | | |
//! | CLOSED | a wake that finds a node of it passes it by; final | | |
//!
//! - **N1** The claim decides, and publishes nothing: it is Relaxed. The owner and the wake that
//!   has claimed it meet at the parker (PARK); the owner and all others meet at the locks of its
//!   nodes' buckets (LOCK).
//! - **N2** The owner takes each node that it has queued out of its queue before it returns. So
//!   none is reached later; who has lost the claim does not touch the node after its unlock.
//! - **N3** A wake that loses the claim does not count the waiter, and goes on to the next.
//! - **N4** *Woken beats invalid*: the wake that was first is reported, even if `validate` says no
//!   to a later key. Otherwise it would be lost to the other waiters for its key. If `validate`
//!   panics, it is passed on to them.
//!
//! ```text
//!  owner                                    waker of key j
//!  -----                                    --------------
//!  lock bucket of i                           lock bucket of j
//!  fence (A); validate(i): no               the node j: claim OPEN → j ?
//!  unlock                                   unlock; yes: notify, and count
//!  claim OPEN → CLOSED ?                              no: the next in the queue
//! ```
//!
//! Excluded: that both succeed, or neither.
#![expect(unsafe_code, reason = "nodes on the stack, as many as there are keys")]

use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use unherd_sys::primitives::{AtomicUsize, Ordering};

#[cfg(doc)]
use super::Outcome;
use super::node::{Node, Sleeper};
use super::{Token, Wait, WaitTable};
use crate::Ledger;
use crate::parker::Parker;

/// How many keys a [`WaitTable::wait_any`](crate::WaitTable::wait_any) may have: each takes 128
/// bytes of stack with [`WaitKey`](crate::WaitKey), used or not.
pub const WAIT_ANY_MAX: usize = 64;

/// How a wait for any of several keys ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum AnyOutcome {
    /// A wake of the key at `index` found it, as [`Outcome::Woken`](crate::Outcome::Woken) says. No
    /// other wake did.
    Woken {
        /// Among the keys that were given.
        index: usize,
        /// The wake's.
        token: Token,
    },
    /// `validate` said no to the key at `index`; there was no sleep.
    Invalid {
        /// Among the keys that were given.
        index: usize,
    },
    /// The deadline passed, and no wake had found it by then.
    TimedOut,
}

/// Why a [`WaitTable::wait_any`](super::WaitTable::wait_any) is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitAnyError {
    /// There is none: it would not end.
    NoKeys,
    /// There are more than [`WAIT_ANY_MAX`].
    TooManyKeys {
        /// How many were given.
        given: usize,
        /// As many as there may be.
        max: usize,
    },
}

impl fmt::Display for WaitAnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys => f.write_str("a wait for any of no keys: give at least one"),
            Self::TooManyKeys { given, max } => {
                write!(f, "a wait for any of {given} keys, of which there may be {max}")
            }
        }
    }
}

impl Error for WaitAnyError {}

const OPEN: usize = 0;
/// No address of a node, which is aligned.
const CLOSED: usize = 1;

/// What the nodes of such a wait share.
pub(super) struct Claim {
    word: AtomicUsize,
    pub(super) parker: Parker,
}

impl Claim {
    /// Takes the wait for the node at `address`; true too if that has it already.
    pub(super) fn try_take(&self, address: usize) -> bool {
        let order = Ordering::Relaxed;
        match self.word.compare_exchange(OPEN, address, order, order) {
            Ok(_) => true,
            Err(by) => by == address,
        }
    }

    /// Whether nobody has claimed it, and it has not given up.
    pub(super) fn is_open(&self) -> bool {
        self.word.load(Ordering::Relaxed) == OPEN
    }

    /// Gives up, unless somebody has claimed it: says whether.
    fn close(&self) -> bool {
        self.try_take(CLOSED)
    }
}

/// A wait with some of its nodes queued. Takes them out in the end.
struct WaitingForAny<'a, K: Copy + Eq + Hash> {
    table: &'a WaitTable<K>,
    how: Wait,
    claim: &'a Claim,
    nodes: &'a [Node<K>],
    queued: usize,
}

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Sleeps until a wake of any of `keys` finds this thread, and says which: exactly one does,
    /// and wakes of the other keys go to other waiters.
    ///
    /// `validate` is asked about each key in turn, by its index, as [`WaitTable::wait`] asks about
    /// its key, under the lock of that key's bucket; not about those after one that it says no to,
    /// or after a wake that came already. A wake that comes before it says no to another key is
    /// what is reported. A key may be there twice. A requeue moves the wait for its key alone; a
    /// wake of the key that it was moved to is reported with the index of the old one. If a
    /// [`WaitTable::wake_where`] chooses this thread after another wake did, that counts as
    /// [`Verdict::Skip`](super::Verdict::Skip).
    ///
    /// Blocks under the reason of `how`, as one wait. Costs for each key what a wait costs without
    /// its sleep, and the bucket lock once more; nothing is allocated.
    ///
    /// # Errors
    /// [`WaitAnyError::NoKeys`], and [`WaitAnyError::TooManyKeys`] if there are more than
    /// [`WAIT_ANY_MAX`].
    ///
    /// ```
    /// # use unherd_sync as unherd;
    /// use unherd::{AnyOutcome, Reason, WaitTable};
    /// let table = WaitTable::<&str>::builder().build();
    /// let ready = [false, true];
    /// let outcome = table.wait_any(&["read", "write"], |index| !ready[index], Reason::OTHER);
    /// assert_eq!(outcome, Ok(AnyOutcome::Invalid { index: 1 }));
    /// ```
    pub fn wait_any(
        &self,
        keys: &[K],
        mut validate: impl FnMut(usize) -> bool,
        how: impl Into<Wait>,
    ) -> Result<AnyOutcome, WaitAnyError> {
        let how = how.into();
        if keys.is_empty() {
            return Err(WaitAnyError::NoKeys);
        }
        if keys.len() > WAIT_ANY_MAX {
            return Err(WaitAnyError::TooManyKeys { given: keys.len(), max: WAIT_ANY_MAX });
        }
        let claim = Claim { word: AtomicUsize::new(OPEN), parker: Parker::new() };
        let sleeper = Sleeper::Any(claim);
        let Some(claim) = sleeper.claim() else { unreachable!("as it was made") };
        let mut slots = [const { MaybeUninit::<Node<K>>::uninit() }; WAIT_ANY_MAX];
        for (slot, key) in slots.iter_mut().zip(keys) {
            let hash = self.hash_of(key);
            // SAFETY: the sleeper outlives the nodes' time in their queues.
            unsafe { slot.write(Node::new(*key, hash, how)).set_sleeper(NonNull::from(&sleeper)) };
        }
        // SAFETY: as many as there are keys are written.
        let nodes = unsafe { std::slice::from_raw_parts(slots.as_ptr().cast(), keys.len()) };
        let mut waiting = WaitingForAny { table: self, how, claim, nodes, queued: 0 };
        for (index, key) in keys.iter().enumerate() {
            if !waiting.queue(key, || validate(index)) {
                if claim.close() {
                    waiting.leave();
                    return Ok(AnyOutcome::Invalid { index });
                }
                // N4.
                break;
            }
        }
        Ok(waiting.sleep())
    }
}

impl<K: Copy + Eq + Hash> WaitingForAny<'_, K> {
    /// Queues the next node, unless the wait is over already, or `validate` says no.
    fn queue(&mut self, key: &K, validate: impl FnOnce() -> bool) -> bool {
        let node = &self.nodes[self.queued];
        let validate = || self.claim.is_open() && validate();
        // SAFETY: B4: by N2.
        let queued = unsafe { self.table.queue(node, key, |_| validate()) };
        self.queued += usize::from(queued);
        queued
    }

    fn sleep(&mut self) -> AnyOutcome {
        let asleep_since = Ledger::asleep(self.table.reason_of(self.how));
        if !self.claim.parker.park(self.how.deadline) {
            self.claim.close();
        }
        let woken = self.leave();
        self.table.count_end(self.how, asleep_since, woken.is_some());
        woken.map_or(AnyOutcome::TimedOut, |(index, token)| AnyOutcome::Woken { index, token })
    }

    /// Takes all nodes out of their queues (N2), and says which was woken. The claim is not open.
    fn leave(&mut self) -> Option<(usize, Token)> {
        let mut woken = None;
        for (index, node) in self.nodes[..self.queued].iter().enumerate() {
            if !self.table.unlink(node) && node.try_claim() {
                // SAFETY: it was handed back.
                woken = Some((index, unsafe { node.token() }));
            }
        }
        self.queued = 0;
        woken
    }
}

/// Leaves when `validate` panics, or `Eq`.
impl<K: Copy + Eq + Hash> Drop for WaitingForAny<'_, K> {
    fn drop(&mut self) {
        if self.queued == 0 || self.claim.close() {
            self.leave();
            return;
        }
        if let Some((index, token)) = self.leave() {
            // SAFETY: it was woken.
            unsafe { self.table.pass_on(&self.nodes[index], token) };
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};

    use unherd_sys::primitives::{Arc, thread};

    use super::super::bucket_word::{BUCKET_BYTES, offset};
    use super::*;
    use crate::{Outcome, Reason};

    fn index_of(table: &WaitTable<u64>, key: &u64) -> usize {
        offset(2, table.hash_of(key)) / BUCKET_BYTES
    }

    /// A table of two buckets, and a key of each.
    fn table() -> (WaitTable<u64>, [u64; 2]) {
        let table = WaitTable::<u64>::builder().buckets(2).seed(1).build();
        let keys = [0, 1].map(|index| {
            let its = |key: &u64| index_of(&table, key) == index;
            (0..).find(its).expect("half of the keys")
        });
        (table, keys)
    }

    /// Wakes `key` from another thread: this one may hold the lock of another bucket.
    fn wake(table: &WaitTable<u64>, key: u64) {
        let woken = || assert_eq!(table.wake_with(&key, 1, Token(3)), 1);
        thread::scope(|scope| drop(scope.spawn(woken)));
    }

    #[test]
    fn a_wake_before_a_no_is_reported() {
        let (table, keys) = table();
        let validate = |index| {
            if index == 1 {
                wake(&table, keys[0]);
            }
            index == 0
        };
        let outcome = table.wait_any(&keys, validate, Reason::OTHER);
        assert_eq!(outcome, Ok(AnyOutcome::Woken { index: 0, token: Token(3) }));
    }

    /// A wait that another key has claimed is neither moved nor counted.
    #[test]
    fn a_requeue_skips_lost_waiters() {
        let (table, [one, other]) = table();
        let mut rest = (0..).filter(|key| index_of(&table, key) == 0 && *key != one);
        let [second, target] = [(); 2].map(|()| rest.next().expect("half of the keys"));
        let mut context = Context::from_waker(Waker::noop());
        let mut behind = pin!(table.wait_async(&one, || true, Reason::OTHER));
        let validate = |index| {
            if index == 2 {
                assert!(behind.as_mut().poll(&mut context).is_pending());
                wake(&table, second);
                assert_eq!(table.requeue(&one, &target, 0, 1).moved, 1);
                assert_eq!(table.wake_with(&target, 2, Token(6)), 1);
            }
            true
        };
        let outcome = table.wait_any(&[one, second, other], validate, Reason::OTHER);
        assert_eq!(outcome, Ok(AnyOutcome::Woken { index: 1, token: Token(3) }));
        assert_eq!(behind.as_mut().poll(&mut context), Poll::Ready(Outcome::Woken(Token(6))));
    }

    /// As wakes do not count it, who comes behind it is the first.
    #[test]
    fn a_lost_waiter_is_not_before_the_next() {
        let (table, [one, other]) = table();
        let second = (0..).find(|key| index_of(&table, key) == 0 && *key != one).unwrap();
        let mut told = None;
        let validate = |index| {
            if index == 2 {
                wake(&table, second);
                assert!(!table.wake_one(&one, |chosen| {
                    assert_eq!(chosen, None);
                    Token(0)
                }));
                let ask = |is_first| {
                    told = Some(is_first);
                    false
                };
                let outcome = table.wait_with(&one, ask, || (), |_, _| (), Reason::OTHER);
                assert_eq!(outcome, Outcome::Invalid);
            }
            true
        };
        let outcome = table.wait_any(&[one, second, other], validate, Reason::OTHER);
        assert_eq!(outcome, Ok(AnyOutcome::Woken { index: 1, token: Token(3) }));
        assert_eq!(told, Some(true));
    }

    /// The keys that come after a wake are not asked about.
    #[test]
    fn a_wake_ends_the_questions() {
        let (table, [one, other]) = table();
        let mut asked = 0;
        let validate = |index| {
            asked += 1;
            if index == 1 {
                wake(&table, one);
            }
            true
        };
        let outcome = table.wait_any(&[one, other, one, other], validate, Reason::OTHER);
        assert_eq!(outcome, Ok(AnyOutcome::Woken { index: 0, token: Token(3) }));
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_wake_before_a_panic_is_passed_on() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                std::panic::resume_unwind(Box::new("waker"));
            }
        }
        // A second panic would abort.
        let waker = Waker::from(Arc::new(Panics));
        for chosen in [false, true] {
            let (table, keys) = table();
            let mut context = Context::from_waker(&waker);
            let mut behind = pin!(table.wait_async(&keys[0], || true, Reason::OTHER));
            let validate = |index| {
                if index == 1 {
                    assert!(behind.as_mut().poll(&mut context).is_pending());
                    if chosen {
                        wake(&table, keys[0]);
                    }
                    std::panic::resume_unwind(Box::new(()));
                }
                true
            };
            let wait = || table.wait_any(&keys, validate, Reason::OTHER);
            assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
            let polled = behind.as_mut().poll(&mut context);
            let woken = Poll::Ready(Outcome::Woken(Token(3)));
            assert_eq!(polled, if chosen { woken } else { Poll::Pending });
            let again = catch_unwind(|| table.wake_all(&keys[0]).total());
            assert_eq!(again.ok(), chosen.then_some(0));
        }
    }
}
