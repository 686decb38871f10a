//! Whom a wake has chosen: out of the queue, into the waker's hands, and back to their owners.
//!
//! A wake chooses all of its waiters under the bucket lock, at once: they are woken, whatever
//! comes, and are counted. It can carry [`BATCH`] of them, whom it *claims*: they leave the queue,
//! and are the waker's (B5). If there are more, the others are left behind in a *closed list*,
//! which nobody else looks into; when the lock is free and the first have been notified, it comes
//! back for the next of them. So a wake of any number takes no memory, and holds the lock for a
//! bounded number of steps at a time.
//!
//! | | under the lock | without it |
//! |---|---|---|
//! | 1 | choose all; claim up to [`BATCH`]; close the list of the others | |
//! | 2 | | phase 1: hand back each of the batch |
//! | 3 | | phase 2: send a wakeup to each thread, then to each task |
//! | 4 | claim the next from the closed list; then 2 again | |
//!
//! - **C1** Between 1 and 2 nothing runs that could wait for an owner: what is claimed is handed
//!   back within so many stores. What an owner's wakeup may run comes in phase 2, when no node is
//!   claimed. Tasks, which may not wait at all, are handed back before the lock is free.
//! - **C2** An owner that finds its node in a closed list does not wait for the closer: it takes
//!   the node out under the lock, and is woken; the closer finds it gone. What the closer wrote
//!   before the wake is visible to it by the bucket lock.
//! - **C3** Who takes a chosen node out counts it, under the lock: the closer, or the owner for it.
//!   A wait for several keys is counted once, by who claims it.
//! - **C4** A task's waker that panics ends neither phase: the first panic goes on to the caller
//!   when all have been woken, the others are forgotten; so is the first, if the caller unwinds
//!   already (a wake in a `drop`): two panics at once end the process.
//! - **C5** Threads first: a waker may run a task that waits for a thread of the same batch, and
//!   that thread must not sleep on because of it. Beyond the batch there is no such promise: a
//!   waker that blocks holds up all who are in the closed list still, unless their deadlines pass.
//!
//! ```text
//!  closer                                   owner whose deadline passes
//!  ------                                   ---------------------------
//!  lock home; close the list; unlock
//!                                           lock home: in a closed list
//!                                           unlink; unlock; Woken(the closer's token)
//!  lock home: the others, or nobody
//! ```
//!
//! Excluded: that both wake it, or neither: who takes it out does so under the lock of the home of
//! its hash.
#![expect(unsafe_code, reason = "nodes are reached by raw pointers")]

use std::any::Any;
use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::ptr::NonNull;

use unherd_sys::primitives::{UnsafeCell, thread};

use super::bucket::BucketGuard;
use super::queue::Queue;
use super::waiter::{Waiter, Wakeup};
use super::{Token, Verdict, WaitTable, Woken};

/// As many as a wake carries at a time.
pub(super) const BATCH: usize = if cfg!(loom) {
    1
} else if cfg!(shuttle) {
    2
} else {
    32
};

/// A wake, for those that it chooses.
#[derive(Debug)]
pub(super) struct Closer {
    /// What it leaves to them; `None` if they have got it already.
    pub(super) token: Option<Token>,
    /// Whether one that has no use for it is to pass it on.
    pub(super) passes_on: bool,
    /// Those that took themselves out of its list, under the lock of the hash's home.
    left: UnsafeCell<Woken>,
}

impl Closer {
    pub(super) fn new(token: Option<Token>, passes_on: bool) -> Self {
        Self { token, passes_on, left: UnsafeCell::new(Woken::NOBODY) }
    }

    /// Counts one that takes itself out of the closed list.
    ///
    /// # Safety
    /// The lock of the hash's home is held.
    pub(super) unsafe fn count(&self, shared: bool) {
        // SAFETY: the contract; the closer reads it when the list is empty.
        self.left.with_mut(|left| unsafe { &mut *left }.add(shared));
    }
}

/// What a wake carries of one that it has chosen.
enum Carried<K> {
    Claimed(NonNull<Waiter<K>>),
    HandedBack(Wakeup),
}

/// Up to [`BATCH`] of them. No `Option`s, which would all have to be written for the sake of one.
struct Batch<K> {
    slots: [MaybeUninit<Carried<K>>; BATCH],
    len: usize,
}

impl<K> Batch<K> {
    fn new() -> Self {
        Self { slots: [const { MaybeUninit::uninit() }; BATCH], len: 0 }
    }

    fn push(&mut self, node: NonNull<Waiter<K>>) {
        self.slots[self.len].write(Carried::Claimed(node));
        self.len += 1;
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Carried<K>> {
        // SAFETY: the first `len` are written.
        self.slots[..self.len].iter_mut().map(|slot| unsafe { slot.assume_init_mut() })
    }

    /// Takes all of them out.
    fn drain(&mut self) -> impl Iterator<Item = Carried<K>> {
        let len = std::mem::take(&mut self.len);
        // SAFETY: they are written, and taken once.
        self.slots[..len].iter().map(|slot| unsafe { slot.assume_init_read() })
    }
}

/// The waiters of one hash that a wake has chosen and not yet notified. Notifies them when it is
/// finished, or dropped: a panic of a key's code or a filter's strands nobody.
pub(super) struct Claimed<'a, K> {
    table: &'a WaitTable<K>,
    hash: u64,
    closer: &'a Closer,
    batch: Batch<K>,
    /// Whether there may be tasks among those that are carried and not handed back.
    tasks: bool,
    /// Whether there may be a closed list of the closer's.
    more: bool,
    woken: Woken,
    panic: Option<Box<dyn Any + Send>>,
}

impl<'a, K> Claimed<'a, K> {
    pub(super) fn new(table: &'a WaitTable<K>, hash: u64, closer: &'a Closer) -> Self {
        let (batch, woken) = (Batch::new(), Woken::NOBODY);
        Self { table, hash, closer, batch, tasks: false, more: false, woken, panic: None }
    }

    /// Chooses all shared waiters of a key, and up to `n` exclusive ones.
    ///
    /// # Safety
    /// `first` is that of an open list in the queue of `guard`; or null: nobody is chosen then.
    pub(super) unsafe fn choose(
        &mut self,
        guard: &mut BucketGuard<'_, K>,
        first: *const Waiter<K>,
        n: usize,
    ) {
        // SAFETY: null or in the queue, under the lock.
        let Some(node) = (unsafe { first.as_ref() }) else { return };
        // SAFETY: the lock is held.
        let counts = unsafe { node.look(|links| links.counts) };
        let exclusive = n.min(counts.exclusive as usize);
        let all = exclusive == counts.exclusive as usize;
        let wanted = exclusive + counts.shared as usize;
        if all && wanted > BATCH {
            // SAFETY: the lock is held; this wake finishes before the closer goes.
            unsafe { Queue::close(node, self.closer) };
            self.more = true;
            self.claim_more(guard);
        } else if wanted <= BATCH && (all || counts.shared == 0) {
            // SAFETY: the lock is held.
            unsafe { guard.queue().pop(node, wanted, |node| self.claim(node)) };
            // SAFETY: the lock is held, and the queue is done with them.
            unsafe { self.hand_back_tasks() };
        } else {
            let wanted = Woken { shared: counts.shared as usize, exclusive };
            let choose = |node: &Waiter<K>, chosen: Woken| {
                // SAFETY: the lock is held.
                let shared = unsafe { node.look(|links| links.shared) };
                if chosen == wanted {
                    Verdict::Stop
                } else if shared || chosen.exclusive < exclusive {
                    Verdict::Wake
                } else {
                    Verdict::Skip
                }
            };
            // SAFETY: the contract.
            unsafe { self.choose_where(guard, first, choose) };
        }
    }

    /// Chooses those that `choose` says, from the first of an open list to its last; it is told how
    /// many were chosen before. If it panics, those stay chosen that were.
    ///
    /// # Safety
    /// `first` is that of an open list in the queue of `guard`, or null.
    pub(super) unsafe fn choose_where(
        &mut self,
        guard: &mut BucketGuard<'_, K>,
        first: *const Waiter<K>,
        mut choose: impl FnMut(&Waiter<K>, Woken) -> Verdict,
    ) {
        let (mut next, mut tail, mut chosen) = (first, std::ptr::null(), Woken::NOBODY);
        // SAFETY: null or in the queue, under the lock.
        while let Some(node) = unsafe { next.as_ref() } {
            let (shared, has_sleeper);
            // SAFETY: the lock is held.
            (next, shared, has_sleeper) =
                unsafe { node.look(|links| (links.next, links.shared, links.has_sleeper)) };
            if has_sleeper && node.is_lost() {
                continue;
            }
            let verdict = choose(node, chosen);
            if matches!(verdict, Verdict::Wake | Verdict::WakeAndStop) {
                if has_sleeper && !node.try_claim() {
                    continue;
                }
                chosen.add(shared);
                if self.batch.len < BATCH {
                    // SAFETY: the lock is held.
                    unsafe { guard.queue().unlink(node) };
                    self.claim(node);
                    // SAFETY: the lock is held, and the queue is done with it.
                    unsafe { self.hand_back_tasks() };
                } else {
                    // SAFETY: the lock is held; this wake finishes before the closer goes.
                    unsafe { guard.queue().choose(node, tail, self.closer) };
                    (tail, self.more) = (node, true);
                }
            }
            if matches!(verdict, Verdict::Stop | Verdict::WakeAndStop) {
                break;
            }
        }
    }

    /// Takes charge of `node`, which was unlinked just now, unless another has it: says whether.
    fn claim(&mut self, node: &Waiter<K>) -> bool {
        // SAFETY: the lock is held.
        let (shared, has_sleeper) = unsafe { node.look(|links| (links.shared, links.has_sleeper)) };
        if has_sleeper {
            if !node.try_claim() {
                return false;
            }
            self.tasks = true;
        }
        self.woken.add(shared);
        self.batch.push(NonNull::from(node));
        true
    }

    /// Hands back the tasks that are carried.
    ///
    /// # Safety
    /// The bucket lock is held, and nobody needs their nodes for it.
    unsafe fn hand_back_tasks(&mut self) {
        if !std::mem::take(&mut self.tasks) {
            return;
        }
        for carried in self.batch.iter_mut() {
            if let Carried::Claimed(node) = *carried
                // SAFETY: B5.
                && unsafe { node.as_ref() }.is_task()
            {
                // SAFETY: B5; the wakeup is sent by `notify`.
                *carried = Carried::HandedBack(unsafe { Waiter::hand_back(node, self.closer) });
            }
        }
    }

    /// Claims as many of those that were left behind as it can carry.
    fn claim_more(&mut self, guard: &mut BucketGuard<'_, K>) {
        // SAFETY: the lock of the hash's home is held.
        let first = unsafe { guard.queue().list_closed_by(self.hash, self.closer) };
        self.more = false;
        // Those that another wake has count as well, for the time that the lock is held.
        let take = |node: &Waiter<K>| {
            self.claim(node);
            true
        };
        // SAFETY: null or in the queue.
        if let Some(first) = unsafe { first.as_ref() } {
            // SAFETY: the lock is held.
            self.more = unsafe { guard.queue().pop(first, BATCH, take) };
            // SAFETY: the lock is held, and the queue is done with them.
            unsafe { self.hand_back_tasks() };
        }
    }

    /// Wakes all that were chosen, and says how many. Called with no bucket locked. Panics as the
    /// first waker that did (C4).
    pub(super) fn finish(&mut self) -> Woken {
        self.notify_all();
        if let Some(panic) = self.panic.take() {
            resume_unless_unwinding(panic);
        }
        // SAFETY: nobody is left in the list, and nobody joins it.
        let left = self.closer.left.with(|left| unsafe { *left });
        let Woken { shared, exclusive } = self.woken;
        Woken { shared: shared + left.shared, exclusive: exclusive + left.exclusive }
    }

    fn notify_all(&mut self) {
        self.notify();
        while self.more {
            let mut guard = self.table.lock(self.hash);
            self.claim_more(&mut guard);
            drop(guard);
            self.notify();
        }
    }

    /// Both phases, for those that are carried.
    fn notify(&mut self) {
        for carried in self.batch.iter_mut() {
            if let Carried::Claimed(node) = *carried {
                // SAFETY: B5; the wakeup is sent below.
                *carried = Carried::HandedBack(unsafe { Waiter::hand_back(node, self.closer) });
            }
        }
        // C5.
        for carried in self.batch.iter_mut() {
            if let Carried::HandedBack(wakeup) = carried {
                wakeup.send_to_thread();
            }
        }
        for carried in self.batch.drain() {
            if let Carried::HandedBack(wakeup) = carried
                && let Err(panic) = wakeup.send_to_task()
            {
                // Not dropped, which may panic as well.
                match self.panic {
                    None => self.panic = Some(panic),
                    Some(_) => std::mem::forget(panic),
                }
            }
        }
    }
}

/// Has `panic` go on, or forgets it if another one does (C4).
pub(super) fn resume_unless_unwinding(panic: Box<dyn Any + Send>) {
    if !thread::panicking() {
        resume_unwind(panic);
    }
    // Not dropped, which may panic as well.
    std::mem::forget(panic);
}

impl<K> Drop for Claimed<'_, K> {
    fn drop(&mut self) {
        self.notify_all();
        // C4: unless it is finished, another panic goes on, and was the first.
        std::mem::forget(self.panic.take());
    }
}
