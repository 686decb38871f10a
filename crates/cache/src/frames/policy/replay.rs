//! What the cache's policy would have hit in a sequence of requests.
//!
//! The cache that is replayed has nothing but the policy: each request is one use of one page,
//! nothing is pinned and nothing is dirty. In a live cache several reads of one page in a row are
//! as many uses, so its ratio may differ.

use super::{Frames, Ghost, Idle, Look, S3Fifo, Search, Uses};

/// Uses of a frame that are counted, as in the cache.
const USES_MAX: u32 = 2;

/// No frame.
const NONE: u32 = u32::MAX;

/// Uses of each frame.
struct Marks(Vec<u32>);

impl Frames for Marks {
    fn look(&mut self, frame: u32) -> Look {
        Look::Idle { uses: self.0[frame as usize], page: Idle::Clean }
    }

    fn forget(&mut self, frame: u32, uses: Uses) {
        let mark = &mut self.0[frame as usize];
        *mark = if uses == Uses::One { mark.saturating_sub(1) } else { 0 };
    }
}

/// How many of `requests` find their page in a cache of `frames` frames, at least one, that is
/// empty at first. Pages are numbered from 0, without large gaps.
pub fn hits(requests: &[u32], frames: u32) -> u64 {
    let frames = frames.max(1);
    let pages = requests.iter().max().map_or(0, |page| *page as usize + 1);
    let mut policy = S3Fifo::new(frames);
    let mut frame_of = vec![NONE; pages];
    let mut page_of = Vec::with_capacity(frames as usize);
    let mut marks = Marks(vec![0; frames as usize]);
    let mut ghost = Ghost::new(frames);
    let mut hits = 0;
    // As a cache names the pages of the first file that it opens.
    let name = |page: u32| super::hash(1, page.into());
    for &page in requests {
        let found = frame_of[page as usize];
        if found != NONE {
            hits += 1;
            let mark = &mut marks.0[found as usize];
            *mark = USES_MAX.min(*mark + 1);
            continue;
        }
        let frame = if page_of.len() < frames as usize {
            page_of.push(page);
            page_of.len() as u32 - 1
        } else {
            let mut search = Search::new(frames as usize, 1);
            let Some(frame) = policy.propose(&mut search, &mut marks) else {
                // All are idle and clean, and three looks take all marks away: it cannot be.
                continue;
            };
            let before = std::mem::replace(&mut page_of[frame as usize], page);
            if policy.evicted(frame) {
                ghost.insert(name(before));
            }
            frame_of[before as usize] = NONE;
            frame
        };
        marks.0[frame as usize] = 0;
        frame_of[page as usize] = frame;
        policy.admit(frame, ghost.take(name(page)));
    }
    hits
}
