//! A mutex in one byte: that of a [`Mutex`](super::Mutex), or the lowest of a larger word, whose
//! other bits are another's ([`LockWord`]).
//!
//! | bits | meaning | changed by |
//! |---|---|---|
//! | LOCKED | a thread holds the mutex | anybody, 0 → 1; its holder, 1 → 0 |
//! | PARKED | a waiter may be in the queue of the mutex's address | a waiter that is about to queue; the holder's unlock, under the bucket lock |
//! | AWAKE | a waiter was woken, and has not taken the mutex yet | the unlock that wakes it, 0 → 1; that waiter, 1 → 0 |
//! | the rest | how many unlocks have seen AWAKE | these; cleared with it, and by an unlock that goes to the queue |
//!
//! - **M1** While a waiter is queued, PARKED is set. So the fast unlock, a compare-and-swap from
//!   LOCKED alone to zero, cannot overlook one.
//! - **M2** While the mutex is held, AWAKE is changed under the bucket lock alone. So the holder's
//!   unlock decides under it and then writes the byte. A PARKED that it overwrites is missed by the
//!   waiter that has set it, when this validates.
//! - **M3** A thread that is given HANDED_OVER holds the mutex: LOCKED was not cleared in between.
//! - **M4** While AWAKE is set, a thread that was given AWAKENED is on its way. It clears AWAKE as
//!   it takes the mutex, or under the bucket lock while another holds that. Either way an unlock
//!   follows that sees AWAKE cleared. So an unlock that sees it set needs to wake nobody.
//! - **M5** A task that is dropped with a token that it has not seen settles it: HANDED_OVER by an
//!   unlock (M3), AWAKENED as M4 says of a waiter that comes, which then leaves. `settled_wait` has
//!   the race.
//!
//! ```text
//!  waiter                                   holder
//!  ------                                   ------
//!  CAS LOCKED → LOCKED | PARKED             CAS LOCKED → 0: fails, PARKED is set
//!  lock bucket
//!  validate: are both set still?            lock bucket; take out the first
//!  push; unlock bucket                      write 0, or PARKED if there are more; unlock bucket
//! ```
//!
//! Excluded: that the waiter sleeps and the holder leaves without a wake. If the holder's bucket
//! lock comes first, the waiter's `validate` sees its write; if it comes second, it finds the node.
//! PARKED may be set with nobody queued, after a waiter has given up: this costs the next unlock a
//! look, which clears it.
//!
//! # Fairness
//!
//! An unlock that finds waiters clears LOCKED and wakes the first. Until that runs, other threads
//! may take the mutex: this *barging* keeps a mutex busy while its next owner is still waking up.
//! They wake no other in that time (M4), so a busy mutex wakes threads only as fast as they come.
//! A thread may be long in coming, where processors are few; so each 32nd of these unlocks goes to
//! the queue all the same.
//!
//! If the first waiter has waited for as long as the mutex allows barging, and the last hand-over
//! was as long ago, the unlock leaves LOCKED set and hands the mutex over. Waiting alone would be
//! no reason: where many wait, each has waited for long, and a mutex that is handed over at each
//! unlock stands idle for the time of a wakeup each time.
#![expect(unsafe_code, reason = "an unlock is unsafe: only the holder may")]

use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU8, Ordering};

use super::barging::{is_over, since};
use super::looks::Looks;
use super::owner::Owner;
#[cfg(feature = "async")]
use super::settled_wait::SettledWait;
use super::table::{Address, Kind, locks};
use crate::{Outcome, Tag, Token, Wait};

/// The bits of the mutex.
pub(super) const BYTE: u32 = 0xff;
pub(super) const LOCKED: u32 = 1;
const PARKED: u32 = 2;
const AWAKE: u32 = 4;
/// One of the unlocks that are counted.
const UNLOCK: u32 = 8;
/// Bytes from here on have counted enough.
const COUNTED: u32 = if cfg!(any(loom, shuttle)) { 2 * UNLOCK } else { 31 * UNLOCK };

/// What the unlock gives to a waiter that holds the mutex now.
pub(super) const HANDED_OVER: Token = Token(1);
/// What it gives to one that may take the mutex if no other comes before.
pub(super) const AWAKENED: Token = Token(2);

/// An atomic word whose lowest byte is a mutex.
pub(super) trait LockWord {
    /// Whose queue the mutex has.
    const KIND: Kind;

    /// LOCKED, and the bits of others that keep a thread out which does not wait.
    const BUSY: u32;

    /// What `state` becomes as the holder leaves `byte` behind.
    fn left(state: u32, byte: u32) -> u32;

    /// Relaxed: it only looks.
    fn load(&self) -> u32;

    /// A failure is Relaxed.
    fn compare_exchange(&self, from: u32, to: u32, order: Ordering) -> Result<u32, u32>;
}

impl LockWord for AtomicU8 {
    const KIND: Kind = Kind::Mutex;

    const BUSY: u32 = LOCKED;

    #[inline]
    fn left(_: u32, byte: u32) -> u32 {
        byte
    }

    #[inline]
    fn load(&self) -> u32 {
        self.load(Ordering::Relaxed).into()
    }

    #[inline]
    fn compare_exchange(&self, from: u32, to: u32, order: Ordering) -> Result<u32, u32> {
        let done = self.compare_exchange(from as u8, to as u8, order, Ordering::Relaxed);
        done.map(u32::from).map_err(u32::from)
    }
}

/// A mutex of one byte.
pub(super) type ByteMutex = WordMutex<AtomicU8>;

/// A mutex in the lowest byte of `W`.
#[derive(Debug)]
pub(super) struct WordMutex<W> {
    word: W,
    owner: Owner,
}

impl<W> WordMutex<W> {
    /// One whose word is `word`: zero is unlocked.
    pub(super) const fn new(word: W) -> Self {
        Self { word, owner: Owner::nobody() }
    }

    pub(super) fn word(&self) -> &W {
        &self.word
    }
}

impl<W: LockWord> WordMutex<W> {
    /// Where its waiters stand.
    pub(super) fn address(&self) -> Address {
        Address::of(W::KIND, self)
    }

    /// Locks it; `barging` is for how long others may come before this thread.
    #[inline]
    #[track_caller]
    pub(super) fn lock(&self, barging: Duration, deadline: Deadline) -> bool {
        // ORDER[MUTEX]: Acquire; pairs with the Releases in `unlock` and `unlock_slow`. What the
        // last holder wrote is seen.
        let taken = self.word.compare_exchange(0, LOCKED, Ordering::Acquire);
        let taken = taken.is_ok() || self.lock_slow(0, barging, deadline);
        if taken {
            self.owner.set();
        }
        taken
    }

    /// Locks it, unless another thread holds it, or the word is busy otherwise.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        let mut state = self.word.load();
        while state & W::BUSY == 0 {
            match self.take(state, 0) {
                Ok(()) => {
                    self.owner.set();
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    /// Whether a thread holds it, or did just now, or the word is busy otherwise.
    #[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
    pub(super) fn is_locked(&self) -> bool {
        self.word.load() & W::BUSY != 0
    }

    /// Locks it, for a thread that has waited in its queue, and was given `token`. Does not unwind:
    /// the caller has a guard.
    pub(super) fn lock_woken(&self, token: Token, barging: Duration) {
        self.abort_if_owned("mutex");
        match token {
            HANDED_OVER => {} // M3
            AWAKENED => drop(self.lock_slow(AWAKE, barging, Deadline::NEVER)),
            _ => drop(self.lock(barging, Deadline::NEVER)),
        }
        self.owner.set();
    }

    /// Locks it in a task, whose thread may be another after each poll: so nobody is its owner.
    #[cfg(feature = "async")]
    pub(super) async fn lock_async(&self, barging: Duration) {
        let (mut awake, mut asleep_since) = (0, None);
        loop {
            let state = self.word.load();
            if state & LOCKED == 0 {
                if self.take(state, awake).is_ok() {
                    return;
                }
            } else if state & PARKED != 0 || self.set_parked(state) {
                let since = *asleep_since.get_or_insert_with(|| since(barging));
                let how = Wait::new(locks().mutex).tag(since);
                let is_held = || self.clear_while_held(awake);
                let wait = locks().wait_async(&self.address(), is_held, how);
                let brought = (awake != 0).then_some(AWAKENED);
                let settle = |token| self.settle(token, barging);
                let outcome = SettledWait::new(wait, brought, settle).await;
                if outcome == Outcome::Invalid {
                    continue;
                }
                if awake != 0 {
                    locks().note_needless(locks().mutex);
                }
                match outcome {
                    Outcome::Woken(HANDED_OVER) => return, // M3
                    _ => awake = AWAKE,
                }
            }
        }
    }

    /// Gives `token` back, for a task that is gone. M5.
    #[cfg(feature = "async")]
    #[cold]
    fn settle(&self, token: Option<Token>, barging: Duration) {
        match token {
            Some(AWAKENED) if self.clear_or_take_awake() => return,
            Some(AWAKENED | HANDED_OVER) => {}
            // Nothing, or a wake of another queue that had this address before.
            _ => return,
        }
        // SAFETY: it was handed over (M3), or taken just now.
        unsafe { self.unlock(barging) };
    }

    /// Clears AWAKE: true if another holds the mutex, whose unlock sees it; false if this had to
    /// take the mutex.
    #[cfg(feature = "async")]
    fn clear_or_take_awake(&self) -> bool {
        loop {
            let state = self.word.load();
            if state & LOCKED == 0 {
                if self.take(state, AWAKE).is_ok() {
                    return false;
                }
            } else if state & PARKED != 0 || self.set_parked(state) {
                // A wait that is none: to look under the bucket lock (M2).
                let mut is_held = false;
                let look = || {
                    is_held = self.clear_while_held(AWAKE);
                    false
                };
                let _refused = locks().wait(&self.address(), look, locks().mutex);
                if is_held {
                    return true;
                }
            }
        }
    }

    /// Panics if this thread holds it, as a part of `lock`.
    #[track_caller]
    pub(super) fn check_owner(&self, lock: &str) {
        self.owner.check(lock, std::ptr::from_ref(self).addr());
    }

    /// As [`WordMutex::check_owner`], before a lock that may not unwind: somebody may have a guard
    /// that is to be locked again.
    pub(super) fn abort_if_owned(&self, lock: &str) {
        self.owner.check_or_abort(lock, std::ptr::from_ref(self).addr());
    }

    /// Sets PARKED, for waiters that are about to be moved here, and says whether the mutex is
    /// held: if not, PARKED is set only where `even_if_free`. Under the lock of its bucket.
    pub(super) fn expect_waiters(&self, even_if_free: bool) -> bool {
        loop {
            let state = self.word.load();
            let is_held = state & LOCKED != 0;
            if !(is_held || even_if_free) || self.set_parked(state) {
                return is_held;
            }
        }
    }

    /// Sets LOCKED where it is not set in `state`, and clears `awake`.
    fn take(&self, state: u32, awake: u32) -> Result<(), u32> {
        let taken = without(awake, state | LOCKED);
        // ORDER[MUTEX]: Acquire; pairs as in `lock`.
        let order = Ordering::Acquire;
        self.word.compare_exchange(state, taken, order).map(drop)
    }

    /// `awake` is AWAKE in the thread that has to clear it (M4), else 0.
    #[cold]
    #[track_caller]
    fn lock_slow(&self, mut awake: u32, barging: Duration, deadline: Deadline) -> bool {
        self.check_owner("mutex");
        let (mut looks, mut asleep_since) = (Looks::NONE, None);
        loop {
            let state = self.word.load();
            if state & LOCKED == 0 {
                if self.take(state, awake).is_ok() {
                    return true;
                }
            } else if looks.again() {
            } else if state & PARKED != 0 || self.set_parked(state) {
                let since = *asleep_since.get_or_insert_with(|| since(barging));
                let outcome = self.sleep(awake, since, deadline);
                if outcome == Outcome::Invalid {
                    continue;
                }
                if awake != 0 {
                    locks().note_needless(locks().mutex);
                }
                match outcome {
                    Outcome::Woken(HANDED_OVER) => return true, // M3
                    Outcome::TimedOut => return false,
                    _ => (awake, looks) = (AWAKE, Looks::NONE),
                }
            }
        }
    }

    fn set_parked(&self, state: u32) -> bool {
        self.word.compare_exchange(state, state | PARKED, Ordering::Relaxed).is_ok()
    }

    fn sleep(&self, awake: u32, since: Tag, deadline: Deadline) -> Outcome {
        let locks = locks();
        let how = Wait::new(locks.mutex).tag(since).deadline(deadline);
        // Under the bucket lock, under which alone PARKED is cleared.
        let is_held = || self.clear_while_held(awake);
        locks.wait(&self.address(), is_held, how)
    }

    /// Clears `awake` if the mutex is held, with PARKED set; says whether it is. M4.
    fn clear_while_held(&self, awake: u32) -> bool {
        loop {
            let state = self.word.load();
            if state & (LOCKED | PARKED) != LOCKED | PARKED {
                return false;
            }
            let (cleared, order) = (without(awake, state), Ordering::Relaxed);
            if awake == 0 || self.word.compare_exchange(state, cleared, order).is_ok() {
                return true;
            }
        }
    }

    /// Unlocks it, and gives the word as it was. With no barging at all, the mutex is handed over
    /// to the first that waits.
    ///
    /// # Safety
    /// The caller holds it.
    #[inline]
    pub(super) unsafe fn unlock(&self, barging: Duration) -> u32 {
        self.owner.clear();
        // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`.
        self.word
            .compare_exchange(LOCKED, 0, Ordering::Release)
            .or_else(|_| self.free_without_wake(barging))
            .unwrap_or_else(|()| self.unlock_slow(barging))
    }

    /// Unlocks if there is nobody to wake: nobody is queued (M1), or one that was woken is on its
    /// way (M4), unless the mutex is to be handed over.
    #[inline]
    fn free_without_wake(&self, barging: Duration) -> Result<u32, ()> {
        let mut state = self.word.load();
        loop {
            let byte = state & BYTE & !LOCKED;
            let is_coming = byte & AWAKE != 0 && byte < COUNTED;
            if byte & PARKED != 0 && (!is_coming || barging.is_zero()) {
                return Err(());
            }
            let free = W::left(state, if is_coming { byte + UNLOCK } else { byte });
            // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`.
            let order = Ordering::Release;
            match self.word.compare_exchange(state, free, order) {
                Ok(before) => return Ok(before),
                Err(now) => state = now,
            }
        }
    }

    #[cold]
    fn unlock_slow(&self, barging: Duration) -> u32 {
        let address = self.address();
        let mut before = 0;
        locks().wake_one(&address, |chosen| {
            // The count begins again.
            let awake = self.word.load() & AWAKE;
            let Some(chosen) = chosen else {
                // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`. M2.
                before = self.leave(awake, Ordering::Release);
                return Token(0);
            };
            let parked = if chosen.more { PARKED } else { 0 };
            if is_over(barging, chosen.tag.0, address) {
                before = self.leave(LOCKED | parked | awake, Ordering::Relaxed);
                return HANDED_OVER;
            }
            // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`. M2.
            before = self.leave(parked | AWAKE, Ordering::Release);
            AWAKENED
        });
        before
    }

    /// Leaves `byte` behind, and gives the word as it was.
    fn leave(&self, byte: u32, order: Ordering) -> u32 {
        let mut state = self.word.load();
        loop {
            match self.word.compare_exchange(state, W::left(state, byte), order) {
                Ok(before) => return before,
                Err(now) => state = now,
            }
        }
    }
}

/// `state` without `awake`, if that is AWAKE, and without the count that goes with it.
fn without(awake: u32, state: u32) -> u32 {
    if awake == 0 { state } else { state & !(BYTE & !(LOCKED | PARKED)) }
}
