//! Where the pages lie that streams write.

use unherd_cache::{File, PageNo};
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, sim, small, writable};

const PAGE: usize = 512;

/// How often a page does not lie behind the one before it in memory.
fn breaks(file: &File, pages: u64) -> usize {
    let address = |page| file.page(PageNo(page)).unwrap().as_ptr().addr();
    let addresses: Vec<usize> = (0..pages).map(address).collect();
    addresses.windows(2).filter(|pair| pair[0] + PAGE != pair[1]).count()
}

#[test]
fn streams_lie_in_neighbours_though_the_cache_is_full() {
    for io in BOTH {
        let (frames, pages) = (2048, 128);
        let cache =
            small(frames, PAGE).device(sim(1, FaultPlan::default())).io(io).build().unwrap();
        let open = |name: &str| cache.open(name, writable()).unwrap();
        // Pages of a file in no order that memory knows: each is written by itself.
        let old = open("old");
        for nth in 0..2 * frames as u64 {
            old.write_at(&[1; PAGE], nth * 1667 % 4096 * PAGE as u64).unwrap();
        }
        old.sync_all().unwrap();
        assert!(cache.stats().evictions > 0, "it is full");
        let files = ["a", "b", "c", "d"].map(open);
        for page in 0..pages {
            for file in &files {
                file.write_at(&[2; PAGE], page * PAGE as u64).unwrap();
            }
        }
        let large = open("large");
        large.write_at(&vec![3; pages as usize * PAGE], 0).unwrap();
        for file in files.iter().chain([&large]) {
            let breaks = breaks(file, pages);
            // An extent has 16 frames, and not each can be had as a whole.
            assert!(breaks <= pages as usize / 4, "{io:?}: {breaks} breaks");
        }
    }
}

#[test]
fn streams_free_no_more_than_an_eighth_of_the_frames() {
    for frames in [32, 100, 512] {
        let cache = small(frames, PAGE).device(sim(1, FaultPlan::default())).build().unwrap();
        let old = cache.open("old", writable()).unwrap();
        // Every other frame of an extent goes early, and the others stay.
        for page in 0..frames as u64 {
            old.write_at(&[1; PAGE], page * PAGE as u64).unwrap();
        }
        old.sync_all().unwrap();
        for page in (0..frames as u64).step_by(2) {
            (0..4).for_each(|_| drop(old.page(PageNo(page)).unwrap()));
        }
        let before = cache.stats();
        let new = cache.open("new", writable()).unwrap();
        let mut most = 0;
        for page in 0..2 * frames as u64 {
            new.write_at(&[2; PAGE], page * PAGE as u64).unwrap();
            let since = cache.stats().since(&before);
            most = most.max(since.evictions.saturating_sub(page + 1));
        }
        assert!(most <= frames as u64 / 8, "of {frames} frames {most} lay free");
    }
}
