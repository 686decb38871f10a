//! A reader-writer lock: a mutex for the writers, and a word that counts the readers.
//!
//! | bits of the word | meaning | changed by |
//! |---|---|---|
//! | WRITER | a writer is in or waits for readers; none comes in | the holder of the gate |
//! | PARKED | a reader may be queued | a reader about to queue; cleared with WRITER |
//! | the rest | how many readers hold the lock | readers; a writer that lets readers in |
//!
//! Writers hold the mutex, the *gate*, from before WRITER is set until after it was cleared.
//! Readers and writers take turns (*phases*), so neither side starves: a writer lets in no reader
//! that comes after it, and waits for those that are in; when it leaves, all readers that have
//! waited go first. A queued reader waits for one writer, a writer for the readers of one phase;
//! among writers the gate decides, with its bound on barging.
//!
//! - **RW1** The writer writes, and readers read, only in their phase: WRITER is set and no reader
//!   counted, or a reader is counted that came while WRITER was clear.
//! - **RW2** PARKED is set while WRITER is, and cleared with it. So a reader that is queued was
//!   queued for a writer whose end sees PARKED.
//! - **RW3** The writer that ends counts itself as a reader while it lets the others in, each of
//!   which is counted under the bucket lock before it is woken. It holds the gate as long. So no
//!   writer comes between, and a reader that is given HANDED_OVER holds the lock.
//!
//! ```text
//!  reader                                   writer that ends
//!  ------                                   ----------------
//!  CAS: set PARKED beside WRITER            swap WRITER and PARKED for a reader
//!  lock bucket; fence (A)                   fence (B); look at the bucket
//!  validate: are both set still?            lock it: count and wake each reader that is there
//!  push; unlock bucket
//! ```
//!
//! Excluded: that a reader sleeps for a writer that has ended, by the wait table's race, whose
//! condition the word is. For the writer that waits for the last reader it is the same:
//!
//! ```text
//!  writer                                   last reader
//!  ------                                   -----------
//!  set WRITER                               count itself out: WRITER is set, nobody is left
//!  lock bucket of `writer`; fence (A)       fence (B); look at the bucket
//!  validate: is anybody left?               wake the writer that is there
//!  push; unlock bucket
//! ```
#![expect(unsafe_code, reason = "an unlock is unsafe: only the holder may")]

use std::ptr;
use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU32, Ordering};

use super::raw_mutex::{HANDED_OVER, RawMutex};
use super::table::{Address, locks};
use crate::{Outcome, Tag, Verdict, Wait};

const WRITER: u32 = 1;
const PARKED: u32 = 2;
const BOTH: u32 = WRITER | PARKED;
/// One reader.
const READER: u32 = 4;
/// Far more than threads.
const TOO_MANY: u32 = u32::MAX / 2;

/// A reader-writer lock without a value: [`RwLock`](super::RwLock) has one. Without the feature
/// `lock_api` it can only be made; with it, it implements `lock_api::RawRwLock`, by which it is
/// locked.
///
/// Eight bytes, of debug builds apart.
#[derive(Debug)]
pub struct RawRwLock {
    /// Relaxed loads of it only look; the lock orders by what is marked below.
    word: AtomicU32,
    gate: RawMutex,
}

impl Default for RawRwLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RawRwLock {
    /// An unlocked lock.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0), gate: RawMutex::new() }
    }

    /// An unlocked lock.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0), gate: RawMutex::new() }
    }

    /// Locks it for a reader, unless a writer holds it or waits for it.
    #[inline]
    pub(super) fn try_read(&self) -> bool {
        let mut state = self.word.load(Ordering::Relaxed);
        while state & WRITER == 0 {
            assert!(state < TOO_MANY, "too many readers: were their guards forgotten?");
            // ORDER[RWLOCK]: Acquire; pairs with the Releases in `unlock_write` and `downgrade`.
            // What the last writer wrote is seen.
            let order = Ordering::Acquire;
            match self.word.compare_exchange(state, state + READER, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Locks it for a reader; false if the deadline came first.
    #[inline]
    #[track_caller]
    pub(super) fn read(&self, deadline: Deadline) -> bool {
        self.try_read() || self.read_slow(deadline)
    }

    #[cold]
    #[track_caller]
    fn read_slow(&self, deadline: Deadline) -> bool {
        self.gate.check_owner("rwlock");
        let how = Wait::new(locks().rwlock).deadline(deadline);
        // Both: the next writer's end would not see a PARKED that this one's has cleared (RW2).
        let expected = || self.word.load(Ordering::Relaxed) & BOTH == BOTH;
        loop {
            if self.try_read() {
                return true;
            }
            if !self.set_parked() {
                continue;
            }
            match locks().wait(&self.readers(), expected, how) {
                Outcome::Woken(HANDED_OVER) => return true, // RW3
                // Or a wake of another queue that had this address before.
                Outcome::Invalid | Outcome::Woken(_) => {}
                Outcome::TimedOut => return false,
            }
        }
    }

    /// Sets PARKED, if WRITER is set.
    fn set_parked(&self) -> bool {
        let parked = |state: u32| (state & WRITER != 0).then_some(state | PARKED);
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, parked).is_ok()
    }

    /// Unlocks it for a reader.
    ///
    /// # Safety
    /// The caller is one.
    #[inline]
    pub(super) unsafe fn unlock_read(&self) {
        let writer = self.writer();
        // ORDER[RWLOCK-read]: Release; pairs with the Acquires in `write`, `try_write` and `drain`.
        // All reads come before what the next writer writes.
        let before = self.word.fetch_sub(READER, Ordering::Release);
        if before & !PARKED == READER | WRITER {
            locks().wake(&writer, 1);
        }
    }

    /// Where the holder of the gate waits for the last reader: a byte that no other queue has.
    pub(super) fn writer(&self) -> Address {
        Address::of(ptr::from_ref(&self.word).cast::<u8>().wrapping_add(1))
    }

    /// Whether anybody holds it, or did just now.
    #[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
    pub(super) fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Where writers wait for each other.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn gate(&self) -> &RawMutex {
        &self.gate
    }

    /// Where readers wait.
    pub(super) fn readers(&self) -> Address {
        Address::of(&self.word)
    }

    /// Locks it for a writer, unless others hold it.
    #[inline]
    pub(super) fn try_write(&self, barging: Duration) -> bool {
        if !self.gate.try_lock() {
            return false;
        }
        // ORDER[RWLOCK-read]: Acquire; pairs with the Release in `unlock_read`.
        let order = Ordering::Acquire;
        let taken = self.word.compare_exchange(0, WRITER, order, Ordering::Relaxed).is_ok();
        if !taken {
            // SAFETY: it was locked just now.
            unsafe { self.gate.unlock(barging) };
        }
        taken
    }

    /// Locks it for a writer; false if the deadline came first.
    #[inline]
    #[track_caller]
    pub(super) fn write(&self, barging: Duration, deadline: Deadline) -> bool {
        if !self.gate.lock(barging, deadline) {
            return false;
        }
        // ORDER[RWLOCK-read]: Acquire; pairs with the Release in `unlock_read`.
        let before = self.word.fetch_or(WRITER, Ordering::Acquire);
        before < READER || self.drain(barging, deadline)
    }

    /// Waits for the readers that are in, with WRITER set. At the deadline it gives up.
    #[cold]
    fn drain(&self, barging: Duration, deadline: Deadline) -> bool {
        let how = Wait::new(locks().rwlock).deadline(deadline);
        let has_readers = || self.word.load(Ordering::Relaxed) >= READER;
        let mut outcome = Outcome::Invalid;
        // ORDER[RWLOCK-read]: Acquire; pairs with the Release in `unlock_read`, also through the
        // additions of others.
        while self.word.load(Ordering::Acquire) >= READER {
            if outcome == Outcome::TimedOut {
                // SAFETY: WRITER is set, by this thread.
                unsafe { self.unlock_write(barging) };
                return false;
            }
            outcome = locks().wait(&self.writer(), has_readers, how);
        }
        true
    }

    /// Unlocks it for a writer. Readers that wait come first, then the next writer.
    ///
    /// # Safety
    /// The caller is the writer.
    #[inline]
    pub(super) unsafe fn unlock_write(&self, barging: Duration) {
        // ORDER[RWLOCK]: Release; pairs with the Acquire in `try_read`.
        let order = Ordering::Release;
        if self.word.compare_exchange(WRITER, 0, order, Ordering::Relaxed).is_ok() {
            // SAFETY: the writer holds the gate.
            unsafe { self.gate.unlock(barging) };
        } else {
            // SAFETY: the contract.
            unsafe { self.downgrade(barging) };
            // SAFETY: a reader by now.
            unsafe { self.unlock_read() };
        }
    }

    /// Makes the writer a reader, and lets those in that wait. RW3.
    ///
    /// # Safety
    /// The caller is the writer.
    #[cold]
    pub(super) unsafe fn downgrade(&self, barging: Duration) {
        let ended = |state| Some((state & !BOTH) + READER);
        // ORDER[RWLOCK]: Release; pairs with the Acquire in `try_read`.
        let _always = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, ended);
        let count = |_: Tag| {
            self.word.fetch_add(READER, Ordering::Relaxed);
            Verdict::Wake
        };
        locks().wake_where(&self.readers(), count, HANDED_OVER);
        // SAFETY: the writer holds the gate.
        unsafe { self.gate.unlock(barging) };
    }
}
