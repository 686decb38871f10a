//! Something that is done once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;

struct Shared {
    once: Once,
    value: UnsafeCell<u32>,
}

// SAFETY: the value is written by who does it, and read when it is done, as loom checks.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self { once: Once::new(), value: UnsafeCell::new(0) })
    }

    fn add(&self) {
        // SAFETY: this thread does it.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: it is done.
        self.value.with(|value| unsafe { *value })
    }

    fn call(&self) -> u32 {
        self.once.call_once(|| self.add());
        self.get()
    }

    /// Begins it, and panics.
    fn panic(&self) {
        let run = || {
            self.add();
            resume_unwind(Box::new("the scene's own panic"));
        };
        // Another may have done it.
        let _panic = catch_unwind(AssertUnwindSafe(|| self.once.call_once(run)));
    }
}

#[test]
fn once_runs_once_and_publishes() {
    check(Some(3), || {
        let shared = Shared::new();
        let other = spawn(&shared, Shared::call);
        assert_eq!(shared.call(), 1);
        assert_eq!(other.join().unwrap(), 1);
    });
}

/// The next does it, and sees what the one has written that a panic has ended.
#[test]
fn once_that_panics_is_done_by_the_next() {
    check(Some(4), || {
        let shared = Shared::new();
        let panics = spawn(&shared, Shared::panic);
        assert!(shared.call() >= 1);
        panics.join().unwrap();
        assert!(shared.once.is_done());
    });
}

/// All that wait go on.
#[cfg(not(model_yield))] // Sleepers that yield to each other go on for ever in loom.
#[test]
fn once_wakes_all() {
    check(Some(2), || {
        let shared = Shared::new();
        let others = [(); 2].map(|()| spawn(&shared, Shared::call));
        assert_eq!(shared.call(), 1);
        others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), 1));
    });
}

#[test]
fn who_gives_up_meets_the_end_of_once() {
    check(Some(4), || {
        let shared = Shared::new();
        let other = spawn(&shared, Shared::call);
        match shared.once.call_once_until(|| shared.add(), past()) {
            Ok(()) => assert_eq!(shared.get(), 1),
            Err(crate::TimedOut) => {}
        }
        assert_eq!(other.join().unwrap(), 1);
    });
}
