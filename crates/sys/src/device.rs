//! Where pages come from and go to: files read and written at aligned offsets.
//!
//! The real [`Device`] is [`crate::DirectDevice`]; `unherd-testkit` has one that lives in memory
//! and injects faults.
#![expect(unsafe_code, reason = "transfers take raw memory, whose owner gives its word")]

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr::NonNull;

use rustix::io::Errno;

use crate::Deadline;

/// A file as one device knows it; the number means nothing to another device. Once the file is
/// closed, calls with its number fail with `EBADF`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceFile(pub u32);

/// What a file is, however it was named: two handles of one file have the same identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The number of the device that holds the file.
    pub device: u64,
    /// The file's inode number there.
    pub inode: u64,
}

/// What direct I/O asks for, in bytes; both are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Of the memory's address.
    pub memory: u32,
    /// Of the offset and the length.
    pub offset: u32,
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenHow {
    /// For writing as well as reading.
    pub write: bool,
    /// Create the file where there is none; its name is durable when the opening returns. One that
    /// is refused leaves no file behind.
    pub create: bool,
    /// Create the file, and fail with `EEXIST` where there is one. Goes before `create`.
    pub create_new: bool,
    /// Where the file system refuses direct I/O: use the kernel's page cache instead of failing.
    pub buffered_fallback: bool,
    /// Refuse a file whose transfers must be aligned to more bytes.
    pub alignment_max: u32,
}

impl Default for OpenHow {
    fn default() -> Self {
        Self {
            write: false,
            create: false,
            create_new: false,
            buffered_fallback: false,
            alignment_max: u32::MAX,
        }
    }
}

/// A file that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The file, for the calls that follow.
    pub file: DeviceFile,
    /// What it is.
    pub identity: Identity,
    /// What its transfers must be aligned to.
    pub alignment: Alignment,
    /// Its length now, in bytes.
    pub len_bytes: u64,
    /// The largest length that the file system lets it have, in bytes; of a block device, its size.
    pub len_bytes_max: u64,
    /// A block of the file system, in bytes. Where a file is cut or grows inside of one, or a part
    /// of a new one is written, the file system zeroes the rest, by a write of its own.
    pub block_bytes: u64,
    /// Whether the file is open for direct I/O. That bypasses the kernel's page cache as far as the
    /// file system keeps to it: some take the flag and cache all the same (ZFS before 2.3,
    /// some network and FUSE file systems), some fall back for single transfers (ext4 for
    /// misaligned reads, btrfs for compressed or checksummed data).
    pub direct: bool,
    /// Whether this opening is known to have made the file: it may have the number of one that was
    /// removed.
    pub is_new: bool,
}

/// Why a file could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused.
    System(Errno),
    /// The file system refuses direct I/O, and no fallback was allowed.
    DirectRefused,
    /// Its transfers must be aligned to this number of bytes, which is more than was allowed.
    Misaligned(u32),
    /// Not a regular file or block device.
    NotAFile,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(errno) => write!(f, "{errno}"),
            Self::DirectRefused => f.write_str("the file system refuses direct I/O"),
            Self::Misaligned(bytes) => write!(f, "transfers must be aligned to {bytes} bytes"),
            Self::NotAFile => f.write_str("not a regular file or block device"),
        }
    }
}

impl Error for OpenError {}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// A piece of memory for a transfer: `len` bytes at `start`, laid out as the kernel's `iovec`.
///
/// A caller that hands one to a device keeps the memory mapped until the transfer is complete, does
/// not write it while the device reads it, and does not touch it while the device writes it, except
/// by racy reads ([`crate::racy`]) that it does not believe. So a device that is not the kernel's
/// writes by racy copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct IoBuf {
    /// The first byte.
    pub start: NonNull<u8>,
    /// The number of bytes.
    pub len: usize,
}

// SAFETY: an `IoBuf` is an address and a length; the contract above says who may use the memory.
unsafe impl Send for IoBuf {}
// SAFETY: as above.
unsafe impl Sync for IoBuf {}

/// The memory of one transfer, in one piece or in several that follow each other in the file.
///
/// The list of pieces belongs to the caller, and is kept like the memory itself: unchanged, until
/// the transfer is complete. The kernel takes at most [`IoBufs::PIECES_MAX`] pieces at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoBufs {
    /// One piece.
    One(IoBuf),
    /// This many pieces, from this one on.
    List(NonNull<IoBuf>, usize),
}

// SAFETY: addresses and lengths; the contract says who may use what they point to.
unsafe impl Send for IoBufs {}

impl From<IoBuf> for IoBufs {
    fn from(buf: IoBuf) -> Self {
        Self::One(buf)
    }
}

impl IoBufs {
    /// The most pieces of one transfer (the kernel's `IOV_MAX`).
    pub const PIECES_MAX: usize = 1024;

    /// All pieces of a list, which the caller keeps until the transfer is complete.
    pub fn list(pieces: &[IoBuf]) -> Self {
        match pieces {
            [one] => Self::One(*one),
            pieces => Self::List(NonNull::from(pieces).cast(), pieces.len()),
        }
    }

    /// The pieces.
    ///
    /// # Safety
    /// The transfer is not complete, so the list is still there.
    pub unsafe fn pieces(&self) -> &[IoBuf] {
        match self {
            Self::One(buf) => std::slice::from_ref(buf),
            // SAFETY: the caller's promise; `list` made it of a slice of that length.
            Self::List(first, count) => unsafe {
                std::slice::from_raw_parts(first.as_ptr(), *count)
            },
        }
    }
}

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the file into memory.
    Read,
    /// From memory into the file.
    Write,
}

/// One queued transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// The file.
    pub file: DeviceFile,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The memory.
    pub bufs: IoBufs,
    /// The caller's own mark; it comes back in the completion.
    pub tag: u64,
}

/// The end of a queued transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The mark of the transfer.
    pub tag: u64,
    /// How many bytes were moved, which may be fewer than were asked for; 0 is the end of the file.
    pub result: Result<usize, Errno>,
}

/// What a device queues transfers by, as it was found when the device was made. Should the kernel
/// refuse that later, threads of the device make the transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueKind {
    /// The kernel's io_uring.
    IoUring,
    /// The kernel's AIO, io_submit(2), and threads of the device for what would block in it: the
    /// kernel has to look a block up, or a write makes its file longer or fills a hole.
    Aio,
    /// Threads of the device, which make blocking calls.
    Threads,
    /// A queue of the device's own.
    Own,
}

/// Files that are read and written at aligned offsets, from and to memory that the caller owns.
///
/// There are two ways to move bytes. *Blocking*: [`Device::read`], [`Device::write`]. *Queued*:
/// [`Device::submit`] hands over a [`Transfer`] and returns at once; [`Device::reap`] gives back
/// the [`Completion`]s, in any order, to the one thread that reaps. The real device is
/// [`DirectDevice`](crate::DirectDevice).
///
/// A device does not repeat short transfers (the caller sees how much was moved), does not cache,
/// and does not order one transfer after another. Data is durable once [`Device::sync`] has
/// returned, not before. To the cache, a read, write or sync that panics has failed with `EIO`.
///
/// # Safety
/// Callers rely on it to know when memory is theirs again. A blocking transfer has ended its use of
/// the memory when it returns, or unwinds. A queued one gives one [`Completion`] with its tag,
/// after the last use of the memory, and to the one who has claimed the queue. A transfer says
/// truly how many bytes it has moved: of a read, that many bytes were written to the memory.
pub unsafe trait Device: Send + Sync {
    /// Opens `path`. Blocks on the file system.
    fn open(&self, path: &Path, how: OpenHow) -> Result<Opened, OpenError>;

    /// Takes over a file that is open already: `how.write` must be how it was opened, not to
    /// append, and nothing is created. A device whose files have no descriptors refuses.
    fn adopt(&self, fd: OwnedFd, how: OpenHow) -> Result<Opened, OpenError> {
        let _ = (fd, how);
        Err(Errno::OPNOTSUPP.into())
    }

    /// Takes the advisory lock of `file`, exclusive or shared, until it is closed. False if another
    /// opening holds one that forbids it. Does not block.
    fn try_lock(&self, file: DeviceFile, exclusive: bool) -> Result<bool, Errno>;

    /// Closes `file`, and drops its lock. No transfer of it may be under way.
    fn close(&self, file: DeviceFile);

    /// The file's length in bytes.
    fn len(&self, file: DeviceFile) -> Result<u64, Errno>;

    /// Makes the file `len_bytes` long; what is added reads as zeros.
    fn set_len(&self, file: DeviceFile, len_bytes: u64) -> Result<(), Errno>;

    /// Gives the blocks of these bytes back, as far as that goes; they read as zeros then, and the
    /// length stays. A device that has no holes refuses.
    fn punch_hole(&self, file: DeviceFile, range: Range<u64>) -> Result<(), Errno> {
        let _ = (file, range);
        Err(Errno::OPNOTSUPP)
    }

    /// Reserves blocks for these bytes, of which the range is not empty; makes the file longer,
    /// with zeros, if they reach beyond its end. If it fails, the file may be longer all the same.
    /// A device that cannot reserve refuses.
    fn allocate(&self, file: DeviceFile, range: Range<u64>) -> Result<(), Errno> {
        let _ = (file, range);
        Err(Errno::OPNOTSUPP)
    }

    /// Reads into `bufs` from `offset`; blocks until done, and says how many bytes were moved.
    ///
    /// # Safety
    /// The memory is the caller's, as [`IoBuf`] says, until this returns or unwinds.
    unsafe fn read(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno>;

    /// Writes `bufs` at `offset`; blocks until done, and says how many bytes were moved.
    ///
    /// # Safety
    /// The memory is the caller's, as [`IoBuf`] says, until this returns or unwinds.
    unsafe fn write(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno>;

    /// Returns once all completed writes of `file` and its length are on stable storage.
    ///
    /// An error is reported once by the kernel, which then forgets it: the caller must treat every
    /// write since the last success as lost.
    fn sync(&self, file: DeviceFile) -> Result<(), Errno>;

    /// What transfers are queued by; `None`: [`Device::submit`] may not be called.
    fn queue(&self) -> Option<QueueKind>;

    /// Takes the queue for the caller alone. False if somebody has it: completions of two callers
    /// could not be told apart. Its owner calls [`Device::submit`] and [`Device::reap`].
    fn claim_queue(&self) -> bool;

    /// Gives the queue back; nothing may be under way in it.
    fn release_queue(&self);

    /// Queues `transfer`. Never blocks on the device; the end comes out of [`Device::reap`].
    ///
    /// # Safety
    /// The memory of the transfer is the caller's, as [`IoBuf`] says, until its completion has been
    /// reaped, whatever becomes of the caller meanwhile.
    unsafe fn submit(&self, transfer: Transfer);

    /// Submits what is queued, waits until something has completed, the deadline has passed or
    /// [`Device::interrupt`] was called, and appends what has completed to `out`.
    ///
    /// One thread at a time may reap.
    fn reap(&self, out: &mut Vec<Completion>, deadline: Deadline);

    /// Ends the [`Device::reap`] that is under way, or the next one.
    fn interrupt(&self);
}
