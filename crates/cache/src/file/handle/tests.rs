use unherd_sys::primitives::{Arc, AtomicBool, Ordering, thread};
use unherd_testkit::{Seed, SimDevice};

use crate::page::PageNo;
use crate::{Advice, Cache, File, Io, OpenOptions};

const PAGE: usize = 512;
const PAGES: u64 = 1024;

/// A file of which nothing is there.
fn scene(io: Io) -> (Cache, File) {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    device.put("f", &[7; PAGES as usize * PAGE]);
    let builder = Cache::builder().capacity(2048 * PAGE).page_size(PAGE).io(io);
    let cache = builder.device(device).build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true)).unwrap();
    (cache, file)
}

/// A file of which the first pages are there, as many as the buffer has room for.
fn scene_of(pages: usize) -> (Cache, File, Vec<u8>) {
    let (cache, file) = scene(Io::Blocking);
    file.advise(Advice::Random);
    let mut buf = vec![0; pages * PAGE];
    file.read_at(&mut buf, 0).unwrap();
    (cache, file, buf)
}

/// How often each of the pages was used.
fn uses(file: &File, pages: u64) -> Vec<u32> {
    let frames = (0..pages).map(|page| file.core().pages.index.lookup(file.file.key(PageNo(page))));
    frames.map(|frame| file.core().frames().word(frame.unwrap()).uses()).collect()
}

fn forget_uses(file: &File, pages: u64) {
    for page in (0..pages).map(PageNo) {
        let frame = file.core().pages.index.lookup(file.file.key(page)).unwrap();
        file.core().frames().forget_uses(frame);
    }
}

#[test]
fn a_large_read_is_one_use_of_each_page() {
    let (_cache, file, mut buf) = scene_of(40);
    forget_uses(&file, 40);
    file.read_at(&mut buf[..20 * PAGE], 0).unwrap();
    assert_eq!(uses(&file, 40), [[1; 20], [0; 20]].concat());
    forget_uses(&file, 40);
    file.read_at(&mut buf[..PAGE / 2], 0).unwrap();
    // It goes on in the first page, and uses the others.
    file.read_at(&mut buf[..20 * PAGE], PAGE as u64 / 2).unwrap();
    assert_eq!(uses(&file, 21), [1; 21]);
}

#[test]
fn a_page_that_is_written_meanwhile_gives_its_neighbours_no_second_use() {
    let (_cache, file, mut buf) = scene_of(16);
    let is_over = AtomicBool::new(false);
    // Judged at the end: a panic before would leave the writer writing.
    let (mut torn, mut wrong) = (0, Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.write_all_at(&[8; 400], 3 * PAGE as u64).unwrap();
            }
        });
        for _ in 0..20_000 {
            forget_uses(&file, 16);
            let before = file.core().counters().read().peek_retries;
            file.read_at(&mut buf, 0).unwrap();
            torn += u32::from(file.core().counters().read().peek_retries > before);
            let mut uses = uses(&file, 16);
            uses.remove(3);
            if uses != [1; 15] {
                wrong.push(uses);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{torn} of 20000 reads found the page changing under them");
    assert!(wrong.is_empty(), "{} times, as {:?}", wrong.len(), wrong[0]);
}

#[test]
fn a_large_read_uses_what_was_brought_in_ahead() {
    let (cache, file) = scene(Io::Queued);
    file.advise(Advice::Random);
    let pages: Vec<_> = (0..40).map(PageNo).collect();
    assert_eq!(file.prefetch(&pages), 40);
    let is_there = |page: &PageNo| {
        let frame = file.core().pages.index.lookup(file.file.key(*page));
        frame.is_some_and(|frame| file.core().frames().word(frame).is_readable())
    };
    while !pages.iter().all(is_there) {
        thread::yield_now();
    }
    assert_eq!(cache.stats().read_ahead_used, 0);
    file.read_at(&mut [0; 30 * PAGE], 0).unwrap();
    assert_eq!((cache.stats().read_ahead, cache.stats().read_ahead_used), (40, 30));
}

/// Read by one page or by many, a stream is read ahead.
#[test]
fn large_reads_go_on_reading_ahead() {
    let [one, many] = [1, 16].map(|pages| {
        let (cache, file) = scene(Io::Queued);
        let mut buf = vec![0; pages * PAGE];
        for at in 0..PAGES / pages as u64 {
            file.read_at(&mut buf, at * (pages * PAGE) as u64).unwrap();
        }
        cache.stats().misses
    });
    println!("{one} and {many} misses of {PAGES} pages");
    assert!(many <= one + 2, "{one} and {many} misses");
}
