//! Runs: adjacent dirty pages of one file that are written back in one transfer.
//!
//! A run of several pages is gathered in a bounce buffer, because its frames lie anywhere; one page
//! is written from its frame. The number of buffers bounds how many transfers write pages back at
//! a time. All their memory is had when the cache is built.
#![expect(unsafe_code, reason = "a bounce buffer is lent to the device")]

use std::ops::Range;

use unherd_sync::{Outcome, Reason, Token, WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, Mutex};
use unherd_sys::{Errno, HugePages, IoBuf, Map};

use crate::files::FileState;
use crate::frame::{Frames, Lent, State, Word};
use crate::frame_memory::FrameMemory;
use crate::page::{FrameId, PageNo};

/// The right to write one run back, with the place for its pages' loans.
#[derive(Debug)]
pub(crate) struct RunBuffer {
    /// Of the bounce buffer. Invariant: no two `RunBuffer`s of one `RunBuffers` have the same.
    number: usize,
    frames: Vec<Lent>,
    /// Frames of the run that could be evicted when it ended.
    evictable: Vec<FrameId>,
    /// Pages of the run that other frames had when it ended, and the frames that were written.
    superseded: Vec<(PageNo, FrameId)>,
}

#[derive(Debug)]
struct Pool {
    free: Vec<RunBuffer>,
    /// By number: buffers on their way to one that waits.
    handed: Vec<Option<RunBuffer>>,
}

/// All buffers of a cache.
#[derive(Debug)]
pub(crate) struct RunBuffers {
    pool: Mutex<Pool>,
    bounce: Option<Map>,
    pages_max: usize,
    page_bytes: usize,
}

impl RunBuffers {
    pub(crate) fn new(frames: usize, page_bytes: usize) -> Result<Self, Errno> {
        let (count, pages_max) = Self::shape(frames, page_bytes);
        let bounce = if pages_max > 1 {
            Some(Map::new(Self::bytes_for(frames, page_bytes), HugePages::AsConfigured)?)
        } else {
            None
        };
        let buffer = |number| RunBuffer {
            number,
            frames: Vec::with_capacity(pages_max),
            evictable: Vec::with_capacity(pages_max),
            superseded: Vec::with_capacity(pages_max),
        };
        let free = (0..count).map(buffer).collect();
        let handed = (0..count).map(|_| None).collect();
        let pool = Mutex::new(Pool { free, handed });
        Ok(Self { pool, bounce, pages_max, page_bytes })
    }

    /// How many buffers there are in a cache of so many frames, and of how many pages each.
    fn shape(frames: usize, page_bytes: usize) -> (usize, usize) {
        let pages_max = (frames / 64).clamp(1, (128 << 10) / page_bytes.min(128 << 10));
        ((frames / (8 * pages_max)).clamp(1, 64), pages_max)
    }

    /// Bytes of the buffers, if they have several pages each.
    pub(crate) fn bytes_for(frames: usize, page_bytes: usize) -> usize {
        let (count, pages_max) = Self::shape(frames, page_bytes);
        count * pages_max * page_bytes
    }

    /// The most pages of one run.
    pub(crate) fn pages_max(&self) -> usize {
        self.pages_max
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bounce.as_ref().map_or(0, Map::len)
    }

    fn key(&self) -> WaitKey {
        WaitKey::Address(std::ptr::from_ref(self) as usize)
    }

    pub(crate) fn try_take(&self) -> Option<RunBuffer> {
        self.pool.lock().free.pop()
    }

    /// Waits under `reason` until a buffer is free.
    pub(crate) fn take(&self, waits: &WaitTable<WaitKey>, reason: Reason) -> RunBuffer {
        let mut woken = false;
        loop {
            if let Some(buffer) = self.try_take() {
                return buffer;
            }
            if woken {
                waits.note_needless(reason);
            }
            let none = || self.pool.lock().free.is_empty();
            let outcome = waits.wait(&self.key(), none, reason);
            woken = matches!(outcome, Outcome::Woken(_));
            if let Outcome::Woken(token) = outcome
                && let Some(buffer) = self.take_handed(token)
            {
                return buffer;
            }
        }
    }

    /// Gives a buffer back: to one that waits for it, or to the free ones.
    pub(crate) fn put(&self, buffer: RunBuffer, waits: &WaitTable<WaitKey>) {
        debug_assert!(buffer.frames.is_empty(), "loans must be given back");
        let number = buffer.number;
        let token = Token(number as u64 + 1);
        self.pool.lock().handed[number] = Some(buffer);
        if waits.wake_with(&self.key(), 1, token) > 0 {
            return;
        }
        if let Some(buffer) = self.take_handed(token) {
            self.pool.lock().free.push(buffer);
        }
        // One that looked before the push waits now.
        waits.wake(&self.key(), 1);
    }

    fn take_handed(&self, token: Token) -> Option<RunBuffer> {
        let number = usize::try_from(token.0).ok()?.checked_sub(1)?;
        self.pool.lock().handed.get_mut(number)?.take()
    }
}

/// Adjacent pages in write-back.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) file: Arc<FileState>,
    pub(crate) first: PageNo,
    /// The flush period in which it began.
    pub(crate) period: u64,
    /// The length of the file, as it was when its pages were lent.
    pub(crate) file_len: u64,
    buffer: RunBuffer,
}

impl Run {
    pub(crate) fn new(file: Arc<FileState>, seed: PageNo, lent: Lent, buffer: RunBuffer) -> Self {
        let mut run = Self { file, first: seed, period: 0, file_len: 0, buffer };
        run.buffer.frames.push(lent);
        run
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.frames.len()
    }

    pub(crate) fn push_back(&mut self, lent: Lent) {
        self.buffer.frames.push(lent);
    }

    /// Adds the page before the first.
    pub(crate) fn push_front(&mut self, page: PageNo, lent: Lent) {
        self.buffer.frames.insert(0, lent);
        self.first = page;
    }

    /// Keeps its frames from being changed or used again: a device may read them at any time.
    pub(crate) fn pin_for_ever(&self, frames: &Frames) {
        self.buffer.frames.iter().for_each(|lent| frames.pin_lent_for_ever(lent));
    }

    /// Gathers the pages for the device. To be called once, when the run is complete.
    pub(crate) fn gather(&mut self, memory: &FrameMemory, buffers: &RunBuffers) {
        if self.len() == 1 {
            return;
        }
        for (i, lent) in self.buffer.frames.iter().enumerate() {
            let page = memory.lent_bytes(lent);
            let to = buffers.buf(&self.buffer, i * page.len()..(i + 1) * page.len());
            // SAFETY: `buf` is in bounds; the buffer is this run's alone, and no device has it yet.
            unsafe { to.start.as_ptr().copy_from_nonoverlapping(page.as_ptr(), page.len()) };
        }
    }

    /// The bytes `range` of the run, for the device to read until the run is taken apart.
    pub(crate) fn buf(
        &self,
        range: Range<usize>,
        memory: &FrameMemory,
        buffers: &RunBuffers,
    ) -> IoBuf {
        match self.buffer.frames.as_slice() {
            [one] => memory.buf_to_write(one, range),
            _ => buffers.buf(&self.buffer, range),
        }
    }

    /// Takes the run apart, when no device uses its memory any more. `give_back` gives the words.
    pub(crate) fn take_apart(&mut self, mut give_back: impl FnMut(Lent) -> Word) {
        let RunBuffer { frames, evictable, superseded, .. } = &mut self.buffer;
        evictable.clear();
        superseded.clear();
        for (at, lent) in frames.drain(..).enumerate() {
            let frame = lent.id();
            let word = give_back(lent);
            if word.state() == State::Detached {
                superseded.push((PageNo(self.first.0 + at as u64), frame));
            } else if word.is_evictable() && !word.is_referenced() {
                evictable.push(frame);
            }
        }
    }

    /// After [`Run::take_apart`].
    pub(crate) fn evictable(&self) -> &[FrameId] {
        &self.buffer.evictable
    }

    /// After [`Run::take_apart`].
    pub(crate) fn superseded(&self) -> &[(PageNo, FrameId)] {
        &self.buffer.superseded
    }

    pub(crate) fn into_buffer(self) -> (Arc<FileState>, RunBuffer) {
        (self.file, self.buffer)
    }
}

impl RunBuffers {
    fn buf(&self, buffer: &RunBuffer, range: Range<usize>) -> IoBuf {
        let bytes = self.pages_max * self.page_bytes;
        assert!(range.start <= range.end && range.end <= bytes, "beyond the bounce buffer");
        let map = self.bounce.as_ref().map(Map::start).unwrap_or_else(|| {
            unreachable!("runs of several pages are made only where there are bounce buffers")
        });
        // SAFETY: the map holds `pages_max` pages for each number, and the range is in them.
        let start = unsafe { map.add(buffer.number * bytes + range.start) };
        IoBuf { start, len: range.len() }
    }
}
