//! Congestion of one resource: waits that sleep only while it is congested, and end with it.
//!
//! # The word
//!
//! | bits | meaning | changed by |
//! |---|---|---|
//! | tokens | how many say that the resource is congested; *clear* is none | [`Gate::congest`], and the drop of a token |
//! | units | progress that nobody has taken yet | [`Gate::progress`] adds, a waiter takes one; none when congestion begins or ends |
//! | silent | timeouts in a row in which nothing had happened for [`GateBuilder::max_wait`]; three make the signal *untrusted* | a waiter whose deadline passed; cleared by each change and each progress |
//! | QUEUED | a waiter may be queued | a waiter that queues, or a release that may leave one asleep; cleared as a release begins |
//! | CLOSED | nobody sleeps here any more | [`Gate::close`] |
//!
//! # A waiter
//!
//! | state | left by | to |
//! |---|---|---|
//! | new | the gate is clear, closed or untrusted; or there is a unit for it and each that is queued | gone, without a sleep |
//! | new | push, under the bucket lock | queued |
//! | queued | a release that finds the gate clear | gone: `Cleared` |
//! | queued | a release that has a unit for it | gone: `Progress` |
//! | queued | its deadline, or the bound of the gate | gone: `Timeout`, `Overdue` |
//!
//! # Invariants, of the mode [`GateMode::Paced`]
//!
//! - **G1** While a waiter is queued, QUEUED is set, or a release is about to look at the queue. So
//!   progress that does not find QUEUED has nobody to let go.
//! - **G2** While a waiter is queued, and the gate is clear or has a unit, a release is under way,
//!   or a thread that it has let go is on its way and begins the next ([`Gate::pass_on`]). A task
//!   that was let go is not relied on, so the release goes on to the next by itself.
//! - **G3** A unit is taken by one waiter: under the bucket lock as that leaves the queue, or by a
//!   compare-and-swap of one that does not sleep. A task that is dropped gives it back.
//! - **G4** A sleep begins only while the gate is congested and has no unit for the waiter, as its
//!   own compare-and-swap has seen.
//!
//! ```text
//!  waiter                                   who clears, or makes progress
//!  ------                                   -----------------------------
//!  lock bucket; fence (A)                   change the word: QUEUED is clear: return
//!  compare-and-swap: set QUEUED             clear QUEUED; fence (B); look at the bucket
//!  (else it is clear, or has a unit)        lock it: may the first go? set QUEUED again
//!  push; unlock bucket                      unlock bucket; wake it
//! ```
//!
//! Excluded: that the waiter sleeps beside a clear gate or a unit. All changes of the word have one
//! order. If the other's comes before the waiter's, it sees that and does not sleep. If after, the
//! other finds QUEUED, and then by the wait table's race the node; or a third has cleared QUEUED in
//! between, whose look at the bucket comes later, and finds the node and what the other changed.
//!
//! # Why one after another
//!
//! A clear gate has no reason to keep anybody, and yet they are not woken together: they would run
//! for the room that was made, congest the gate again, and all but a few would have been woken for
//! nothing. So each that wakes wakes the next, if the gate is still clear by then or has a unit. If
//! it is congested again, the rest sleep on and have not noticed. The price: the last of n waiters
//! goes n wakeups after the first.

mod pace;
mod status;
mod token;
mod word;

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use unherd_sys::primitives::{AtomicU64, Ordering, thread};
use unherd_sys::{Deadline, Timestamp};

use crate::ledger::Field;
use crate::ledger::gates::{GateField, GateRow, OwnRow};
#[cfg(feature = "async")]
use crate::locks::SettledWait;
use crate::wait_table::resume_unless_unwinding;
use crate::{Ledger, Outcome, Reason, Token, Verdict, Wait, WaitTable};
use word::State;

pub use status::{GateStatus, GateWaiter};
pub(crate) use status::{ago_or_never, write_waiters};
pub use token::{Congested, GateDuty, OwnedCongested, SharedCongested};

/// What a release gives to a waiter.
const CLEARED: Token = Token(0);
const PROGRESS: Token = Token(1);
const CANCELLED: Token = Token(2);

/// The full sleep of [`GateMode::Fixed`].
const FIXED: Duration = Duration::from_millis(100);
const FIXED_SHORT: Duration = Duration::from_micros(100);
/// A yield that lasts longer has let another thread run.
const DESCHEDULED: Duration = Duration::from_micros(20);

/// How the waits of a [`Gate`] sleep and end. All but the default are there to be compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GateMode {
    /// Sleeps for 100 ms or until the gate clears, even if it is clear already: `congestion_wait`
    /// of Linux before 2010.
    Fixed,
    /// As `Fixed`, for 100 µs.
    FixedShort,
    /// Yields the processor if the gate is clear; otherwise as `Fixed`. A yield of over 20 µs
    /// counts as a needless sleep: another thread must have run.
    Skip,
    /// Sleeps while the gate is congested. All are woken when it clears.
    Event,
    /// Sleeps while the gate is congested. One is let go for each unit of progress, the longest
    /// waiting first, and one after another when it clears. None waits much longer than the rate of
    /// progress lets expect.
    #[default]
    Paced,
}

/// How a wait at a [`Gate`] ended, and what its caller is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// The gate was clear: go on.
    Clear,
    /// It was let go since the gate had cleared: go on.
    Cleared,
    /// A unit of progress was its own: go on.
    Progress,
    /// The caller's deadline passed.
    Timeout,
    /// It has waited for as long as the gate lets anybody wait: go on, if there is room.
    Overdue,
    /// The signal is not to be trusted: several waits timed out, and nothing had happened. Do not
    /// wait here in a loop; look at the resource itself, or report that it is stuck.
    Untrusted,
    /// This thread is to make the progress, or holds a [`Congested`] token, so it would wait for
    /// itself: do that first.
    Refused,
    /// The gate was closed: [`Gate::close`].
    Cancelled,
}

/// What a wait at a [`Gate`] was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// How long the thread slept; zero if it did not.
    pub slept: Duration,
    /// Whether the sleep began while the gate was clear. Never in [`GateMode::Paced`] and
    /// [`GateMode::Event`].
    pub needless: bool,
    /// How it ended.
    pub why: WaitEnd,
}

impl Waited {
    const fn at_once(why: WaitEnd) -> Self {
        Self { slept: Duration::ZERO, needless: false, why }
    }
}

/// Builds a [`Gate`].
#[derive(Debug, Clone, Copy)]
pub struct GateBuilder {
    mode: GateMode,
    max_wait: Duration,
    reason: Reason,
}

impl GateBuilder {
    /// How waits sleep and end.
    #[must_use]
    pub fn mode(self, mode: GateMode) -> Self {
        Self { mode, ..self }
    }

    /// The longest that anybody waits, and the time without any event after which a timeout makes
    /// the signal suspect: 1 s unless told. [`Duration::MAX`] for no bound.
    ///
    /// A wait is let go as [`WaitEnd::Overdue`] after eight times as long as its turn should have
    /// taken at the measured rate of progress, but not before a sixteenth of this, nor after it.
    /// Fixed modes have bounds of their own.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// The reason under which the ledger counts wakes and locks; waits bring their own. `gate`
    /// unless told.
    #[must_use]
    pub fn reason(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// Builds it, with a page of memory for its queue.
    pub fn build(self) -> Gate {
        let table = WaitTable::builder().buckets(1).reason(self.reason);
        #[cfg(any(loom, shuttle))]
        let table = table.seed(1);
        let is_blunt = matches!(self.mode, GateMode::Fixed | GateMode::FixedShort | GateMode::Skip);
        Gate {
            word: AtomicU64::new(State::new(is_blunt).0),
            how: self,
            row: OwnRow::take(self.reason),
            table: table.build(),
        }
    }
}

/// Congestion of one resource: lets threads and tasks through at once while it is clear, and keeps
/// them asleep while it is congested, without a herd when it clears.
///
/// Somebody says that the resource is congested, by a token ([`Gate::congest`]), and somebody that
/// there is progress ([`Gate::progress`]). A waiter goes when the gate is clear, or when a unit of
/// progress is its own; to go on is its caller's affair, who looks at the resource again. Other
/// resources have gates of their own.
///
/// **A thread that polls tasks (of an executor, an async runtime) must not block in
/// [`Gate::wait_iff`] where these tasks wait at the gate, hold its tokens or make its progress**:
/// nobody polls them meanwhile. Use `wait_iff_async` on all threads of the executor.
///
/// ```
/// # use unherd_sync as unherd;
/// use std::sync::Mutex;
/// use unherd::{Deadline, Gate, Reason, SharedCongested, WaitEnd};
///
/// static WRITES: std::sync::LazyLock<Gate> = std::sync::LazyLock::new(Gate::new);
///
/// #[derive(Default)]
/// struct Buffers { full: usize, congested: Option<SharedCongested<'static>> }
/// static BUFFERS: Mutex<Buffers> = Mutex::new(Buffers { full: 0, congested: None });
///
/// fn write(throttled: Reason) -> Result<(), &'static str> {
///     loop {
///         match WRITES.wait_iff(throttled, Deadline::NEVER).why {
///             WaitEnd::Untrusted => return Err("nothing was flushed for seconds"),
///             WaitEnd::Cancelled => return Err("closed"),
///             _ => {}
///         }
///         let mut buffers = BUFFERS.lock().unwrap();
///         if buffers.full < 4 {
///             buffers.full += 1;
///             return Ok(());
///         }
///         // The gate says what the resource says, under the same lock.
///         buffers.congested.get_or_insert_with(|| WRITES.congest().into_shared());
///     }
/// }
///
/// fn flush_one() {
///     let mut buffers = BUFFERS.lock().unwrap();
///     buffers.full -= 1;
///     buffers.congested = None; // clear: lets the waiters go, one after another
///     WRITES.progress(1);
/// }
///
/// let throttled = Reason::register("write-throttle");
/// std::thread::scope(|scope| {
///     let writer = scope.spawn(|| (0..5).try_for_each(|_| write(throttled)));
///     while BUFFERS.lock().unwrap().full < 4 {
///         std::thread::yield_now();
///     }
///     flush_one();
///     assert!(writer.join().unwrap().is_ok());
/// });
/// ```
#[derive(Debug)]
pub struct Gate {
    word: AtomicU64,
    how: GateBuilder,
    /// Time and counts; apart from the word, which who comes to a clear gate reads.
    row: OwnRow,
    table: WaitTable<()>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A clear gate with the defaults of [`Gate::builder`].
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder with the defaults.
    pub fn builder() -> GateBuilder {
        let max_wait = Duration::from_secs(1);
        GateBuilder { mode: GateMode::Paced, max_wait, reason: Reason::register("gate") }
    }

    /// Says that the resource is congested, until the token is dropped, also by a panic. Several
    /// tokens add up.
    ///
    /// One compare-and-swap and the time.
    ///
    /// # Panics
    /// If there are 2²⁰ − 1 tokens already.
    pub fn congest(&self) -> Congested<'_> {
        self.add_token();
        Congested::new(self)
    }

    /// As [`Gate::congest`], for any thread to drop; the token keeps the gate. For a gate that
    /// stands in a struct with what it guards:
    ///
    /// ```
    /// # use unherd_sync as unherd;
    /// use std::sync::Arc;
    /// use unherd::{Gate, Mutex, OwnedCongested};
    ///
    /// struct Buffers { full: usize, congested: Option<OwnedCongested> }
    /// struct Engine { gate: Arc<Gate>, buffers: Mutex<Buffers> }
    ///
    /// impl Engine {
    ///     /// Whether there was room; if not, wait at the gate, and try again.
    ///     fn put(&self) -> bool {
    ///         let mut buffers = self.buffers.lock();
    ///         if buffers.full == 4 {
    ///             buffers.congested.get_or_insert_with(|| self.gate.congest_owned());
    ///             return false;
    ///         }
    ///         buffers.full += 1;
    ///         true
    ///     }
    ///
    ///     fn flush_one(&self) {
    ///         let mut buffers = self.buffers.lock();
    ///         buffers.full -= 1;
    ///         buffers.congested = None;
    ///         self.gate.progress(1);
    ///     }
    /// }
    ///
    /// let buffers = Mutex::new(Buffers { full: 4, congested: None });
    /// let engine = Engine { gate: Arc::new(Gate::new()), buffers };
    /// assert!(!engine.put());
    /// assert_eq!(engine.gate.status().congested, 1);
    /// engine.flush_one();
    /// assert_eq!(engine.gate.status().congested, 0);
    /// ```
    ///
    /// # Panics
    /// As [`Gate::congest`].
    pub fn congest_owned(self: &Arc<Self>) -> OwnedCongested {
        self.add_token();
        OwnedCongested::new(self)
    }

    fn add_token(&self) {
        let congest = |word| State(word).congest().map(|state| state.0);
        // Before the word says so, too, or a waiter would take the calm before for silence.
        if self.state().is_clear() {
            self.row.note_change(now());
        }
        // ORDER[GATE]: Release; pairs with the Acquire in `end_of_timeout`, which sees that time
        // (no model: the clock is none of theirs).
        let before = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, congest);
        match before {
            Ok(before) if State(before).is_clear() => self.row.note_change(now()),
            Ok(_) => {}
            Err(_) => panic!("a gate has fewer than 2^20 tokens at a time"),
        }
    }

    /// Says that the calling thread makes the progress, until the guard is dropped: its waits here
    /// are refused ([`WaitEnd::Refused`]), for nobody else could end them. (A task's are not: the
    /// thread that polls it does not sleep.)
    pub fn duty(&self) -> GateDuty<'_> {
        GateDuty::new(self)
    }

    /// Says that `n` units of progress were made: each lets one waiter go that has waited, or that
    /// comes while the congestion lasts. What was written before is visible to these.
    ///
    /// One compare-and-swap and the time; and if somebody waits the bucket lock and a wakeup.
    pub fn progress(&self, n: u64) {
        if n == 0 {
            return;
        }
        let progress = |word| Some(State(word).progress(n).0);
        // ORDER[GATE]: Release; pairs with the Acquires in `go_or` and `let_go` (loom:
        // `progress_reaches_a_waiter`).
        let before = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, progress);
        let before = State(before.unwrap_or_default());
        self.row.note_progress(now(), n, !before.is_clear());
        if self.is_paced() && before.is_queued() && !before.is_clear() {
            self.release();
        }
    }

    /// Ends all waits, now and for ever, as [`WaitEnd::Cancelled`]. Wakes all waiters at a time.
    pub fn close(&self) {
        // ORDER[GATE]: Release; pairs with the Acquires in `go_or` and `let_go` (loom:
        // `close_meets_a_waiter`).
        self.word.fetch_or(State(0).close().0, Ordering::Release);
        let _all = self.table.wake_with(&(), usize::MAX, CANCELLED);
    }

    /// Sleeps, under `reason`, if the resource is congested: until it clears or a unit of progress
    /// is this thread's, and not beyond `deadline` nor the gate's bound
    /// ([`GateBuilder::max_wait`]).
    ///
    /// One load if the gate is clear. Else a compare-and-swap under the bucket lock, and a sleep as
    /// [`WaitTable::wait`] does it; the thread that was woken wakes the next where another may go.
    /// A thread's first sleep at any gate reads its number from /proc, for [`Gate::status`], which
    /// allocates.
    pub fn wait_iff(&self, reason: Reason, deadline: Deadline) -> Waited {
        if self.is_open() {
            return Waited::at_once(WaitEnd::Clear);
        }
        self.wait_slow(reason, deadline)
    }

    /// As [`Gate::wait_iff`], in an async task: tasks and threads stand in one queue, but one that
    /// comes takes a unit if there is any. Without deadline or bound: drop the future when its
    /// timer says so. If it was let go by then, the next goes instead.
    #[cfg(feature = "async")]
    pub async fn wait_iff_async(&self, reason: Reason) -> Waited {
        if self.is_open() {
            return Waited::at_once(WaitEnd::Clear);
        }
        let began = now();
        let _waiting = Waiting::begin(&self.row);
        loop {
            match self.go_or(1, |state| state) {
                Ok(why) => return Waited::at_once(why),
                // Fixed sleeps are for threads: a task has no timer that would end one.
                Err(state) if state.is_clear() => return Waited::at_once(WaitEnd::Clear),
                Err(_) => {}
            }
            let how = Wait::new(reason).tag(status::tag(reason, began, None));
            let wait = self.table.wait_async(&(), || self.is_to_queue(), how);
            let settle = |token| self.give_back(token);
            if let Outcome::Woken(token) = SettledWait::new(wait, None, settle).await {
                let slept = now().since(began);
                return Waited { slept, needless: false, why: end_of(token) };
            }
        }
    }

    /// The waiters, since when and for what they wait, and when anything happened last. Walks along
    /// the queue under its lock.
    pub fn status(&self) -> GateStatus {
        self.status_at(now())
    }

    fn status_at(&self, now: Timestamp) -> GateStatus {
        // Room for those that come meanwhile; nothing is allocated under the lock.
        let room = self.row.get(GateField::Waiting) as usize + 16;
        let mut tags = Vec::with_capacity(room);
        self.table.for_each_tag(&(), |tag| {
            if tags.len() < room {
                tags.push(tag);
            }
        });
        let state = self.state();
        GateStatus {
            now,
            congested: state.tokens(),
            waiters: tags.into_iter().map(|tag| status::waiter(tag, now)).collect(),
            last_change: self.row.changed(),
            last_progress: self.row.progressed(),
            unit: self.row.unit(),
            is_trusted: !state.is_untrusted(),
            untrusted: self.row.get(GateField::Untrusted),
            overdue: self.row.get(GateField::Overdue),
        }
    }

    /// Whether a wait is over before it begins.
    #[inline]
    fn is_open(&self) -> bool {
        // ORDER[GATE]: Acquire; pairs with the Release in `clear`: what was written before the gate
        // cleared is visible (loom: `clear_reaches_a_waiter`).
        State(self.word.load(Ordering::Acquire)).is_open()
    }

    /// A look that decides nothing.
    fn state(&self) -> State {
        State(self.word.load(Ordering::Relaxed))
    }

    fn is_paced(&self) -> bool {
        self.how.mode == GateMode::Paced
    }

    /// Takes one token back.
    fn clear(&self) {
        let clear = |word| Some(State(word).clear().0);
        // ORDER[GATE]: Release; pairs with the Acquires in `is_open`, `wait_slow`, `go_or`,
        // `let_go` and `end_of_timeout` (loom: `clear_reaches_a_waiter`).
        let before = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, clear);
        let before = State(before.unwrap_or_default());
        if before.tokens() > 1 {
            return;
        }
        self.row.note_change(now());
        if before.is_queued() && self.is_paced() {
            self.release();
        } else if before.is_queued() {
            self.word.fetch_and(!State::QUEUED, Ordering::Relaxed);
            let _all = self.table.wake_with(&(), usize::MAX, CLEARED);
        }
    }

    #[cold]
    fn wait_slow(&self, reason: Reason, deadline: Deadline) -> Waited {
        // ORDER[GATE]: Acquire; pairs with the Release in `clear`, as a look may end the wait.
        let (state, began) = (State(self.word.load(Ordering::Acquire)), now());
        // A closed gate cancels below, whatever else holds.
        if !state.is_closed() && token::is_own_duty(self) {
            return Waited::at_once(WaitEnd::Refused);
        }
        if !state.is_closed() && self.how.mode == GateMode::Skip && state.is_clear() {
            return yield_once(reason, began);
        }
        let thread = status::thread_number();
        let how = Wait::new(reason).tag(status::tag(reason, began, Some(thread)));
        let how = how.deadline(deadline.earlier(self.bound(began)));
        let (mut at_once, mut needless) = (WaitEnd::Clear, false);
        // G4. It comes before those that sleep only if there are units for all of them.
        let validate = |is_first| match self.go_or(self.needs(is_first), State::queue) {
            Ok(why) => {
                at_once = why;
                false
            }
            Err(state) => {
                needless = state.is_clear();
                true
            }
        };
        // In this order, so that who is counted is shown.
        let shown = Ledger::wait_at_gate(reason, began, self.row.number(), thread);
        let waiting = Waiting::begin(&self.row);
        let outcome = self.table.wait_with(&(), validate, || {}, |_, _| {}, how);
        drop((waiting, shown));
        let why = match outcome {
            Outcome::Invalid => return Waited::at_once(at_once),
            Outcome::Woken(token) => {
                self.pass_on();
                end_of(token)
            }
            Outcome::TimedOut => self.end_of_timeout(deadline),
        };
        if needless {
            self.table.note_needless(reason);
        }
        Waited { slept: now().since(began), needless, why }
    }

    /// When a wait that begins now ends by itself.
    fn bound(&self, now: Timestamp) -> Deadline {
        let max_wait = self.how.max_wait;
        let bound = match self.how.mode {
            GateMode::Fixed | GateMode::Skip => FIXED,
            GateMode::FixedShort => FIXED_SHORT,
            GateMode::Event | GateMode::Paced if max_wait == Duration::MAX => {
                return Deadline::NEVER;
            }
            GateMode::Event => max_wait,
            GateMode::Paced => self.row.bound(self.row.get(GateField::Waiting), max_wait),
        };
        Deadline::at(now.after(bound))
    }

    /// How a wait ends that finds this state, without a look at units.
    fn end_at_once(&self, state: State) -> Option<WaitEnd> {
        let is_fixed = matches!(self.how.mode, GateMode::Fixed | GateMode::FixedShort);
        let needs_trust = matches!(self.how.mode, GateMode::Event | GateMode::Paced);
        if state.is_closed() {
            Some(WaitEnd::Cancelled)
        } else if state.is_clear() && !is_fixed {
            Some(WaitEnd::Clear)
        } else if state.is_untrusted() && needs_trust {
            Some(WaitEnd::Untrusted)
        } else {
            None
        }
    }

    /// How many units there must be for a thread to take one without a sleep.
    fn needs(&self, is_first: bool) -> u32 {
        if is_first { 1 } else { self.row.get(GateField::Waiting) as u32 }
    }

    /// Says how the wait ends without a sleep, by a unit if there are as many as it `needs`; or
    /// changes the state by `otherwise`, and gives the one that it has seen.
    fn go_or(&self, needs: u32, otherwise: impl Fn(State) -> State) -> Result<WaitEnd, State> {
        let mut state = self.state();
        loop {
            let (next, end) = match (self.end_at_once(state), state.take_unit()) {
                (Some(end), _) => (state, Ok(end)),
                (None, Some(fewer)) if self.is_paced() && state.units() >= needs => {
                    (fewer, Ok(WaitEnd::Progress))
                }
                (None, _) => (otherwise(state), Err(state)),
            };
            // ORDER[GATE]: Acquire; pairs with the Releases in `clear`, `progress` and `close`.
            let order = Ordering::Acquire;
            match self.word.compare_exchange(state.0, next.0, order, Ordering::Relaxed) {
                Ok(_) => return end,
                Err(now) => state = State(now),
            }
        }
    }

    /// Sets QUEUED for a task, unless it may go.
    #[cfg(feature = "async")]
    fn is_to_queue(&self) -> bool {
        let queue = |word| {
            let state = State(word);
            let may_go = state.is_clear() || self.is_paced() && state.units() > 0;
            (!may_go && self.end_at_once(state).is_none()).then_some(state.queue().0)
        };
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, queue).is_ok()
    }

    /// Lets the first waiter go, if it may; and the next, if that was a task. A thread begins the
    /// next release itself. G1, G2. A waker that panics keeps nobody else from being woken.
    #[cold]
    fn release(&self) {
        let (mut is_task, mut first_panic) = (true, None);
        while std::mem::take(&mut is_task) {
            self.word.fetch_and(!State::QUEUED, Ordering::Relaxed);
            let wake = AssertUnwindSafe(|| {
                self.table.wake_each(&(), |tag| {
                    let Some(token) = self.let_go() else { return (Verdict::Stop, CLEARED) };
                    is_task = status::is_task(tag);
                    (Verdict::WakeAndStop, token)
                });
            });
            if let Err(panic) = catch_unwind(wake) {
                // One that is forgotten is not dropped, which may panic as well.
                match first_panic {
                    None => first_panic = Some(panic),
                    Some(_) => std::mem::forget(panic),
                }
            }
            is_task = is_task && self.is_to_release();
        }
        if let Some(panic) = first_panic {
            resume_unless_unwinding(panic);
        }
    }

    /// What the first waiter is let go with, if it is. Sets QUEUED for those behind it. Under the
    /// bucket lock.
    fn let_go(&self) -> Option<Token> {
        let mut state = self.state();
        loop {
            let (next, token) = match state.take_unit() {
                _ if state.is_closed() => (state, Some(CANCELLED)),
                _ if state.is_clear() => (state, Some(CLEARED)),
                Some(fewer) => (fewer, Some(PROGRESS)),
                None => (state, None),
            };
            // ORDER[GATE]: Acquire; pairs with the Releases in `clear`, `progress` and `close`: a
            // waiter sees by its waker what was written before (loom: `release_of_another`).
            let order = Ordering::Acquire;
            match self.word.compare_exchange(state.0, next.queue().0, order, Ordering::Relaxed) {
                Ok(_) => return token,
                Err(now) => state = State(now),
            }
        }
    }

    fn is_to_release(&self) -> bool {
        let state = self.state();
        self.is_paced() && state.is_queued() && state.lets_go()
    }

    /// Lets the next go, for a thread that was let go. G2.
    fn pass_on(&self) {
        if self.is_to_release() {
            self.release();
        }
    }

    /// Gives back what a task was given that is dropped. G3.
    #[cfg(feature = "async")]
    fn give_back(&self, token: Option<Token>) {
        if token == Some(PROGRESS) {
            // Relaxed: read-modify-writes continue what a Release has begun.
            let unit = |word| Some(State(word).progress(1).0);
            let _always = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, unit);
        }
        self.pass_on();
    }

    /// How a wait ends whose time is over.
    fn end_of_timeout(&self, deadline: Deadline) -> WaitEnd {
        let now = now();
        // ORDER[GATE]: Acquire; pairs with the Release in `clear`: it goes as if it was let go
        // (loom: `timeout_meets_clear`); and with that in `add_token`: it sees when that was.
        let state = State(self.word.load(Ordering::Acquire));
        if state.is_closed() {
            return WaitEnd::Cancelled;
        }
        if state.is_clear() {
            return WaitEnd::Cleared;
        }
        if now.since(self.row.last()) >= self.how.max_wait {
            self.note_silence(now);
        }
        if deadline.has_passed(now) {
            return WaitEnd::Timeout;
        }
        self.row.add(GateField::Overdue, 1);
        WaitEnd::Overdue
    }

    /// A wait timed out, and nothing had happened for long.
    fn note_silence(&self, now: Timestamp) {
        let silent = |word| State(word).silent().map(|state| state.0);
        let before = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, silent);
        let is_lost = |before| State(before).silent().is_some_and(State::is_untrusted);
        if before.is_ok_and(is_lost) {
            self.row.add(GateField::Untrusted, 1);
            self.row.set(GateField::UntrustedNs, now.as_ns());
        }
    }
}

/// Counts one that waits.
struct Waiting<'g>(&'g GateRow);

impl<'g> Waiting<'g> {
    fn begin(row: &'g GateRow) -> Self {
        row.add(GateField::Waiting, 1);
        Self(row)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.subtract(GateField::Waiting, 1);
    }
}

fn end_of(token: Token) -> WaitEnd {
    match token {
        PROGRESS => WaitEnd::Progress,
        CANCELLED => WaitEnd::Cancelled,
        _ => WaitEnd::Cleared,
    }
}

/// Lets others run, once.
fn yield_once(reason: Reason, began: Timestamp) -> Waited {
    thread::yield_now();
    let slept = now().since(began);
    if slept < DESCHEDULED {
        return Waited::at_once(WaitEnd::Clear);
    }
    Ledger::add(reason, Field::Waits, 1);
    Ledger::add(reason, Field::AsleepNs, slept.as_nanos() as u64);
    Ledger::add(reason, Field::Wakeups, 1);
    Ledger::add(reason, Field::NeedlessWakeups, 1);
    Waited { slept, needless: true, why: WaitEnd::Clear }
}

/// The time, which stands still under the checkers.
fn now() -> Timestamp {
    if cfg!(any(loom, shuttle)) { Timestamp::default() } else { Timestamp::now() }
}
