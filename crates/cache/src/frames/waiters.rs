//! Threads and tasks that wait for a frame, and what they are told.
//!
//! One in want of a frame and one that makes a frame idle do not miss each other: that is the event
//! count's (`event_count.rs`). A search loads the frames' words.
//!
//! **Batches.** Where frames come from write-backs, one that is woken for each frame takes that
//! frame, and waits again: a sleep for each page that is written. So while pages are being written,
//! idle frames are *batched*: one waiter is woken for a batch of them, takes its frame, and finds
//! the others when it comes again. What is batched is told at the latest when the last write-back
//! ends:
//!
//! ```text
//!  one that makes a frame idle              the end of a write-back
//!  ---------------------------              -----------------------
//!  batched += 1, or left = true             writing -= 1
//!  fence(SeqCst)                 (C)        fence(SeqCst)              (D)
//!  writing == 0: see to it                  writing was 1: see to it
//! ```
//!
//! Excluded: that neither sees to it. What is batched is told. Where fewer waiters were woken than
//! frames became idle, some are *left*: the one woken may not come again. So at the end the caller
//! hands idle frames to those that still wait, and wakes nobody for nothing.
//!
//! So a frame lies idle beside a waiter until pages are no longer being written at most, and a
//! waiter is woken as soon as a batch of frames is idle, or at the first write-back that ends after
//! [`BATCH_WAIT_MAX`].
//!
//! Threads and tasks stand in one queue, except for those below. A frame itself is handed to a
//! thread only, and only to the one that has waited longest, or is overdue: a thread always comes
//! to take it. Where a task is first, the frame goes to the free ones, and the task is told to
//! look: if it was dropped, the wake goes on to the next in the queue, and if there is none, the
//! frame lies where everybody finds it. If it is not polled for a time, those behind it get the
//! frame: see `alarm.rs`.
//!
//! **Overdue.** Who runs takes frames as it finds them, and who was woken may find them taken, and
//! stands at the end of the queue again. That is what makes batches worth it, but one may lose ten
//! times in a row: so a thread that has lost, and has waited for long, waits in a queue of its own,
//! which is told first. Others are told when there is nobody in it, or more frames; as nobody gets
//! there who was not woken before, it does not fill while they wait. Tasks stay where they are.
//!
//! A thread wakes by itself at its deadline. A task has no clock, so it leaves its deadline in the
//! queue, as its tag, for [`FrameWaiters::expire`].

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
#[cfg(not(any(loom, shuttle)))]
use std::time::Duration;

use unherd_sync::{Outcome, Reason, Tag, Token, Verdict, Wait, WaitKey, WaitTable};
#[cfg(not(loom))]
use unherd_sys::Timestamp;
#[cfg(not(any(loom, shuttle)))]
use unherd_sys::primitives::AtomicU64;
use unherd_sys::primitives::{AtomicBool, AtomicU32, Ordering, fence};

use crate::foreign_code::run_foreign;
use crate::frames::event_count::{EventCount, PaddedCount};

/// What a waiter is told when a frame became idle. Other tokens are frames, from 1 up.
pub(crate) const LOOK: Token = Token(0);

/// The tag of a thread. That of a task is its deadline in nanoseconds.
const THREAD: Tag = Tag(0);

/// The largest batch.
const BATCH_MAX: usize = 16;

/// A cache has this many frames for each frame of a batch: in small ones a batch is one frame.
const FRAMES_PER_BATCH: usize = 1024;

/// How long frames are batched before somebody is told, though they are no batch.
#[cfg(not(any(loom, shuttle)))]
const BATCH_WAIT_MAX: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(crate) struct FrameWaiters {
    /// Frames that become idle.
    pub(crate) events: EventCount,
    /// Frames that became idle while somebody waited, and that no waiter was woken for.
    batched: PaddedCount,
    /// Whether fewer waiters were woken than frames became idle, while pages were being written.
    left: AtomicBool,
    /// Write-backs that have begun. The last that ends sees to what is batched, or left.
    writing: AtomicU32,
    /// When the first of those frames became idle that are batched. Relaxed: a hint.
    #[cfg(not(any(loom, shuttle)))]
    batched_since: AtomicU64,
    /// How many idle frames one waiter is woken for while pages are being written. Relaxed: a rule
    /// of thumb.
    batch: AtomicU32,
}

/// What is left to do for one that made frames idle.
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub(crate) struct Notified {
    /// Frames are left: the caller hands idle frames to those that still wait.
    pub(crate) has_left: bool,
    /// A task was woken, which may never be polled: see `alarm.rs`.
    pub(crate) has_task: bool,
}

/// A task's place in the queue. When it is left, a wake that had chosen the task goes on to the
/// next, whose waker is a stranger's.
struct PlaceGuard<'a, F>(Pin<&'a mut Option<F>>);

impl<F> Drop for PlaceGuard<'_, F> {
    fn drop(&mut self) {
        run_foreign(|| self.0.set(None));
    }
}

impl FrameWaiters {
    /// For a cache without frames.
    pub(crate) fn new() -> Self {
        Self::with_batch(1)
    }

    /// The cache has that number of frames now.
    pub(crate) fn set_frames(&self, frames: usize) {
        // The caches of simulations are small.
        let batch = if cfg!(shuttle) { 3 } else { frames / FRAMES_PER_BATCH };
        self.batch.store(batch.clamp(1, BATCH_MAX) as u32, Ordering::Relaxed);
    }

    /// How many idle frames one waiter is woken for, while pages are being written.
    pub(crate) fn batch(&self) -> u32 {
        self.batch.load(Ordering::Relaxed)
    }

    fn with_batch(batch: u32) -> Self {
        Self { batch: AtomicU32::new(batch), ..Self::default() }
    }

    fn key(&self) -> WaitKey {
        WaitKey::of(&self.events)
    }

    /// That of the threads that are overdue.
    fn overdue_key(&self) -> WaitKey {
        WaitKey::of(&self.batched)
    }

    /// Waits for a frame, unless one became idle since `seen`; before all others, if that is
    /// overdue.
    pub(crate) fn wait(
        &self,
        waits: &WaitTable<WaitKey>,
        seen: u32,
        is_overdue: bool,
        how: Wait,
    ) -> Outcome {
        let key = if is_overdue { self.overdue_key() } else { self.key() };
        waits.wait(&key, || self.events.is_still(seen), how)
    }

    /// As [`FrameWaiters::wait`], in a task, which is told nothing but [`LOOK`].
    #[cfg(feature = "async")]
    pub(crate) async fn wait_async(
        &self,
        waits: &WaitTable<WaitKey>,
        seen: u32,
        reason: Reason,
        deadline: Tag,
    ) -> Outcome {
        debug_assert_ne!(deadline, THREAD);
        let how = Wait::new(reason).tag(deadline);
        let still = || self.events.is_still(seen);
        let waiting = pin!(Some(waits.wait_async(&self.key(), still, how)));
        let mut place = PlaceGuard(waiting);
        poll_fn(|context| match place.0.as_mut().as_pin_mut() {
            Some(wait) => wait.poll(context),
            // It leaves with the guard only.
            None => Poll::Ready(Outcome::Invalid),
        })
        .await
    }

    /// Frames became idle: has waiters look, as many of them, or, while pages are being written,
    /// one for each batch of frames.
    pub(crate) fn notify(&self, waits: &WaitTable<WaitKey>, frames: usize) -> Notified {
        if frames == 0 || self.events.is_empty() {
            return Notified::default();
        }
        let frames = u32::try_from(frames).unwrap_or(u32::MAX).min(u32::MAX / 8);
        // ORDER[LEFT]: Relaxed, behind the fence of `is_empty`; so it pairs with the Acquire in
        // `release`.
        let before = self.batched.0.fetch_add(frames, Ordering::Relaxed);
        if before + frames < self.batch() && self.is_young(before == 0) {
            // ORDER[BATCH]: SeqCst fence (C); pairs with (D) in `end_write_back`: that sees what is
            // batched, or this sees that nothing is being written.
            fence(Ordering::SeqCst);
            if self.writing.load(Ordering::Relaxed) > 0 {
                return Notified::default();
            }
        }
        self.release(waits)
    }

    /// Whether the frames that are batched are batched for a short time only.
    #[cfg(not(any(loom, shuttle)))]
    fn is_young(&self, is_first: bool) -> bool {
        let now = Timestamp::now();
        if is_first {
            self.batched_since.store(now.as_ns(), Ordering::Relaxed);
            return true;
        }
        let since = Timestamp::from_ns(self.batched_since.load(Ordering::Relaxed));
        now.since(since) < BATCH_WAIT_MAX
    }

    // No time passes in a model.
    #[cfg(any(loom, shuttle))]
    fn is_young(&self, _: bool) -> bool {
        true
    }

    /// Has waiters look for what is batched.
    fn release(&self, waits: &WaitTable<WaitKey>) -> Notified {
        // ORDER[LEFT]: Acquire; pairs with the addition in `notify`, and the fence before that: the
        // frames may be another thread's.
        let batched = self.batched.0.swap(0, Ordering::Acquire);
        if batched == 0 {
            return Notified::default();
        }
        let is_writing = self.writing.load(Ordering::Relaxed) > 0;
        let waiters = if is_writing { batched.div_ceil(self.batch()) } else { batched };
        if waiters < batched {
            // ORDER[LEFT]: Release; pairs with the Acquire in `take_left`, also through the swaps
            // of others between: who takes it sees the frames of all.
            self.left.swap(true, Ordering::Release);
        }
        self.events.advance();
        let mut notified = Notified::default();
        let overdue = waits.wake_with(&self.overdue_key(), waiters as usize, LOOK);
        let others = waiters - overdue.total() as u32;
        let mut to_wake = others;
        let choose = |tag| {
            notified.has_task |= tag != THREAD;
            to_wake -= 1;
            if to_wake == 0 { Verdict::WakeAndStop } else { Verdict::Wake }
        };
        if others > 0 {
            run_foreign(|| waits.wake_where(&self.key(), choose, LOOK));
        }
        if waiters == batched {
            return notified;
        }
        // ORDER[BATCH]: SeqCst fence (C); pairs with (D) in `end_write_back`: that sees that frames
        // are left, or this sees that nothing is being written. The wake has a fence as well, but
        // does not promise it, so no model fails without this one.
        fence(Ordering::SeqCst);
        notified.has_left = self.writing.load(Ordering::Relaxed) == 0 && self.take_left();
        notified
    }

    /// Whether frames are left; then the caller sees to it.
    fn take_left(&self) -> bool {
        // ORDER[LEFT]: Acquire; pairs with the Release in `release`: the caller finds the frames.
        self.left.load(Ordering::Relaxed) && self.left.swap(false, Ordering::Acquire)
    }

    /// How many write-backs are under way, at a glance.
    #[cfg(not(loom))]
    pub(crate) fn writing(&self) -> u32 {
        self.writing.load(Ordering::Relaxed)
    }

    /// A write-back begins.
    pub(crate) fn begin_write_back(&self) {
        self.writing.fetch_add(1, Ordering::Relaxed);
    }

    /// A write-back has ended, and its frames have become idle.
    pub(crate) fn end_write_back(&self, waits: &WaitTable<WaitKey>, frames: usize) -> Notified {
        let notified = self.notify(waits, frames);
        if self.writing.fetch_sub(1, Ordering::Relaxed) > 1 {
            return notified;
        }
        // ORDER[BATCH]: SeqCst fence (D); pairs with (C) in `notify` and in `release`.
        fence(Ordering::SeqCst);
        let released = self.release(waits);
        Notified {
            has_left: notified.has_left | released.has_left | self.take_left(),
            has_task: notified.has_task | released.has_task,
        }
    }

    /// Wakes the one that has waited longest with a token of its own, if that is a thread, or one
    /// that is overdue; whether there was one.
    #[cfg(not(loom))]
    pub(crate) fn hand(&self, waits: &WaitTable<WaitKey>, token: Token) -> bool {
        let first = |tag| {
            if tag == THREAD { Verdict::WakeAndStop } else { Verdict::Stop }
        };
        waits.wake_with(&self.overdue_key(), 1, token) > 0
            || waits.wake_where(&self.key(), first, token) > 0
    }

    /// How many are in the queue, and in that of those that are overdue.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn queues(&self, waits: &WaitTable<WaitKey>) -> (usize, usize) {
        let count = |key| {
            let mut waiters = 0;
            let shown = |_| {
                waiters += 1;
                Verdict::Skip
            };
            waits.wake_where(&key, shown, LOOK);
            waiters
        };
        (count(self.key()), count(self.overdue_key()))
    }

    /// Wakes the tasks whose deadline has come by `now`. Gives the next deadline, if there is one.
    #[cfg(not(loom))]
    pub(crate) fn expire(&self, waits: &WaitTable<WaitKey>, now: Timestamp) -> Option<Timestamp> {
        let mut next = None;
        let expired = |tag: Tag| {
            if tag == THREAD {
                return Verdict::Skip;
            }
            let deadline = Timestamp::from_ns(tag.0);
            if deadline <= now {
                return Verdict::Wake;
            }
            next = Some(next.map_or(deadline, |next: Timestamp| next.min(deadline)));
            Verdict::Skip
        };
        run_foreign(|| waits.wake_where(&self.key(), expired, LOOK));
        next
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use unherd_sync::Ledger;
    use unherd_sys::Deadline;
    use unherd_sys::primitives::{Mutex, thread};

    use super::*;

    #[test]
    fn who_is_overdue_is_told_first() {
        let waits = WaitTable::<WaitKey>::builder().build();
        let waiters = FrameWaiters::new();
        let reason = Reason::register("test-overdue");
        let tellings: [fn(&FrameWaiters, &WaitTable<WaitKey>); 2] = [
            |waiters, waits| assert!(!waiters.notify(waits, 1).has_task),
            |waiters, waits| assert!(waiters.hand(waits, Token(7))),
        ];
        for tell in tellings {
            let woken = Mutex::new(Vec::new());
            thread::scope(|scope| {
                let (waits, waiters, woken) = (&waits, &waiters, &woken);
                let before = Ledger::snapshot().reason(reason).waits;
                for (nth, is_overdue) in [false, true].into_iter().enumerate() {
                    scope.spawn(move || {
                        let _entered = waiters.events.enter();
                        // So that a failure is no hang.
                        let how =
                            Wait::new(reason).deadline(Deadline::after(Duration::from_secs(60)));
                        let outcome = waiters.wait(waits, waiters.events.epoch(), is_overdue, how);
                        assert!(matches!(outcome, Outcome::Woken(_)), "{outcome:?}");
                        woken.lock().push(is_overdue);
                    });
                    while Ledger::snapshot().reason(reason).waits - before <= nth as u64 {
                        thread::yield_now();
                    }
                }
                for nth in 0..2 {
                    tell(waiters, waits);
                    while woken.lock().len() <= nth {
                        thread::yield_now();
                    }
                }
            });
            assert_eq!(*woken.lock(), [true, false]);
        }
    }
}

#[cfg(all(test, loom))]
mod loom {
    use std::task::{Context, Waker};

    use unherd_sys::primitives::{Arc, thread};

    use super::*;

    /// What one is told who is handed a frame.
    const HANDED: Token = Token(1);

    /// Takes a frame, if it is idle. The search loads the word first, which may be stale; an
    /// exchange never is in loom.
    fn claim(word: &AtomicU32) -> bool {
        word.load(Ordering::Relaxed) == 1
            && word.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    struct Scene {
        waits: WaitTable<WaitKey>,
        waiters: FrameWaiters,
        /// Stands for the words of two frames: whether they are idle.
        idle: [AtomicU32; 2],
    }

    impl Scene {
        fn new() -> Self {
            Self::with_batch(1)
        }

        fn with_batch(batch: u32) -> Self {
            Self {
                waits: WaitTable::<WaitKey>::builder().buckets(1).seed(1).build(),
                waiters: FrameWaiters::with_batch(batch),
                idle: [AtomicU32::new(0), AtomicU32::new(0)],
            }
        }

        /// Takes this many frames, one after the other, and misses none. Once woken, it is overdue.
        fn take(&self, frames: usize) {
            let Self { waits, waiters, idle } = self;
            let _entered = waiters.events.enter();
            let (mut taken, mut was_woken) = (0, false);
            while taken < frames {
                let seen = waiters.events.epoch();
                if idle.iter().any(claim) {
                    taken += 1;
                    continue;
                }
                let outcome = waiters.wait(waits, seen, was_woken, Wait::new(Reason::OTHER));
                taken += usize::from(outcome == Outcome::Woken(HANDED));
                was_woken |= matches!(outcome, Outcome::Woken(_));
            }
        }

        /// Tells, or ends a write-back with this many frames, and hands frames out if asked to.
        fn end_write_back(&self, frames: usize) {
            let Self { waits, waiters, idle } = self;
            if waiters.end_write_back(waits, frames).has_left {
                for word in
                    (0..waiters.events.count()).map_while(|_| idle.iter().find(|word| claim(word)))
                {
                    let handed = |key| waits.wake_with(&key, 1, HANDED) > 0;
                    if !handed(waiters.overdue_key()) && !handed(waiters.key()) {
                        store_and_tell(self, word);
                    }
                }
            }
        }
    }

    /// Looks at all runs with at most that many preemptions.
    fn check(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.max_branches = 20_000;
        model.check(run);
    }

    /// Each frame that becomes idle is found by the search, or ends the wait.
    fn no_wakeup_is_lost(frames: usize, make_idle: fn(&Scene, &AtomicU32)) {
        check(3, move || {
            let scene = Arc::new(Scene::new());
            let waiter = {
                let scene = scene.clone();
                thread::spawn(move || scene.take(frames))
            };
            for word in &scene.idle[..frames] {
                make_idle(&scene, word);
            }
            waiter.join().unwrap();
        });
    }

    fn store_and_tell(scene: &Scene, word: &AtomicU32) {
        word.store(1, Ordering::Relaxed);
        assert!(
            !scene.waiters.notify(&scene.waits, 1).has_left,
            "nothing is being written, or it is batched"
        );
    }

    /// As an unpin does.
    fn count_and_look(scene: &Scene, word: &AtomicU32) {
        word.fetch_add(1, Ordering::Relaxed);
        if !scene.waiters.events.is_empty_after_rmw() {
            assert!(!scene.waiters.notify(&scene.waits, 1).has_left, "nothing is being written");
        }
    }

    /// The wake for the one frame may choose a task, which is dropped: the thread gets it.
    #[test]
    fn a_frame_of_which_a_dropped_task_was_told_ends_the_wait_of_the_next() {
        check(2, || {
            let scene = Arc::new(Scene::new());
            let waiter = {
                let scene = scene.clone();
                thread::spawn(move || scene.take(1))
            };
            let dropped = {
                let scene = scene.clone();
                thread::spawn(move || {
                    let Scene { waits, waiters, idle } = &*scene;
                    let _entered = waiters.events.enter();
                    let seen = waiters.events.epoch();
                    if idle[0].load(Ordering::Relaxed) == 0 {
                        let wait = pin!(waiters.wait_async(waits, seen, Reason::OTHER, Tag(1)));
                        let _ = wait.poll(&mut Context::from_waker(Waker::noop()));
                    }
                })
            };
            store_and_tell(&scene, &scene.idle[0]);
            dropped.join().unwrap();
            waiter.join().unwrap();
        });
    }

    /// One frame, of a batch of two, becomes idle while the last write-back ends.
    #[test]
    fn a_batched_frame_ends_the_wait_when_writing_ends() {
        check(4, || {
            let scene = Arc::new(Scene::with_batch(2));
            scene.waiters.begin_write_back();
            let waiter = {
                let scene = scene.clone();
                thread::spawn(move || scene.take(1))
            };
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || scene.end_write_back(0))
            };
            store_and_tell(&scene, &scene.idle[0]);
            writer.join().unwrap();
            waiter.join().unwrap();
        });
    }

    /// Two write-backs give a frame each; the one that ends last tells of both.
    #[test]
    fn the_last_write_back_tells_of_all_frames() {
        check(2, || {
            let scene = Arc::new(Scene::with_batch(3));
            scene.waiters.begin_write_back();
            scene.waiters.begin_write_back();
            let waiter = {
                let scene = scene.clone();
                thread::spawn(move || scene.take(2))
            };
            let end = |scene: &Scene, frame: usize| {
                scene.idle[frame].store(1, Ordering::Relaxed);
                scene.end_write_back(1);
            };
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || end(&scene, 1))
            };
            end(&scene, 0);
            writer.join().unwrap();
            waiter.join().unwrap();
        });
    }

    /// Both frames become idle at once, as a batch, for which one waiter is woken. Each wants one.
    #[test]
    fn who_is_left_is_handed_a_frame_when_writing_ends() {
        check(2, || {
            let scene = Arc::new(Scene::with_batch(2));
            scene.waiters.begin_write_back();
            let waiter = || {
                let scene = scene.clone();
                thread::spawn(move || scene.take(1))
            };
            let waiters = [waiter(), waiter()];
            scene.idle.iter().for_each(|word| word.store(1, Ordering::Relaxed));
            scene.end_write_back(2);
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        });
    }

    /// As before, while another write-back ends.
    #[test]
    fn the_other_end_of_writing_sees_who_is_left() {
        check(2, || {
            let scene = Arc::new(Scene::with_batch(2));
            scene.waiters.begin_write_back();
            scene.waiters.begin_write_back();
            // The other waiter, who does not look again.
            let _entered = scene.waiters.events.enter();
            let waiter = {
                let scene = scene.clone();
                thread::spawn(move || scene.take(1))
            };
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || {
                    let hands_out = scene.waiters.end_write_back(&scene.waits, 0).has_left;
                    let finds = |word: &AtomicU32| word.load(Ordering::Relaxed) > 0;
                    assert!(!hands_out || scene.idle.iter().all(finds));
                    hands_out
                })
            };
            scene.idle.iter().for_each(|word| word.store(1, Ordering::Relaxed));
            let here = scene.waiters.end_write_back(&scene.waits, 2).has_left;
            let there = writer.join().unwrap();
            assert!(here != there, "one of them hands frames out");
            waiter.join().unwrap();
        });
    }

    /// Which frames one sees that is to hand them out.
    fn seen(scene: &Scene, notified: Notified) -> [bool; 2] {
        scene.idle.each_ref().map(|word| notified.has_left && word.load(Ordering::Relaxed) == 1)
    }

    /// Two leave frames while the last write-back ends: the one that hands them out sees all. Each
    /// makes two idle, of which one word stands for both.
    #[test]
    fn who_hands_out_what_two_have_left_sees_all() {
        check(3, || {
            let scene = Arc::new(Scene::with_batch(2));
            scene.waiters.begin_write_back();
            let _entered = scene.waiters.events.enter();
            let mut context = Context::from_waker(Waker::noop());
            let Scene { waits, waiters, .. } = &*scene;
            let wait = || Box::pin(waiters.wait_async(waits, 0, Reason::OTHER, Tag(1)));
            let mut tasks = [wait(), wait(), wait()];
            for task in &mut tasks {
                assert!(task.as_mut().poll(&mut context).is_pending());
            }
            let leave = |scene: &Scene, frame: usize| {
                scene.idle[frame].store(1, Ordering::Relaxed);
                seen(scene, scene.waiters.notify(&scene.waits, 2))
            };
            let other = {
                let scene = scene.clone();
                thread::spawn(move || leave(&scene, 1))
            };
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || seen(&scene, scene.waiters.end_write_back(&scene.waits, 0)))
            };
            let all = [leave(&scene, 0), other.join().unwrap(), writer.join().unwrap()];
            let polled = tasks.iter_mut().map(|task| task.as_mut().poll(&mut context));
            // One of two was woken each time, so the other was left.
            if polled.filter(Poll::is_ready).count() == 2 {
                assert!((0..2).all(|frame| all.iter().any(|by| by[frame])), "{all:?}");
            }
        });
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
