//! Writers that wait for *room*: until one page more of their file may be newer than the device;
//! and what they are told. How room is counted and made stands in `file/room.rs`.
//!
//! | what happens | who is told |
//! |---|---|
//! | pages were written, or dropped | as many waiters, those that have waited longest: [`ROOM`] |
//! | a page can be written that could not, or what a write needs was given back | one waiter, if there are any that found no page to write (*stuck* ones): [`PAGE`] |
//!
//! ```text
//!  a writer in want                         one who makes room
//!  ----------------                         ------------------
//!  waiting += 1                             pages newer than the device -= 1
//!  fence(SeqCst)                 (A)        fence(SeqCst)              (B)
//!  seen = told                              waiting == 0: done
//!  look for room, then for a page to write  else: told += 1; wake one
//!  wait, if told == seen
//! ```
//!
//! Excluded: the writer misses the room *and* the other sees no waiter. Where it sees one, the wait
//! table sees to the rest, as for frames (`waiters.rs`). The race of a stuck writer with one who
//! makes a page writable is the same, with `stuck` for `waiting`: a writer that finds no page
//! counts itself there, and looks again before it waits.
//!
//! The bound of one file is not that of another, so one that is woken for room may have none: it
//! passes the wake on to a waiter of another file, once for each count of `told`. One that leaves
//! with an error passes it on to anybody.

use unherd_sync::{Outcome, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicU32, Ordering, fence, fence_after_rmw};

/// What a waiter is told where there may be room.
pub(crate) const ROOM: Token = Token(0);

/// What one is told where there may be a page to write.
const PAGE: Token = Token(1);

/// The tag of one that waits for no file's room, and takes none. Others have that of their file.
pub(crate) const NO_FILE: Tag = Tag(0);

/// On a cache line of its own: each end of a change looks here.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RoomWaiters {
    waiting: AtomicU32,
    /// Those of them that found no page to write.
    stuck: AtomicU32,
    /// How often waiters were told to look; wraps around.
    told: AtomicU32,
}

/// That its owner is counted, until dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Counted<'a>(&'a AtomicU32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn count(number: &AtomicU32) -> Counted<'_> {
    number.fetch_add(1, Ordering::Relaxed);
    // ORDER[ROOM1]: SeqCst fence (A); pairs with (B) in `tell` and `tell_stuck`: the look that
    // follows sees what the other has done, or the other sees this thread.
    fence(Ordering::SeqCst);
    Counted(number)
}

impl RoomWaiters {
    /// The caller will look for room, and wait if there is none.
    pub(crate) fn enter(&self) -> Counted<'_> {
        count(&self.waiting)
    }

    /// The caller has entered, and has found no page to write: it will look again, and then wait.
    pub(crate) fn stick(&self) -> Counted<'_> {
        count(&self.stuck)
    }

    fn key(&self) -> WaitKey {
        WaitKey::Address(std::ptr::from_ref(self) as usize)
    }

    /// What to pass to [`RoomWaiters::wait`]; taken before the look.
    pub(crate) fn told(&self) -> u32 {
        // ORDER[ROOM2]: Acquire; pairs with the Release in `wake`: one that sees its count also
        // sees what it is about.
        self.told.load(Ordering::Acquire)
    }

    /// Waits, unless somebody was told to look since `seen`.
    pub(crate) fn wait(&self, waits: &WaitTable<WaitKey>, seen: u32, how: Wait) -> Outcome {
        waits.wait(&self.key(), || self.told.load(Ordering::Relaxed) == seen, how)
    }

    /// There may be room for some pages more.
    pub(crate) fn tell(&self, waits: &WaitTable<WaitKey>, pages: usize) {
        // ORDER[ROOM1]: SeqCst fence (B); pairs with (A) in `count`.
        fence(Ordering::SeqCst);
        if pages > 0 && self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake(waits, pages, ROOM);
        }
    }

    /// A page may be written, or a buffer be had for it, that could not.
    pub(crate) fn tell_stuck(&self, waits: &WaitTable<WaitKey>) {
        // ORDER[ROOM1]: SeqCst fence (B); pairs with (A) in `count`.
        fence(Ordering::SeqCst);
        if self.stuck.load(Ordering::Relaxed) > 0 {
            self.wake(waits, 1, PAGE);
        }
    }

    /// Whether [`RoomWaiters::tell_stuck`] is to be called. The caller has just made a page
    /// writable by a read-modify-write.
    #[inline]
    pub(crate) fn has_stuck_after_rmw(&self) -> bool {
        // ORDER[ROOM1]: SeqCst fence (B), of which the read-modify-write is a part; pairs with (A)
        // in `count`.
        fence_after_rmw();
        self.stuck.load(Ordering::Relaxed) > 0
    }

    fn wake(&self, waits: &WaitTable<WaitKey>, waiters: usize, message: Token) {
        // ORDER[ROOM2]: Release; pairs with the Acquire in `told`.
        self.told.fetch_add(1, Ordering::Release);
        waits.wake_with(&self.key(), waiters, message);
    }

    /// The caller was woken for room, and has none for its file. Tells a waiter of another file,
    /// unless the caller has `passed` this on.
    pub(crate) fn pass_on(&self, waits: &WaitTable<WaitKey>, file: Tag, passed: &mut Option<u32>) {
        let told = Some(self.told());
        if *passed == told {
            return;
        }
        *passed = told;
        let is_other = |tag| {
            if tag == file || tag == NO_FILE { Verdict::Skip } else { Verdict::WakeAndStop }
        };
        waits.wake_where(&self.key(), is_other, ROOM);
    }
}

#[cfg(all(test, loom))]
mod loom {
    use unherd_sync::Reason;
    use unherd_sys::primitives::{Arc, thread};

    use super::*;

    struct Scene {
        waits: WaitTable<WaitKey>,
        waiters: RoomWaiters,
        /// How many pages more there may be.
        room: AtomicU32,
        /// Whether there is a page to write.
        page: AtomicU32,
    }

    impl Scene {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                waits: WaitTable::<WaitKey>::builder().buckets(1).seed(1).build(),
                waiters: RoomWaiters::default(),
                room: AtomicU32::new(0),
                page: AtomicU32::new(0),
            })
        }

        /// As `make_room`: until there is room, which it makes if it can.
        fn make_room(&self) {
            let Self { waits, waiters, room, page } = self;
            let _entered = waiters.enter();
            let mut stuck = None;
            loop {
                let seen = waiters.told();
                if take(room) {
                    return;
                }
                if take(page) {
                    stuck = None;
                    give(room);
                    waiters.tell(waits, 1);
                    continue;
                }
                if stuck.is_none() {
                    stuck = Some(waiters.stick());
                    continue;
                }
                let _ = waiters.wait(waits, seen, Wait::new(Reason::OTHER));
            }
        }
    }

    /// Loads first, which may be stale; an exchange never is in loom.
    fn take(count: &AtomicU32) -> bool {
        let order = Ordering::Relaxed;
        let mut before = count.load(order);
        while before > 0 {
            match count.compare_exchange(before, before - 1, order, order) {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
        false
    }

    fn give(count: &AtomicU32) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn check(waiters: usize, run: fn(&Scene)) {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = Some(if waiters > 1 { 2 } else { 4 });
        model.max_branches = 20_000;
        model.check(move || {
            let scene = Scene::new();
            let spawn = |_| {
                let scene = scene.clone();
                thread::spawn(move || scene.make_room())
            };
            let writers: Vec<_> = (0..waiters).map(spawn).collect();
            run(&scene);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        });
    }

    #[test]
    fn room_is_found_or_ends_the_wait() {
        check(1, |scene| {
            give(&scene.room);
            scene.waiters.tell(&scene.waits, 1);
        });
    }

    #[test]
    fn rooms_end_as_many_waits() {
        check(2, |scene| {
            for _ in 0..2 {
                give(&scene.room);
                scene.waiters.tell(&scene.waits, 1);
            }
        });
    }

    #[test]
    fn a_page_to_write_is_found_or_ends_the_wait() {
        check(1, |scene| {
            give(&scene.page);
            scene.waiters.tell_stuck(&scene.waits);
        });
    }

    #[test]
    fn the_end_of_a_change_is_found_or_ends_the_wait() {
        check(1, |scene| {
            give(&scene.page);
            if scene.waiters.has_stuck_after_rmw() {
                scene.waiters.tell_stuck(&scene.waits);
            }
        });
    }
}
