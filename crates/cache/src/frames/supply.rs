//! The supply of frames: which there are, where they are free, and the waiters for one.
//!
//! How a thread in want and one who makes a frame idle do not miss each other stands in
//! `event_count.rs`.

use unherd_sync::{Reason, Token, WaitKey, WaitTable};
use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, AtomicUsize, Mutex, Ordering};

use crate::frames::dirty_waiters::{BUSY, DirtyLimitWaiters};
use crate::frames::waiters::FrameWaiters;
use crate::frames::{Alarm, Claim, FrameMemory, Frames, LockedPool, Pin, Pool, UnavailableFrames};
use crate::group_commit::GroupCommit;
use crate::page::FrameId;

/// All frames of a cache, their memory, and their waiters.
pub(crate) struct Supply {
    pub(crate) frames: Frames,
    pub(crate) memory: FrameMemory,
    pub(crate) pool: LockedPool,
    pub(crate) waiters: FrameWaiters,
    pub(crate) dirty_waiters: DirtyLimitWaiters,
    /// None without an I/O thread: then there are no tasks.
    pub(crate) alarm: Option<Alarm>,
    /// Looks at all frames: one serves all who asked before it began. It takes 2 ms for a million
    /// frames of which none is pinned, and 13 ms if all are; and all waiters for a page may ask at
    /// a time.
    looks: GroupCommit<(), UnavailableFrames>,
    /// What the last look has found. Locked for a moment only.
    latest_unavailable: Mutex<UnavailableFrames>,
    /// How many frames the cache has now. Relaxed: it bounds what may be dirty, or ahead.
    capacity: AtomicUsize,
    /// How many of them are not in the pool, as contiguous memory. Relaxed, as `capacity`.
    given_out: AtomicUsize,
    /// How many it is to have, where it is shrinking; else very many. Relaxed, as `capacity`.
    aim: AtomicUsize,
    /// The others, without memory. Taken with no other lock.
    absent: Mutex<Vec<FrameId>>,
    /// Waits for everything but pages, by its address. Its wakes always filter, so that what is
    /// handed to one thread reaches it.
    pub(crate) waits: Arc<WaitTable<WaitKey>>,
}

impl Supply {
    /// Without any frame: see [`Supply::grow`].
    pub(crate) fn new(
        (frames, claims): (Frames, Vec<Claim>),
        memory: FrameMemory,
        pool: Pool,
        waits: Arc<WaitTable<WaitKey>>,
        reason: Reason,
        alarm: Option<Alarm>,
    ) -> Self {
        Self {
            frames,
            memory,
            pool: LockedPool::new(pool),
            waiters: FrameWaiters::new(),
            dirty_waiters: DirtyLimitWaiters::default(),
            alarm,
            looks: GroupCommit::new(waits.clone(), reason),
            latest_unavailable: Mutex::default(),
            capacity: AtomicUsize::new(0),
            given_out: AtomicUsize::new(0),
            aim: AtomicUsize::new(usize::MAX),
            absent: Mutex::new(claims.into_iter().map(Claim::into_frame).collect()),
            waits,
        }
    }

    /// How many frames the cache has now, with those that are given out.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// How many of them are given out as contiguous memory.
    pub(crate) fn given_out(&self) -> usize {
        self.given_out.load(Ordering::Relaxed)
    }

    /// How many frames the cache has for pages now.
    pub(crate) fn len(&self) -> usize {
        self.capacity().saturating_sub(self.given_out())
    }

    /// How many frames the cache has for pages now, or is to have if it is shrinking.
    pub(crate) fn len_to_be(&self) -> usize {
        self.len().min(self.aim.load(Ordering::Relaxed))
    }

    /// The cache is to have `frames` frames; very many if it does not shrink any more.
    pub(crate) fn aim_at(&self, frames: usize) {
        self.aim.store(frames, Ordering::Relaxed);
    }

    /// Has `frames` frames more, if they can have memory; they are free.
    pub(crate) fn grow(&self, frames: usize) -> Result<(), Errno> {
        let mut absent = std::mem::take(&mut *self.absent.lock());
        // In rows.
        absent.sort_unstable_by_key(|frame| frame.0);
        let rest = absent.split_off(frames.min(absent.len()));
        *self.absent.lock() = rest;
        let claims: Vec<Claim> = absent.into_iter().map(Claim::of_empty).collect();
        let taken = self.memory.take(&claims);
        match taken {
            Ok(()) => self.put_back(claims),
            Err(_) => self.set_aside(claims),
        }
        taken
    }

    /// Counts these frames no more; they have their memory still.
    pub(crate) fn give_up(&self, claims: &[Claim]) {
        self.capacity.fetch_sub(claims.len(), Ordering::Relaxed);
        self.remove(claims);
    }

    /// Has these frames, which have memory; they are free.
    pub(crate) fn put_back(&self, claims: Vec<Claim>) {
        self.capacity.fetch_add(claims.len(), Ordering::Relaxed);
        self.add(claims);
    }

    /// Gives these frames out as contiguous memory.
    pub(crate) fn give_out(&self, claims: &[Claim]) {
        self.given_out.fetch_add(claims.len(), Ordering::Relaxed);
        self.remove(claims);
    }

    /// Has frames again that were given out; they are free.
    pub(crate) fn take_back(&self, claims: Vec<Claim>) {
        self.given_out.fetch_sub(claims.len(), Ordering::Relaxed);
        self.add(claims);
    }

    fn remove(&self, claims: &[Claim]) {
        self.waiters.set_frames(self.len());
        claims.iter().for_each(|claim| self.pool.lock().remove(claim));
    }

    fn add(&self, claims: Vec<Claim>) {
        self.waiters.set_frames(self.len());
        claims.into_iter().for_each(|claim| self.pool.lock().add(claim));
    }

    /// Gives the memory of frames back that are not counted.
    pub(crate) fn set_aside(&self, mut claims: Vec<Claim>) {
        claims.sort_unstable_by_key(|claim| claim.id().0);
        self.memory.give_back(&mut claims);
        self.absent.lock().extend(claims.into_iter().map(Claim::into_frame));
    }

    /// The frame that a waiter was handed with the token, if there is one.
    pub(crate) fn take_handed(&self, token: Token) -> Option<Claim> {
        let frame = token.0.checked_sub(1)?;
        self.frames.take_over(FrameId(frame as u32))
    }

    /// The copy of a page stands for the page from now on. The caller has both: the copy by a
    /// claim, and the page, which is out of the index, by a pin: its frame has no other page yet.
    pub(crate) fn note_copied(&self, from: &Pin, to: &Claim) {
        self.pool.lock().policy.transfer(from.id().0, to.id().0);
    }

    /// Frames that were just written back and could be evicted.
    pub(crate) fn note_written(&self, frames: &[FrameId]) {
        if !frames.is_empty() {
            let mut pool = self.pool.lock();
            let room = pool.written.capacity() - pool.written.len();
            pool.written.extend(frames.iter().take(room));
        }
    }

    /// Who holds the frames: looks at all of them, or waits for the look of another.
    pub(crate) fn held(&self) -> UnavailableFrames {
        let look = |_| {
            let held = self.frames.held();
            *self.latest_unavailable.lock() = held;
            held
        };
        self.looks.run(|| (), look)
    }

    /// A page has become dirty, or stays so.
    pub(crate) fn note_dirty(&self) {
        if let Some(alarm) = &self.alarm {
            alarm.note_dirty();
        }
    }

    /// Whether the device would be no faster with more write-backs to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiters.writing() >= BUSY
    }

    /// How often all frames were looked at.
    #[cfg(test)]
    pub(crate) fn looks(&self) -> u64 {
        self.looks.begun()
    }

    /// As [`Supply::held`], for one that is told by another, who has looked; that may be a task,
    /// which waits for no look.
    pub(crate) fn latest_unavailable(&self) -> UnavailableFrames {
        *self.latest_unavailable.lock()
    }
}
