//! A mutex of one byte.
//!
//! | bits | meaning | changed by |
//! |---|---|---|
//! | LOCKED | a thread holds the mutex | anybody, 0 → 1; its holder, 1 → 0 |
//! | PARKED | a waiter may be in the queue of the mutex's address | a waiter that is about to queue; the holder's unlock, under the bucket lock |
//!
//! - **M1** While a waiter is queued, PARKED is set. So the fast unlock, a compare-and-swap from
//!   LOCKED alone to zero, cannot overlook one.
//! - **M2** While both bits are set, only the holder changes the word: others have no bit left to
//!   set. So its unlock decides under the bucket lock and then stores.
//! - **M3** A thread that is given HANDED_OVER holds the mutex: LOCKED was not cleared in between.
//!
//! ```text
//!  waiter                                   holder
//!  ------                                   ------
//!  CAS LOCKED → LOCKED | PARKED             CAS LOCKED → 0: fails, PARKED is set
//!  lock bucket
//!  validate: is it LOCKED | PARKED still?   lock bucket; take out the first
//!  push; unlock bucket                      store 0, or PARKED if there are more; unlock bucket
//! ```
//!
//! Excluded: that the waiter sleeps and the holder leaves without a wake. If the holder's bucket
//! lock comes first, the waiter's `validate` sees its store; if it comes second, it finds the node.
//! PARKED may be set with nobody queued, after a waiter has given up: this costs the next unlock a
//! look, which clears it.
//!
//! # Fairness
//!
//! An unlock that finds waiters clears LOCKED and wakes the first. Until that runs, another thread
//! may take the mutex: this *barging* keeps a mutex busy while its next owner is still waking up.
//! A waiter that has lost like this, and has waited for as long as the mutex allows barging, says
//! so by its tag when it queues again: the unlock that chooses it leaves LOCKED set and hands the
//! mutex over. So the wait of each is bounded, however often others come between.
#![expect(unsafe_code, reason = "an unlock is unsafe: only the holder may")]

use std::time::Duration;

use unherd_sys::primitives::{AtomicU8, Ordering, spin_loop};
use unherd_sys::{Deadline, Timestamp};

use super::owner::Owner;
use super::table::{Address, locks};
use crate::{Chosen, Outcome, Tag, Token, Wait};

const LOCKED: u8 = 1;
const PARKED: u8 = 2;

/// The tag of a waiter that wants the mutex itself, not a chance to take it.
const WANTS_HAND_OVER: Tag = Tag(1);
/// What the unlock gives to such a waiter.
pub(super) const HANDED_OVER: Token = Token(1);

/// Looks at a held mutex before sleeping, each after twice the pause of the one before: together
/// about as long as a sleep and a wakeup take. Only while nobody sleeps for it yet: then the
/// holders are quick, and few threads look.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 7 };

/// A mutex without a value: [`Mutex`](super::Mutex) has one. For builders of locks; with the
/// feature `lock_api` it is that crate's `RawMutex`.
///
/// One byte, of debug builds apart.
#[derive(Debug)]
pub struct RawMutex {
    /// Relaxed loads of it only look; the lock orders by what is marked below.
    state: AtomicU8,
    owner: Owner,
}

impl Default for RawMutex {
    fn default() -> Self {
        Self::new()
    }
}

impl RawMutex {
    /// An unlocked mutex.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(0), owner: Owner::nobody() }
    }

    /// An unlocked mutex.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { state: AtomicU8::new(0), owner: Owner::nobody() }
    }

    /// Locks it; `barging` is for how long others may come before this thread.
    #[inline]
    #[track_caller]
    pub(super) fn lock(&self, barging: Duration, deadline: Deadline) -> bool {
        // ORDER[MUTEX]: Acquire; pairs with the Releases in `unlock` and `unlock_slow`. What the
        // last holder wrote is seen.
        let taken = self.state.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        let taken = taken.is_ok() || self.lock_slow(barging, deadline);
        if taken {
            self.owner.set();
        }
        taken
    }

    /// Locks it, unless another thread holds it.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & LOCKED == 0 {
            match self.take(state) {
                Ok(()) => {
                    self.owner.set();
                    return true;
                }
                Err(now) => state = now,
            }
        }
        false
    }

    /// Whether a thread holds it, or did just now.
    #[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
    pub(super) fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// This thread was given HANDED_OVER.
    pub(super) fn own(&self) {
        self.owner.set();
    }

    /// Sets PARKED, for waiters that are about to be moved here, and says whether the mutex is
    /// held: if not, PARKED is set only where `even_if_free`. Under the lock of its bucket.
    pub(super) fn expect_waiters(&self, even_if_free: bool) -> bool {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            let is_held = state & LOCKED != 0;
            if !(is_held || even_if_free) || self.set_parked(state) {
                return is_held;
            }
        }
    }

    /// Sets LOCKED where it is not set in `state`.
    fn take(&self, state: u8) -> Result<(), u8> {
        // ORDER[MUTEX]: Acquire; pairs as in `lock`.
        let order = Ordering::Acquire;
        self.state.compare_exchange(state, state | LOCKED, order, Ordering::Relaxed).map(drop)
    }

    #[cold]
    #[track_caller]
    fn lock_slow(&self, barging: Duration, deadline: Deadline) -> bool {
        self.owner.check("mutex", std::ptr::from_ref(self).addr());
        let (mut looks, mut asleep_since, mut was_woken) = (0, None, false);
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & LOCKED == 0 {
                if self.take(state).is_ok() {
                    return true;
                }
            } else if state & PARKED == 0 && looks < LOOKS {
                (0..1 << looks).for_each(|_| spin_loop());
                looks += 1;
            } else if state & PARKED != 0 || self.set_parked(state) {
                if std::mem::take(&mut was_woken) {
                    locks().note_needless(locks().mutex);
                }
                match self.sleep(wait_tag(&mut asleep_since, barging), deadline) {
                    Outcome::Woken(HANDED_OVER) => return true, // M3
                    Outcome::Woken(_) => was_woken = true,
                    Outcome::Invalid => {}
                    Outcome::TimedOut => return false,
                }
                looks = 0;
            }
        }
    }

    fn set_parked(&self, state: u8) -> bool {
        let order = Ordering::Relaxed;
        self.state.compare_exchange(state, state | PARKED, order, order).is_ok()
    }

    fn sleep(&self, tag: Tag, deadline: Deadline) -> Outcome {
        let locks = locks();
        let how = Wait::new(locks.mutex).tag(tag).deadline(deadline);
        // Under the bucket lock, under which alone PARKED is cleared.
        let is_held = || self.state.load(Ordering::Relaxed) == LOCKED | PARKED;
        locks.wait(&Address::of(self), is_held, how)
    }

    /// Unlocks it. With no barging at all, it is handed over to the first that waits.
    ///
    /// # Safety
    /// The caller holds it.
    #[inline]
    pub(super) unsafe fn unlock(&self, barging: Duration) {
        self.owner.clear();
        // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`.
        let freed = self.state.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed);
        if freed.is_err() {
            self.unlock_slow(barging);
        }
    }

    #[cold]
    fn unlock_slow(&self, barging: Duration) {
        locks().wake_one(&Address::of(self), |chosen| {
            let parked = if chosen.is_some_and(|chosen| chosen.more) { PARKED } else { 0 };
            let wants_it = |chosen: Chosen| barging.is_zero() || chosen.tag == WANTS_HAND_OVER;
            if chosen.is_some_and(wants_it) {
                self.state.store(LOCKED | parked, Ordering::Relaxed);
                return HANDED_OVER;
            }
            // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`. M2.
            self.state.store(parked, Ordering::Release);
            Token(0)
        });
    }
}

/// The tag of a wait that begins now, of a thread that has been asleep for the mutex since
/// `asleep_since` if it was before.
fn wait_tag(asleep_since: &mut Option<Timestamp>, barging: Duration) -> Tag {
    // Under the checkers no time passes.
    let now = if cfg!(any(loom, shuttle)) { Timestamp::default() } else { Timestamp::now() };
    let since = *asleep_since.get_or_insert(now);
    if since < now && now.since(since) >= barging { WANTS_HAND_OVER } else { Tag(0) }
}
