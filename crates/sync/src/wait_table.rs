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
//! condition may be Relaxed. One fence (B) is enough for wakes of many keys whose conditions come
//! before it, and a read-modify-write that changes the condition is that fence on x86-64.
//!
//! # A waiter and its node
//!
//! | state of the node | left by | to |
//! |---|---|---|
//! | fresh | `validate` says false or panics | gone: `Invalid` |
//! | fresh | push, under the lock | queued |
//! | queued | a wake unlinks it and notifies the owner, under the lock | gone: `Woken` |
//! | queued | its deadline passes; the owner unlinks it, under the lock | gone: `TimedOut` |
//! | queued | a requeue, under both buckets' locks | queued, with another key |
//!
//! So no wake is swallowed, and each wakes as many as it says: who takes a node out of the queue
//! decides. The wakeup itself is sent after the unlock, to the address of a futex word, which may
//! be gone by then ([`wake_batch`], [`crate::parker`]).
//!
//! A node is a thread's, a task's ([`task`]), or one of several on which one thread waits
//! ([`any`]).

mod any;
mod bucket;
mod bucket_word;
mod buckets;
mod key;
mod node;
mod outcome;
mod queue;
mod requeue;
#[cfg(feature = "async")]
mod task;
mod wait;
mod wake;
mod wake_batch;
pub(crate) use wake_batch::resume_unless_unwinding;

#[cfg(all(test, loom))]
pub(crate) mod loom;
#[cfg(all(test, shuttle))]
mod shuttle;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
#[cfg(not(any(loom, shuttle)))]
use std::num::NonZero;
use std::panic::{RefUnwindSafe, UnwindSafe};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;

#[cfg(not(any(loom, shuttle)))]
use unherd_sys::primitives::thread;

use crate::ledger::Field;
use crate::{Ledger, Reason};
use bucket::BucketGuard;
use bucket_word::{BUCKET_BYTES, BUCKETS_MAX, CLASS_BITS, offset};
use buckets::Buckets;
use node::Node;

pub use any::{AnyOutcome, WAIT_ANY_MAX, WaitAnyError};
pub use key::WaitKey;
pub use outcome::{Chosen, Outcome, Requeued, Tag, TimedOut, Token, Verdict, Wait, Woken};
#[cfg(feature = "async")]
pub use task::WaitFuture;

/// Buckets for each processor, as Linux's table of futexes has them.
#[cfg(not(any(loom, shuttle)))]
const BUCKETS_PER_CPU: usize = 256;

/// Builds a [`WaitTable`].
#[derive(Debug, Clone)]
pub struct WaitTableBuilder<K> {
    buckets: Option<usize>,
    reason: Reason,
    seed: Option<u64>,
    filtered: bool,
    signature: bool,
    _key: PhantomData<fn(K)>,
}

impl<K> WaitTableBuilder<K> {
    /// How many buckets the table has, from 1 to 2²⁰: rounded up to a power of two, and any other
    /// number to the nearest of these. Without this, 256 for each processor. Each takes 64 bytes of
    /// address space, and memory, a page of the kernel's at a time, once it is used.
    #[must_use]
    pub fn buckets(self, buckets: usize) -> Self {
        Self { buckets: Some(buckets), ..self }
    }

    /// The reason under which the ledger counts wakes, locks of buckets, and waits whose [`Wait`]
    /// names no reason. [`Reason::OTHER`] without this.
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

    /// For benchmarks, with the feature `ablation`: whether wakes look at keys (they do by
    /// default). Without, every wake takes every waiter of the bucket.
    #[cfg(feature = "ablation")]
    #[must_use]
    pub fn filtered(self, filtered: bool) -> Self {
        Self { filtered, ..self }
    }

    /// For benchmarks, with the feature `ablation`: whether a wake can see without the lock that
    /// the bucket's waiters have other keys (it can by default). Without, it takes the lock to look
    /// if anybody waits in the bucket.
    #[cfg(any(feature = "ablation", shuttle))]
    #[must_use]
    pub fn signature(self, signature: bool) -> Self {
        Self { signature, ..self }
    }

    /// Builds it. On a machine with several NUMA nodes its pages come from all of them in turn.
    ///
    /// Ends the process if no address space is left for the buckets, as an allocation does.
    pub fn build(self) -> WaitTable<K> {
        let buckets = self.buckets.unwrap_or_else(default_buckets);
        let buckets = buckets.clamp(1, BUCKETS_MAX).next_power_of_two();
        let hash_mask = match (self.filtered, self.signature) {
            (true, true) => !0,
            (true, false) => !CLASS_BITS,
            // All of a bucket stand in one list.
            (false, _) => offset(buckets, !0) as u64,
        };
        let hasher = match self.seed {
            Some(seed) => SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            None => SeedableRandomState::with_seed(random_seed(), SharedSeed::global_random()),
        };
        WaitTable {
            buckets: Buckets::new(buckets),
            hasher,
            hash_mask,
            reason: self.reason,
            filtered: self.filtered,
        }
    }
}

fn default_buckets() -> usize {
    #[cfg(any(loom, shuttle))]
    return 1;
    #[cfg(not(any(loom, shuttle)))]
    BUCKETS_PER_CPU.saturating_mul(thread::available_parallelism().map_or(1, NonZero::get))
}

/// A seed that another process cannot guess: std's own random keys, hashed.
fn random_seed() -> u64 {
    std::collections::hash_map::RandomState::new().hash_one(0)
}

/// A hash table of wait queues: threads and async tasks wait for a key, and a wake of that key
/// finds them and nobody else. A *bucket* is one wait queue and its lock; keys are hashed to
/// buckets.
///
/// | word | meaning |
/// |---|---|
/// | exclusive | a waiter that a wake of `n` counts among its `n`: the default |
/// | shared | a waiter ([`Wait::shared`]) that each `wake`, `wake_with`, `wake_all` and `requeue` of its key wakes, whatever the `n`; `wake_one` and `wake_where` treat it as any other |
/// | tag | a number that a waiter brings along ([`Wait::tag`]) |
/// | filter | the closure of [`wake_where`](Self::wake_where): it sees the tags of a key's waiters and says for each whether to wake it |
/// | token | a number that a wake hands to those whom it wakes ([`Outcome::Woken`]) |
///
/// Waiters live on their threads' stacks and in their tasks' futures; the table allocates when it
/// is built. `Eq` of the key and all closures that calls are given run under a bucket lock, except
/// for `before_sleep` of [`wait_with`](Self::wait_with): they must be short, and must not call the
/// table, nor may what is dropped with them: let them capture by reference what does so in its
/// drop. So must `Hash`, which runs with no lock held. If one panics, the table stays whole, those
/// already chosen are woken, and the panic goes on to the caller. The [`Waker`](std::task::Waker)s
/// of async tasks run with no lock held.
///
/// ```
/// # use unherd_sync as unherd;
/// use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
/// use unherd::{Reason, WaitKey, WaitTable};
///
/// let reading = Reason::register("block-read");
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
/// # use unherd_sync as unherd;
/// use unherd::{Reason, WaitTable};
///
/// std::thread::scope(|scope| {
///     let table = WaitTable::<u64>::builder().build();
///     scope.spawn(|| table.wait(&1, || true, Reason::OTHER));
/// });
/// ```
///
/// A requeue leaves its key in the wait of another thread, so keys are `Send`:
///
/// ```compile_fail,E0277
/// # use unherd_sync as unherd;
/// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
/// struct Key(std::marker::PhantomData<std::sync::MutexGuard<'static, ()>>);
/// let table = unherd::WaitTable::<Key>::builder().build();
/// std::thread::scope(|scope| scope.spawn(|| table.wake_all(&Key(std::marker::PhantomData))));
/// ```
// The fields are written once, and share no line with a bucket's word: the loads of a wake that
// finds nobody are never invalidated.
#[repr(align(64))]
pub struct WaitTable<K> {
    buckets: Buckets<K>,
    hasher: SeedableRandomState,
    /// The bits of a hash that tell waiters apart.
    hash_mask: u64,
    reason: Reason,
    /// False only with the feature `ablation`.
    filtered: bool,
}

// A panic in the key's code, in `validate` or in a filter leaves the table whole.
impl<K> RefUnwindSafe for WaitTable<K> {}
impl<K> UnwindSafe for WaitTable<K> {}

impl<K> fmt::Debug for WaitTable<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitTable")
            .field("buckets", &self.buckets.len())
            .field("reason", &self.reason.name())
            .finish_non_exhaustive()
    }
}

impl<K: Copy + Eq + Hash> WaitTable<K> {
    /// Bytes of a waiter, on the stack of its thread or in the future of its task.
    pub const WAITER_BYTES: usize = size_of::<Node<K>>();

    /// Returns a builder with the defaults.
    pub fn builder() -> WaitTableBuilder<K> {
        WaitTableBuilder {
            buckets: None,
            reason: Reason::OTHER,
            seed: None,
            filtered: true,
            signature: true,
            _key: PhantomData,
        }
    }

    /// How many buckets the table has.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Bytes of the table itself, all of its buckets included; those that were never used take no
    /// memory.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self) + self.buckets.len() * BUCKET_BYTES
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
        self.hasher.hash_one(key) & self.hash_mask
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

    /// Whether a waiter for `other` belongs to the list of `key`, if their hashes are equal.
    fn is_key(&self, key: &K, other: &K) -> bool
    where
        K: Eq,
    {
        !self.filtered || key == other
    }
}
