//! A hash table of wait queues whose wakes are filtered by key.
//!
//! Threads wait for a key; a wake names a key and finds the waiters of that key alone, although
//! many keys share a bucket. This is the *filtered wakeup* of W. L. Irwin's patches for Linux
//! 2.6.6 (2004): the space of hashed queues without their herds.
//!
//! # Nothing to wake: no lock
//!
//! Most wakes find nobody. A wake therefore looks at the bucket's word before it takes the lock,
//! and leaves if nobody holds the lock and no hash of its key's class waits: the word carries a
//! *signature*, a bit for each class that may be there. That is sound because of two fences:
//!
//! ```text
//!  waiter                                   waker
//!  ------                                   -----
//!  lock bucket (sets LOCKED)                store the condition        (the caller)
//!  fence(SeqCst)                 (A)        fence(SeqCst)              (B)
//!  validate: load the condition             load the word
//!  push the node                            LOCKED or its class's bit set: lock, search
//!  unlock (sets its class's bit)            else: return 0
//! ```
//!
//! Excluded: the waiter does not see the condition *and* the waker sees neither LOCKED nor the bit.
//! If (A) comes before (B) in the single order of fences, the waker's load sees the locked word or
//! a later value, and a later unlocked value without the bit means that the waiter has left the
//! queue again. If (B) comes before (A), the waiter's load sees the condition. A waker that sees
//! LOCKED tries for the lock itself, so it searches after the waiter has pushed, unless it sees a
//! later word on its way that is unlocked and without the bit. So the caller's own accesses to the
//! condition may be Relaxed.
//!
//! # A waiter and its node
//!
//! | state of the node | left by | to |
//! |---|---|---|
//! | fresh | `validate` says false or panics | gone: `Invalid` |
//! | fresh | push, under the lock | queued |
//! | queued | a wake chooses it, and unlinks it, under the lock | claimed |
//! | queued | a wake chooses it, beyond what it can carry, under the lock | chosen |
//! | queued | its deadline passes; the owner unlinks it, under the lock | gone: `TimedOut` |
//! | queued | a requeue, under the locks of both keys' homes | queued, with another key |
//! | chosen | its waker comes back for it, and unlinks it, under the lock | claimed |
//! | chosen | its deadline passes; the owner unlinks it, under the lock | gone: `Woken` |
//! | claimed | the waker, after unlocking, notifies the owner | gone: `Woken` |
//!
//! A timeout that meets a choice loses: the owner was woken, and only has to take its node along
//! ([`claimed`]), or to wait for the waker that has it. So no wake is swallowed, and each wakes as
//! many as it says.
//!
//! A node is a thread's, a task's ([`task`]), or one of several on which one thread waits
//! ([`any`]).

mod any;
mod bucket;
mod claimed;
mod growth;
mod home;
mod key;
mod outcome;
mod placement;
mod queue;
mod requeue;
mod storage;
mod task;
mod wait;
mod waiter;
mod wake;
mod word;

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, shuttle))]
mod shuttle;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

#[cfg(not(any(loom, shuttle)))]
use unherd_sys::{NodeId, Topology};

use crate::ledger::Field;
use crate::{Ledger, Reason};
use bucket::BucketGuard;
use home::Buckets;
use placement::Placement;
use waiter::Waiter;
use word::LEVEL_MAX;

pub use any::{AnyOutcome, WAIT_ANY_MAX, WaitAnyError};
pub use key::WaitKey;
pub use outcome::{Outcome, Requeued, TableSize, Tag, TimedOut, Token, Verdict, Wait, Woken};
pub use task::WaitFuture;

/// Builds a [`WaitTable`].
#[derive(Debug, Clone)]
pub struct WaitTableBuilder<K> {
    /// Floor and ceiling, where they were given.
    levels: Option<[u32; 2]>,
    reason: Reason,
    seed: Option<u64>,
    filtered: bool,
    signature: bool,
    placement: Placement<K>,
}

impl<K> WaitTableBuilder<K> {
    /// Keeps the table at so many buckets, rounded up to a power of two, from 1 to 2²⁰. About four
    /// for each thread that waits at a time keeps collisions rare. Without this and without
    /// [`WaitTableBuilder::grow`] it grows from 64 buckets, or four for each processor, to 2²⁰.
    #[must_use]
    pub fn buckets(self, buckets: usize) -> Self {
        self.grow(buckets, buckets)
    }

    /// Lets the table grow and shrink with the number of waiters, from `floor` to `ceiling`
    /// buckets, each rounded up to a power of two, from 1 to 2²⁰.
    ///
    /// It has from 4 to 32 buckets for each waiter, within these bounds, and doubles or halves
    /// beyond them. Threads move the buckets on their way to sleep and back, some at a time;
    /// nobody waits for all of it, nor for another's bucket, and wakes never take part. Below four
    /// buckets for each processor, each arrival adds up the counts of all processors. 64 bytes of
    /// *addresses* are reserved for each bucket up to the ceiling; where they are refused, the
    /// table stays at its floor, and where memory is refused later, at the last size that it could
    /// have, until its waiters become fewer. [`WaitTable::size`] counts both. A table that does not
    /// filter keeps to its floor.
    #[must_use]
    pub fn grow(self, floor: usize, ceiling: usize) -> Self {
        let level = |buckets: usize| buckets.clamp(1, 1 << LEVEL_MAX).next_power_of_two().ilog2();
        Self { levels: Some([level(floor), level(ceiling.max(floor))]), ..self }
    }

    /// The reason that the table's locks and wakes are accounted to, and waits that name none.
    #[must_use]
    pub fn reason(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// The seed of the hash, for runs that are to be repeated. Without one it is random, so that
    /// who chooses keys cannot aim at one bucket unless they learn the seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Whether wakes look at keys (they do by default). Without, every wake takes every waiter of
    /// the bucket: the behaviour that filtered wakeups cure, kept so that the cure can be measured.
    #[must_use]
    pub fn filtered(self, filtered: bool) -> Self {
        Self { filtered, ..self }
    }

    /// Whether a wake can see without the lock that only others wait in the bucket (it does by
    /// default). Without, it sees that nobody waits there, and otherwise takes the lock to look: so
    /// that what the signature saves can be measured.
    #[must_use]
    pub fn signature(self, signature: bool) -> Self {
        Self { signature, ..self }
    }

    /// Gives keys a home: the NUMA node from whose memory the buckets of those come for which
    /// `home` names one of `topology`. The others spread over all nodes, as they do without this.
    ///
    /// Who waits for a key and who wakes it call `home`, which must say the same each time: it is
    /// for keys that tell where their threads run, such as a page whose number says which node's
    /// memory it is in. It is short, keeps no state, and does not panic: it runs without a lock,
    /// before the wait or the wake has done anything, so a panic goes to the caller and nothing
    /// else happens.
    ///
    /// On one node it is not called, and nothing is different. On several, each has as many buckets
    /// as the others, one at least, and whole pages; the sizes that [`WaitTableBuilder::grow`]
    /// names are those of all together, so where keys are of one node alone, its few buckets are
    /// crowded while the others' are empty. A wake of nobody costs about three times as much.
    /// Where the kernel refuses to place memory it comes from anywhere: [`TableSize::unplaced`].
    ///
    /// ```
    /// use unherd_sync::WaitTable;
    /// use unherd_sys::{NodeId, Topology};
    ///
    /// # fn main() -> Result<(), unherd_sys::TopologyError> {
    /// // Pages are dealt to four nodes, or to those that there are of them.
    /// let home = |page: &u64| NodeId::new((page % 4) as u32);
    /// let topology = Topology::of_this_machine()?;
    /// let table = WaitTable::<u64>::builder().homes(topology, home).build();
    /// assert_eq!(table.wake(&7, 1), 0);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(not(any(loom, shuttle)))]
    #[must_use]
    pub fn homes(self, topology: Topology, home: fn(&K) -> Option<NodeId>) -> Self {
        let placement = Placement { topology: Some(topology), home: Some(home) };
        Self { placement, ..self }
    }

    /// Builds it: 64 bytes for each bucket of the floor, in whole pages if it grows, or if the
    /// machine has several NUMA nodes and it takes more than 4 KiB: their memory is used in turn.
    /// Tables that are not told the nodes read them from `/sys`, once a process.
    pub fn build(self) -> WaitTable<K> {
        let levels = self.levels.unwrap_or_else(|| [growth::default_floor().ilog2(), LEVEL_MAX]);
        let [floor, ceiling] = levels;
        // Without a filter, who waits together is the caller's choice.
        let ceiling = if self.filtered { ceiling } else { floor };
        // Who wakes a whole bucket must see whoever is in it.
        let coarse = !self.filtered || !self.signature;
        let hasher = match self.seed {
            Some(seed) => SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            None => SeedableRandomState::with_seed(random_seed(), SharedSeed::global_random()),
        };
        let buckets = Buckets::new([floor, ceiling], coarse, &self.placement);
        WaitTable {
            is_plain: self.filtered && buckets.rest().homes.is_none(),
            buckets,
            hasher,
            reason: self.reason,
            filtered: self.filtered,
        }
    }
}

/// A seed that another process cannot guess: std's own random keys, hashed.
fn random_seed() -> u64 {
    std::collections::hash_map::RandomState::new().hash_one(0)
}

/// A hash table of wait queues whose wakes are filtered by key.
///
/// Waiters live on their threads' stacks and in their tasks' futures; the table allocates when it
/// is built, and takes and gives back pages when it grows and shrinks. `Eq` and `Hash` of the key,
/// `validate` and filters run inside the table (all but `Hash` under a bucket lock): they must be
/// short, and must not call the table. If one panics, the table stays whole, those claimed so far
/// are woken, and the panic goes on to the caller. Wakers of tasks run with no lock held.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
/// use unherd_sync::{Reason, WaitKey, WaitTable};
///
/// let reading = Reason::register("page-read");
/// let table = WaitTable::<WaitKey>::builder().reason(reading).build();
/// let page = WaitKey::Page { file: 1, page: 7 };
/// let read = AtomicBool::new(false);
/// std::thread::scope(|scope| {
///     // Acquire, because what was read is used afterwards: see `WaitTable::wait`.
///     scope.spawn(|| table.wait_until(&page, || read.load(Acquire), reading));
///     read.store(true, Release);
///     table.wake_all(&page);
/// });
/// ```
///
/// A wait borrows its table, so no table goes while somebody waits there:
///
/// ```compile_fail,E0597
/// use unherd_sync::{Reason, WaitTable};
///
/// std::thread::scope(|scope| {
///     let table = WaitTable::<u64>::builder().build();
///     scope.spawn(|| table.wait(&1, || true, Reason::OTHER));
/// });
/// ```
// The fields are written once, but for the shape, when the table doubles or halves: they share no
// line with a bucket's word, so the loads of a wake that finds nobody are hardly ever invalidated.
#[repr(align(64))]
pub struct WaitTable<K> {
    buckets: Buckets<K>,
    hasher: SeedableRandomState,
    reason: Reason,
    filtered: bool,
    /// Whether waiters have the hash of their key: keys have no homes, and the table filters.
    is_plain: bool,
}

// A panic in the key's code, in `validate` or in a filter leaves the table whole.
impl<K> RefUnwindSafe for WaitTable<K> {}
impl<K> UnwindSafe for WaitTable<K> {}

impl<K> fmt::Debug for WaitTable<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitTable")
            .field("buckets", &self.buckets.len())
            .field("reason", &self.reason.name())
            .field("filtered", &self.filtered)
            .finish_non_exhaustive()
    }
}

impl<K> WaitTable<K> {
    /// Bytes of a waiter, on the stack of its thread or in the future of its task.
    pub const WAITER_BYTES: usize = size_of::<Waiter<K>>();

    /// Begins a table.
    pub fn builder() -> WaitTableBuilder<K> {
        let (levels, reason, seed) = (None, Reason::OTHER, None);
        let (filtered, signature) = (true, true);
        let placement = Placement::NOTHING_TOLD;
        WaitTableBuilder { levels, reason, seed, filtered, signature, placement }
    }

    /// Bytes of the table itself that are in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self) + self.buckets.bytes_resident()
    }

    /// How large the table is now.
    pub fn size(&self) -> TableSize {
        TableSize {
            buckets: self.buckets.len(),
            live: self.buckets.live(),
            bytes_resident: self.memory_bytes(),
            bytes_reserved: self.buckets.bytes_reserved(),
            refused: self.buckets.refused(),
            unplaced: self.buckets.unplaced(),
        }
    }

    /// Brings a table that grows to the size that its waiters ask for now, and gives back what
    /// memory it does not need: for owners that go idle, since nobody moves buckets while nobody
    /// comes or goes. May sleep for another thread that moves some.
    pub fn settle(&self) {
        self.buckets.settle();
    }

    /// Accounts one needless wakeup to `reason`: for callers of [`WaitTable::wait`] that were
    /// woken, looked, and found nothing. [`WaitTable::wait_until`] does it by itself.
    pub fn note_needless(&self, reason: Reason) {
        Ledger::add(reason, Field::NeedlessWakeups, 1);
    }
}

impl<K> WaitTable<K> {
    /// The hash of `key`, by which its bucket is found.
    #[inline]
    fn hash_of(&self, key: &K) -> u64
    where
        K: Hash,
    {
        self.place(self.hasher.hash_one(key), key)
    }

    /// The `hash` of `key` as its hasher says, turned to where it belongs if keys have homes.
    #[inline]
    fn place(&self, hash: u64, key: &K) -> u64 {
        if self.is_plain { hash } else { self.place_slow(hash, key) }
    }

    #[cold]
    fn place_slow(&self, hash: u64, key: &K) -> u64 {
        self.buckets.rest().homes.as_ref().map_or(hash, |homes| homes.place(hash, key))
    }

    /// The hash of `key` for a waiter's node.
    #[inline]
    fn hash_of_waiter(&self, key: &K) -> u64
    where
        K: Hash,
    {
        let hash = self.hasher.hash_one(key);
        if self.is_plain { hash } else { self.hash_of_waiter_slow(hash, key) }
    }

    #[cold]
    fn hash_of_waiter_slow(&self, hash: u64, key: &K) -> u64 {
        self.hash_in_queue(self.place(hash, key))
    }

    #[inline]
    fn lock(&self, hash: u64) -> BucketGuard<'_, K> {
        // Before the lock: a thread's first count registers it.
        Ledger::add(self.reason, Field::Locks, 1);
        let guard = self.buckets.lock(hash);
        self.count_contended(&guard);
        guard
    }

    #[inline]
    fn count_contended(&self, guard: &BucketGuard<'_, K>) {
        if guard.contended {
            Ledger::add(self.reason, Field::LocksContended, 1);
        }
    }

    /// The hash by which waiters are told apart in their bucket. Without a filter they are not: all
    /// stand in one list.
    #[inline]
    fn hash_in_queue(&self, hash: u64) -> u64 {
        if self.filtered {
            return hash;
        }
        // Such a table keeps its size.
        self.buckets.index_bits(hash)
    }

    /// Whether a waiter for `other` belongs to the list of `key`, if their hashes are equal.
    fn is_key(&self, key: &K, other: &K) -> bool
    where
        K: Eq,
    {
        !self.filtered || key == other
    }
}
