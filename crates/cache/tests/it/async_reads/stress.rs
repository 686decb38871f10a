//! Tasks that are dropped at random, among threads that read, write and cut.

use unherd_cache::{Error, File, Io, PageNo};
use unherd_sys::primitives::thread;
use unherd_testkit::{Failure, FaultPlan, Seed};

use super::executor::Task;
use super::{LONG, PAGE, bytes_of, check_all_frames};
use crate::scene::{close, sim, small, turn, writable};

const PAGES: u64 = 40;

/// Pages below this are not written, and hold what they held.
const READ_ONLY: u64 = 64 - PAGES;

fn check_whole(page: &[u8]) {
    assert!(page.iter().all(|byte| *byte == page[0]), "a torn page");
}

/// A crowd of futures by one thread, which polls, drops and begins them as they come, until enough
/// have ended.
fn crowd(file: &File, mut seed: Seed, ends: u64, may_fail: bool) {
    let mut tasks: Vec<Task<'_, Result<(), Error>>> = Vec::new();
    let mut ended = 0;
    let end = |result: Result<(), Error>| {
        if let Err(error) = result {
            assert!(may_fail && matches!(error, Error::Io { .. }), "{error}");
        }
    };
    while ended < ends {
        let page = PageNo(seed.below(64));
        if tasks.len() < 12 && seed.coin() {
            let copies = seed.coin();
            tasks.push(Task::new(async move {
                if copies {
                    let mut buf = [0; 2 * PAGE];
                    let read = file.read_at_async(&mut buf, page.0 * PAGE as u64).await?;
                    buf[..read].chunks(PAGE).for_each(check_whole);
                } else {
                    check_whole(&file.page_async(page).await?);
                }
                Ok(())
            }));
        }
        if tasks.is_empty() {
            continue;
        }
        let at = seed.below(tasks.len() as u64) as usize;
        if seed.chance_per_mille(150) {
            drop(tasks.swap_remove(at));
        } else if let std::task::Poll::Ready(result) = tasks[at].poll() {
            end(result);
            ended += 1;
            drop(tasks.swap_remove(at));
        } else {
            // What was begun has to be polled, or others wait for it.
            thread::yield_now();
        }
    }
}

fn bystander(file: &File, number: u64, mut seed: Seed, steps: u64, may_fail: bool) {
    let mut buf = [0; PAGE];
    for _ in 0..steps {
        let page = seed.below(64);
        let written = READ_ONLY + seed.below(PAGES);
        let offset = page * PAGE as u64;
        let result = match number % 2 {
            0 => file.read_at(&mut buf, offset).map(|read| check_whole(&buf[..read])),
            _ => file.write_at(&[seed.below(256) as u8; PAGE], written * PAGE as u64).map(|_| ()),
        };
        if let Err(error) = result {
            assert!(may_fail && matches!(error, Error::Io { .. }), "{error}");
        }
    }
}

#[test]
fn tasks_that_are_dropped_at_random_lose_nothing() {
    let _turn = turn();
    for (seed, may_fail, filtered) in
        [(1, false, true), (2, true, true), (3, false, false), (4, true, true)]
    {
        let plan = FaultPlan {
            read: if may_fail { Failure::per_mille(50) } else { Failure::default() },
            write: if may_fail { Failure::per_mille(50) } else { Failure::default() },
            short_per_mille: 200,
            held_reaps_max: 3,
            reorder: true,
            ..FaultPlan::default()
        };
        let device = sim(60 + seed, FaultPlan::default());
        device.put("f", &bytes_of(64));
        device.set_faults(plan);
        let builder = small(16, PAGE).device(device.clone()).io(Io::Queued).frame_wait(LONG);
        let cache = builder.filtered(filtered).queues(4).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        thread::scope(|scope| {
            for number in 0..4 {
                let (file, mut seed) = (&file, Seed::new(seed * 100 + number));
                let other = seed.fork();
                scope.spawn(move || crowd(file, other, 300, may_fail));
                scope.spawn(move || bystander(file, number, seed, 1000, may_fail));
            }
        });
        assert!(cache.stats().evictions > 100, "{:?}", cache.stats());
        device.set_faults(FaultPlan::default());
        // It tries at once what failed.
        let _ = file.sync_all();
        for page in READ_ONLY..64 {
            file.write_at(&super::page_of(page), page * PAGE as u64).unwrap();
        }
        let _ = file.sync_all();
        check_all_frames(&cache, &file);
        // Nothing waits, and nothing is held: the file is closed without a wait for anybody.
        let _ = close(file);
        assert_eq!(device.bytes("f").unwrap(), bytes_of(64));
    }
}
