//! A place where threads wait for each other, again and again.
//!
//! ```text
//!  63          32   31          0
//! +--------------+---------------+
//! |  generation  |   arrivals    |
//! +--------------+---------------+
//! ```
//!
//! - **BA1** There are always fewer arrivals than threads: the last one begins the next generation
//!   in the same step, and is its leader.
//! - **BA2** A thread that has arrived in a generation waits until that is over. Its tag is the
//!   generation, so the leader wakes those of its own and nobody else, though the next may arrive
//!   already.
//! - **BA3** A thread that gives up takes its arrival back, if the generation is still the same;
//!   otherwise it was complete, and nobody gives up.
//!
//! ```text
//!  waiter                                   last arrival
//!  ------                                   ------------
//!  count itself                             begin the next generation
//!  lock bucket; fence (A)                   fence (B); look at the bucket
//!  validate: still the same generation?     wake those of the old one
//!  push; unlock bucket
//! ```
//!
//! Excluded: that a waiter of a generation that is over sleeps, by the wait table's race.

use unherd_sys::Deadline;
use unherd_sys::primitives::{AtomicU64, Ordering};

use super::looks::Looks;
use super::table::{Address, Kind, locks};
use crate::{Tag, TimedOut, Token, Verdict, Wait};

const GENERATION_SHIFT: u32 = 32;

/// Lets a number of threads wait until all of them have come: then all go on, and the barrier can
/// be used again.
///
/// Sixteen bytes, of which a word changes. Can stand in a `static`; no path allocates.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::Barrier;
///
/// let barrier = Barrier::new(4);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             // First part.
///             if barrier.wait() {
///                 // One of the four is told that it is the leader.
///             }
///             // Second part: all have done the first.
///         });
///     }
/// });
/// ```
#[derive(Debug)]
pub struct Barrier {
    word: AtomicU64,
    threads: u32,
}

fn generation(word: u64) -> u64 {
    word >> GENERATION_SHIFT
}

impl Barrier {
    /// A barrier for `threads` threads; for none it is as for one: nobody waits.
    #[cfg(not(loom))]
    pub const fn new(threads: u32) -> Self {
        Self { word: AtomicU64::new(0), threads }
    }

    /// A barrier for `threads` threads.
    #[cfg(loom)]
    pub fn new(threads: u32) -> Self {
        Self { word: AtomicU64::new(0), threads }
    }

    /// Sleeps, under the reason `barrier`, until all threads have come, and says whether this one
    /// is the leader: the last one that came. What each has written before is visible to all.
    ///
    /// One compare-and-swap, and a sleep unless the others come within some microseconds. The last
    /// makes a system call for each thread that sleeps.
    pub fn wait(&self) -> bool {
        self.wait_until(Deadline::NEVER) == Ok(true)
    }

    /// As [`Barrier::wait`], until `deadline` at most. A thread that gives up counts as not come.
    ///
    /// # Errors
    /// [`TimedOut`] if not all had come by then.
    pub fn wait_until(&self, deadline: Deadline) -> Result<bool, TimedOut> {
        let is_last = |word: u64| word as u32 + 1 >= self.threads;
        let next = |word: u64| (generation(word) + 1) << GENERATION_SHIFT;
        let arrive = |word| Some(if is_last(word) { next(word) } else { word + 1 });
        // ORDER[BARRIER]: AcqRel; pairs with itself and with the Acquires below. The last arrival
        // has seen what the others wrote, and they see what it has. (The fence of its wake hides
        // that Acquire from loom.)
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, arrive);
        let (Ok(before) | Err(before)) = before;
        let mine = generation(before);
        if is_last(before) {
            let of_mine = |tag: Tag| if tag.0 == mine { Verdict::Wake } else { Verdict::Skip };
            locks().wake_where(&Address::of(Kind::Barrier, self), of_mine, Token(0));
            return Ok(true);
        }
        // ORDER[BARRIER]: Acquire; pairs with the AcqRel above.
        let is_over = || generation(self.word.load(Ordering::Acquire)) != mine;
        let mut looks = Looks::NONE;
        while !is_over() && looks.again() {}
        let how = Wait::new(locks().barrier).tag(Tag(mine)).deadline(deadline);
        let ended = locks().wait_until(&Address::of(Kind::Barrier, self), is_over, how);
        if ended.is_ok() || self.take_back(mine).is_err() { Ok(false) } else { Err(TimedOut) }
    }

    /// Counts this thread out again; an error if its generation is over. BA3.
    fn take_back(&self, mine: u64) -> Result<u64, u64> {
        let fewer = |word| (generation(word) == mine).then(|| word - 1);
        // ORDER[BARRIER]: Acquire; pairs with the AcqRel in `wait_until`, of the last arrival.
        self.word.fetch_update(Ordering::Relaxed, Ordering::Acquire, fewer)
    }
}
