//! Which pages come in before anybody asks for them, and what becomes of those.

use unherd_cache::{Advice, Error, Io, PageNo};
use unherd_sys::primitives::Arc;
use unherd_testkit::{Failure, FaultPlan, Seed, SimDevice};

use crate::scene::{BOTH, small, writable};

const PAGE: usize = 512;
const PAGES: u64 = 1024;

fn device() -> Arc<SimDevice> {
    let device = Arc::new(SimDevice::new(Seed::new(5)));
    let bytes: Vec<u8> = (0..PAGES).flat_map(|page| [page as u8; PAGE]).collect();
    device.put("f", &bytes);
    device
}

#[test]
fn a_stream_takes_few_transfers() {
    for io in BOTH {
        for (advice, most) in [(Advice::Normal, 80), (Advice::Random, PAGES)] {
            let device = device();
            let cache = small(512, PAGE).device(device.clone()).io(io).build().unwrap();
            let file = cache.open("f", writable()).unwrap();
            file.advise(advice);
            let mut buf = [0; PAGE];
            for page in 0..PAGES {
                assert_eq!(file.read_at(&mut buf, page * PAGE as u64).unwrap(), PAGE);
                assert!(buf.iter().all(|&byte| byte == page as u8), "page {page}");
            }
            let reads = device.counts("f").reads;
            assert!(reads <= most, "{io:?} {advice:?}: {reads} transfers");
            let stats = cache.stats();
            assert_eq!(stats.reads, PAGES, "each page is read once: {stats:?}");
            assert_eq!(stats.read_ahead, stats.read_ahead_used, "{stats:?}");
        }
    }
}

/// Pages that are dropped with their file, unread or changed, count as gone: a cache in which many
/// scans were given up reads ahead as before.
#[test]
fn scans_given_up_leave_readahead_on() {
    for io in BOTH {
        let device = device();
        let cache = small(512, PAGE).device(device.clone()).io(io).build().unwrap();
        for round in 0..600 {
            let file = cache.open("f", writable()).unwrap();
            drop(file.page(PageNo(0)).unwrap());
            if round % 2 == 0 {
                file.write_at(&[0; 8], PAGE as u64).unwrap();
            }
        }
        let stats = cache.stats();
        assert_eq!(stats.read_ahead, stats.read_ahead_used + stats.read_ahead_wasted, "{stats:?}");
        let file = cache.open("f", writable()).unwrap();
        let before = device.counts("f").reads;
        (0..PAGES).for_each(|page| drop(file.page(PageNo(page)).unwrap()));
        assert!(device.counts("f").reads - before <= 80, "{io:?}");
    }
}

#[test]
fn a_failed_run_fails_nobody_else() {
    for io in BOTH {
        let device = device();
        let cache = small(512, PAGE).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        // The run of the first four pages fails; the first is then read by itself.
        device.set_faults(FaultPlan { read: Failure::at(1), ..FaultPlan::default() });
        for page in 0..8 {
            assert_eq!(file.page(PageNo(page)).unwrap()[0], page as u8, "{io:?}");
        }
        assert_eq!(cache.stats().io_errors, 1);
    }
}

/// Backward, and each fourth page: the I/O thread brings in what comes next, and nothing else.
#[test]
fn backward_and_strided_readers_take_few_transfers() {
    let backward = (0..PAGES).rev().collect::<Vec<_>>();
    let strided = (1..PAGES).step_by(4).collect();
    for (pages, most) in [(backward, 200), (strided, PAGES / 4 + 64)] {
        let device = device();
        let cache = small(512, PAGE).device(device.clone()).io(Io::Queued).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        for &page in &pages {
            assert_eq!(file.page(PageNo(page)).unwrap()[0], page as u8, "page {page}");
        }
        let stats = cache.stats();
        assert!(device.counts("f").reads <= most, "{:?} {stats:?}", device.counts("f"));
        assert!(stats.read_ahead_used >= pages.len() as u64 * 3 / 4, "{stats:?}");
    }
}

/// Each page that fails is asked for again by its reader alone, who gets the error.
#[test]
fn failed_readahead_is_silent_until_the_page_is_asked_for() {
    let device = device();
    let cache = small(512, PAGE).device(device.clone()).io(Io::Queued).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let read = |pages: std::ops::Range<u64>| {
        let mut failed = 0;
        for page in pages {
            match file.page(PageNo(page)) {
                Ok(bytes) => assert_eq!(bytes[0], page as u8, "page {page}"),
                Err(error) => {
                    let offset = format!("offset {} ", page * PAGE as u64);
                    assert!(error.to_string().contains(&offset), "page {page}: {error}");
                    failed += 1;
                }
            }
        }
        failed
    };
    assert_eq!(read(0..100), 0);
    // One more read is well, and then no other.
    device.set_faults(FaultPlan { read: Failure::from(2), ..FaultPlan::default() });
    let failed = read(100..PAGES);
    assert!((1..PAGES - 100).contains(&failed), "{failed} pages");
    device.set_faults(FaultPlan::default());
    assert_eq!(read(0..PAGES), 0);
}

#[test]
fn advice_ends_streams_that_were_begun_before() {
    for io in BOTH {
        let cache = small(512, PAGE).device(device()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        (0..200).for_each(|page| drop(file.page(PageNo(page)).unwrap()));
        file.advise(Advice::Random);
        let before = cache.stats().read_ahead;
        assert!(before > 0);
        (200..PAGES).for_each(|page| drop(file.page(PageNo(page)).unwrap()));
        assert_eq!(cache.stats().read_ahead, before, "{io:?}");
    }
}

/// A page that is cut before anybody has asked for it counts as used: it was changed.
#[test]
fn pages_that_are_cut_leave_readahead_on() {
    for io in BOTH {
        let device = device();
        let cache = small(512, PAGE).device(device.clone()).io(io).build().unwrap();
        for _ in 0..200 {
            let file = cache.open("f", writable()).unwrap();
            drop(file.page(PageNo(0)).unwrap());
            file.set_len(2 * PAGE as u64 + 10).unwrap();
            file.set_len(PAGES * PAGE as u64).unwrap();
            file.sync_all().unwrap();
        }
        let stats = cache.stats();
        assert_eq!(stats.read_ahead, stats.read_ahead_used + stats.read_ahead_wasted, "{stats:?}");
        let file = cache.open("f", writable()).unwrap();
        let before = device.counts("f").reads;
        (0..PAGES).for_each(|page| drop(file.page(PageNo(page)).unwrap()));
        assert!(device.counts("f").reads - before <= 80, "{io:?}");
    }
}

/// In any order, also twice and beyond the end; neighbours travel together.
#[test]
fn a_stream_gives_the_pages_that_were_named() {
    for io in BOTH {
        let device = device();
        let cache = small(512, PAGE).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        let pages: Vec<u64> = (0..PAGES / 8).flat_map(|row| row * 8..row * 8 + 6).collect();
        let mut rows: Vec<_> = pages.chunks(6).collect();
        Seed::new(7).shuffle(&mut rows);
        let mut pages = rows.concat();
        pages.insert(100, pages[100]);
        pages.insert(300, PAGES + 5);
        let mut stream = file.stream(pages.iter().copied().map(PageNo));
        assert_eq!(stream.size_hint(), (pages.len(), Some(pages.len())));
        for &page in &pages {
            let bytes = stream.next().unwrap().unwrap();
            let wanted = if page < PAGES { page as u8 } else { 0 };
            assert!(bytes.iter().all(|&byte| byte == wanted), "{io:?}: page {page}");
        }
        assert!(stream.next().is_none() && stream.next().is_none());
        let (reads, stats) = (device.counts("f").reads, cache.stats());
        // A row may lie in two batches.
        assert!(reads <= PAGES / 4, "{io:?}: {reads} transfers");
        // Each once; a blocking cache may guess behind a row.
        assert!(stats.reads <= PAGES / 8 * 6 + 8, "{stats:?}");
    }
}

#[test]
fn a_stream_refuses_pages_that_no_file_can_have() {
    let cache = small(16, PAGE).device(device()).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let pages = [u64::MAX, 2, u64::MAX - 1, u64::MAX, u64::MAX, u64::MAX / PAGE as u64, 3];
    let seen: Vec<_> = file
        .stream(pages.map(PageNo))
        .map(|page| match page {
            Ok(page) => Some(page[0]),
            Err(Error::OutOfRange { .. }) => None,
            Err(error) => panic!("{error}"),
        })
        .collect();
    assert_eq!(seen, [None, Some(2), None, None, None, None, Some(3)]);
}

#[test]
fn a_stream_goes_on_behind_an_error() {
    for io in BOTH {
        let device = device();
        let cache = small(512, PAGE).device(device.clone()).io(io).build().unwrap();
        let file = cache.open("f", writable()).unwrap();
        device.set_faults(FaultPlan { read: Failure::from(3), ..FaultPlan::default() });
        let mut stream = file.stream((0..PAGES).map(PageNo));
        let failed = stream.by_ref().take(100).filter(Result::is_err).count();
        assert!(failed > 0, "{io:?}");
        device.set_faults(FaultPlan::default());
        // What is under way may still fail, and is read again.
        let rest: Vec<_> = stream.map(|page| page.unwrap()[0]).collect();
        assert_eq!(rest, (100..PAGES).map(|page| page as u8).collect::<Vec<_>>(), "{io:?}");
    }
}

#[test]
fn pages_that_were_prefetched_are_no_misses() {
    let cache = small(512, PAGE).device(device()).io(Io::Queued).build().unwrap();
    let file = cache.open("f", writable()).unwrap();
    let pages = [900, 17, 18, 400, 17, PAGES + 1].map(PageNo);
    assert_eq!(file.prefetch(&pages), 6);
    for page in [17, 18, 400, 900] {
        assert_eq!(file.page(PageNo(page)).unwrap()[0], page as u8);
    }
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.reads), (0, 4), "{stats:?}");
    // A quarter of the frames at most.
    let all: Vec<_> = (0..PAGES).map(PageNo).collect();
    assert!(file.prefetch(&all) < 512, "pages that nobody has asked for");
    let blocking = small(512, PAGE).device(device()).io(Io::Blocking).build().unwrap();
    assert_eq!(blocking.open("f", writable()).unwrap().prefetch(&pages), 0);
}
