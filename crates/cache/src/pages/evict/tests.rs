use std::cell::{Cell, RefCell};
use std::rc::Rc;

use unherd_sys::primitives::{Arc, Ordering};
use unherd_testkit::{Seed, SimDevice};

use super::Found;
use crate::file::Core;
use crate::frames::{Claim, EXTENT, State};
use crate::page::{FrameId, PageKey};
use crate::{Cache, File, Io, OpenOptions, PageNo};

type Action = Box<dyn FnOnce()>;

thread_local! {
    /// What shall happen once, when this thread has unlocked the pool to give up pages.
    static WHILE_UNLOCKED: RefCell<Option<Action>> = const { RefCell::new(None) };
}

pub(super) fn while_unlocked() {
    if let Some(action) = WHILE_UNLOCKED.take() {
        action();
    }
}

/// All pages of the file are there, and clean.
fn full_cache(frames: u64) -> (Arc<Core>, File) {
    let builder = Cache::builder().io(Io::Blocking).page_size(512).capacity(frames as usize * 512);
    let cache = builder.device(Arc::new(SimDevice::new(Seed::new(1)))).build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true).create(true)).unwrap();
    file.set_len(frames * 512).unwrap();
    (0..frames).for_each(|page| drop(file.page(PageNo(page)).unwrap()));
    (cache.owner.core.clone(), file)
}

/// The other pages are pinned, so nothing is available but what the other thread has.
#[test]
fn who_searches_while_pages_are_given_up_is_told_of_the_frames() {
    const FRAMES: u64 = 256;
    let (core, file) = full_cache(FRAMES);
    let key = |page| core.files.all()[0].key(PageNo(page));
    let frame = |page| core.pages.index.lookup(key(page)).unwrap();
    let extent = |page| frame(page).0 / EXTENT as u32;
    let others = (0..FRAMES).filter(|page| extent(*page) != extent(0));
    let pinned: Vec<_> = others.map(|page| file.page(PageNo(page)).unwrap()).collect();
    assert_eq!(pinned.len(), FRAMES as usize - EXTENT);
    let seen = Rc::new(Cell::new(None));
    WHILE_UNLOCKED.set(Some({
        let (core, seen, wanted) = (core.clone(), seen.clone(), key(FRAMES + 1));
        // A waiter enters, looks, and is about to sleep.
        Box::new(move || {
            let waiters = &core.supply().waiters;
            std::mem::forget(waiters.events.enter());
            seen.set(Some(waiters.events.epoch()));
            assert!(matches!(core.pages.search(wanted), Found::Nothing));
        })
    }));
    let (claims, _) = core.pages.try_take_next(key(FRAMES), 1);
    assert_eq!(claims.len(), 1, "an extent was freed");
    let seen = seen.get().expect("the pool was unlocked");
    assert_ne!(core.supply().waiters.events.epoch(), seen, "fifteen frames are free");
}

/// No other is available, and this one could not be given up after all.
#[test]
fn who_searches_while_a_page_is_given_up_that_stays_is_told_of_it() {
    const FRAMES: u64 = 64;
    let (core, file) = full_cache(FRAMES);
    let (file, key) = (Rc::new(file), core.files.all()[0].key(PageNo(FRAMES)));
    let _pinned: Vec<_> = (1..FRAMES).map(|page| file.page(PageNo(page)).unwrap()).collect();
    let seen = Rc::new(Cell::new(None));
    WHILE_UNLOCKED.set(Some({
        let (core, file, seen) = (core.clone(), file.clone(), seen.clone());
        Box::new(move || {
            std::mem::forget(file.page(PageNo(0)).unwrap());
            let waiters = &core.supply().waiters;
            std::mem::forget(waiters.events.enter());
            seen.set(Some(waiters.events.epoch()));
            assert!(matches!(core.pages.search(key), Found::Nothing));
        })
    }));
    assert!(core.pages.try_take_run(key, 2).0.is_empty());
    let seen = seen.get().expect("the pool was unlocked");
    assert_ne!(core.supply().waiters.events.epoch(), seen, "its unpin may have come before");
}

#[test]
fn streams_that_give_up_pages_at_a_time_free_no_more_than_an_eighth() {
    const FRAMES: u64 = 128;
    let (core, _file) = full_cache(FRAMES);
    let key = |page| core.files.all()[0].key(PageNo(page));
    let second = Rc::new(Cell::new(None));
    WHILE_UNLOCKED.set(Some({
        let (core, second, wanted) = (core.clone(), second.clone(), key(FRAMES + 1));
        Box::new(move || second.set(Some(core.pages.try_take_next(wanted, 1).0.len())))
    }));
    assert_eq!(core.pages.try_take_next(key(FRAMES), 1).0.len(), 1);
    assert_eq!(second.get(), Some(0));
    assert_eq!(core.pages.stats().evictions, FRAMES / 8);
}

/// It is remembered, whichever way it is given up, and also if it was copied to another frame.
#[test]
fn a_page_that_was_given_up_comes_back_to_the_main_queue() {
    type Take = fn(&Core, PageKey) -> Vec<Claim>;
    const FRAMES: u64 = 256;
    let one: Take = |core, key| match core.pages.search(key) {
        Found::Frame { claim, .. } => vec![claim],
        _ => Vec::new(),
    };
    let run: Take = |core, key| core.pages.try_take_run(key, 2 * EXTENT).0;
    let row: Take = |core, _| core.pages.take_row(0..2 * EXTENT as u32).0;
    for (way, take) in [("one", one), ("run", run), ("row", row)] {
        let (core, file) = full_cache(FRAMES);
        let key = |page| core.files.all()[0].key(PageNo(page));
        let frame = |page| core.pages.index.lookup(key(page));
        let pinned = file.page(PageNo(0)).unwrap();
        let before = frame(0);
        file.write_all_at(&[1; 512], 0).unwrap();
        assert_ne!(frame(0), before, "it was copied");
        drop(pinned);
        file.sync_all().unwrap();
        // The frame that the page had before is free, and may be taken first.
        let claims: Vec<Claim> = (0..2).flat_map(|_| take(&core, key(FRAMES))).collect();
        claims.into_iter().for_each(|claim| core.pages.free_frame(claim));
        let gone: Vec<u64> = (0..FRAMES).filter(|page| frame(*page).is_none()).collect();
        assert!(gone.contains(&0), "{way}: {gone:?}");
        for page in gone {
            drop(file.page(PageNo(page)).unwrap());
            let pool = core.supply().pool.lock();
            let is_small = pool.policy.may_go_early(frame(page).unwrap().0, 0);
            assert!(!is_small, "{way}: page {page} is new again");
        }
    }
}

#[test]
fn what_goes_early_is_clean_idle_and_new_when_it_comes_back() {
    const FRAMES: u64 = 64;
    let (core, file) = full_cache(FRAMES);
    let key = |page| core.files.all()[0].key(PageNo(page));
    let frame = |page| core.pages.index.lookup(key(page));
    let [gone, pinned, unflushed, dirty, used] = [0, 1, 2, 3, 4];
    let _guard = file.page(PageNo(pinned)).unwrap();
    file.write_all_at(&[1; 512], unflushed * 512).unwrap();
    file.write_back().unwrap();
    file.write_all_at(&[1; 512], dirty * 512).unwrap();
    (0..2).for_each(|_| drop(file.page(PageNo(used)).unwrap()));
    let states = [unflushed, dirty].map(|page| core.frames().word(frame(page).unwrap()).state());
    assert_eq!(states, [State::Unstable, State::Dirty]);
    core.pages.give_up_early((0..5).map(key));
    assert_eq!((0..FRAMES).find(|page| frame(*page).is_none()), Some(gone));
    assert_eq!(core.pages.stats().evictions, 1);
    drop(file.page(PageNo(gone)).unwrap());
    let is_small = |page| {
        let pool = core.supply().pool.lock();
        pool.policy.may_go_early(frame(page).unwrap().0, 0)
    };
    assert!(is_small(gone));
    // A waiter for a frame is told.
    std::mem::forget(core.supply().waiters.events.enter());
    let seen = core.supply().waiters.events.epoch();
    core.pages.give_up_early((0..5).map(key));
    assert!(frame(gone).is_none() && core.supply().waiters.events.epoch() != seen);
}

/// It finds nothing, and goes to sleep, while a stream takes frames for pages to come.
#[test]
fn a_stream_keeps_no_frames_from_one_who_waits() {
    const FRAMES: u64 = 256;
    for has_waiter in [false, true] {
        let (core, _file) = full_cache(FRAMES);
        let file = core.files.all()[0].clone();
        file.write_streams.lock().filled(FRAMES - 1..FRAMES, u64::MAX);
        let has_looked = Rc::new(Cell::new(false));
        for page in FRAMES..FRAMES + EXTENT as u64 {
            // That many are taken at a time by then, and are given up for it.
            if has_waiter && page == FRAMES + EXTENT as u64 - 1 {
                let (core, has_looked) = (core.clone(), has_looked.clone());
                WHILE_UNLOCKED.set(Some(Box::new(move || {
                    std::mem::forget(core.supply().waiters.events.enter());
                    core.take_back_preallocated();
                    has_looked.set(true);
                })));
            }
            let mut claim = None;
            let key = file.key(PageNo(page));
            core.take_for_stream(&file, FRAMES, key, 1, |taken| claim = Some(taken));
            assert!(claim.is_some());
        }
        assert_eq!(has_looked.get(), has_waiter);
        let left = core.supply().pool.lock().free.len();
        assert_eq!(left, if has_waiter { EXTENT } else { 1 });
    }
}

/// Frames that have no page, and are not free.
fn frames_in_hand(core: &Core) -> usize {
    let frames = core.frames();
    let empty = (0..core.supply().len() as u32).map(FrameId);
    let empty = empty.filter(|frame| frames.word(*frame).state() == State::Empty);
    empty.filter(|frame| !core.supply().pool.lock().free.has(*frame)).count()
}

#[test]
fn streams_have_an_eighth_of_the_frames_at_most_and_leave_none() {
    const FRAMES: usize = 256;
    let builder = Cache::builder().io(Io::Blocking).page_size(512).capacity(FRAMES * 512);
    let cache = builder.device(Arc::new(SimDevice::new(Seed::new(1)))).build().unwrap();
    let core = &cache.owner.core;
    let options = || OpenOptions::new().write(true).create(true);
    let open = |number: u32| cache.open(format!("{number}"), options()).unwrap();
    let write = |file: &File, page: u64| file.write_all_at(&[1; 512], page * 512).unwrap();
    let files: Vec<File> = (0..32).map(open).collect();
    // In one file each other page is there; frames for these are skipped.
    (0..40).step_by(2).for_each(|page| write(&files[0], page));
    for file in &files {
        (0..40).for_each(|page| write(file, page));
        let in_hand = frames_in_hand(core);
        assert!(in_hand <= FRAMES / 8, "{in_hand}");
        assert!(core.files.preallocated.load(Ordering::Relaxed) >= in_hand);
    }
    assert!(frames_in_hand(core) > 0, "they are open");
    // What is used up does not count: others can have it.
    core.take_back_preallocated();
    let mut most = 0;
    for page in 40..80 {
        write(&files[5], page);
        most = most.max(frames_in_hand(core));
    }
    assert_eq!(most, EXTENT - 1);
    files.into_iter().for_each(|file| file.close().unwrap());
    assert_eq!(frames_in_hand(core), 0);
    assert_eq!(core.files.preallocated.load(Ordering::Relaxed), 0);
}
