//! Handles of files.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Ordering, thread};

use crate::error::Error;
use crate::file::overwrite::try_overwrite;
use crate::file::pieces::Calls;
use crate::file::{Core, Owner, PageMut, Source};
use crate::foreign_code::is_in_foreign_code;
use crate::page::{ALL_PAGES, PageNo, PageRange};
use crate::pages::{Copied, PageGuard, Peek, Torn};
use crate::state::{Advice, Failure, FileState, OpenOptions, ReadStreams};

/// A handle of an open file.
///
/// Handles of one file (the same device and inode) in one cache share its pages, its dirty state
/// and its length. All methods may be called by many threads at a time. A write to one page is
/// atomic with regard to reads of that page; reads and writes of several pages are not.
///
/// It is not `Clone`: share a handle by `&` or [`Arc`](std::sync::Arc), or open the file again for
/// another one.
///
/// # Errors
///
/// Each call lists the errors of its own. Beside those:
///
/// - all that read or write pages: [`Error::Io`], [`Error::NoFrames`], [`Error::Truncated`]; and,
///   as a page may have to be written to make room, [`Error::ShortTransfer`]
/// - all that write or sync: [`Error::Closed`], after [`File::close`] of the handle
/// - in a child of fork(2): [`Error::Forked`], except for reads of pages that are in memory
///
/// # Closing
///
/// The normal end is `sync_all()?`, then drop. Only [`File::sync_all`] makes writes durable.
///
/// When the last handle is dropped, dirty pages (which the cache has and the device does not) are
/// written back, but not flushed, and the file is closed; its lock is released. What cannot be
/// written is lost then: the next handle for writing is told, by its first sync, write-back or
/// close ([`Error::LostWrites`]); [`File::close`] tells the caller before the drop. If a task's
/// waker drops the last handle, a new thread does this; where none can be started, the file stays
/// open.
///
/// # What a killed process loses
///
/// Writes that were not synced live in the process, not in the kernel: `kill -9` loses them, and a
/// later write may survive where an earlier one is lost; pwrite(2) would leave all of them in the
/// kernel's page cache. What is older than 5 s is written back by then
/// ([`CacheBuilder::dirty_expire`](crate::CacheBuilder::dirty_expire); not with
/// [`Io::Blocking`](crate::Io::Blocking)), as far as it can be. A program that counts on writes
/// outliving the process must sync, call [`File::write_back`], or write through
/// ([`OpenOptions::write_through`]): what the device has survives the process, though not a power
/// cut.
/// `examples/sqlite` does so at each commit.
///
/// A dirty page may reach the device at any time before a sync. So a write-ahead log is written and
/// synced before the `write_at`, or the drop of the [`PageMut`], whose changes it describes; or the
/// page is held back until the log is durable ([`PageMut::hold_until`]).
///
/// Pages are written whole ([`File::write_unit`]). If a crash tears such a write, some
/// sectors of the page have the new bytes and the others the old; and the file may be longer than
/// it was, by zeros up to the end of that page.
///
/// # Blocking
///
/// "Blocks under `frame`" names the [`Reason`](unherd_sync::Reason) by which the
/// [`Ledger`](unherd_sync::Ledger) counts the wait:
///
/// | reason | what the thread waits for |
/// |---|---|
/// | `page-read` | a page that is being read from the device |
/// | `page-change` | a page that another thread is writing, or holds as a [`PageMut`] |
/// | `write-back` | the end of a write of dirty pages to the device, or a buffer for one |
/// | `frame` | a frame (memory for one page): all are pinned, dirty, or in use by transfers |
/// | `file` | the file itself, while others change its length, sync, open or close it |
/// | `file-lock` | the lock of a file that another cache or process holds |
pub struct File {
    owner: Arc<Owner>,
    pub(crate) file: Arc<FileState>,
    write: bool,
    write_through: bool,
    /// Errors of the file that this handle has reported. Relaxed: a count for itself.
    seen: AtomicU64,
    /// Relaxed: nothing follows from it but a refusal.
    is_closed: AtomicBool,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.file.path)
            .field("len", &self.len())
            .field("write", &self.write)
            .finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn open(
        owner: &Arc<Owner>,
        source: Source<'_>,
        options: OpenOptions,
    ) -> Result<Self, Error> {
        if (options.truncate || options.create || options.create_new) && !options.write {
            return Err(Error::CreateNeedsWrite { file: source.name() });
        }
        let owner = owner.clone();
        let file = owner.core.open_file(source, &options)?;
        let seen = file.durability.lock().known_to_new_handle();
        let handle = Self::new(owner, file, options.write, options.write_through, seen);
        if options.truncate {
            handle.set_len(0)?;
        }
        Ok(handle)
    }

    /// Another handle of the same file, for a thread of the cache: it reports no errors.
    #[cfg(feature = "async")]
    pub(crate) fn another(&self) -> Self {
        self.core().files.attach(&self.file, false);
        Self::new(self.owner.clone(), self.file.clone(), false, false, 0)
    }

    fn new(
        owner: Arc<Owner>,
        file: Arc<FileState>,
        write: bool,
        write_through: bool,
        seen: u64,
    ) -> Self {
        let (seen, is_closed) = (AtomicU64::new(seen), AtomicBool::new(false));
        Self { owner, file, write, write_through, seen, is_closed }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core {
        &self.owner.core
    }

    /// Whether the kernel's page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.file.direct
    }

    /// The fewest bytes that are written to the device at once: those of a page. A crash during a
    /// write-back may leave old bytes in some sectors of such a unit and new ones in others, unless
    /// the device writes more than a sector atomically: what is in one unit may be damaged
    /// together. Does not block.
    pub fn write_unit(&self) -> usize {
        self.core().memory().page_bytes()
    }

    /// The path that the file was first opened by. For
    /// [`Cache::open_file`](crate::Cache::open_file) it is what the link in `/proc/self/fd` said
    /// then.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The length in bytes, as the last write or [`File::set_len`] left it. Does not block.
    #[expect(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Reads into `buf` from `offset` on, as pread(2): gives the number of bytes, which is less
    /// than asked for only at the end of the file. At or beyond the end it gives 0. Each page is
    /// read as it was at one moment; where the length changes meanwhile, with the end that the file
    /// had then. The rest of `buf` may have changed, if the file was cut.
    ///
    /// Blocks under `page-read`, `page-change` and `frame` (see [`File`]), or on the device. A hit,
    /// a page that is in the cache, costs a copy, and a second one if it is changed meanwhile. It
    /// writes to no shared memory, except to the page's mark of use (by which the cache chooses
    /// what to keep) where that is not set. The first use of a page that was read ahead may begin
    /// further reads, and so take a lock for a short time, but does not wait for the device.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::WouldDeadlock`]; the [errors](File#errors) of all reads. The
    /// contents of `buf` are then unspecified.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut wanted = self.bytes_to_read(offset, buf.len())?;
        let follows = Calls::Reads.ended_at(&self.file, offset);
        let (mut done, mut goes_on) = (0, self.goes_on(follows, offset));
        while done < wanted {
            let (page, at, to) = self.next_part(&mut buf[..wanted], done, offset);
            if at + to.len() == self.core().memory().page_bytes() {
                // Its slot is there by the time that the reader gets to it.
                self.core().pages.index.prefetch_slot(self.file.key(page.next()));
            }
            match self.core().pages.copy_out(self.file.key(page), at, to, goes_on) {
                Copied::Page => {}
                Copied::Unread => self.core().continue_readahead(&self.file, page),
                Copied::Nothing => {
                    let pages = self.core().memory().pages_of(at, wanted - done);
                    let page = self.core().guard(&self.file, page, pages)?;
                    to.copy_from_slice(&page[at..at + to.len()]);
                }
            }
            (done, wanted) = self.after_part(offset, done + to.len(), wanted, buf.len());
            goes_on = false;
        }
        Calls::Reads.note_end(follows, &self.file, offset + done as u64);
        Ok(done)
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// Blocks as [`File::read_at`].
    ///
    /// # Errors
    /// As [`File::read_at`]; [`Error::UnexpectedEof`] if the file ends before. The contents of
    /// `buf` are then unspecified.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let read = self.read_at(buf, offset)?;
        if read == buf.len() {
            return Ok(());
        }
        Err(Error::UnexpectedEof { file: self.file.path.clone(), offset, wanted: buf.len(), read })
    }

    /// How many of `len` bytes at `offset` the file has.
    #[inline]
    fn bytes_to_read(&self, offset: u64, len: usize) -> Result<usize, Error> {
        self.core().check_range(&self.file, offset, len)?;
        let left = self.file.len().saturating_sub(offset);
        Ok(usize::try_from(left).map_or(len, |left| left.min(len)))
    }

    /// Another part was read, so that there are `done` of `wanted` bytes, of the `len` that the
    /// caller asked for. Gives both as they are where others have changed the file's length.
    #[inline]
    fn after_part(&self, offset: u64, done: usize, wanted: usize, len: usize) -> (usize, usize) {
        // A page that was read after a cut has zeros beyond it, and then this sees the cut, as the
        // one who filled the page has (unless the file has grown again since).
        let left = self.file.readable_len().saturating_sub(offset);
        if (done as u64) > left {
            (left as usize, left as usize)
        } else if done == wanted && done < len {
            self.look_at_end(offset, done, len)
        } else {
            (done, wanted)
        }
    }

    /// `done` of `len` bytes were read, up to where the file ended. If it has grown meanwhile, the
    /// page that is cut off there may be newer than that end, and is read again. Gives the bytes
    /// that are done, and those that are wanted.
    #[cold]
    fn look_at_end(&self, offset: u64, done: usize, len: usize) -> (usize, usize) {
        let end = offset + done as u64;
        // Who changes a page makes the file longer before others can see the change.
        let grown = usize::try_from(self.file.len().saturating_sub(end)).unwrap_or(len);
        if grown == 0 {
            return (done, done);
        }
        let (_, at) = self.core().memory().locate(end);
        (done.saturating_sub(at), len.min(done.saturating_add(grown)))
    }

    /// Whether a call at `offset` goes on in the page where the one ended that it `follows`.
    #[inline]
    fn goes_on(&self, follows: Option<usize>, offset: u64) -> bool {
        follows.is_some() && self.core().memory().locate(offset).1 > 0
    }

    /// The next page to read, where in it, and the part of `buf` for that, when `done` bytes have
    /// been read of those at `offset`.
    #[inline]
    fn next_part<'b>(
        &self,
        buf: &'b mut [u8],
        done: usize,
        offset: u64,
    ) -> (PageNo, usize, &'b mut [u8]) {
        let (page, at) = self.core().memory().locate(offset + done as u64);
        let bytes = (buf.len() - done).min(self.core().memory().page_bytes() - at);
        (page, at, &mut buf[done..done + bytes])
    }

    /// Writes `bytes` at `offset`, as pwrite(2), and makes the file longer if they reach beyond its
    /// end; a gap before them is read as zeros. Gives the number of bytes written: fewer than asked
    /// for only if a later page met an error; a call for the rest returns it.
    ///
    /// The bytes are in memory then; [`File::sync_all`] makes them durable. Blocks under
    /// `page-read`, `page-change`, `write-back`, `frame` and `file`, or on the device; under `file`
    /// only while another call sets the length or invalidates pages, not for a sync. A call that
    /// writes a page to its end may flush the file
    /// ([`CacheBuilder::flush_behind`](crate::CacheBuilder::flush_behind)).
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OutOfRange`], [`Error::WouldDeadlock`];
    /// [`Error::FileTooLarge`] if the file system does not allow a file to reach to the end of the
    /// last page that is written; the [errors](File#errors) of all writes.
    ///
    /// [`Error::Io`] comes if a part of a page is written and the rest could not be read, or if the
    /// file has as many dirty pages as it may (three quarters of the frames that hold no dirty page
    /// of another file) and none could be written back. Writes try that again once in 100 ms, and
    /// fail at once in between; a sync always tries.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.check_write()?;
        let core = self.core();
        core.check_write(&self.file, offset, bytes.len())?;
        let follows = Calls::Writes.ended_at(&self.file, offset);
        if try_overwrite(core, &self.file, offset, bytes, follows.is_some()) {
            let end = offset + bytes.len() as u64;
            Calls::Writes.note_end(follows, &self.file, end);
            return self.write_through_if_asked(offset..end).map(|()| bytes.len());
        }
        let page_at = |offset| core.memory().locate(offset).0.0;
        let to_fill = page_at(offset)..page_at(offset + bytes.len() as u64);
        let fills = !to_fill.is_empty();
        let stream = if fills { core.join_stream(&self.file, &to_fill) } else { None };
        let writers = self.file.lock_writers_shared(&core.pages);
        // The stream, as long as pages are written many at a time.
        let mut together = stream;
        let (mut done, mut goes_on) = (0, self.goes_on(follows, offset));
        while done < bytes.len() {
            let (page, at) = core.memory().locate(offset + done as u64);
            if let (Some(stream), 0) = (together, at) {
                let rest = &bytes[done..];
                match core.write_whole_pages(&self.file, page, rest, stream) {
                    None => together = None,
                    Some(0) => {}
                    Some(pages) => {
                        done += pages * core.memory().page_bytes();
                        continue;
                    }
                }
            }
            let part = (bytes.len() - done).min(core.memory().page_bytes() - at);
            if fills {
                // It is there by the time that the next page of the stream is written.
                core.pages.index.prefetch_slot(self.file.key(page.next()));
            }
            let bytes = &bytes[done..done + part];
            match core.write_page(&self.file, page, at, bytes, stream, goes_on) {
                Ok(()) => {
                    (done, goes_on) = (done + part, false);
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Calls::Writes.note_end(follows, &self.file, offset + done as u64);
        let filled = page_at(offset)..page_at(offset + done as u64);
        let is_any_filled = !filled.is_empty();
        if is_any_filled {
            core.write_behind(&self.file, filled);
        }
        drop(writers);
        if is_any_filled {
            core.flush_behind(&self.file);
        }
        self.write_through_if_asked(offset..offset + done as u64)?;
        Ok(done)
    }

    /// Writes all of `bytes` at `offset`; blocks as [`File::write_at`].
    ///
    /// # Errors
    /// As [`File::write_at`]. What was written before the page that met the error stays written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write_at(&bytes[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// Makes the file `len_bytes` long, at once on the device as well (but not durably). What is
    /// added reads as zeros, and so does the rest of the last page of a file with a
    /// [hook](OpenOptions::page_hook), which is part of that file. Page guards keep what they had.
    ///
    /// Writes meanwhile come before that or after it, each page by itself. Waits for writers under
    /// `file`, and for pages in write-back under `write-back`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OutOfRange`], [`Error::FileTooLarge`],
    /// [`Error::WouldDeadlock`]; the [errors](File#errors) of all writes. The length is as it was;
    /// if the device has failed, it may have done a part.
    pub fn set_len(&self, len_bytes: u64) -> Result<(), Error> {
        self.check_write()?;
        self.core().check_range(&self.file, len_bytes, 0)?;
        let len = self.file.rounded_len(len_bytes);
        if len > self.file.len_max {
            return Err(self.file.too_large(0, len));
        }
        self.file.check_has_none_of(&ALL_PAGES)?;
        self.core().resize(&self.file, len_bytes)
    }

    /// The page, pinned: it stays as it is until the guard is dropped, whatever is written to the
    /// file meanwhile. Bytes beyond the end of the file are zero. A page wholly beyond it is no
    /// error, and does not make the file longer: compare [`File::len`].
    ///
    /// A guard keeps a frame: a thread that keeps guards of all frames waits for itself until
    /// [`CacheBuilder::frame_wait`](crate::CacheBuilder::frame_wait) is over. Blocks and fails as
    /// [`File::read_at`]. A hit takes no lock (but see [`File::read_at`] on pages that were read
    /// ahead); it and the drop of the guard write to one cache line, which all that pin the page
    /// share: threads that read one page at the same time are better served by [`File::peek`].
    ///
    /// # Errors
    /// As [`File::read_at`]; [`Error::TooManyPins`].
    #[inline]
    pub fn page(&self, page: PageNo) -> Result<PageGuard<'_>, Error> {
        self.core().guard(&self.file, page, 1)
    }

    /// As [`File::page`], for tasks: the future is ready with the pinned page. A page that is there
    /// is had by the first poll, which takes no lock then and allocates nothing; it needs no
    /// runtime. The guard is `Send`, and so is the future.
    ///
    /// Tasks and threads stand in the same queues, for the page (`page-read`, `page-change`) and,
    /// while none is available for it, for a frame (`frame`), and are told in the order in
    /// which they came. A frame is not kept for a task that is notified: if somebody else comes
    /// before its next poll and takes it, the task waits again, behind the others. No poll blocks,
    /// except that one which fails with [`Error::NoFrames`] looks at all frames, as
    /// [`Cache::stats`](crate::Cache::stats) does, or waits for the look of another. It may begin
    /// to write dirty pages back, to free a frame.
    ///
    /// The future is woken by the thread that ends what it waits for, most often the cache's I/O
    /// thread; so its waker must not make calls of the cache that block. If a waker panics, the
    /// panic is thrown away (the panic hook has seen it).
    ///
    /// The future may be dropped at any time, and what it was about to get goes to others: another
    /// waiter for the page reads it, and a free frame goes to the next that wants one. A
    /// read that was begun is ended by the I/O thread, and the page stays in memory. But a future
    /// that was polled once must be polled when it is woken, or dropped: one that is only kept may
    /// keep a pin, or leave others waiting for the page that it was to bring in. So while a future
    /// that was polled is neither ready nor dropped, the thread that is to poll it makes no
    /// blocking call of the cache (`page`, `write_at`, `page_mut`, `sync_all`): it could wait for
    /// what that future was given. An executor makes these calls on threads of their own
    /// (`spawn_blocking`); writes have no async form. A child of fork(2) forgets its parent's
    /// futures ([`std::mem::forget`]): a drop may wait for a lock that nobody has there.
    ///
    /// After the cache's `frame_wait` it fails as [`File::page`] does: the I/O thread keeps the
    /// time.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// use std::pin::pin;
    /// use std::sync::Arc;
    /// use std::task::{Context, Poll, Wake};
    /// use std::thread::{self, Thread};
    /// use unherd::{Cache, File, OpenOptions, PageNo};
    ///
    /// async fn sum(file: &File, page: PageNo) -> Result<u64, unherd::Error> {
    ///     let page = file.page_async(page).await?;
    ///     Ok(page.iter().map(|&byte| u64::from(byte)).sum())
    /// }
    ///
    /// // The least that an executor does; any other will do.
    /// struct Unpark(Thread);
    /// impl Wake for Unpark {
    ///     fn wake(self: Arc<Self>) {
    ///         self.0.unpark();
    ///     }
    /// }
    /// fn run<F: Future>(future: F) -> F::Output {
    ///     let waker = Arc::new(Unpark(thread::current())).into();
    ///     let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    ///     loop {
    ///         match future.as_mut().poll(&mut context) {
    ///             Poll::Ready(output) => return output,
    ///             Poll::Pending => thread::park(),
    ///         }
    ///     }
    /// }
    ///
    /// let cache = Cache::builder().build()?;
    /// let file = cache.open("data", OpenOptions::new())?;
    /// println!("{}", run(sum(&file, PageNo(3)))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`File::page`]; [`Error::AsyncNeedsIoThread`] if the page is not there, nor being read by
    /// a thread, and the cache was built with [`Io::Blocking`](crate::Io::Blocking);
    /// [`Error::WouldDeadlock`] if the thread that polls has a [`PageMut`] of the page, be it
    /// another task's.
    #[cfg(feature = "async")]
    pub async fn page_async(&self, page: PageNo) -> Result<PageGuard<'_>, Error> {
        self.core().guard_async(&self.file, page, 1).await
    }

    /// As [`File::read_at`], for tasks. Pages that are there are copied as they come, in one poll
    /// as long as there are such.
    ///
    /// Waits, wakes, may be dropped, and has to be polled as [`File::page_async`] says. `buf` is
    /// never given to the device, so nothing is written to it after the drop; its contents are then
    /// unspecified.
    ///
    /// # Errors
    /// As [`File::read_at`], and [`Error::AsyncNeedsIoThread`] as [`File::page_async`].
    #[cfg(feature = "async")]
    pub async fn read_at_async(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut wanted = self.bytes_to_read(offset, buf.len())?;
        let follows = Calls::Reads.ended_at(&self.file, offset);
        let (mut done, mut goes_on) = (0, self.goes_on(follows, offset));
        while done < wanted {
            let (page, at, to) = self.next_part(&mut buf[..wanted], done, offset);
            match self.core().pages.copy_out(self.file.key(page), at, to, goes_on) {
                Copied::Page => {}
                Copied::Unread => self.core().continue_readahead(&self.file, page),
                Copied::Nothing => {
                    let pages = self.core().memory().pages_of(at, wanted - done);
                    let page = self.core().guard_async(&self.file, page, pages).await?;
                    to.copy_from_slice(&page[at..at + to.len()]);
                }
            }
            (done, wanted) = self.after_part(offset, done + to.len(), wanted, buf.len());
            goes_on = false;
        }
        // Of the thread that polls now, which may be another, or have read something else since.
        let follows = Calls::Reads.ended_at(&self.file, offset);
        Calls::Reads.note_end(follows, &self.file, offset + done as u64);
        Ok(done)
    }

    /// The page, for this thread alone: until the guard is dropped, others who want the page wait
    /// under `page-change`, whether they pin it, peek at it, read or write it, and so do syncs of
    /// the file; [`File::set_len`] waits under `file`, a write that makes the file longer does not.
    /// A thread that holds one does not wait for a `set_len` that waits for it.
    /// Guards of the page that exist keep what they had. The changes are seen by others together,
    /// when the guard is dropped; none of them reaches the device before, so a log that describes
    /// them may be synced under the guard. If it is dropped while the thread unwinds, or by
    /// [`PageMut::abandon`], they are given up. A guard that is not written to makes nothing
    /// dirty, and does not make the file longer.
    ///
    /// The file reaches at least to the end of what was written. Blocks as [`File::write_at`]; the
    /// drop of the guard neither blocks nor fails, as what it needs was taken before. Who
    /// holds several pages at a time takes them in the same order everywhere, as locks; what would
    /// have the thread wait for itself is refused.
    ///
    /// A guard that is forgotten ([`std::mem::forget`]) keeps the page until the last handle of the
    /// file goes, and its frame for ever. What it has changed is lost then, and so is what was
    /// written to the page before, as far as that had not been written back: of the latter the next
    /// handle for writing is told ([`Error::LostWrites`]).
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// # let cache = unherd::Cache::builder().build()?;
    /// # let file = cache.open("data", unherd::OpenOptions::new().write(true))?;
    /// let mut page = file.page_mut(unherd::PageNo(0))?;
    /// let count = page[0];
    /// page.write(0, &[count + 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A handle is not dropped under a guard. This does not compile:
    ///
    /// ```compile_fail,E0505
    /// # use unherd_cache as unherd;
    /// # let cache = unherd::Cache::builder().build().unwrap();
    /// # let file = cache.open("data", unherd::OpenOptions::new().write(true)).unwrap();
    /// let page = file.page_mut(unherd::PageNo(0)).unwrap();
    /// drop(file);
    /// drop(page);
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OutOfRange`], [`Error::FileTooLarge`];
    /// [`Error::WouldDeadlock`] if the thread holds the page already; the [errors](File#errors) of
    /// all reads and writes.
    pub fn page_mut(&self, page: PageNo) -> Result<PageMut<'_>, Error> {
        self.check_write()?;
        self.core().check_page(&self.file, page)?;
        let core = self.core();
        core.check_write(&self.file, core.memory().offset(page), core.memory().page_bytes())?;
        PageMut::new(core, &self.file, page)
    }

    /// Looks at the page without a pin, and gives what `look` makes of it. That writes to no shared
    /// memory, except to the page's mark of use where that is not set, and keeps nobody from
    /// changing the page.
    ///
    /// If it is changed meanwhile, what `look` gave is thrown away, and `look` is called again: so
    /// it should do nothing but read. What it reads may be a mixture of old and new bytes until
    /// the end;
    /// [`Peek::check`] tells at any time. If it panics over such bytes, the panic is thrown away
    /// too (the panic hook has seen it; with `panic = "abort"` the process ends). In a
    /// loop that torn bytes would make endless, a load returns [`Torn`]. What `look` gave is
    /// dropped like any value: if that panics, so does this. A page that is not there, or changes
    /// at each of some looks, is pinned, and looked at under the pin. `look` may call the cache.
    ///
    /// Blocks and fails as [`File::page`].
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// # fn main() -> Result<(), unherd::Error> {
    /// use unherd::{Cache, OpenOptions, PageNo};
    /// # let cache = Cache::builder().build().expect("memory for a cache");
    /// # let file = cache.open("data", OpenOptions::new())?;
    /// let count = file.peek(PageNo(3), |page| page.get_u16(8))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`File::page`]; [`Error::TornElsewhere`] if calls are nested, and `look` returned the
    /// [`Torn`] of the other page.
    ///
    /// # Panics
    /// If `look` does, over bytes that belong together.
    #[inline(always)]
    pub fn peek<R>(
        &self,
        page: PageNo,
        look: impl FnMut(&Peek<'_>) -> Result<R, Torn>,
    ) -> Result<R, Error> {
        self.core().peek(&self.file, page, look)
    }

    /// Begins to read those of the pages that are missing, neighbours together, and does not wait
    /// for them. Returns how many of the pages it went through, from the first on: it stops where a
    /// quarter of the frames hold pages that were read ahead and that nobody has used yet; ask for
    /// the rest later. Pages for which no frame is free at once are left out, but count. A read
    /// that fails is silent: who asks for the page reads it again. Takes locks for a few steps, and
    /// does not block otherwise.
    ///
    /// With [`Io::Blocking`](crate::Io::Blocking) nothing reads beside the callers, and it does
    /// nothing and returns 0.
    pub fn prefetch(&self, pages: &[PageNo]) -> usize {
        self.core().prefetch(&self.file, pages)
    }

    /// Says how the file is going to be used, by whatever handle of this cache, until other advice
    /// is given. Does not block.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// use unherd::{Advice, Cache, OpenOptions};
    /// # let cache = Cache::builder().build()?;
    /// let index = cache.open("index", OpenOptions::new())?;
    /// index.advise(Advice::Random); // a tree: its pages lie anywhere
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advise(&self, advice: Advice) {
        // In a child of fork(2) the locks may be held for ever, and there are no misses.
        if !self.core().fork().is_forked() {
            *self.file.read_streams.lock() = ReadStreams::new(advice);
            self.file.no_reuse.store(advice == Advice::NoReuse, Ordering::Relaxed);
            self.file.write_streams.lock().advice = advice;
        }
    }

    /// Ends writing by this handle, and says what its drop could not. It does not release the file:
    /// the descriptor and the lock go when the last handle is dropped. Nor does it make writes
    /// durable: the normal end is `sync_all()?`, then drop.
    ///
    /// It writes back what is dirty in the file (but does not flush), and reports. After that the
    /// handle refuses writes and syncs ([`Error::Closed`]), also where this fails (except for
    /// [`Error::WouldDeadlock`] and [`Error::Forked`]), and a second call does nothing and returns
    /// `Ok`. It
    /// takes `&self`, for handles that are shared or stand behind a trait. Reads that others are
    /// in, and guards, go on; so do reads by this handle, until it is dropped.
    ///
    /// A page that somebody is changing just now, by a call or with a [`PageMut`] that lives, is
    /// neither awaited nor written: it might never come to rest. A change that ends later is
    /// written back by a sync of another handle, or by the drop of the last.
    ///
    /// Blocks under `write-back` and `file`, or on the device.
    ///
    /// # Errors
    /// Those of [`File::sync_all`] that this handle has not reported yet, and what could not be
    /// written back in three attempts. The drop tries that once more; if it fails as well, that is
    /// lost, and a later handle for writing is told ([`Error::LostWrites`]). To
    /// lose nothing, sync first. [`Error::WouldDeadlock`] if this thread has a
    /// [`PageMut`] of the file, which would never be written: nothing was done.
    pub fn close(&self) -> Result<(), Error> {
        self.core().check_not_forked()?;
        self.file.check_has_none_of(&ALL_PAGES)?;
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let writable = self.file.writable;
        let written = if writable { self.core().write_back_for_good(&self.file) } else { Ok(()) };
        // A write that failed is among what is reported; an older loss is told first. Padding that
        // stays beside one is cut off by the drop, or told to the next opener.
        self.report().and(written).and(self.file.check_released())
    }

    /// These bytes were written. A handle that writes through returns when the device has them.
    pub(crate) fn write_through_if_asked(&self, range: Range<u64>) -> Result<(), Error> {
        if !self.write_through {
            return Ok(());
        }
        let pages = self.pages_in(range);
        self.own(self.core().write_back_pages(&self.file, &pages))
    }

    /// Refuses a range that ends before it begins; one that is empty is none.
    pub(crate) fn check_forward(&self, range: &Range<u64>) -> Result<(), Error> {
        let Range { start, end } = *range;
        if start <= end {
            return Ok(());
        }
        Err(Error::BackwardRange { file: self.file.path.clone(), start, end })
    }

    pub(crate) fn pages_in(&self, range: Range<u64>) -> PageRange {
        if range.is_empty() {
            return 0..0;
        }
        let page_bytes = self.core().memory().page_bytes() as u64;
        range.start / page_bytes..range.end.div_ceil(page_bytes)
    }

    /// The failure of a call of its own, which this handle has reported by that.
    pub(crate) fn own(&self, outcome: Result<(), Failure>) -> Result<(), Error> {
        outcome.map_err(|(error, errors)| {
            // Else it is none of the file's. In a child of fork(2) the lock may be held for ever.
            if errors > 0 {
                self.seen.fetch_max(errors, Ordering::Relaxed);
                self.file.durability.lock().note_reported(errors);
            }
            error
        })
    }

    pub(crate) fn report(&self) -> Result<(), Error> {
        self.core().check_not_forked()?;
        let seen = self.seen.load(Ordering::Relaxed);
        let (outcome, errors) = self.file.report(seen);
        self.seen.fetch_max(errors, Ordering::Relaxed);
        outcome
    }

    pub(crate) fn check_write(&self) -> Result<(), Error> {
        self.core().check_not_forked()?;
        self.check_not_closed()?;
        if self.write { Ok(()) } else { Err(Error::ReadOnly { file: self.file.path.clone() }) }
    }

    pub(crate) fn check_not_closed(&self) -> Result<(), Error> {
        let is_closed = self.is_closed.load(Ordering::Relaxed);
        if is_closed { Err(Error::Closed { file: self.file.path.clone() }) } else { Ok(()) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.core().detach_file(&self.file) {
            return;
        }
        if is_in_foreign_code() {
            return close_elsewhere(self.owner.clone(), self.file.clone());
        }
        // Documented: `close` reports, a drop cannot.
        let _ = self.core().close_abandoned(&self.file);
    }
}

/// Has a thread of its own close a file whose last handle went in a waker.
fn close_elsewhere(owner: Arc<Owner>, file: Arc<FileState>) {
    let kept = (owner.clone(), file.clone());
    let closing = move || {
        let _ = owner.core.close_abandoned(&file);
    };
    if thread::Builder::new().name("unherd-close".into()).spawn(closing).is_err() {
        // Nobody can end the cache properly any more, so it goes on: what is dirty may still be
        // written back for its frame, or by another handle of the file.
        std::mem::forget(kept);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
