//! The segment under loom: who looks without the lock, while entries are moved.

use std::sync::atomic::AtomicBool as StdBool;

use unherd_sys::primitives::{Arc, Mutex, thread};

use super::*;

/// Three entries with one home, so that they lie in three slots in a row, around the end.
const TAGS: [u32; 3] = [0xc000_0001, 0xc000_0002, 0xc000_0003];

struct Scene {
    slots: [AtomicU64; 4],
    lock: Mutex<()>,
}

impl Scene {
    fn segment(&self) -> Segment<'_> {
        Segment::new(&self.slots, 0, SegmentSize::new(self.slots.len(), self.slots.len()))
    }

    /// A look-up as the cache makes it: nothing counts only under the lock. Gives the frame, and
    /// whether it took the lock to find it.
    fn look_up(&self, page: u32) -> (Option<FrameId>, bool) {
        if let Some(frame) = self.segment().lookup(TAGS[page as usize]) {
            return (Some(frame), false);
        }
        let _guard = self.lock.lock();
        (self.find(page).ok().map(|(_, frame)| frame), true)
    }

    /// The caller holds the lock. Frame and page have the same number.
    fn find(&self, page: u32) -> Result<(usize, FrameId), usize> {
        self.segment().find(TAGS[page as usize], |frame| frame.0 == page)
    }
}

/// An entry that stays is found, though others are taken out before it, and it is moved. Without
/// the lock it may be missed: if no execution shows that, the scene shows nothing.
#[test]
fn an_entry_is_moved_under_a_lookup() {
    static MISSED: StdBool = StdBool::new(false);
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let slots = [0; 4].map(AtomicU64::new);
        let scene = Arc::new(Scene { slots, lock: Mutex::new(()) });
        for page in 0..3 {
            let empty = scene.find(page).unwrap_err();
            scene.segment().insert(empty, TAGS[page as usize], FrameId(page));
        }
        let remover = {
            let scene = scene.clone();
            thread::spawn(move || {
                for page in 0..2 {
                    let _guard = scene.lock.lock();
                    let (at, _) = scene.find(page).unwrap();
                    scene.segment().remove(at);
                }
            })
        };
        // A thread of its own too, so that loom first runs it after the other: it then looks at
        // what the slots were before.
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || {
                let (stays, locked) = scene.look_up(2);
                assert_eq!(stays, Some(FrameId(2)));
                if locked {
                    MISSED.store(true, std::sync::atomic::Ordering::Relaxed);
                }
                let (taken_out, _) = scene.look_up(0);
                assert!(taken_out.is_none_or(|frame| frame.0 == 0));
            })
        };
        remover.join().unwrap();
        reader.join().unwrap();
        assert_eq!(scene.look_up(0), (None, true));
        assert_eq!(scene.look_up(2), (Some(FrameId(2)), false), "notified, it finds it");
    });
    assert!(MISSED.load(std::sync::atomic::Ordering::Relaxed));
}
