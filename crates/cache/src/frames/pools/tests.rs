//! The pools by themselves.

use std::collections::HashMap;
use std::fs;

use unherd_testkit::Seed;

use super::*;
use crate::frames::Frames;
use crate::frames::policy::{self, Look};
use crate::page::{FileId, PageNo};

/// Three nodes: processors 0 and 1, processor 2, and none.
fn three_nodes() -> Topology {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("devices/system/node");
    for (file, text) in
        [("online", "0-2"), ("node0/cpulist", "0-1"), ("node1/cpulist", "2"), ("node2/cpulist", "")]
    {
        fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        fs::write(dir.join(file), text).unwrap();
    }
    Topology::read(root.path()).unwrap()
}

fn pools(frames: usize, topology: &Topology) -> Pools {
    let pools = Pools::new(frames, topology);
    Frames::new(frames).unwrap().1.into_iter().for_each(|claim| pools.add(claim));
    pools
}

fn key(page: u64) -> PageKey {
    PageKey { file: FileId(0), page: PageNo(page) }
}

fn pop(pools: &Pools, at: usize) -> Option<Claim> {
    pools.lock(at).free.pop()
}

fn free(pools: &Pools, at: usize) -> Vec<u32> {
    let mut claims = Vec::new();
    pools.lock(at).free.pop_run(usize::MAX, &mut claims);
    let mut ids: Vec<u32> = claims.iter().map(|claim| claim.id().0).collect();
    claims.into_iter().for_each(|claim| pools.push_free(claim));
    ids.sort_unstable();
    ids
}

#[test]
fn frames_are_dealt_in_rows_and_go_back_to_their_own_pool() {
    let pools = pools(14, &Topology::of(3));
    let dealt: Vec<Vec<u32>> = (0..3).map(|at| free(&pools, at)).collect();
    assert_eq!(dealt, [(0..4).collect(), (4..8).collect(), (8..14).collect::<Vec<u32>>()]);
    let mut claims: Vec<Claim> =
        (0..3).flat_map(|at| std::iter::from_fn(|| pop(&pools, at)).collect::<Vec<_>>()).collect();
    assert_eq!(claims.len(), 14);
    Seed::new(1).shuffle(&mut claims);
    for claim in claims {
        assert!(dealt[pools.of(claim.id())].contains(&claim.id().0));
        pools.push_free(claim);
    }
    assert_eq!((0..3).map(|at| free(&pools, at)).collect::<Vec<_>>(), dealt);
}

#[test]
fn frames_that_are_too_few_for_all_nodes_stay_together() {
    for (frames, nodes, expected) in [(8, 2, 2), (7, 2, 1), (6, 2, 1), (4, 1024, 1), (9, 2, 2)] {
        let pools = pools(frames, &Topology::of(nodes));
        assert_eq!(pools.count(), expected, "{frames} {nodes}");
        let total: usize = (0..expected).map(|at| free(&pools, at).len()).sum();
        assert_eq!(total, frames);
    }
}

#[test]
fn one_node_is_one_pool_and_nobody_asks_where_it_runs() {
    let pools = pools(1000, &Topology::of(1));
    assert!(pools.of_cpu.is_empty());
    assert_eq!(pools.count(), 1);
    assert_eq!(pools.of(FrameId(999)), 0);
    let pool = pools.lock(0);
    assert_eq!((pool.number(FrameId(7)), pool.frame(7)), (7, FrameId(7)));
}

#[test]
fn a_thread_begins_at_free_frames_then_at_its_node_and_now_and_then_elsewhere() {
    let pools = pools(12, &three_nodes());
    // Of processor 77 nothing is known.
    for (cpu, expected) in [(0, 0), (1, 0), (2, 1), (77, 0)] {
        assert_eq!(pools.first_for(cpu), expected, "{cpu}");
    }
    let mut taken: Vec<Claim> = std::iter::from_fn(|| pop(&pools, 1)).collect();
    assert_eq!((taken.len(), pools.first_for(2)), (4, 2), "the next with free frames");
    taken.extend(std::iter::from_fn(|| pop(&pools, 2)));
    assert_eq!(pools.first_for(2), 0);
    taken.extend(std::iter::from_fn(|| pop(&pools, 0)));
    assert_eq!(taken.len(), 12);
    let begun: Vec<usize> = (0..24).map(|_| pools.first_for(2)).collect();
    let away: Vec<_> = begun.iter().enumerate().filter(|(_, pool)| **pool != 1).collect();
    assert_eq!(away, [(7, &2), (15, &0), (23, &2)]);
    pools.push_free(taken.pop().unwrap());
    assert_eq!(pools.first_for(2), 0, "where a frame is free");
}

/// Wherever the thread runs.
#[test]
fn all_pools_are_asked_from_the_one_with_free_frames_on() {
    let pools = pools(12, &three_nodes());
    let mut taken = Vec::new();
    for (with_free, order) in [(1, [1, 2, 0]), (2, [2, 0, 1])] {
        for at in (0..3).filter(|at| *at != with_free) {
            taken.extend(std::iter::from_fn(|| pop(&pools, at)));
        }
        assert_eq!(pools.in_order().collect::<Vec<_>>(), order);
        taken.drain(..).for_each(|claim| pools.push_free(claim));
    }
}

/// It left the first pool, and comes back to the second, where a scan leaves it alone.
#[test]
fn a_page_that_was_given_up_by_one_pool_has_come_back_to_another() {
    struct Idle;
    impl policy::Frames for Idle {
        fn look(&mut self, _frame: u32) -> Look {
            Look::Idle { uses: 0, page: policy::Idle::Clean }
        }
        fn forget(&mut self, _frame: u32, _uses: policy::Uses) {}
    }
    let pools = pools(8, &Topology::of(2));
    // Each is new: it never came before.
    let mut new = 1000..;
    for page in 0..100 {
        let gone = pop(&pools, 0).unwrap();
        let mut first = pools.lock(0);
        pools.admit(&mut first, [(gone.id(), key(page))]);
        pools.evicted(&mut first, [(gone.id(), key(page))]);
        drop(first);
        pools.push_free(gone);
        let back = pop(&pools, 1).unwrap();
        let mut second = pools.lock(1);
        pools.admit(&mut second, [(back.id(), key(page))]);
        let others: Vec<_> = std::iter::from_fn(|| second.free.pop()).collect();
        assert_eq!(others.len(), 3);
        let mut in_frame = HashMap::new();
        for (other, new) in others.iter().zip(&mut new) {
            pools.admit(&mut second, [(other.id(), key(new))]);
            in_frame.insert(other.id().0, new);
        }
        for new in new.by_ref().take(10) {
            let number = second.policy.propose(&mut Search::new(4, 1), &mut Idle).unwrap();
            let frame = second.frame(number);
            assert_ne!(frame, back.id(), "page {page}");
            let old = in_frame.insert(frame.0, new).unwrap();
            pools.evicted(&mut second, [(frame, key(old))]);
            pools.admit(&mut second, [(frame, key(new))]);
        }
        drop(second);
        others.into_iter().chain([back]).for_each(|claim| pools.push_free(claim));
    }
}

#[test]
fn a_search_in_vain_makes_the_next_shorter() {
    struct Seen {
        looks: usize,
        /// Every other frame is clean; else all are dirty.
        some_are_clean: bool,
    }
    impl policy::Frames for Seen {
        fn look(&mut self, _frame: u32) -> Look {
            self.looks += 1;
            let is_clean = self.some_are_clean && self.looks.is_multiple_of(2);
            let page = if is_clean { policy::Idle::Clean } else { policy::Idle::Dirty };
            Look::Idle { uses: 0, page }
        }
        fn forget(&mut self, _frame: u32, _uses: policy::Uses) {}
    }
    let pools = pools(200, &Topology::of(1));
    let mut pool = pools.lock(0);
    let claims: Vec<_> = std::iter::from_fn(|| pool.free.pop()).collect();
    claims
        .iter()
        .zip(1..)
        .for_each(|(claim, page)| pools.admit(&mut pool, [(claim.id(), key(page))]));
    let mut look = |some_are_clean| {
        let (mut seen, mut search) = (Seen { looks: 0, some_are_clean }, pool.begin_search());
        let found = pool.policy.propose(&mut search, &mut seen);
        pool.note_search(&search, found.is_some());
        seen.looks
    };
    assert_eq!([(); 7].map(|()| look(false)), [64, 32, 16, 8, 4, 2, 2]);
    assert_eq!(look(true), 2);
    assert_eq!([(); 3].map(|()| look(false)), [8, 4, 2]);
    assert_eq!([(); 3].map(|()| look(true)), [2; 3]);
    assert_eq!(look(false), 64);
    drop(pool);
    claims.into_iter().for_each(|claim| pools.push_free(claim));
}

#[test]
fn pages_that_one_gives_up_are_proposed_to_no_other() {
    let pools = pools(8, &Topology::of(1));
    let mut pool = pools.lock(0);
    let claims: Vec<Claim> = std::iter::from_fn(|| pool.free.pop()).collect();
    let pages: Vec<_> =
        claims.iter().zip(0..).map(|(claim, page)| (claim.id(), key(page))).collect();
    pools.admit(&mut pool, pages.iter().copied());
    struct Clean;
    impl policy::Frames for Clean {
        fn look(&mut self, _: u32) -> Look {
            Look::Idle { uses: 0, page: policy::Idle::Clean }
        }
        fn forget(&mut self, _: u32, _: policy::Uses) {}
    }
    let propose = |pool: &mut Pool| {
        let mut search = pool.begin_search();
        pool.policy.propose(&mut search, &mut Clean).map(|number| pool.frame(number))
    };
    pool.isolate(&pages[..3]);
    assert_eq!((propose(&mut pool), pool.free_soon()), (Some(pages[3].0), 3));
    pools.evicted(&mut pool, pages[..1].iter().copied());
    pool.end_isolation(&pages[..3], 1);
    assert_eq!(pool.free_soon(), 1);
    pool.end_withholding(1);
    pool.isolate(&pages[3..]);
    assert_eq!((propose(&mut pool), pool.free_soon()), (Some(pages[1].0), 5));
    claims.into_iter().for_each(|claim| _ = claim.into_frame());
}
