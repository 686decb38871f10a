//! What a policy would have hit in a sequence of requests.
//!
//! The cache that is replayed has nothing but the policy: each request is one use of one page,
//! nothing is pinned and nothing is dirty. In a live cache several reads of one page in a row are
//! as many uses, so its ratio may differ.

use std::collections::{BinaryHeap, VecDeque};

use super::queue::{Links, Queue};
use super::{Frames, Ghost, Idle, Look, S3Fifo, Search, Uses};

/// Uses of a frame that are counted, as in the cache.
const USES_MAX: u32 = 2;

/// No frame, or no further request.
const NONE: u32 = u32::MAX;

/// What chooses the pages to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chooser {
    /// A hand goes round over the frames, and passes over one once that was used since it last came
    /// by (F. J. Corbató, "A Paging Experiment with the Multics System", 1968).
    Clock,
    /// [`S3Fifo`], as in the cache.
    S3Fifo,
    /// The page that was not used for longest.
    Lru,
    /// The page that will not be used for longest, which nothing can beat (L. A. Belady, 1966).
    Opt,
}

impl Chooser {
    /// How many of `requests` find their page in a cache of `frames` frames, at least one, that is
    /// empty at first. Pages are numbered from 0, without large gaps.
    pub fn hits(self, requests: &[u32], frames: u32) -> u64 {
        let frames = frames.max(1);
        let pages = requests.iter().max().map_or(0, |page| *page as usize + 1);
        match self {
            Self::Clock => clock(requests, pages, frames),
            Self::S3Fifo => s3fifo(requests, pages, frames),
            Self::Lru => lru(requests, pages, frames),
            Self::Opt => opt(requests, pages, frames),
        }
    }
}

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

fn s3fifo(requests: &[u32], pages: usize, frames: u32) -> u64 {
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

fn clock(requests: &[u32], pages: usize, frames: u32) -> u64 {
    let (mut was_used, mut is_here) = (vec![false; pages], vec![false; pages]);
    let mut round = VecDeque::with_capacity(frames as usize);
    let mut hits = 0;
    for &page in requests {
        if is_here[page as usize] {
            hits += 1;
            was_used[page as usize] = true;
            continue;
        }
        while round.len() == frames as usize
            && let Some(oldest) = round.pop_front()
        {
            if std::mem::replace(&mut was_used[oldest as usize], false) {
                round.push_back(oldest);
            } else {
                is_here[oldest as usize] = false;
            }
        }
        is_here[page as usize] = true;
        round.push_back(page);
    }
    hits
}

fn lru(requests: &[u32], pages: usize, frames: u32) -> u64 {
    let (mut links, mut queue) = (Links::new(pages as u32), Queue::new());
    let mut is_here = vec![false; pages];
    let mut hits = 0;
    for &page in requests {
        if std::mem::replace(&mut is_here[page as usize], true) {
            hits += 1;
            queue.unlink(&mut links, page);
        } else if queue.len() == frames
            && let Some(oldest) = queue.oldest()
        {
            queue.unlink(&mut links, oldest);
            is_here[oldest as usize] = false;
        }
        queue.push(&mut links, page);
    }
    hits
}

fn opt(requests: &[u32], pages: usize, frames: u32) -> u64 {
    // Of each request, the next one of its page.
    let mut nexts = vec![NONE; requests.len()];
    let mut next_of = vec![NONE; pages];
    for (at, &page) in requests.iter().enumerate().rev() {
        nexts[at] = std::mem::replace(&mut next_of[page as usize], at as u32);
    }
    // Of each page that is here, the next request. The heap has that too, and older ones of which
    // nothing is true any more.
    let mut here: Vec<Option<u32>> = vec![None; pages];
    let mut heap = BinaryHeap::new();
    let (mut count, mut hits) = (0, 0);
    for (&page, &next) in requests.iter().zip(&nexts) {
        if here[page as usize].is_some() {
            hits += 1;
        } else {
            count += 1;
            while count > frames
                && let Some((next, farthest)) = heap.pop()
            {
                if here[farthest as usize] == Some(next) {
                    here[farthest as usize] = None;
                    count -= 1;
                }
            }
        }
        here[page as usize] = Some(next);
        heap.push((next, page));
    }
    hits
}
