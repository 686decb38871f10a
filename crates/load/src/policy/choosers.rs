//! Eviction policies that are compared with the cache's.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use unherd::replay;

/// No further request.
const NONE: u32 = u32::MAX;

/// What chooses the pages to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chooser {
    /// A hand goes round over the frames, and passes over one once that was used since it last came
    /// by (F. J. Corbató, "A Paging Experiment with the Multics System", 1968).
    Clock,
    /// As in the cache.
    S3Fifo,
    /// The page that was not used for longest.
    Lru,
    /// The page that will not be used for longest, which nothing can beat (L. A. Belady, 1966).
    Opt,
}

impl Chooser {
    /// As [`replay::hits`].
    pub(super) fn hits(self, requests: &[u32], frames: u32) -> u64 {
        let frames = frames.max(1);
        let pages = requests.iter().max().map_or(0, |page| *page as usize + 1);
        match self {
            Self::Clock => clock(requests, pages, frames),
            Self::S3Fifo => replay::hits(requests, frames),
            Self::Lru => lru(requests, pages, frames),
            Self::Opt => opt(requests, pages, frames),
        }
    }
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
    // Pages that are here, by the time of their last use.
    let (mut uses, mut last_use) = (BTreeMap::new(), vec![None; pages]);
    let mut hits = 0;
    for (now, &page) in requests.iter().enumerate() {
        match last_use[page as usize].replace(now) {
            Some(before) => {
                hits += 1;
                uses.remove(&before);
            }
            None if uses.len() == frames as usize => {
                if let Some((_, oldest)) = uses.pop_first() {
                    last_use[oldest as usize] = None;
                }
            }
            None => {}
        }
        uses.insert(now, page);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn replays_agree_with_plainer_ones(
            requests in prop::collection::vec(0..30_u32, 1..300),
            frames in 1..12_u32,
        ) {
            let hits = |chooser: Chooser| chooser.hits(&requests, frames);
            prop_assert_eq!(hits(Chooser::Lru), plain_lru(&requests, frames as usize));
            prop_assert_eq!(hits(Chooser::Opt), plain_opt(&requests, frames as usize));
            for chooser in [Chooser::Clock, Chooser::S3Fifo, Chooser::Lru] {
                prop_assert!(hits(chooser) <= hits(Chooser::Opt), "{:?}", chooser);
            }
            for chooser in [Chooser::Clock, Chooser::S3Fifo, Chooser::Lru, Chooser::Opt] {
                let unique: std::collections::HashSet<_> = requests.iter().collect();
                let all = (requests.len() - unique.len()) as u64;
                prop_assert_eq!(chooser.hits(&requests, 30), all, "{:?}", chooser);
            }
        }
    }

    fn plain_lru(requests: &[u32], frames: usize) -> u64 {
        let mut here: Vec<u32> = Vec::new();
        let mut hits = 0;
        for page in requests {
            match here.iter().position(|known| known == page) {
                Some(at) => {
                    here.remove(at);
                    hits += 1;
                }
                None if here.len() == frames => {
                    here.remove(0);
                }
                None => {}
            }
            here.push(*page);
        }
        hits
    }

    fn plain_opt(requests: &[u32], frames: usize) -> u64 {
        let mut here: Vec<u32> = Vec::new();
        let mut hits = 0;
        for (now, page) in requests.iter().enumerate() {
            if here.contains(page) {
                hits += 1;
                continue;
            }
            if here.len() == frames {
                let rest = &requests[now..];
                let next =
                    |page: &u32| rest.iter().position(|other| other == page).unwrap_or(usize::MAX);
                let farthest = (0..here.len()).max_by_key(|at| next(&here[*at])).unwrap();
                here.swap_remove(farthest);
            }
            here.push(*page);
        }
        hits
    }
}
