//! Open files: what all handles of one file share, and the table of them.
//!
//! A file passes a *gate* when it is opened, and when its last handle goes. There is one for each
//! file, so who opens or closes one file waits for nobody who does so with another:
//!
//! ```text
//!  opens the file                           closes its last handle
//!  --------------                           ----------------------
//!  open it on the device, with no lock;     no handle left
//!    flush its directory if it is new       write back
//!  pass the gate                            pass the gate
//!  it is open here: one handle more         it has a handle again: done
//!  else lock it, look at its length,        write back what is left, drop its pages,
//!    put it into the table                    take it from the table, unlock it
//! ```
//!
//! Excluded: a file is opened a second time while it is still being written back, or is refused
//! because this cache has not given its lock back yet.
//!
//! Behind the gate nobody waits for anything but the device. Above all not for a page that is being
//! changed or was announced: calls, guards and futures borrow a handle, and there is none. So what
//! has such a page was forgotten, and nobody will ever give it back.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use unherd_sync::{Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering};
use unherd_sys::{Deadline, DeviceFile, Errno, Identity, OpenError, OpenHow, Opened, Timestamp};

use crate::error::{Error, Operation};
use crate::file::core::Core;
use crate::file::durability::{Durability, Eviction, Remains};
use crate::file::page_set::PageSet;
use crate::file::readahead::Streams;
use crate::file::sync_rounds::SyncRounds;
use crate::file::unwritten::Unwritten;
use crate::file::write_behind::FilledPages;
use crate::file::writeback::HeldPages;
use crate::frames::frame::Claim;
use crate::frames::frame::State;
use crate::io::engine::Engine;
use crate::latch::{Latch, StripedLatch};
use crate::page::{FileId, FrameId, PageKey, PageNo};
use crate::pages::evict::Promises;
use crate::pages::table::Pages;

/// What the handles of one file share.
#[derive(Debug)]
pub(crate) struct FileState {
    pub(crate) id: FileId,
    pub(crate) device_file: DeviceFile,
    identity: Identity,
    pub(crate) path: Arc<Path>,
    /// Of offsets and of memory, in bytes: a transfer that goes on in the middle moves both.
    pub(crate) alignment: u32,
    pub(crate) writable: bool,
    /// Whether the kernel's page cache is bypassed.
    pub(crate) direct: bool,
    /// The largest length that its file system lets it have.
    pub(crate) len_max: u64,
    /// The length in bytes, as the handles see it. Bytes of cached pages beyond it are zero.
    len: AtomicU64,
    /// Writers are inside; alone is who changes the length.
    pub(crate) writers: StripedLatch,
    /// Write-backs are inside; alone is who changes the length on the device.
    pub(crate) write_backs: Latch,
    pub(crate) syncs: SyncRounds,
    /// Every page that may be other than clean; the set may name pages that are clean or gone. A
    /// page enters it while it is changing, and leaves it under this lock if it is clean or gone.
    pub(crate) unclean: Mutex<PageSet>,
    pub(crate) durability: Mutex<Durability>,
    pub(crate) unwritten: Unwritten,
    /// Locked by misses alone.
    pub(crate) streams: Mutex<Streams>,
    /// Locked by those who write a page to its end.
    pub(crate) filled: Mutex<FilledPages>,
}

impl FileState {
    pub(crate) fn len(&self) -> u64 {
        // ORDER[N1]: Acquire; pairs with the Release in `grow` and `set_len`: one who sees a length
        // finds the pages that it covers in the index, or on the device.
        self.len.load(Ordering::Acquire)
    }

    /// At least `len` bytes, from now on. The page that ends there is being changed by the caller.
    pub(crate) fn grow(&self, len: u64) {
        // Mostly it is longer already, and a store would take the line from those who read it. It
        // gets no shorter meanwhile: the caller is inside `writers`.
        if self.len.load(Ordering::Relaxed) < len {
            // ORDER[N1]: Release; pairs with the Acquire in `len`.
            self.len.fetch_max(len, Ordering::Release);
        }
    }

    pub(crate) fn set_len(&self, len: u64) {
        // ORDER[N1]: Release; pairs with the Acquire in `len`.
        self.len.store(len, Ordering::Release);
    }

    pub(crate) fn too_large(&self, offset: u64, len: u64) -> Error {
        Error::FileTooLarge { file: self.path.clone(), offset, len, len_max: self.len_max }
    }

    pub(crate) fn io_error(&self, operation: Operation, offset: u64, errno: Errno) -> Error {
        Error::Io { operation, file: self.path.clone(), offset, errno }
    }
}

#[derive(Debug)]
struct Entry {
    file: Arc<FileState>,
    handles: usize,
    /// The opening that holds the file's advisory lock: the file's own, or, if that was to do
    /// without, a later one that was not.
    lock: Option<Lock>,
}

#[derive(Debug, Clone, Copy)]
struct Lock {
    device_file: DeviceFile,
    /// For writing; else shared.
    is_exclusive: bool,
}

/// The gate of one file.
#[derive(Debug, Default)]
struct Gate {
    latch: Arc<Latch>,
    /// Who is behind it, or waits for that.
    users: usize,
}

#[derive(Debug, Default)]
struct Table {
    /// Of the files that are being opened or closed.
    gates: HashMap<Identity, Gate>,
    by_identity: HashMap<Identity, Entry>,
    by_id: HashMap<FileId, Arc<FileState>>,
    /// What openings have left to the next opening of the same file for writing.
    remains: HashMap<Identity, Remains>,
    opened: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Files {
    table: Mutex<Table>,
    /// Files in the table. Relaxed: a hint.
    open: AtomicUsize,
    /// Pages of all files that are newer than the device. Relaxed: a count.
    pub(crate) unwritten: AtomicUsize,
}

/// Between two looks at a lock that somebody else holds.
const LOCK_PAUSE_MIN: Duration = Duration::from_millis(1);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(16);

/// How the caller wants a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) lock: bool,
    /// How long to wait for the lock.
    pub(crate) lock_wait: Duration,
    pub(crate) buffered_fallback: bool,
}

/// What is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    Path(&'a Path),
    /// Open already, by others.
    Open(BorrowedFd<'a>),
}

impl Source<'_> {
    /// What it is called in errors.
    pub(crate) fn name(self) -> Arc<Path> {
        match self {
            Self::Path(path) => Arc::from(path),
            Self::Open(fd) => {
                let link = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
                Arc::from(std::fs::read_link(&link).unwrap_or(link))
            }
        }
    }
}

/// Another descriptor of the same opening.
fn dup(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    fd.try_clone_to_owned().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Behind the gate of a file, until dropped.
struct GateGuard<'a> {
    files: &'a Files,
    waits: &'a WaitTable<WaitKey>,
    identity: Identity,
    latch: Arc<Latch>,
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.latch.end_alone(self.waits);
        let mut table = self.files.table.lock();
        if let Some(gate) = table.gates.get_mut(&self.identity) {
            gate.users -= 1;
            if gate.users == 0 {
                table.gates.remove(&self.identity);
            }
        }
    }
}

impl Files {
    pub(crate) fn add_unwritten(&self, file: &FileState, pages: usize) {
        file.unwritten.add(pages);
        self.unwritten.fetch_add(pages, Ordering::Relaxed);
    }

    /// How many files are open, about.
    pub(crate) fn open_files(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileState>> {
        self.table.lock().by_id.get(&id).cloned()
    }

    /// Whether the file is open here, with a lock that is enough for what is asked.
    fn is_locked(&self, identity: Identity, access: Access) -> Result<bool, Error> {
        let table = self.table.lock();
        let Some(Entry { file, lock, .. }) = table.by_identity.get(&identity) else {
            return Ok(false);
        };
        if access.write && !file.writable {
            return Err(Error::HeldReadOnly { file: file.path.clone() });
        }
        Ok(lock.is_some_and(|lock| lock.is_exclusive || !access.write))
    }

    /// Another handle of a file that is open; and the lock for it that was taken for it, if any.
    fn attach(&self, identity: Identity, lock: Option<Lock>) -> Option<Arc<FileState>> {
        let mut table = self.table.lock();
        let entry = table.by_identity.get_mut(&identity)?;
        entry.handles += 1;
        entry.lock = entry.lock.or(lock);
        Some(entry.file.clone())
    }

    fn register(&self, path: Arc<Path>, opened: Opened, access: Access) -> Option<Arc<FileState>> {
        let mut table = self.table.lock();
        table.opened = table.opened.checked_add(1)?;
        // Only an opening that can flush, and write again, takes over what an earlier one has left.
        let remains = if access.write { table.remains.remove(&opened.identity) } else { None };
        let durability = Durability::new(opened.len_bytes, remains.unwrap_or_default());
        let id = FileId(table.opened);
        let file = Arc::new(FileState {
            id,
            device_file: opened.file,
            identity: opened.identity,
            path,
            alignment: opened.alignment.offset.max(opened.alignment.memory),
            writable: access.write,
            direct: opened.direct,
            len_max: opened.len_bytes_max,
            len: AtomicU64::new(opened.len_bytes),
            writers: StripedLatch::default(),
            write_backs: Latch::default(),
            syncs: SyncRounds::default(),
            unclean: Mutex::default(),
            durability: Mutex::new(durability),
            unwritten: Unwritten::default(),
            streams: Mutex::default(),
            filled: Mutex::default(),
        });
        table.by_id.insert(id, file.clone());
        self.open.store(table.by_id.len(), Ordering::Relaxed);
        let lock = Lock { device_file: opened.file, is_exclusive: access.write };
        let lock = access.lock.then_some(lock);
        table.by_identity.insert(opened.identity, Entry { file: file.clone(), handles: 1, lock });
        Some(file)
    }

    /// One handle less; whether it was the last.
    fn detach(&self, file: &FileState) -> bool {
        let mut table = self.table.lock();
        let Some(entry) = table.by_identity.get_mut(&file.identity) else {
            return false;
        };
        entry.handles -= 1;
        entry.handles == 0
    }

    /// Whether the file is open and has no handle; it may have got one since the last went.
    fn is_abandoned(&self, file: &FileState) -> bool {
        let table = self.table.lock();
        let entry = table.by_identity.get(&file.identity);
        entry.is_some_and(|entry| entry.file.id == file.id && entry.handles == 0)
    }

    /// Takes the file from the table. Gives the opening that holds its lock, if it is not its own.
    fn forget(&self, file: &FileState, remains: Remains) -> Option<DeviceFile> {
        let mut table = self.table.lock();
        if remains != Remains::default() {
            table.remains.insert(file.identity, remains);
        }
        table.by_id.remove(&file.id);
        self.open.store(table.by_id.len(), Ordering::Relaxed);
        let lock = table.by_identity.remove(&file.identity)?.lock?;
        (lock.device_file != file.device_file).then_some(lock.device_file)
    }
}

impl Promises for Files {
    fn evict_unstable(&self, pages: &Pages, frame: FrameId, key: PageKey) -> Option<Claim> {
        let file = self.get(key.file)?;
        let mut durability = file.durability.lock();
        let mut unclean = file.unclean.lock();
        let may_go = |period| {
            let may_go = durability.evict(period) == Eviction::Allowed;
            if !may_go {
                self.add_unwritten(&file, 1);
            }
            may_go
        };
        let claim = pages.evict_unstable(frame, key, may_go)?;
        unclean.remove(key.page);
        Some(claim)
    }
}

impl Core {
    /// Waits until nobody else opens or closes the file.
    fn pass_gate(&self, identity: Identity) -> GateGuard<'_> {
        let latch = {
            let mut table = self.files.table.lock();
            let gate = table.gates.entry(identity).or_default();
            gate.users += 1;
            gate.latch.clone()
        };
        latch.shut(self.waits(), self.reasons().file);
        GateGuard { files: &self.files, waits: self.waits(), identity, latch }
    }

    /// Opens a file, or finds it open. While it is locked by others, tries again until the caller's
    /// patience ends.
    pub(crate) fn open_file(
        &self,
        source: Source<'_>,
        access: Access,
    ) -> Result<Arc<FileState>, Error> {
        self.check_not_forked()?;
        let name = source.name();
        let end = Timestamp::now().after(access.lock_wait);
        let mut pause = LOCK_PAUSE_MIN;
        loop {
            // By name each time: who held the lock may have put another file in its place.
            let opened = self.try_open_file(source, &name, access);
            let now = Timestamp::now();
            if !matches!(opened, Err(Error::Locked { .. })) || now >= end {
                return opened;
            }
            // The kernel wakes nobody who does not sleep in flock(2), and that has no deadline.
            let until = Deadline::at(now.after(pause).min(end));
            let wait = Wait::new(self.reasons().file_lock).deadline(until);
            let nobody = WaitKey::Address(std::ptr::from_ref(&name) as usize);
            let _ = self.waits().wait(&nobody, || true, wait);
            pause = (pause * 2).min(LOCK_PAUSE_MAX);
        }
    }

    fn try_open_file(
        &self,
        source: Source<'_>,
        name: &Arc<Path>,
        access: Access,
    ) -> Result<Arc<FileState>, Error> {
        let how = OpenHow {
            write: access.write,
            create: access.create,
            create_new: access.create_new,
            buffered_fallback: access.buffered_fallback,
            alignment_max: self.memory().page_bytes() as u32,
        };
        let opened = match source {
            Source::Path(path) => self.io.device.open(path, how),
            Source::Open(fd) => {
                dup(fd).map_err(OpenError::from).and_then(|fd| self.io.device.adopt(fd, how))
            }
        };
        let opened = opened.map_err(|error| self.open_error(error, name))?;
        let _gate = self.pass_gate(opened.identity);
        let found = self.enter_file(name, opened, access);
        if !matches!(found, Ok((_, true))) {
            self.io.device.close(opened.file);
        }
        found.map(|(file, _)| file)
    }

    /// Has the table know the file that was opened; whether that needs the opening. The caller is
    /// behind the file's gate.
    fn enter_file(
        &self,
        name: &Arc<Path>,
        opened: Opened,
        access: Access,
    ) -> Result<(Arc<FileState>, bool), Error> {
        let is_locked = self.files.is_locked(opened.identity, access)?;
        let needs_lock = access.lock && !is_locked;
        let failed = |errno| Error::Open { file: name.clone(), errno };
        if needs_lock && !self.io.device.try_lock(opened.file, access.write).map_err(failed)? {
            return Err(Error::Locked { file: name.clone() });
        }
        let lock = Lock { device_file: opened.file, is_exclusive: access.write };
        let lock = needs_lock.then_some(lock);
        if let Some(file) = self.files.attach(opened.identity, lock) {
            return Ok((file, needs_lock));
        }
        // The one who had it until now may have changed it since it was opened.
        let len_bytes = self.io.device.len(opened.file).map_err(failed)?;
        let opened = Opened { len_bytes, ..opened };
        let registered = self.files.register(name.clone(), opened, access);
        registered.map(|file| (file, true)).ok_or(Error::TooManyFiles)
    }

    fn open_error(&self, error: OpenError, file: &Arc<Path>) -> Error {
        let file = file.clone();
        match error {
            OpenError::DirectRefused => Error::DirectRefused { file },
            OpenError::NotAFile => Error::NotAFile { file },
            OpenError::Misaligned(alignment_bytes) => {
                Error::Misaligned { file, alignment_bytes, page_bytes: self.memory().page_bytes() }
            }
            OpenError::System(errno) => Error::Open { file, errno },
            // The enum may grow; a new reason is a failed open all the same.
            _ => Error::Open { file, errno: Errno::IO },
        }
    }

    /// A handle goes. With the last one the file is written back and closed.
    pub(crate) fn close_file(&self, file: &Arc<FileState>) -> Result<(), Error> {
        if self.detach_file(file)? { self.close_abandoned(file) } else { Ok(()) }
    }

    /// A handle goes; whether it was the last, and the file is to be closed. Waits for nothing.
    pub(crate) fn detach_file(&self, file: &FileState) -> Result<bool, Error> {
        // The parent has the file open still, and will write back what is dirty.
        self.check_not_forked()?;
        Ok(self.files.detach(file))
    }

    /// Writes the file back and closes it, unless it has got a handle since the last one went.
    pub(crate) fn close_abandoned(&self, file: &Arc<FileState>) -> Result<(), Error> {
        if file.writable {
            // The bulk of the work, without keeping others from opening the file.
            self.write_back_all(file, HeldPages::Skipped);
        }
        let _gate = self.pass_gate(file.identity);
        if !self.files.is_abandoned(file) {
            return Ok(());
        }
        let written = if file.writable { self.write_back_for_good(file) } else { Ok(()) };
        // Unclean pages were written back by now, or given up with an error.
        let (mut remains, lost) = self.remains_of(file);
        // Padding that could not be cut off, too.
        remains.lost = remains.lost.or(written.as_ref().err().cloned());
        self.drop_pages(file, PageNo(0), HeldPages::Skipped);
        let lock = self.files.forget(file, remains);
        // A device may go on for ever with what an I/O thread that died has left under way.
        if !self.io.engine.as_ref().is_some_and(Engine::is_over) {
            self.io.device.close(file.device_file);
        }
        if let Some(lock) = lock {
            self.io.device.close(lock);
        }
        written.and(lost)
    }
}

impl Core {
    /// What a file that is being closed leaves to its next opening, and the error if that is pages
    /// that could not be written. Of one that a forgotten guard has, nobody knows whether it had
    /// been.
    fn remains_of(&self, file: &FileState) -> (Remains, Result<(), Error>) {
        let unclean: Vec<PageNo> = file.unclean.lock().iter().collect();
        let is_lost = |page: &PageNo| {
            let word = self.word_of(file, *page);
            word.is_some_and(|word| {
                matches!(word.state(), State::Dirty | State::Failed | State::Changing)
            })
        };
        let mut lost = unclean.iter().copied().filter(is_lost);
        let first = lost.next();
        let pages = lost.count() + 1;
        let durability = file.durability.lock();
        let lost = first.map(|first| Error::LostWrites {
            file: file.path.clone(),
            pages,
            offset: self.offset(first),
            errno: durability.last_errno(),
        });
        let outcome = lost.clone().map_or(Ok(()), Err);
        let is_unflushed = !unclean.is_empty() || durability.is_unflushed();
        (Remains { is_unflushed, lost: lost.or(durability.lost_unheard()) }, outcome)
    }
}
