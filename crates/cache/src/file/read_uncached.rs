//! Reads that keep nothing: what is missing goes from the device straight to the caller's memory.
//!
//! A usual read takes a frame for each page, publishes it, looks it up and copies it. Here the page
//! is announced, so that it does not change meanwhile (`pages/announced.rs`), and read. Where that
//! does not give it, the usual read does, or says what is wrong: so errors, and the end of what the
//! device has, are dealt with there alone.

use unherd_sys::Errno;
use unherd_sys::primitives::Arc;

use crate::Error;
use crate::file::{Core, File};
use crate::io::read_into;
use crate::page::PageNo;
use crate::state::FileState;
use crate::stats::Count;

/// The most bytes that are read at a time: who wants one of the pages waits for all.
const BYTES_MAX: usize = 4 << 20;

/// What came of missing pages that were to be read so.
enum UncachedPiece {
    /// These bytes were read, of whole pages.
    Read(usize),
    /// The first is there.
    There,
    /// Another brings the first in, or reads it so, or the device has not given it.
    Refused,
}

impl File {
    /// Reads as [`File::read_at`], past the cache: pages that are not in it go from the device
    /// straight to `buf`, as by direct I/O, and are not kept. They take no frame, so others keep
    /// theirs, and no copy. For scans that bring buffers of their own.
    ///
    /// Pages that are in the cache, clean or dirty, are copied. A thread that needs a page which is
    /// being read so waits under `page-read`, and that page is cached then.
    ///
    /// The device reads at most 4 MiB at a time, up to the next page that is in the cache; the call
    /// goes on until `buf` is full or the file ends. It begins no readahead, so the device has as
    /// much to do as the call asks for: ask for a MiB or more, or let several threads ask.
    ///
    /// Only whole pages are read so, to places in `buf` that are aligned for the device: by 512
    /// bytes mostly. The rest is read by way of the cache, and kept:
    /// [`Stats::uncached_reads`](crate::Stats::uncached_reads) does not count it. So are pages of
    /// files with a [`PageHook`](crate::PageHook) or without direct I/O, pages that the device
    /// fails to give, and up to 4 MiB from a page on that another thread reads so too.
    ///
    /// Use memory on huge pages: a map that begins at a multiple of 2 MiB, of 2 MiB or more, with
    /// `MADV_HUGEPAGE`. Where a device takes few pieces of memory in one request, a MiB in pages of
    /// 4 KiB is read more slowly than through the cache (see `docs/cache.md`). The memory of
    /// [`Cache::alloc_contiguous`](crate::Cache::alloc_contiguous) may not be written as a slice,
    /// so it will not do.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// # let cache = unherd::Cache::builder().build()?;
    /// # let mut memory = vec![0; 2 << 20];
    /// # let block: &mut [u8] = &mut memory;
    /// let table = cache.open("table", unherd::OpenOptions::new())?;
    /// let mut offset = 0; // `block` is such a map
    /// while let read @ 1.. = table.read_uncached_at(block, offset)? {
    ///     # let check = |_: &[u8]| ();
    ///     check(&block[..read]);
    ///     offset += read as u64;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Blocks on the device, and as [`File::read_at`].
    ///
    /// Before Linux 6.5 a fork(2) during the read may leave `buf`, and what else is in its pages of
    /// memory, as it was before (see [`Error::Forked`]).
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_uncached_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let core = self.core();
        core.check_range(&self.file, offset, buf.len())?;
        let (mut done, page_bytes) = (0, core.memory().page_bytes());
        while done < buf.len() {
            let (page, at) = core.memory().locate(offset + done as u64);
            let to = &mut buf[done..];
            let usual = if at > 0 {
                page_bytes - at
            } else if !self.file.can_read_into(to) {
                // Nor into a later part.
                to.len()
            } else {
                match core.read_missing(&self.file, page, to) {
                    UncachedPiece::Read(bytes) => {
                        done += bytes;
                        continue;
                    }
                    UncachedPiece::There => page_bytes,
                    // Of several that read the same, one then reads for all.
                    UncachedPiece::Refused => BYTES_MAX,
                }
            };
            let to_len = usual.min(to.len());
            let read = self.read_at(&mut to[..to_len], offset + done as u64)?;
            done += read;
            if read < to_len {
                // The rest of that page may be newer by now.
                break;
            }
        }
        Ok(done)
    }
}

impl Core {
    /// Reads pages from `first` on to `to`, whole ones, as far as they are missing.
    fn read_missing(&self, file: &Arc<FileState>, first: PageNo, to: &mut [u8]) -> UncachedPiece {
        let (page_bytes, key) = (self.memory().page_bytes(), file.key(first));
        // As of now.
        let whole_pages = || (file.len() / page_bytes as u64).saturating_sub(first.0);
        let most = whole_pages().min((to.len().min(BYTES_MAX) / page_bytes) as u64);
        if most == 0 || self.pages.index.lookup(key).is_some() || self.fork().is_forked() {
            return UncachedPiece::There;
        }
        let announced = self.pages.announce_run(key, most);
        // Who has cut the file before it could find them announced does not wait for them.
        let bytes = announced.len().min(whole_pages()) as usize * page_bytes;
        if bytes == 0 {
            let _ = announced.end();
            return UncachedPiece::Refused;
        }
        // Counts as something that the device has to do: see `Engine::may_read_ahead`.
        let _own =
            self.io.engine.as_ref().map(|it| it.try_begin_blocking_read(self.memory(), false));
        let (offset, to) = (self.memory().offset(first), &mut to[..bytes]);
        let read = loop {
            match read_into(&*self.io.device, file.device_file, offset, to) {
                Err(Errno::INTR) => {}
                ended => break ended,
            }
        };
        if let Some(page) = announced.end() {
            // Those who have waited find it then, though this may be called again at once. They
            // get its error.
            let _ = self.guard(file, page, 1);
        }
        if read.is_err() {
            self.counters().add(Count::IoErrors, 1);
        }
        match read.map_or(0, |read| read.min(bytes) / page_bytes) {
            0 => UncachedPiece::Refused,
            pages => {
                for count in [Count::Misses, Count::Reads, Count::UncachedReads] {
                    self.counters().add(count, pages as u64);
                }
                UncachedPiece::Read(pages * page_bytes)
            }
        }
    }
}
