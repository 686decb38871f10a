//! The pool by itself.

use super::*;
use crate::frames::Frames;
use crate::frames::policy::{self, Look};
use crate::page::{FileId, PageNo};

fn pool(frames: usize) -> Pool {
    let mut pool = Pool::new(frames);
    Frames::new(frames).unwrap().1.into_iter().for_each(|claim| pool.add(claim));
    pool
}

fn key(page: u64) -> PageKey {
    PageKey { file: FileId(0), page: PageNo(page) }
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
    let mut pool = pool(200);
    let claims: Vec<_> = std::iter::from_fn(|| pool.free.pop()).collect();
    pool.admit(claims.iter().map(Claim::id).zip((1..).map(key)));
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
    claims.into_iter().for_each(|claim| pool.push_free(claim));
}

#[test]
fn pages_that_one_gives_up_are_proposed_to_no_other() {
    let mut pool = pool(8);
    let claims: Vec<Claim> = std::iter::from_fn(|| pool.free.pop()).collect();
    let pages: Vec<_> =
        claims.iter().zip(0..).map(|(claim, page)| (claim.id(), key(page))).collect();
    pool.admit(pages.iter().copied());
    struct Clean;
    impl policy::Frames for Clean {
        fn look(&mut self, _: u32) -> Look {
            Look::Idle { uses: 0, page: policy::Idle::Clean }
        }
        fn forget(&mut self, _: u32, _: policy::Uses) {}
    }
    let propose = |pool: &mut Pool| {
        let mut search = pool.begin_search();
        pool.policy.propose(&mut search, &mut Clean).map(FrameId)
    };
    pool.isolate(&pages[..3]);
    assert_eq!((propose(&mut pool), pool.free_soon()), (Some(pages[3].0), 3));
    pool.evicted(pages[..1].iter().copied());
    pool.end_isolation(&pages[..3], 1);
    assert_eq!(pool.free_soon(), 1);
    pool.end_withholding(1);
    pool.isolate(&pages[3..]);
    assert_eq!((propose(&mut pool), pool.free_soon()), (Some(pages[1].0), 5));
    claims.into_iter().for_each(|claim| _ = claim.into_frame());
}
