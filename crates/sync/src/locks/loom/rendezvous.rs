//! Latches and barriers.

use super::*;

struct Shared {
    latch: Latch,
    barrier: Barrier,
    values: [UnsafeCell<u32>; 2],
}

// SAFETY: a value is written by one thread before it has come, and read by others after that, as
// loom checks.
unsafe impl Sync for Shared {}

impl Shared {
    /// For two.
    fn new() -> Arc<Self> {
        let values = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Arc::new(Self { latch: Latch::new(2), barrier: Barrier::new(2), values })
    }

    fn add(&self, index: usize) {
        // SAFETY: this thread's, until it has come.
        self.values[index].with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self, index: usize) -> u32 {
        // SAFETY: its thread has come, and the next has not yet.
        self.values[index].with(|value| unsafe { *value })
    }
}

#[test]
fn latch_opens_with_the_last_count() {
    check(Some(3), || {
        let shared = Shared::new();
        let others = [0, 1].map(|index| {
            spawn(&shared, move |shared| {
                shared.add(index);
                shared.latch.count_down()
            })
        });
        shared.latch.wait();
        assert_eq!([shared.get(0), shared.get(1)], [1, 1]);
        let opened = others.map(|other| other.join().unwrap());
        assert!(opened[0] != opened[1] && !shared.latch.count_down());
    });
}

/// Both see what the other has written, again and again, and one of them leads.
#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn barrier_lets_both_go_on_again_and_again() {
    check(Some(2), || {
        let shared = Shared::new();
        let turns = |shared: &Shared, mine: usize| {
            shared.add(mine);
            let led = shared.barrier.wait();
            assert_eq!(shared.get(1 - mine), 1);
            let led = [led, shared.barrier.wait()];
            shared.add(mine);
            led
        };
        let other = spawn(&shared, move |shared| turns(shared, 1));
        let led = turns(&shared, 0);
        assert_eq!(led, other.join().unwrap().map(|led| !led));
    });
}

/// One that gives up has not come; or both have.
#[test]
fn barrier_arrival_that_gives_up_is_taken_back() {
    check(Some(4), || {
        let shared = Shared::new();
        let other = spawn(&shared, |shared| {
            shared.add(1);
            shared.barrier.wait()
        });
        match shared.barrier.wait_until(past()) {
            Ok(_) => assert_eq!(shared.get(1), 1),
            // The other waits still, or comes.
            Err(crate::TimedOut) => drop(shared.barrier.wait()),
        }
        other.join().unwrap();
        assert_eq!(shared.get(1), 1);
    });
}
