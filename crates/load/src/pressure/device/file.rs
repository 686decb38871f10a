//! A file that frames are written to and read from by direct I/O.

use std::io;

use unherd_sys::primitives::{AtomicU64, Mutex, Ordering};

use crate::files::{
    AlignedBytes, Content, KernelFile, ScratchDir, Way, check_space, write_numbered_pages,
};
use crate::pressure::pool::FRAME_BYTES;
use crate::random::Random;
use crate::{Job, LoadError};

const FILE_BYTES: u64 = 64 << 20;

/// Filled with random bytes. Batches are written one behind the other, over and over; frames are
/// read from anywhere.
#[derive(Debug)]
pub(in crate::pressure) struct DeviceFile {
    file: KernelFile,
    /// One batch, of random bytes.
    batch: AlignedBytes,
    /// Batches so far. Relaxed: it is a number on its own.
    batches: AtomicU64,
    reads: Mutex<Reads>,
    failed: Mutex<Option<(&'static str, io::Error)>>,
    // After the file.
    _scratch: ScratchDir,
}

#[derive(Debug)]
struct Reads {
    random: Random,
    /// Of the readers that are between two reads.
    buffers: Vec<AlignedBytes>,
}

impl DeviceFile {
    pub(super) fn create(job: &Job, batch: usize) -> Result<Self, LoadError> {
        check_space(job.dir()?, FILE_BYTES)?;
        let scratch = ScratchDir::create(job.dir()?, "pressure")?;
        let path = scratch.file(0);
        write_numbered_pages(&path, job.seed, FILE_BYTES)?;
        let file = KernelFile::open_to_write(&path, Way::Direct)
            .map_err(|source| LoadError::Open { path, source })?;
        let mut batch = AlignedBytes::new(batch * FRAME_BYTES as usize)?;
        Content::new(job.seed, 0, 0, 1).fill(&mut batch);
        Ok(Self {
            file,
            batch,
            batches: AtomicU64::new(0),
            reads: Mutex::new(Reads { random: Random::new(job.seed), buffers: Vec::new() }),
            failed: Mutex::new(None),
            _scratch: scratch,
        })
    }

    /// At most one batch.
    pub(super) fn write(&self, frames: usize) {
        let batch_bytes = self.batch.len() as u64;
        let number = self.batches.fetch_add(1, Ordering::Relaxed) % (FILE_BYTES / batch_bytes);
        let bytes = &self.batch[..frames * FRAME_BYTES as usize];
        self.note("writing to", self.file.write_at(bytes, number * batch_bytes));
    }

    pub(super) fn read(&self) {
        let mut reads = self.reads.lock();
        let frame = reads.random.below((FILE_BYTES / FRAME_BYTES) as usize) as u64;
        let buffer = reads.buffers.pop();
        drop(reads);
        let buffer = buffer.map_or_else(|| AlignedBytes::new(FRAME_BYTES as usize), Ok);
        let read = buffer.map_err(io::Error::other).and_then(|mut buffer| {
            let read = self.file.read_at(&mut buffer, frame * FRAME_BYTES);
            self.reads.lock().buffers.push(buffer);
            read
        });
        self.note("reading", read);
    }

    /// A failure ends nothing, since others wait for the frames; the round fails when it is over.
    fn note(&self, doing: &'static str, result: io::Result<()>) {
        if let Err(error) = result {
            self.failed.lock().get_or_insert((doing, error));
        }
    }

    pub(super) fn failed(&self) -> Result<(), LoadError> {
        let failed = self.failed.lock();
        failed.as_ref().map_or(Ok(()), |(doing, error)| Err(LoadError::file(doing, 0, error)))
    }
}
