//! The cache itself, and how it is built.

use std::fmt;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use unherd_sync::{WaitKey, WaitTable, WaitTableBuilder};
use unherd_sys::primitives::{Arc, AtomicU64, Mutex, Ordering};
use unherd_sys::{AvailableMemory, Device, DirectDevice, Errno, ForkMark, HugePages, QueueKind};

use crate::error::{BuildError, Error};
use crate::file::{ContiguousFrames, Core, File, Owner, Source, capacity};
use crate::frames::turns::Turns;
use crate::frames::{Alarm, FrameMemory, Frames, MIN_FRAMES, Pool, Supply};
use crate::io::{Engine, Io, RunBuffers, Transfers};
use crate::latch::RwLatch;
use crate::pages::{Index, Pages};
use crate::reasons::Reasons;
use crate::state::{FLUSH_BEHIND_BYTES, Files, OpenOptions};
use crate::stats::{Counters, Stats};

/// Sizes that a page may have, if they are powers of two.
const PAGE_BYTES: RangeInclusive<usize> = 512..=2 << 20;

/// Numbers caches. Relaxed: a number is all that it gives.
static CACHES_BUILT: AtomicU64 = AtomicU64::new(0);

/// A page cache. Clones are the same cache; it lives until they and its files are gone.
///
/// ```no_run
/// # use unherd_cache as unherd;
/// use unherd::{Cache, OpenOptions};
///
/// let cache = Cache::builder().capacity(64 << 20).build()?;
/// let file = cache.open("data", OpenOptions::new().write(true).create(true))?;
/// file.write_all_at(b"pages", 0)?;
/// file.sync_all()?;
/// let mut buf = [0; 5];
/// assert_eq!(file.read_at(&mut buf, 0)?, 5);
/// assert_eq!(&buf, b"pages");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Cache {
    pub(crate) owner: Arc<Owner>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.owner.core.fmt(f)
    }
}

impl Cache {
    /// Returns a builder with the defaults.
    pub fn builder() -> CacheBuilder {
        CacheBuilder {
            capacity_bytes: 64 << 20,
            max_capacity_bytes: 0,
            page_bytes: 4096,
            device: None,
            io: Io::Auto,
            queues: 256,
            filtered: true,
            frame_wait: Duration::from_secs(30),
            dirty_expire: Duration::from_secs(5),
            flush_behind_bytes: FLUSH_BEHIND_BYTES,
            huge_pages: HugePages::Advised,
        }
    }

    /// Opens a file, or another handle of one that is open in this cache. Blocks on the file
    /// system, while others open or close the same file, and for a lock that others hold: for that
    /// no longer than [`OpenOptions::lock_wait`] says. ([`File`] lists the names `file` and
    /// `file-lock` under which the [`Ledger`](unherd_sync::Ledger) counts these waits.)
    ///
    /// # Errors
    /// [`Error::Locked`] if another cache or process has it; [`Error::DirectRefused`];
    /// [`Error::NotAFile`]; [`Error::HeldReadOnly`]; [`Error::OtherHook`]; [`Error::Misaligned`];
    /// [`Error::Open`]; [`Error::CreateNeedsWrite`] if it is to be created or truncated, but not
    /// written.
    pub fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File, Error> {
        File::open(&self.owner, Source::Path(path.as_ref()), options)
    }

    /// As [`Cache::open`], of a file that is open already, such as one that another process has
    /// sent, or that has no name.
    ///
    /// The descriptor that is given is closed; the cache keeps a duplicate. It sets `O_DIRECT` and
    /// the lock on the open file description, and clears `O_NONBLOCK`, which all duplicates share:
    /// where others have duplicates of it, that stays when the cache closes its own. It must have
    /// been opened for reading, and for writing as well if `options` say so, and then without
    /// `O_APPEND`, which nobody may set later: Linux would write each page at the end of the file.
    /// `create` and `create_new` mean nothing here; `truncate` does.
    ///
    /// # Errors
    /// As [`Cache::open`]; [`Error::Open`] with `EBADF` if it was opened otherwise, and with
    /// `EOPNOTSUPP` if the cache's device has no descriptors.
    pub fn open_file(&self, fd: impl Into<OwnedFd>, options: OpenOptions) -> Result<File, Error> {
        File::open(&self.owner, Source::Open(fd.into().as_fd()), options)
    }

    /// As [`File::sync_all`] of each of the files, which may be of other caches too: begins to
    /// write all of them back before it waits for the first (not with [`Io::Blocking`]). One flush
    /// a file, and none where nothing has changed since the last.
    ///
    /// # Errors
    /// As [`File::sync_all`], of the first file in this order that has one; the others are synced
    /// all the same. What fails in those, their own handles report by their next sync.
    /// [`Error::Closed`] and [`Error::WouldDeadlock`]: nothing was done.
    pub fn sync_many(&self, files: &[&File]) -> Result<(), Error> {
        File::sync_many(files)
    }

    /// The size of a page in bytes.
    pub fn page_bytes(&self) -> usize {
        self.owner.core.memory().page_bytes()
    }

    /// The number of pages that there is room for, with the frames that are given out
    /// ([`Cache::alloc_contiguous`]).
    pub fn frames(&self) -> usize {
        self.owner.core.supply().capacity()
    }

    /// Gives the cache room for this many bytes of pages, rounded down to whole pages, and returns
    /// when it has it. Others go on meanwhile, and hits are as fast as ever.
    ///
    /// To shrink, pages are given up as if others were wanted in their place: those that the policy
    /// chooses, dirty ones when they are written back; [`Stats`](crate::Stats) counts them in
    /// `evictions`. The memory of their frames goes back to the system. Of pages smaller than the
    /// kernel's (4 KiB), memory goes back only where one call frees all that lie in a page of the
    /// kernel's; memory that is locked (mlock(2)) goes back since Linux 5.18. The cache has no huge
    /// pages from then on, since the kernel would fill those up again of which a part is gone. To
    /// grow, memory is taken, as by [`CacheBuilder::build`], but no more than
    /// [`CacheBuilder::max_capacity`]: without that the cache can only shrink, and grow back.
    ///
    /// Blocks under `frame` (see [`File`](File#blocking)) while another `resize` or
    /// [`Cache::alloc_contiguous`] runs. To shrink, it first writes dirty pages back as
    /// [`File::sync_all`] does, without a flush, if more than three quarters of what is to be left
    /// are dirty. Then it blocks under `frame` and on the device for each frame, as a read does
    /// that misses: it gives up when none has become free for the time of
    /// [`CacheBuilder::frame_wait`].
    ///
    /// ```
    /// # use unherd_cache as unherd;
    /// use unherd::Cache;
    /// let cache = Cache::builder().capacity(1 << 20).max_capacity(4 << 20).build()?;
    /// cache.resize(4 << 20)?;
    /// assert_eq!(cache.frames(), 1024);
    /// cache.resize(64 << 10)?;
    /// assert_eq!(cache.frames(), 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// On an error the capacity is unchanged, though pages may have been given up.
    /// [`Error::CapacityOutOfRange`]; [`Error::InsufficientMemory`] and [`Error::Memory`];
    /// [`Error::CannotShrink`] if more than three quarters of the new capacity are pinned or cannot
    /// be written back, before or meanwhile, or more than an eighth is given out
    /// ([`Cache::alloc_contiguous`]), or no frame became free in time; [`Error::Forked`].
    pub fn resize(&self, capacity_bytes: usize) -> Result<(), Error> {
        let page_bytes = self.page_bytes();
        let most = self.owner.core.frames().len();
        let frames = capacity_bytes / page_bytes;
        if !(MIN_FRAMES..=most).contains(&frames) {
            let (least_bytes, most_bytes) = (MIN_FRAMES * page_bytes, most * page_bytes);
            return Err(Error::CapacityOutOfRange { capacity_bytes, least_bytes, most_bytes });
        }
        capacity::resize(&self.owner.core, frames)
    }

    /// Memory in one piece out of the cache, for instance as the buffer of a large transfer: the
    /// memory of 2^`order` pages, up to 2 MiB. The pages that are in it are given up: clean ones at
    /// once, dirty ones when they are written back. All such pieces together are an eighth of the
    /// cache at most. The cache has their frames for pages again when they are dropped. What the
    /// memory holds at first is what these frames held. It may not be written as a slice, so it is
    /// none for [`File::read_uncached_at`].
    ///
    /// The address is a multiple of the size, unless the cache was built with
    /// [`huge_pages(false)`](CacheBuilder::huge_pages): then of the size or of 4096, whichever is
    /// less. It is backed by a huge page only if the kernel has given the cache one there.
    ///
    /// Blocks under `frame` (see [`File`](File#blocking)) while another such call or a `resize`
    /// runs. It looks at all frames (as long as [`Cache::stats`] takes), and then empties a row of
    /// frames: meanwhile it blocks under `page-read` and `write-back`, and on the device, for pages
    /// in the row, up to the time of [`CacheBuilder::frame_wait`]; for a transfer that it has
    /// begun, and a buffer for one, it waits in any case. It never waits for guards: where one
    /// stands in the way in each row it looks again a few times, and fails. It is no call for a
    /// task.
    ///
    /// ```
    /// # use unherd_cache as unherd;
    /// use unherd::Cache;
    /// let cache = Cache::builder().capacity(16 << 20).build()?; // pages of 4 KiB
    /// let mut piece = cache.alloc_contiguous(9)?;
    /// assert_eq!(piece.len(), 2 << 20);
    /// assert_eq!(piece.as_ptr().addr() % piece.len(), 0);
    /// piece.write(4096, b"header");
    /// assert_eq!(&piece[4096..4102], b"header");
    /// drop(piece); // The cache has its frames again.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ContiguousTooLarge`]; [`Error::NoContiguousFrames`], which says what stood in the
    /// way; [`Error::Forked`]. Pages may have been given up all the same.
    pub fn alloc_contiguous(&self, order: u32) -> Result<ContiguousFrames, Error> {
        ContiguousFrames::take(&self.owner.core, order)
    }

    /// What the device queues the cache's transfers by. `None`: they are made by blocking calls, as
    /// was asked for, or as [`Io::Auto`] has found no queue.
    pub fn queue(&self) -> Option<QueueKind> {
        let Transfers { device, engine, .. } = &self.owner.core.io;
        engine.as_ref().and_then(|_| device.queue())
    }

    /// Whether the kernel took the advice to back the pages' memory by transparent huge pages.
    /// It may still lack free ones.
    pub fn huge_pages_advised(&self) -> bool {
        self.owner.core.memory().huge_pages_advised()
    }

    /// What was counted since the cache was built. Visits every frame, for
    /// hits are counted there: about 1 ms for 1 GiB of pages.
    pub fn stats(&self) -> Stats {
        self.owner.core.pages.stats()
    }
}

/// Wait queues for frames, buffers and files.
const OTHER_QUEUES: usize = 64;

/// Builds a [`Cache`].
#[must_use]
pub struct CacheBuilder {
    capacity_bytes: usize,
    max_capacity_bytes: usize,
    page_bytes: usize,
    device: Option<Arc<dyn Device>>,
    io: Io,
    queues: usize,
    filtered: bool,
    frame_wait: Duration,
    dirty_expire: Duration,
    flush_behind_bytes: u64,
    huge_pages: HugePages,
}

impl fmt::Debug for CacheBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("capacity_bytes", &self.capacity_bytes)
            .field("max_capacity_bytes", &self.max_capacity_bytes)
            .field("page_bytes", &self.page_bytes)
            .field("io", &self.io)
            .field("queues", &self.queues)
            .field("filtered", &self.filtered)
            .field("huge_pages", &self.huge_pages)
            .finish_non_exhaustive()
    }
}

impl CacheBuilder {
    /// Bytes of pages to hold; rounded down to whole pages. The default is 64 MiB.
    ///
    /// All of it is taken by [`CacheBuilder::build`], and some more for frames, index, policy and
    /// wait table: about 3 % with pages of 4 KiB, a fifth with pages of 512 bytes. Open files,
    /// pages that are not synced, and copies for [hooks](OpenOptions::page_hook) take memory beside
    /// that. Where the machine or a memory cgroup has less, that fails with
    /// [`BuildError::InsufficientMemory`].
    pub fn capacity(self, capacity_bytes: usize) -> Self {
        Self { capacity_bytes, ..self }
    }

    /// The most bytes of pages that [`Cache::resize`] may be asked for. The default is the
    /// capacity, and so is whatever is less.
    ///
    /// What is kept about frames, index and policy is made for that many at once: about 3 % of it,
    /// with pages of 4 KiB.
    pub fn max_capacity(self, max_capacity_bytes: usize) -> Self {
        Self { max_capacity_bytes, ..self }
    }

    /// The size of a page in bytes: a power of two from 512 to 2 MiB. The default is 4096.
    ///
    /// Small pages waste less of the cache on what is not asked for, large ones make fewer
    /// transfers and need fewer frames, each of which takes 104 to 116 bytes beyond the capacity. A
    /// file whose device wants larger transfers cannot be opened ([`Error::Misaligned`]).
    pub fn page_size(self, page_bytes: usize) -> Self {
        Self { page_bytes, ..self }
    }

    /// The storage that files are opened on. The default is the kernel's files ([`DirectDevice`]).
    /// Caches may share a device, but only one of them at a time may use [`Io::Queued`] on it.
    pub fn device(self, device: Arc<dyn Device>) -> Self {
        Self { device: Some(device), ..self }
    }

    /// Who does the I/O. The default is [`Io::Auto`].
    pub fn io(self, io: Io) -> Self {
        Self { io, ..self }
    }

    /// Buckets of the cache's wait table, to which pages are hashed; rounded up to a power of two.
    /// The default is 256. More may help where very many threads miss at a time.
    pub fn queues(self, queues: usize) -> Self {
        Self { queues, ..self }
    }

    /// For benchmarks, with the feature `ablation`: whether a page's wake looks at which page a
    /// thread waits for (it does by default). Without, it wakes all of its queue. Waits for frames,
    /// buffers and files are not pages' waits, and always filtered.
    #[cfg(feature = "ablation")]
    pub fn filtered(self, filtered: bool) -> Self {
        Self { filtered, ..self }
    }

    /// How long a call waits for a free frame before it fails with
    /// [`Error::NoFrames`](crate::Error::NoFrames). The default is 30 s. A call that waits while
    /// another brings its page in, and sees that one give up, looks for a frame itself for the rest
    /// of its own time; if less than a sixteenth of that is left, it fails at once.
    pub fn frame_wait(self, frame_wait: Duration) -> Self {
        Self { frame_wait, ..self }
    }

    /// How long a page is dirty before the I/O thread writes it back: so what was written earlier
    /// than this survives the end of the process, kill -9 too, though not a power cut. The default
    /// is 5 s; [`Duration::MAX`] is never, and 1 ms the least. It takes no CPU while nothing is
    /// dirty.
    ///
    /// Every `dirty_expire` at most, all that is dirty then is written, so a page that changes all
    /// the time is written once in this time. Pages that are held back
    /// ([`PageMut::hold_until`](crate::PageMut::hold_until)) or held for changing are written when
    /// that has ended and the time has come again; what cannot be written is tried again as often.
    /// Nobody waits for it, and errors are told as those of any write-back
    /// ([`File::sync_all`](crate::File::sync_all)). While the device is busy with other
    /// write-backs, these come later.
    ///
    /// With [`Io::Blocking`] there is no I/O thread, and nothing of this.
    pub fn dirty_expire(self, dirty_expire: Duration) -> Self {
        Self { dirty_expire, ..self }
    }

    /// After how many bytes of write-backs, of all files of a file system and since the latest
    /// flush of any, the file that is being written is flushed, as by fdatasync(2): so a device
    /// with a cache of its own has little to write when a sync comes, during which it may serve
    /// nobody. The default is 64 MiB; [`u64::MAX`] is never. A file with more than that in dirty
    /// pages is flushed when as much was written.
    ///
    /// It happens in the call of [`File::write_at`](crate::File::write_at) that writes a page to
    /// its end, which blocks on the device; a sync of the file that comes meanwhile waits for it.
    /// An error is recorded with the file, as that of any flush
    /// ([`File::sync_all`](crate::File::sync_all)).
    pub fn flush_behind(self, flush_behind_bytes: u64) -> Self {
        Self { flush_behind_bytes, ..self }
    }

    /// Whether the kernel is asked to back the pages' memory by transparent huge pages, so that
    /// hits cause fewer TLB misses. It is by default; whether it does so,
    /// [`Cache::huge_pages_advised`] and the line `AnonHugePages` in /proc/self/smaps tell.
    ///
    /// The memory is taken when the cache is built, in either case. With `false`, the system's
    /// setting applies, which may give huge pages as well.
    pub fn huge_pages(self, huge_pages: bool) -> Self {
        let huge_pages = if huge_pages { HugePages::Advised } else { HugePages::AsConfigured };
        Self { huge_pages, ..self }
    }

    /// Builds the cache: takes all of its memory and, unless each thread does its own I/O, starts
    /// its threads.
    ///
    /// # Errors
    /// [`BuildError`], whose variants name the invalid value. [`BuildError::InsufficientMemory`]
    /// comes before any memory is taken. Others may take it in between: then this fails with
    /// [`BuildError::Memory`], or, where the system has promised more than it has, one of the
    /// processes is killed for it.
    pub fn build(self) -> Result<Cache, BuildError> {
        let Self { capacity_bytes, page_bytes, .. } = self;
        if !page_bytes.is_power_of_two() || !PAGE_BYTES.contains(&page_bytes) {
            return Err(BuildError::PageSize { page_bytes });
        }
        let count = capacity_bytes / page_bytes;
        if count < MIN_FRAMES {
            let least = MIN_FRAMES;
            return Err(BuildError::TooSmall { capacity_bytes, page_bytes, frames: count, least });
        }
        let most_bytes = self.max_capacity_bytes.max(capacity_bytes);
        let most = most_bytes / page_bytes;
        if most >= 1 << 31 {
            return Err(BuildError::TooLarge { capacity_bytes: most_bytes });
        }
        let bytes = count * page_bytes + Frames::bytes_for(most) + Index::bytes_for(most);
        if let Some(AvailableMemory { bytes: available_bytes, limit }) =
            AvailableMemory::lacks(bytes)
        {
            return Err(BuildError::InsufficientMemory { bytes, available_bytes, limit });
        }
        let device = self.device.unwrap_or_else(|| Arc::new(DirectDevice::new()));
        let engine = match self.io {
            Io::Auto => Engine::new(device.clone()).ok(),
            Io::Queued => Some(Engine::new(device.clone())?),
            Io::Blocking => None,
        };
        let alarm = engine.is_some().then(|| Alarm::new(device.clone(), self.dirty_expire));
        let none = |what, bytes| move |errno: Errno| BuildError::Memory { what, bytes, errno };
        let memory = FrameMemory::new(most, page_bytes, self.huge_pages)
            .map_err(none("the pages", most * page_bytes))?;
        let frames = Frames::new(most)
            .map_err(none("what is kept about frames", Frames::bytes_for(most)))?;
        let reasons = Reasons::register();
        let pages = wait_table(self.queues).reason(reasons.page_read);
        #[cfg(feature = "ablation")]
        let pages = pages.filtered(self.filtered);
        let files = Arc::new(Files::new(CACHES_BUILT.fetch_add(1, Ordering::Relaxed)));
        let waits = Arc::new(wait_table(OTHER_QUEUES).reason(reasons.frame).build());
        let runs = RunBuffers::new(most, page_bytes, waits.clone(), reasons.write_back);
        let turns = Turns::new(runs.pages_max, waits.clone(), reasons.write_back);
        let index = Index::new(most).map_err(none("the index", Index::bytes_for(most)))?;
        let fork = ForkMark::new().map_err(none("the mark of a fork", 1))?;
        let supply = Supply::new(frames, memory, Pool::new(most), waits, reasons.frame, alarm);
        supply.grow(count).map_err(none("the pages", count * page_bytes))?;
        let pages = Pages {
            supply,
            index,
            waits: pages.build(),
            flush_state: files.clone(),
            reasons,
            counters: Counters::new(),
            fork,
        };
        let core = Arc::new(Core {
            pages,
            turns,
            io: Transfers { device, runs, engine },
            files,
            write_error: Mutex::default(),
            frame_wait: self.frame_wait,
            flush_behind_bytes: self.flush_behind_bytes,
            resizing: RwLatch::default(),
        });
        Ok(Cache { owner: Owner::new(core)? })
    }
}

/// A wait table with this many queues.
fn wait_table(queues: usize) -> WaitTableBuilder<WaitKey> {
    let table = WaitTable::<WaitKey>::builder();
    // A simulation is to be repeated: nothing may follow from the addresses of what is waited for.
    #[cfg(shuttle)]
    return table.buckets(queues.min(1)).signature(false).seed(1);
    #[cfg(not(shuttle))]
    table.buckets(queues)
}
