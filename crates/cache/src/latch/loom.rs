//! The latch under loom: what it guards is a cell, whose accesses loom checks.
#![expect(unsafe_code, reason = "a cell that the latch guards")]

use unherd_sys::primitives::{Arc, UnsafeCell, thread};

use super::*;

struct Scene {
    waits: WaitTable<WaitKey>,
    latch: RwLatch,
    guarded: UnsafeCell<u32>,
}

// SAFETY: `guarded` is read under the shared latch and written under the exclusive one; loom checks
// that this orders it.
unsafe impl Sync for Scene {}

impl Scene {
    fn read_shared(&self) -> u32 {
        self.latch.lock_shared(&self.waits, Reason::OTHER);
        let _shared = SharedGuard::new(&self.latch, &self.waits);
        // SAFETY: as above.
        self.guarded.with(|guarded| unsafe { *guarded })
    }

    fn write_exclusive(&self) {
        let _exclusive = ExclusiveGuard::new(&self.latch, &self.waits, Reason::OTHER);
        // SAFETY: as above.
        self.guarded.with_mut(|guarded| unsafe { *guarded += 1 });
    }
}

fn check(preemptions: usize, scene: impl Fn(Arc<Scene>) + Send + Sync + 'static) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(move || {
        let waits = WaitTable::<WaitKey>::builder().buckets(1).seed(1).build();
        let latch = RwLatch::default();
        scene(Arc::new(Scene { waits, latch, guarded: UnsafeCell::new(0) }));
    });
}

#[test]
fn shared_excludes_exclusive() {
    check(3, |scene| {
        let other = {
            let scene = scene.clone();
            thread::spawn(move || scene.write_exclusive())
        };
        assert!(scene.read_shared() <= 1);
        other.join().unwrap();
        assert_eq!(scene.read_shared(), 1);
    });
}

#[test]
fn exclusive_excludes_exclusive() {
    check(3, |scene| {
        let other = {
            let scene = scene.clone();
            thread::spawn(move || scene.write_exclusive())
        };
        scene.write_exclusive();
        other.join().unwrap();
        assert_eq!(scene.read_shared(), 2);
    });
}

/// A shared holder takes the latch once more while another waits to have it exclusively: neither
/// waits for ever, and the other has it when both are given back.
#[test]
fn shared_locks_again() {
    check(3, |scene| {
        let other = {
            let scene = scene.clone();
            thread::spawn(move || scene.write_exclusive())
        };
        {
            scene.latch.lock_shared(&scene.waits, Reason::OTHER);
            let outer = SharedGuard::new(&scene.latch, &scene.waits);
            scene.latch.lock_shared_again();
            let _inner = SharedGuard::new(&scene.latch, &scene.waits);
            drop(outer);
            // SAFETY: as above.
            assert!(scene.guarded.with(|guarded| unsafe { *guarded }) <= 1);
        }
        other.join().unwrap();
        assert_eq!(scene.read_shared(), 1);
    });
}
