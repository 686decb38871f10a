//! Turns: which of many streams that are written fills a large run next.
//!
//! Each run that is written costs a transfer, a sleep, and a change of what the file system knows
//! of the file, so large runs are cheaper. If half of the frames do not hold a large run for each
//! open file, only some streams may fill a large one at a time. The others sleep after a small run,
//! until fewer runs are being written.
//!
//! Nobody gives a turn back: the ends of runs let the next ones begin, and a turn is over when as
//! many others have begun since as there may be. So a stream that stops holds up nobody. Where the
//! device does not come to an end, a sleeper goes on without a turn.
//!
//! | waits for its turn | a run is written |
//! |---|---|
//! | can be found; fence (A) of the wait table | `writing` gets less |
//! | looks: are as many being written as may be? | fence (B) of the wait table; wakes who is found |
//!
//! 1. Who sleeps has seen enough runs being written. The end of one that leaves too few wakes up to
//!    two, and the last one all.
//! 2. As many turns as there may be have begun last; all others are over.

use std::time::Duration;

use unherd_sync::{Outcome, Reason, Token, Wait, WaitKey, WaitTable};
use unherd_sys::Deadline;
use unherd_sys::primitives::{Arc, AtomicU32, AtomicU64, Ordering};

/// Chosen by measurement: 16 and 96 are as good.
const RUNS_MAX: usize = 64;

/// The runs that are being written have one of this many parts of the frames.
const PARTS: usize = 4;

/// How many streams the end of a run wakes at most: those that fill a run then are not counted, and
/// would be too many.
const WAKES_MAX: u32 = 2;

/// How long a stream waits for its turn at most.
const TURN_WAIT_MAX: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Turns {
    /// Pages of a large run.
    run_pages: usize,
    /// How many runs of streams are being written by their threads.
    writing: AtomicU32,
    /// How many turns have begun. Relaxed: a number is all that it gives.
    begun: AtomicU64,
    waits: Arc<WaitTable<WaitKey>>,
    /// What a stream waits under for its turn.
    reason: Reason,
}

/// The turn to fill a large run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn(u64);

/// A run is being written, until dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct WritingRun<'a> {
    turns: &'a Turns,
    frames: usize,
}

impl Drop for WritingRun<'_> {
    fn drop(&mut self) {
        let Self { turns, frames } = *self;
        let left = turns.writing.fetch_sub(1, Ordering::Relaxed) - 1;
        let turns_left = turns.left(frames, left);
        if turns_left > 0 {
            turns.waits.wake_with(&WaitKey::of(turns), turns_left, Token(0));
        }
    }
}

impl Turns {
    /// Of runs of `run_pages` pages. Streams wait in `waits`, under `reason`.
    pub(crate) fn new(run_pages: usize, waits: Arc<WaitTable<WaitKey>>, reason: Reason) -> Self {
        Self { run_pages, writing: AtomicU32::new(0), begun: AtomicU64::new(0), waits, reason }
    }

    /// How many runs may be being written when a turn begins, in a cache with `frames` frames, and
    /// how many turns there are.
    fn most(&self, frames: usize) -> u32 {
        (frames / PARTS / self.run_pages).clamp(1, RUNS_MAX) as u32
    }

    /// A thread writes a run, in a cache with `frames` frames.
    pub(crate) fn write(&self, frames: usize) -> WritingRun<'_> {
        self.writing.fetch_add(1, Ordering::Relaxed);
        WritingRun { turns: self, frames }
    }

    /// Waits until few runs are being written, and begins a turn. `None` if that took too long.
    pub(crate) fn begin(&self, frames: usize) -> Option<Turn> {
        // What it reads may be old: `wait_table.rs` says why that is enough. Who is woken does not
        // look again: the one that comes next may take what is left.
        let are_many = || self.writing.load(Ordering::Relaxed) >= self.most(frames);
        // No time passes in a model.
        let end = match cfg!(any(loom, shuttle)) {
            true => Deadline::NEVER,
            false => Deadline::after(TURN_WAIT_MAX),
        };
        let how = Wait::new(self.reason).deadline(end);
        let outcome = self.waits.wait(&WaitKey::of(self), are_many, how);
        let begin = || Turn(self.begun.fetch_add(1, Ordering::Relaxed));
        (outcome != Outcome::TimedOut).then(begin)
    }

    /// Whether the turn is not over.
    pub(crate) fn has(&self, frames: usize, turn: Turn) -> bool {
        self.begun.load(Ordering::Relaxed) - turn.0 <= self.most(frames).into()
    }

    /// How many turns may begin with `writing` runs being written. When none is, nobody is to be
    /// left asleep.
    fn left(&self, frames: usize, writing: u32) -> usize {
        match writing {
            0 => usize::MAX,
            _ => self.most(frames).saturating_sub(writing).min(WAKES_MAX) as usize,
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn turns() -> Turns {
        let waits = Arc::new(WaitTable::<WaitKey>::builder().build());
        Turns::new(256, waits, Reason::OTHER)
    }

    #[test]
    fn turns_begin_while_few_runs_are_being_written() {
        let turns = turns();
        let left = |frames, writing| turns.left(frames, writing);
        assert_eq!([17, 16, 15, 14, 1].map(|writing| left(1 << 14, writing)), [0, 0, 1, 2, 2]);
        assert_eq!(left(1 << 14, 0), usize::MAX);
        // However many frames there are.
        assert_eq!([63, 64].map(|writing| left(1 << 24, writing)), [1, 0]);
        assert_eq!(left(64, 1), 0);
    }

    #[test]
    fn a_turn_is_over_when_others_have_begun() {
        let turns = turns();
        let begin = |_| turns.begin(1 << 12).unwrap();
        let begun: Vec<Turn> = (0..6).map(begin).collect();
        let has: Vec<bool> = begun.into_iter().map(|turn| turns.has(1 << 12, turn)).collect();
        assert_eq!(has, [false, false, true, true, true, true]);
    }

    /// As where a device hangs.
    #[test]
    fn who_waits_too_long_goes_on_without_a_turn() {
        let turns = turns();
        let _hang = [(); 4].map(|()| turns.write(1 << 12));
        assert!(turns.begin(1 << 12).is_none());
    }
}

#[cfg(all(test, loom))]
mod loom {
    use unherd_sys::primitives::thread;

    use super::*;

    /// Two runs are being written, where one may be; two threads wait for their turns, and fill
    /// nothing.
    #[test]
    fn every_turn_comes() {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.max_branches = 20_000;
        model.check(|| {
            let waits = WaitTable::<WaitKey>::builder().buckets(1).seed(1).build();
            let turns = Arc::new(Turns::new(1, Arc::new(waits), Reason::OTHER));
            let runs = [turns.write(4), turns.write(4)];
            let wait = || {
                let turns = turns.clone();
                thread::spawn(move || turns.begin(4).unwrap())
            };
            let waiters = [wait(), wait()];
            drop(runs);
            for waiter in waiters {
                let _turn = waiter.join().unwrap();
            }
        });
    }
}
