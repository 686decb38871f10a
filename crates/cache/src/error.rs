//! What can go wrong, with the values that a person needs.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use unherd_sys::Errno;
use unherd_sys::primitives::Arc;

mod build_error;

pub use build_error::BuildError;

/// What the cache asked of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reading a page.
    Read,
    /// Writing pages back.
    Write,
    /// Asking for the length.
    Len,
    /// Setting the length.
    SetLen,
    /// Making writes durable.
    Sync,
    /// Giving blocks back ([`File::punch_hole`](crate::File::punch_hole)).
    PunchHole,
    /// Reserving blocks ([`File::allocate`](crate::File::allocate)).
    Allocate,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Len => "query of the length",
            Self::SetLen => "change of the length",
            Self::Sync => "sync",
            Self::PunchHole => "punching of a hole",
            Self::Allocate => "reservation of space",
        })
    }
}

/// Why a call on a cache or its files failed. Nothing that was written before is lost by it, except
/// where a variant says so.
///
/// `?` turns an `Error` (and a [`BuildError`]) into a [`std::io::Error`] with the same text, which
/// holds the `Error` ([`get_ref`](std::io::Error::get_ref)). Its kind:
///
/// | error | [`ErrorKind`](std::io::ErrorKind) |
/// |---|---|
/// | `Io`, `Open`, `Memory`, `LostWrites` with an `errno` | that of the `errno` |
/// | `NoFrames`, `CannotShrink` | that of its `write_error`; `TimedOut` if there is none |
/// | `UnexpectedEof`, `Truncated` | `UnexpectedEof` |
/// | `ShortTransfer` | `WriteZero` |
/// | `FileTooLarge` | `FileTooLarge` |
/// | `WouldDeadlock` | `Deadlock` |
/// | `TooManyPins`, `HeldReadOnly`, `OtherHook` | `ResourceBusy` |
/// | `NotSynced`, `Held`, `TooManyHeld`, `NoContiguousFrames` | `ResourceBusy` |
/// | `Locked` | `WouldBlock` |
/// | `ReadOnly` | `PermissionDenied` |
/// | `InsufficientMemory` | `OutOfMemory` |
/// | `CreateNeedsWrite`, `OutOfRange`, `BackwardRange`, `NotAFile`, `Misaligned`, `TornElsewhere`, `CapacityOutOfRange`, `ContiguousTooLarge` | `InvalidInput` |
/// | `DirectRefused`, `AsyncNeedsIoThread`, `Forked` | `Unsupported` |
/// | all others | `Other` |
///
/// After these it makes sense to try again, and when:
///
/// - `NoFrames` and `CannotShrink`, when guards have been dropped, and the cause in `write_error`
///   is repaired; these calls have waited already
/// - `NoContiguousFrames`, when guards have been dropped
/// - `Io` and `ShortTransfer` of a write, for instance when a full disk has space again: the pages
///   stay in the cache, and the next sync tries them again
/// - `Locked`, `HeldReadOnly`, `OtherHook`, `TooManyPins`, when others have dropped their handles
///   or guards
/// - `WouldDeadlock`, when the caller has dropped its own [`PageMut`](crate::PageMut)
/// - `Held` and `TooManyHeld`, after a sync of the log and a call of
///   [`File::release_to`](crate::File::release_to)
/// - `NotSynced`, after a sync; `Truncated`, when the other program has written again
/// - `InsufficientMemory` and `Memory`, with less, or later
///
/// `LostWrites` and `LostDurability` stand for a loss: open the file again, look what it holds, and
/// write again what is missing.
///
/// `Debug` gives the same text, which is what a program prints whose `main` returns the error.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The device reported an error.
    Io {
        /// What was asked of the device.
        operation: Operation,
        /// The file.
        file: Arc<Path>,
        /// Where in the file, in bytes; 0 for what concerns all of it.
        offset: u64,
        /// The kernel's number.
        errno: Errno,
    },
    /// The device wrote less than it was asked to, and no more when it was asked again.
    ShortTransfer {
        /// The file.
        file: Arc<Path>,
        /// Where the transfer began, in bytes.
        offset: u64,
        /// Bytes that were to be moved.
        wanted: usize,
        /// Bytes that were moved.
        moved: usize,
    },
    /// The device has fewer bytes of the file than it had before: another program has truncated
    /// it. What was there is not known, so it is not read as zeros. The next read tries again.
    Truncated {
        /// The file.
        file: Arc<Path>,
        /// Where the page begins that could not be read, in bytes.
        offset: u64,
        /// The length of the file on the device, as it was before.
        len: u64,
    },
    /// No frame became free in time.
    NoFrames {
        /// Frames that somebody has pinned, or holds for changing.
        pinned: usize,
        /// Threads that hold them. Of each frame one thread is counted: its first holder. A guard
        /// that was sent to another thread counts for the one that it came from.
        threads: usize,
        /// Frames whose write-back failed, or that are held back
        /// ([`PageMut::hold_until`](crate::PageMut::hold_until)).
        unwritten: usize,
        /// Frames that are given out as contiguous memory
        /// ([`Cache::alloc_contiguous`](crate::Cache::alloc_contiguous)).
        given_out: usize,
        /// All frames.
        capacity: usize,
        /// How long the call has waited.
        waited: Duration,
        /// The latest write-back that failed, if there are such frames.
        write_error: Option<Arc<Error>>,
    },
    /// [`Cache::alloc_contiguous`](crate::Cache::alloc_contiguous) was asked for more than it ever
    /// gives in one piece.
    ContiguousTooLarge {
        /// What was asked for.
        bytes: usize,
        /// The largest piece: 2 MiB, or what fits into an eighth of the cache.
        bytes_max: usize,
    },
    /// [`Cache::alloc_contiguous`](crate::Cache::alloc_contiguous) has found no row of frames that
    /// it could empty.
    NoContiguousFrames {
        /// What was asked for.
        bytes: usize,
        /// How many rows it has looked at; none if too much is given out. What follows is of all of
        /// them; if nothing stood in the way of one, that one was not empty in time.
        rows: usize,
        /// Frames that somebody has pinned.
        pinned: usize,
        /// Frames whose pages are being changed.
        changing: usize,
        /// Frames whose write-back failed, or that are held back.
        unwritten: usize,
        /// Frames that other calls have taken just now.
        taken: usize,
        /// One of these pages: its file and number, if the file is open.
        page: Option<(Arc<Path>, u64)>,
        /// What is given out already.
        given_out_bytes: usize,
        /// How much may be given out.
        given_out_bytes_max: usize,
        /// How long the call has tried.
        waited: Duration,
    },
    /// [`Cache::resize`](crate::Cache::resize) was asked for less than the smallest cache, or for
    /// more than the cache was built for.
    CapacityOutOfRange {
        /// What was asked for.
        capacity_bytes: usize,
        /// The bytes that the smallest cache takes.
        least_bytes: usize,
        /// What [`CacheBuilder::max_capacity`](crate::CacheBuilder::max_capacity) has said.
        most_bytes: usize,
    },
    /// The cache cannot shrink that far: more than three quarters of the new capacity are pinned or
    /// cannot be written back, or more than an eighth is given out as contiguous memory, or no
    /// frame became free in time.
    CannotShrink {
        /// What was asked for.
        capacity_bytes: usize,
        /// What holds frames: [`Error::NoFrames`].
        cause: Arc<Error>,
    },
    /// The cache is to grow by more memory than the machine, or a memory cgroup, has left.
    InsufficientMemory {
        /// Bytes that it would take.
        bytes: usize,
        /// Bytes that are available.
        available_bytes: u64,
        /// The file that says so: `/proc/meminfo`, or a cgroup's limit.
        limit: PathBuf,
    },
    /// The kernel has not given the memory by which the cache is to grow.
    Memory {
        /// Bytes that were asked for.
        bytes: usize,
        /// The kernel's number.
        errno: Errno,
    },
    /// A page has as many pins as it may have (2^17).
    TooManyPins {
        /// The file.
        file: Arc<Path>,
        /// The page.
        page: u64,
    },
    /// The calling thread holds a [`PageMut`](crate::PageMut) of this page, and the call would wait
    /// for it.
    WouldDeadlock {
        /// The file.
        file: Arc<Path>,
        /// A page that the call would wait for.
        page: u64,
    },
    /// A task wants a page that is not there, or a sync, and the cache was built to have no thread
    /// that could do it: the task's thread would have to block.
    AsyncNeedsIoThread {
        /// The file.
        file: Arc<Path>,
        /// The page; of a sync, none.
        page: Option<u64>,
    },
    /// The closure that looked at this page ([`File::peek`](crate::File::peek)) has returned the
    /// [`Torn`](crate::Torn) of another page: calls were nested.
    TornElsewhere {
        /// The file.
        file: Arc<Path>,
        /// The page, which was not torn.
        page: u64,
    },
    /// The file ends before all that was asked for could be read.
    UnexpectedEof {
        /// The file.
        file: Arc<Path>,
        /// Where the read began, in bytes.
        offset: u64,
        /// Bytes that were to be read.
        wanted: usize,
        /// Bytes that there are.
        read: usize,
    },
    /// Beyond the last offset that a file can have (2^63 - 1).
    OutOfRange {
        /// The file.
        file: Arc<Path>,
        /// Where, in bytes; `u64::MAX` for a page that begins beyond.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The page, if the call asked for a page.
        page: Option<u64>,
    },
    /// A range of bytes ends before it begins. Nothing was done.
    BackwardRange {
        /// The file.
        file: Arc<Path>,
        /// Where the range begins, in bytes.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// The file system does not let the file become so large; of a block device, it is beyond the
    /// end. Pages are written whole, and the last one must fit. Nothing was changed.
    FileTooLarge {
        /// The file.
        file: Arc<Path>,
        /// Where the write begins, in bytes.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The largest length that the file may have.
        len_max: u64,
    },
    /// [`File::invalidate`](crate::File::invalidate): a page was written since the last sync, be it
    /// written back or not, so it cannot be read again from the device.
    NotSynced {
        /// The file.
        file: Arc<Path>,
        /// The first such page of those that were asked for.
        page: u64,
    },
    /// A page is held back until its log is durable
    /// ([`PageMut::hold_until`](crate::PageMut::hold_until)), so it was not written. A
    /// sync has made everything else durable that it covers.
    Held {
        /// The file.
        file: Arc<Path>,
        /// The first such page.
        page: u64,
        /// The log sequence number that it waits for.
        lsn: u64,
        /// The highest one that [`File::release_to`](crate::File::release_to) was given.
        released: u64,
    },
    /// A quarter of the cache's frames have pages that are held back, and this would be one more.
    TooManyHeld {
        /// The file.
        file: Arc<Path>,
        /// The page that was to be held.
        page: u64,
        /// How many are held, of all files.
        held: usize,
    },
    /// The handle was closed, and writes no more.
    Closed {
        /// The file.
        file: Arc<Path>,
    },
    /// The handle was not opened for writing.
    ReadOnly {
        /// The file.
        file: Arc<Path>,
    },
    /// A file is to be created or truncated, and not to be opened for writing.
    CreateNeedsWrite {
        /// The path.
        file: Arc<Path>,
    },
    /// The cache holds the file read-only, and a new handle asks to write it: drop those handles
    /// first.
    HeldReadOnly {
        /// The file.
        file: Arc<Path>,
    },
    /// The file is open in this cache with another hook, or without one
    /// ([`OpenOptions::page_hook`](crate::OpenOptions::page_hook)), or the drop of its last handle
    /// has not returned yet: drop those handles first, or open it with the same hook.
    OtherHook {
        /// The file.
        file: Arc<Path>,
    },
    /// Another process or another cache holds the file's lock.
    Locked {
        /// The file.
        file: Arc<Path>,
    },
    /// The file system refuses direct I/O.
    DirectRefused {
        /// The file.
        file: Arc<Path>,
    },
    /// Not a regular file or block device.
    NotAFile {
        /// The path.
        file: Arc<Path>,
    },
    /// The file could not be opened.
    Open {
        /// The path.
        file: Arc<Path>,
        /// The kernel's number.
        errno: Errno,
    },
    /// The file's direct I/O needs larger pages.
    Misaligned {
        /// The file.
        file: Arc<Path>,
        /// What its device asks for.
        alignment_bytes: u32,
        /// The cache's page size.
        page_bytes: usize,
    },
    /// A flush failed, and the cache cannot write again what it should have made durable: pages
    /// that have left the cache, or zeros of the file system. It zeroes the rest of a block where
    /// [`File::set_len`](crate::File::set_len) cuts a file or makes it longer, and around pages
    /// that are smaller than a block. What the file holds on stable storage is not known any more.
    /// Every `sync_all` and `write_back` says so, until the file's last handle is dropped;
    /// [`File::close`](crate::File::close) does not end it. If none has said so by then, the next
    /// handle for writing does, once; so it does of several losses that none has reported.
    LostDurability {
        /// The file.
        file: Arc<Path>,
    },
    /// The last handle of the file was dropped while pages could not be written: what was written
    /// to them is lost. Reported once in all: by the first `sync_all`, `write_back` or `close` of a
    /// handle that this cache has opened for writing since.
    LostWrites {
        /// The file.
        file: Arc<Path>,
        /// How many pages were lost.
        pages: usize,
        /// Where the first of them begins, in bytes.
        offset: u64,
        /// Why that was not written, if the device gave a reason.
        errno: Option<Errno>,
    },
    /// The cache was built by another process, of which this one is a child by fork(2). Nothing was
    /// done. The child may still read pages that are in its copy of the cache. There, drops of
    /// handles and of the cache write nothing, wait for nobody, and leave the parent its lock.
    ///
    /// The parent goes on undisturbed, except before Linux 6.5: there, a fork while direct I/O
    /// reads into a page can leave the parent with stale bytes (see `O_DIRECT` in open(2)). It
    /// concerns pages of less than 4096 bytes, and the buffers of
    /// [`File::read_uncached_at`](crate::File::read_uncached_at); before Linux 5.8 larger pages
    /// too, unless the cache was built with `huge_pages(false)`. There, fork only while no read is
    /// under way.
    Forked,
    /// The cache has opened 2^32 - 1 files in its life.
    TooManyFiles,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { operation, file, offset, errno } => {
                write!(f, "{operation} of {} at offset {offset} failed: {errno}", file.display())?;
                let kind = io::Error::from_raw_os_error(errno.raw_os_error()).kind();
                match (operation, kind) {
                    (Operation::Allocate, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                        f.write_str("; make room, and call `allocate` again")
                    }
                    (_, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => f.write_str(
                        "; the cache keeps what it could not write until the file's last handle is \
                         dropped: make room, and call `sync_all` again (after a `close`, by \
                         another handle of the file)",
                    ),
                    (Operation::PunchHole, _) if *errno == Errno::OPNOTSUPP => {
                        f.write_str("; the file system has no holes: write zeros instead")
                    }
                    (Operation::Allocate, _) if *errno == Errno::OPNOTSUPP => {
                        f.write_str("; the file system reserves no space: use `set_len` instead")
                    }
                    _ => Ok(()),
                }
            }
            Self::ShortTransfer { file, offset, wanted, moved } => write!(
                f,
                "write of {} at offset {offset} stopped after {moved} of {wanted} bytes",
                file.display()
            ),
            Self::Truncated { file, offset, len } => write!(
                f,
                "{} was truncated by another program: it had {len} bytes, and those of the page at \
                 offset {offset} are not all there; `File::invalidate` goes on with what there is",
                file.display()
            ),
            Self::NoFrames { pinned, capacity, waited, .. } => {
                let waited = Duration::from_millis(waited.as_millis() as u64);
                write!(
                    f,
                    "no free frame after {waited:?}: of {capacity} frames {pinned} {}; drop page \
                     guards or build the cache with more capacity",
                    HeldFrames(self)
                )
            }
            Self::ContiguousTooLarge { bytes, bytes_max } => write!(
                f,
                "{} in one piece are more than this cache gives, {}: at most 2 MiB, and an eighth \
                 of the capacity; ask for less, or build the cache with more capacity",
                Size(*bytes as u64),
                Size(*bytes_max as u64)
            ),
            Self::NoContiguousFrames { bytes, rows: 0, given_out_bytes, .. }
                if *given_out_bytes > 0 =>
            {
                let (bytes, given_out) = (Size(*bytes as u64), Size(*given_out_bytes as u64));
                write!(f, "no {bytes} in one piece: {given_out} are given out")?;
                f.write_str(", and at most an eighth of the cache may be; drop some of that")
            }
            Self::NoContiguousFrames {
                bytes,
                rows,
                pinned,
                changing,
                unwritten,
                taken,
                page,
                waited,
                ..
            } => {
                let waited = Duration::from_millis(waited.as_millis() as u64);
                write!(
                    f,
                    "no {} in one piece after {waited:?}: in {} of frames {pinned} are pinned, \
                     {changing} are being changed, {unwritten} cannot be written back, and {taken} \
                     are taken",
                    Size(*bytes as u64),
                    Count(*rows, "row")
                )?;
                if let Some((file, page)) = page {
                    write!(f, " (such as page {page} of {})", file.display())?;
                }
                f.write_str("; drop page guards, or ask for less")
            }
            Self::CapacityOutOfRange { capacity_bytes, least_bytes, most_bytes } => write!(
                f,
                "a capacity of {} is not between the smallest, {}, and the largest that the cache \
                 was built for, {}; stay between them, or build it with a larger `max_capacity`",
                Size(*capacity_bytes as u64),
                Size(*least_bytes as u64),
                Size(*most_bytes as u64)
            ),
            Self::CannotShrink { capacity_bytes, cause } => {
                write!(f, "the cache cannot shrink to {}", Size(*capacity_bytes as u64))?;
                if let Self::NoFrames { pinned, .. } = &**cause {
                    write!(f, ": {pinned} frames {}", HeldFrames(cause))?;
                }
                f.write_str("; drop page guards, or shrink it less")
            }
            Self::InsufficientMemory { bytes, available_bytes, limit } => write!(
                f,
                "the cache cannot grow by {}: {} are available according to {}; ask for less",
                Size(*bytes as u64),
                Size(*available_bytes),
                limit.display()
            ),
            Self::Memory { bytes, errno } => {
                write!(f, "the cache cannot grow by {}: {errno}", Size(*bytes as u64))
            }
            Self::TooManyPins { file, page } => {
                write!(f, "page {page} of {} has too many pins", file.display())
            }
            Self::WouldDeadlock { file, page } => write!(
                f,
                "this thread holds page {page} of {} for changing, and would wait for itself; \
                 drop the `PageMut` first",
                file.display()
            ),
            Self::AsyncNeedsIoThread { file, page: None } => write!(
                f,
                "this cache cannot sync {} for a task; build it with `Io::Queued`",
                file.display()
            ),
            Self::AsyncNeedsIoThread { file, page: Some(page) } => write!(
                f,
                "page {page} of {} is not in memory, and this cache cannot bring it in for a \
                 task; build it with `Io::Queued`",
                file.display()
            ),
            Self::TornElsewhere { file, page } => write!(
                f,
                "the look at page {page} of {} ended with another page's `Torn`, which belongs to \
                 the look at that one",
                file.display()
            ),
            Self::UnexpectedEof { file, offset, wanted, read } => write!(
                f,
                "{} has {read} of the {wanted} bytes from offset {offset} on; compare File::len, \
                 or use read_at, which says how many there are",
                file.display()
            ),
            Self::OutOfRange { file, page: Some(page), .. } => write!(
                f,
                "page {page} of {} ends beyond the largest offset, {}",
                file.display(),
                i64::MAX
            ),
            Self::OutOfRange { file, offset, len: 0, page: None } => write!(
                f,
                "a length of {offset} is beyond the largest offset, {}, for {}",
                i64::MAX,
                file.display()
            ),
            Self::OutOfRange { file, offset, len, page: None } => write!(
                f,
                "{} at offset {offset} of {} would end beyond the largest offset, {}",
                Count(usize::try_from(*len).unwrap_or(usize::MAX), "byte"),
                file.display(),
                i64::MAX
            ),
            Self::BackwardRange { file, start, end } => write!(
                f,
                "the range {start}..{end} of {} ends before it begins; exchange the two",
                file.display()
            ),
            Self::FileTooLarge { file, offset, len, len_max } => write!(
                f,
                "the file system allows {} up to {len_max} bytes, and not {}; split the data over \
                 several files, or use another file system",
                file.display(),
                offset.saturating_add(*len)
            ),
            Self::NotSynced { file, page } => write!(
                f,
                "page {page} of {} holds writes that are not synced; call `sync_all` first (after \
                 a `close`, by another handle of the file)",
                file.display()
            ),
            Self::Held { file, page, lsn, released } => write!(
                f,
                "page {page} of {} is held back until log sequence number {lsn}, and only \
                 {released} is released; make the log durable, and call `release_to`",
                file.display()
            ),
            Self::TooManyHeld { file, page, held } => write!(
                f,
                "page {page} of {} cannot be held back, as {held} pages are: make the log durable, \
                 and call `release_to`",
                file.display()
            ),
            Self::Closed { file } => {
                write!(f, "this handle of {} was closed; open another one", file.display())
            }
            Self::ReadOnly { file } => {
                write!(f, "{} was opened read-only; open it with `write(true)`", file.display())
            }
            Self::CreateNeedsWrite { file } => {
                write!(f, "cannot create or truncate {} without `write(true)`", file.display())
            }
            Self::OtherHook { file } => write!(
                f,
                "{} is open in this cache with another page hook, or without one; drop those \
                 handles first, or open it with the same hook",
                file.display()
            ),
            Self::HeldReadOnly { file } => write!(
                f,
                "{} is open read-only in this cache; drop those handles before opening it for \
                 writing",
                file.display()
            ),
            Self::Locked { file } => write!(
                f,
                "{} is locked by another cache or process: drop all of its handles there, or wait \
                 longer by `lock_wait` (`lock(false)` only if nobody writes it)",
                file.display()
            ),
            Self::DirectRefused { file } => write!(
                f,
                "the file system of {} refuses direct I/O; open it with \
                 `direct(Direct::OrBuffered)`",
                file.display()
            ),
            Self::NotAFile { file } => {
                write!(
                    f,
                    "\"{}\" is not a regular file or block device; open one of these",
                    file.display()
                )
            }
            Self::Open { file, errno } => {
                let what_to_do = match *errno {
                    Errno::NOENT => {
                        "; its directory must exist, and unless it is opened with \
                         `write(true).create(true)` the file too"
                    }
                    Errno::ACCESS | Errno::PERM => {
                        "; look at its mode and its directories' (a new file's must be readable); \
                         to read it need only be readable"
                    }
                    Errno::ROFS => "; to write it, mount its file system for writing",
                    Errno::BADF => {
                        "; it must be open for reading, and for writing as well to write, not to \
                         append (O_APPEND)"
                    }
                    _ => "",
                };
                write!(f, "cannot open \"{}\": {errno}{what_to_do}", file.display())
            }
            Self::Misaligned { file, alignment_bytes, page_bytes } => write!(
                f,
                "direct I/O on {} is aligned to {alignment_bytes} bytes, which pages of \
                 {page_bytes} bytes do not meet; build the cache with a larger page size",
                file.display()
            ),
            Self::LostDurability { file } => write!(
                f,
                "{} has lost writes: a flush failed for what the cache cannot write again; restore \
                 the file",
                file.display()
            ),
            Self::LostWrites { file, pages, offset, errno } => write!(
                f,
                "{} has lost writes: it was closed with {} that could not be written, from \
                 offset {offset} on{}; write them again",
                file.display(),
                Count(*pages, "page"),
                because(*errno)
            ),
            Self::Forked => f.write_str(
                "this process was forked from the one that built the cache, and may not use it; \
                 build one here, or execute another program",
            ),
            Self::TooManyFiles => f.write_str("the cache has no number left for another file"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// A number of things, in words.
struct Count(usize, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, what) = self;
        write!(f, "{number} {what}{}", if *number == 1 { "" } else { "s" })
    }
}

/// A number of bytes, in the largest unit of which there is one.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
        let exponent = (self.0.max(1).ilog2() / 10).min(4);
        let unit = 1_u64 << (10 * exponent);
        let decimals = usize::from(!self.0.is_multiple_of(unit));
        let count = self.0 as f64 / unit as f64;
        write!(f, "{count:.decimals$} {}", UNITS[exponent as usize])
    }
}

/// What keeps the frames of a [`Error::NoFrames`], after how many are pinned.
struct HeldFrames<'a>(&'a Error);

impl fmt::Display for HeldFrames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error::NoFrames { threads, unwritten, given_out, write_error, .. } = self.0 else {
            return Ok(());
        };
        let (threads, because) = (Count(*threads, "thread"), because(write_error.as_ref()));
        write!(f, "are pinned, by {threads}")?;
        if *unwritten > 0 || write_error.is_some() {
            write!(f, ", and {unwritten} cannot be written back{because}")?;
        }
        match *given_out {
            0 => Ok(()),
            frames => write!(f, "; {} given out as contiguous memory", Count(frames, "frame")),
        }
    }
}

fn because(error: Option<impl fmt::Display>) -> String {
    error.map(|error| format!(" ({error})")).unwrap_or_default()
}
