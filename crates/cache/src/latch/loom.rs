//! The latch under loom: what it guards is a cell, whose accesses loom checks.
#![expect(unsafe_code, reason = "a cell that the latch guards")]

use unherd_sys::primitives::{Arc, UnsafeCell, thread};

use super::*;

struct Scene {
    waits: WaitTable<WaitKey>,
    latch: Latch,
    guarded: UnsafeCell<u32>,
}

// SAFETY: `guarded` is read inside the latch and written alone; loom checks that this orders it.
unsafe impl Sync for Scene {}

impl Scene {
    fn read_inside(&self) -> u32 {
        self.latch.enter(&self.waits, Reason::OTHER);
        let _inside = InsideGuard::new(&self.latch, &self.waits);
        // SAFETY: as above.
        self.guarded.with(|guarded| unsafe { *guarded })
    }

    fn write_alone(&self) {
        let _alone = AloneGuard::new(&self.latch, &self.waits, Reason::OTHER);
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
        let latch = Latch::default();
        scene(Arc::new(Scene { waits, latch, guarded: UnsafeCell::new(0) }));
    });
}

#[test]
fn inside_excludes_alone() {
    check(3, |scene| {
        let other = {
            let scene = scene.clone();
            thread::spawn(move || scene.write_alone())
        };
        assert!(scene.read_inside() <= 1);
        other.join().unwrap();
        assert_eq!(scene.read_inside(), 1);
    });
}

#[test]
fn alone_excludes_alone() {
    check(3, |scene| {
        let other = {
            let scene = scene.clone();
            thread::spawn(move || scene.write_alone())
        };
        scene.write_alone();
        other.join().unwrap();
        assert_eq!(scene.read_inside(), 2);
    });
}

/// One inside enters again while another waits for it to leave: neither waits for ever, and the
/// other is not alone before both are over.
#[test]
fn inside_enters_again() {
    check(3, |scene| {
        let other = {
            let scene = scene.clone();
            thread::spawn(move || scene.write_alone())
        };
        {
            scene.latch.enter(&scene.waits, Reason::OTHER);
            let outer = InsideGuard::new(&scene.latch, &scene.waits);
            scene.latch.enter_again();
            let _inner = InsideGuard::new(&scene.latch, &scene.waits);
            drop(outer);
            // SAFETY: as above.
            assert!(scene.guarded.with(|guarded| unsafe { *guarded }) <= 1);
        }
        other.join().unwrap();
        assert_eq!(scene.read_inside(), 1);
    });
}
