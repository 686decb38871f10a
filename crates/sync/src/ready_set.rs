//! Many sources of events, and many threads and tasks that wait for whichever has one.
//!
//! What poll(2) asks of each descriptor under a lock and a reference, a set answers from a bitmap
//! of two levels. `docs/ready-set.md` has the states, the invariants and the races; [`levels`]
//! posts and takes, and this file waits and wakes, on a [`WaitTable`] of one bucket:
//!
//! - Who makes a slot POSTED owes one wake, and sends it after the event is visible. Nobody else
//!   sends one for this event.
//! - A waiter queues only while the summary is zero, which `validate` sees under the bucket lock.
//! - A check that hid events for a moment wakes one waiter, if it leaves any: `validate` may have
//!   looked in that moment, after the posters of these had found nobody to wake.
//! - Who was woken checks again, whatever the time is; a task that is dropped after it was chosen
//!   passes its wake on, as the table does.
//!
//! Where there are descriptors, one of the threads that would sleep [leads](lead): it sleeps in the
//! kernel, and posts for those that are ready.

mod batch;
mod bits;
#[cfg(not(any(loom, shuttle)))]
mod fd;
mod lead;
mod levels;
#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, shuttle))]
mod shuttle;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_sys::primitives::{Arc, AtomicU64, Mutex, Ordering};
use unherd_sys::{Deadline, EPOLL_EVENTS_MAX, Timestamp};

use crate::wait_table::resume_unless_unwinding;
use crate::{Outcome, Reason, Tag, Token, Verdict, Wait, WaitTable};
use batch::SOURCES_MAX;
use lead::{EVENTS_ALONE, Lead, LeadGuard, PERIOD, Watch, WatchGuard};
use levels::Levels;

pub use batch::{ReadyBatch, SourceToken};
#[cfg(not(any(loom, shuttle)))]
pub use fd::{FdError, FdSource};

/// What a waiter is woken for, as it finds it in [`Outcome::Woken`].
const EVENT: Token = Token(0);
/// To take the lead.
const LEAD: Token = Token(1);
/// To watch, if nobody leads.
const WATCH: Token = Token(2);

/// In the tag of a thread: tasks neither lead nor watch.
const THREAD: u64 = 1 << 63;

/// Builds a [`ReadySet`].
#[derive(Debug, Clone)]
pub struct ReadySetBuilder {
    sources: usize,
    reason: Reason,
    lifo: bool,
}

impl ReadySetBuilder {
    /// The reason under which the ledger counts waits and wakes.
    #[must_use]
    pub fn reason(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// Wakes the waiter that came last, not the one that has waited longest. Keeps few threads
    /// busy and warm, and skews the load; a wake walks the queue of the waiters twice.
    #[must_use]
    pub fn lifo(self) -> Self {
        Self { lifo: true, ..self }
    }

    /// Builds it. Allocates all that posts and checks will need.
    pub fn build(self) -> ReadySet {
        let waiters = WaitTable::builder().buckets(1).reason(self.reason);
        #[cfg(any(loom, shuttle))]
        let waiters = waiters.seed(1);
        ReadySet(Arc::new(Shared {
            levels: Levels::new(self.sources.clamp(1, SOURCES_MAX)),
            waiters: waiters.build(),
            lead: Lead::new(),
            places: Mutex::new(Places::default()),
            arrivals: self.lifo.then(|| AtomicU64::new(0)),
            reason: self.reason,
        }))
    }
}

/// A set has no room for another source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetFull {
    /// How many sources it was built for.
    pub sources: usize,
}

impl fmt::Display for SetFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ready set was built for {} sources: build a larger one", self.sources)
    }
}

impl Error for SetFull {}

/// Many [`Source`]s of events, and many threads and tasks that wait for whichever has one.
///
/// A source that posts has an *event* until a waiter takes it: an edge, not a count; posts in
/// between coalesce. Each event goes to one waiter, which gets the source's token. An event that
/// comes while waiters sleep wakes exactly one of them; with descriptors, one more may be called to
/// look after these.
///
/// A post and a *check* ([`ReadySet::try_wait`], and each look of a wait) take no lock, count no
/// references and allocate nothing; a post takes the lock of the queue if somebody sleeps. An empty
/// check loads two cache lines, of up to 32,768 sources. A clone is the same set.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::{Deadline, ReadyBatch, ReadySet};
///
/// let set = ReadySet::new(1024);
/// let (lines, timers) = (set.source()?, set.source()?);
/// std::thread::scope(|scope| {
///     scope.spawn(|| lines.post());
///     let mut batch = ReadyBatch::with_capacity(64);
///     set.wait(&mut batch, Deadline::NEVER);
///     for token in &batch {
///         assert!(token == lines.token() && token != timers.token());
///     }
/// });
/// # Ok::<(), unherd::SetFull>(())
/// ```
#[derive(Clone)]
pub struct ReadySet(Arc<Shared>);

/// Starts at a cache line, apart from the reference count: an empty check reads no line that a
/// clone writes.
#[derive(Debug)]
#[repr(align(64))]
struct Shared {
    levels: Levels,
    waiters: WaitTable<()>,
    lead: Lead,
    places: Mutex<Places>,
    /// LIFO: the number of the next waiter, its tag. Relaxed: those that come at once are equal.
    arrivals: Option<AtomicU64>,
    reason: Reason,
}

impl fmt::Debug for ReadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadySet")
            .field("sources", &self.sources())
            .field("is_empty", &self.is_empty())
            .field("reason", &self.0.reason)
            .finish_non_exhaustive()
    }
}

/// Where sources can begin, and which of them have descriptors.
#[derive(Debug, Default)]
struct Places {
    free: Vec<usize>,
    /// This and all after it had no source yet.
    fresh: usize,
    /// Whose registration each descriptor's number is. A number may have been closed behind the
    /// back of its source, and be another's by now.
    #[cfg(not(any(loom, shuttle)))]
    numbers: std::collections::HashMap<std::os::fd::RawFd, SourceToken>,
}

impl ReadySet {
    /// A set for up to `sources` sources, that wakes in order of arrival. It has from 1 to 2²⁴:
    /// other numbers are taken for the nearest of these.
    ///
    /// Takes 8 bytes for each source; its waits count as [`Reason::OTHER`].
    pub fn new(sources: usize) -> Self {
        Self::builder(sources).build()
    }

    /// As [`ReadySet::new`], with choices.
    pub fn builder(sources: usize) -> ReadySetBuilder {
        ReadySetBuilder { sources, reason: Reason::OTHER, lifo: false }
    }

    /// How many sources it can have.
    pub fn sources(&self) -> usize {
        self.0.levels.sources()
    }

    /// Bytes of the set, with the queue of its waiters; these stand on their threads' stacks.
    pub fn memory_bytes(&self) -> usize {
        self.0.levels.bytes() + self.0.waiters.memory_bytes()
    }

    /// A new source. Takes a lock.
    ///
    /// # Errors
    /// [`SetFull`] if it has as many as it was built for.
    pub fn source(&self) -> Result<Source, SetFull> {
        let mut places = self.0.places.lock();
        let place = match places.free.pop() {
            Some(place) => place,
            None if places.fresh < self.sources() => {
                places.fresh += 1;
                places.fresh - 1
            }
            None => return Err(SetFull { sources: self.sources() }),
        };
        Ok(Source { set: self.clone(), token: self.0.levels.begin(place) })
    }

    /// Whether no event is there to be taken. Another thread may be about to make one visible.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.levels.is_empty()
    }

    /// Takes the events that are there, as many as `batch` holds, and says how many. What was in
    /// the batch is forgotten. Never sleeps.
    ///
    /// Begins behind the source where the last check ended, so none is starved.
    ///
    /// Does not ask the kernel: events of descriptors are found by [`ReadySet::wait`].
    #[inline]
    pub fn try_wait(&self, batch: &mut ReadyBatch) -> usize {
        batch.clear();
        if !self.is_empty() {
            self.take_more(batch);
        }
        batch.len()
    }

    fn take_more(&self, batch: &mut ReadyBatch) {
        let hidden = self.0.levels.take(batch);
        self.wake_for_left(hidden as usize);
    }

    /// As [`ReadySet::try_wait`]; if there are none, blocks until there are, or until the deadline,
    /// and then says 0. In a set without sources that is a wait for one to be made, and to post.
    ///
    /// Blocks under the reason of the set. A waiter that an event has woken may find that another
    /// check has taken it; it sleeps again, and the ledger counts a needless wakeup.
    ///
    /// In a set with [descriptors](ReadySet::fd) one of the waiting threads sleeps in epoll_wait(2)
    /// for all, where the ledger counts no sleep, and where its deadline is rounded up to a
    /// millisecond.
    ///
    /// # Panics
    /// As a task's waker does that this check wakes for an event which it leaves; what it has taken
    /// is in `batch` then. If the program has closed the descriptors of the set itself.
    pub fn wait(&self, batch: &mut ReadyBatch, deadline: Deadline) -> usize {
        let mut leaving = Leaving { set: self, call: WATCH };
        let mut was_woken = false;
        while self.try_wait(batch) == 0 {
            self.note_needless(was_woken);
            if let Some(lead) = self.0.lead.try_take() {
                was_woken = false;
                if self.lead(lead, batch, deadline, &mut leaving) {
                    return batch.len();
                }
                continue;
            }
            let validate = || self.is_empty() && self.0.lead.is_covered();
            match self.0.waiters.wait(&(), validate, self.how(THREAD).deadline(deadline)) {
                Outcome::TimedOut => return self.try_wait(batch),
                Outcome::Invalid => was_woken = false,
                Outcome::Woken(message) => {
                    was_woken = message == EVENT;
                    let watch = (message == WATCH).then(|| self.0.lead.try_watch()).flatten();
                    if let Some(watch) = watch
                        && self.watch(watch, batch, deadline)
                    {
                        return batch.len();
                    }
                }
            }
        }
        if self.0.lead.has_descriptors() && self.0.lead.wants_look() {
            self.look_at_kernel();
        }
        batch.len()
    }

    /// Sleeps in the kernel until there is an event, which it takes, or until the deadline. Says
    /// whether the wait is over.
    fn lead(
        &self,
        lead: LeadGuard<'_>,
        batch: &mut ReadyBatch,
        deadline: Deadline,
        leaving: &mut Leaving<'_>,
    ) -> bool {
        let (mut found, mut owed) = (0, 0);
        lead.begin_sleep();
        if self.is_empty() {
            found = lead.epoll.wait(deadline, |token| owed += self.post_for_kernel(token));
        }
        owed += usize::from(lead.end_sleep());
        drop(lead);
        let is_late = || deadline.timestamp().is_some() && deadline.has_passed(Timestamp::now());
        batch.clear();
        let hidden = if self.is_empty() { 0 } else { self.0.levels.take(batch) as usize };
        self.wake_for_left(hidden + owed.saturating_sub(batch.len()));
        let is_over = !batch.is_empty() || is_late();
        // One more may have been the interrupt.
        let has_many = batch.len() > EVENTS_ALONE || found + 1 >= EPOLL_EVENTS_MAX;
        if is_over && (has_many || self.0.lead.is_hasty()) {
            leaving.call = LEAD;
        }
        is_over
    }

    /// Posts for a descriptor, and says how many events that makes.
    fn post_for_kernel(&self, token: u64) -> usize {
        let is_new = self.0.levels.rearm(SourceToken::from_kernel(token));
        usize::from(is_new.unwrap_or(false))
    }

    /// Wakes a waiter for each of `owed` events that are left. If a task's waker panics, the others
    /// are woken all the same, and the first panic goes on.
    fn wake_for_left(&self, owed: usize) {
        let mut first = None;
        for _ in 0..owed {
            if self.is_empty() {
                break;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.wake_one())) {
                // Not dropped, which may panic as well.
                match first {
                    None => first = Some(panic),
                    Some(_) => std::mem::forget(panic),
                }
            }
        }
        if let Some(panic) = first {
            resume_unless_unwinding(panic);
        }
    }

    /// Adds the kernel's events to a set that never gets empty, unless somebody leads. They are for
    /// the next checks: some may be of sources that are in this one's batch.
    #[cold]
    fn look_at_kernel(&self) {
        if let Some(lead) = self.0.lead.try_take() {
            let mut owed = 0;
            lead.epoll.wait(Deadline::at(Timestamp::from_ns(0)), |token| {
                owed += self.post_for_kernel(token);
            });
            drop(lead);
            self.wake_for_left(owed);
        }
    }

    /// Sleeps as others do, and looks once a period whether nobody has come back to lead. Says
    /// whether the wait is over; if not, the caller leads, or sleeps on.
    fn watch(&self, mut watch: WatchGuard<'_>, batch: &mut ReadyBatch, deadline: Deadline) -> bool {
        let mut period = Deadline::after(PERIOD);
        loop {
            let how = self.how(THREAD).deadline(deadline.earlier(period));
            let outcome = self.0.waiters.wait(&(), || self.is_empty(), how);
            if self.try_wait(batch) > 0 {
                return true;
            }
            self.note_needless(outcome == Outcome::Woken(EVENT));
            let now = Timestamp::now();
            match outcome {
                Outcome::Woken(LEAD) => return false,
                Outcome::TimedOut if deadline.has_passed(now) => return true,
                // Also after a needless wakeup: wakes do not put the look off.
                _ if period.has_passed(now) => {
                    if watch.look() != Watch::Busy {
                        return false;
                    }
                    period = Deadline::after(PERIOD);
                }
                _ => {}
            }
        }
    }

    /// As [`ReadySet::wait`], in a task, without a deadline: drop the future when its timer says
    /// so. Tasks and threads stand in one queue. A task that is dropped when it was chosen passes
    /// its wake on. Events of [descriptors](ReadySet::fd) are found while a thread waits.
    ///
    /// **A thread that polls such tasks (of an executor, an async runtime) must not block on the
    /// set itself, by [`ReadySet::wait`]**: an event may wake a task that this thread alone would
    /// poll, and nobody else.
    ///
    /// ```
    /// # use unherd_sync as unherd;
    /// async fn serve(set: &unherd::ReadySet) {
    ///     let mut batch = unherd::ReadyBatch::with_capacity(64);
    ///     set.wait_async(&mut batch).await;
    /// }
    /// ```
    #[cfg(feature = "async")]
    pub async fn wait_async(&self, batch: &mut ReadyBatch) -> usize {
        let mut was_woken = false;
        while self.try_wait(batch) == 0 {
            self.note_needless(was_woken);
            // Of the two, a task that is dropped here drops the wait first.
            let cancelled = Cancelled(self);
            let outcome = self.0.waiters.wait_async(&(), || self.is_empty(), self.how(0)).await;
            std::mem::forget(cancelled);
            was_woken = outcome != Outcome::Invalid;
        }
        batch.len()
    }

    /// Posts for the source with `token`, as [`Source::post`] does; false if there was an event
    /// already, or the source is gone. For a handler that stops before all is done. The token must
    /// be of this set: one of another set may post for a source that has not.
    pub fn rearm(&self, token: SourceToken) -> bool {
        let is_new = self.0.levels.rearm(token).unwrap_or(false);
        if is_new {
            self.wake_one();
        }
        is_new
    }

    /// Level semantics: posts again for the sources in `batch` that are `still_ready`. Called when
    /// they were served.
    pub fn rearm_while(
        &self,
        batch: &ReadyBatch,
        mut still_ready: impl FnMut(SourceToken) -> bool,
    ) {
        for token in batch {
            if still_ready(token) {
                self.rearm(token);
            }
        }
    }

    fn how(&self, kind: u64) -> Wait {
        let tag = self.0.arrivals.as_ref().map_or(0, |next| next.fetch_add(1, Ordering::Relaxed));
        Wait::new(self.0.reason).tag(Tag(tag | kind))
    }

    fn note_needless(&self, was_woken: bool) {
        if was_woken {
            self.0.waiters.note_needless(self.0.reason);
        }
    }

    /// Wakes a waiter for an event: one in the table, or the leader.
    #[inline]
    fn wake_one(&self) {
        let is_woken = match self.0.arrivals {
            None => self.0.waiters.wake(&(), 1) > 0,
            Some(_) => self.wake_newest(),
        };
        if !is_woken {
            self.0.lead.interrupt();
        }
    }

    /// Finds the highest tag and wakes the waiter that has it, unless it is gone by then.
    fn wake_newest(&self) -> bool {
        let waiters = &self.0.waiters;
        let arrival = |tag: Tag| tag.0 & !THREAD;
        loop {
            // By the fence of a wake, and counted as one if nobody waits.
            if waiters.waited_for([()]).next().is_none() {
                return false;
            }
            let mut newest = None;
            waiters.for_each_tag(&(), |tag| newest = newest.max(Some(arrival(tag))));
            let Some(newest) = newest else { return false };
            let choose =
                |tag| if arrival(tag) == newest { Verdict::WakeAndStop } else { Verdict::Skip };
            if waiters.wake_where(&(), choose, EVENT) > 0 {
                return true;
            }
        }
    }

    /// Wakes the thread that has slept longest, to lead or to watch, if there is one.
    fn call_thread(&self, message: Token) {
        let is_thread = |tag: Tag| tag.0 & THREAD != 0;
        let choose = |tag| if is_thread(tag) { Verdict::WakeAndStop } else { Verdict::Skip };
        self.0.waiters.wake_where(&(), choose, message);
    }
}

/// That a thread is in [`ReadySet::wait`]. Dropped, by a panic too, it keeps invariant L2.
struct Leaving<'a> {
    set: &'a ReadySet,
    /// What the thread is called for that must not sleep on.
    call: Token,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.call == LEAD || !self.set.0.lead.is_covered() {
            self.set.call_thread(self.call);
        }
    }
}

/// That a task sleeps. Dropped with it: if it was chosen, and the table has found nobody to pass
/// the wake on to, the leader gets it.
#[cfg(feature = "async")]
struct Cancelled<'a>(&'a ReadySet);

#[cfg(feature = "async")]
impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.0.0.lead.interrupt();
        }
    }
}

/// One source of events in a [`ReadySet`]. Dropping it forgets its event and frees its place.
pub struct Source {
    set: ReadySet,
    token: SourceToken,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("token", &self.token).finish_non_exhaustive()
    }
}

impl Source {
    /// What a waiter gets for an event of this source.
    pub fn token(&self) -> SourceToken {
        self.token
    }

    /// Posts an event, and wakes a waiter if one sleeps. Says whether it is a new one; if not, it
    /// has coalesced with one that nobody has taken yet, whose poster wakes.
    ///
    /// What this thread wrote before is visible to the one who takes the event. Costs one
    /// read-modify-write and two loads if it coalesces; up to three and the look of an empty
    /// [`WaitTable::wake`] if it does not; with a sleeper the wake of a thread.
    #[inline]
    pub fn post(&self) -> bool {
        let is_new = self.set.0.levels.post(self.token.place());
        if is_new {
            self.set.wake_one();
        }
        is_new
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.set.0.levels.end(self.token) {
            self.set.0.places.lock().free.push(self.token.place());
        }
    }
}
