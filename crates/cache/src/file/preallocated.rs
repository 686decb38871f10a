//! Frames that a stream has for the pages that it will write next.
//!
//! Frames come from a pool, under its lock, and there all that write streams meet. So a stream
//! takes frames for several pages at a time: neighbours in memory, that the policy knows by these
//! pages. Nobody can have them meanwhile. So those of all open files are an eighth of the frames at
//! most; a sync gives them back, as does the end of the stream, and who finds no frame, or wants
//! frames for something else, takes back all that there are.
//!
//! | a stream | who wants a frame |
//! |---|---|
//! | puts its frames into the file | enters the waiters; fence (A) of `waiters.rs` |
//! | notes that there are some | finds none; takes back what is noted, file by file |
//! | fence (B) of `waiters.rs`; gives them back if somebody waits | sleeps |

use crate::frames::{Claim, EXTENT};

/// What one file has.
#[derive(Debug, Default)]
pub(crate) struct Preallocated {
    /// For pages in a row, that of the first one last.
    claims: Vec<Claim>,
    /// The first of these pages.
    next: u64,
    /// How many were taken last.
    batch: usize,
    /// Whether one was used since another stream found them here.
    is_used: bool,
}

/// What a stream finds when it comes to a page.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) claim: Option<Claim>,
    /// How many to take otherwise.
    pub(crate) batch: usize,
    /// Nobody will use these.
    pub(crate) left: Vec<Claim>,
}

impl Preallocated {
    pub(crate) fn take(&mut self, page: u64) -> Found {
        let count = self.claims.len();
        let mut found = Found::default();
        if (self.next..self.next + count as u64).contains(&page) {
            let skipped = (page - self.next) as usize;
            found.left = self.claims.split_off(count - skipped);
            found.claim = self.claims.pop();
            (self.next, self.is_used) = (page + 1, true);
        } else if count > 0 && std::mem::take(&mut self.is_used) {
            found.batch = 1;
        } else {
            self.batch = if page == self.next { (2 * self.batch).clamp(1, EXTENT) } else { 1 };
            self.next = page + 1;
            found.batch = self.batch;
            found.left = std::mem::take(&mut self.claims);
        }
        found
    }

    /// Gives all back.
    pub(crate) fn give_back(&mut self) -> Vec<Claim> {
        std::mem::take(self).claims
    }

    /// For pages from `next` on, the first one last. Gives back those that there is no place for.
    pub(crate) fn put(&mut self, next: u64, claims: Vec<Claim>) -> Vec<Claim> {
        if !self.claims.is_empty() {
            return claims;
        }
        (self.claims, self.next, self.is_used) = (claims, next, true);
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::FrameId;

    fn claims(frames: std::ops::Range<u32>) -> Vec<Claim> {
        frames.rev().map(|frame| Claim::of_empty(FrameId(frame))).collect()
    }

    fn taken(found: Found) -> (Option<u32>, usize, usize) {
        let Found { claim, batch, left } = found;
        (claim.map(|claim| claim.into_frame().0), batch, left.len())
    }

    #[test]
    fn a_stream_takes_more_and_more_at_a_time() {
        let mut stream = Preallocated::default();
        let mut batches = Vec::new();
        for page in 100..164 {
            let found = stream.take(page);
            if found.claim.is_none() {
                batches.push(found.batch);
                assert!(stream.put(page + 1, claims(1..found.batch as u32)).is_empty());
            }
            taken(found);
        }
        assert_eq!(batches, [1, 2, 4, 8, 16, 16, 16, 16]);
    }

    #[test]
    fn frames_of_pages_that_are_skipped_are_left() {
        let mut stream = Preallocated::default();
        stream.put(10, claims(0..8));
        assert_eq!(taken(stream.take(10)), (Some(0), 0, 0));
        assert_eq!(taken(stream.take(13)), (Some(3), 0, 2));
        assert_eq!(taken(stream.take(14)), (Some(4), 0, 0));
    }

    #[test]
    fn another_stream_takes_the_place_of_one_that_has_ended() {
        let mut streams = Preallocated::default();
        streams.put(10, claims(0..8));
        assert_eq!(taken(streams.take(500)), (None, 1, 0));
        assert_eq!(taken(streams.take(10)), (Some(0), 0, 0), "it goes on");
        assert_eq!(taken(streams.take(501)), (None, 1, 0));
        assert_eq!(taken(streams.take(502)), (None, 1, 7), "it has ended");
        assert_eq!(taken(streams.take(503)), (None, 2, 0));
        streams.put(504, claims(8..9));
        assert_eq!(streams.put(700, claims(9..10)).len(), 1, "there is no place");
    }
}
