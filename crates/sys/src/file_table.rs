//! From a [`DeviceFile`] number to a descriptor, without a lock.
//!
//! Each file has a slot; the slot's state word counts the calls and transfers that are using the
//! descriptor now, as the kernel counts the users of a file. So a descriptor is never given back
//! while it is in use, not even by a caller who closes a file with transfers under way: the last
//! user closes it.
//!
//! | state | users | means | leaves by |
//! |---|---|---|---|
//! | `FREE` | 0 | no descriptor | `insert`: `OPEN` |
//! | `OPEN` | any | `enter` succeeds | `close`: `CLOSING` |
//! | `CLOSING` | any | `enter` fails | the one who takes `CLOSING` with no users to `FREE`, and closes |
//!
//! A slot is used again, a number is not for long: each use of the slot is another *generation*,
//! which stands in the number and in the state word. A number whose file was closed is refused even
//! where the slot holds another file by now, until the slot has been used 4096 times. The slot that
//! has been free the longest is used first.
//!
//! A failing `enter` counts itself for a moment in any state. Invariants:
//! 1. `fd` is written only while the slot is `FREE` and its index in nobody's hands but `insert`'s.
//! 2. While the state is `OPEN`, or `CLOSING` with users that entered, `fd` is an open descriptor
//!    that this table owns.
#![expect(unsafe_code, reason = "a slot owns a descriptor by number")]

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::DeviceFile;
use crate::primitives::{AtomicU32, AtomicU64, Mutex, Ordering};

const OPEN: u64 = 1 << 32;
const CLOSING: u64 = 1 << 33;
const USERS: u64 = OPEN - 1;
const GENERATION_SHIFT: u32 = 34;

/// A file's number: the slot's index in the low bits, the generation above.
const INDEX_BITS: u32 = 20;
/// As many files as Linux lets a process have descriptors unless it is told otherwise (`nr_open`).
const INDEX_COUNT: u32 = 1 << INDEX_BITS;
const GENERATION_COUNT: u32 = 1 << (u32::BITS - INDEX_BITS);

/// Slots in the first chunk; each further chunk doubles the table.
const FIRST_CHUNK: usize = 64;
/// Enough for `INDEX_COUNT` slots.
const CHUNKS: usize = 15;

#[derive(Debug, Default)]
struct Slot {
    state: AtomicU64,
    /// The descriptor. Relaxed: `state` publishes it.
    fd: AtomicU32,
}

/// The open files of one device.
#[derive(Debug)]
pub(crate) struct FileTable {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    free: Mutex<FreeIndexes>,
}

#[derive(Debug, Default)]
struct FreeIndexes {
    returned: VecDeque<u32>,
    next: u32,
}

/// The use of an open file; the descriptor stays open for as long as this lives.
#[derive(Debug)]
pub(crate) struct FileUse<'a> {
    table: &'a FileTable,
    index: u32,
    fd: RawFd,
}

impl FileTable {
    pub(crate) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::default() }
    }

    /// Takes over `fd` and numbers it. Allocates when the table grows; `EMFILE` for more than 2^20
    /// files.
    pub(crate) fn insert(&self, fd: OwnedFd) -> Result<DeviceFile, Errno> {
        let index = {
            let mut free = self.free.lock();
            match free.returned.pop_front() {
                Some(index) => index,
                None => {
                    let index = free.next;
                    if index == INDEX_COUNT {
                        return Err(Errno::MFILE);
                    }
                    free.next += 1;
                    index
                }
            }
        };
        let (chunk, offset, len) = place(index);
        let slots = self.chunks.get(chunk).ok_or(Errno::MFILE)?.get_or_init(|| {
            let mut slots = Vec::new();
            slots.resize_with(len, Slot::default);
            slots.into_boxed_slice()
        });
        let slot = &slots[offset];
        // Invariant 1: the index came from the free list, so the slot is this call's alone.
        slot.fd.store(fd.into_raw_fd() as u32, Ordering::Relaxed);
        // Added, not stored: a stale `enter` may have counted itself for a moment.
        // ORDER[FILE-open]: Release; pairs with the Acquire in `enter`. Publishes `fd`.
        let before = slot.state.fetch_or(OPEN, Ordering::Release);
        Ok(DeviceFile(generation(before) << INDEX_BITS | index))
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        let (chunk, offset, _) = place(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// The file's descriptor for a while, `EBADF` if it is not open. One shared write.
    pub(crate) fn enter(&self, file: DeviceFile) -> Result<FileUse<'_>, Errno> {
        let index = index_of(file);
        let slot = self.slot(index).ok_or(Errno::BADF)?;
        // ORDER[FILE-open]: Acquire; pairs with the Release in `insert`, so that `fd` is the open
        // one's.
        let before = slot.state.fetch_add(1, Ordering::Acquire);
        if before & OPEN == 0 || generation(before) != generation_of(file) {
            self.leave(index);
            return Err(Errno::BADF);
        }
        let fd = slot.fd.load(Ordering::Relaxed) as RawFd;
        Ok(FileUse { table: self, index, fd })
    }

    /// Gives back one use, and the descriptor with it if the file was closed meanwhile.
    fn leave(&self, index: u32) {
        let Some(slot) = self.slot(index) else { return };
        // ORDER[FILE-use]: Release; pairs with the Acquire in `give_back`: a thread that closes the
        // descriptor does so after all use of it.
        let before = slot.state.fetch_sub(1, Ordering::Release);
        if before & (CLOSING | USERS) == CLOSING | 1 {
            self.give_back(slot, index, generation(before));
        }
    }

    /// Lets nobody else enter; the descriptor goes with its last user, now if there is none. The
    /// number of a file that is closed already does nothing.
    pub(crate) fn close(&self, file: DeviceFile) {
        self.close_slot(index_of(file), |state| generation(state) == generation_of(file));
    }

    /// Closes every file.
    pub(crate) fn close_all(&self) {
        let slots = self.free.lock().next;
        for index in 0..slots {
            self.close_slot(index, |_| true);
        }
    }

    fn close_slot(&self, index: u32, is_it: impl Fn(u64) -> bool) {
        let Some(slot) = self.slot(index) else {
            return;
        };
        let closed = slot.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            (state & OPEN != 0 && is_it(state)).then_some(state & !OPEN | CLOSING)
        });
        if let Ok(before) = closed
            && before & USERS == 0
        {
            self.give_back(slot, index, generation(before));
        }
    }

    /// Closes the descriptor of a slot without users and begins the next generation; of several
    /// callers one gets to do it.
    fn give_back(&self, slot: &Slot, index: u32, generation: u32) {
        let closing = in_state(generation) | CLOSING;
        let free = in_state((generation + 1) % GENERATION_COUNT);
        // ORDER[FILE-use]: Acquire; pairs with the Release in `leave`.
        let won = slot.state.compare_exchange(closing, free, Ordering::Acquire, Ordering::Relaxed);
        if won.is_err() {
            return;
        }
        let fd = slot.fd.load(Ordering::Relaxed) as RawFd;
        // SAFETY: invariant 2: the table owns the descriptor, and the exchange above gave it to
        // this call alone; no user is left.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        self.free.lock().returned.push_back(index);
    }
}

impl Drop for FileTable {
    fn drop(&mut self) {
        self.close_all();
    }
}

fn index_of(file: DeviceFile) -> u32 {
    file.0 % INDEX_COUNT
}

fn generation_of(file: DeviceFile) -> u32 {
    file.0 >> INDEX_BITS
}

/// The generation that a state word tells.
fn generation(state: u64) -> u32 {
    (state >> GENERATION_SHIFT) as u32
}

fn in_state(generation: u32) -> u64 {
    u64::from(generation) << GENERATION_SHIFT
}

/// The chunk of a slot, its place in there and the chunk's length.
fn place(index: u32) -> (usize, usize, usize) {
    let index = index as usize;
    let chunk = (index / FIRST_CHUNK + 1).ilog2() as usize;
    let len = FIRST_CHUNK << chunk;
    (chunk, index + FIRST_CHUNK - len, len)
}

impl FileUse<'_> {
    /// Keeps the file in use beyond the borrow, until [`FileTable::release`].
    pub(crate) fn keep(self) -> KeptUse {
        let kept = KeptUse { index: self.index, fd: self.fd };
        std::mem::forget(self);
        kept
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: invariant 2: this use entered, so the descriptor is open while it lives.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl AsRawFd for FileUse<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl Drop for FileUse<'_> {
    fn drop(&mut self) {
        self.table.leave(self.index);
    }
}

/// The use of a file by a queued transfer; [`FileTable::release`] ends it.
#[derive(Debug)]
pub(crate) struct KeptUse {
    index: u32,
    fd: RawFd,
}

impl KeptUse {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: invariant 2: this use entered, and is released by value alone.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl FileTable {
    /// Ends a use that was kept.
    pub(crate) fn release(&self, kept: KeptUse) {
        self.leave(kept.index);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::pipe::PipeFlags;

    use super::*;
    use crate::Timestamp;

    fn pipe_end() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap()
    }

    /// Whether every writing end of the pipe is closed: then reading finds the end.
    fn hung_up(reader: &OwnedFd) -> bool {
        rustix::io::read(reader, &mut [0; 1]) == Ok(0)
    }

    /// As [`hung_up`], in the end: a child that another test begins has the writing end too, until
    /// it runs its own program.
    fn hangs_up(reader: &OwnedFd) -> bool {
        let began = Timestamp::now();
        while !hung_up(reader) && Timestamp::now().since(began) < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        hung_up(reader)
    }

    #[test]
    fn numbers_find_their_place() {
        assert_eq!(place(0), (0, 0, 64));
        assert_eq!(place(63), (0, 63, 64));
        assert_eq!(place(64), (1, 0, 128));
        assert_eq!(place(191), (1, 127, 128));
        assert_eq!(place(192), (2, 0, 256));
        assert_eq!(place(INDEX_COUNT - 1).0, CHUNKS - 1);
    }

    #[test]
    fn closed_number_never_reaches_next_file() {
        let table = FileTable::new();
        let (reader, writer) = pipe_end();
        let first = table.insert(writer).unwrap();
        assert!(table.enter(first).is_ok());
        assert!(!hung_up(&reader));
        table.close(first);
        assert!(hangs_up(&reader));
        assert_eq!(table.enter(first).unwrap_err(), Errno::BADF);
        let (reader, writer) = pipe_end();
        let second = table.insert(writer).unwrap();
        assert_eq!(index_of(first), index_of(second), "the slot is used again");
        assert_eq!(table.enter(first).unwrap_err(), Errno::BADF);
        table.close(first);
        assert!(table.enter(second).is_ok());
        assert!(!hung_up(&reader));
    }

    #[test]
    fn generations_come_round() {
        let table = FileTable::new();
        let first = table.insert(pipe_end().1).unwrap();
        table.close(first);
        for _use in 1..GENERATION_COUNT {
            let file = table.insert(pipe_end().1).unwrap();
            assert_ne!(file, first);
            table.close(file);
        }
        assert_eq!(table.insert(pipe_end().1).unwrap(), first);
    }

    #[test]
    fn the_last_user_closes() {
        let table = FileTable::new();
        let (reader, writer) = pipe_end();
        let file = table.insert(writer).unwrap();
        let kept = table.enter(file).unwrap().keep();
        table.close(file);
        assert!(!hung_up(&reader));
        assert_eq!(table.enter(file).unwrap_err(), Errno::BADF);
        table.release(kept);
        assert!(hangs_up(&reader));
    }

    #[test]
    fn dropping_the_table_closes_all() {
        let table = FileTable::new();
        let ends: Vec<_> = (0..200)
            .map(|_| {
                let (reader, writer) = pipe_end();
                table.insert(writer).unwrap();
                reader
            })
            .collect();
        drop(table);
        assert!(ends.iter().all(hangs_up));
    }
}
