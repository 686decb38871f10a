//! `kernel-direct` and `floor`: direct I/O, and no cache. What a cache must do at least: each block
//! is copied once, and blocks that follow each other move together.
//!
//! They differ in random writes. `kernel-direct` writes each block when it comes. `floor` does the
//! best that a cache could do: it keeps the blocks, as far as there is memory, and at the sync
//! writes each of them once, in the order of the file, through one ring for all threads.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use unherd_sys::DeviceFile;
use unherd_sys::primitives::Mutex;

use super::phases::{self, TestFile};
use super::plan::Plan;
use crate::files::{AlignedBytes, KernelFile, QueuedWrites, Way, capacity_bytes};
use crate::{Job, LoadError, Round, Span};

/// Larger transfers gain little.
const LARGE_BYTES_MAX: usize = 1 << 20;

/// What follows each other takes one part in this many of the memory: half of it, as in a cache
/// that has one window under way for each thread and one in use.
const LARGE_PART: u64 = 2;

/// If there is a `ring`, random writes are kept until the sync, and go through it.
pub(super) fn run(job: &Job, plan: &Plan, ring: Option<&QueuedWrites>) -> Result<Round, LoadError> {
    let memory_bytes = job.memory_bytes()?;
    let each = |bytes: u64, bytes_max: usize| {
        let each_bytes = ((bytes / plan.threads as u64) as usize).min(bytes_max);
        (each_bytes / plan.block_bytes).max(1) * plan.block_bytes
    };
    let large_bytes = each(memory_bytes / LARGE_PART, LARGE_BYTES_MAX);
    let each_bytes = match ring {
        None => large_bytes,
        // What a cache has.
        Some(_) => {
            let bytes = capacity_bytes(memory_bytes, plan.threads, plan.block_bytes)?;
            each(bytes as u64, usize::MAX).max(large_bytes)
        }
    };
    let mut memory = AlignedBytes::on_huge_pages(each_bytes * plan.threads)?;
    let buffers = Mutex::new(memory.chunks_exact_mut(each_bytes));
    phases::run(job, plan, Span::default(), |path| {
        let file = KernelFile::create(path, Way::Direct)?;
        let Some(bytes) = buffers.lock().next() else { unreachable!("a buffer for each file") };
        let queued = ring.map(|ring| Ok::<_, io::Error>((ring, ring.open(path)?))).transpose()?;
        Ok(DirectFile { file, queued, buffer: Mutex::new(Buffer::new(bytes, large_bytes)) })
    })
}

struct DirectFile<'a> {
    file: KernelFile,
    /// The same file in the ring, if random writes go there.
    queued: Option<(&'a QueuedWrites, DeviceFile)>,
    buffer: Mutex<Buffer<'a>>,
}

impl Drop for DirectFile<'_> {
    fn drop(&mut self) {
        if let Some((ring, file)) = self.queued {
            ring.close(file);
        }
    }
}

/// A part of the file, which was read last or is to be written; or blocks to be written.
struct Buffer<'a> {
    bytes: &'a mut [u8],
    /// The longest part.
    large_bytes: usize,
    offset: u64,
    len: usize,
    is_dirty: bool,
    /// Where blocks stand in `bytes` that are kept, by their offsets. While there are any, no part
    /// of the file is here.
    kept: BTreeMap<u64, usize>,
    block_bytes: usize,
    file_bytes: u64,
}

impl<'a> Buffer<'a> {
    fn new(bytes: &'a mut [u8], large_bytes: usize) -> Self {
        let (offset, len, is_dirty, file_bytes) = (0, 0, false, 0);
        let (kept, block_bytes) = (BTreeMap::new(), 0);
        Self { bytes, large_bytes, offset, len, is_dirty, kept, block_bytes, file_bytes }
    }

    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Where the block stands, if all of it is here.
    fn range_of(&self, block: &[u8], offset: u64) -> Option<Range<usize>> {
        let at = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        (at + block.len() <= self.len).then_some(at..at + block.len())
    }

    /// Keeps a block, if there is room for it.
    fn keep(&mut self, block: &[u8], offset: u64) -> bool {
        let next = self.kept.len() * block.len();
        if next + block.len() > self.bytes.len() && !self.kept.contains_key(&offset) {
            return false;
        }
        (self.len, self.block_bytes) = (0, block.len());
        let at = *self.kept.entry(offset).or_insert(next);
        self.bytes[at..at + block.len()].copy_from_slice(block);
        true
    }
}

impl DirectFile<'_> {
    fn flush(&self, buffer: &mut Buffer<'_>) -> io::Result<()> {
        if std::mem::take(&mut buffer.is_dirty) {
            self.file.write_at(&buffer.bytes[..buffer.len], buffer.offset)?;
        }
        let kept = std::mem::take(&mut buffer.kept);
        let block =
            |(offset, at): (u64, usize)| (&buffer.bytes[at..at + buffer.block_bytes], offset);
        let blocks: Vec<_> = kept.into_iter().map(block).collect();
        self.queued.map_or(Ok(()), |(ring, file)| ring.write(file, &blocks))
    }

    /// Reads as much as there is room for, if the block follows the one before; else it alone.
    fn fill(&self, buffer: &mut Buffer<'_>, block: &[u8], offset: u64) -> io::Result<()> {
        self.flush(buffer)?;
        let rest_bytes = buffer.file_bytes.saturating_sub(offset) as usize;
        let most = if offset == buffer.end() { buffer.large_bytes } else { block.len() };
        let len = most.min(rest_bytes);
        // Nothing is there if it fails.
        buffer.len = 0;
        self.file.read_at(&mut buffer.bytes[..len], offset)?;
        (buffer.offset, buffer.len) = (offset, len);
        Ok(())
    }
}

impl TestFile for DirectFile<'_> {
    fn read_at(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        let mut buffer = self.buffer.lock();
        if buffer.range_of(block, offset).is_none() {
            self.fill(&mut buffer, block, offset)?;
        }
        let range = buffer.range_of(block, offset).ok_or(io::ErrorKind::UnexpectedEof)?;
        block.copy_from_slice(&buffer.bytes[range]);
        Ok(())
    }

    fn write_at(&self, block: &[u8], offset: u64) -> io::Result<()> {
        let mut buffer = self.buffer.lock();
        let follows = buffer.is_dirty && offset == buffer.end();
        // What makes the file longer is not at random.
        if self.queued.is_some() && !follows && offset < buffer.file_bytes {
            if buffer.is_dirty || !buffer.keep(block, offset) {
                self.flush(&mut buffer)?;
                buffer.keep(block, offset);
            }
            return Ok(());
        }
        if !follows || buffer.len + block.len() > buffer.large_bytes {
            self.flush(&mut buffer)?;
            (buffer.offset, buffer.len) = (offset, 0);
        }
        let at = buffer.len;
        buffer.bytes[at..at + block.len()].copy_from_slice(block);
        buffer.len += block.len();
        buffer.is_dirty = true;
        buffer.file_bytes = buffer.file_bytes.max(buffer.end());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.flush(&mut self.buffer.lock())?;
        self.file.sync()
    }

    const COUNTS_WAKEUPS: bool = false;
}
