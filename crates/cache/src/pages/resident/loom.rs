//! Pages that come and go under loom: the index, the locks of its shards and the words of the
//! frames are the cache's own. A cell stands for the memory of each frame, and a list for the free
//! ones. What is on the device is told by who brings it in.
#![expect(unsafe_code, reason = "cells that the words guard")]

use std::collections::BTreeSet;

use unherd_sync::{Reason, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, AtomicU32, Mutex, Ordering, UnsafeCell, thread};

use super::*;
use crate::page::{ALL_PAGES, FileId, PageKey, PageNo};
use crate::pages::Index;

const fn key(file: u32, page: u64) -> PageKey {
    PageKey { file: FileId(file), page: PageNo(page) }
}

/// A page, and another whose shard is not the same if there are two.
const PAGE: PageKey = key(1, 3);
const ELSEWHERE: PageKey = key(1, 16);

/// Two pages of one tag (there are fewer slots than rows), so that one is found in the place of the
/// other without the lock; and a page that has its home with them, in the last slot of eight.
const TWINS: [PageKey; 2] = [key(1, 1), key(1, 9)];
const NEIGHBOUR: PageKey = key(1, 16);

/// Slots of a shard: the fewest of which any may be used.
const SLOTS: usize = 8;

struct Scene {
    index: Index,
    frames: Frames,
    memory: Vec<UnsafeCell<u64>>,
    /// What the device has of a page whose reads and writes matter.
    device: UnsafeCell<u64>,
    free: Mutex<Vec<Claim>>,
    waits: WaitTable<WaitKey>,
    /// Pages that were brought in. Relaxed: counts only.
    brought_in: AtomicU32,
    seen: Seen,
}

/// What happened in any of the runs of a scene. No part of the model.
type Seen = std::sync::Arc<std::sync::Mutex<BTreeSet<&'static str>>>;

// SAFETY: `memory` is written under a claim and read under a pin, `device` by who has announced the
// page or has it in a frame; loom checks that this orders them.
unsafe impl Sync for Scene {}

impl Scene {
    fn new(shards: usize, frames: usize, seen: &Seen) -> Self {
        let (frames, claims) = Frames::new(frames).unwrap();
        Self {
            index: Index::with_shards(shards, SLOTS).unwrap(),
            memory: (0..frames.len()).map(|_| UnsafeCell::new(0)).collect(),
            device: UnsafeCell::new(1),
            frames,
            free: Mutex::new(claims),
            waits: WaitTable::<WaitKey>::builder().buckets(1).seed(1).build(),
            brought_in: AtomicU32::new(0),
            seen: seen.clone(),
        }
    }

    fn note(&self, what: &'static str) {
        self.seen.lock().unwrap().insert(what);
    }

    fn shard(&self, key: PageKey) -> ShardGuard<'_> {
        self.index.lock(key, |frame| self.frames.key(frame))
    }

    fn take_frame(&self) -> Option<Claim> {
        self.free.lock().pop()
    }

    // As the functions of the cache (`hit.rs`, `read.rs`, `change.rs`, `reclaim.rs`) do.

    fn try_hit(&self, key: PageKey) -> Option<Pin> {
        let frame = self.index.lookup(key)?;
        let hit = self.frames.try_hit(frame, key).map_err(|before| self.after_unpin(frame, before));
        hit.ok().map(|hit| hit.pin)
    }

    fn unpin(&self, pin: Pin) {
        let frame = pin.id();
        let before = self.frames.unpin(pin);
        self.after_unpin(frame, before);
    }

    fn after_unpin(&self, frame: FrameId, before: Word) {
        if before.pins() == 1 && before.state() == State::Detached {
            let claim = self.frames.free_detached(frame);
            self.note(if claim.is_some() { "freed by who unpins" } else { "freed by another" });
            self.free_frame(claim);
        }
    }

    fn free_frame(&self, claim: Option<Claim>) {
        self.free.lock().extend(claim);
    }

    fn look_up(&self, key: PageKey) -> Lookup {
        self.shard(key).look_up(&self.frames).unwrap()
    }

    /// The page that the device has as `content`.
    fn pin(&self, key: PageKey, content: u64) -> Pin {
        loop {
            match self.look_up(key) {
                Lookup::Here(pin) => {
                    self.note("found");
                    return pin;
                }
                Lookup::Busy(busy) => {
                    self.note("busy");
                    let still = || self.shard(key).busy(&self.frames) == Some(busy);
                    let _ = self.waits.wait(&key.into(), still, Wait::new(Reason::OTHER));
                }
                Lookup::Miss(announced) => {
                    let claim = self.take_frame().expect("there is a frame for each page");
                    return self.bring_in(announced, claim, content);
                }
            }
        }
    }

    fn bring_in(&self, announced: FillReservation, claim: Claim, content: u64) -> Pin {
        let key = announced.key;
        self.shard(key).install(&self.frames, announced, &claim, State::Reading);
        // SAFETY: a claim.
        self.memory[claim.id().index()].with_mut(|memory| unsafe { *memory = content });
        self.brought_in.fetch_add(1, Ordering::Relaxed);
        let pin = self.frames.publish_pinned(claim, State::Clean);
        self.waits.wake_all(&key.into());
        pin
    }

    /// Nobody works on the page.
    fn drop_page(&self, key: PageKey) {
        let (_, claim) = self.shard(key).detach(&self.frames).unwrap();
        self.note(if claim.is_some() { "freed by who drops" } else { "left to who has it" });
        self.free_frame(claim);
    }

    fn try_evict(&self, frame: FrameId) -> Option<Claim> {
        // Without the lock: it may have another page by the time that this one is locked.
        let key = self.frames.key(frame);
        let mut shard = self.shard(key);
        if self.frames.key(frame) != key {
            self.note("another page by now");
        }
        let claim = shard.evict(&self.frames, frame)?;
        shard.remove();
        Some(claim)
    }

    /// What the device has, if the page is not in the index: as `Pages::announce_run`, and its end.
    fn read_uncached(&self, key: PageKey) -> Option<u64> {
        {
            let mut shard = self.shard(key);
            if shard.get().is_some() {
                return None;
            }
            shard.announce();
        }
        // SAFETY: the announcement.
        let read = self.device.with(|device| unsafe { *device });
        self.shard(key).remove();
        for key in self.waits.waited_for([key.into()]) {
            self.waits.wake_all(&key);
        }
        Some(read)
    }

    // What the scenes do with it.

    /// What a pinned page holds; gives the pin back.
    fn read(&self, pin: Pin) -> u64 {
        // SAFETY: a pin.
        let seen = self.memory[pin.id().index()].with(|memory| unsafe { *memory });
        self.unpin(pin);
        seen
    }

    /// What a hit reads, if it is one.
    fn hit(&self, key: PageKey) -> Option<u64> {
        self.try_hit(key).map(|pin| self.read(pin))
    }

    /// Brings the page in if there is a frame for it.
    fn reuse(&self, key: PageKey, content: u64) {
        if let Some(claim) = self.take_frame() {
            let Lookup::Miss(announced) = self.look_up(key) else {
                unreachable!("there was no frame for anybody else")
            };
            let pin = self.bring_in(announced, claim, content);
            self.unpin(pin);
        }
    }

    /// These pages are in the index, once each, and all frames but theirs are free.
    fn holds(&self, pages: &[PageKey]) {
        let mut frames = Vec::new();
        for file in [1, 16, 956].map(FileId) {
            let of_file = pages.iter().filter(|page| page.file == file).count();
            let known = self.index.pages_in(file, ALL_PAGES, |frame| self.frames.key(frame));
            assert_eq!(known.len(), of_file, "{known:?}");
        }
        for &page in pages {
            let frame = self.shard(page).frame().expect("it is in a frame");
            let word = self.frames.word(frame);
            assert_eq!((word.state(), word.pins()), (State::Clean, 0));
            frames.push(frame);
        }
        for claim in &*self.free.lock() {
            let word = self.frames.word(claim.id());
            assert_eq!((word.state(), word.pins()), (State::Empty, 0));
            frames.push(claim.id());
        }
        frames.sort_unstable_by_key(|frame| frame.0);
        frames.dedup();
        assert_eq!(frames.len(), self.frames.len(), "a frame is lost, or has two owners");
    }
}

/// Runs a scene in all ways, or with at most this many preemptions. Each of `happens` does in some
/// run, or the scene shows less than it says.
fn check(
    preemptions: Option<usize>,
    happens: &[&'static str],
    scene: impl Fn(&Seen) + Send + Sync + 'static,
) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.max_branches = 20_000;
    let seen = Seen::default();
    let noted = seen.clone();
    model.check(move || scene(&noted));
    let seen = seen.lock().unwrap();
    let never: Vec<_> = happens.iter().filter(|what| !seen.contains(*what)).collect();
    assert!(never.is_empty(), "never happened: {never:?}");
}

fn beside(scene: &Arc<Scene>, run: impl FnOnce(&Scene) + Send + 'static) -> thread::JoinHandle<()> {
    let scene = scene.clone();
    thread::spawn(move || run(&scene))
}

/// Insert × insert: one brings the page in, and the other waits for it or finds it.
#[test]
fn two_threads_miss_one_page() {
    check(Some(5), &["busy", "found"], |seen| {
        let scene = Arc::new(Scene::new(1, 1, seen));
        let pin = |scene: &Scene| {
            let pin = scene.pin(PAGE, 5);
            assert_eq!(scene.read(pin), 5);
        };
        let other = beside(&scene, pin);
        pin(&scene);
        other.join().unwrap();
        assert_eq!(scene.brought_in.load(Ordering::Relaxed), 1);
        assert_eq!(scene.hit(PAGE), Some(5), "notified, it finds it");
        scene.holds(&[PAGE]);
    });
}

/// Read that keeps nothing × change and write-back: it reads what was there before, or after.
#[test]
fn a_read_that_keeps_nothing_meets_a_change() {
    check(None, &["before", "after", "there", "busy"], |seen| {
        let scene = Arc::new(Scene::new(1, 1, seen));
        let other = beside(&scene, |scene| {
            let pin = scene.pin(PAGE, 1);
            // Changed in its frame, and written back.
            // SAFETY: the page is in a frame, and nobody else writes it back.
            scene.device.with_mut(|device| unsafe { *device = 2 });
            scene.unpin(pin);
            scene.drop_page(PAGE);
        });
        scene.note(match scene.read_uncached(PAGE) {
            None => "there",
            Some(1) => "before",
            Some(2) => "after",
            other => panic!("{other:?}"),
        });
        other.join().unwrap();
        scene.holds(&[]);
    });
}

/// Insert × remove × lookup, in one place: a page is dropped, so the one beyond it is moved, and
/// one of the same tag comes in. Who looks without the lock finds its page or none.
#[test]
fn pages_of_one_place_come_and_go_under_a_lookup() {
    let happens = ["first missed", "first hit", "second missed", "second hit"];
    check(Some(3), &happens, |seen| {
        let scene = Arc::new(Scene::new(1, 3, seen));
        for (page, content) in [(NEIGHBOUR, 7), (TWINS[0], 1)] {
            let pin = scene.pin(page, content);
            scene.unpin(pin);
        }
        let named = TWINS.map(|page| scene.index.lookup(page));
        assert_eq!(named[0], named[1], "one tag");
        let dropper = beside(&scene, |scene| scene.drop_page(NEIGHBOUR));
        let inserter = beside(&scene, |scene| {
            let pin = scene.pin(TWINS[1], 2);
            assert_eq!(scene.read(pin), 2);
        });
        let reader = beside(&scene, |scene| {
            let first = scene.hit(TWINS[0]);
            assert!(first.is_none_or(|seen| seen == 1));
            scene.note(if first.is_some() { "first hit" } else { "first missed" });
            let second = scene.hit(TWINS[1]);
            assert!(second.is_none_or(|seen| seen == 2));
            scene.note(if second.is_some() { "second hit" } else { "second missed" });
        });
        for thread in [dropper, inserter, reader] {
            thread.join().unwrap();
        }
        for (page, content) in [(TWINS[0], 1), (TWINS[1], 2)] {
            let Lookup::Here(pin) = scene.look_up(page) else { panic!("it is there") };
            assert_eq!(scene.read(pin), content);
        }
        scene.holds(&TWINS);
    });
}

/// Pin × truncate: a hit reads the page that is dropped, or none, and never the one that has the
/// frame next. The frame is freed once, and gets that page once.
#[test]
fn hit_meets_drop_and_reuse() {
    let happens = ["hit", "missed", "freed by who unpins", "freed by who drops"];
    check(None, &happens, |seen| {
        let scene = Arc::new(Scene::new(2, 1, seen));
        // They have a lock each, or this hangs.
        drop((scene.shard(PAGE), scene.shard(ELSEWHERE)));
        let pin = scene.pin(PAGE, 1);
        scene.unpin(pin);
        let dropper = beside(&scene, |scene| {
            scene.drop_page(PAGE);
            scene.reuse(ELSEWHERE, 2);
        });
        let read = scene.hit(PAGE);
        assert!(read.is_none_or(|seen| seen == 1));
        scene.note(if read.is_some() { "hit" } else { "missed" });
        scene.reuse(ELSEWHERE, 2);
        dropper.join().unwrap();
        assert_eq!(scene.brought_in.load(Ordering::Relaxed), 2);
        scene.holds(&[ELSEWHERE]);
    });
}

/// Pin × truncate × insert: once the page was brought in again, nobody gets the one before.
#[test]
fn a_dropped_page_is_not_had_again() {
    check(Some(3), &["old", "new", "missed", "missed though new"], |seen| {
        let scene = Arc::new(Scene::new(1, 2, seen));
        let pin = scene.pin(PAGE, 1);
        scene.unpin(pin);
        let is_new = Arc::new(AtomicU32::new(0));
        let dropper = beside(&scene, |scene| scene.drop_page(PAGE));
        let inserter = {
            let is_new = is_new.clone();
            beside(&scene, move |scene| {
                let pin = scene.pin(PAGE, 2);
                // Relaxed, so that it orders nothing: who loads it may look at the index of before.
                is_new.store(u32::from(scene.read(pin) == 2), Ordering::Relaxed);
            })
        };
        let was_new = is_new.load(Ordering::Relaxed) == 1;
        let read = scene.hit(PAGE);
        scene.note(match (read, was_new) {
            (None, false) => "missed",
            (None, true) => "missed though new",
            (Some(2), _) => "new",
            (Some(1), false) => "old",
            _ => panic!("{read:?} after the page was brought in again: {was_new}"),
        });
        dropper.join().unwrap();
        inserter.join().unwrap();
        let is_new = is_new.load(Ordering::Relaxed) == 1;
        scene.holds(if is_new { &[PAGE] } else { &[] });
    });
}

/// Peek × reuse: the frame of a dirty page gets a clean one, which nobody takes for dirty.
#[test]
fn a_peeked_word_is_of_the_right_page() {
    check(None, &["seen", "missed"], |seen| {
        let scene = Arc::new(Scene::new(2, 1, seen));
        let pin = scene.pin(ELSEWHERE, 1);
        scene.unpin(pin);
        let generation = scene.shard(ELSEWHERE).begin_busy();
        let claim = scene.frames.try_change(FrameId(0), generation).unwrap();
        scene.frames.publish(claim, State::Dirty);
        let other = beside(&scene, |scene| {
            let word = scene.frames.peek_word(FrameId(0), PAGE);
            assert!(word.is_none_or(|word| word.state() == State::Clean), "{word:?}");
            scene.note(if word.is_some() { "seen" } else { "missed" });
        });
        scene.drop_page(ELSEWHERE);
        scene.reuse(PAGE, 2);
        other.join().unwrap();
        scene.holds(&[PAGE]);
    });
}

/// Pin × evict, as with the drop. And evict × evict: the one that comes later finds another page in
/// the frame than that from which it was to take it.
#[test]
fn hit_and_evict_meet_evict_and_reuse() {
    let happens = ["hit", "missed", "another page by now", "evicted", "not evicted"];
    check(None, &happens, |seen| {
        let scene = Arc::new(Scene::new(1, 1, seen));
        let pin = scene.pin(PAGE, 1);
        scene.unpin(pin);
        let frame = FrameId(0);
        let other = beside(&scene, move |scene| {
            let claim = scene.try_evict(frame);
            scene.free_frame(claim);
            scene.reuse(ELSEWHERE, 2);
        });
        let read = scene.hit(PAGE);
        assert!(read.is_none_or(|seen| seen == 1));
        scene.note(if read.is_some() { "hit" } else { "missed" });
        let claim = scene.try_evict(frame);
        scene.note(if claim.is_some() { "evicted" } else { "not evicted" });
        scene.free_frame(claim);
        other.join().unwrap();
        let there = |page: &PageKey| scene.shard(*page).frame().is_some();
        let pages: Vec<_> = [PAGE, ELSEWHERE].into_iter().filter(there).collect();
        scene.holds(&pages);
    });
}
