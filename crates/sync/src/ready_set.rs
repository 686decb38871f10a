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

mod batch;
mod bits;
mod levels;
#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, shuttle))]
mod shuttle;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::error::Error;
use std::fmt;

use unherd_sys::Deadline;
use unherd_sys::primitives::{Arc, AtomicU64, Mutex, Ordering};

use crate::{Outcome, Reason, Tag, Token, Verdict, Wait, WaitTable};
use batch::SOURCES_MAX;
use levels::Levels;

pub use batch::{ReadyBatch, SourceToken};

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
            places: Mutex::new(Places { free: Vec::new(), fresh: 0 }),
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
/// comes while waiters sleep wakes exactly one of them.
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
#[derive(Debug, Clone)]
pub struct ReadySet(Arc<Shared>);

/// Starts at a cache line, apart from the reference count: an empty check reads no line that a
/// clone writes.
#[derive(Debug)]
#[repr(align(64))]
struct Shared {
    levels: Levels,
    waiters: WaitTable<()>,
    places: Mutex<Places>,
    /// LIFO: the number of the next waiter, its tag. Relaxed: those that come at once are equal.
    arrivals: Option<AtomicU64>,
    reason: Reason,
}

/// Where sources can begin.
#[derive(Debug)]
struct Places {
    free: Vec<usize>,
    /// This and all after it had no source yet.
    fresh: usize,
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
    #[inline]
    pub fn try_wait(&self, batch: &mut ReadyBatch) -> usize {
        batch.clear();
        if self.is_empty() { 0 } else { self.take(batch) }
    }

    fn take(&self, batch: &mut ReadyBatch) -> usize {
        let hidden = self.0.levels.take(batch);
        for _ in 0..hidden {
            if self.is_empty() {
                break;
            }
            self.wake_one();
        }
        batch.len()
    }

    /// As [`ReadySet::try_wait`]; if there are none, blocks until there are, or until the deadline,
    /// and then says 0. In a set without sources that is a wait for one to be made, and to post.
    ///
    /// Blocks under the reason of the set. A waiter that an event has woken may find that another
    /// check has taken it; it sleeps again, and the ledger counts a needless wakeup.
    pub fn wait(&self, batch: &mut ReadyBatch, deadline: Deadline) -> usize {
        let mut was_woken = false;
        while self.try_wait(batch) == 0 {
            self.note_needless(was_woken);
            let how = self.how().deadline(deadline);
            match self.0.waiters.wait(&(), || self.is_empty(), how) {
                Outcome::TimedOut => return self.try_wait(batch),
                outcome => was_woken = outcome != Outcome::Invalid,
            }
        }
        batch.len()
    }

    /// As [`ReadySet::wait`], in a task, without a deadline: drop the future when its timer says
    /// so. Tasks and threads stand in one queue. A task that is dropped when it was chosen passes
    /// its wake on.
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
            let outcome = self.0.waiters.wait_async(&(), || self.is_empty(), self.how()).await;
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

    fn how(&self) -> Wait {
        let tag = self.0.arrivals.as_ref().map_or(0, |next| next.fetch_add(1, Ordering::Relaxed));
        Wait::new(self.0.reason).tag(Tag(tag))
    }

    fn note_needless(&self, was_woken: bool) {
        if was_woken {
            self.0.waiters.note_needless(self.0.reason);
        }
    }

    #[inline]
    fn wake_one(&self) {
        match self.0.arrivals {
            None => _ = self.0.waiters.wake(&(), 1),
            Some(_) => self.wake_newest(),
        }
    }

    /// Finds the highest tag and wakes the waiter that has it, unless it is gone by then.
    fn wake_newest(&self) {
        let waiters = &self.0.waiters;
        loop {
            let mut newest = None;
            waiters.wake_where(
                &(),
                |tag| {
                    newest = newest.max(Some(tag.0));
                    Verdict::Skip
                },
                Token(0),
            );
            let Some(newest) = newest else { return };
            let choose =
                |tag: Tag| if tag.0 == newest { Verdict::WakeAndStop } else { Verdict::Skip };
            if waiters.wake_where(&(), choose, Token(0)) > 0 {
                return;
            }
        }
    }
}

/// One source of events in a [`ReadySet`]. Dropping it forgets its event and frees its place.
#[derive(Debug)]
pub struct Source {
    set: ReadySet,
    token: SourceToken,
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
