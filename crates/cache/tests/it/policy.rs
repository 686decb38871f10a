//! Which pages a cache gives up.

use unherd_cache::{Advice, Cache, File, Io, PageNo, replay};
use unherd_testkit::{FaultPlan, Seed};

use crate::scene::{sim, small, writable};

const PAGE: usize = 4096;
const FRAMES: usize = 64;
const HOT: u64 = 8;
const COLD: u64 = 300;

fn cache() -> (Cache, File) {
    let device = sim(1, FaultPlan::default());
    let cache = small(FRAMES, PAGE).device(device).io(Io::Blocking).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    file.set_len((HOT + COLD) * PAGE as u64).unwrap();
    // So that the order in which pages come is that of the reads.
    file.advise(Advice::Random);
    (cache, file)
}

fn read(file: &File, pages: impl Iterator<Item = u64>) {
    pages.for_each(|page| drop(file.page(PageNo(page)).unwrap()));
}

/// How many of the hot pages are gone.
fn lost(cache: &Cache, file: &File) -> u64 {
    let before = cache.stats().misses;
    read(file, 0..HOT);
    cache.stats().misses - before
}

#[test]
fn a_scan_spares_what_was_used_again_and_again() {
    let (cache, file) = cache();
    for _ in 0..3 {
        read(&file, 0..HOT);
    }
    read(&file, HOT..HOT + COLD);
    assert_eq!(lost(&cache, &file), 0);
    let stats = cache.stats();
    assert_eq!(stats.misses - stats.evictions, FRAMES as u64, "{stats:?}");
}

/// How many of the pages are gone.
fn missing(cache: &Cache, file: &File, pages: impl Iterator<Item = u64>) -> u64 {
    let before = cache.stats().misses;
    file.advise(Advice::Random);
    read(file, pages);
    cache.stats().misses - before
}

/// Without the advice all pages that were used once go before a scan.
#[test]
fn a_scan_that_reads_once_takes_few_frames() {
    const FRAMES: u64 = 256;
    const PAGES: u64 = 1000;
    // With blocks of 8 pages those that give others up are read ahead, with 16 they are missing.
    let ways = [(Io::Blocking, 8), (Io::Blocking, 16), (Io::Queued, 8), (Io::Queued, 16)];
    for (way, advice) in ways.map(|way| [(way, Advice::NoReuse), (way, Advice::Normal)]).concat() {
        let device = sim(1, FaultPlan::default());
        let cache = small(FRAMES as usize, PAGE).device(device).io(way.0).build().unwrap();
        let [others, scanned] = ["others", "scanned"].map(|name| {
            let file = cache.open(name, writable()).unwrap();
            file.set_len(PAGES * PAGE as u64).unwrap();
            file
        });
        let scan = || {
            let mut block = vec![0; way.1 * PAGE];
            for at in (0..PAGES * PAGE as u64).step_by(block.len()) {
                assert_ne!(scanned.read_at(&mut block, at).unwrap(), 0);
            }
        };
        // Of this the cache remembers the last pages, but has none.
        scan();
        others.advise(Advice::Random);
        read(&others, 0..FRAMES);
        // The first of three reads brings them in, the others are uses.
        scanned.advise(Advice::Random);
        (0..3).for_each(|_| read(&scanned, 500..504));
        scanned.advise(advice);
        scan();
        // The newest first: those that come back take frames from the oldest.
        let lost = missing(&cache, &others, (0..FRAMES).rev());
        if advice == Advice::NoReuse {
            // Windows under way, the last 32 pages, and neighbours of those that went for them.
            assert!(lost <= 100, "{way:?}: {lost}");
            assert_eq!(missing(&cache, &scanned, 500..504), 0, "others use them");
        } else {
            assert_eq!(lost, FRAMES, "{way:?}");
        }
    }
}

/// By pieces that go on where the last one ended each page is used once.
#[test]
fn scans_in_small_pieces_spare_hot_pages() {
    for (reads, writes) in [(true, false), (false, true), (true, true)] {
        let (cache, file) = cache();
        let copies = ["a", "b"].map(|name| cache.open(name, writable()).unwrap());
        for _ in 0..3 {
            read(&file, 0..HOT);
        }
        let mut piece = [1; PAGE / 8];
        for offset in (HOT * PAGE as u64..(HOT + COLD) * PAGE as u64).step_by(piece.len()) {
            if reads {
                file.read_at(&mut piece, offset).unwrap();
            }
            for copy in copies.iter().filter(|_| writes) {
                copy.write_at(&piece, offset).unwrap();
            }
        }
        assert_eq!(lost(&cache, &file), 0, "reads: {reads}, writes: {writes}");
    }
}

#[test]
fn scans_of_four_files_in_turn_spare_hot_pages() {
    // Enough that what was read ahead for each stays until it is read.
    let cache = small(4 * FRAMES, PAGE).device(sim(1, FaultPlan::default())).build().unwrap();
    let [file, others @ ..] = ["f", "a", "b", "c", "d"].map(|name| {
        let file = cache.open(name, writable()).unwrap();
        file.set_len(COLD * PAGE as u64).unwrap();
        file
    });
    (0..3).for_each(|_| read(&file, 0..HOT));
    let mut piece = [0; PAGE / 8];
    for offset in (0..COLD * PAGE as u64).step_by(piece.len()) {
        others.iter().for_each(|other| other.read_exact_at(&mut piece, offset).unwrap());
    }
    assert_eq!(lost(&cache, &file), 0);
}

#[test]
fn pieces_that_do_not_go_on_are_uses() {
    let half = PAGE as u64 / 2;
    // In the middle of pages; and both halves of each, and then the second again.
    let middles = (0..3).flat_map(|_| (0..HOT).map(|page| page * PAGE as u64 + 1000)).collect();
    let halves = (0..HOT).flat_map(|page| {
        let at = page * PAGE as u64;
        [at, at + half, at + half, at + half]
    });
    for offsets in [middles, halves.collect::<Vec<_>>()] {
        let (cache, file) = cache();
        for &offset in &offsets {
            file.read_at(&mut vec![0; half as usize], offset).unwrap();
        }
        read(&file, HOT..HOT + COLD);
        assert_eq!(lost(&cache, &file), 0, "{offsets:?}");
    }
}

#[test]
fn pages_that_were_cut_off_leave_their_frames_to_others() {
    let (cache, file) = cache();
    for _ in 0..20 {
        read(&file, 0..HOT + COLD);
        file.set_len(PAGE as u64).unwrap();
        file.set_len((HOT + COLD) * PAGE as u64).unwrap();
    }
    // Each frame is still available.
    let guards: Vec<_> = (0..FRAMES as u64).map(|page| file.page(PageNo(page)).unwrap()).collect();
    assert_eq!(guards.len(), cache.frames());
}

/// Skewed requests for 2,000 pages, and now and then a scan of pages that come once.
fn zipf_and_scans(seed: &mut Seed) -> Vec<u32> {
    const SKEWED: f64 = 2000.0;
    let mut requests = Vec::new();
    for scan in 0..10 {
        for _ in 0..3000 {
            let uniform = seed.below(1 << 32) as f64 / (1u64 << 32) as f64;
            // Page n is asked for with a probability of about 1 / n.
            requests.push(SKEWED.powf(uniform) as u32);
        }
        requests.extend(2000 + 500 * scan..2500 + 500 * scan);
    }
    requests
}

/// One thread, whose reads are uses of whole pages: the cache does what the replay says, whichever
/// way it reads.
#[test]
fn the_cache_hits_what_the_replay_hits() {
    let mut seed = Seed::of_test(0x5e9);
    let requests = zipf_and_scans(&mut seed);
    let pages = u64::from(*requests.iter().max().unwrap()) + 1;
    for frames in [16, 100, 640] {
        let device = sim(1, FaultPlan::default());
        let cache = small(frames, PAGE).device(device).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.set_len(pages * PAGE as u64).unwrap();
        file.advise(Advice::Random);
        let mut buf = vec![0; PAGE];
        for &page in &requests {
            match seed.below(3) {
                0 => drop(file.page(PageNo(page.into())).unwrap()),
                1 => {
                    assert_eq!(file.read_at(&mut buf, u64::from(page) * PAGE as u64).unwrap(), PAGE)
                }
                _ => assert_eq!(file.peek(PageNo(page.into()), |peek| peek.get_u8(9)), Ok(0)),
            }
        }
        let stats = cache.stats();
        let hits = replay::hits(&requests, frames as u32);
        assert!(hits > 0 && hits < requests.len() as u64);
        assert_eq!(stats.misses, requests.len() as u64 - hits, "{frames} {seed:?}");
    }
}
