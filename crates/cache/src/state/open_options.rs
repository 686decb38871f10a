//! How to open a file.

use std::time::Duration;

use unherd_sys::primitives::Arc;

use crate::state::Hook;
use crate::state::page_hook::PageHook;

/// What to do where the file system refuses direct I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// Fail with [`Error::DirectRefused`](crate::Error::DirectRefused).
    #[default]
    Require,
    /// Read and write through the kernel's page cache (a file that has direct I/O, but in larger
    /// units than a page of the cache, fails with [`Error::Misaligned`](crate::Error::Misaligned));
    /// [`File::is_direct`](crate::File::is_direct) tells.
    OrBuffered,
}

/// How to open a file. The default is read-only, locked, by direct I/O or not at all. A handle
/// that writes reads as well. An opening takes the options by value: clone them to use them again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct OpenOptions {
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) lock: bool,
    pub(crate) lock_wait: Duration,
    pub(crate) direct: Direct,
    pub(crate) write_through: bool,
    pub(crate) hook: Option<Hook>,
}

/// See [`OpenOptions::lock_wait`].
const LOCK_WAIT: Duration = Duration::from_millis(500);

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            write: false,
            create: false,
            create_new: false,
            truncate: false,
            lock: true,
            lock_wait: LOCK_WAIT,
            direct: Direct::Require,
            write_through: false,
            hook: None,
        }
    }
}

impl OpenOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// For writing as well as reading.
    pub fn write(self, write: bool) -> Self {
        Self { write, ..self }
    }

    /// Create the file where there is none. Its entry in the directory, which must be readable, is
    /// on stable storage when the opening returns.
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// Create the file, and fail with [`Error::Open`](crate::Error::Open) (`EEXIST`) where there is
    /// one. Takes precedence over [`OpenOptions::create`].
    pub fn create_new(self, create_new: bool) -> Self {
        Self { create_new, ..self }
    }

    /// Truncate the file to no bytes; it must be open for writing. Other handles in this cache see
    /// it: the opening waits and fails as [`File::set_len`](crate::File::set_len) does.
    pub fn truncate(self, truncate: bool) -> Self {
        Self { truncate, ..self }
    }

    /// Hold an advisory lock, by flock(2), until the last handle of the file is dropped (on by
    /// default). It is exclusive for writing, and shared for reading: several caches and processes
    /// may read a file together. Who does not ask for the lock is not kept out. Without it, changes
    /// by others go unnoticed, and the cache serves stale pages (but see
    /// [`File::invalidate`](crate::File::invalidate)).
    ///
    /// All handles of a file in this cache have the lock together: the first that asks for it takes
    /// it, on the opening of the file's first handle, and exclusively if that is for writing; one
    /// that does not ask gives up nothing. Where the first handle came by
    /// [`Cache::open_file`](crate::Cache::open_file), the lock is on the descriptor that it was
    /// given, and lasts as long as that has duplicates.
    pub fn lock(self, lock: bool) -> Self {
        Self { lock, ..self }
    }

    /// How long to wait for a lock that another cache or process holds, before the opening fails
    /// with [`Error::Locked`](crate::Error::Locked). The default is half a second;
    /// [`Duration::ZERO`] asks once.
    ///
    /// A process that was killed may hold its locks for some time after its end. Where it had
    /// queued transfers ([`Io::Queued`](crate::Io::Queued)), the kernel ends these first, and only
    /// then gives up the files, and the locks with them: 4 to 57 ms later in 22 of 30 trials.
    /// Hence the default: a program that is started again at once should not fail for that.
    ///
    /// The kernel has no wait for a lock that ends by itself, so this looks again after 1 ms, 2 ms,
    /// 4 ms, 8 ms, and then every 16 ms, and sleeps under `file-lock` between.
    pub fn lock_wait(self, lock_wait: Duration) -> Self {
        Self { lock_wait, ..self }
    }

    /// Writes by this handle return when the device has accepted their pages, so that others who
    /// read the file find them, and the end of this process loses nothing: as a
    /// [`File::write_back`](crate::File::write_back) of the bytes after each
    /// [`File::write_at`](crate::File::write_at), with its waits and errors. They are not durable
    /// then. Other dirty pages of the file are not written, and the file is as long on the device
    /// as it takes to read those that are. After an error the bytes are in memory, dirty; the next
    /// write of them, or sync, tries again.
    ///
    /// A write that makes the file longer and does not end with a page waits for all write-backs of
    /// the file, and cuts the rest of its page off. The drop of a [`PageMut`](crate::PageMut)
    /// neither blocks nor fails, so it writes nothing.
    pub fn write_through(self, write_through: bool) -> Self {
        Self { write_through, ..self }
    }

    /// Has each page of the file pass `hook` on its way to the device and back: for checksums and
    /// encryption; see [`PageHook`]. All handles of a file have the same hook: an opening with
    /// another one, or without, fails with [`Error::OtherHook`](crate::Error::OtherHook) until the
    /// drop of the last handle has returned.
    ///
    /// The length of such a file is always whole pages: what ends within a page is rounded up, with
    /// zeros. A page that is written is copied once more, and one that is read twice. Copies to be
    /// written take memory beside the cache as they are needed, and keep it: up to a sixteenth of
    /// the [largest capacity](crate::CacheBuilder::max_capacity).
    pub fn page_hook(self, hook: Arc<dyn PageHook>) -> Self {
        Self { hook: Some(Hook(hook)), ..self }
    }

    /// What to do where the file system refuses direct I/O. All handles of a file transfer as the
    /// first one does; a later one with [`Direct::Require`] is refused all the same where direct
    /// I/O is.
    pub fn direct(self, direct: Direct) -> Self {
        Self { direct, ..self }
    }
}
