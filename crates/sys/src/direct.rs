//! The real [`Device`]: files of the kernel, with its page cache bypassed.
//!
//! A transfer is one system call; only an interrupted one (EINTR) is begun again. Queued transfers
//! go through io_uring or AIO (`queue.rs`). Finding a file's descriptor takes no lock
//! (`file_table.rs`).
//!
//! A file that is to be created has no name until all checks have passed (`O_TMPFILE`), so one that
//! is refused is gone without a trace, and nothing is ever removed by name. Where the file system
//! has no such files (NFS, FAT) it stays, empty. Its directory is synced, or a crash could take the
//! name of a file whose content was synced.
#![expect(unsafe_code, reason = "pread and pwrite on memory that is promised by contract")]

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags,
    fallocate, fcntl_getfl, fcntl_setfl, fdatasync, flock, fstat, fstatfs, fsync, ftruncate,
    linkat, open, seek, statx,
};
use rustix::io::Errno;

use crate::primitives::{Arc, Mutex};
use crate::queue::TransferQueue;
use crate::{
    Alignment, Completion, Deadline, Device, DeviceFile, Direction, HugePages, Identity, IoBuf,
    IoBufs, Map, OpenError, OpenHow, Opened, QueueKind, Transfer, plain,
};

/// What every device takes, and what is assumed where neither the kernel nor a probe tells.
const SAFE_ALIGNMENT: Alignment = Alignment { memory: 4096, offset: 4096 };
/// The least that a disk takes.
const SECTOR_ALIGNMENT: Alignment = Alignment { memory: 512, offset: 512 };
/// The kernel's page cache takes anything.
const BUFFERED_ALIGNMENT: Alignment = Alignment { memory: 1, offset: 1 };

/// File systems that take the flag for direct I/O but hold their files in the page cache.
/// KERNEL: 6.6, tmpfs opens with O_DIRECT.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [libc::TMPFS_MAGIC as u64, 0x8584_58f6 /* ramfs */];

/// Regular files and block devices, read and written by direct I/O. See [`Device`].
///
/// The advisory lock is flock(2)'s: it belongs to one opening of a file, so a second opening
/// conflicts in the same process too. A child of fork(2) must not use or drop its parent's device.
///
/// On drop, transfers that were queued but not yet given to the kernel are forgotten. What this
/// thread's reaps have started is waited for, and what the device's own threads have. What another
/// thread's reaps have started goes on until that thread ends: until then its memory stays
/// promised, and its files stay open with their locks. All other files are closed. So reap all, or
/// end the reaping thread first: then the memory is free when the drop returns.
///
/// ```
/// # mod unherd {
/// #     pub use unherd_sys::*;
/// #     pub mod device {
/// #         pub use unherd_sys::{OpenError, OpenHow};
/// #     }
/// # }
/// # fn main() -> Result<(), unherd::device::OpenError> {
/// # let dir = tempfile::tempdir().expect("a directory for temporary files");
/// # let path = dir.path().join("pages");
/// use unherd::device::OpenHow;
/// use unherd::{Device, DirectDevice, Errno};
///
/// let device = DirectDevice::new();
/// let how = OpenHow { write: true, create: true, buffered_fallback: true, ..OpenHow::default() };
/// let opened = device.open(&path, how)?;
/// device.set_len(opened.file, 1 << 20)?;
/// assert_eq!(device.len(opened.file)?, 1 << 20);
/// device.sync(opened.file)?;
/// device.close(opened.file);
/// assert_eq!(device.len(opened.file), Err(Errno::BADF));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DirectDevice {
    queue: Arc<TransferQueue>,
    queue_is_claimed: Mutex<bool>,
    refuses_direct: bool,
}

impl Default for DirectDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl DirectDevice {
    /// A device without open files. Finds out whether this process may use io_uring for queued
    /// transfers, and if not, whether AIO: see [`QueueKind`].
    pub fn new() -> Self {
        Self::with_queue(QueueKind::IoUring)
    }

    /// As [`DirectDevice::new`] where io_uring is forbidden, as in many containers.
    pub fn without_io_uring() -> Self {
        Self::with_queue(QueueKind::Aio)
    }

    fn with_queue(best: QueueKind) -> Self {
        Self {
            queue: TransferQueue::new(best),
            queue_is_claimed: Mutex::new(false),
            refuses_direct: false,
        }
    }

    /// As [`DirectDevice::new`], but every file system is taken to refuse direct I/O, so that tests
    /// see what happens then.
    pub fn refusing_direct() -> Self {
        let mut device = Self::new();
        device.refuses_direct = true;
        device
    }

    /// Asks for direct I/O on an open file: the alignment, or `None` where it is refused.
    fn make_direct(&self, fd: &OwnedFd) -> Result<Option<Alignment>, Errno> {
        // The file system of a device's node says nothing of the device: /dev is a tmpfs.
        let is_device = file_type(fd)? == FileType::BlockDevice;
        let is_in_memory =
            !is_device && MEMORY_FILE_SYSTEMS.contains(&(fstatfs(fd)?.f_type as u64));
        if self.refuses_direct || is_in_memory {
            return Ok(None);
        }
        let stated = stated_alignment(fd)?;
        if stated == Stated::Refused {
            return Ok(None);
        }
        match fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::DIRECT) {
            Ok(()) => {}
            Err(Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        match stated {
            Stated::Alignment(alignment) => Ok(Some(alignment)),
            Stated::Nothing | Stated::Refused => probe_alignment(fd).map(Some),
        }
    }

    fn change_space(
        &self,
        file: DeviceFile,
        how: FallocateFlags,
        range: Range<u64>,
    ) -> Result<(), Errno> {
        let file = self.queue.inbox.files.enter(file)?;
        let len = range.end.saturating_sub(range.start);
        rustix::io::retry_on_intr(|| fallocate(file.fd(), how, range.start, len))
    }

    /// Asks for direct I/O, and finds out what the file is; the number is still to be given.
    fn examine(&self, fd: &OwnedFd, how: OpenHow) -> Result<Opened, OpenError> {
        let direct = self.make_direct(fd)?;
        if direct.is_none() && !how.buffered_fallback {
            return Err(OpenError::DirectRefused);
        }
        let alignment = direct.unwrap_or(BUFFERED_ALIGNMENT);
        let needed = alignment.memory.max(alignment.offset);
        if needed > how.alignment_max {
            return Err(OpenError::Misaligned(needed));
        }
        let (stat, len_bytes) = (fstat(fd)?, len_bytes(fd)?);
        let (identity, len_bytes_max, block_bytes) = match file_type(fd)? {
            // A block device is what its number says, whatever node names it.
            FileType::BlockDevice => {
                (Identity { device: stat.st_rdev, inode: 0 }, len_bytes, alignment.offset.into())
            }
            _ => {
                let identity = Identity { device: stat.st_dev, inode: stat.st_ino };
                (identity, len_bytes_max(fd), (fstatfs(fd)?.f_bsize as u64).max(1))
            }
        };
        let (file, direct) = (DeviceFile(u32::MAX), direct.is_some());
        Ok(Opened {
            file,
            identity,
            alignment,
            len_bytes,
            len_bytes_max,
            block_bytes,
            direct,
            is_new: false,
        })
    }

    /// Makes a file, and gives it its name when it is known to do. `None` if it has to be opened by
    /// name: somebody else has made it meanwhile, or there are no files without a name here.
    fn create(&self, path: &Path, how: OpenHow) -> Result<Option<(OwnedFd, Opened)>, OpenError> {
        let dir = match path.parent() {
            Some(dir) if dir != Path::new("") => dir,
            _ => Path::new("."),
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = match open(dir, flags, CREATION_MODE) {
            Ok(fd) => fd,
            // The way by name would leave the file behind.
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno.into()),
            Err(_) => return Ok(None),
        };
        let opened = self.examine(&fd, how)?;
        // Before there is a name, so that nothing is left where this is refused.
        let dir = open_directory(dir)?;
        if !give_name(fd.as_fd(), path) {
            return Ok(None);
        }
        sync_directory(&dir)?;
        Ok(Some((fd, opened)))
    }
}

/// Of a file that is created, less what the process's umask takes away.
const CREATION_MODE: Mode = Mode::from_raw_mode(0o666);

/// Gives a file that has no name this one; whether it could.
fn give_name(fd: BorrowedFd<'_>, path: &Path) -> bool {
    // KERNEL: before 6.10 this takes CAP_DAC_READ_SEARCH; the other way takes a /proc.
    let named = linkat(fd, "", CWD, path, AtFlags::EMPTY_PATH).or_else(|_| {
        let fd = format!("/proc/self/fd/{}", fd.as_raw_fd());
        linkat(CWD, fd, CWD, path, AtFlags::SYMLINK_FOLLOW)
    });
    named.is_ok()
}

/// Opens with the page cache; direct I/O is asked for once the file has been looked at.
fn open_buffered(path: &Path, how: OpenHow) -> Result<OwnedFd, OpenError> {
    let access = if how.write { OFlags::RDWR } else { OFlags::RDONLY };
    let create = match (how.create_new, how.create) {
        (true, _) => OFlags::CREATE | OFlags::EXCL,
        (false, true) => OFlags::CREATE,
        (false, false) => OFlags::empty(),
    };
    // NONBLOCK: opening a pipe or a terminal by mistake must not hang; NOCTTY likewise.
    let flags = access | create | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = open(path, flags, CREATION_MODE).map_err(|errno| match errno {
        Errno::ISDIR | Errno::NXIO => OpenError::NotAFile,
        errno => OpenError::System(errno),
    })?;
    prepare(&fd)?;
    Ok(fd)
}

/// Refuses what is not a file.
fn prepare(fd: &OwnedFd) -> Result<(), OpenError> {
    match file_type(fd)? {
        FileType::RegularFile | FileType::BlockDevice => {}
        _ => return Err(OpenError::NotAFile),
    }
    // With NONBLOCK a queued transfer would end with EAGAIN where it should wait.
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? - OFlags::NONBLOCK)?)
}

/// Makes the file's name durable, where the file system can.
fn sync_name(path: &Path) -> Result<(), Errno> {
    // The name may be a symbolic link, to a file in another directory.
    let file = std::fs::canonicalize(path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    sync_directory(&open_directory(file.parent().unwrap_or(Path::new("/")))?)
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn sync_directory(dir: &OwnedFd) -> Result<(), Errno> {
    match rustix::io::retry_on_intr(|| fsync(dir)) {
        // This file system's directories cannot be synced.
        Err(Errno::INVAL) => Ok(()),
        done => done,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Stated {
    Alignment(Alignment),
    Refused,
    Nothing,
}

/// What statx(2) says of direct I/O on the file.
fn stated_alignment(fd: &OwnedFd) -> Result<Stated, Errno> {
    // KERNEL: 6.1, STATX_DIOALIGN; a file system may still leave it out.
    let stat = match statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) => stat,
        Err(Errno::NOSYS) => return Ok(Stated::Nothing),
        Err(errno) => return Err(errno),
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(Stated::Nothing);
    }
    let alignment = Alignment { memory: stat.stx_dio_mem_align, offset: stat.stx_dio_offset_align };
    if alignment.memory == 0 || alignment.offset == 0 {
        return Ok(Stated::Refused);
    }
    Ok(Stated::Alignment(alignment))
}

/// Finds the alignment by reading one sector: 512 where that works, 4096 where it does not or where
/// the file has nothing to read.
fn probe_alignment(fd: &OwnedFd) -> Result<Alignment, Errno> {
    let map = Map::new(4096, HugePages::AsConfigured)?;
    // SAFETY: the second sector of a fresh map, in bounds.
    let start = unsafe { map.start().add(512) };
    // SAFETY: as above; nobody else has the map.
    let read = unsafe { plain::transfer(Direction::Read, fd, 0, IoBuf { start, len: 512 }.into()) };
    Ok(if read == Ok(512) { SECTOR_ALIGNMENT } else { SAFE_ALIGNMENT })
}

fn file_type(fd: &OwnedFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

fn len_bytes(fd: impl AsFd) -> Result<u64, Errno> {
    let stat = fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        // No transfer uses the position that this moves.
        FileType::BlockDevice => seek(&fd, SeekFrom::End(0)),
        _ => Ok(stat.st_size as u64),
    }
}

/// The largest length that the file system lets a regular file have.
fn len_bytes_max(fd: &OwnedFd) -> u64 {
    // KERNEL: lseek(2) beyond it fails (`vfs_setpos`), and asks no disk.
    let is_allowed = |offset| seek(fd, SeekFrom::Start(offset)).is_ok();
    let longer = |len: u64, bit: u32| {
        let longer = len | 1 << bit;
        if is_allowed(longer) { longer } else { len }
    };
    (0..i64::BITS - 1).rev().fold(0, longer)
}

// SAFETY: pread(2) and pwrite(2) are done with the memory when they return, be it in a caller or a
// worker; the kernel completes each entry of a ring or an AIO context once, after its last use of
// the memory; what comes back undone goes to a worker, once.
unsafe impl Device for DirectDevice {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Opened, OpenError> {
        let existing = if how.create_new {
            None
        } else {
            match open_buffered(path, OpenHow { create: false, ..how }) {
                Err(OpenError::System(Errno::NOENT)) if how.create => None,
                existing => Some(existing?),
            }
        };
        let created = if existing.is_none() { self.create(path, how)? } else { None };
        let has_durable_name = created.is_some();
        let is_new = has_durable_name || how.create_new;
        let (fd, opened) = match created {
            Some(created) => created,
            None => {
                let fd = existing.map_or_else(|| open_buffered(path, how), Ok)?;
                let opened = self.examine(&fd, how)?;
                (fd, opened)
            }
        };
        // A file that has just been made is empty.
        if (how.create || how.create_new) && opened.len_bytes == 0 && !has_durable_name {
            sync_name(path)?;
        }
        Ok(Opened { file: self.queue.inbox.files.insert(fd)?, is_new, ..opened })
    }

    fn adopt(&self, fd: OwnedFd, how: OpenHow) -> Result<Opened, OpenError> {
        let flags = fcntl_getfl(&fd)?;
        let access = flags & OFlags::ACCMODE;
        if access != OFlags::RDWR && (how.write || access != OFlags::RDONLY) {
            return Err(Errno::BADF.into());
        }
        // KERNEL: pwrite(2) writes at the end of the file then, whatever the offset is.
        if how.write && flags.contains(OFlags::APPEND) {
            return Err(Errno::BADF.into());
        }
        prepare(&fd)?;
        let opened = self.examine(&fd, how)?;
        Ok(Opened { file: self.queue.inbox.files.insert(fd)?, ..opened })
    }

    fn try_lock(&self, file: DeviceFile, exclusive: bool) -> Result<bool, Errno> {
        let file = self.queue.inbox.files.enter(file)?;
        let lock = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        match flock(file.fd(), lock) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn close(&self, file: DeviceFile) {
        self.queue.inbox.files.close(file);
    }

    fn len(&self, file: DeviceFile) -> Result<u64, Errno> {
        len_bytes(self.queue.inbox.files.enter(file)?.fd())
    }

    fn set_len(&self, file: DeviceFile, len_bytes: u64) -> Result<(), Errno> {
        let file = self.queue.inbox.files.enter(file)?;
        rustix::io::retry_on_intr(|| ftruncate(file.fd(), len_bytes))
    }

    fn punch_hole(&self, file: DeviceFile, range: Range<u64>) -> Result<(), Errno> {
        self.change_space(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, range)
    }

    fn allocate(&self, file: DeviceFile, range: Range<u64>) -> Result<(), Errno> {
        self.change_space(file, FallocateFlags::empty(), range)
    }

    unsafe fn read(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        let file = self.queue.inbox.files.enter(file)?;
        // SAFETY: the caller's promise is passed on.
        unsafe { plain::transfer(Direction::Read, file.fd(), offset, bufs) }
    }

    unsafe fn write(&self, file: DeviceFile, offset: u64, bufs: IoBufs) -> Result<usize, Errno> {
        let file = self.queue.inbox.files.enter(file)?;
        // SAFETY: the caller's promise is passed on.
        unsafe { plain::transfer(Direction::Write, file.fd(), offset, bufs) }
    }

    fn sync(&self, file: DeviceFile) -> Result<(), Errno> {
        let file = self.queue.inbox.files.enter(file)?;
        rustix::io::retry_on_intr(|| fdatasync(file.fd()))
    }

    fn queue(&self) -> Option<QueueKind> {
        self.queue.kind()
    }

    fn claim_queue(&self) -> bool {
        !std::mem::replace(&mut *self.queue_is_claimed.lock(), true)
    }

    fn release_queue(&self) {
        *self.queue_is_claimed.lock() = false;
    }

    unsafe fn submit(&self, transfer: Transfer) {
        self.queue.inbox.submit(transfer);
    }

    fn reap(&self, out: &mut Vec<Completion>, deadline: Deadline) {
        self.queue.reap(out, deadline);
    }

    fn interrupt(&self) {
        self.queue.inbox.interrupt();
    }
}

impl Drop for DirectDevice {
    fn drop(&mut self) {
        self.queue.shut_down();
    }
}

#[cfg(test)]
mod tests;
