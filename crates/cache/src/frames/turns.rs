//! Turns: which of many streams that are written fills a large run next.
//!
//! However long a run is, it costs a transfer, a sleep, and a change of what the file system knows
//! of the file. Where more files are open than half of the frames have a large run for, each could
//! have a small one. Instead one that has written its run sleeps until less is under way, and may
//! fill a large one then: meanwhile it has no frames, and the others have.
//!
//! Nobody gives a turn back: the ends of write-backs let the next ones begin, and a turn is over
//! when as many others have begun since as there may be. So a stream that stops holds up nobody.
//!
//! | waits for its turn | a write-back ends |
//! |---|---|
//! | can be found; fence (A) of the wait table | `writing` gets less |
//! | looks: is as much under way as may be? | fence (B) of the wait table; wakes who is found |
//!
//! 1. Who sleeps has seen enough write-backs under way. The end of one that leaves too few wakes as
//!    many as are missing, and the last one all.
//! 2. As many turns as there may be have begun last; all others are over.

use unherd_sync::{Reason, Token, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicU64, Ordering};

/// With this many runs under way no device is faster for more. Chosen by measurement: 16 and 96 are
/// as good.
const RUNS_MAX: usize = 64;

/// The runs under way have one of this many parts of the frames.
const PARTS: usize = 4;

#[derive(Debug)]
pub(crate) struct Turns {
    /// Pages of a large run.
    run_pages: usize,
    /// How many have begun. Relaxed: a number is all that it gives.
    begun: AtomicU64,
}

/// The turn to fill a large run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn(u64);

impl Turns {
    /// Of runs of `run_pages` pages.
    pub(crate) fn new(run_pages: usize) -> Self {
        Self { run_pages, begun: AtomicU64::new(0) }
    }

    fn key(&self) -> WaitKey {
        WaitKey::Address(std::ptr::from_ref(self) as usize)
    }

    /// How many write-backs may be under way when a turn begins, in a cache with `frames` frames,
    /// and how many turns there are.
    fn most(&self, frames: usize) -> u32 {
        (frames / PARTS / self.run_pages).clamp(1, RUNS_MAX) as u32
    }

    /// Waits until few write-backs are under way, of which `writing` gives the number, and begins a
    /// turn.
    pub(crate) fn begin(
        &self,
        waits: &WaitTable<WaitKey>,
        frames: usize,
        writing: impl Fn() -> u32,
        reason: Reason,
    ) -> Turn {
        // What it reads may be old: `wait_table.rs` says why that is enough. Who is woken does not
        // look again: the one that comes next may take what is left.
        let _ = waits.wait(&self.key(), || writing() >= self.most(frames), reason);
        Turn(self.begun.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the turn is not over.
    pub(crate) fn has(&self, frames: usize, turn: Turn) -> bool {
        self.begun.load(Ordering::Relaxed) - turn.0 <= self.most(frames).into()
    }

    /// A write-back has ended, and `writing` are under way yet.
    pub(crate) fn pass(&self, waits: &WaitTable<WaitKey>, frames: usize, writing: u32) {
        let turns = self.left(frames, writing);
        if turns > 0 {
            waits.wake_with(&self.key(), turns, Token(0));
        }
    }

    /// How many turns may begin with `writing` write-backs under way. When none is, nobody is to be
    /// left asleep.
    fn left(&self, frames: usize, writing: u32) -> usize {
        match writing {
            0 => usize::MAX,
            _ => self.most(frames).saturating_sub(writing) as usize,
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn turns_begin_while_few_write_backs_are_under_way() {
        let left = |frames, writing| Turns::new(256).left(frames, writing);
        assert_eq!([17, 16, 15, 1].map(|writing| left(1 << 14, writing)), [0, 0, 1, 15]);
        assert_eq!(left(1 << 14, 0), usize::MAX);
        // However many frames there are.
        assert_eq!([left(1 << 24, 60), left(64, 1)], [RUNS_MAX - 60, 0]);
    }

    #[test]
    fn a_turn_is_over_when_others_have_begun() {
        let waits = WaitTable::<WaitKey>::builder().build();
        let turns = Turns::new(256);
        let begin = |_| turns.begin(&waits, 1 << 12, || 3, Reason::OTHER);
        let begun: Vec<Turn> = (0..6).map(begin).collect();
        let has: Vec<bool> = begun.into_iter().map(|turn| turns.has(1 << 12, turn)).collect();
        assert_eq!(has, [false, false, true, true, true, true]);
    }
}

#[cfg(all(test, loom))]
mod loom {
    use unherd_sys::primitives::{Arc, AtomicU32, thread};

    use super::*;

    /// Two write-backs are under way of one that may be; two threads wait for their turns, and
    /// begin nothing.
    #[test]
    fn every_turn_comes() {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.max_branches = 20_000;
        model.check(|| {
            let waits = WaitTable::<WaitKey>::builder().buckets(1).seed(1).build();
            let scene = Arc::new((waits, Turns::new(1), AtomicU32::new(2)));
            let wait = || {
                let scene = scene.clone();
                thread::spawn(move || {
                    let (waits, turns, writing) = &*scene;
                    turns.begin(waits, 4, || writing.load(Ordering::Relaxed), Reason::OTHER);
                })
            };
            let waiters = [wait(), wait()];
            let (waits, turns, writing) = &*scene;
            for _ in 0..2 {
                let left = writing.fetch_sub(1, Ordering::Relaxed) - 1;
                turns.pass(waits, 4, left);
            }
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        });
    }
}
