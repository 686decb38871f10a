use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Ordering, spin_loop, thread};
use unherd_testkit::{Seed, SimDevice};

use crate::file::steps::{self, Step};
use crate::page::PageNo;
use crate::{Cache, CacheBuilder, Error, File, Io, OpenOptions};

const PAGE: usize = 512;

fn builder() -> CacheBuilder {
    Cache::builder().io(Io::Blocking).page_size(PAGE).capacity(64 * PAGE)
}

/// A file of two dirty pages of ones.
fn scene(builder: CacheBuilder) -> (Arc<SimDevice>, Cache, Arc<File>) {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    let cache = builder.device(device.clone()).build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true).create(true)).unwrap();
    file.write_all_at(&[1; 2 * PAGE], 0).unwrap();
    (device, cache, Arc::new(file))
}

/// Else the device could get the page as it was before the hole, and keep it.
#[test]
fn a_hole_waits_for_overwrites_with_write_backs_kept_out() {
    let (_device, _cache, file) = scene(builder());
    let (core, key) = (file.core(), file.file.key(PageNo(1)));
    let frame = core.pages.index.lookup(key).unwrap();
    let claim = core.frames().try_change_again(frame, key, || true).unwrap();
    let are_kept_out = thread::scope(|scope| {
        let punching = scope.spawn(|| file.punch_hole(0..2 * PAGE as u64));
        while core.pages.waits.waited_for([key.into()]).next().is_none() {
            thread::yield_now();
        }
        let are_kept_out = file.file.write_backs.is_blocked();
        core.end_change(&file.file, key, claim);
        punching.join().unwrap().unwrap();
        are_kept_out
    });
    assert!(are_kept_out);
    let mut bytes = [9; 2 * PAGE];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 2 * PAGE]);
}

/// The file is cut just before, and its page is dirty again by then.
#[test]
fn the_length_is_looked_at_last() {
    let (_device, _cache, file) = scene(builder());
    let cutting = file.clone();
    steps::at(file.core(), Step::Overwrite, PageNo(0), move || {
        cutting.set_len(100).unwrap();
        cutting.write_all_at(&[2; 8], 0).unwrap();
    });
    file.write_all_at(&[3; 8], 200).unwrap();
    assert_eq!(file.len(), 208);
    let mut bytes = [9; 208];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(
        (&bytes[..8], &bytes[100..200], &bytes[200..]),
        (&[2; 8][..], &[0; 100][..], &[3; 8][..])
    );
}

/// The writer finds it pinned, and has a frame for a copy; by then the pin is gone, and another
/// changes the page.
#[test]
fn a_copy_gives_way_to_an_overwrite() {
    let (_device, _cache, file) = scene(builder());
    let [has_looked, is_changing] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let wait_for = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let pin = file.page(PageNo(0)).unwrap();
        let (looked, changing) = (has_looked.clone(), is_changing.clone());
        steps::at(file.core(), Step::Replace, PageNo(0), move || {
            looked.store(true, Ordering::Release);
            wait_for(&changing);
        });
        let writing = scope.spawn(|| file.write_at(&[3; 8], 0));
        wait_for(&has_looked);
        drop(pin);
        let (core, key) = (file.core(), file.file.key(PageNo(0)));
        let frame = core.pages.index.lookup(key).unwrap();
        let mut claim = core.frames().try_change_again(frame, key, || true).unwrap();
        is_changing.store(true, Ordering::Release);
        let is_waited_for = || core.pages.waits.waited_for([key.into()]).next().is_some();
        while !is_waited_for() && !writing.is_finished() {
            thread::yield_now();
        }
        core.memory().write(&mut claim, 8, &[4; 8]);
        core.end_change(&file.file, key, claim);
        assert_eq!(writing.join().unwrap(), Ok(8));
    });
    let mut bytes = [9; 17];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes[..8], &bytes[8..16], bytes[16]), (&[3; 8][..], &[4; 8][..], 1));
}

/// Nothing is synced, so nothing may be forgotten.
#[test]
fn what_is_overwritten_meanwhile_is_not_invalidated() {
    let (_device, _cache, file) = scene(builder());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.write_all_at(&[2; 8], 0).unwrap();
            }
        });
        let refused = (0..200_000).filter(|_| {
            let outcome = file.invalidate(0..PAGE as u64);
            matches!(outcome, Err(Error::NotSynced { page: 0, .. }))
        });
        let refused = refused.count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(refused, 200_000);
    });
}

/// One that writes pages back finds it changing as often as not.
#[test]
fn what_is_overwritten_all_the_time_is_written_back() {
    const TRIES: u32 = 2_000;
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        println!("skipped: the writer and the one that writes back need a processor each");
        return;
    }
    let (_device, _cache, file) = scene(builder());
    let (core, is_over, writes) = (file.core(), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.write_all_at(&[2; 400], 0).unwrap();
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let goes_on = || {
            let before = writes.load(Ordering::Relaxed);
            (0..2_000).any(|_| {
                spin_loop();
                writes.load(Ordering::Relaxed) > before + 1
            })
        };
        let (mut refused, mut tries) = (0, 0);
        while tries < TRIES {
            while !core.may_be_counted(&file.file, PageNo(0)) {
                thread::yield_now();
            }
            // A change without a lock leaves the page in its frame.
            let frame = core.pages.index.lookup(file.file.key(PageNo(0))).unwrap();
            let is_refused = !core.write_back_frame(frame);
            // Else the writer has no processor, and the page changes, or rests, for as long.
            if goes_on() {
                (tries, refused) = (tries + 1, refused + u32::from(is_refused));
            } else {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(refused < TRIES / 4, "{refused} of {TRIES} times");
    });
}
