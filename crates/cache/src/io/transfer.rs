//! How far a transfer has come, when the device moves less than it was asked to.
//!
//! Direct I/O needs aligned offsets, so a transfer that stopped in the middle of a block goes on
//! from the beginning of that block. Pure: both engines, the blocking and the queued, use it.

use std::ops::Range;

use unherd_sys::Direction;

/// What to do after bytes were moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask for [`Progress::request`].
    More,
    /// All was moved; or, of a read, all that the file has.
    Done,
    /// A write came no further.
    Stuck,
}

/// One transfer of `len` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    direction: Direction,
    len: usize,
    alignment: usize,
    moved: usize,
    from: usize,
}

impl Progress {
    /// `alignment` is a power of two.
    pub(crate) fn new(direction: Direction, len: usize, alignment: u32) -> Self {
        Self { direction, len, alignment: alignment.max(1) as usize, moved: 0, from: 0 }
    }

    /// The bytes to ask for next, counted from the beginning of the transfer.
    pub(crate) fn request(&mut self) -> Range<usize> {
        self.from = self.moved & !(self.alignment - 1);
        self.from..self.len
    }

    /// Bytes moved so far.
    pub(crate) fn moved(&self) -> usize {
        self.moved
    }

    /// Takes note that the last request moved `bytes`.
    pub(crate) fn advance(&mut self, bytes: usize) -> Step {
        let reached = self.from.saturating_add(bytes).min(self.len);
        if reached <= self.moved {
            // A read that gets nothing beyond what it had has met the end of the file.
            return match self.direction {
                Direction::Read => Step::Done,
                Direction::Write => Step::Stuck,
            };
        }
        self.moved = reached;
        if reached == self.len { Step::Done } else { Step::More }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a transfer on a device that moves `moves` bytes, one after the other; gives the steps.
    fn run(direction: Direction, moves: &[usize]) -> (Vec<Range<usize>>, Step, usize) {
        let mut progress = Progress::new(direction, 4096, 512);
        let mut requests = Vec::new();
        let mut step = Step::More;
        for &bytes in moves {
            assert_eq!(step, Step::More);
            requests.push(progress.request());
            step = progress.advance(bytes);
        }
        (requests, step, progress.moved())
    }

    #[test]
    fn a_short_transfer_goes_on_at_the_block_where_it_stopped() {
        for direction in [Direction::Read, Direction::Write] {
            let (requests, step, moved) = run(direction, &[1024, 700, 4096 - 1536]);
            assert_eq!(requests, [0..4096, 1024..4096, 1536..4096]);
            assert_eq!((step, moved), (Step::Done, 4096));
        }
    }

    #[test]
    fn a_read_ends_where_the_file_ends() {
        assert_eq!(run(Direction::Read, &[0]).1, Step::Done);
        // Unaligned end: the block is read again, and gives nothing new.
        let (requests, step, moved) = run(Direction::Read, &[700, 188]);
        assert_eq!((requests.len(), step, moved), (2, Step::Done, 700));
    }

    #[test]
    fn bytes_beyond_the_request_are_cut() {
        let requests = vec![0..4096, 1024..4096];
        assert_eq!(run(Direction::Read, &[1024, usize::MAX]), (requests, Step::Done, 4096));
    }

    #[test]
    fn a_write_that_makes_no_progress_is_stuck() {
        assert_eq!(run(Direction::Write, &[0]).1, Step::Stuck);
        assert_eq!(run(Direction::Write, &[700, 188]).1, Step::Stuck);
    }
}
