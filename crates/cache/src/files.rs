//! Open files: what all handles of one file share, and the table of them.

use std::collections::HashMap;
use std::path::Path;

use unherd_sys::primitives::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering};
use unherd_sys::{DeviceFile, Errno, Identity, OpenError, OpenHow, Opened};

use crate::core::Core;
use crate::durability::{Durability, Remains};
use crate::engine::Engine;
use crate::error::{Error, Operation};
use crate::latch::{AloneGuard, Latch, StripedLatch};
use crate::page::{FileId, PageNo};
use crate::page_set::PageSet;
use crate::readahead::Streams;
use crate::sync_rounds::SyncRounds;
use crate::unwritten::Unwritten;
use crate::write_behind::FilledPages;

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
        // ORDER[N1]: Acquire; pairs with the Release in `grow` and `set_len`: whoever sees a length
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

#[derive(Debug, Default)]
struct Table {
    by_identity: HashMap<Identity, Entry>,
    by_id: HashMap<FileId, Arc<FileState>>,
    /// What openings have left to the next opening of the same file for writing.
    remains: HashMap<Identity, Remains>,
    opened: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Files {
    table: Mutex<Table>,
    /// Alone is who opens a file, or closes one for good.
    opening: Latch,
    /// Files in the table. Relaxed: a hint.
    open: AtomicUsize,
}

/// How the caller wants a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) lock: bool,
    pub(crate) buffered_fallback: bool,
}

impl Files {
    /// How many files are open, about.
    pub(crate) fn open_files(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileState>> {
        self.table.lock().by_id.get(&id).cloned()
    }

    /// Another handle of a file that is open, if it is.
    fn attach(&self, identity: Identity, write: bool) -> Option<Result<Arc<FileState>, Error>> {
        let mut table = self.table.lock();
        let entry = table.by_identity.get_mut(&identity)?;
        if write && !entry.file.writable {
            return Some(Err(Error::HeldReadOnly { file: entry.file.path.clone() }));
        }
        entry.handles += 1;
        Some(Ok(entry.file.clone()))
    }

    /// Has the file keep an opening that holds its lock, unless it has one. Whether it does.
    fn keep_lock(&self, identity: Identity, lock: Lock) -> bool {
        let mut table = self.table.lock();
        match table.by_identity.get_mut(&identity) {
            Some(entry) if entry.lock.is_none() => {
                entry.lock = Some(lock);
                true
            }
            _ => false,
        }
    }

    /// Whether the file is open here, with a lock that is enough for what is asked. If it may not
    /// be written at all, any will do: to be told so.
    fn is_locked(&self, identity: Identity, write: bool) -> bool {
        let table = self.table.lock();
        table.by_identity.get(&identity).is_some_and(|Entry { file, lock, .. }| {
            lock.is_some_and(|lock| lock.is_exclusive || !write || !file.writable)
        })
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

impl Core {
    /// Opens a file, or finds it open.
    pub(crate) fn open_file(&self, path: &Path, access: Access) -> Result<Arc<FileState>, Error> {
        self.check_not_forked()?;
        let _alone = AloneGuard::new(&self.files.opening, &self.waits, self.reasons.file);
        let name: Arc<Path> = Arc::from(path);
        let how = OpenHow {
            write: access.write,
            create: access.create,
            // What is open here already is cut through its pages.
            truncate: false,
            lock: access.lock,
            buffered_fallback: access.buffered_fallback,
        };
        let opened = match self.device.open(path, how) {
            Ok(opened) => opened,
            Err(OpenError::Locked) => return self.attach_locked(path, &name, how),
            Err(error) => return Err(open_error(error, name)),
        };
        if let Some(attached) = self.files.attach(opened.identity, access.write) {
            let lock = Lock { device_file: opened.file, is_exclusive: access.write };
            let is_kept =
                access.lock && attached.is_ok() && self.files.keep_lock(opened.identity, lock);
            if !is_kept {
                self.device.close(opened.file);
            }
            return attached;
        }
        let alignment = opened.alignment;
        let needed = alignment.offset.max(alignment.memory);
        if needed as usize > self.memory.page_bytes() {
            self.device.close(opened.file);
            return Err(Error::Misaligned {
                file: name,
                alignment_bytes: needed,
                page_bytes: self.memory.page_bytes(),
            });
        }
        self.files.register(name, opened, access).ok_or_else(|| {
            self.device.close(opened.file);
            Error::TooManyFiles
        })
    }

    /// The file is locked, perhaps by this cache.
    fn attach_locked(
        &self,
        path: &Path,
        name: &Arc<Path>,
        how: OpenHow,
    ) -> Result<Arc<FileState>, Error> {
        let opened = self
            .device
            .open(path, OpenHow { lock: false, create: false, ..how })
            .map_err(|error| open_error(error, name.clone()))?;
        self.device.close(opened.file);
        let attached = if self.files.is_locked(opened.identity, how.write) {
            self.files.attach(opened.identity, how.write)
        } else {
            None
        };
        attached.unwrap_or_else(|| Err(Error::Locked { file: name.clone() }))
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
            // The bulk of the work, without keeping others from opening files.
            self.write_back_all(file);
        }
        // Nobody opens the file until it is closed: its lock is held so long.
        let _alone = AloneGuard::new(&self.files.opening, &self.waits, self.reasons.file);
        if !self.files.is_abandoned(file) {
            return Ok(());
        }
        let written = if file.writable { self.write_back_for_good(file) } else { Ok(()) };
        // Unclean pages were written back by now, or given up with an error.
        let remains = self.remains_of(file);
        self.drop_pages(file, PageNo(0));
        let lock = self.files.forget(file, remains);
        // A device may go on for ever with what an I/O thread that died has left under way.
        if !self.engine.as_ref().is_some_and(Engine::is_over) {
            self.device.close(file.device_file);
        }
        if let Some(lock) = lock {
            self.device.close(lock);
        }
        written
    }
}

impl Core {
    /// What a file that is being closed leaves to its next opening.
    fn remains_of(&self, file: &FileState) -> Remains {
        let unclean: Vec<PageNo> = file.unclean.lock().iter().collect();
        let mut lost = unclean.iter().copied().filter(|&page| self.is_unwritten(file, page));
        let first = lost.next();
        let pages = lost.count() + 1;
        let durability = file.durability.lock();
        let lost = match first {
            None => durability.lost_unheard(),
            Some(first) => Some(Error::LostWrites {
                file: file.path.clone(),
                pages,
                offset: self.offset(first),
                errno: durability.last_errno(),
            }),
        };
        Remains { is_unflushed: !unclean.is_empty() || durability.is_unflushed(), lost }
    }
}

fn open_error(error: OpenError, file: Arc<Path>) -> Error {
    match error {
        OpenError::Locked => Error::Locked { file },
        OpenError::DirectRefused => Error::DirectRefused { file },
        OpenError::NotAFile => Error::NotAFile { file },
        OpenError::System(errno) => Error::Open { file, errno },
        // The enum may grow; a new reason is a failed open all the same.
        _ => Error::Open { file, errno: Errno::IO },
    }
}
