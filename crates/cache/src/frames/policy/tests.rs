//! The policy, by what it proposes, and the replay.

use proptest::prelude::*;

use super::*;

const CLEAN: Look = Look::Idle { uses: 0, page: Idle::Clean };
const DIRTY: Look = Look::Idle { uses: 0, page: Idle::Dirty };
const FAILED: Look = Look::Idle { uses: 0, page: Idle::Failed };

fn used(uses: u32) -> Look {
    Look::Idle { uses, page: Idle::Clean }
}

#[derive(Debug, Clone)]
struct Seen(Vec<Look>);

impl Frames for Seen {
    fn look(&mut self, frame: u32) -> Look {
        self.0[frame as usize]
    }

    fn forget(&mut self, frame: u32, how_many: Uses) {
        if let Look::Idle { uses, .. } = &mut self.0[frame as usize] {
            *uses = if how_many == Uses::One { uses.saturating_sub(1) } else { 0 };
        }
    }
}

/// Page n is in frame n.
fn full(frames: u32) -> S3Fifo {
    let mut policy = S3Fifo::new(frames);
    (0..frames).for_each(|frame| policy.admit(frame, false));
    policy
}

fn search(policy: &mut S3Fifo, seen: &mut Seen, window: usize) -> (Option<u32>, Search) {
    let mut search = Search::new(seen.0.len(), window);
    (policy.propose(&mut search, seen), search)
}

#[test]
fn pages_that_are_all_used_are_found_all_the_same() {
    let mut policy = full(5);
    let mut seen = Seen(vec![used(2); 5]);
    assert_eq!(search(&mut policy, &mut seen, 4).0, Some(0));
}

#[test]
fn nothing_idle_ends_the_search() {
    let mut policy = full(7);
    let (found, search) = search(&mut policy, &mut Seen(vec![Look::Busy; 7]), 4);
    assert_eq!((found, search.candidate()), (None, None));
}

/// Frames that are used faster than they are looked at, or else are as `rest` says.
struct Hot {
    looks: usize,
    rest: Look,
}

impl Frames for Hot {
    fn look(&mut self, frame: u32) -> Look {
        self.looks += 1;
        if frame == 0 { used(2) } else { self.rest }
    }

    fn forget(&mut self, _frame: u32, _uses: Uses) {}
}

#[test]
fn a_page_that_is_used_faster_than_it_is_looked_at_is_found_all_the_same() {
    for rest in [used(2), Look::Busy, FAILED] {
        let mut policy = full(5);
        let mut hot = Hot { looks: 0, rest };
        let found = policy.propose(&mut Search::new(5, 1), &mut hot);
        assert!(found.is_some(), "{rest:?}");
        assert!((16..=20).contains(&hot.looks), "after all other looks: {}", hot.looks);
    }
}

#[test]
fn a_page_that_is_used_is_spared_where_another_can_be_written() {
    let mut policy = full(5);
    let mut search = Search::new(5, 1000);
    let found = policy.propose(&mut search, &mut Hot { looks: 0, rest: DIRTY });
    assert_eq!((found, search.candidate()), (None, Some(1)));
}

#[test]
fn dirty_frames_end_the_search_after_the_window() {
    let mut seen = Seen(vec![DIRTY; 10]);
    seen.0[9] = CLEAN;
    for (window, expected) in [(100, Some(9)), (3, None)] {
        let mut policy = full(10);
        let (found, search) = search(&mut policy, &mut seen, window);
        assert_eq!((found, search.candidate()), (expected, Some(0)));
    }
}

#[test]
fn failed_frames_are_written_only_if_no_other_is_dirty() {
    for (second, expected) in [(DIRTY, 1), (Look::Busy, 0)] {
        let (_, search) = search(&mut full(2), &mut Seen(vec![FAILED, second]), 2);
        assert_eq!(search.candidate(), Some(expected));
    }
}

/// A policy with its owner's memory.
#[derive(Debug)]
struct Remembering {
    policy: S3Fifo,
    ghost: Ghost,
    pages: Vec<Option<u64>>,
}

impl Remembering {
    fn new(frames: u32) -> Self {
        let (policy, ghost) = (S3Fifo::new(frames), Ghost::new(frames));
        Self { policy, ghost, pages: vec![None; frames as usize] }
    }

    fn admit(&mut self, frame: u32, page: u64) {
        let came_back = self.ghost.take(page);
        self.policy.admit(frame, came_back);
        self.pages[frame as usize] = Some(page);
    }

    fn evicted(&mut self, frame: u32) {
        let page = self.pages[frame as usize].take();
        if self.policy.evicted(frame) {
            self.ghost.insert(page.expect("a frame in a queue has a page"));
        }
    }

    fn remove(&mut self, frame: u32) {
        self.policy.remove(frame);
        self.pages[frame as usize] = None;
    }

    fn transfer(&mut self, from: u32, to: u32) {
        self.policy.transfer(from, to);
        if let Some(page) = self.pages[from as usize].take() {
            self.pages[to as usize] = Some(page);
        }
    }
}

/// 20 frames: 0 to 9 are in main, 10 to 19 in small, of which 3 are meant to be.
fn two_queues() -> (Remembering, Seen) {
    let mut policy = Remembering::new(20);
    for frame in 0..10 {
        policy.admit(frame, u64::from(frame));
        policy.evicted(frame);
        policy.admit(frame, u64::from(frame));
    }
    (10..20).for_each(|frame| policy.admit(frame, u64::from(frame)));
    (policy, Seen(vec![CLEAN; 20]))
}

fn give_up(policy: &mut Remembering, seen: &mut Seen) -> Option<u32> {
    let (found, _) = search(&mut policy.policy, seen, 1);
    found.inspect(|frame| policy.evicted(*frame))
}

#[test]
fn a_scan_leaves_the_main_queue_alone() {
    let (mut policy, mut seen) = two_queues();
    for page in 100..200 {
        let frame = give_up(&mut policy, &mut seen).unwrap();
        assert!(frame >= 10, "{frame}");
        policy.admit(frame, page);
    }
}

#[test]
fn two_uses_promote_and_one_does_not() {
    let (mut policy, mut seen) = two_queues();
    (seen.0[10], seen.0[11], seen.0[12]) = (used(2), used(1), CLEAN);
    assert_eq!(give_up(&mut policy, &mut seen), Some(11));
    assert_eq!(give_up(&mut policy, &mut seen), Some(12));
    // What is left of the small queue goes down to its size, then the main one's turn comes, where
    // the promoted page stands last, without its marks.
    let order: Vec<_> = std::iter::from_fn(|| give_up(&mut policy, &mut seen)).collect();
    let expected: Vec<u32> = (13..18).chain(0..10).chain([10, 18, 19]).collect();
    assert_eq!(order, expected);
}

#[test]
fn a_page_that_comes_back_enters_the_main_queue() {
    let (mut policy, mut seen) = two_queues();
    assert_eq!(give_up(&mut policy, &mut seen), Some(10));
    policy.admit(10, 10);
    for _ in 0..7 {
        assert!(give_up(&mut policy, &mut seen).is_some_and(|frame| frame > 10));
    }
    assert_eq!(give_up(&mut policy, &mut seen), Some(0));
}

#[test]
fn where_one_queue_has_nothing_the_other_is_asked() {
    let (mut policy, mut seen) = two_queues();
    (10..20).for_each(|frame| seen.0[frame] = Look::Busy);
    assert_eq!(give_up(&mut policy, &mut seen), Some(0));
    (0..10).for_each(|frame| seen.0[frame] = Look::Busy);
    seen.0[17] = CLEAN;
    assert_eq!(give_up(&mut policy, &mut seen), Some(17));
    assert_eq!(give_up(&mut policy, &mut seen), None);
}

#[test]
fn isolated_frames_are_not_proposed() {
    let (mut policy, mut seen) = two_queues();
    for frame in [0, 1, 10, 11, 12, 13, 14] {
        policy.policy.isolate(frame);
        assert!(!policy.policy.may_go_early(frame, 0));
    }
    // One is given up, one stays, one is dropped, two are copied, and one comes with another page.
    policy.evicted(10);
    policy.policy.put_back(11);
    policy.remove(12);
    policy.transfer(13, 10);
    policy.transfer(0, 12);
    policy.admit(14, 99);
    (0..20).for_each(|frame| policy.policy.put_back(if frame == 1 { 2 } else { frame }));
    let order: Vec<_> = std::iter::from_fn(|| give_up(&mut policy, &mut seen)).collect();
    let expected: Vec<u32> = (15..20).chain([11, 10, 14]).collect();
    let (small, main): (Vec<u32>, Vec<u32>) =
        order.into_iter().partition(|frame| expected.contains(frame));
    assert_eq!((small, main), (expected, (2..10).chain([12]).collect()));
    // Of those that were given up in the small queue one comes back.
    assert!(policy.ghost.take(10) && !policy.ghost.take(12));
}

#[test]
fn isolated_frames_count_in_the_small_queue() {
    let (mut policy, mut seen) = two_queues();
    (12..20).for_each(|frame| policy.policy.isolate(frame));
    assert_eq!(give_up(&mut policy, &mut seen), Some(10));
    (12..20).for_each(|frame| policy.evicted(frame));
    assert_eq!(give_up(&mut policy, &mut seen), Some(0));
}

#[test]
fn a_copy_goes_to_the_end_of_its_queue() {
    let (mut policy, mut seen) = two_queues();
    policy.transfer(10, 11);
    policy.transfer(10, 12);
    policy.transfer(1, 10);
    let order: Vec<_> = std::iter::from_fn(|| give_up(&mut policy, &mut seen)).collect();
    let main = (0..10).filter(|frame| *frame != 1).chain([10]);
    // In the end the small queue is as small as it should be, and waits for the other.
    assert_eq!(order, (12..19).chain(main).chain([19, 11]).collect::<Vec<_>>());
}

#[test]
fn a_removed_page_is_not_remembered() {
    let (mut policy, mut seen) = two_queues();
    policy.remove(10);
    assert_eq!([(); 2].map(|()| give_up(&mut policy, &mut seen)), [Some(11), Some(12)]);
    (10..13).for_each(|frame| policy.admit(frame, u64::from(frame)));
    let order: Vec<_> = std::iter::from_fn(|| give_up(&mut policy, &mut seen)).collect();
    assert_eq!(order, (13..19).chain(0..10).chain([11, 12, 19, 10]).collect::<Vec<_>>());
}

proptest! {
    /// Whatever happens, each frame is proposed that is there, and no other.
    #[test]
    fn no_frame_is_lost(steps in prop::collection::vec((0..6_u8, 0..12_u32, 0..12_u32), 0..80)) {
        let mut policy = Remembering::new(12);
        let mut pages: [Option<u64>; 12] = [None; 12];
        for (step, frame, other) in steps {
            match step {
                0 => {
                    policy.admit(frame, u64::from(other));
                    pages[frame as usize] = Some(u64::from(other));
                }
                1 => {
                    policy.remove(frame);
                    pages[frame as usize] = None;
                }
                2 => {
                    policy.evicted(frame);
                    pages[frame as usize] = None;
                }
                3 => policy.policy.isolate(frame),
                4 => policy.policy.put_back(frame),
                _ => {
                    policy.transfer(frame, other);
                    if let Some(page) = pages[frame as usize].take() {
                        pages[other as usize] = Some(page);
                    }
                }
            }
        }
        // Isolated frames have not left.
        (0..12).for_each(|frame| policy.policy.put_back(frame));
        let mut seen = Seen(vec![CLEAN; 12]);
        let mut found: Vec<_> = std::iter::from_fn(|| give_up(&mut policy, &mut seen)).collect();
        found.sort_unstable();
        let there = (0..12).filter(|frame: &u32| pages[*frame as usize].is_some());
        prop_assert_eq!(found, there.collect::<Vec<_>>());
    }

    #[test]
    fn the_replay_hits_no_more_than_there_is(
        requests in prop::collection::vec(0..30_u32, 1..300),
        frames in 1..12_u32,
    ) {
        let unique: std::collections::HashSet<_> = requests.iter().collect();
        let all = (requests.len() - unique.len()) as u64;
        prop_assert!(replay::hits(&requests, frames) <= all);
        prop_assert_eq!(replay::hits(&requests, 30), all);
    }
}
