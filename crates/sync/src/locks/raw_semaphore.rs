//! A semaphore in one word.
//!
//! | bits | meaning | changed by |
//! |---|---|---|
//! | PARKED | a waiter may be queued | a waiter that queues, or a wake that may leave one asleep; cleared as a wake begins |
//! | AWAKE | a thread was woken to try, and has not come yet | the wake that wakes it; that thread clears it |
//! | CLOSED | barging is over: nobody takes a permit before the first waiter | a wake that has too few permits to hand over; cleared when there are enough, or nobody is queued |
//! | the rest | free permits | who takes or releases some |
//!
//! - **S1** While a waiter is queued, PARKED is set, or a wake is about to show it to its filter.
//!   So a release that does not find PARKED has nobody to wake.
//! - **S2** While there are permits enough for the first waiter, a wake is under way, or AWAKE is
//!   set: one that was given AWAKENED clears it as it comes, and if there are permits left then, it
//!   wakes the next. So a release that finds AWAKE may leave it at that.
//! - **S3** A waiter that is given HANDED_OVER has its permits: they were taken for it under the
//!   bucket lock. A task is given nothing else: nobody may wait for it to be polled (S2).
//! - **S4** A waiter that leaves the queue without permits wakes those behind it: they may need
//!   fewer. A task that is dropped with HANDED_OVER releases ([`super::settled_wait`]).
//! - **S5** CLOSED is cleared as the first waiter gets permits, and otherwise only when a wake has
//!   found nobody, and PARKED was not set since: nobody has queued, or another wake that hands over
//!   is about to see him, and sets CLOSED again. So who gives up does not open it for others.
//!
//! ```text
//!  waiter                                   who releases
//!  ------                                   ------------
//!  lock bucket; fence (A)                   add the permits: PARKED is clear: return
//!  validate: too few: set PARKED            clear PARKED; fence (B); look at the bucket
//!  (else it takes them)                     lock it; set PARKED again: enough for the first?
//!  push; unlock bucket                      wake it; unlock bucket
//! ```
//!
//! Excluded: that the waiter sleeps beside enough permits. All changes of the word have one order.
//! If the permits come before the waiter's look, it takes them; if after, PARKED is found, and by
//! the wait table's race the node. CLOSED, for which a waiter may queue although there are enough
//! permits, says that another is queued, whose hand-over or leaving comes past it (S4). PARKED may
//! be set with nobody queued: that costs the next release a look.
//!
//! # Fairness
//!
//! As a mutex's: permits that are released are anybody's, and the first waiter for which there are
//! enough is woken to try. Once in the time that barging is allowed, a release hands permits over
//! to the first waiters instead. If there are too few for the first of all, CLOSED keeps newcomers
//! out until there are enough, so one that needs many permits is not passed by for ever. Tasks that
//! stand first are handed theirs at any time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU32, Ordering};

use super::barging::is_over;
use super::looks::Looks;
#[cfg(feature = "async")]
use super::settled_wait::SettledWait;
use super::table::{Address, Kind, locks};
use super::word_mutex::{AWAKENED, HANDED_OVER};
#[cfg(feature = "async")]
use crate::Token;
use crate::{Outcome, Tag, Verdict, Wait};

const PARKED: u32 = 1;
const CLOSED: u32 = 2;
const AWAKE: u32 = 4;
/// The bit of a waiter's tag that says that it is a task; the others are what it needs.
const TASK: u64 = 1 << 32;
/// One permit.
const PERMIT: u32 = 8;
pub(super) const PERMITS_MAX: u32 = u32::MAX / PERMIT;

#[derive(Debug)]
pub(super) struct RawSemaphore {
    /// Relaxed accesses change marks, or look; permits order by what is marked below.
    word: AtomicU32,
}

impl RawSemaphore {
    /// A semaphore with `permits`, at most [`PERMITS_MAX`].
    #[cfg(not(loom))]
    pub(super) const fn new(permits: u32) -> Self {
        Self { word: AtomicU32::new(permits * PERMIT) }
    }

    /// A semaphore with `permits`.
    #[cfg(loom)]
    pub(super) fn new(permits: u32) -> Self {
        Self { word: AtomicU32::new(permits * PERMIT) }
    }

    /// How many permits are free, or were just now.
    pub(super) fn available(&self) -> u32 {
        self.word.load(Ordering::Relaxed) / PERMIT
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Takes `n` permits, if there are as many for anybody. Of none there are always enough.
    #[inline]
    pub(super) fn try_acquire(&self, n: u32) -> bool {
        n == 0 || self.take(n, CLOSED, 0)
    }

    /// Takes `n` permits; false if the deadline came first.
    #[inline]
    #[track_caller]
    pub(super) fn acquire(&self, n: u32, barging: Duration, deadline: Deadline) -> bool {
        self.try_acquire(n) || self.acquire_slow(n, barging, deadline)
    }

    #[cold]
    #[track_caller]
    fn acquire_slow(&self, n: u32, barging: Duration, deadline: Deadline) -> bool {
        let how = Self::how(n, 0).deadline(deadline);
        let (mut looks, mut awakened) = (Looks::NONE, false);
        loop {
            if self.try_acquire(n) {
                return true;
            }
            if looks.again() {
                continue;
            }
            let outcome = locks().wait(
                &Address::of(Kind::Semaphore, self),
                || self.is_to_wait(n, barging),
                how,
            );
            if awakened && outcome != Outcome::Invalid {
                locks().note_needless(locks().semaphore);
            }
            match outcome {
                Outcome::Invalid | Outcome::Woken(HANDED_OVER) => return true, // S3
                Outcome::TimedOut => {
                    self.pass_on(barging);
                    return false;
                }
                Outcome::Woken(_) if self.try_awakened(n, barging) => return true,
                Outcome::Woken(_) => (awakened, looks) = (true, Looks::NONE),
            }
        }
    }

    /// Takes `n` permits in a task.
    #[cfg(feature = "async")]
    pub(super) async fn acquire_async(&self, n: u32, barging: Duration) {
        while !self.try_acquire(n) {
            let is_to_wait = || self.is_to_wait(n, barging);
            let wait = locks().wait_async(
                &Address::of(Kind::Semaphore, self),
                is_to_wait,
                Self::how(n, TASK),
            );
            let settle = |token: Option<Token>| match token {
                Some(HANDED_OVER) => self.release(n, barging),
                _ => self.pass_on(barging),
            };
            // Any other is a wake of another queue that had this address before.
            let outcome = SettledWait::new(wait, None, settle).await;
            if matches!(outcome, Outcome::Invalid | Outcome::Woken(HANDED_OVER)) {
                return; // S3
            }
        }
    }

    /// The filter of a wake sees what a waiter needs, and whether it is a task.
    #[track_caller]
    fn how(n: u32, task: u64) -> Wait {
        assert!(n <= PERMITS_MAX, "{n} permits: a semaphore has {PERMITS_MAX} at most");
        Wait::new(locks().semaphore).tag(Tag(u64::from(n) | task))
    }

    /// Sets PARKED, for a waiter that is about to queue; or it has its permits, and this is false.
    fn is_to_wait(&self, n: u32, barging: Duration) -> bool {
        let mark = if barging.is_zero() { PARKED | CLOSED } else { PARKED };
        !self.take(n, CLOSED, mark)
    }

    /// Takes `n` permits, unless there are fewer or a bit of `shut` is set: then it sets `mark`.
    /// Says whether it has taken them. A hand-over, for which nothing is shut, clears CLOSED.
    #[inline]
    fn take(&self, n: u32, shut: u32, mark: u32) -> bool {
        let mut state = self.word.load(Ordering::Relaxed);
        loop {
            let taken = state & shut == 0 && state / PERMIT >= n;
            let next = if taken { (state & !CLOSED) - n * PERMIT } else { state | mark };
            if !taken && next == state {
                return false;
            }
            // ORDER[SEMAPHORE]: Acquire; pairs with the Release in `release`. Who has a permit sees
            // what was written before it was released.
            match self.word.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return taken,
                Err(now) => state = now,
            }
        }
    }

    /// Gives `n` permits.
    #[inline]
    #[track_caller]
    pub(super) fn release(&self, n: u32, barging: Duration) {
        let more = |state: u32| n.checked_mul(PERMIT).and_then(|more| state.checked_add(more));
        // ORDER[SEMAPHORE]: Release; pairs with the Acquire in `take`.
        let before = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, more);
        let Ok(before) = before else {
            panic!("{n} permits more: a semaphore has {PERMITS_MAX} at most");
        };
        if before & PARKED != 0 {
            self.wake(barging);
        }
    }

    /// Tries to take `n` permits, for a thread that was woken for it. S2.
    fn try_awakened(&self, n: u32, barging: Duration) -> bool {
        self.word.fetch_and(!AWAKE, Ordering::Relaxed);
        let taken = self.try_acquire(n);
        if self.available() > 0 {
            let pass_on = AssertUnwindSafe(|| self.pass_on(barging));
            if let Err(panic) = catch_unwind(pass_on) {
                // A task's waker did; this thread's caller will have no permits to give back.
                if taken {
                    self.release(n, barging);
                }
                resume_unwind(panic);
            }
        }
        taken
    }

    /// Wakes the next waiter, if there is one. S4.
    fn pass_on(&self, barging: Duration) {
        if self.word.load(Ordering::Relaxed) & (PARKED | CLOSED) != 0 {
            self.wake(barging);
        }
    }

    /// Wakes the first waiter to try, or the first to which permits can be handed over.
    #[cold]
    fn wake(&self, barging: Duration) {
        let address = Address::of(Kind::Semaphore, self);
        let state = self.word.load(Ordering::Relaxed);
        let mut hands_over = state & CLOSED != 0 || is_over(barging, 0, address);
        if !hands_over && state & AWAKE != 0 {
            return; // S2
        }
        let mut is_first = true;
        loop {
            self.word.fetch_and(!PARKED, Ordering::Relaxed);
            locks().wake_each(&address, |tag| {
                let n = tag.0 as u32;
                // Another wake may have closed it for this waiter meanwhile.
                hands_over |= self.word.load(Ordering::Relaxed) & CLOSED != 0;
                if !hands_over && !is_task(tag) {
                    let wakes = self.park_others(n);
                    return (if wakes { Verdict::WakeAndStop } else { Verdict::Stop }, AWAKENED);
                }
                let closes = hands_over && (is_first || barging.is_zero());
                is_first = false;
                let taken = self.take(n, 0, if closes { PARKED | CLOSED } else { PARKED });
                (if taken { Verdict::Wake } else { Verdict::Stop }, HANDED_OVER)
            });
            if !hands_over || !is_first || self.open() {
                return;
            }
        }
    }

    /// Clears CLOSED, for a wake that has found nobody; false if a waiter may have come since. S5.
    fn open(&self) -> bool {
        let open = |state: u32| (state & PARKED == 0).then_some(state & !CLOSED);
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, open).is_ok()
    }

    /// Sets PARKED, and AWAKE if there are `n` permits for the first waiter; says whether so.
    fn park_others(&self, n: u32) -> bool {
        let mut state = self.word.load(Ordering::Relaxed);
        loop {
            let has_enough = state / PERMIT >= n;
            let next = if has_enough { state | PARKED | AWAKE } else { state | PARKED };
            let order = Ordering::Relaxed;
            match self.word.compare_exchange(state, next, order, order) {
                Ok(_) => return has_enough,
                Err(now) => state = now,
            }
        }
    }
}

/// Whether the waiter with this tag is a task.
fn is_task(tag: Tag) -> bool {
    tag.0 & TASK != 0
}
