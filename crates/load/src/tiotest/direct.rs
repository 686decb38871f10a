//! `kernel-direct`: direct I/O, and no cache. What a cache must do at least: each block is copied
//! once, and blocks that follow each other move together.

use std::io;
use std::ops::Range;

use unherd_sys::primitives::Mutex;

use super::phases::{self, TestFile};
use super::plan::Plan;
use crate::files::{AlignedBytes, KernelFile, Way};
use crate::{Job, LoadError, Round, Span};

/// Larger transfers gain little.
const LARGE_BYTES_MAX: usize = 1 << 20;

/// All threads' buffers take one part in this many of the memory: half of it, as a cache that has
/// one window under way for each thread and one in use.
const BUFFERS_PART: u64 = 2;

pub(super) fn run(job: &Job, plan: &Plan) -> Result<Round, LoadError> {
    let each_bytes = job.memory_bytes()? / BUFFERS_PART / plan.threads as u64;
    let large_bytes = (each_bytes as usize).clamp(1, LARGE_BYTES_MAX);
    let large_bytes = (large_bytes / plan.block_bytes).max(1) * plan.block_bytes;
    let mut memory = AlignedBytes::on_huge_pages(large_bytes * plan.threads)?;
    let buffers = Mutex::new(memory.chunks_exact_mut(large_bytes));
    phases::run(job, plan, Span::default(), |path| {
        let file = KernelFile::create(path, Way::Direct)?;
        let Some(bytes) = buffers.lock().next() else { unreachable!("a buffer for each file") };
        let buffer = Buffer { bytes, offset: 0, len: 0, is_dirty: false, file_bytes: 0 };
        Ok(DirectFile { file, buffer: Mutex::new(buffer) })
    })
}

struct DirectFile<'a> {
    file: KernelFile,
    buffer: Mutex<Buffer<'a>>,
}

/// A part of the file: what was read last, or is to be written.
struct Buffer<'a> {
    bytes: &'a mut [u8],
    offset: u64,
    len: usize,
    is_dirty: bool,
    file_bytes: u64,
}

impl Buffer<'_> {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Where the block stands, if all of it is here.
    fn range_of(&self, block: &[u8], offset: u64) -> Option<Range<usize>> {
        let at = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        (at + block.len() <= self.len).then_some(at..at + block.len())
    }

    fn flush(&mut self, file: &KernelFile) -> io::Result<()> {
        if std::mem::take(&mut self.is_dirty) {
            file.write_at(&self.bytes[..self.len], self.offset)?;
        }
        Ok(())
    }

    /// As much as there is room for, if the block follows the one before; else the block alone.
    fn fill(&mut self, file: &KernelFile, block: &[u8], offset: u64) -> io::Result<()> {
        self.flush(file)?;
        let rest_bytes = self.file_bytes.saturating_sub(offset) as usize;
        let most = if offset == self.end() { self.bytes.len() } else { block.len() };
        let len = most.min(rest_bytes);
        // Nothing is there if it fails.
        self.len = 0;
        file.read_at(&mut self.bytes[..len], offset)?;
        (self.offset, self.len) = (offset, len);
        Ok(())
    }
}

impl TestFile for DirectFile<'_> {
    fn read_at(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        let mut buffer = self.buffer.lock();
        if buffer.range_of(block, offset).is_none() {
            buffer.fill(&self.file, block, offset)?;
        }
        let range = buffer.range_of(block, offset).ok_or(io::ErrorKind::UnexpectedEof)?;
        block.copy_from_slice(&buffer.bytes[range]);
        Ok(())
    }

    fn write_at(&self, block: &[u8], offset: u64) -> io::Result<()> {
        let mut buffer = self.buffer.lock();
        let follows = buffer.is_dirty && offset == buffer.end();
        if !follows || buffer.len + block.len() > buffer.bytes.len() {
            buffer.flush(&self.file)?;
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
        self.buffer.lock().flush(&self.file)?;
        self.file.sync()
    }

    const COUNTS_WAKEUPS: bool = false;
}
