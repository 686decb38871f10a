//! Who asks the kernel for events of descriptors, while all others sleep in the wait table.
//!
//! One word for the set:
//!
//! | part | says |
//! |---|---|
//! | NOBODY, AWAKE, ASLEEP | whether a thread *leads*, and whether it sleeps in the kernel |
//! | WATCHED | a thread *watches*: it sleeps in the table, and looks at the word once a period |
//! | DESCRIPTORS | there was a descriptor; never taken back |
//! | takes, the rest | how often the lead was taken |
//!
//! | state of the lead | left by | to |
//! |---|---|---|
//! | NOBODY | a thread that has found no event and is about to sleep | AWAKE |
//! | AWAKE | the leader, if the set is still empty | ASLEEP |
//! | ASLEEP | the kernel or the deadline, or a poster that found nobody in the table | AWAKE |
//! | AWAKE | the leader returns, or panics | NOBODY |
//!
//! Invariants:
//!
//! - **L1** The word is *covered* if there are no descriptors, or somebody leads or watches. A
//!   thread queues only while it is covered, which it sees under the bucket lock.
//! - **L2** A thread that leaves [`ReadySet::wait`](super::ReadySet::wait), by a panic too, and
//!   finds the word not covered, wakes one sleeping thread, which leads, or watches.
//! - **L3** A poster that finds nobody in the table and a leader ASLEEP interrupts the leader.
//!
//! ```text
//!  leader                                    poster
//!  ------                                    ------
//!  state: ASLEEP                             slot, leaf, summary
//!  fence (C)                                 fence (B), of the wake
//!  summary is zero? sleep in the kernel      nobody in the table, and ASLEEP? interrupt
//! ```
//!
//! Excluded: that the leader sleeps beside a visible event. The race of a leader that leaves
//! against a thread that queues is the wait table's own, with the word in place of the summary.
//!
//! A hand-over costs a sleep and a wake, so a leader that has found few events returns with the
//! lead free, and expects to be back soon. The watcher sees to the case that it is not: where
//! nobody has taken the lead for a period, it leads. After that the next [`HASTY_RETURNS`] leaders
//! hand the lead on as they return.

use std::sync::OnceLock;
use std::time::Duration;

use unherd_sys::primitives::{AtomicU32, AtomicU64, Ordering, fence};
use unherd_sys::{Epoll, Errno};

const STATE: u64 = 3;
const NOBODY: u64 = 0;
const AWAKE: u64 = 1;
const ASLEEP: u64 = 2;
const WATCHED: u64 = 4;
const DESCRIPTORS: u64 = 8;
const ONE_TAKE: u64 = 16;

/// For so long a thread may handle events with the lead free. Bounds how late an event of a
/// descriptor is found by another thread: two periods, as the first may begin before the handler.
pub(super) const PERIOD: Duration = Duration::from_millis(1);
/// A leader that has taken more events than this hands the lead on before it returns: those that
/// come while it handles them are for others.
pub(super) const EVENTS_ALONE: usize = 2;
/// How many leaders hand the lead on as they return, after a handler that took longer than a
/// period.
const HASTY_RETURNS: u32 = 64;
/// After this many waits in a row that found events without the kernel's, one looks at these too.
const LOOKS_BETWEEN: u32 = 32;

/// Apart from the words of posts and checks, which read it when they find nobody asleep.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Lead {
    /// Relaxed, where not said otherwise: it guards no data. A thread that is chosen by it, or has
    /// chosen by it, looks at the summary behind a fence before it sleeps.
    word: AtomicU64,
    /// How many leaders yet hand the lead on as they return. Relaxed: a guess.
    hasty: AtomicU32,
    /// Waits since the kernel was last asked. Relaxed, and not exact.
    waits: AtomicU32,
    epoll: OnceLock<Epoll>,
}

/// That this thread leads. Dropped, by a panic too, it frees the lead.
#[derive(Debug)]
pub(super) struct LeadGuard<'a> {
    lead: &'a Lead,
    pub(super) epoll: &'a Epoll,
}

/// That this thread watches.
#[derive(Debug)]
pub(super) struct WatchGuard<'a> {
    lead: &'a Lead,
    takes: u64,
}

impl Lead {
    pub(super) fn new() -> Self {
        Self {
            word: AtomicU64::new(NOBODY),
            hasty: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            epoll: OnceLock::new(),
        }
    }

    /// The descriptors; opens the queue of their events if there is none. Not for two at a time.
    #[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "their scenes alone use it"))]
    pub(super) fn descriptors(&self) -> Result<&Epoll, Errno> {
        if self.epoll.get().is_none() {
            let epoll = Epoll::new()?;
            let epoll = self.epoll.get_or_init(|| epoll);
            // ORDER[LEAD]: Release; pairs with the Acquire of those who find the bit: they find the
            // queue too.
            self.word.fetch_or(DESCRIPTORS, Ordering::Release);
            return Ok(epoll);
        }
        Ok(self.epoll.get_or_init(|| unreachable!("it is there")))
    }

    /// Whether there are descriptors. Relaxed: who must not miss the first is woken for it.
    #[inline]
    pub(super) fn has_descriptors(&self) -> bool {
        self.word.load(Ordering::Relaxed) & DESCRIPTORS != 0
    }

    /// Whether a leader sleeps in the kernel, or is about to.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn is_asleep(&self) -> bool {
        self.word.load(Ordering::Relaxed) & STATE == ASLEEP
    }

    /// L1. Relaxed, as the summary: a thread that sleeps or leaves has a fence.
    pub(super) fn is_covered(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & DESCRIPTORS == 0 || word & (STATE | WATCHED) != 0
    }

    /// Whether a wait that has found events should look at the kernel's as well.
    pub(super) fn wants_look(&self) -> bool {
        let waits = self.waits.load(Ordering::Relaxed) + 1;
        self.waits.store(waits % LOOKS_BETWEEN, Ordering::Relaxed);
        waits == LOOKS_BETWEEN
    }

    /// The lead, if there are descriptors and nobody has it.
    pub(super) fn try_take(&self) -> Option<LeadGuard<'_>> {
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen & (STATE | DESCRIPTORS) == NOBODY | DESCRIPTORS {
            let taken = (seen | AWAKE).wrapping_add(ONE_TAKE);
            // ORDER[LEAD]: Acquire; pairs with the Release of `descriptors`.
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.word.compare_exchange_weak(seen, taken, acquire, relaxed) {
                Ok(_) => {
                    self.waits.store(0, Ordering::Relaxed);
                    let epoll = self.epoll.get()?;
                    return Some(LeadGuard { lead: self, epoll });
                }
                Err(other) => seen = other,
            }
        }
        None
    }

    /// Interrupts a leader that sleeps: L3. The caller has a fence after its event was visible.
    pub(super) fn interrupt(&self) {
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen & STATE == ASLEEP {
            let awake = seen & !STATE | AWAKE;
            // ORDER[LEAD]: Acquire; pairs with the Release of `descriptors`.
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.word.compare_exchange_weak(seen, awake, acquire, relaxed) {
                Ok(_) => return self.epoll.get().map_or((), Epoll::interrupt),
                Err(other) => seen = other,
            }
        }
    }

    /// Begins to watch, if nobody leads and nobody watches.
    pub(super) fn try_watch(&self) -> Option<WatchGuard<'_>> {
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen & (STATE | WATCHED) == NOBODY {
            let (order, watched) = (Ordering::Relaxed, seen | WATCHED);
            match self.word.compare_exchange_weak(seen, watched, order, order) {
                Ok(_) => return Some(WatchGuard { lead: self, takes: seen / ONE_TAKE }),
                Err(other) => seen = other,
            }
        }
        None
    }

    /// Whether a leader that returns is to hand the lead on.
    pub(super) fn is_hasty(&self) -> bool {
        let hasty = self.hasty.load(Ordering::Relaxed);
        if hasty > 0 {
            self.hasty.store(hasty - 1, Ordering::Relaxed);
        }
        hasty > 0
    }
}

impl LeadGuard<'_> {
    /// Before the last look at the set. An interrupt may come from here on.
    pub(super) fn begin_sleep(&self) {
        // Nobody else changes the state AWAKE.
        self.lead.word.fetch_add(ASLEEP - AWAKE, Ordering::Relaxed);
        // ORDER[EMPTY]: SeqCst fence, (C); pairs with (B) in `WaitTable::has_nobody`, which
        // each poster comes by (loom: `post_meets_the_leaders_sleep`).
        fence(Ordering::SeqCst);
    }

    /// After the sleep; says whether a poster has chosen this leader.
    pub(super) fn end_sleep(&self) -> bool {
        let mut seen = self.lead.word.load(Ordering::Relaxed);
        loop {
            let (order, awake) = (Ordering::Relaxed, seen & !STATE | AWAKE);
            match self.lead.word.compare_exchange_weak(seen, awake, order, order) {
                Ok(_) => return seen & STATE == AWAKE,
                Err(other) => seen = other,
            }
        }
    }
}

impl Drop for LeadGuard<'_> {
    fn drop(&mut self) {
        self.end_sleep();
        self.lead.word.fetch_sub(AWAKE, Ordering::Relaxed);
    }
}

/// What a watcher finds at the end of a period.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Nobody took the lead for a period: take it.
    Overdue,
    /// A leader sleeps in the kernel: there is nothing to watch.
    Led,
    /// The lead was taken and is free again, or will be soon.
    Busy,
}

impl WatchGuard<'_> {
    pub(super) fn look(&mut self) -> Watch {
        let word = self.lead.word.load(Ordering::Relaxed);
        let before = std::mem::replace(&mut self.takes, word / ONE_TAKE);
        match word & STATE {
            ASLEEP => Watch::Led,
            NOBODY if before == self.takes => {
                self.lead.hasty.store(HASTY_RETURNS, Ordering::Relaxed);
                Watch::Overdue
            }
            _ => Watch::Busy,
        }
    }
}

impl Drop for WatchGuard<'_> {
    fn drop(&mut self) {
        self.lead.word.fetch_and(!WATCHED, Ordering::Relaxed);
    }
}
