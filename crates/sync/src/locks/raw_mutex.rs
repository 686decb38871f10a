//! A mutex of one byte.
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
//!   unlock decides under it and then stores. A PARKED that it overwrites is missed by the waiter
//!   that has set it, when this validates.
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
//! An unlock that finds waiters clears LOCKED and wakes the first. Until that runs, other threads
//! may take the mutex: this *barging* keeps a mutex busy while its next owner is still waking up.
//! They wake no other in that time (M4), so a busy mutex wakes threads only as fast as they come.
//! A thread may be long in coming, where processors are few; so each 31st of these unlocks goes to
//! the queue all the same.
//!
//! If the first waiter has waited for as long as the mutex allows barging, and the last hand-over
//! was as long ago, the unlock leaves LOCKED set and hands the mutex over. Waiting alone would be
//! no reason: where many wait, each has waited for long, and a mutex that is handed over at each
//! unlock stands idle for the time of a wakeup each time.
#![expect(unsafe_code, reason = "an unlock is unsafe: only the holder may")]

use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU8, Ordering, spin_loop};

use super::barging::{is_over, since};
use super::owner::Owner;
#[cfg(feature = "async")]
use super::settled_wait::SettledWait;
use super::table::{Address, locks};
use crate::{Outcome, Tag, Token, Wait};

const LOCKED: u8 = 1;
const PARKED: u8 = 2;
const AWAKE: u8 = 4;
/// One of the unlocks that are counted.
const UNLOCK: u8 = 8;
/// Words from here on have counted enough.
const COUNTED: u8 = if cfg!(any(loom, shuttle)) { 2 * UNLOCK } else { 31 * UNLOCK };

/// What the unlock gives to a waiter that holds the mutex now.
pub(super) const HANDED_OVER: Token = Token(1);
/// What it gives to one that may take the mutex if no other comes before.
pub(super) const AWAKENED: Token = Token(2);

/// Looks at a held mutex before sleeping, each after twice the pause of the one before: together
/// about as long as a sleep and a wakeup take.
const LOOKS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 4 };

/// Steps of the first pause. Each look takes the mutex's line from its holder, which in short
/// sections costs more than a mutex that is free for a moment: see `record/2026-11-23-locks`.
const FIRST_PAUSE: u32 = 16;

/// A mutex without a value: [`Mutex`](super::Mutex) has one. Without the feature
/// `lock_api` it can only be made; with it, it implements `lock_api::RawMutex`, by which it is
/// locked.
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
        let taken = taken.is_ok() || self.lock_slow(0, barging, deadline);
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

    /// Whether a thread holds it, or did just now.
    #[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
    pub(super) fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// Locks it, for a thread that has waited in its queue, and was given `token`.
    pub(super) fn lock_woken(&self, token: Token, barging: Duration) {
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
            let state = self.state.load(Ordering::Relaxed);
            if state & LOCKED == 0 {
                if self.take(state, awake).is_ok() {
                    return;
                }
            } else if state & PARKED != 0 || self.set_parked(state) {
                let since = *asleep_since.get_or_insert_with(|| since(barging));
                let how = Wait::new(locks().mutex).tag(since);
                let is_held = || self.clear_while_held(awake);
                let wait = locks().wait_async(&Address::of(self), is_held, how);
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
    fn settle(&self, token: Token, barging: Duration) {
        match token {
            AWAKENED if self.clear_or_take_awake() => return,
            AWAKENED | HANDED_OVER => {}
            // A wake of another queue that had this address before.
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
            let state = self.state.load(Ordering::Relaxed);
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
                let _refused = locks().wait(&Address::of(self), look, locks().mutex);
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

    /// Sets LOCKED where it is not set in `state`, and clears `awake`.
    fn take(&self, state: u8, awake: u8) -> Result<(), u8> {
        let taken = without(awake, state | LOCKED);
        // ORDER[MUTEX]: Acquire; pairs as in `lock`.
        let order = Ordering::Acquire;
        self.state.compare_exchange(state, taken, order, Ordering::Relaxed).map(drop)
    }

    /// `awake` is AWAKE in the thread that has to clear it (M4), else 0.
    #[cold]
    #[track_caller]
    fn lock_slow(&self, mut awake: u8, barging: Duration, deadline: Deadline) -> bool {
        self.check_owner("mutex");
        let (mut looks, mut asleep_since) = (0, None);
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & LOCKED == 0 {
                if self.take(state, awake).is_ok() {
                    return true;
                }
            } else if looks < LOOKS {
                (0..FIRST_PAUSE << looks).for_each(|_| spin_loop());
                looks += 1;
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
                    _ => (awake, looks) = (AWAKE, 0),
                }
            }
        }
    }

    fn set_parked(&self, state: u8) -> bool {
        let order = Ordering::Relaxed;
        self.state.compare_exchange(state, state | PARKED, order, order).is_ok()
    }

    fn sleep(&self, awake: u8, since: Tag, deadline: Deadline) -> Outcome {
        let locks = locks();
        let how = Wait::new(locks.mutex).tag(since).deadline(deadline);
        // Under the bucket lock, under which alone PARKED is cleared.
        let is_held = || self.clear_while_held(awake);
        locks.wait(&Address::of(self), is_held, how)
    }

    /// Clears `awake` if the mutex is held, with PARKED set; says whether it is. M4.
    fn clear_while_held(&self, awake: u8) -> bool {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & (LOCKED | PARKED) != LOCKED | PARKED {
                return false;
            }
            let (cleared, order) = (without(awake, state), Ordering::Relaxed);
            if awake == 0 || self.state.compare_exchange(state, cleared, order, order).is_ok() {
                return true;
            }
        }
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
        if freed.is_err() && !self.free_while_awake(barging) {
            self.unlock_slow(barging);
        }
    }

    /// Unlocks if a woken waiter is on its way, unless the mutex is to be handed over. M4.
    #[inline]
    fn free_while_awake(&self, barging: Duration) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & AWAKE != 0 && state < COUNTED && !barging.is_zero() {
            let free = (state & !LOCKED) + UNLOCK;
            // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`.
            let order = Ordering::Release;
            match self.state.compare_exchange(state, free, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    #[cold]
    fn unlock_slow(&self, barging: Duration) {
        let address = Address::of(self);
        locks().wake_one(&address, |chosen| {
            // The count begins again.
            let awake = self.state.load(Ordering::Relaxed) & AWAKE;
            let Some(chosen) = chosen else {
                // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`. M2.
                self.state.store(awake, Ordering::Release);
                return Token(0);
            };
            let parked = if chosen.more { PARKED } else { 0 };
            if is_over(barging, chosen.tag.0, address) {
                self.state.store(LOCKED | parked | awake, Ordering::Relaxed);
                return HANDED_OVER;
            }
            // ORDER[MUTEX]: Release; pairs with the Acquires in `lock` and `take`. M2.
            self.state.store(parked | AWAKE, Ordering::Release);
            AWAKENED
        });
    }
}

/// `state` without `awake`, if that is AWAKE, and without the count that goes with it.
fn without(awake: u8, state: u8) -> u8 {
    if awake == 0 { state } else { state & (LOCKED | PARKED) }
}
