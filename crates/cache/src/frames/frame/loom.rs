//! The word of a frame under loom: a cell stands for the memory that a pin or a claim gives, whose
//! accesses loom checks, and two atomics for what is read while it may be written.
#![expect(unsafe_code, reason = "a cell that the word guards")]

use unherd_sys::primitives::{Arc, Mutex, UnsafeCell, thread};

use super::*;

const FRAME: FrameId = FrameId(0);
const GENERATION: BusyGeneration = BusyGeneration(0);

fn key(page: u32) -> PageKey {
    PageKey { file: FileId(1), page: PageNo(u64::from(page)) }
}

/// One frame, with page 1 in it.
struct Scene {
    frames: Frames,
    memory: UnsafeCell<u32>,
    racy: [AtomicU32; 2],
    /// Stored after all else by one thread, and loaded before all else by the other, both Relaxed:
    /// it orders nothing. But it makes loom try the case that the one comes first as a whole, which
    /// it forgets where that one loads a word just before it changes it.
    late: AtomicU32,
}

// SAFETY: `memory` is written under a claim and read under a pin or a loan; loom checks that this
// orders it.
unsafe impl Sync for Scene {}

impl Scene {
    fn new() -> (Self, Claim) {
        let (frames, mut claims) = Frames::new(1).unwrap();
        let racy = [AtomicU32::new(1), AtomicU32::new(1)];
        let late = AtomicU32::new(0);
        let scene = Self { frames, memory: UnsafeCell::new(1), racy, late };
        scene.frames.install(&claims[0], key(1), State::Reading, GENERATION);
        (scene, claims.pop().unwrap())
    }

    fn clean() -> Self {
        let (scene, claim) = Self::new();
        scene.frames.publish(claim, State::Clean);
        scene
    }

    fn dirty() -> Self {
        let (scene, claim) = Self::new();
        scene.frames.publish(claim, State::Dirty);
        scene
    }

    fn read(&self, _pin: &Pin) -> u32 {
        // SAFETY: a pin.
        self.memory.with(|memory| unsafe { *memory })
    }

    fn device_reads(&self, _lent: &Lent) -> u32 {
        // SAFETY: a loan.
        self.memory.with(|memory| unsafe { *memory })
    }

    fn write(&self, claim: &mut Claim, value: u32) {
        claim.begin_write();
        // SAFETY: a claim.
        self.memory.with_mut(|memory| unsafe { *memory = value });
        for word in &self.racy {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Gives a pin back; whether this thread frees the frame, which then is its alone.
    fn unpin(&self, pin: Pin) -> bool {
        let before = self.frames.unpin(pin);
        self.is_freed_after(before)
    }

    fn is_freed_after(&self, before: Word) -> bool {
        if before.pins() > 1 || before.state() != State::Detached {
            return false;
        }
        let freed = self.frames.free_detached(FRAME);
        freed.is_some_and(|mut claim| {
            self.write(&mut claim, 3);
            true
        })
    }

    /// As a hit does: what the page holds, if it is the page, and whether this thread frees it.
    fn hit(&self, page: u32) -> (Option<u32>, bool) {
        match self.frames.try_hit(FRAME, key(page)).map(|hit| hit.pin) {
            Ok(pin) => {
                let seen = self.read(&pin);
                assert_eq!(self.read(&pin), seen, "a pinned page stays as it is");
                (Some(seen), self.unpin(pin))
            }
            Err(before) => (None, self.is_freed_after(before)),
        }
    }

    /// What both words hold, if nobody wrote meanwhile.
    fn peek(&self, page: u32) -> Option<[u32; 2]> {
        let look = self.frames.begin_peek(FRAME, key(page))?;
        let seen = self.racy.each_ref().map(|word| word.load(Ordering::Relaxed));
        look.is_unchanged().then_some(seen)
    }

    fn evict_and_reuse(&self) {
        if let Ok(mut claim) = self.frames.evict(FRAME) {
            self.frames.install(&claim, key(2), State::Reading, GENERATION);
            self.write(&mut claim, 2);
            self.frames.publish(claim, State::Clean);
        }
    }

    fn change(&self, value: u32) {
        if let Ok(mut claim) = self.frames.try_change(FRAME, GENERATION) {
            self.write(&mut claim, value);
            self.frames.publish(claim, State::Dirty);
        }
    }

    /// As `overwrite.rs` does; whether it has.
    fn change_again(&self, value: u32, may_change: impl FnOnce() -> bool) -> bool {
        let claim = self.frames.try_change_again(FRAME, key(1), may_change);
        claim.is_some_and(|mut claim| {
            self.write(&mut claim, value);
            self.frames.publish(claim, State::Dirty);
            true
        })
    }

    fn word_at_rest(&self, state: State) {
        let word = self.frames.word(FRAME);
        assert_eq!((word.pins(), word.state()), (0, state));
    }
}

fn check(scene: impl Fn() + Send + Sync + 'static) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 20_000;
    model.check(scene);
}

/// Runs `scene` with a clean page, beside a thread that runs `other`.
fn check_beside(other: fn(&Scene), scene: fn(&Scene)) {
    check(move || {
        let shared = Arc::new(Scene::clean());
        let beside = {
            let shared = shared.clone();
            thread::spawn(move || {
                other(&shared);
                shared.late.store(1, Ordering::Relaxed);
            })
        };
        let _ = shared.late.load(Ordering::Relaxed);
        scene(&shared);
        beside.join().unwrap();
        assert_eq!(shared.frames.word(FRAME).pins(), 0);
    });
}

#[test]
fn hit_meets_evict_and_reuse() {
    check_beside(Scene::evict_and_reuse, |scene| {
        let (seen, freed) = scene.hit(1);
        assert!(seen.is_none_or(|seen| seen == 1) && !freed);
    });
}

#[test]
fn hit_of_the_next_page_meets_evict_and_reuse() {
    check_beside(Scene::evict_and_reuse, |scene| {
        let (seen, _) = scene.hit(2);
        assert!(seen.is_none_or(|seen| seen == 2));
    });
}

#[test]
fn hit_meets_change() {
    check_beside(
        |scene| scene.change(2),
        |scene| {
            let (seen, _) = scene.hit(1);
            assert!(seen.is_none_or(|seen| seen == 1 || seen == 2));
        },
    );
}

#[test]
fn hit_meets_the_end_of_a_read() {
    check(|| {
        let (scene, mut claim) = Scene::new();
        let scene = Arc::new(scene);
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || scene.hit(1).0)
        };
        scene.write(&mut claim, 5);
        let pin = scene.frames.publish_pinned(claim, State::Clean);
        assert_eq!(scene.read(&pin), 5);
        scene.unpin(pin);
        assert!(reader.join().unwrap().is_none_or(|seen| seen == 5));
        scene.word_at_rest(State::Clean);
    });
}

#[test]
fn two_hits_meet_detach() {
    check(|| {
        let scene = Arc::new(Scene::clean());
        let readers = [0, 1].map(|_| {
            let scene = scene.clone();
            thread::spawn(move || {
                let (seen, freed) = scene.hit(1);
                assert!(seen.is_none_or(|seen| seen == 1));
                freed
            })
        });
        let mut freed = 0;
        if let Some(mut claim) = scene.frames.detach(FRAME).unwrap().1 {
            scene.write(&mut claim, 2);
            freed += 1;
        }
        for reader in readers {
            freed += u32::from(reader.join().unwrap());
        }
        assert_eq!(freed, 1, "a detached frame is freed once");
        scene.word_at_rest(State::Empty);
    });
}

/// Two frames, the second for a copy of the page in the first.
fn with_copy(scene: &mut Scene, state: State) -> Claim {
    let (frames, mut claims) = Frames::new(2).unwrap();
    let claim = claims.pop().unwrap();
    assert_eq!(claim.id(), FRAME);
    frames.install(&claim, key(1), State::Reading, GENERATION);
    frames.publish(claim, state);
    scene.frames = frames;
    claims.pop().unwrap()
}

#[test]
fn hit_meets_copy_on_write() {
    check(|| {
        let mut scene = Scene::clean();
        let mut copy = with_copy(&mut scene, State::Clean);
        let scene = Arc::new(scene);
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || scene.hit(1))
        };
        let copied = scene.frames.replace(FRAME, &mut copy, key(1), GENERATION).unwrap();
        // The one who copies the page may be the last to have it.
        assert_eq!(scene.read(&copied), 1);
        let mut freed = u32::from(scene.unpin(copied));
        let (seen, freed_by_reader) = reader.join().unwrap();
        assert!(seen.is_none_or(|seen| seen == 1));
        freed += u32::from(freed_by_reader);
        assert_eq!(freed, 1, "a replaced frame is freed once");
        assert!(!scene.frames.word(copy.id()).is_awaiting_older_writeback());
    });
}

/// A copy takes the page's place while its write-back ends: the old frame is freed once, and the
/// copy is behind no longer than that lasts.
#[test]
fn copy_on_write_meets_the_end_of_a_write_back() {
    check(|| {
        let mut scene = Scene::clean();
        let mut copy = with_copy(&mut scene, State::Dirty);
        let lent = scene.frames.lend(FRAME, GENERATION).unwrap();
        // Stands for the shard lock, and for what the index has in it.
        let index = Mutex::new(FRAME);
        let shared = Arc::new((scene, index));
        let device = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (scene, index) = &*shared;
                assert_eq!(scene.device_reads(&lent), 1);
                let word = scene.frames.give_back(lent, Some(4));
                if word.state() != State::Detached {
                    return 0;
                }
                let now = index.lock();
                scene.frames.set_awaiting_older_writeback(*now, false);
                drop(now);
                let freed = scene.frames.free_detached(FRAME);
                freed.map_or(0, |mut claim| {
                    scene.write(&mut claim, 3);
                    1
                })
            })
        };
        let (scene, index) = &*shared;
        let mut now = index.lock();
        let copied = scene.frames.replace(FRAME, &mut copy, key(1), GENERATION).unwrap();
        *now = copy.id();
        drop(now);
        let copy_id = copy.id();
        assert_eq!(scene.read(&copied), 1);
        scene.frames.publish(copy, State::Dirty);
        let mut freed = u32::from(scene.unpin(copied));
        freed += device.join().unwrap();
        assert_eq!(freed, 1, "a superseded frame is freed once");
        assert!(scene.frames.lend(copy_id, GENERATION).is_ok(), "behind for ever");
    });
}

#[test]
fn hit_meets_give_back_and_change() {
    check(|| {
        let scene = Scene::dirty();
        let lent = scene.frames.lend(FRAME, GENERATION).unwrap();
        let scene = Arc::new(scene);
        let device = {
            let scene = scene.clone();
            thread::spawn(move || {
                assert_eq!(scene.device_reads(&lent), 1);
                scene.frames.give_back(lent, Some(4));
            })
        };
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.change(2))
        };
        let (seen, _) = scene.hit(1);
        assert!(seen.is_none_or(|seen| seen == 1 || seen == 2));
        device.join().unwrap();
        writer.join().unwrap();
        assert_eq!(scene.frames.word(FRAME).pins(), 0);
    });
}

/// Two threads take back what was no hit, while a third moves the hits out of the word.
#[test]
fn undone_hits_meet_a_fold() {
    check(|| {
        let scene = Scene::clean();
        let many = (HITS_FOLDED - 2) * HIT;
        let version = scene.frames.word(FRAME);
        let _ = scene.frames.frames[0].word.fetch_add(many, Ordering::Relaxed);
        let scene = Arc::new(scene);
        let others = [0, 1].map(|_| {
            let scene = scene.clone();
            thread::spawn(move || assert_eq!(scene.hit(7), (None, false)))
        });
        assert_eq!(scene.hit(1), (Some(1), false));
        for other in others {
            other.join().unwrap();
        }
        let word = scene.frames.word(FRAME);
        assert!(word.is_unchanged_since(version), "{word:x?}");
        assert_eq!(scene.frames.hits(), HITS_FOLDED - 1);
    });
}

#[test]
fn changes_of_a_dirty_page_exclude_each_other() {
    check(|| {
        let scene = Arc::new(Scene::dirty());
        let others = [2, 3].map(|value| {
            let scene = scene.clone();
            thread::spawn(move || scene.change_again(value, || true))
        });
        let (seen, _) = scene.hit(1);
        assert!(seen.is_none_or(|seen| (1..=3).contains(&seen)));
        for other in others {
            other.join().unwrap();
        }
        scene.word_at_rest(State::Dirty);
    });
}

/// The word is the same before the pin and after it, as the page has all marks of use.
#[test]
fn change_of_a_dirty_page_meets_a_pin() {
    check(|| {
        let scene = Arc::new(Scene::dirty());
        for _ in 0..2 {
            scene.unpin(scene.frames.try_pin(FRAME).unwrap());
        }
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || {
                if let Ok(pin) = scene.frames.try_pin(FRAME) {
                    assert!([1, 2].contains(&scene.read(&pin)));
                    scene.unpin(pin);
                }
                scene.late.store(1, Ordering::Relaxed);
            })
        };
        let _ = scene.late.load(Ordering::Relaxed);
        scene.change_again(2, || true);
        reader.join().unwrap();
        scene.word_at_rest(State::Dirty);
    });
}

/// The page is written back and given up, and the frame gets another page, which becomes dirty too.
#[test]
fn change_of_a_dirty_page_meets_its_write_back_and_reuse() {
    check(|| {
        let scene = Arc::new(Scene::dirty());
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || {
                let has_changed = scene.change_again(5, || true);
                scene.late.store(1, Ordering::Relaxed);
                has_changed
            })
        };
        let _ = scene.late.load(Ordering::Relaxed);
        let mut written = None;
        if let Ok(lent) = scene.frames.lend(FRAME, GENERATION) {
            written = Some(scene.device_reads(&lent));
            scene.frames.give_back(lent, Some(4));
            scene.evict_and_reuse();
            scene.change(6);
        }
        let has_changed = writer.join().unwrap();
        match written {
            Some(value) => {
                assert_eq!((value, scene.hit(2).0), (1 + 4 * u32::from(has_changed), Some(6)))
            }
            None => assert_eq!((has_changed, scene.hit(1).0), (true, Some(5))),
        }
    });
}

/// The file is cut, and grows again: the page is dropped, and comes back into the same frame.
#[test]
fn change_of_a_dirty_page_meets_a_cut_of_its_file() {
    check(|| {
        let scene = Arc::new((Scene::dirty(), AtomicU32::new(1)));
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || {
                let (scene, len) = &*scene;
                scene.change_again(5, || len.load(Ordering::Acquire) == 1);
                scene.late.store(1, Ordering::Relaxed);
            })
        };
        let (cut, len) = &*scene;
        let _ = cut.late.load(Ordering::Relaxed);
        len.store(0, Ordering::Release);
        let dropped = loop {
            match cut.frames.detach(FRAME) {
                Ok((_, claim)) => break claim,
                Err(_) => thread::yield_now(),
            }
        };
        let mut claim = dropped.expect("nobody has pinned it");
        cut.frames.install(&claim, key(1), State::Changing, GENERATION);
        cut.write(&mut claim, 7);
        cut.frames.publish(claim, State::Dirty);
        writer.join().unwrap();
        assert_eq!(cut.hit(1).0, Some(7), "a write from before the cut");
    });
}

#[test]
fn peek_meets_change() {
    check_beside(
        |scene| scene.change(2),
        |scene| {
            if let Some([first, second]) = scene.peek(1) {
                assert_eq!(first, second, "torn");
            }
        },
    );
}

#[test]
fn peek_meets_evict_and_reuse() {
    check_beside(Scene::evict_and_reuse, |scene| {
        assert!(scene.peek(1).is_none_or(|seen| seen == [1, 1]));
    });
}

#[test]
fn peek_of_the_next_page_meets_evict_and_reuse() {
    check_beside(Scene::evict_and_reuse, |scene| {
        assert!(scene.peek(2).is_none_or(|seen| seen == [2, 2]));
    });
}

/// Two changes: what the first has published is whole, though the second has begun.
#[test]
fn peek_meets_two_changes() {
    check_beside(
        |scene| {
            scene.change(2);
            scene.change(3);
        },
        |scene| {
            if let Some([first, second]) = scene.peek(1) {
                assert_eq!(first, second, "torn");
            }
        },
    );
}

/// As `holds.rs` does it: one publishes a change that is held, another releases it. The page does
/// not stay held.
#[test]
fn a_release_meets_a_held_change() {
    check(|| {
        let scene = Arc::new((Scene::clean(), Mutex::new(true)));
        let releasing = {
            let scene = scene.clone();
            thread::spawn(move || {
                let (scene, entry) = &*scene;
                let mut entry = entry.lock();
                *entry = false;
                scene.frames.release(FRAME);
            })
        };
        let (scene, entry) = &*scene;
        let claim = scene.frames.try_change(FRAME, GENERATION).expect("nobody else has it");
        let is_held = entry.lock();
        scene.frames.publish(claim, if *is_held { State::Held } else { State::Dirty });
        drop(is_held);
        releasing.join().unwrap();
        scene.word_at_rest(State::Dirty);
    });
}
