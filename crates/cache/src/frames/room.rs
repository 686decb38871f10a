//! Writers that wait for *room*: until one page more of their file may be newer than the device;
//! and what they are told. How room is counted and made stands in `file/room.rs`.
//!
//! | what happens | who is told |
//! |---|---|
//! | a write-back has ended, or dirty pages were dropped | as many waiters as pages, those first that have waited longest: [`is_room`] |
//! | a page can be written that could not, or what a write needs was given back | the waiter that has waited longest: [`PAGE`] |
//!
//! ```text
//!  a writer in want                         one who makes room, or a page writable
//!  ----------------                         --------------------------------------
//!  waiting += 1                             count the page less, or publish it
//!  fence(SeqCst)                 (A)        fence(SeqCst)              (B)
//!  seen = told                              waiting == 0: done
//!  look for room, then for a page to write  else: told += 1; wake one
//!  wait, if told == seen
//! ```
//!
//! Excluded: the writer misses what the other has done *and* the other sees no waiter. Where it
//! sees one, the wait table sees to the rest, as for frames (`waiters.rs`).
//!
//! What one waiter does with a wake must not strand those behind it:
//!
//! - One that is woken for room and has none, as the bounds of files differ, wakes a waiter of
//!   another file, unless it has just passed that event on. One that leaves with an error wakes
//!   any.
//! - The room may come from a write that another waiter began, which sleeps. So one that takes room
//!   and began no write wakes one for a page to write: where room was taken, somebody looks.

use unherd_sync::{Outcome, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicU32, Ordering, fence, fence_after_rmw};

/// What a waiter is told where there may be a page to write.
const PAGE: Token = Token(0);

/// Whether it is told that there may be room. Each event has a message of its own: 1 and what
/// `told` was before.
pub(crate) fn is_room(message: Token) -> bool {
    message != PAGE
}

/// The tag of one that waits for no file's room, and takes none. Others have that of their file.
pub(crate) const NO_FILE: Tag = Tag(0);

/// On a cache line of its own: each end of a change looks here.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RoomWaiters {
    waiting: AtomicU32,
    /// How often waiters were told to look; wraps around.
    told: AtomicU32,
}

/// That its owner is counted, until dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered<'a>(&'a RoomWaiters);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RoomWaiters {
    /// The caller will look for room, and wait if there is none.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // ORDER[ROOM1]: SeqCst fence (A); pairs with (B) in `is_empty`: the look that follows sees
        // what the other has done, or the other sees this thread.
        fence(Ordering::SeqCst);
        Entered(self)
    }

    fn is_empty(&self) -> bool {
        // ORDER[ROOM1]: SeqCst fence (B); pairs with (A) in `enter`.
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Whether nobody waits. The caller has just made a page writable by a read-modify-write.
    #[inline]
    pub(crate) fn is_empty_after_rmw(&self) -> bool {
        // ORDER[ROOM1]: SeqCst fence (B), of which the read-modify-write is a part; pairs with (A)
        // in `enter`.
        fence_after_rmw();
        self.waiting.load(Ordering::Relaxed) == 0
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
        if pages > 0 && !self.is_empty() {
            self.wake(waits, pages, |before| Token(1 + u64::from(before)));
        }
    }

    /// A page can be written, or a buffer be had for it. Gives what [`RoomWaiters::told`] was
    /// before, if anybody waits.
    pub(crate) fn tell_of_page(&self, waits: &WaitTable<WaitKey>) -> Option<u32> {
        if self.is_empty() { None } else { Some(self.wake(waits, 1, |_| PAGE)) }
    }

    fn wake(
        &self,
        waits: &WaitTable<WaitKey>,
        waiters: usize,
        message: impl FnOnce(u32) -> Token,
    ) -> u32 {
        // ORDER[ROOM2]: Release; pairs with the Acquire in `told`.
        let before = self.told.fetch_add(1, Ordering::Release);
        waits.wake_with(&self.key(), waiters, message(before));
        before
    }

    /// The caller was woken for `room`, and has none for its file. Wakes a waiter of another file
    /// for it, unless the caller has `passed` that on.
    pub(crate) fn pass_on(
        &self,
        waits: &WaitTable<WaitKey>,
        file: Tag,
        room: Token,
        passed: &mut Option<Token>,
    ) {
        if passed.replace(room) == Some(room) {
            return;
        }
        let is_other = |tag| {
            if tag == file || tag == NO_FILE { Verdict::Skip } else { Verdict::WakeAndStop }
        };
        waits.wake_where(&self.key(), is_other, room);
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
        /// How many pages can be written.
        pages: AtomicU32,
        /// How many writes were begun, and have not ended.
        begun: AtomicU32,
    }

    impl Scene {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                waits: WaitTable::<WaitKey>::builder().buckets(1).seed(1).build(),
                waiters: RoomWaiters::default(),
                room: AtomicU32::new(0),
                pages: AtomicU32::new(0),
                begun: AtomicU32::new(0),
            })
        }

        /// As `make_room` with queued writes: until there is room. A page that is taken is then
        /// written by another thread.
        fn make_room(&self) {
            let Self { waits, waiters, room, pages, begun } = self;
            let _entered = waiters.enter();
            let (mut told, mut has_begun) = (None, false);
            loop {
                let seen = waiters.told();
                if take(room) {
                    if told.is_some_and(is_room) && !has_begun {
                        waiters.tell_of_page(waits);
                    }
                    return;
                }
                has_begun = take(pages);
                if has_begun {
                    give(begun);
                }
                told = match waiters.wait(waits, seen, Wait::new(Reason::OTHER)) {
                    Outcome::Woken(message) => Some(message),
                    _ => None,
                };
            }
        }

        /// As `publish_change`.
        fn publish(&self) {
            give(&self.pages);
            if !self.waiters.is_empty_after_rmw() {
                self.waiters.tell_of_page(&self.waits);
            }
        }

        /// Ends `writes` writes, as the I/O thread does.
        fn end_writes(&self, writes: usize) {
            for _ in 0..writes {
                while !take(&self.begun) {
                    thread::yield_now();
                }
                give(&self.room);
                self.waiters.tell(&self.waits, 1);
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
        model.preemption_bound = Some(if waiters > 1 { 1 } else { 4 });
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
            give(&scene.pages);
            scene.waiters.tell_of_page(&scene.waits);
            scene.end_writes(1);
        });
    }

    #[test]
    fn the_end_of_a_change_is_found_or_ends_the_wait() {
        check(1, |scene| {
            scene.publish();
            scene.end_writes(1);
        });
    }

    /// The one that begins a write sleeps behind the other, which takes the room: the other page is
    /// written all the same.
    #[test]
    fn room_that_another_takes_strands_nobody() {
        check(2, |scene| {
            scene.publish();
            scene.publish();
            scene.end_writes(2);
        });
    }
}
