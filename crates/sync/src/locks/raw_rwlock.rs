//! A reader-writer lock in one word: the writers' mutex, and a count of readers.
//!
//! | bits of the word | meaning | changed by |
//! |---|---|---|
//! | the lowest byte | the mutex of the writers ([`super::word_mutex`]); LOCKED: a writer is in or waits for readers, and none comes in | writers |
//! | WAITING | a reader may be queued | a reader that queues, while LOCKED is set; the writer that leaves |
//! | the rest | how many readers hold the lock | readers; a writer that lets readers in |
//!
//! A writer lets in no reader that comes after it, and waits for those that are in; when it leaves,
//! it wakes the first reader that has waited, which wakes the next when it is in, and so on: with
//! more threads than processors the next writer would come before most of them have run. Other
//! threads may come before these are awake, as with a mutex (*barging*); but once in the time that
//! barging is allowed, a writer that leaves lets the first few in while they sleep still, before
//! the next writer. So neither side starves, though one reader may be passed again and again: if it
//! is woken and kept out, it queues behind the others. Not each time, nor all of them: the next
//! writer would wait until the last has been given a processor, and all others for it. Without
//! barging all are let in. Among writers the mutex decides, with its own bound on barging.
//!
//! - **RW1** The writer writes, and readers read, only in their phase: LOCKED is set and no reader
//!   counted, or a reader is counted that came while LOCKED was clear, or that was let in (RW3).
//! - **RW2** WAITING is set under the lock of the readers' bucket, with LOCKED set, and cleared as
//!   a writer leaves. So a reader that is queued was queued for a writer that finds WAITING.
//! - **RW3** A writer that finds WAITING counts itself as a reader as it leaves. To let others in,
//!   it stays one until each was counted under the bucket lock and woken: no writer comes between,
//!   though the next may set LOCKED, and a reader that is given HANDED_OVER holds it. If it only
//!   wakes one, that comes as any other. A writer that becomes a reader lets all in.
//! - **RW4** While readers are queued, WAITING is set and a writer is in or waits, or one that
//!   leaves is about to look at the bucket, or a reader that was woken is on its way. That one
//!   wakes the next when it is in. If it is kept out, it queues again, which sets WAITING, before
//!   it may give up. After those that it lets in, the writer wakes one as well.
//!
//! ```text
//!  reader                                   writer that leaves
//!  ------                                   ------------------
//!  lock bucket; fence (A)                   clear LOCKED; if WAITING: clear it, count itself in
//!  validate: LOCKED is set: set WAITING     fence (B); look at the bucket
//!  (else it is in)                          lock it: wake the first, or let some in
//!  push; unlock bucket                      count itself out
//! ```
//!
//! Excluded: that a reader sleeps for a writer that has left. If the writer's change of the word
//! comes first, the reader finds LOCKED clear, or set by the next writer, for which it waits then.
//! If it comes second, it finds WAITING, and by the wait table's race the node. A reader looks
//! once: it comes out of `validate` queued or with the lock. WAITING may be set with nobody queued,
//! after a reader has given up, or was woken with those before it: that costs a look.
//!
//! For the writer that waits for the last reader it is the wait table's race, whose condition the
//! word is:
//!
//! ```text
//!  writer                                   last reader
//!  ------                                   -----------
//!  set LOCKED                               count itself out: LOCKED is set, nobody is left
//!  lock bucket of `last_reader`; fence (A)  fence (B); look at the bucket
//!  validate: is anybody left?               wake the writer that is there
//!  push; unlock bucket
//! ```
#![expect(unsafe_code, reason = "an unlock is unsafe: only the holder may")]

use std::ptr;
use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU32, Ordering};

use super::barging::is_over;
use super::looks::Looks;
use super::owner::abort;
use super::table::{Address, Kind, locks};
use super::word_mutex::{BYTE, HANDED_OVER, LOCKED, LockWord, WordMutex};
use crate::{Outcome, Tag, Verdict, Wait};

/// The lowest bit above the mutex.
const WAITING: u32 = BYTE + 1;
/// One reader.
const READER: u32 = 2 * WAITING;
/// How many readers are let in while they sleep; loom sees what becomes of the next.
const LET_IN: usize = if cfg!(loom) { 1 } else { 4 };
/// Far more than threads.
const TOO_MANY: u32 = u32::MAX / 2;

impl LockWord for AtomicU32 {
    const KIND: Kind = Kind::RwLock;

    const BUSY: u32 = LOCKED | !(READER - 1);

    /// RW3.
    #[inline]
    fn left(state: u32, byte: u32) -> u32 {
        let state = if state & WAITING == 0 { state } else { state - WAITING + READER };
        (state & !BYTE) | byte
    }

    #[inline]
    fn load(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn compare_exchange(&self, from: u32, to: u32, order: Ordering) -> Result<u32, u32> {
        self.compare_exchange(from, to, order, Ordering::Relaxed)
    }
}

/// A reader-writer lock without a value: [`RwLock`](super::RwLock) has one. Without the feature
/// `lock_api` it can only be made; with it, it implements `lock_api::RawRwLock`, by which it is
/// locked.
///
/// Four bytes, of debug builds apart.
#[derive(Debug)]
pub struct RawRwLock {
    /// Relaxed loads of its word only look; the lock orders by what is marked below, and in
    /// `word_mutex`.
    writers: WordMutex<AtomicU32>,
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
        Self { writers: WordMutex::new(AtomicU32::new(0)) }
    }

    /// An unlocked lock.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { writers: WordMutex::new(AtomicU32::new(0)) }
    }

    fn word(&self) -> &AtomicU32 {
        self.writers.word()
    }

    /// Where the writer that comes next waits for the last reader: a byte that no other queue has.
    pub(super) fn last_reader(&self) -> Address {
        Address::of(Kind::RwLock, ptr::from_ref(self.word()).cast::<u8>().wrapping_add(1))
    }

    /// Where readers wait.
    pub(super) fn readers(&self) -> Address {
        Address::of(Kind::RwLock, ptr::from_ref(self.word()).cast::<u8>().wrapping_add(2))
    }

    /// Before a lock that may not unwind: see `word_mutex`.
    #[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
    pub(super) fn abort_if_owned(&self) {
        self.writers.abort_if_owned("rwlock");
    }

    /// Where writers wait for each other.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn writers(&self) -> &WordMutex<AtomicU32> {
        &self.writers
    }

    /// Locks it for a reader, unless a writer holds it or waits for it.
    #[inline]
    pub(super) fn try_read(&self) -> bool {
        let mut state = self.word().load(Ordering::Relaxed);
        while state & LOCKED == 0 {
            if state >= TOO_MANY {
                abort(format_args!("too many readers: were their guards forgotten?"));
            }
            // ORDER[MUTEX]: Acquire; pairs with the Releases with which the writers' mutex is
            // unlocked. What the last writer wrote is seen.
            let order = Ordering::Acquire;
            match self.word().compare_exchange(state, state + READER, order, Ordering::Relaxed) {
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
        self.writers.check_owner("rwlock");
        let how = Wait::new(locks().rwlock).deadline(deadline);
        let (mut looks, mut was_woken) = (Looks::NONE, false);
        while !self.try_read() {
            if looks.again() {
                continue;
            }
            let outcome = locks().wait(&self.readers(), || self.is_kept_out(), how);
            if was_woken && outcome != Outcome::Invalid {
                locks().note_needless(locks().rwlock);
            }
            match outcome {
                Outcome::Woken(HANDED_OVER) => return true, // RW3
                Outcome::Invalid => break,
                Outcome::TimedOut => return false,
                Outcome::Woken(_) => (looks, was_woken) = (Looks::NONE, true),
            }
        }
        if was_woken {
            locks().wake(&self.readers(), 1); // RW4
        }
        true
    }

    /// Sets WAITING, for a reader that is about to queue; or it is in, and this is false. RW2.
    fn is_kept_out(&self) -> bool {
        while !self.try_read() {
            let waits = |state: u32| (state & LOCKED != 0).then_some(state | WAITING);
            if self.word().fetch_update(Ordering::Relaxed, Ordering::Relaxed, waits).is_ok() {
                return true;
            }
        }
        false
    }

    /// Unlocks it for a reader.
    ///
    /// # Safety
    /// The caller is one.
    #[inline]
    pub(super) unsafe fn unlock_read(&self) {
        let last_reader = self.last_reader();
        // ORDER[RWLOCK]: Release; pairs with the Acquires in `has_readers` and of the writers'
        // mutex. All reads come before what the next writer writes.
        let before = self.word().fetch_sub(READER, Ordering::Release);
        if before & LOCKED != 0 && before < 2 * READER {
            locks().wake(&last_reader, 1);
        }
    }

    /// Whether anybody holds it, or did just now.
    #[cfg(all(feature = "lock_api", not(any(loom, shuttle))))]
    pub(super) fn is_locked(&self) -> bool {
        self.writers.is_locked()
    }

    /// Locks it for a writer, unless others hold it.
    #[inline]
    pub(super) fn try_write(&self) -> bool {
        self.writers.try_lock()
    }

    /// Locks it for a writer; false if the deadline came first.
    #[inline]
    #[track_caller]
    pub(super) fn write(&self, barging: Duration, deadline: Deadline) -> bool {
        self.writers.lock(barging, deadline)
            && (!self.has_readers() || self.drain(barging, deadline))
    }

    /// Whether readers are in, asked by a writer with LOCKED set.
    #[inline]
    fn has_readers(&self) -> bool {
        // ORDER[RWLOCK]: Acquire; pairs with the Release in `unlock_read`, also through the
        // changes of others.
        self.word().load(Ordering::Acquire) >= READER
    }

    /// Waits for the readers that are in, with LOCKED set. At the deadline it gives up.
    #[cold]
    fn drain(&self, barging: Duration, deadline: Deadline) -> bool {
        let how = Wait::new(locks().rwlock).deadline(deadline);
        let is_read = || self.word().load(Ordering::Relaxed) >= READER;
        let (mut looks, mut outcome) = (Looks::NONE, Outcome::Invalid);
        while self.has_readers() {
            if outcome == Outcome::TimedOut {
                // SAFETY: LOCKED is set, by this thread.
                unsafe { self.unlock_write(barging) };
                return false;
            }
            if !looks.again() {
                outcome = locks().wait(&self.last_reader(), is_read, how);
            }
        }
        true
    }

    /// Unlocks it for a writer, and wakes the readers that wait. With no barging at all they are
    /// let in before the next writer.
    ///
    /// # Safety
    /// The caller is the writer.
    #[inline]
    pub(super) unsafe fn unlock_write(&self, barging: Duration) {
        // SAFETY: the contract.
        let before = unsafe { self.writers.unlock(barging) };
        if before & WAITING != 0 {
            self.wake_readers(barging);
        }
    }

    /// Wakes the readers that wait, or lets them in; this thread counts as a reader so far. RW3.
    #[cold]
    fn wake_readers(&self, barging: Duration) {
        let readers = self.readers();
        let mut places = match barging.is_zero() {
            true => usize::MAX,
            false if is_over(barging, 0, readers) => LET_IN,
            false => 0,
        };
        if places > 0 {
            let count = |_: Tag| {
                self.word().fetch_add(READER, Ordering::Relaxed);
                places -= 1;
                if places > 0 { Verdict::Wake } else { Verdict::WakeAndStop }
            };
            locks().wake_where(&readers, count, HANDED_OVER);
        }
        // SAFETY: it counts as one.
        unsafe { self.unlock_read() };
        if places == 0 {
            locks().wake(&readers, 1); // RW4
        }
    }

    /// Makes the writer a reader, and lets those in that wait.
    ///
    /// # Safety
    /// The caller is the writer.
    #[cold]
    pub(super) unsafe fn downgrade(&self, barging: Duration) {
        self.word().fetch_add(READER, Ordering::Relaxed);
        // SAFETY: the contract. The reader that it is by now stays one.
        let before = unsafe { self.writers.unlock(barging) };
        if before & WAITING == 0 {
            // Others may sleep behind one that was woken and is on its way (RW4).
            self.word().fetch_add(READER, Ordering::Relaxed);
        }
        // Woken alone they would be kept out by a writer that waits, which has to wait for this
        // reader anyway.
        self.wake_readers(Duration::ZERO);
    }
}
