//! Each thread's counts, and the list of all of them.
//!
//! ```text
//!  ROOT.head ──▶ slab ──▶ slab ──▶ null     pushed at the front, never unlinked, never freed
//!
//!  slab:         slot 0   slot 1  …  slot 31
//!     reason 0   [row]    [row]      [row]    a page for each reason that is used
//!     reason 1   [row]    [row]      [row]
//! ```
//!
//! A thread owns a *slot*: one row for each reason. Rows of one reason lie side by side, so that
//! hundreds of threads with few reasons stay on few pages: a thread that was asleep finds its row's
//! line cold, but not its page. [`unherd_sys::ledger_layout`] tells tracers how to find all this.
//!
//! - **S1** A slot that is `taken` has one writer: the thread that took it.
//! - **S2** A slab that was pushed lives for ever.
#![cfg(not(any(loom, shuttle)))]
#![expect(unsafe_code, reason = "slabs are shared by pointers that live for ever")]

use std::cell::Cell;
use std::mem::offset_of;
use std::ptr;

use unherd_sys::ledger_layout::{
    GATE_BYTES, GATE_FIELDS, GATES, MAGIC, NAME_BYTES, ROOT_GATES, ROOT_GATES_HIDDEN, ROW_BYTES,
    ROW_WAITING, SLAB_NEXT, SLOTS, put_up_signpost,
};
use unherd_sys::primitives::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use unherd_sys::{HugePages, Map, Timestamp};

use super::gates::GateRow;
use super::{FIELDS, Field};
use crate::reason::REASONS;
use crate::{GateWaiter, Reason};

/// The counts of a slot for one reason. Relaxed: each is a number on its own, written by one
/// thread. All that a wait counts stands on the first line, which holds all but contended locks.
#[repr(C, align(128))]
pub(super) struct Row {
    counts: [AtomicU64; FIELDS],
    /// Since when the thread waits at a gate for this reason; 0 if it does not.
    waiting_since_ns: AtomicU64,
    /// The gate's number, and the thread's.
    waiting: AtomicU64,
}

impl Row {
    pub(super) fn get(&self, field: Field) -> u64 {
        self.counts[field as usize].load(Ordering::Relaxed)
    }

    /// The thread does not wait at a gate any more.
    pub(super) fn end_waiting(&self) {
        self.waiting_since_ns.store(0, Ordering::Relaxed);
    }
}

/// All zeros when new.
#[repr(C)]
pub(super) struct Slab {
    rows: [[Row; SLOTS]; REASONS],
    /// Written before the slab is pushed, and never again.
    next: AtomicPtr<Slab>,
    taken: [AtomicBool; SLOTS],
}

/// Where everything begins.
#[repr(C)]
struct Root {
    magic: [u8; 16],
    head: AtomicPtr<Slab>,
    orphans: &'static Slab,
    names: [[AtomicU64; NAME_BYTES / 8]; REASONS],
    /// How many gates have no row here. Relaxed: a number on its own.
    gates_hidden: AtomicU64,
    gates: [GateRow; GATES],
}

const _: () = {
    assert!(size_of::<Row>() == ROW_BYTES && offset_of!(Slab, next) == SLAB_NEXT);
    assert!(offset_of!(Root, head) == 16 && offset_of!(Root, orphans) == 24);
    assert!(offset_of!(Root, names) == 32 && FIELDS == unherd_sys::ledger_layout::FIELDS.len());
    assert!(offset_of!(Row, waiting_since_ns) == ROW_WAITING);
    assert!(offset_of!(Root, gates_hidden) == ROOT_GATES_HIDDEN);
    assert!(offset_of!(Root, gates) == ROOT_GATES && size_of::<GateRow>() == GATE_BYTES);
    assert!(GATE_BYTES == 8 * GATE_FIELDS.len() && align_of::<Root>() == GATE_BYTES);
};

/// For threads whose thread-locals are gone already, and where there is no memory for a slab: many
/// writers, by read-modify-write.
static ORPHANS: Slab = Slab {
    rows: [const {
        [const {
            Row {
                counts: [const { AtomicU64::new(0) }; FIELDS],
                waiting_since_ns: AtomicU64::new(0),
                waiting: AtomicU64::new(0),
            }
        }; SLOTS]
    }; REASONS],
    next: AtomicPtr::new(ptr::null_mut()),
    taken: [const { AtomicBool::new(false) }; SLOTS],
};

static ROOT: Root = Root {
    magic: MAGIC,
    head: AtomicPtr::new(ptr::null_mut()),
    orphans: &ORPHANS,
    names: [const { [const { AtomicU64::new(0) }; NAME_BYTES / 8] }; REASONS],
    gates_hidden: AtomicU64::new(0),
    gates: [const { GateRow::new() }; GATES],
};

impl Slab {
    /// A slab for ever, or `None` if there is no memory.
    fn new() -> Option<&'static Self> {
        let map = Map::new(size_of::<Self>(), HugePages::AsConfigured).ok()?;
        let start = map.start().cast::<Self>();
        std::mem::forget(map);
        // SAFETY: mapped for ever just now, aligned to a page, and zeros are a slab.
        Some(unsafe { start.as_ref() })
    }

    /// The rows of one reason, one for each slot.
    pub(super) fn rows(&self, reason: Reason) -> &[Row; SLOTS] {
        &self.rows[reason.index()]
    }

    /// The first row of a slot; the others follow at every `SLOTS`th place.
    fn slot(&self, slot: usize) -> *const Row {
        // From the whole slab, so that the pointer may go to the other rows.
        ptr::from_ref(self).cast::<Row>().wrapping_add(slot)
    }
}

thread_local! {
    /// The first row of this thread's slot; null before its first count and after its end.
    static MINE: Cell<*const Row> = const { Cell::new(ptr::null()) };
    /// Gives the slot back when the thread ends.
    static TAKEN: TakenSlot = const { TakenSlot(Cell::new(None)) };
}

struct TakenSlot(Cell<Option<&'static AtomicBool>>);

impl Drop for TakenSlot {
    fn drop(&mut self) {
        MINE.set(ptr::null());
        if let Some(taken) = self.0.get() {
            // ORDER[SHARD]: Release; pairs with the Acquire in `take`. The next owner adds to the
            // counts that this thread wrote.
            taken.store(false, Ordering::Release);
        }
    }
}

#[inline]
pub(super) fn add(reason: Reason, field: Field, amount: u64) {
    let Some(row) = own_row(reason) else { return add_slow(reason, field, amount) };
    let count = &row.counts[field as usize];
    // S1: nobody else writes it, so this needs no read-modify-write.
    count.store(count.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// The calling thread's row, if it has a slot.
#[inline]
fn own_row(reason: Reason) -> Option<&'static Row> {
    // `MINE` has no destructor, so it can be reached at any time of a thread's life.
    let first = MINE.get();
    if first.is_null() {
        return None;
    }
    // SAFETY: S2; `first` came from `Slab::slot`, and a reason's index is below `REASONS`.
    Some(unsafe { &*first.wrapping_add(reason.index() * SLOTS) })
}

/// Says in the calling thread's row that it waits at this gate since then, and gives the row. A
/// thread that has no slot cannot say so.
pub(super) fn note_waiting(
    reason: Reason,
    since: Timestamp,
    gate: u32,
    thread: u32,
) -> Option<&'static Row> {
    // This takes a slot where there is none yet.
    add(reason, Field::Waits, 0);
    let row = own_row(reason)?;
    row.waiting.store(u64::from(gate) << 32 | u64::from(thread), Ordering::Relaxed);
    row.waiting_since_ns.store(since.as_ns(), Ordering::Relaxed);
    Some(row)
}

/// The threads that wait at gates for this reason, and the gates' numbers.
pub(super) fn waiters(reason: Reason) -> impl Iterator<Item = (u32, GateWaiter)> {
    all().flat_map(move |slab| slab.rows(reason)).filter_map(move |row| {
        let since_ns = row.waiting_since_ns.load(Ordering::Relaxed);
        let waiting = row.waiting.load(Ordering::Relaxed);
        let thread = Some(waiting as u32).filter(|thread| *thread > 0);
        let since = Timestamp::from_ns(since_ns);
        (since_ns > 0).then_some(((waiting >> 32) as u32, GateWaiter { thread, reason, since }))
    })
}

/// The rows of gates.
pub(super) fn gates() -> &'static [GateRow] {
    &ROOT.gates
}

/// The number of gates that have none of these rows.
pub(super) fn gates_hidden() -> &'static AtomicU64 {
    &ROOT.gates_hidden
}

#[cold]
fn add_slow(reason: Reason, field: Field, amount: u64) {
    // Before a slot is taken it must be certain that it will be given back.
    let found = TAKEN.try_with(|mine| {
        let (slab, slot) = take()?;
        mine.0.set(Some(&slab.taken[slot]));
        MINE.set(slab.slot(slot));
        Some(())
    });
    if let Ok(Some(())) = found {
        add(reason, field, amount);
    } else {
        ORPHANS.rows(reason)[0].counts[field as usize].fetch_add(amount, Ordering::Relaxed);
    }
}

/// A slot that has no owner, in a new slab if need be.
fn take() -> Option<(&'static Slab, usize)> {
    let free = |slab: &Slab| {
        (0..SLOTS).find(|slot| {
            let taken = &slab.taken[*slot];
            // ORDER[SHARD]: Acquire; pairs with the Release in `TakenSlot::drop`.
            !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Acquire)
        })
    };
    if let Some(found) = pushed().find_map(|slab| Some((slab, free(slab)?))) {
        return Some(found);
    }
    let slab = Slab::new()?;
    slab.taken[0].store(true, Ordering::Relaxed);
    let mut head = ROOT.head.load(Ordering::Relaxed);
    loop {
        slab.next.store(head, Ordering::Relaxed);
        let new = ptr::from_ref(slab).cast_mut();
        // ORDER[SHARDS]: Release; pairs with the Acquire in `pushed`. Publishes the slab.
        match ROOT.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    if head.is_null() {
        // The thread that pushes the first slab puts up the signpost. Where that is refused, the
        // counts are there all the same, and only a tracer misses them.
        let _ = put_up_signpost(&ROOT);
    }
    Some((slab, 0))
}

fn pushed() -> impl Iterator<Item = &'static Slab> {
    // ORDER[SHARDS]: Acquire; pairs with the Release in `take`. Later ones on the list were
    // published before, by the same chain of read-modify-writes.
    let first = ROOT.head.load(Ordering::Acquire);
    // SAFETY: S2.
    std::iter::successors(unsafe { first.as_ref() }, |slab| {
        // SAFETY: S2.
        unsafe { slab.next.load(Ordering::Relaxed).as_ref() }
    })
}

/// Every slab that there is.
pub(super) fn all() -> impl Iterator<Item = &'static Slab> {
    pushed().chain(std::iter::once(&ORPHANS))
}

/// Writes a reason's name where tracers find it, as much of it as there is room for.
pub(crate) fn publish_name(reason: Reason, name: &str) {
    // The last byte stays zero.
    let mut bytes = [0; NAME_BYTES];
    let len = name.len().min(NAME_BYTES - 1);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    for (place, eight) in ROOT.names[reason.index()].iter().zip(bytes.as_chunks::<8>().0) {
        place.store(u64::from_ne_bytes(*eight), Ordering::Relaxed);
    }
}
