//! Group commit: calls that overlap share the next round, as syncs of a file do, and looks at all
//! frames.
//!
//! Each caller *joins* the next round with what it wants done. Rounds run one at a time, each for
//! all that have joined it; none is joined after it has begun, so a round covers all that happened
//! before the calls that it serves.
//!
//! | the round that a caller has joined | the caller |
//! |---|---|
//! | is the next, and none runs | runs it |
//! | is the next, and one runs | waits for the end of that; then one of the waiters runs the next |
//! | runs | waits for its end |
//! | has ended | takes its outcome, and that of no other |
//! | has unwound | joins the next |
//!
//! A task runs no round, as that blocks: it has a thread do so (the *runner*), which runs rounds as
//! long as tasks join them. A wake that is to make somebody run the next round goes to threads
//! alone. So no round waits for a task to be polled, and a task that is dropped leaves nobody
//! behind.
//!
//! ```text
//!  a task joins                             the runner of tasks ends
//!  ------------                             ------------------------
//!  lock; a task has joined the next;        lock; no task has joined the next:
//!    is there a runner? unlock                there is no runner; unlock
//!  none: start one
//! ```
//!
//! Excluded: a task joins, and neither is there a runner that looks again, nor does it start one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use unherd_sync::{Reason, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, Mutex};

use crate::foreign_code::run_foreign;

/// The rounds of one thing: `W` is what callers want, `O` what a round came to.
#[derive(Debug)]
pub(crate) struct GroupCommit<W, O> {
    state: Mutex<State<W, O>>,
    waits: Arc<WaitTable<WaitKey>>,
    /// What callers wait under.
    reason: Reason,
}

/// One round is under way if one more has begun than ended.
#[derive(Debug)]
struct State<W, O> {
    begun: u64,
    ended: u64,
    next: Arc<Round<O>>,
    /// What those want who have joined the next round.
    wanted: Vec<W>,
    /// Whether a task has joined it.
    has_task: bool,
    has_runner: bool,
}

impl<W, O: Clone> State<W, O> {
    /// The next round begins. Gives what those want who have joined it.
    fn begin(&mut self) -> Vec<W> {
        self.begun += 1;
        self.next = Round::new(self.begun + 1);
        self.has_task = false;
        std::mem::take(&mut self.wanted)
    }
}

/// A round, for those who have joined it.
#[derive(Debug)]
pub(crate) struct Round<O> {
    number: u64,
    /// Set before the round ends; not if it has unwound.
    outcome: Mutex<Option<O>>,
}

impl<O: Clone> Round<O> {
    fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, outcome: Mutex::new(None) })
    }

    fn tag(&self, is_task: bool) -> Tag {
        Tag(self.number << 1 | u64::from(is_task))
    }
}

/// Ends the round, also if the one that runs it unwinds.
struct Ending<'a, W, O: Clone>(&'a GroupCommit<W, O>);

impl<W, O: Clone> Drop for Ending<'_, W, O> {
    fn drop(&mut self) {
        let ended = {
            let mut state = self.0.state.lock();
            state.ended = state.begun;
            state.ended
        };
        // All who have joined this round, and one thread that runs the next.
        let mut next_is_woken = false;
        let choose = |Tag(tag)| {
            let (number, is_task) = (tag >> 1, tag & 1 != 0);
            if number > ended && (is_task || std::mem::replace(&mut next_is_woken, true)) {
                return Verdict::Skip;
            }
            Verdict::Wake
        };
        run_foreign(|| self.0.waits.wake_where(&WaitKey::of(self.0), choose, Token(0)));
    }
}

impl<W, O: Clone> GroupCommit<W, O> {
    /// Callers wait in `waits`, under `reason`.
    pub(crate) fn new(waits: Arc<WaitTable<WaitKey>>, reason: Reason) -> Self {
        let state = State {
            begun: 0,
            ended: 0,
            next: Round::new(1),
            wanted: Vec::new(),
            has_task: false,
            has_runner: false,
        };
        Self { state: Mutex::new(state), waits, reason }
    }

    /// Joins the next round. Returns the outcome when that has ended, and runs it by `run`, which
    /// is given what all want who have joined it, unless another caller does.
    pub(crate) fn run(&self, wanted: impl Fn() -> W, run: impl Fn(Vec<W>) -> O) -> O {
        loop {
            let round = {
                let mut state = self.state.lock();
                state.wanted.push(wanted());
                state.next.clone()
            };
            if let Some(outcome) = self.finish(&round, &run) {
                return outcome;
            }
        }
    }

    /// How many rounds have begun.
    #[cfg(test)]
    pub(crate) fn begun(&self) -> u64 {
        self.state.lock().begun
    }

    /// Runs a round that serves nobody; nothing if one runs, or somebody has joined the next. Those
    /// who join meanwhile are served by the next, after this has ended. Never waits.
    pub(crate) fn run_alone(&self, run: impl FnOnce()) {
        {
            let mut state = self.state.lock();
            if state.begun > state.ended || !state.wanted.is_empty() {
                return;
            }
            state.begin();
        }
        let _ending = Ending(self);
        run();
    }

    /// Returns the outcome of a round that the caller has joined; none if it has unwound.
    fn finish(&self, round: &Round<O>, run: impl Fn(Vec<W>) -> O) -> Option<O> {
        let wanted = loop {
            {
                let mut state = self.state.lock();
                if state.ended >= round.number {
                    break None;
                }
                if state.begun == state.ended {
                    // It is the next: none has begun after the last that has ended.
                    break Some(state.begin());
                }
            }
            let runs = || {
                let state = self.state.lock();
                state.begun > state.ended && state.ended < round.number
            };
            // Without a deadline it cannot time out.
            let how = Wait::new(self.reason).tag(round.tag(false));
            let _ = self.waits.wait(&WaitKey::of(self), runs, how);
        };
        if let Some(wanted) = wanted {
            let _ending = Ending(self);
            let outcome = run(wanted);
            *round.outcome.lock() = Some(outcome);
        }
        round.outcome.lock().clone()
    }
}

/// Rounds for tasks.
#[cfg(feature = "async")]
impl<W, O: Clone> GroupCommit<W, O> {
    /// Joins the next round, of a task. Whether the caller is to start a thread that calls
    /// [`GroupCommit::run_for_tasks`].
    pub(crate) fn join(&self, wanted: W) -> (Arc<Round<O>>, bool) {
        let mut state = self.state.lock();
        state.wanted.push(wanted);
        state.has_task = true;
        let starts = !std::mem::replace(&mut state.has_runner, true);
        (state.next.clone(), starts)
    }

    /// The body of the runner: runs rounds that tasks have joined, until there is none.
    pub(crate) fn run_for_tasks(&self, run: impl Fn(Vec<W>) -> O) {
        let mut panicked = None;
        loop {
            let round = {
                let mut state = self.state.lock();
                if !state.has_task {
                    state.has_runner = false;
                    break;
                }
                state.next.clone()
            };
            // If it unwinds: tasks that have joined the next round rely on this thread.
            let finish = AssertUnwindSafe(|| self.finish(&round, &run));
            if let Err(payload) = catch_unwind(finish) {
                panicked = Some(payload);
            }
        }
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }

    /// The outcome of a round that the task has joined, when it has ended; none if it has unwound.
    pub(crate) async fn ended(&self, round: &Round<O>) -> Option<O> {
        let runs = || self.state.lock().ended < round.number;
        while runs() {
            // Shared, as all of a round are woken: who is dropped leaves nobody behind.
            let how = Wait::new(self.reason).tag(round.tag(true)).shared();
            let _ = self.waits.wait_async(&WaitKey::of(self), runs, how).await;
        }
        round.outcome.lock().clone()
    }
}

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;
