//! Readers and writers.

use super::*;

struct Shared {
    lock: RawRwLock,
    value: UnsafeCell<u32>,
    barging: Duration,
}

// SAFETY: the value is guarded by the lock, as loom checks.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Self::with_barging(EVER)
    }

    fn with_barging(barging: Duration) -> Arc<Self> {
        Arc::new(Self { lock: RawRwLock::new(), value: UnsafeCell::new(0), barging })
    }

    fn read(&self, deadline: Deadline) -> Option<u32> {
        self.lock.read(deadline).then(|| self.read_locked())
    }

    /// Reads the value, and unlocks.
    fn read_locked(&self) -> u32 {
        // SAFETY: the lock is held.
        let value = self.value.with(|value| unsafe { *value });
        // SAFETY: by a reader.
        unsafe { self.lock.unlock_read() };
        value
    }

    fn write(&self, deadline: Deadline) -> bool {
        let locked = self.lock.write(self.barging, deadline);
        if locked {
            self.write_locked();
        }
        locked
    }

    /// Adds one, and unlocks.
    fn write_locked(&self) {
        // SAFETY: the lock is held.
        self.value.with_mut(|value| unsafe { *value += 1 });
        // SAFETY: by a writer.
        unsafe { self.lock.unlock_write(self.barging) };
    }
}

/// A writer keeps readers out, wakes those that wait, and shows them what it wrote.
fn reader_meets_writer(barging: Duration) {
    check(Some(3), move || {
        let shared = Shared::with_barging(barging);
        assert!(shared.lock.write(EVER, Deadline::NEVER));
        let reader = spawn(&shared, |shared| shared.read(Deadline::NEVER));
        shared.write_locked();
        assert_eq!(reader.join().unwrap(), Some(1));
        assert!(shared.lock.try_write());
    });
}

#[test]
fn reader_meets_the_end_of_a_write() {
    reader_meets_writer(EVER);
}

#[test]
fn reader_is_let_in_at_the_end_of_a_write() {
    reader_meets_writer(NEVER);
}

/// A writer that leaves wakes the first of two readers, which wakes the second; or it lets the
/// first in, and wakes the second.
fn two_readers_meet_a_writer(barging: Duration) {
    check(Some(2), move || {
        let shared = Shared::with_barging(barging);
        assert!(shared.lock.write(EVER, Deadline::NEVER));
        let readers = [(); 2].map(|()| spawn(&shared, |shared| shared.read(Deadline::NEVER)));
        shared.write_locked();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Some(1));
        }
        assert!(shared.lock.try_write());
    });
}

#[test]
fn second_reader_is_woken_by_the_first() {
    two_readers_meet_a_writer(EVER);
}

#[cfg(not(model_yield))] // Sleepers that yield to each other go on for ever in loom.
#[test]
fn second_reader_is_woken_after_one_was_let_in() {
    two_readers_meet_a_writer(Duration::from_nanos(1));
}

/// A writer waits for the last of two readers, and what they have read comes before its change.
#[test]
fn writer_meets_the_last_reader() {
    check(Some(3), || {
        let shared = Shared::new();
        assert!(shared.lock.try_read() && shared.lock.try_read());
        let reader = spawn(&shared, |shared| shared.read_locked());
        let mine = shared.read_locked();
        assert!(shared.write(Deadline::NEVER));
        assert_eq!((mine, reader.join().unwrap()), (0, 0));
        assert!(shared.lock.try_read());
    });
}

/// The same, asleep: the reader's end wakes the writer.
#[test]
fn last_reader_wakes_the_writer() {
    check(Some(3), || {
        let shared = Shared::new();
        assert!(shared.lock.try_read());
        let writer = spawn(&shared, |shared| shared.write(Deadline::NEVER));
        assert_eq!(shared.read_locked(), 0);
        assert!(writer.join().unwrap());
        assert!(shared.lock.try_write());
    });
}

#[test]
fn try_write_sees_what_was_read() {
    check(Some(3), || {
        let shared = Shared::new();
        assert!(shared.lock.try_read());
        let reader = spawn(&shared, |shared| shared.read_locked());
        if shared.lock.try_write() {
            shared.write_locked();
        }
        assert_eq!(reader.join().unwrap(), 0);
    });
}

/// A writer that gives up lets those in that it has kept out.
#[test]
fn writer_that_gives_up_lets_readers_in() {
    check(Some(3), || {
        let shared = Shared::new();
        assert!(shared.lock.try_read());
        let writer = spawn(&shared, |shared| shared.write(past()));
        assert_eq!(shared.read(Deadline::NEVER), Some(0));
        assert!(!writer.join().unwrap(), "a reader is in");
        assert_eq!(shared.read_locked(), 0);
        assert!(shared.lock.try_write());
    });
}

/// A reader that gives up is not counted.
#[test]
fn reader_that_gives_up_meets_the_end_of_a_write() {
    check(Some(3), || {
        let shared = Shared::new();
        assert!(shared.lock.try_write());
        let reader = spawn(&shared, |shared| shared.read(past()));
        shared.write_locked();
        assert!([None, Some(1)].contains(&reader.join().unwrap()));
        assert!(shared.lock.try_write());
    });
}

/// A reader sees what was written before the writer became one, whether it has waited or not.
#[test]
fn reader_meets_a_downgrade() {
    check(Some(3), || {
        let shared = Shared::new();
        assert!(shared.lock.write(EVER, Deadline::NEVER));
        let reader = spawn(&shared, |shared| shared.read(Deadline::NEVER));
        // SAFETY: the lock is held.
        shared.value.with_mut(|value| unsafe { *value += 1 });
        // SAFETY: by a writer.
        unsafe { shared.lock.downgrade(EVER) };
        assert!(!shared.lock.try_write(), "no writer comes between");
        assert_eq!(shared.read_locked(), 1);
        assert_eq!(reader.join().unwrap(), Some(1));
        assert!(shared.lock.try_write());
    });
}

/// A reader that waits is let in before the next writer, or comes before it or after it.
#[cfg(not(model_yield))] // Sleepers that yield to each other go on for ever in loom.
fn reader_between_writers(barging: Duration) {
    check(Some(2), move || {
        let shared = Shared::with_barging(barging);
        let writer = spawn(&shared, |shared| shared.write(Deadline::NEVER));
        let reader = spawn(&shared, |shared| shared.read(Deadline::NEVER));
        assert!(shared.write(Deadline::NEVER));
        assert!(reader.join().unwrap().is_some());
        assert!(writer.join().unwrap());
        assert!(shared.lock.try_read());
        assert_eq!(shared.read_locked(), 2);
    });
}

#[cfg(not(model_yield))] // As above.
#[test]
fn two_writers_and_a_reader() {
    reader_between_writers(EVER);
}

#[cfg(not(model_yield))] // As above.
#[test]
fn two_writers_and_a_reader_that_is_let_in() {
    reader_between_writers(NEVER);
}
