//! One thread's counts, and the list of all of them.
//!
//! ```text
//!  HEAD ──▶ shard ──▶ shard ──▶ null      pushed at the front, never unlinked, never freed
//! ```
//!
//! - **S1** A shard that is `taken` has one writer: the thread that took it.
//! - **S2** A shard that was pushed lives for ever.
#![cfg(not(any(loom, shuttle)))]
#![expect(unsafe_code, reason = "shards are shared by pointers that live for ever")]

use std::cell::Cell;
use std::ptr;

use unherd_sys::primitives::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::{FIELDS, Field};
use crate::Reason;
use crate::reason::REASONS;

/// Counts by reason and field. Relaxed: each is a number on its own, written by one thread.
#[repr(align(128))]
pub(super) struct Shard {
    counts: [Row; REASONS],
    taken: AtomicBool,
    /// Written before the shard is pushed, and never again.
    next: AtomicPtr<Shard>,
}

/// The counts of one reason. A thread that was asleep finds its lines cold: all that a wait counts
/// stands on the first, which holds all but the contended locks.
#[repr(align(128))]
struct Row([AtomicU64; FIELDS]);

static HEAD: AtomicPtr<Shard> = AtomicPtr::new(ptr::null_mut());

/// For threads whose thread-locals are gone already: many writers, by read-modify-write.
static ORPHANS: Shard = Shard::new();

impl Shard {
    const fn new() -> Self {
        Self {
            counts: [const { Row([const { AtomicU64::new(0) }; FIELDS]) }; REASONS],
            taken: AtomicBool::new(true),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(super) fn get(&self, reason: usize, field: usize) -> u64 {
        self.counts[reason].0[field].load(Ordering::Relaxed)
    }

    fn count(&self, reason: Reason, field: Field) -> &AtomicU64 {
        &self.counts[reason.index()].0[field as usize]
    }
}

thread_local! {
    /// This thread's shard; null before its first count and after its end.
    static MINE: Cell<*const Shard> = const { Cell::new(ptr::null()) };
    /// Gives the shard back when the thread ends.
    static RETURN: ReturnShard = const { ReturnShard };
}

struct ReturnShard;

impl Drop for ReturnShard {
    fn drop(&mut self) {
        // SAFETY: S2; the pointer is null or came from `take`.
        if let Some(shard) = unsafe { MINE.replace(ptr::null()).as_ref() } {
            // ORDER[SHARD]: Release; pairs with the Acquire in `take`. The next owner adds to the
            // counts that this thread wrote.
            shard.taken.store(false, Ordering::Release);
        }
    }
}

#[inline]
pub(super) fn add(reason: Reason, field: Field, amount: u64) {
    // `MINE` has no destructor, so it can be reached at any time of a thread's life.
    // SAFETY: S2; the pointer is null or came from `take`.
    match unsafe { MINE.get().as_ref() } {
        Some(shard) => {
            let count = shard.count(reason, field);
            // S1: nobody else writes it, so this needs no read-modify-write.
            count.store(count.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
        None => add_slow(reason, field, amount),
    }
}

#[cold]
fn add_slow(reason: Reason, field: Field, amount: u64) {
    // Before the shard is taken it must be certain that it will be given back.
    if RETURN.try_with(|_| ()).is_ok() {
        MINE.set(take());
        add(reason, field, amount);
    } else {
        ORPHANS.count(reason, field).fetch_add(amount, Ordering::Relaxed);
    }
}

/// A shard that has no owner, or a new one.
fn take() -> &'static Shard {
    for shard in pushed() {
        // ORDER[SHARD]: Acquire; pairs with the Release in `ReturnShard::drop`.
        if !shard.taken.load(Ordering::Relaxed) && !shard.taken.swap(true, Ordering::Acquire) {
            return shard;
        }
    }
    let shard: &'static Shard = Box::leak(Box::new(Shard::new()));
    let mut head = HEAD.load(Ordering::Relaxed);
    loop {
        shard.next.store(head, Ordering::Relaxed);
        let new = ptr::from_ref(shard).cast_mut();
        // ORDER[SHARDS]: Release; pairs with the Acquire in `pushed`. Publishes the shard.
        match HEAD.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return shard,
            Err(now) => head = now,
        }
    }
}

fn pushed() -> impl Iterator<Item = &'static Shard> + Clone {
    // ORDER[SHARDS]: Acquire; pairs with the Release in `take`. Later ones on the list were
    // published before, by the same chain of read-modify-writes.
    let first = HEAD.load(Ordering::Acquire);
    // SAFETY: S2.
    std::iter::successors(unsafe { first.as_ref() }, |shard| {
        // SAFETY: S2.
        unsafe { shard.next.load(Ordering::Relaxed).as_ref() }
    })
}

/// Every shard that there is.
pub(super) fn all() -> impl Iterator<Item = &'static Shard> + Clone {
    pushed().chain(std::iter::once(&ORPHANS))
}
