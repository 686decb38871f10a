//! What a simulated device knows: names, files, handles, and transfers under way.
//!
//! Invariant 1: the memory of every transfer in `queue` is the device's, as `IoBuf` says; a
//! transfer leaves the queue when its completion is handed out, or is about to be.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use unherd_sys::{
    Alignment, Completion, DeviceFile, Direction, Errno, Identity, IoBuf, IoBufs, OpenError,
    OpenHow, Opened, Transfer, racy,
};

use super::Counts;
use super::faults::{FaultPlan, Tally};
use super::image::{BLOCK_BYTES, Image};
use crate::Seed;

/// The device number of the simulated files ("unherd" in ASCII).
const DEVICE_NUMBER: u64 = 0x756e_6865_7264;

/// The longest file, in bytes: a wild offset should be an error here, not an exhausted machine.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, Default)]
struct SimFile {
    image: Image,
    counts: Counts,
    /// Each write fails with it.
    refusal: Option<Errno>,
    /// It is said to lie on another device, this much further on.
    device: u64,
}

#[derive(Debug, Clone, Copy)]
struct Handle {
    inode: usize,
    write: bool,
    /// Whether the advisory lock that it holds is exclusive, if it holds one.
    lock: Option<bool>,
    alignment: Alignment,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    transfer: Transfer,
    /// How many reaps it still sits out.
    reaps_left: u32,
}

#[derive(Debug)]
pub(super) struct State {
    seed: Seed,
    plan: FaultPlan,
    reads: Tally,
    writes: Tally,
    syncs: Tally,
    syncs_done: u64,
    faults_injected: u64,
    names: BTreeMap<PathBuf, usize>,
    files: Vec<SimFile>,
    /// Numbers of files that were removed.
    removed: Vec<usize>,
    handles: BTreeMap<u32, Handle>,
    /// Numbers are not used again, so that a stale one is noticed.
    handles_made: u32,
    queue: Vec<Queued>,
    /// Completions that a crash has made.
    done: Vec<Completion>,
    interrupted: bool,
    pub(super) reads_blocked: bool,
    /// Only queued ones.
    pub(super) writes_blocked: bool,
    /// Files that are created are held while their directory is flushed; how many are.
    pub(super) creations_blocked: bool,
    pub(super) held_creations: usize,
    pub(super) reap_panics: bool,
    pub(super) reaps: u64,
    pub(super) failing_changes_of_length: u32,
    /// The files of the blocking reads that are held at the gate.
    held: Vec<DeviceFile>,
}

impl State {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            seed,
            plan: FaultPlan::default(),
            reads: Tally::default(),
            writes: Tally::default(),
            syncs: Tally::default(),
            syncs_done: 0,
            faults_injected: 0,
            names: BTreeMap::new(),
            files: Vec::new(),
            removed: Vec::new(),
            handles: BTreeMap::new(),
            handles_made: 0,
            queue: Vec::new(),
            done: Vec::new(),
            interrupted: false,
            reads_blocked: false,
            writes_blocked: false,
            creations_blocked: false,
            held_creations: 0,
            reap_panics: false,
            reaps: 0,
            failing_changes_of_length: 0,
            held: Vec::new(),
        }
    }

    pub(super) fn set_plan(&mut self, plan: FaultPlan) {
        let Alignment { memory, offset } = plan.alignment;
        assert!(memory.is_power_of_two() && offset.is_power_of_two(), "alignment of the plan");
        self.plan = plan;
        (self.reads, self.writes, self.syncs) = Default::default();
        self.syncs_done = 0;
    }

    pub(super) fn faults_injected(&self) -> u64 {
        self.faults_injected
    }

    pub(super) fn draw_delay(&mut self) -> u32 {
        self.seed.below(u64::from(self.plan.held_reaps_max) + 1) as u32
    }

    /// Draws only where there is a choice, so that other plans go on as they did. What is refused,
    /// as the power is off, takes no time.
    pub(super) fn draw_yields(&mut self) -> u32 {
        match self.plan.yields_max {
            _ if self.power_is_off() => 0,
            0 => 0,
            max => self.seed.below(u64::from(max) + 1) as u32,
        }
    }

    fn power_is_off(&self) -> bool {
        self.plan.power_fails_after_syncs.is_some_and(|syncs| self.syncs_done >= syncs)
    }

    // Names and files.

    pub(super) fn put(&mut self, path: &Path, bytes: &[u8]) {
        let file = SimFile { image: Image::durable(bytes.to_vec()), ..SimFile::default() };
        let inode = self.removed.pop().unwrap_or_else(|| {
            self.files.push(SimFile::default());
            self.files.len() - 1
        });
        self.files[inode] = file;
        self.names.insert(path.to_owned(), inode);
    }

    pub(super) fn remove(&mut self, path: &Path) {
        let Some(inode) = self.names.remove(path) else { return };
        assert!(self.handles.values().all(|handle| handle.inode != inode), "the file is open");
        if self.names.values().all(|other| *other != inode) {
            self.removed.push(inode);
        }
    }

    pub(super) fn link(&mut self, path: &Path, name: &Path) -> bool {
        let inode = self.names.get(path).copied();
        inode.map(|inode| self.names.insert(name.to_owned(), inode)).is_some()
    }

    pub(super) fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.names.get(path).map(|&inode| self.files[inode].image.live().to_vec())
    }

    pub(super) fn durable_bytes(&self, path: &Path) -> Option<Vec<u8>> {
        self.names.get(path).map(|&inode| self.files[inode].image.durable_bytes().to_vec())
    }

    pub(super) fn change(&mut self, path: &Path, change: impl FnOnce(&mut Image)) -> bool {
        let inode = self.names.get(path).copied();
        inode.map(|inode| change(&mut self.files[inode].image)).is_some()
    }

    pub(super) fn refuse_writes(&mut self, path: &Path, errno: Option<Errno>) {
        if let Some(&inode) = self.names.get(path) {
            self.files[inode].refusal = errno;
        }
    }

    pub(super) fn set_device(&mut self, path: &Path, device: u64) {
        if let Some(&inode) = self.names.get(path) {
            self.files[inode].device = device;
        }
    }

    pub(super) fn counts(&self, path: &Path) -> Counts {
        self.names.get(path).map(|&inode| self.files[inode].counts).unwrap_or_default()
    }

    // Handles.

    pub(super) fn open(&mut self, path: &Path, how: OpenHow) -> Result<Opened, OpenError> {
        if self.power_is_off() {
            return Err(Errno::IO.into());
        }
        if self.names.keys().any(|name| name != path && name.starts_with(path)) {
            return Err(OpenError::NotAFile);
        }
        match self.names.contains_key(path) {
            true if how.create_new => return Err(Errno::EXIST.into()),
            false if !how.create && !how.create_new => return Err(Errno::NOENT.into()),
            _ => {}
        }
        let direct = !self.plan.refuse_direct;
        if !direct && !how.buffered_fallback {
            return Err(OpenError::DirectRefused);
        }
        let alignment =
            if direct { self.plan.alignment } else { Alignment { memory: 1, offset: 1 } };
        let needed = alignment.memory.max(alignment.offset);
        if needed > how.alignment_max {
            return Err(OpenError::Misaligned(needed));
        }
        let is_new = !self.names.contains_key(path);
        if is_new {
            self.put(path, &[]);
        }
        let inode = self.names[path];
        let file = DeviceFile(self.handles_made);
        self.handles_made += 1;
        let handle = Handle { inode, write: how.write, lock: None, alignment };
        self.handles.insert(file.0, handle);
        let device = DEVICE_NUMBER + self.files[inode].device;
        let identity = Identity { device, inode: inode as u64 + 1 };
        let len_bytes = self.files[inode].image.live().len() as u64;
        let len_bytes_max = FILE_BYTES_MAX;
        let block_bytes = BLOCK_BYTES as u64;
        Ok(Opened {
            file,
            identity,
            alignment,
            len_bytes,
            len_bytes_max,
            block_bytes,
            direct,
            is_new,
        })
    }

    pub(super) fn try_lock(&mut self, file: DeviceFile, exclusive: bool) -> Result<bool, Errno> {
        let inode = self.handle(file)?.inode;
        let conflicts = |(&number, other): (&u32, &Handle)| {
            number != file.0
                && other.inode == inode
                && other.lock.is_some_and(|other| other || exclusive)
        };
        let is_free = !self.handles.iter().any(conflicts);
        if let (true, Some(handle)) = (is_free, self.handles.get_mut(&file.0)) {
            handle.lock = Some(exclusive);
        }
        Ok(is_free)
    }

    pub(super) fn close(&mut self, file: DeviceFile) {
        let queued = self.queue.iter().any(|queued| queued.transfer.file == file);
        assert!(!queued && !self.held.contains(&file), "{file:?} closed under a transfer");
        self.handles.remove(&file.0);
    }

    fn handle(&self, file: DeviceFile) -> Result<Handle, Errno> {
        let handle = self.handles.get(&file.0).copied().ok_or(Errno::BADF)?;
        if self.power_is_off() { Err(Errno::IO) } else { Ok(handle) }
    }

    pub(super) fn len(&self, file: DeviceFile) -> Result<u64, Errno> {
        Ok(self.files[self.handle(file)?.inode].image.live().len() as u64)
    }

    pub(super) fn set_len(&mut self, file: DeviceFile, len_bytes: u64) -> Result<(), Errno> {
        let handle = self.handle(file)?;
        if !handle.write {
            // KERNEL: ftruncate(2) of a descriptor that is not open for writing.
            return Err(Errno::INVAL);
        }
        if len_bytes > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        if self.failing_changes_of_length > 0 {
            self.failing_changes_of_length -= 1;
            return Err(Errno::IO);
        }
        self.files[handle.inode].image.set_len(len_bytes as usize);
        Ok(())
    }

    /// Fails as a write does, and changes nothing then.
    pub(super) fn punch_hole(&mut self, file: DeviceFile, range: Range<u64>) -> Result<(), Errno> {
        let handle = self.handle(file)?;
        if !handle.write {
            return Err(Errno::BADF);
        }
        if self.writes.fails(self.plan.write, &mut self.seed) {
            self.faults_injected += 1;
            return Err(Errno::IO);
        }
        self.files[handle.inode].image.punch_hole(range.start as usize..range.end as usize);
        Ok(())
    }

    /// Fails as a write does; the file may be longer then.
    pub(super) fn allocate(&mut self, file: DeviceFile, range: Range<u64>) -> Result<(), Errno> {
        let handle = self.handle(file)?;
        if !handle.write {
            return Err(Errno::BADF);
        }
        if range.end > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let len = self.files[handle.inode].image.live().len() as u64;
        let failed = match self.files[handle.inode].refusal {
            None => self.writes.fails(self.plan.write, &mut self.seed).then_some(Errno::IO),
            refusal => refusal,
        };
        let missing = range.end.saturating_sub(len);
        // KERNEL: ext4 reserves piece by piece, and leaves what it has.
        let end = if failed.is_some() { len + self.seed.below(missing + 1) } else { range.end };
        if end > len {
            self.files[handle.inode].image.set_len(end as usize);
        }
        self.faults_injected += u64::from(failed.is_some());
        failed.map_or(Ok(()), Err)
    }

    pub(super) fn sync(&mut self, file: DeviceFile) -> Result<(), Errno> {
        let inode = self.handle(file)?.inode;
        self.files[inode].counts.syncs += 1;
        if self.syncs.fails(self.plan.sync, &mut self.seed) {
            self.faults_injected += 1;
            self.files[inode].image.lose_unsynced();
            return Err(Errno::IO);
        }
        self.files[inode].image.sync();
        self.syncs_done += 1;
        Ok(())
    }

    // Transfers.

    /// Moves the bytes now.
    ///
    /// # Safety
    /// The memory is the device's, as `IoBuf` says, during the call.
    pub(super) unsafe fn transfer(
        &mut self,
        direction: Direction,
        file: DeviceFile,
        offset: u64,
        bufs: IoBufs,
    ) -> Result<usize, Errno> {
        let handle = self.handle(file)?;
        if direction == Direction::Write && !handle.write {
            return Err(Errno::BADF);
        }
        // SAFETY: the caller's promise.
        let pieces = unsafe { bufs.pieces() };
        let Alignment { memory, offset: unit } = handle.alignment;
        let is_aligned = |piece: &IoBuf| {
            piece.start.as_ptr().addr().is_multiple_of(memory as usize)
                && piece.len.is_multiple_of(unit as usize)
        };
        let fits = pieces.len() <= IoBufs::PIECES_MAX;
        if !fits || !offset.is_multiple_of(u64::from(unit)) || !pieces.iter().all(is_aligned) {
            return Err(Errno::INVAL);
        }
        match direction {
            // SAFETY: the caller's promise.
            Direction::Read => unsafe { self.read(handle.inode, offset, pieces, unit) },
            // SAFETY: the caller's promise.
            Direction::Write => unsafe { self.write(handle.inode, offset, pieces, unit) },
        }
    }

    /// # Safety
    /// As [`State::transfer`].
    unsafe fn read(
        &mut self,
        inode: usize,
        offset: u64,
        pieces: &[IoBuf],
        unit: u32,
    ) -> Result<usize, Errno> {
        let wanted = total_len(pieces);
        let len = self.shortened(wanted, unit);
        let file = &mut self.files[inode];
        file.counts.reads += 1;
        if self.reads.fails(self.plan.read, &mut self.seed) {
            self.faults_injected += 1;
            let garbage = vec![self.seed.next_u64() as u8; wanted];
            // SAFETY: the caller's promise.
            unsafe { scatter(&garbage, pieces) };
            return Err(Errno::IO);
        }
        let live = file.image.live();
        let start = live.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let bytes = &live[start..][..len.min(live.len() - start)];
        file.counts.read_bytes += bytes.len() as u64;
        // SAFETY: the caller's promise.
        unsafe { scatter(bytes, pieces) };
        Ok(bytes.len())
    }

    /// # Safety
    /// As [`State::transfer`].
    unsafe fn write(
        &mut self,
        inode: usize,
        offset: u64,
        pieces: &[IoBuf],
        unit: u32,
    ) -> Result<usize, Errno> {
        let wanted = total_len(pieces);
        if offset.saturating_add(wanted as u64) > FILE_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let len = self.shortened(wanted, unit);
        // SAFETY: the caller's promise.
        let bytes = unsafe { gather(pieces) };
        let file = &mut self.files[inode];
        file.counts.writes += 1;
        if let Some(errno) = file.refusal {
            self.faults_injected += 1;
            return Err(errno);
        }
        if self.writes.fails(self.plan.write, &mut self.seed) {
            self.faults_injected += 1;
            file.image.write_torn(offset as usize, &bytes, &mut self.seed);
            return Err(Errno::IO);
        }
        if len > 0 {
            file.image.write(offset as usize, &bytes[..len]);
        }
        file.counts.written_bytes += len as u64;
        Ok(len)
    }

    /// How much of `len` bytes a transfer moves: now and then less, but whole units, and one.
    fn shortened(&mut self, len: usize, unit: u32) -> usize {
        let units = (len / unit as usize) as u64;
        if units > 1 && self.seed.chance_per_mille(self.plan.short_per_mille) {
            self.faults_injected += 1;
            return (1 + self.seed.below(units - 1)) as usize * unit as usize;
        }
        len
    }

    // The queue.

    /// # Safety
    /// The memory of the transfer is the device's until its completion has been handed out.
    pub(super) unsafe fn submit(&mut self, transfer: Transfer) {
        let clash = self.queue.iter().find(|other| {
            let written = |t: &Transfer| t.direction == Direction::Read;
            // SAFETY: the transfer is not complete.
            let new = unsafe { transfer.bufs.pieces() };
            // SAFETY: nor is the other.
            let old = unsafe { other.transfer.bufs.pieces() };
            new.iter().any(|a| old.iter().any(|b| overlap(*a, *b)))
                && (written(&transfer) || written(&other.transfer))
        });
        assert!(clash.is_none(), "memory lent twice: {transfer:?} and {clash:?}");
        let reaps_left = self.draw_delay();
        self.queue.push(Queued { transfer, reaps_left });
    }

    /// Lets queued transfers come to their end, and appends their completions.
    ///
    /// Something completes if anything can: when all sit out this reap, the time until the first
    /// is due passes at once. The bytes are moved here, not when the transfer was queued, so that
    /// memory which changes in between is noticed.
    pub(super) fn complete(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.done);
        let (gated, mut movable): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|queued| match queued.transfer.direction {
                Direction::Read => self.reads_blocked,
                Direction::Write => self.writes_blocked,
            });
        self.queue = gated;
        if self.plan.reorder {
            self.seed.shuffle(&mut movable);
        }
        let soonest = movable.iter().map(|queued| queued.reaps_left).min().unwrap_or(0);
        for mut queued in movable {
            if queued.reaps_left > soonest {
                queued.reaps_left -= soonest + 1;
                self.queue.push(queued);
                continue;
            }
            let Transfer { direction, file, offset, bufs, tag } = queued.transfer;
            // SAFETY: invariant 1; the transfer has just left the queue.
            let result = unsafe { self.transfer(direction, file, offset, bufs) };
            out.push(Completion { tag, result });
        }
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    pub(super) fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.interrupted)
    }

    // The gate.

    pub(super) fn hold(&mut self, file: DeviceFile) {
        self.held.push(file);
    }

    pub(super) fn let_go(&mut self, file: DeviceFile) {
        let at = self.held.iter().position(|&held| held == file).expect("it was held");
        self.held.swap_remove(at);
    }

    pub(super) fn held_reads(&self) -> usize {
        let at_gate = if self.reads_blocked { self.queued(Direction::Read) } else { 0 };
        self.held.len() + at_gate
    }

    pub(super) fn queued(&self, direction: Direction) -> usize {
        self.queue.iter().filter(|queued| queued.transfer.direction == direction).count()
    }

    // The crash.

    pub(super) fn crash(&mut self) {
        for Queued { transfer, .. } in std::mem::take(&mut self.queue) {
            let Transfer { direction, file, offset, bufs, tag } = transfer;
            self.done.push(Completion { tag, result: Err(Errno::IO) });
            if let (Direction::Write, Ok(handle)) = (direction, self.handle(file)) {
                // SAFETY: invariant 1; the completion has not been handed out.
                let pieces = unsafe { bufs.pieces() };
                // SAFETY: as above.
                let bytes = unsafe { gather(pieces) };
                if !handle.write || offset.saturating_add(bytes.len() as u64) > FILE_BYTES_MAX {
                    continue;
                }
                let image = &mut self.files[handle.inode].image;
                image.write_torn(offset as usize, &bytes, &mut self.seed);
            }
        }
        for file in &mut self.files {
            file.image.crash(&mut self.seed);
        }
        self.handles.clear();
        self.plan.power_fails_after_syncs = None;
        self.reads_blocked = false;
        self.writes_blocked = false;
    }
}

fn total_len(pieces: &[IoBuf]) -> usize {
    pieces.iter().map(|piece| piece.len).sum()
}

/// Copies `bytes` to the pieces, as far as they reach.
///
/// # Safety
/// The memory of the pieces is the device's to write.
unsafe fn scatter(bytes: &[u8], pieces: &[IoBuf]) {
    let mut rest = bytes;
    for piece in pieces {
        let (now, later) = rest.split_at(rest.len().min(piece.len));
        // SAFETY: `now` is at most as long as the piece, and cannot be the same memory.
        unsafe { racy::copy(now.as_ptr(), piece.start.as_ptr(), now.len()) };
        rest = later;
    }
}

/// The bytes of all pieces.
///
/// # Safety
/// The memory of the pieces is the device's to read, and nobody writes it meanwhile.
unsafe fn gather(pieces: &[IoBuf]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(total_len(pieces));
    for piece in pieces {
        // SAFETY: the caller's promise.
        bytes.extend(unsafe { std::slice::from_raw_parts(piece.start.as_ptr(), piece.len) });
    }
    bytes
}

fn overlap(a: IoBuf, b: IoBuf) -> bool {
    let (a_start, b_start) = (a.start.as_ptr().addr(), b.start.as_ptr().addr());
    a_start < b_start + b.len && b_start < a_start + a.len
}
