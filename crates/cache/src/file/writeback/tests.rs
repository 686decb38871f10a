use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, AtomicBool, Ordering, thread};
use unherd_testkit::{Seed, SimDevice};

use crate::file::steps::{self, Step};
use crate::page::PageNo;
use crate::{Cache, File, Io, OpenOptions};

const PAGE: usize = 512;

fn scene(bytes: &[u8]) -> (Arc<SimDevice>, Cache, File) {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    device.put("f", bytes);
    let cache = Cache::builder()
        .io(Io::Blocking)
        .page_size(PAGE)
        .capacity(64 * PAGE)
        .device(device.clone());
    let cache = cache.build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true).lock(false)).unwrap();
    (device, cache, file)
}

/// The page is lent as soon as its change has ended, and then it is longer than it was before.
#[test]
fn a_sync_keeps_what_a_page_grew_by_as_it_was_lent() {
    let (device, cache, file) = scene(b"");
    file.write_all_at(&[1; 600], 0).unwrap();
    let (is_changing, may_end) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let has_ended = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let (file, is_changing) = (&file, &is_changing);
        let (end, ended) = (may_end.clone(), has_ended.clone());
        scope.spawn(move || {
            let mut page = file.page_mut(PageNo(1)).unwrap();
            page.write(88, &[7; 100]);
            is_changing.store(true, Ordering::Release);
            while !end.load(Ordering::Acquire) {
                thread::yield_now();
            }
            drop(page);
            ended.store(true, Ordering::Release);
        });
        while !is_changing.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let let_end = move || {
            may_end.store(true, Ordering::Release);
            while !has_ended.load(Ordering::Acquire) {
                thread::yield_now();
            }
        };
        steps::at(&cache.owner.core, Step::Lend, PageNo(1), let_end);
        file.sync_all().unwrap();
    });
    file.sync_all().unwrap();
    assert_eq!(device.durable_bytes("f").unwrap().len(), 700);
    file.invalidate(512..513).unwrap();
    let mut tail = [0; 4];
    assert_eq!((file.read_at(&mut tail, 696), tail), (Ok(4), [7; 4]));
}

#[test]
fn what_others_append_after_a_failed_write_stays() {
    let (device, _cache, file) = scene(&[1; PAGE]);
    device.refuse_writes("f", Some(Errno::NOSPC));
    file.write_all_at(&[7; PAGE], 2 * PAGE as u64).unwrap();
    // As for a frame.
    let frame = file.core().pages.index.lookup(file.file.key(PageNo(2))).unwrap();
    assert!(file.core().write_back_frame(frame));
    device.append("f", &[9; 50]);
    assert!(file.sync_all().is_err());
    assert_eq!(device.bytes("f").unwrap().len(), PAGE + 50);
}
