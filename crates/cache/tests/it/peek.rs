//! Looks without a pin: they see pages whole, under writers, eviction and truncation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unherd_cache::{Advice, Cache, Error, File, Io, PageNo};
use unherd_sys::primitives::{AtomicBool, Ordering, thread};
use unherd_sys::racy;
use unherd_testkit::FaultPlan;

use crate::scene::{BOTH, sim, small, turn, writable};

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// A page whose every word tells its number and how often it was written.
fn page_of(number: u64, version: u64) -> Vec<u8> {
    (number << 32 | version).to_le_bytes().repeat(WORDS)
}

fn cache_of(frames: usize, io: Io) -> Cache {
    small(frames, PAGE).device(sim(1, FaultPlan::default())).io(io).build().unwrap()
}

fn is_whole(bytes: &[u8], number: u64) -> bool {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let first = words.next().unwrap();
    first >> 32 == number && words.all(|word| word == first)
}

fn filled(file: &File, pages: u64) {
    for page in 0..pages {
        file.write_at(&page_of(page, 0), page * PAGE as u64).unwrap();
    }
}

#[test]
fn a_look_gives_what_the_page_holds() {
    let cache = cache_of(8, Io::Blocking);
    let file = cache.open("f", writable()).unwrap();
    let bytes: Vec<u8> = (0..PAGE).map(|at| (at * 7) as u8).collect();
    file.write_at(&bytes, 0).unwrap();
    let seen = file
        .peek(PageNo(0), |page| {
            assert_eq!(page.len(), PAGE);
            let mut copy = [0; 100];
            page.copy_to(50, &mut copy)?;
            assert_eq!(copy, bytes[50..150]);
            page.check()?;
            assert_eq!(page.get_u8(5)?, bytes[5]);
            let word = page.get_u64(PAGE - 8)?;
            Ok((page.get_u16(3)?, page.get_u32(9)?, word))
        })
        .unwrap();
    let le = |range: std::ops::Range<usize>| {
        bytes[range].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    assert_eq!(
        (u64::from(seen.0), u64::from(seen.1), seen.2),
        (le(3..5), le(9..13), le(PAGE - 8..PAGE))
    );
    let stats = cache.stats();
    assert_eq!((stats.peeks, stats.peek_retries), (1, 0));
    // Beyond the end a page is zeros; it is not there, so it is pinned.
    assert_eq!(file.peek(PageNo(5), |page| page.get_u64(0)).unwrap(), 0);
    assert_eq!(cache.stats().peeks, 1);
    assert!(file.peek(PageNo(u64::MAX), |page| page.get_u8(0)).is_err());
}

#[test]
fn a_wrong_look_panics_once_and_the_cache_lives_on() {
    let cache = cache_of(8, Io::Blocking);
    let file = cache.open("f", writable()).unwrap();
    filled(&file, 2);
    let mut calls = 0;
    for at in [PAGE - 7, usize::MAX] {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            file.peek(PageNo(0), |page| {
                calls += 1;
                page.get_u64(at)
            })
        }));
        assert!(panicked.is_err());
    }
    assert_eq!(calls, 2);
    let mut buf = vec![0; PAGE];
    let nested = file.peek(PageNo(0), |_| Ok(file.read_at(&mut buf, PAGE as u64))).unwrap();
    assert_eq!(nested, Ok(PAGE));
    assert!(is_whole(&buf, 1));
}

/// A look inside another one says that the other was torn: to look again would not help.
#[test]
fn a_look_inside_another_ends_when_the_outer_is_torn() {
    let cache = cache_of(8, Io::Blocking);
    let file = cache.open("f", writable()).unwrap();
    filled(&file, 2);
    for inner in [0, 1, 5] {
        let mut calls = 0;
        let (seen, told) = file
            .peek(PageNo(0), |outer| {
                calls += 1;
                if calls == 1 {
                    file.write_at(&page_of(0, 1), 0).unwrap();
                }
                let told = file.peek(PageNo(inner), |_| outer.check());
                if calls == 1 {
                    let page = inner;
                    assert!(
                        matches!(told, Err(Error::TornElsewhere { page: at, .. }) if at == page)
                    );
                }
                Ok((outer.get_u64(8)?, told))
            })
            .unwrap();
        assert_eq!((seen, told, calls), (1, Ok(()), 2));
    }
}

/// Hits that were none overflow neither into the version nor into the counts.
#[test]
fn hits_that_are_taken_back_are_not_counted() {
    let cache = cache_of(8, Io::Blocking);
    let file = cache.open("f", writable()).unwrap();
    filled(&file, 1);
    let before = cache.stats().hits;
    let held = file.page_mut(PageNo(0)).unwrap();
    for _ in 0..5000 {
        assert!(file.page(PageNo(0)).is_err());
    }
    drop(held);
    assert_eq!(cache.stats().hits, before);
}

#[test]
fn hits_are_counted_however_a_page_is_read() {
    let cache = cache_of(8, Io::Blocking);
    let file = cache.open("f", writable()).unwrap();
    filled(&file, 1);
    let before = cache.stats();
    for _ in 0..1500 {
        drop(file.page(PageNo(0)).unwrap());
    }
    let mut buf = [0; 64];
    for _ in 0..10 {
        file.read_at(&mut buf, 0).unwrap();
        file.peek(PageNo(0), |page| page.get_u8(0)).unwrap();
    }
    let stats = cache.stats();
    assert_eq!(stats.hits - before.hits, 1520);
    assert_eq!(stats.peeks - before.peeks, 10);
    assert!(stats.copies_out - before.copies_out <= 10);
    assert_eq!(stats.misses, before.misses);
}

/// A read over 40 pages, of which some are there, begins and ends within a page: it gives what the
/// file holds, and finds each page once. Those that were brought in ahead are used then.
#[test]
fn a_read_of_many_pages_finds_each_once() {
    let bytes: Vec<u8> = (0..60 * PAGE).map(|at| (at / PAGE * 31 + at) as u8).collect();
    for there in [0..60, 0..5, 10..44, 30..60] {
        let device = sim(1, FaultPlan::default());
        device.put("f", &bytes);
        let cache = small(256, PAGE).device(device).io(Io::Queued).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        file.advise(Advice::Random);
        let pages: Vec<_> = there.clone().map(PageNo).collect();
        assert_eq!(file.prefetch(&pages), pages.len());
        pages.iter().for_each(|page| drop(file.page(*page).unwrap()));
        let before = cache.stats();
        let unused = before.read_ahead - before.read_ahead_used;
        let (begin, end) = (8 * PAGE + 100, 48 * PAGE - 1);
        let mut got = vec![0; end - begin];
        assert_eq!(file.read_at(&mut got, begin as u64), Ok(got.len()));
        assert!(got == bytes[begin..end], "{there:?}");
        let stats = cache.stats().since(&before);
        let hits = (8..48).filter(|page| there.contains(page)).count() as u64;
        if racy::IS_FAST {
            assert_eq!(stats.copies_out, 40 - stats.misses, "{there:?}");
        }
        assert!(stats.hits >= hits && stats.hits + stats.misses == 40, "{there:?} {stats:?}");
        assert_eq!((unused, stats.read_ahead), (0, stats.read_ahead_used), "{there:?}");
    }
}

/// Six frames for twelve pages, under writers: what is looked at is whole, and the page asked for.
#[test]
fn looks_are_whole_under_writers_and_eviction() {
    let _turn = turn();
    for io in BOTH {
        storm(io);
    }
}

fn storm(io: Io) {
    const PAGES: u64 = 12;
    let cache = cache_of(6, io);
    let file = cache.open("f", writable()).unwrap();
    filled(&file, PAGES);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2u64 {
            let (file, stop) = (&file, &stop);
            scope.spawn(move || {
                for version in 1..=3000 {
                    let page = (version * 5 + writer) % PAGES;
                    file.write_at(&page_of(page, version), page * PAGE as u64).unwrap();
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        for reader in 0..2u64 {
            let (file, stop) = (&file, &stop);
            scope.spawn(move || {
                let mut buf = vec![0; PAGE];
                let mut at = reader;
                // Some rounds of each, also where the writers were quicker.
                while !stop.load(Ordering::Relaxed) || at < 100 {
                    at += 1;
                    let page = at % PAGES;
                    let mut copy = vec![0; PAGE];
                    file.peek(PageNo(page), |look| look.copy_to(0, &mut copy)).unwrap();
                    assert!(is_whole(&copy, page), "peek of page {page}");
                    let words = file
                        .peek(PageNo(page), |look| {
                            Ok((look.get_u64(0)?, look.get_u64(PAGE / 2)?, look.get_u64(PAGE - 8)?))
                        })
                        .unwrap();
                    assert!(words.0 == words.1 && words.1 == words.2, "{words:x?}");
                    assert_eq!(file.read_at(&mut buf, page * PAGE as u64), Ok(PAGE));
                    assert!(is_whole(&buf, page), "copy of page {page}");
                    assert!(is_whole(&file.page(PageNo(page)).unwrap(), page), "pin of {page}");
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(stats.peeks > 0 && stats.evictions > 0, "{stats:?}");
}
