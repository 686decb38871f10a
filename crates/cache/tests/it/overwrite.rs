//! Writes to pages that are dirty already, which take no lock, beside what excludes writers.

use std::ops::Range;

use unherd_cache::{File, PageNo};
use unherd_sys::primitives::{AtomicBool, AtomicU64, Ordering, thread};
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, sim, small, turn, writable};

const PAGE: u64 = 512;
const WRITERS: usize = 4;
const ROUNDS: u64 = 300;
/// The page that all write to, each to 8 bytes of its own.
const AT: u64 = PAGE;

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|number| u64::from_le_bytes(number.try_into().unwrap())).collect()
}

/// Of the writers in `cleared`, what was written before `clear` is gone after it, and what was
/// written after is there.
fn storm(cleared: Range<usize>, clear: impl Fn(&File)) {
    let _turn = turn();
    for io in BOTH {
        let device = sim(17, FaultPlan::default());
        let cache = small(16, PAGE as usize).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.set_len(3 * PAGE).unwrap();
        let done = [const { AtomicU64::new(0) }; WRITERS];
        let is_over = AtomicBool::new(false);
        let write = |writer: usize| {
            for number in 1.. {
                let is_last = is_over.load(Ordering::Relaxed);
                let offset = AT + writer as u64 * 8;
                assert_eq!(file.write_at(&u64::to_le_bytes(number), offset), Ok(8));
                done[writer].store(number, Ordering::Release);
                if number % 64 == 0 {
                    file.sync_all().unwrap();
                }
                if is_last {
                    break;
                }
            }
        };
        let read = || {
            let mut bytes = [0; WRITERS * 8];
            file.read_exact_at(&mut bytes, AT).unwrap();
            numbers(&bytes)
        };
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || write(writer));
            }
            for _ in 0..ROUNDS {
                let before = done.each_ref().map(|done| done.load(Ordering::Acquire));
                clear(&file);
                let after = read();
                for writer in cleared.clone() {
                    let (before, after) = (before[writer], after[writer]);
                    assert!(after == 0 || after > before, "{after}, and {before} was cleared");
                }
                let _pinned = file.page(PageNo(1)).unwrap();
                thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(read(), done.each_ref().map(|done| done.load(Ordering::Relaxed)));
        file.sync_all().unwrap();
        let on_device = device.durable_bytes("f").unwrap();
        assert_eq!(numbers(&on_device[AT as usize..][..WRITERS * 8]), read());
    }
}

#[test]
fn holes_clear_what_was_overwritten_before() {
    storm(0..WRITERS, |file| file.punch_hole(0..2 * PAGE).unwrap());
}

#[test]
fn parts_of_holes_clear_what_was_overwritten_before() {
    storm(2..WRITERS, |file| file.punch_hole(AT + 16..2 * PAGE).unwrap());
}

#[test]
fn cuts_clear_what_was_overwritten_before() {
    storm(0..WRITERS, |file| {
        file.set_len(AT).unwrap();
        file.set_len(3 * PAGE).unwrap();
    });
}

#[test]
fn cuts_within_the_page_clear_what_was_overwritten_before() {
    storm(2..WRITERS, |file| {
        file.set_len(AT + 16).unwrap();
        file.set_len(3 * PAGE).unwrap();
    });
}
