//! Writers that wait at the dirty limit for *room*: until one page more of their file may be newer
//! than the device; and what they are told. How room is counted stands in `state/dirty_limit.rs`,
//! how it is made in `file/throttle.rs`.
//!
//! | what happens | who is told |
//! |---|---|
//! | a write-back has ended, or dirty pages were dropped | of those that have waited longest the ones whose file may have one more page, as many as pages: they are handed the room. If that is nobody, and the device is not busy, the one that has waited longest: to look for a page to write |
//! | a page has become dirty | the waiter that has waited longest, if it could begin to write it: the device is not busy, and there is a buffer |
//! | another page can be written that could not, or what a write needs was given back | the waiter that has waited longest |
//! | a write-back has failed | all waiters of its file |
//!
//! One in want of room and one that makes room, or a page writable, do not miss each other: that is
//! the event count's (`event_count.rs`). A writer looks for room, and then for a page to write.
//!
//! Whether a waiter's file may have one more page is looked at by the one that makes room, under
//! the lock of the queue, and the room is counted for the waiter before it is woken: so nobody is
//! woken to find that the bounds of files differ, or that others were faster. A walk past many
//! waiters that cannot have room would cost more than it wakes: so while write-backs are under way,
//! each of which tells once more, [`SHOWN_MAX`] of them are looked at, and the one that looks for a
//! page to write stands behind the others then. The last that ends shows all of them all the room
//! that there is, be it from its own pages or left from before.
//!
//! A page becomes dirty with each write to it. So nobody is notified of one while the device is
//! busy. The writer that was silent has looked for write-backs after fence (B), so the end that
//! leaves fewer than [`BUSY`] comes later: it has a waiter look, or hands room to one that has
//! another look (see below), and that finds the page. Nor is anybody notified while there is no
//! buffer, which counts as missed then: one that comes back is told (`io/run.rs`).
//!
//! The room may come from a write that another waiter began, which sleeps. So one that was told,
//! and takes room, and began no write wakes one for a page to write: where room was taken, somebody
//! looks.

use unherd_sync::{Outcome, Tag, Token, Verdict, Wait, WaitKey, WaitTable};

use crate::frames::event_count::EventCount;

/// The tag of one that waits for no file's room, and takes none. Others have that of their file.
pub(crate) const NO_FILE: Tag = Tag(0);

/// To one that is to look for room, and for a page to write.
const LOOK: Token = Token(0);
/// To one for which room was counted.
const RESERVED: Token = Token(1);

/// With this many write-backs under way the device is busy without another: a waiter for room or
/// for a frame begins no more, and a thread that has filled a run writes it by itself. (Queued
/// writes that make a file longer would go to worker threads of the kernel.)
pub(crate) const BUSY: u32 = 4;

/// How many waiters are looked at that cannot be handed room, where others are about to tell.
const SHOWN_MAX: u32 = 32;

/// Whether a waiter was handed room by the one that has woken it.
pub(crate) fn is_handed_reservation(outcome: Outcome) -> bool {
    outcome == Outcome::Woken(RESERVED)
}

#[derive(Debug, Default)]
pub(crate) struct DirtyLimitWaiters {
    /// Room, and pages that can be written. Each end of a change looks here.
    pub(crate) events: EventCount,
}

impl DirtyLimitWaiters {
    /// Waits, unless somebody was told to look since `seen`.
    pub(crate) fn wait(&self, waits: &WaitTable<WaitKey>, seen: u32, how: Wait) -> Outcome {
        waits.wait(&WaitKey::of(self), || self.events.is_still(seen), how)
    }

    /// There may be room for some pages more. `hand_out` is shown files that are waited for, and
    /// counts a page for a file that may have it; under the lock of the queue. `writing` gives how
    /// many write-backs are under way, each of which will tell once more.
    pub(crate) fn notify(
        &self,
        waits: &WaitTable<WaitKey>,
        pages: usize,
        writing: impl FnOnce() -> u32,
        mut hand_out: impl FnMut(Tag) -> bool,
    ) {
        if pages == 0 || self.events.is_empty() {
            return;
        }
        // After fence (B), which a write-back that ends passes as well: if it looks under way here,
        // its own look will find the room.
        let writing = writing();
        let (mut left, shown_max) =
            if writing > 0 { (pages, SHOWN_MAX) } else { (usize::MAX, u32::MAX) };
        let (mut is_none_handed, mut shown) = (true, 0);
        let is_handed = |tag| {
            if tag == NO_FILE {
                Verdict::Wake
            } else if left == 0 || shown == shown_max {
                Verdict::Stop
            } else if hand_out(tag) {
                left -= 1;
                is_none_handed = false;
                Verdict::Wake
            } else {
                shown += 1;
                Verdict::Skip
            }
        };
        self.events.advance();
        waits.wake_where(&WaitKey::of(self), is_handed, RESERVED);
        if is_none_handed && writing < BUSY {
            waits.wake_with(&WaitKey::of(self), 1, LOOK);
        }
    }

    /// Something has changed for all waiters of a file.
    pub(crate) fn notify_file(&self, waits: &WaitTable<WaitKey>, file: Tag) {
        if !self.events.is_empty() {
            let is_of_file = |tag| if tag == file { Verdict::Wake } else { Verdict::Skip };
            self.events.advance();
            waits.wake_where(&WaitKey::of(self), is_of_file, LOOK);
        }
    }

    /// Pages can be written, or buffers be had for them: any waiter can write any page.
    pub(crate) fn notify_of_pages(&self, waits: &WaitTable<WaitKey>, pages: usize) {
        if !self.events.is_empty() {
            self.wake(waits, pages);
        }
    }

    /// All are to look.
    pub(crate) fn notify_all(&self, waits: &WaitTable<WaitKey>) {
        self.wake(waits, usize::MAX);
    }

    fn wake(&self, waits: &WaitTable<WaitKey>, waiters: usize) {
        self.events.advance();
        waits.wake_with(&WaitKey::of(self), waiters, LOOK);
    }

    /// The caller takes room, and leaves; whether it was told before, and whether a write that it
    /// began since may be under way: then the end of that tells others.
    pub(crate) fn leave(&self, waits: &WaitTable<WaitKey>, was_notified: bool, is_writing: bool) {
        if was_notified && !is_writing {
            self.notify_of_pages(waits, 1);
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use unherd_sync::{Ledger, Reason};
    use unherd_sys::primitives::thread;

    use super::*;

    /// Has a thread wait for room of each file, in this order, under the reason of that name, and
    /// tells of room. Gives the files that were handed some.
    fn told(
        name: &'static str,
        files: &[u64],
        tell: impl Fn(&DirtyLimitWaiters, &WaitTable<WaitKey>),
    ) -> Vec<u64> {
        let waits = WaitTable::<WaitKey>::builder().build();
        let waiters = DirtyLimitWaiters::default();
        let reason = Reason::register(name);
        let before = Ledger::snapshot().reason(reason).waits;
        let wait = |file| {
            let _entered = waiters.events.enter();
            let outcome =
                waiters.wait(&waits, waiters.events.epoch(), Wait::new(reason).tag(Tag(file)));
            is_handed_reservation(outcome).then_some(file)
        };
        thread::scope(|scope| {
            let spawn = |(nth, file): (usize, &u64)| {
                let file = *file;
                let thread = scope.spawn(move || wait(file));
                while Ledger::snapshot().reason(reason).waits - before <= nth as u64 {
                    thread::yield_now();
                }
                thread
            };
            let threads: Vec<_> = files.iter().enumerate().map(spawn).collect();
            tell(&waiters, &waits);
            waiters.notify_all(&waits);
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn room_is_handed_to_those_whose_file_may_have_it() {
        let handed = told("test-room", &[1, 2, 3, 4], |waiters, waits| {
            waiters.notify(waits, 2, || 1, |file| file != Tag(1));
        });
        assert_eq!(handed, [2, 3]);
    }

    #[test]
    fn the_last_event_is_shown_to_all() {
        let files = [[1; SHOWN_MAX as usize + 1].as_slice(), &[2]].concat();
        for writing in [1, 0] {
            let handed = told("test-room-for-all", &files, |waiters, waits| {
                waiters.notify(waits, 1, || writing, |file| file == Tag(2));
            });
            let expected: &[u64] = if writing > 0 { &[] } else { &[2] };
            assert_eq!(handed, expected);
        }
        // And has all room, not only its own.
        let handed = told("test-room-left", &[1, 2, 3], |waiters, waits| {
            waiters.notify(waits, 1, || 0, |file| file != Tag(1));
        });
        assert_eq!(handed, [2, 3]);
    }
}

#[cfg(all(test, loom))]
mod loom {
    use unherd_sync::Reason;
    use unherd_sys::primitives::{Arc, AtomicU32, Ordering, thread};

    use super::*;

    const FILE: Tag = Tag(1);

    struct Scene {
        waits: WaitTable<WaitKey>,
        waiters: DirtyLimitWaiters,
        /// How many pages more there may be.
        room: AtomicU32,
        /// How many pages can be written.
        pages: AtomicU32,
        /// How many writes were begun, and are still to be taken by those who end them.
        begun: AtomicU32,
        /// How many writes are under way.
        writing: AtomicU32,
    }

    impl Scene {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                waits: WaitTable::<WaitKey>::builder().buckets(1).seed(1).build(),
                waiters: DirtyLimitWaiters::default(),
                room: AtomicU32::new(0),
                pages: AtomicU32::new(0),
                begun: AtomicU32::new(0),
                writing: AtomicU32::new(0),
            })
        }

        /// As `wait_for_dirty_limit` with queued writes: until there is room. A page that is taken
        /// is then written by another thread.
        fn wait_for_dirty_limit(&self) {
            let Self { waits, waiters, room, pages, begun, writing } = self;
            let is_writing = |has_begun| has_begun && writing.load(Ordering::Relaxed) > 0;
            let _entered = waiters.events.enter();
            let (mut is_notified, mut has_begun) = (false, false);
            loop {
                let seen = waiters.events.epoch();
                if take(room) {
                    return waiters.leave(waits, is_notified, is_writing(has_begun));
                }
                has_begun = take(pages);
                if has_begun {
                    give(writing);
                    give(begun);
                }
                let outcome = waiters.wait(waits, seen, Wait::new(Reason::OTHER).tag(FILE));
                if is_handed_reservation(outcome) {
                    return waiters.leave(waits, true, is_writing(has_begun));
                }
                is_notified = matches!(outcome, Outcome::Woken(_));
            }
        }

        /// As `hand_out_reservations`.
        fn notify(&self) {
            let writing = || self.writing.load(Ordering::Relaxed);
            self.waiters.notify(&self.waits, 1, writing, |_| take(&self.room));
        }

        /// As `publish_change`.
        fn publish(&self) {
            give(&self.pages);
            if !self.waiters.events.is_empty_after_rmw()
                && self.writing.load(Ordering::Relaxed) < BUSY
            {
                self.waiters.notify_of_pages(&self.waits, 1);
            }
        }

        /// As `note_write_back_end`, of a page that is dirty again: that is no room.
        fn end_write_in_vain(&self) {
            self.writing.fetch_sub(1, Ordering::Relaxed);
            self.notify();
        }

        /// Ends `writes` writes, as the I/O thread does.
        fn end_writes(&self, writes: usize) {
            for _ in 0..writes {
                while !take(&self.begun) {
                    thread::yield_now();
                }
                self.writing.fetch_sub(1, Ordering::Relaxed);
                give(&self.room);
                self.notify();
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

    fn check(waiters: usize, run: fn(&Arc<Scene>)) {
        check_within(if waiters > 1 { 1 } else { 4 }, waiters, run);
    }

    fn check_within(preemptions: usize, waiters: usize, run: fn(&Arc<Scene>)) {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.max_branches = 20_000;
        model.check(move || {
            let scene = Scene::new();
            let spawn = |_| {
                let scene = scene.clone();
                thread::spawn(move || scene.wait_for_dirty_limit())
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
            scene.notify();
        });
    }

    #[test]
    fn rooms_end_as_many_waits() {
        check(2, |scene| {
            for _ in 0..2 {
                give(&scene.room);
                scene.notify();
            }
        });
    }

    #[test]
    fn a_page_to_write_is_found_or_ends_the_wait() {
        check(1, |scene| {
            give(&scene.pages);
            scene.waiters.notify_of_pages(&scene.waits, 1);
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

    /// The device is busy, so nobody is notified of the page; but not for long.
    #[test]
    fn a_page_that_came_silently_is_found_at_the_end_of_a_write() {
        check_within(2, 1, |scene| {
            scene.writing.fetch_add(BUSY, Ordering::Relaxed);
            let other = scene.clone();
            let other = thread::spawn(move || other.end_write_in_vain());
            scene.publish();
            scene.end_writes(1);
            other.join().unwrap();
        });
    }

    /// One event makes two pages writable, as a flush that fails does. Of the two that wait, one
    /// begins to write a page, and the other takes the room: the other page is written all the
    /// same.
    #[test]
    fn room_that_another_takes_strands_nobody() {
        check(2, |scene| {
            // Both may be asleep then, and nobody was preempted for it.
            while scene.waiters.events.count() < 2 {
                thread::yield_now();
            }
            give(&scene.pages);
            give(&scene.pages);
            scene.waiters.notify_of_pages(&scene.waits, 1);
            scene.end_writes(2);
        });
    }
}
