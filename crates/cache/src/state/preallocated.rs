//! Frames that a stream has for the pages that it will write next.
//!
//! Frames come from a pool, under its lock, and there all that write streams meet. So a stream
//! takes frames for several pages at a time: neighbours in memory, which the policy admits as those
//! of the pages. Nobody can have them meanwhile. So all streams together have an eighth of the
//! frames at most; they give them back at a sync, and when the file's dirty pages get old (with an
//! I/O thread), and who finds no frame, or wants frames for something else, takes back all.
//!
//! | a stream | who wants a frame |
//! |---|---|
//! | counts its frames | enters the waiters; fence (A) of `event_count.rs` |
//! | puts them into the file | finds none; if any are counted, takes them back, file by file |
//! | fence (B) of `event_count.rs`; gives them back if somebody waits | sleeps |

use crate::frames::{Claim, EXTENT};

/// What one stream has.
#[derive(Debug, Default)]
pub(crate) struct Preallocated {
    /// For pages in a row, that of the first one last.
    claims: Vec<Claim>,
    /// The first of these pages.
    next: u64,
    /// How many were put last: those that are used count until all are.
    counted: usize,
    /// How many to take at a time.
    batch: usize,
}

/// What no stream will use any more.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) claims: Vec<Claim>,
    /// How many count as preallocated no longer.
    pub(crate) counted: usize,
}

impl Preallocated {
    /// The frame for the page, if there is one; those of pages before it are `left`.
    pub(crate) fn take(&mut self, page: u64, left: &mut Left) -> Option<Claim> {
        let skipped = page.saturating_sub(self.next).min(self.claims.len() as u64) as usize;
        left.claims.extend(self.claims.drain(self.claims.len() - skipped..));
        self.next += skipped as u64;
        if self.next != page {
            return None;
        }
        let claim = self.claims.pop();
        self.next += u64::from(claim.is_some());
        if self.claims.is_empty() {
            left.counted += std::mem::take(&mut self.counted);
        }
        claim
    }

    /// How many to take now.
    pub(crate) fn next_batch(&mut self) -> usize {
        self.batch = (2 * self.batch).clamp(1, EXTENT);
        self.batch
    }

    /// For pages from `next` on, the first one last. Those that it has are `left`.
    pub(crate) fn put(&mut self, next: u64, claims: Vec<Claim>, left: &mut Left) {
        self.give_back(left);
        self.counted = claims.len();
        (self.claims, self.next) = (claims, next);
    }

    /// All are `left`.
    pub(crate) fn give_back(&mut self, left: &mut Left) {
        left.claims.append(&mut self.claims);
        left.counted += std::mem::take(&mut self.counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::FrameId;

    fn claims(frames: std::ops::Range<u32>) -> Vec<Claim> {
        frames.rev().map(|frame| Claim::of_empty(FrameId(frame))).collect()
    }

    #[test]
    fn a_stream_takes_more_and_more_at_a_time() {
        let (mut stream, mut left) = (Preallocated::default(), Left::default());
        let mut batches = Vec::new();
        for page in 100..164 {
            if stream.take(page, &mut left).is_none() {
                let batch = stream.next_batch();
                batches.push(batch);
                stream.put(page + 1, claims(1..batch as u32), &mut left);
            }
        }
        assert_eq!(batches, [1, 2, 4, 8, 16, 16, 16, 16]);
        assert_eq!((left.claims.len(), left.counted), (0, 1 + 3 + 7 + 3 * 15));
    }

    #[test]
    fn frames_of_pages_that_are_skipped_are_left() {
        let (mut stream, mut left) = (Preallocated::default(), Left::default());
        stream.put(10, claims(0..8), &mut left);
        let mut take = |page| {
            let claim = stream.take(page, &mut left).map(|claim| claim.into_frame().0);
            (claim, left.claims.len())
        };
        assert_eq!([10, 13, 14].map(&mut take), [(Some(0), 0), (Some(3), 2), (Some(4), 2)]);
        // Before them, and behind them.
        assert_eq!([3, 900].map(&mut take), [(None, 2), (None, 5)]);
    }
}
