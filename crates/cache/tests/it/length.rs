//! Lengths that change while frames are wanted.

use unherd_cache::{Advice, Error, PageNo};
use unherd_sys::primitives::{AtomicBool, Ordering, thread};
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, sim, small, turn, writable};

/// Bytes that were cut off stay away, also when reclaim writes pages back just then.
#[test]
fn cut_bytes_do_not_come_back() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(14, FaultPlan { held_reaps_max: 2, ..FaultPlan::default() });
        let cache = small(6, 4096).device(device).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let other = cache.open("other", writable()).unwrap();
        let stop = AtomicBool::new(false);
        let cut_and_grow = || {
            for round in 0..300_000 {
                file.write_at(&[0xaa; 4000], 0)?;
                file.set_len(100)?;
                file.set_len(4000)?;
                let mut bytes = [1; 4000];
                file.read_at(&mut bytes, 0)?;
                if bytes[100..].iter().any(|&byte| byte != 0) {
                    return Ok(Some(round));
                }
            }
            Ok::<_, Error>(None)
        };
        let came_back = thread::scope(|scope| {
            for start in 0..3 {
                let (other, stop) = (&other, &stop);
                scope.spawn(move || {
                    let mut page = start;
                    while !stop.load(Ordering::Relaxed) {
                        page += 7;
                        other.write_at(&[1; 4096], page % 64 * 4096).unwrap();
                    }
                });
            }
            let came_back = cut_and_grow();
            stop.store(true, Ordering::Relaxed);
            came_back
        });
        assert_eq!(came_back.unwrap(), None, "{io:?}: the round in which cut bytes came back");
    }
}

/// Many that cut a file want a frame each; they must not sit on all of them while one of them waits
/// for a writer that wants a frame too.
#[test]
fn those_who_cut_a_file_leave_frames_to_its_writers() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(15, FaultPlan::default());
        let cache = small(4, 4096).device(device).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        thread::scope(|scope| {
            for number in 0..8_u64 {
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        if number < 6 {
                            file.set_len(30_000 + number).unwrap();
                        } else {
                            assert_eq!(file.write_at(&[3; 9000], 100 + number).unwrap(), 9000);
                        }
                    }
                });
            }
        });
    }
}

/// A read sees its last page as it was at one moment, with the end that the file had then.
#[test]
fn reads_see_the_last_page_with_its_end() {
    let _turn = turn();
    for io in BOTH {
        let device = sim(16, FaultPlan::default());
        device.put("f", &[1; 512 + 100]);
        let cache = small(8, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.page(PageNo(1)).unwrap();
        device.block_reads();
        let (read, bytes) = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bytes = [0; 2048];
                (file.read_at(&mut bytes, 256).unwrap(), bytes)
            });
            device.wait_for_held_reads(1);
            // One page is longer, the next new.
            file.write_at(&[2; 1000], 512).unwrap();
            device.release_reads();
            reader.join().unwrap()
        });
        assert_eq!(read, 256 + 1000, "{io:?}");
        assert!(bytes[..256] == [1; 256] && bytes[256..read] == [2; 1000], "{io:?}");
    }
}

/// What lies beyond the new end are none of its bytes: not even zeros.
#[test]
fn a_read_ends_where_the_file_was_cut() {
    let _turn = turn();
    const LEN: usize = 700;
    for io in BOTH {
        let device = sim(55, FaultPlan::default());
        device.put("f", &[1; 10 * 512]);
        let cache = small(16, 512).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.advise(Advice::Random);
        device.block_reads();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bytes = [9; 10 * 512];
                let read = file.read_at(&mut bytes, 0)?;
                Ok::<_, Error>((read, bytes[..read].iter().all(|byte| *byte == 1)))
            });
            device.wait_for_held_reads(1);
            let cutter = scope.spawn(|| file.set_len(LEN as u64));
            while file.len() > LEN as u64 {
                thread::yield_now();
            }
            device.release_reads();
            assert_eq!(reader.join().unwrap(), Ok((LEN, true)));
            cutter.join().unwrap().unwrap();
        });
    }
}
