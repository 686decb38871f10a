//! The table of open files, and the gates that they pass; see `open.rs`.

use std::collections::HashMap;
use std::path::Path;

use foldhash::fast::FixedState;
use unherd_sync::{Reason, WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use unherd_sys::{DeviceFile, Identity, Opened};

use crate::error::Error;
use crate::frames::Claim;
use crate::group_commit::GroupCommit;
use crate::latch::{RwLatch, StripedRwLatch};
use crate::page::{FileId, FrameId, PageKey};
use crate::pages::{FlushState, Pages};
use crate::ranked::{Ranked, rank};
use crate::state::preallocated::Left;
use crate::state::{CarriedOver, Durability, FileState, OpenOptions, Unflushed, Unwritten};

#[derive(Debug)]
struct Entry {
    file: Arc<FileState>,
    handles: usize,
    /// The opening that holds the file's advisory lock: the file's own, or, if that was to do
    /// without, a later one that was not.
    lock: Option<Lock>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lock {
    pub(crate) device_file: DeviceFile,
    /// For writing; else shared.
    pub(crate) is_exclusive: bool,
}

/// The gate of one file.
#[derive(Debug, Default)]
struct Gate {
    latch: Arc<RwLatch>,
    /// Who is behind it, or waits for that.
    users: usize,
}

#[derive(Debug, Default)]
struct Table {
    /// Of the files that are being opened or closed.
    gates: HashMap<Identity, Gate>,
    by_identity: HashMap<Identity, Entry>,
    /// Asked for each run of pages of a file that are given up and that no flush has covered.
    by_id: HashMap<FileId, Arc<FileState>, FixedState>,
    /// By the numbers of devices, of all that files were opened on.
    unflushed: HashMap<u64, Arc<Unflushed>>,
    /// What openings have left to the next opening of the same file for writing.
    carried_over: HashMap<Identity, CarriedOver>,
    opened: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Of their cache: no other cache of the process has or had it.
    pub(crate) number: u64,
    table: Ranked<Table, { rank::TABLE }>,
    /// How many frames streams have for pages to come: see `preallocated.rs`. Relaxed: the fences
    /// of the waiters for frames are those that count.
    pub(crate) preallocated: AtomicUsize,
    /// Files in the table. Relaxed: a hint.
    open: AtomicUsize,
    /// Pages of all files that are newer than the device. Relaxed: a count.
    pub(crate) unwritten: AtomicUsize,
    /// Held pages of all files. Relaxed: changed under the lock of the file's holds, so one who has
    /// a page that is held sees that there are some.
    pub(crate) held: AtomicUsize,
}

/// Behind the gate of a file, until dropped.
pub(crate) struct GateGuard<'a> {
    files: &'a Files,
    waits: &'a WaitTable<WaitKey>,
    identity: Identity,
    latch: Arc<RwLatch>,
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.latch.unlock_exclusive(self.waits);
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
    /// Of the cache of that number.
    pub(crate) fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// Waits under `reason` until nobody else opens or closes the file.
    pub(crate) fn pass_gate<'a>(
        &'a self,
        identity: Identity,
        waits: &'a WaitTable<WaitKey>,
        reason: Reason,
    ) -> GateGuard<'a> {
        let latch = {
            let mut table = self.table.lock();
            let gate = table.gates.entry(identity).or_default();
            gate.users += 1;
            gate.latch.clone()
        };
        latch.block_shared(waits, reason);
        GateGuard { files: self, waits, identity, latch }
    }

    /// Pages of the file have become newer than the device.
    pub(crate) fn add_unwritten(&self, file: &FileState, pages: usize) {
        file.unwritten.pages.fetch_add(pages, Ordering::Relaxed);
        self.unwritten.fetch_add(pages, Ordering::Relaxed);
    }

    /// As many have been written or dropped. The caller tells those that wait for room.
    pub(crate) fn forget_unwritten(&self, file: &FileState, pages: usize) {
        if pages > 0 {
            let before = file.unwritten.pages.fetch_sub(pages, Ordering::Relaxed);
            debug_assert!(before >= pages, "more pages were written than were newer");
            self.unwritten.fetch_sub(pages, Ordering::Relaxed);
        }
    }

    /// Others may have the frames that streams of the file have for pages to come. Whether there
    /// was any.
    pub(crate) fn give_back_preallocated(&self, file: &FileState, pages: &Pages) -> bool {
        let left = file.write_streams.lock().give_back();
        let has_any = !left.claims.is_empty();
        self.free_left(left, pages);
        has_any
    }

    pub(crate) fn free_left(&self, left: Left, pages: &Pages) {
        if left.counted > 0 {
            self.preallocated.fetch_sub(left.counted, Ordering::Relaxed);
        }
        left.claims.into_iter().for_each(|claim| pages.free_frame(claim));
    }

    /// How many files are open, about.
    pub(crate) fn open_files(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileState>> {
        self.table.lock().by_id.get(&id).cloned()
    }

    /// All open files.
    pub(crate) fn all(&self) -> Vec<Arc<FileState>> {
        self.table.lock().by_id.values().cloned().collect()
    }

    /// Whether the file is open here, with a lock that is enough for what is asked.
    pub(crate) fn is_locked(
        &self,
        identity: Identity,
        options: &OpenOptions,
    ) -> Result<bool, Error> {
        let table = self.table.lock();
        let Some(Entry { file, lock, .. }) = table.by_identity.get(&identity) else {
            return Ok(false);
        };
        if options.write && !file.writable {
            return Err(Error::HeldReadOnly { file: file.path.clone() });
        }
        if options.hook != file.hook {
            return Err(Error::OtherHook { file: file.path.clone() });
        }
        Ok(lock.is_some_and(|lock| lock.is_exclusive || !options.write))
    }

    /// Another handle of a file that is open; and the lock for it that was taken for it, if any.
    pub(crate) fn attach(&self, identity: Identity, lock: Option<Lock>) -> Option<Arc<FileState>> {
        let mut table = self.table.lock();
        let entry = table.by_identity.get_mut(&identity)?;
        entry.handles += 1;
        entry.lock = entry.lock.or(lock);
        Some(entry.file.clone())
    }

    pub(crate) fn register(
        &self,
        path: Arc<Path>,
        opened: Opened,
        options: &OpenOptions,
        pages: &Pages,
    ) -> Option<Arc<FileState>> {
        let mut table = self.table.lock();
        table.opened = table.opened.checked_add(1)?;
        // Only an opening that can flush, and write again, takes over what an earlier one has left.
        let carried_over =
            if options.write { table.carried_over.remove(&opened.identity) } else { None };
        let durability = Durability::new(opened.len_bytes, carried_over.unwrap_or_default());
        let id = FileId(table.opened);
        let hook = options.hook.clone();
        let file = FileState {
            cache: self.number,
            id,
            device_file: opened.file,
            identity: opened.identity,
            path,
            alignment: opened.alignment.offset.max(opened.alignment.memory),
            memory_alignment: opened.alignment.memory,
            writable: options.write,
            direct: opened.direct,
            len_max: opened.len_bytes_max,
            len_unit: if hook.is_some() { pages.memory().page_bytes() as u64 } else { 1 },
            hook,
            len: AtomicU64::new(0),
            writers: StripedRwLatch::default(),
            write_backs: RwLatch::default(),
            syncs: GroupCommit::new(pages.supply.waits.clone(), pages.reasons.file),
            unflushed: table.unflushed.entry(opened.identity.device).or_default().clone(),
            unclean: Ranked::default(),
            durability: Ranked::new(durability),
            unwritten: Unwritten::default(),
            holds: Ranked::default(),
            no_reuse: AtomicBool::new(false),
            read_streams: Ranked::default(),
            write_streams: Ranked::default(),
        };
        file.set_len(opened.len_bytes);
        let file = Arc::new(file);
        table.by_id.insert(id, file.clone());
        self.open.store(table.by_id.len(), Ordering::Relaxed);
        let lock = Lock { device_file: opened.file, is_exclusive: options.write };
        let lock = options.lock.then_some(lock);
        table.by_identity.insert(opened.identity, Entry { file: file.clone(), handles: 1, lock });
        Some(file)
    }

    /// One handle less; whether it was the last.
    pub(crate) fn detach(&self, file: &FileState) -> bool {
        let mut table = self.table.lock();
        let Some(entry) = table.by_identity.get_mut(&file.identity) else {
            return false;
        };
        entry.handles -= 1;
        entry.handles == 0
    }

    /// Whether the file is open and has no handle; it may have got one since the last went.
    pub(crate) fn is_abandoned(&self, file: &FileState) -> bool {
        let table = self.table.lock();
        let entry = table.by_identity.get(&file.identity);
        entry.is_some_and(|entry| entry.file.id == file.id && entry.handles == 0)
    }

    /// Takes the file from the table. Gives the opening that holds its lock, if it is not its own.
    pub(crate) fn forget(&self, file: &FileState, carried_over: CarriedOver) -> Option<DeviceFile> {
        let mut table = self.table.lock();
        if carried_over != CarriedOver::default() {
            table.carried_over.insert(file.identity, carried_over);
        }
        table.by_id.remove(&file.id);
        self.open.store(table.by_id.len(), Ordering::Relaxed);
        let lock = table.by_identity.remove(&file.identity)?.lock?;
        (lock.device_file != file.device_file).then_some(lock.device_file)
    }
}

impl FlushState for Files {
    fn evict_unstable(
        &self,
        pages: &Pages,
        of_file: &[(FrameId, PageKey)],
        evicted: &mut dyn FnMut(Claim),
    ) {
        let first = of_file.first();
        let Some(file) = first.and_then(|(_, key)| self.get(key.file)) else { return };
        let mut durability = file.durability.lock();
        let mut unclean = file.unclean.lock();
        let mut may_go = |period| {
            let may_go = durability.evict(period);
            if !may_go {
                self.add_unwritten(&file, 1);
            }
            may_go
        };
        let mut locked = None;
        let gone = of_file.iter().filter(|(_, key)| key.file == file.id).filter_map(|page| {
            let &(frame, key) = page;
            evicted(pages.evict_unstable(frame, key, &mut locked, &mut may_go)?);
            Some(key.page)
        });
        unclean.remove_all(gone);
    }
}
