//! Writers that wait for *room*: until one page more of their file may be newer than the device;
//! and what they are told. How room is counted and made stands in `file/room.rs`.
//!
//! | what happens | who is told |
//! |---|---|
//! | a write-back has ended, or dirty pages were dropped | as many waiters as pages, those first that have waited longest |
//! | a page can be written that could not, or what a write needs was given back | the waiter that has waited longest |
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
//! - One that finds no room, as the bounds of files differ, wakes a waiter of another file. The
//!   message counts how many waiters were not woken by the event, and an event is passed on no more
//!   often: so it reaches each file that has waiters, as one that waits again stands behind the
//!   others, and ends. One that leaves with an error wakes any.
//! - The room may come from a write that another waiter began, which sleeps. So one that was told,
//!   and takes room, and began no write wakes one for a page to write: where room was taken,
//!   somebody looks.

use unherd_sync::{Outcome, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::{AtomicU32, Ordering, fence, fence_after_rmw};

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
        // ORDER[ROOM1]: SeqCst fence (A); pairs with (B) in `waiting`: the look that follows sees
        // what the other has done, or the other sees this thread.
        fence(Ordering::SeqCst);
        Entered(self)
    }

    fn waiting(&self) -> u32 {
        // ORDER[ROOM1]: SeqCst fence (B); pairs with (A) in `enter`.
        // ORDER[ROOM2]: the same fence; pairs with the Acquire in `told`.
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::Relaxed)
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
        // ORDER[ROOM2]: Acquire; pairs with fence (B), which stands before each count: one that
        // sees it also sees what it is about.
        self.told.load(Ordering::Acquire)
    }

    /// Waits, unless somebody was told to look since `seen`.
    pub(crate) fn wait(&self, waits: &WaitTable<WaitKey>, seen: u32, how: Wait) -> Outcome {
        waits.wait(&self.key(), || self.told.load(Ordering::Relaxed) == seen, how)
    }

    /// There may be room for some pages more.
    pub(crate) fn tell(&self, waits: &WaitTable<WaitKey>, pages: usize) {
        let waiting = if pages > 0 { self.waiting() } else { 0 };
        if waiting > 0 {
            let others = (waiting as usize).saturating_sub(pages);
            self.wake(waits, pages, Token(others as u64));
        }
    }

    /// A page can be written, or a buffer be had for it: this is passed on to nobody, as any waiter
    /// can write any page.
    pub(crate) fn tell_of_page(&self, waits: &WaitTable<WaitKey>) {
        if self.waiting() > 0 {
            self.wake(waits, 1, Token(0));
        }
    }

    fn wake(&self, waits: &WaitTable<WaitKey>, waiters: usize, message: Token) {
        self.told.fetch_add(1, Ordering::Relaxed);
        waits.wake_with(&self.key(), waiters, message);
    }

    /// The caller takes room, and leaves; whether it was told before, and began a write since.
    pub(crate) fn leave(&self, waits: &WaitTable<WaitKey>, was_told: bool, has_begun: bool) {
        if was_told && !has_begun {
            self.tell_of_page(waits);
        }
    }

    /// The caller was woken with a message, and has no room for its file. Wakes a waiter of another
    /// file, unless that was done often enough.
    pub(crate) fn pass_on(&self, waits: &WaitTable<WaitKey>, file: Tag, message: Token) {
        let Some(left) = message.0.checked_sub(1) else { return };
        let is_other = |tag| {
            if tag == file || tag == NO_FILE { Verdict::Skip } else { Verdict::WakeAndStop }
        };
        waits.wake_where(&self.key(), is_other, Token(left));
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::time::Duration;

    use unherd_sync::Reason;
    use unherd_sys::Timestamp;
    use unherd_sys::primitives::{AtomicBool, thread};

    use super::*;

    #[test]
    fn events_without_room_come_to_rest() {
        const FILES: u32 = 3;
        const EVENTS: u32 = 2;
        let waits = WaitTable::<WaitKey>::builder().build();
        let waiters = RoomWaiters::default();
        let (woken, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        let wait = |file| {
            let _entered = waiters.enter();
            loop {
                let seen = waiters.told();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let how = Wait::new(Reason::OTHER).tag(Tag(file));
                if let Outcome::Woken(message) = waiters.wait(&waits, seen, how) {
                    woken.fetch_add(1, Ordering::Relaxed);
                    waiters.pass_on(&waits, Tag(file), message);
                }
            }
        };
        thread::scope(|scope| {
            (1..=u64::from(FILES)).for_each(|file| drop(scope.spawn(move || wait(file))));
            while waiters.waiting() < FILES {
                thread::yield_now();
            }
            // Those that are counted fall asleep; one that does not is told less.
            let pause = || {
                let end = Timestamp::now().after(Duration::from_millis(5));
                while Timestamp::now() < end {
                    thread::yield_now();
                }
            };
            pause();
            (0..EVENTS).for_each(|_| waiters.tell(&waits, 1));
            pause();
            is_over.store(true, Ordering::Relaxed);
            let woken = woken.load(Ordering::Relaxed);
            waiters.tell(&waits, usize::MAX);
            assert!((1..=EVENTS * FILES).contains(&woken), "{woken} wakes");
        });
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
            let (mut is_told, mut has_begun) = (false, false);
            loop {
                let seen = waiters.told();
                if take(room) {
                    return waiters.leave(waits, is_told, has_begun);
                }
                has_begun = take(pages);
                if has_begun {
                    give(begun);
                }
                let outcome = waiters.wait(waits, seen, Wait::new(Reason::OTHER));
                is_told = matches!(outcome, Outcome::Woken(_));
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

    /// One event makes two pages writable, as a flush that fails does. Of the two that wait, one
    /// begins to write a page, and the other takes the room: the other page is written all the
    /// same.
    #[test]
    fn room_that_another_takes_strands_nobody() {
        check(2, |scene| {
            // Both may be asleep then, and nobody was preempted for it.
            while scene.waiters.waiting.load(Ordering::Relaxed) < 2 {
                thread::yield_now();
            }
            give(&scene.pages);
            give(&scene.pages);
            scene.waiters.tell_of_page(&scene.waits);
            scene.end_writes(2);
        });
    }
}
