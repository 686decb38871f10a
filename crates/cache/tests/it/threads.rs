//! Many threads on few frames: pages are never torn, and nobody is left asleep.

use unherd_cache::{Cache, Error, File, PageNo};
use unherd_sys::primitives::thread;
use unherd_testkit::{Failure, FaultPlan, Seed};

use crate::scene::{BOTH, real_devices, real_dir, sim, small, turn, writable};

const THREADS: u64 = 16;
const PAGES: u64 = 48;

/// A page is one number, over and over: a torn page holds two.
fn page_of(number: u64, page_bytes: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(page_bytes / 8)
}

fn check_whole(page: &[u8]) {
    assert!(page.chunks(8).all(|word| word == &page[..8]), "a torn page");
}

fn work(file: &File, page_bytes: usize, mut seed: Seed, steps: u64, may_fail: bool) {
    let check = |result: Result<(), Error>| {
        if let Err(error) = result {
            assert!(may_fail, "{error}");
        }
    };
    let mut page = vec![0; page_bytes];
    for _ in 0..steps {
        let at = seed.below(PAGES);
        let offset = at * page_bytes as u64;
        match seed.below(12) {
            0..5 => {
                let bytes = page_of(seed.next_u64(), page_bytes);
                check(file.write_at(&bytes, offset).map(|_| ()));
            }
            5..9 => check(file.read_at(&mut page, offset).map(|read| {
                if read == page_bytes {
                    check_whole(&page);
                }
            })),
            9..11 => check(file.page(PageNo(at)).map(|guard| {
                check_whole(&guard);
                let before = guard.to_vec();
                // Writing to a page that this thread has pinned must not stand in its own way.
                check(file.write_at(&page_of(7, page_bytes), offset).map(|_| ()));
                thread::yield_now();
                assert!(guard[..] == before[..], "a pinned page has changed");
            })),
            _ => check(file.sync_all()),
        }
    }
}

pub(crate) fn storm(cache: &Cache, paths: &[std::path::PathBuf], steps: u64, may_fail: bool) {
    let files: Vec<File> = paths.iter().map(|path| cache.open(path, writable()).unwrap()).collect();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let file = &files[number as usize % files.len()];
            let page_bytes = cache.page_bytes();
            scope.spawn(move || work(file, page_bytes, Seed::new(number), steps, may_fail));
        }
    });
}

#[test]
fn on_a_simulated_device_that_dawdles() {
    let _turn = turn();
    let plan = FaultPlan {
        short_per_mille: 200,
        held_reaps_max: 4,
        reorder: true,
        ..FaultPlan::default()
    };
    let paths = ["a".into(), "b".into()];
    for io in BOTH {
        for (filtered, frames) in [(true, 40), (true, 96), (false, 40)] {
            let device = sim(5, plan);
            let builder = small(frames, 512).device(device.clone()).io(io).queues(4);
            let cache = builder.filtered(filtered).build().unwrap();
            storm(&cache, &paths, 400, false);
            let stats = cache.stats();
            // Into 96 frames both files go.
            assert!(frames == 96 || stats.evictions > 100, "{stats:?}");
            assert!(stats.write_backs > 100, "{stats:?}");
            for path in &paths {
                device.bytes(path).unwrap().chunks(512).for_each(check_whole);
            }
            let file = cache.open(&paths[0], writable()).unwrap();
            file.set_len(512 * frames as u64).unwrap();
            let pins: Vec<_> = (0..frames as u64).map(|page| file.page(PageNo(page))).collect();
            assert!(pins.iter().all(Result::is_ok), "a frame was lost");
        }
    }
}

#[test]
fn on_a_simulated_device_that_fails() {
    let _turn = turn();
    let plan = FaultPlan {
        read: Failure::per_mille(50),
        write: Failure::per_mille(100),
        short_per_mille: 200,
        held_reaps_max: 4,
        reorder: true,
        ..FaultPlan::default()
    };
    for io in BOTH {
        let device = sim(6, plan);
        let cache = small(40, 512).device(device.clone()).io(io).build().unwrap();
        storm(&cache, &["a".into(), "b".into()], 300, true);
        assert!(device.faults_injected() > 100);
    }
}

#[test]
fn on_the_real_device() {
    let _turn = turn();
    let dir = real_dir();
    let paths = [dir.path().join("a"), dir.path().join("b")];
    for (io, device) in real_devices() {
        let cache = small(40, 4096).io(io).device(device).build().unwrap();
        storm(&cache, &paths, 150, false);
        for path in &paths {
            std::fs::read(path).unwrap().chunks(4096).for_each(check_whole);
        }
    }
}

/// Writers append and cut at a time; readers see zeros or what was written, never anything else.
#[test]
fn lengths_change_under_readers_and_writers() {
    let _turn = turn();
    for io in BOTH {
        let plan = FaultPlan { held_reaps_max: 3, reorder: true, ..FaultPlan::default() };
        let device = sim(7, plan);
        let cache = small(16, 512).device(device).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        thread::scope(|scope| {
            for number in 0..6_u64 {
                let file = &file;
                scope.spawn(move || {
                    let mut seed = Seed::new(number);
                    let mut bytes = [0; 700];
                    for _ in 0..300 {
                        let offset = seed.below(6000);
                        match number {
                            0 => file.set_len(offset).unwrap(),
                            1..4 => assert_eq!(file.write_at(&[9; 700], offset).unwrap(), 700),
                            _ => {
                                let read = file.read_at(&mut bytes, offset).unwrap();
                                assert!(bytes[..read].iter().all(|&b| b == 0 || b == 9));
                            }
                        }
                    }
                });
            }
        });
        // What was cut reads as zeros when the file grows again.
        file.set_len(100).unwrap();
        file.set_len(6000).unwrap();
        let mut bytes = vec![1; 6000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6000);
        assert!(bytes[100..].iter().all(|&b| b == 0));
    }
}
