//! The frames, their write-back, and their reclaim.

use std::collections::VecDeque;

use unherd::{Deadline, Gate, GateMode, Reason, SharedCongested, Timestamp, WaitEnd};
use unherd_sys::primitives::{Condvar, Mutex, MutexGuard};

use super::device::Device;
use crate::congestion::GateWaits;

pub(super) const FRAME_BYTES: u64 = 4096;
/// Frames at which one pass of reclaim looks.
const PASS: usize = 8;
/// Passes in vain before a nap.
const PASSES: u64 = 3;
pub(super) const FRAMES_MIN: usize = 1024;
/// Each may hold some frames of the smallest pool.
pub(super) const THREADS_MAX: usize = 64;

/// The gates, and for what threads wait there.
pub(super) struct Gates {
    /// Congested while too many frames are dirty.
    writeback: Gate,
    /// Congested while no frame can be given.
    frames: Gate,
    throttle: Reason,
    direct: Reason,
    background: Reason,
}

impl Gates {
    pub(super) fn new(mode: GateMode) -> Self {
        let gate = || Gate::builder().mode(mode).build();
        Self {
            writeback: gate(),
            frames: gate(),
            throttle: Reason::register("pressure-throttle"),
            direct: Reason::register("pressure-direct"),
            background: Reason::register("pressure-background"),
        }
    }

    pub(super) fn overdue(&self) -> u64 {
        self.writeback.status().overdue + self.frames.status().overdue
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Clean,
    /// Or being written.
    Dirty,
    /// Its thread's alone.
    Held,
}

struct Frames<'g> {
    states: Vec<State>,
    free: Vec<usize>,
    /// Those that are clean or dirty, the oldest first.
    oldest: VecDeque<usize>,
    /// Those that are to be written.
    dirty: VecDeque<usize>,
    dirty_count: usize,
    clean_count: usize,
    congested: Option<SharedCongested<'g>>,
    starved: Option<SharedCongested<'g>>,
    is_over: bool,
    background_wanted: bool,
    wake_requests: u64,
    written: u64,
}

/// What a thread did to get frames.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reclaim {
    pub(super) reclaims: u64,
    pub(super) scanned: u64,
    pub(super) stall_ns: u64,
    pub(super) waits: GateWaits,
    pub(super) throttle: GateWaits,
}

impl Reclaim {
    pub(super) fn add(&mut self, other: Self) {
        self.reclaims += other.reclaims;
        self.scanned += other.scanned;
        self.stall_ns += other.stall_ns;
        self.waits.add(other.waits);
        self.throttle.add(other.throttle);
    }
}

/// What the background reclaimer did.
#[derive(Debug, Default)]
pub(super) struct Background {
    pub(super) wakeups: u64,
    pub(super) scanned: u64,
    pub(super) awake_ns: u64,
    pub(super) waits: GateWaits,
}

pub(super) struct Pool<'g> {
    gates: &'g Gates,
    frames: Mutex<Frames<'g>>,
    flusher: Condvar,
    background: Condvar,
    /// Dirty frames at which the gate is congested, and at which it is clear again.
    limit: usize,
    limit_low: usize,
    /// Free frames at which the background reclaimer is woken, and up to which it works.
    low: usize,
    high: usize,
}

impl<'g> Pool<'g> {
    pub(super) fn new(gates: &'g Gates, frames: usize) -> Self {
        let frames_of = Frames {
            states: vec![State::Free; frames],
            free: (0..frames).collect(),
            oldest: VecDeque::with_capacity(frames),
            dirty: VecDeque::with_capacity(frames),
            dirty_count: 0,
            clean_count: 0,
            congested: None,
            starved: None,
            is_over: false,
            background_wanted: false,
            wake_requests: 0,
            written: 0,
        };
        Self {
            gates,
            frames: Mutex::new(frames_of),
            flusher: Condvar::new(),
            background: Condvar::new(),
            limit: frames * 8 / 10,
            limit_low: frames * 3 / 4,
            low: frames / 64,
            high: frames / 32,
        }
    }

    /// A frame of the caller's own, by direct reclaim if none is free.
    pub(super) fn take(&self, reclaim: &mut Reclaim) -> usize {
        let mut frames = self.frames.lock();
        if let Some(frame) = frames.free.pop() {
            frames.states[frame] = State::Held;
            if frames.free.len() < self.low {
                self.want_background(&mut frames);
            }
            return frame;
        }
        self.want_background(&mut frames);
        let began = Timestamp::now();
        reclaim.reclaims += 1;
        let mut passes = 0;
        loop {
            let freed = frames.free.pop();
            if let Some(frame) = freed.or_else(|| frames.pass(&mut reclaim.scanned)) {
                frames.states[frame] = State::Held;
                drop(frames);
                reclaim.stall_ns += Timestamp::now().since(began).as_nanos() as u64;
                return frame;
            }
            passes += 1;
            if passes % PASSES == 0 {
                self.nap(frames, self.gates.direct, &mut reclaim.waits);
                frames = self.frames.lock();
            }
        }
    }

    /// Sleeps, in the hope that the next look finds more.
    fn nap(&self, mut frames: MutexGuard<'_, Frames<'g>>, reason: Reason, waits: &mut GateWaits) {
        let gate = if frames.clean_count + frames.free.len() == 0 && frames.congested.is_none() {
            let congest = || self.gates.frames.congest().into_shared();
            frames.starved.get_or_insert_with(congest);
            &self.gates.frames
        } else {
            &self.gates.writeback
        };
        drop(frames);
        waits.note(gate.wait_iff(reason, Deadline::NEVER));
    }

    fn want_background(&self, frames: &mut Frames<'g>) {
        frames.wake_requests += 1;
        if !frames.background_wanted {
            frames.background_wanted = true;
            self.background.notify_one();
        }
    }

    /// The frame has what was read into it.
    pub(super) fn publish_clean(&self, frame: usize) {
        let mut frames = self.frames.lock();
        frames.states[frame] = State::Clean;
        frames.clean_count += 1;
        frames.oldest.push_back(frame);
        self.frames_came(frames, 1);
    }

    /// Lets those go that wait for any frame.
    fn frames_came(&self, mut frames: MutexGuard<'_, Frames<'g>>, n: usize) {
        let starved = frames.starved.take();
        drop(frames);
        if starved.is_some() {
            self.gates.frames.progress(n as u64);
        }
    }

    /// The frame has what its writer wrote; waits if there are too many such.
    pub(super) fn publish_dirty(&self, frame: usize, reclaim: &mut Reclaim) {
        let mut frames = self.frames.lock();
        frames.states[frame] = State::Dirty;
        frames.oldest.push_back(frame);
        frames.dirty.push_back(frame);
        frames.dirty_count += 1;
        let is_over_limit = frames.dirty_count >= self.limit;
        if is_over_limit {
            let congest = || self.gates.writeback.congest().into_shared();
            frames.congested.get_or_insert_with(congest);
        }
        let mut waits = frames.congested.is_some();
        drop(frames);
        self.flusher.notify_one();
        while waits {
            let waited = self.gates.writeback.wait_iff(self.gates.throttle, Deadline::NEVER);
            reclaim.throttle.note(waited);
            // One whose time was over was not let go.
            let looks = matches!(waited.why, WaitEnd::Overdue | WaitEnd::Timeout);
            waits = looks && self.frames.lock().dirty_count >= self.limit;
        }
    }

    /// Writes dirty frames to the device, `most` at a time, until the round is over.
    pub(super) fn flush(&self, device: &Device, most: usize) {
        let _duties = (self.gates.writeback.duty(), self.gates.frames.duty());
        let mut batch = Vec::with_capacity(most);
        loop {
            let mut frames = self.frames.lock();
            while frames.dirty.is_empty() {
                if frames.is_over {
                    return;
                }
                frames = self.flusher.wait(frames);
            }
            let count = frames.dirty.len().min(most);
            batch.extend(frames.dirty.drain(..count));
            drop(frames);
            device.write(count);
            let mut frames = self.frames.lock();
            for frame in batch.drain(..) {
                frames.states[frame] = State::Clean;
            }
            frames.clean_count += count;
            frames.dirty_count -= count;
            frames.written += count as u64;
            let is_clear = frames.dirty_count < self.limit_low;
            let cleared = if is_clear { frames.congested.take() } else { None };
            self.frames_came(frames, count);
            self.gates.writeback.progress(count as u64);
            drop(cleared);
        }
    }

    /// Keeps some frames free, until the round is over.
    pub(super) fn reclaim(&self) -> Background {
        let mut done = Background::default();
        loop {
            let mut frames = self.frames.lock();
            while !frames.background_wanted {
                if frames.is_over {
                    return done;
                }
                frames = self.background.wait(frames);
            }
            done.wakeups += 1;
            let began = Timestamp::now();
            let mut passes = 0;
            while frames.free.len() < self.high && !frames.is_over {
                if let Some(frame) = frames.pass(&mut done.scanned) {
                    frames.free.push(frame);
                    passes = 0;
                    self.frames_came(frames, 1);
                } else {
                    passes += 1;
                    if passes % PASSES == 0 {
                        self.nap(frames, self.gates.background, &mut done.waits);
                    } else {
                        drop(frames);
                    }
                }
                frames = self.frames.lock();
            }
            frames.background_wanted = false;
            done.awake_ns += Timestamp::now().since(began).as_nanos() as u64;
            if frames.is_over {
                return done;
            }
        }
    }

    /// Ends the flusher, when it has written all, and the background reclaimer.
    pub(super) fn end(&self) {
        self.frames.lock().is_over = true;
        self.flusher.notify_one();
        self.background.notify_one();
    }

    /// How many frames were written, and requests to the background reclaimer.
    pub(super) fn counts(&self) -> (u64, u64) {
        let frames = self.frames.lock();
        (frames.written, frames.wake_requests)
    }
}

impl Frames<'_> {
    /// Looks at some of the oldest frames for a clean one, which is free then. Those that are dirty
    /// become the youngest.
    fn pass(&mut self, scanned: &mut u64) -> Option<usize> {
        for _ in 0..PASS.min(self.oldest.len()) {
            let frame = self.oldest.pop_front()?;
            *scanned += 1;
            if self.states[frame] == State::Clean {
                self.states[frame] = State::Free;
                self.clean_count -= 1;
                return Some(frame);
            }
            self.oldest.push_back(frame);
        }
        None
    }
}
