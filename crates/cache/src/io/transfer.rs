//! How far a transfer has come, when the device moves less than it was asked to.
//!
//! Direct I/O needs aligned offsets, so a transfer that stopped in the middle of a block goes on
//! from the beginning of that block. Pure: both engines, the blocking and the queued, use it.

use std::ops::Range;

/// One transfer of `len` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    len: usize,
    alignment: usize,
    moved: usize,
    from: usize,
    /// Whether a request has come less far than the one before.
    was_back: bool,
}

impl Progress {
    /// `alignment` is a power of two.
    pub(crate) fn new(len: usize, alignment: u32) -> Self {
        Self { len, alignment: alignment.max(1) as usize, moved: 0, from: 0, was_back: false }
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

    /// Takes note that the last request moved `bytes`. Whether that was the end: all was moved, or
    /// just what had been; a read has met the end of the file then, a write comes no further.
    ///
    /// Less than that is asked for again, once: the file was cut meanwhile, and the rest of the
    /// block was filled with zeros, which are none of its bytes.
    pub(crate) fn advance(&mut self, bytes: usize) -> bool {
        let reached = self.from.saturating_add(bytes).min(self.len);
        let is_back = reached < self.moved;
        let is_stuck = reached == self.moved || is_back && self.was_back;
        self.was_back |= is_back;
        self.moved = reached;
        is_stuck || reached == self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a transfer on a device that moves `moves` bytes, one after the other. Gives the
    /// requests, whether it has ended, and how much it has moved.
    fn run(moves: &[usize]) -> (Vec<Range<usize>>, bool, usize) {
        let mut progress = Progress::new(4096, 512);
        let (mut requests, mut has_ended) = (Vec::new(), false);
        for &bytes in moves {
            assert!(!has_ended);
            requests.push(progress.request());
            has_ended = progress.advance(bytes);
        }
        (requests, has_ended, progress.moved())
    }

    #[test]
    fn a_short_transfer_goes_on_at_the_block_where_it_stopped() {
        let requests = vec![0..4096, 1024..4096, 1536..4096];
        assert_eq!(run(&[1024, 700, 4096 - 1536]), (requests, true, 4096));
    }

    #[test]
    fn it_ends_where_it_comes_no_further() {
        assert!(run(&[0]).1);
        // Unaligned end: the block is moved again, and nothing new comes.
        assert_eq!(run(&[700, 188]), (vec![0..4096, 512..4096], true, 700));
        assert_eq!(run(&[700, 189]), (vec![0..4096, 512..4096], false, 701));
    }

    #[test]
    fn what_others_cut_between_two_requests_does_not_count() {
        let requests = vec![0..4096, 512..4096, 512..4096];
        assert_eq!(run(&[700, 100, 100]), (requests, true, 612));
        assert_eq!(run(&[700, 0, 0]), (vec![0..4096, 512..4096, 512..4096], true, 512));
    }

    #[test]
    fn a_length_that_comes_and_goes_ends_a_transfer() {
        assert!(run(&[700, 100, 189, 100]).1);
    }

    #[test]
    fn bytes_beyond_the_request_are_cut() {
        assert_eq!(run(&[1024, usize::MAX]), (vec![0..4096, 1024..4096], true, 4096));
    }
}
