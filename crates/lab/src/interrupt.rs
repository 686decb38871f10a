//! Stopping early: what Ctrl-C, SIGTERM and SIGHUP set, and what every wait of the lab listens to.
//!
//! The lab waits for one thing at a time: a child to end, its outputs to close, or a time to pass.
//! All of it is one mutex and one condition variable, so an interrupt ends any wait at once and
//! nothing polls. A second interrupt, while the first is being cleaned up after, ends the process;
//! what it leaves behind is cleared away by the next start.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use unherd_sys::primitives::{Arc, Condvar, Mutex, thread};
use unherd_sys::{Deadline, Timestamp};

/// A flag that ends waits. Clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    raised: bool,
    /// Which child it is about: threads that still watch an earlier one change nothing.
    child: u64,
    is_running: bool,
    outputs_open: usize,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// What was waited for has come.
    Done,
    /// The interrupt was raised.
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

impl Interrupt {
    /// A flag that only [`Interrupt::raise`] sets.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag that the signals set which ask a process to end. A second one ends it at once.
    ///
    /// # Errors
    ///
    /// What the kernel says to the registration.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let raised = interrupt.clone();
        thread::spawn(move || {
            for _ in signals.forever() {
                if raised.is_raised() {
                    // The children die with the thread that started them.
                    std::process::exit(1);
                }
                raised.raise();
            }
        });
        Ok(interrupt)
    }

    /// Sets the flag and ends all waits.
    pub fn raise(&self) {
        self.0.state.lock().raised = true;
        self.0.changed.notify_all();
    }

    /// Whether it is set.
    pub fn is_raised(&self) -> bool {
        self.0.state.lock().raised
    }

    /// Blocks for `deadline`'s sake alone; says whether it passed without an interrupt.
    pub(crate) fn pause(&self, deadline: Deadline) -> bool {
        self.wait(deadline, |_| false) == Waited::TimedOut
    }

    /// Begins to watch a child with `outputs` outputs; gives its number.
    pub(crate) fn watch_child(&self, outputs: usize) -> u64 {
        let mut state = self.0.state.lock();
        state.child += 1;
        (state.is_running, state.outputs_open) = (true, outputs);
        state.child
    }

    /// The child of this number has ended.
    pub(crate) fn child_ended(&self, child: u64) {
        self.change(child, |state| state.is_running = false);
    }

    /// One of its outputs is closed.
    pub(crate) fn output_closed(&self, child: u64) {
        self.change(child, |state| state.outputs_open = state.outputs_open.saturating_sub(1));
    }

    fn change(&self, child: u64, change: impl FnOnce(&mut State)) {
        let mut state = self.0.state.lock();
        if state.child == child {
            change(&mut state);
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Blocks until the child has ended, interrupted, or out of time.
    pub(crate) fn wait_for_end(&self, deadline: Deadline) -> Waited {
        self.wait(deadline, |state| !state.is_running)
    }

    /// Blocks until all outputs are closed, interrupted, or out of time.
    pub(crate) fn wait_for_outputs(&self, deadline: Deadline) -> Waited {
        self.wait(deadline, |state| state.outputs_open == 0)
    }

    fn wait(&self, deadline: Deadline, is_done: impl Fn(&State) -> bool) -> Waited {
        let mut state = self.0.state.lock();
        loop {
            if state.raised {
                return Waited::Interrupted;
            }
            if is_done(&state) {
                return Waited::Done;
            }
            let now = Timestamp::now();
            if deadline.has_passed(now) {
                return Waited::TimedOut;
            }
            state = match deadline.timestamp() {
                Some(at) => self.0.changed.wait_timeout(state, at.since(now)),
                None => self.0.changed.wait(state),
            };
        }
    }
}
