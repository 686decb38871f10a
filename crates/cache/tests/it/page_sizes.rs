//! Pages of each size: read in all three ways, written, given up and written back.

use unherd_cache::{Cache, Io, PageNo};
use unherd_sys::primitives::Arc;
use unherd_sys::{Device, DirectDevice};
use unherd_testkit::{FaultPlan, Seed};

use crate::scene::{BOTH, close, real_dir, sim, small, turn, writable};

const SIZES: [usize; 4] = [512, 4 << 10, 64 << 10, 2 << 20];
const FRAMES: usize = 4;
const PAGES: usize = 11;

fn cache_of(page_bytes: usize, device: Arc<dyn Device>, io: Io) -> Cache {
    small(FRAMES, page_bytes).device(device).io(io).build().unwrap()
}

/// Writes across pages, gives pages up by reading others, and reads all back. Gives the bytes.
fn use_pages(cache: &Cache, path: &std::path::Path, seed: &mut Seed) -> Vec<u8> {
    let page_bytes = cache.page_bytes();
    let file = cache.open(path, writable()).unwrap();
    let mut bytes = vec![0; PAGES * page_bytes - 100];
    seed.fill(&mut bytes);
    // Page by page, and then from the middle of one to the middle of another.
    for (at, part) in bytes.chunks(page_bytes).enumerate() {
        assert_eq!(file.write_at(part, (at * page_bytes) as u64).unwrap(), part.len());
    }
    let across = page_bytes / 2..page_bytes * 5 / 2;
    seed.fill(&mut bytes[across.clone()]);
    file.write_at(&bytes[across.clone()], across.start as u64).unwrap();
    let mut page = file.page_mut(PageNo(3)).unwrap();
    page.write(page_bytes - 3, b"end");
    bytes[4 * page_bytes - 3..4 * page_bytes].copy_from_slice(b"end");
    drop(page);
    assert!(cache.stats().evictions >= (PAGES - FRAMES) as u64, "{:?}", cache.stats());
    let mut read = vec![0; bytes.len() + 1];
    assert_eq!(file.read_at(&mut read, 0).unwrap(), bytes.len());
    assert!(read[..bytes.len()] == bytes, "read_at");
    let mut zeros_after = bytes.clone();
    zeros_after.resize(PAGES * page_bytes, 0);
    for (at, expected) in zeros_after.chunks(page_bytes).enumerate() {
        let page = PageNo(at as u64);
        assert!(&*file.page(page).unwrap() == expected, "page {at}");
        let mut peeked = vec![0; page_bytes];
        file.peek(page, |peek| peek.copy_to(0, &mut peeked)).unwrap();
        assert!(peeked == expected, "peek at {at}");
    }
    close(file).unwrap();
    bytes
}

#[test]
fn pages_of_each_size_hold_what_was_written() {
    let _turn = turn();
    let mut seed = Seed::of_test(0x512e5);
    for (page_bytes, io) in SIZES.into_iter().flat_map(|size| BOTH.map(|io| (size, io))) {
        let device = sim(page_bytes as u64, FaultPlan::default());
        let cache = cache_of(page_bytes, device.clone(), io);
        assert_eq!((cache.page_bytes(), cache.frames()), (page_bytes, FRAMES));
        let bytes = use_pages(&cache, "f".as_ref(), &mut seed);
        assert!(device.bytes("f").unwrap() == bytes, "{page_bytes} {io:?} {seed:?}");
    }
}

#[test]
fn pages_of_each_size_reach_a_real_disk() {
    let _turn = turn();
    let dir = real_dir();
    let mut seed = Seed::of_test(0xd15c);
    // Those of 512 bytes only where the disk has such blocks.
    for page_bytes in &SIZES[1..] {
        let path = dir.path().join(page_bytes.to_string());
        let cache = cache_of(*page_bytes, Arc::new(DirectDevice::new()), Io::Blocking);
        let bytes = use_pages(&cache, &path, &mut seed);
        assert!(std::fs::read(&path).unwrap() == bytes, "{page_bytes} {seed:?}");
    }
}

#[test]
fn huge_pages_are_asked_for_unless_told_otherwise() {
    let device = sim(1, FaultPlan::default());
    let without = small(4, 4096).device(device.clone()).huge_pages(false).build().unwrap();
    assert!(!without.huge_pages_advised());
    let with = small(4, 4096).device(device).build().unwrap();
    // A kernel that has none refuses the advice.
    let kernel_has = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    assert_eq!(with.huge_pages_advised(), kernel_has);
}
