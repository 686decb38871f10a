//! Threads that wait for a frame, and what they are told.
//!
//! ```text
//!  a thread in want                         whoever makes a frame idle
//!  ----------------                         --------------------------
//!  waiting += 1                             change the frame's word
//!  fence(SeqCst)                 (A)        fence(SeqCst)              (B)
//!  seen = idled                             waiting == 0: done
//!  search: load the frames' words           else: idled += 1; wake one
//!  wait, if idled == seen
//! ```
//!
//! Excluded: the search misses the frame *and* the other sees no waiter. Where it sees one, the
//! wait table sees to the rest: the wait finds `idled` changed, or the wake finds the waiter. One
//! that has seen `idled` change must find the frame too, or it would wait for the next: (B) orders
//! the frame's word before the change, and the load of `idled` is an Acquire.
//!
//! An unpin changes the word by a read-modify-write, which on x86-64 is fence (B) already: a hit
//! ends with one load of `waiting`, which is on a cache line of its own.

use unherd_sync::{Outcome, Token, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicU32, Ordering, fence, fence_after_rmw};

/// What a waiter is told when a frame became idle. Other tokens are frames, from 1 up.
pub(crate) const LOOK: Token = Token(0);

/// Weakened by `cargo x mutants`, which expects a loom check to fail.
const SEEN: Ordering =
    if cfg!(mutant = "R2-acquire") { Ordering::Relaxed } else { Ordering::Acquire };

/// A count on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Alone(AtomicU32);

#[derive(Debug)]
pub(crate) struct FrameWaiters {
    /// Threads between [`FrameWaiters::enter`] and [`FrameWaiters::leave`]. Each last unpin looks
    /// here.
    waiting: Alone,
    /// How often frames became idle while somebody waited; wraps around.
    idled: Alone,
}

impl FrameWaiters {
    pub(crate) fn new() -> Self {
        Self { waiting: Alone(AtomicU32::new(0)), idled: Alone(AtomicU32::new(0)) }
    }

    fn key(&self) -> WaitKey {
        WaitKey::Address(std::ptr::from_ref(self) as usize)
    }

    /// The caller will search, and wait if it finds nothing.
    pub(crate) fn enter(&self) {
        self.waiting.0.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(mutant = "R1-wait"))]
        // ORDER[R1]: SeqCst fence (A); pairs with (B) in `is_empty`: the search that follows sees
        // the frame, or whoever makes it idle sees this thread.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.waiting.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether nobody waits. The caller has made a frame idle before.
    pub(crate) fn is_empty(&self) -> bool {
        #[cfg(not(mutant = "R1-wake"))]
        // ORDER[R1]: SeqCst fence (B); pairs with (A) in `enter`.
        // ORDER[R2]: as a release fence it pairs with the Acquire in `idled`, through the change of
        // the count in `tell`.
        fence(Ordering::SeqCst);
        self.waiting.0.load(Ordering::Relaxed) == 0
    }

    /// As [`FrameWaiters::is_empty`], where the frame was made idle by a read-modify-write just
    /// before.
    #[inline]
    pub(crate) fn is_empty_after_rmw(&self) -> bool {
        #[cfg(not(mutant = "R1-unpin"))]
        // ORDER[R1]: SeqCst fence (B), of which the read-modify-write is a part; pairs with (A) in
        // `enter`.
        fence_after_rmw();
        self.waiting.0.load(Ordering::Relaxed) == 0
    }

    /// What to pass to [`FrameWaiters::wait`]; to be had before the search.
    pub(crate) fn idled(&self) -> u32 {
        // ORDER[R2]: Acquire; pairs with fence (B) in `is_empty`: whoever sees the count of `tell`
        // also sees the frame that it is about.
        self.idled.0.load(SEEN)
    }

    /// Waits for a frame, unless one became idle since `seen`.
    pub(crate) fn wait(&self, waits: &WaitTable<WaitKey>, seen: u32, how: Wait) -> Outcome {
        waits.wait(&self.key(), || self.idled.0.load(Ordering::Relaxed) == seen, how)
    }

    /// So many frames became idle: has as many waiters look.
    pub(crate) fn tell(&self, waits: &WaitTable<WaitKey>, frames: usize) {
        if frames > 0 && !self.is_empty() {
            self.idled.0.fetch_add(1, Ordering::Relaxed);
            waits.wake_with(&self.key(), frames, LOOK);
        }
    }

    /// Wakes one waiter with a token of its own; whether there was one.
    #[cfg(not(loom))]
    pub(crate) fn hand(&self, waits: &WaitTable<WaitKey>, token: Token) -> bool {
        waits.wake_with(&self.key(), 1, token) > 0
    }
}

#[cfg(all(test, loom))]
mod loom {
    use unherd_sync::Reason;
    use unherd_sys::primitives::{Arc, thread};

    use super::*;

    struct Scene {
        waits: WaitTable<WaitKey>,
        waiters: FrameWaiters,
        /// Stands for the words of two frames: whether they are idle.
        idle: [AtomicU32; 2],
    }

    /// Each frame that becomes idle is found by the search, or ends the wait.
    fn no_wakeup_is_lost(frames: usize, make_idle: fn(&Scene, &AtomicU32)) {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.max_branches = 20_000;
        model.check(move || {
            let scene = Arc::new(Scene {
                waits: WaitTable::<WaitKey>::builder().buckets(1).seed(1).build(),
                waiters: FrameWaiters::new(),
                idle: [AtomicU32::new(0), AtomicU32::new(0)],
            });
            let waiter = {
                let scene = scene.clone();
                thread::spawn(move || {
                    let Scene { waits, waiters, idle } = &*scene;
                    waiters.enter();
                    // It takes all frames, one after the other, and misses none.
                    let mut taken = 0;
                    while taken < frames {
                        let seen = waiters.idled();
                        let found = idle.iter().find(|word| word.load(Ordering::Relaxed) == 1);
                        if let Some(word) = found {
                            word.store(2, Ordering::Relaxed);
                            taken += 1;
                        } else {
                            let _ = waiters.wait(waits, seen, Wait::new(Reason::OTHER));
                        }
                    }
                    waiters.leave();
                })
            };
            for word in &scene.idle[..frames] {
                make_idle(&scene, word);
            }
            waiter.join().unwrap();
        });
    }

    fn store_and_tell(scene: &Scene, word: &AtomicU32) {
        word.store(1, Ordering::Relaxed);
        scene.waiters.tell(&scene.waits, 1);
    }

    /// As an unpin does.
    fn count_and_look(scene: &Scene, word: &AtomicU32) {
        word.fetch_add(1, Ordering::Relaxed);
        if !scene.waiters.is_empty_after_rmw() {
            scene.waiters.tell(&scene.waits, 1);
        }
    }

    #[test]
    fn an_idle_frame_is_found_or_ends_the_wait() {
        no_wakeup_is_lost(1, store_and_tell);
    }

    #[test]
    fn a_second_idle_frame_is_found_too() {
        no_wakeup_is_lost(2, store_and_tell);
    }

    #[test]
    fn an_unpinned_frame_is_found_or_ends_the_wait() {
        no_wakeup_is_lost(1, count_and_look);
    }
}
