//! The table of open files, and the gates that they pass; see `open.rs`.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use foldhash::fast::FixedState;
use unherd_sync::{Reason, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use unherd_sys::{Identity, Opened};

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
    /// Whether it has the file's advisory lock.
    is_locked: bool,
}

#[derive(Debug, Default)]
struct Table {
    /// The files that are being opened or closed.
    gates: HashSet<Identity>,
    by_identity: HashMap<Identity, Entry>,
    /// Asked for each run of pages of a file that are given up and that no flush has covered.
    by_id: HashMap<FileId, Arc<FileState>, FixedState>,
    /// By the numbers of devices, of all that files were opened on.
    unflushed: HashMap<u64, Arc<Unflushed>>,
    /// What openings have left to the next opening of the same file for writing, and which.
    carried_over: HashMap<Identity, (FileId, CarriedOver)>,
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
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.files.table.lock().gates.remove(&self.identity);
        // All of them, as a file of another device may have the same number.
        let tag = gate_tag(self.identity);
        let choose = |waiter| if waiter == tag { Verdict::Wake } else { Verdict::Skip };
        self.waits.wake_where(&WaitKey::of(self.files), choose, Token(0));
    }
}

/// What those that wait at the gate of a file are told apart by.
fn gate_tag(identity: Identity) -> Tag {
    Tag(identity.inode)
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
        while !self.table.lock().gates.insert(identity) {
            let is_shut = || self.table.lock().gates.contains(&identity);
            let wait = Wait::new(reason).tag(gate_tag(identity));
            let _ = waits.wait(&WaitKey::of(self), is_shut, wait);
        }
        GateGuard { files: self, waits, identity }
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

    /// The file, if it is open here and may have such a handle, and whether it is locked.
    pub(crate) fn find(
        &self,
        identity: Identity,
        options: &OpenOptions,
    ) -> Result<Option<(Arc<FileState>, bool)>, Error> {
        let table = self.table.lock();
        let Some(Entry { file, is_locked, .. }) = table.by_identity.get(&identity) else {
            return Ok(None);
        };
        if options.write && !file.writable {
            return Err(Error::HeldReadOnly { file: file.path.clone() });
        }
        if options.hook != file.hook {
            return Err(Error::OtherHook { file: file.path.clone() });
        }
        Ok(Some((file.clone(), *is_locked)))
    }

    /// A file that is open has another handle, which `has_lock`, or does not care.
    pub(crate) fn attach(&self, file: &FileState, has_lock: bool) {
        if let Some(entry) = self.table.lock().by_identity.get_mut(&file.identity) {
            entry.handles += 1;
            entry.is_locked |= has_lock;
        }
    }

    /// The number of the file that was registered last.
    pub(crate) fn latest(&self) -> FileId {
        FileId(self.table.lock().opened)
    }

    /// Has the file in the table that was opened when `known` was the latest.
    pub(crate) fn register(
        &self,
        path: Arc<Path>,
        opened: Opened,
        options: &OpenOptions,
        known: FileId,
        pages: &Pages,
    ) -> Option<Arc<FileState>> {
        let mut table = self.table.lock();
        table.opened = table.opened.checked_add(1)?;
        // Only an opening that can flush, and write again, takes over what an earlier one has left.
        // Where it has made the file, an earlier one had another file, whose inode this one has.
        let left = options.write.then(|| table.carried_over.remove(&opened.identity)).flatten();
        let left = left.filter(|(by, _)| !opened.is_new || by.0 > known.0);
        let carried_over = left.map_or_else(CarriedOver::default, |(_, carried_over)| carried_over);
        let is_below_block = (pages.memory().page_bytes() as u64) < opened.block_bytes;
        let durability =
            Durability::new(opened.len_bytes, carried_over).with_pages_below_block(is_below_block);
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
            block_bytes: opened.block_bytes,
            len_unit: if hook.is_some() { pages.memory().page_bytes() as u64 } else { 1 },
            hook,
            len: AtomicU64::new(0),
            cutting_to: AtomicU64::new(u64::MAX),
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
        let entry = Entry { file: file.clone(), handles: 1, is_locked: options.lock };
        table.by_identity.insert(opened.identity, entry);
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

    /// Takes the file from the table.
    pub(crate) fn forget(&self, file: &FileState, carried_over: CarriedOver) {
        let mut table = self.table.lock();
        if carried_over != CarriedOver::default() {
            table.carried_over.insert(file.identity, (file.id, carried_over));
        }
        table.by_id.remove(&file.id);
        self.open.store(table.by_id.len(), Ordering::Relaxed);
        table.by_identity.remove(&file.identity);
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
