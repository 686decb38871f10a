//! When the I/O thread is to look after tasks, which have no clock, and after dirty pages.
//!
//! It looks for these reasons. Pages are dirty for so long that they are to be written back
//! (`file/expiry.rs`), or that has begun and is to go on. A task's deadline has come. Or a task was
//! notified about a frame: if it is not polled within [`POLL_WAIT`], the frame is given to those
//! behind it in the queue. So a task that its executor has forgotten keeps no thread asleep beside
//! an idle frame.

use std::time::Duration;

use unherd_sys::primitives::{Arc, AtomicBool, Mutex, Ordering};
use unherd_sys::{Deadline, Device, Timestamp};

/// How long a task may take from its wake to its poll before others get the frame. One that takes
/// longer loses its turn, so this is longer than a busy executor usually takes.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// The I/O thread looks no more often for pages that cannot be written.
const DIRTY_EXPIRE_MIN: Duration = Duration::from_millis(1);

/// Why the I/O thread is to look.
#[derive(Debug, Clone, Copy)]
enum Why {
    /// The first task's deadline has come, or comes later.
    Deadline,
    /// The task that was notified last should have been polled.
    Polled,
    /// Dirty pages are to be written back.
    Expiry,
    /// That is to go on.
    GoesOn,
}

/// When, for each [`Why`].
#[derive(Debug)]
struct Times([Deadline; 4]);

impl Times {
    fn next(&self) -> Deadline {
        self.0.into_iter().fold(Deadline::NEVER, Deadline::earlier)
    }

    fn of(&mut self, why: Why) -> &mut Deadline {
        &mut self.0[why as usize]
    }
}

/// The times for which the I/O thread is woken.
pub(crate) struct Alarm {
    /// Whose `reap` the I/O thread sleeps in.
    queue: Arc<dyn Device>,
    times: Mutex<Times>,
    /// How long pages may be dirty.
    dirty_expire: Duration,
    /// Whether the time for dirty pages is set; always, if there is none. Relaxed: locks order it,
    /// see `file/expiry.rs`.
    is_expiry_set: AtomicBool,
}

impl Alarm {
    pub(crate) fn new(queue: Arc<dyn Device>, dirty_expire: Duration) -> Self {
        let times = Mutex::new(Times([Deadline::NEVER; 4]));
        // In a simulation no time passes.
        let is_never = dirty_expire == Duration::MAX || cfg!(shuttle);
        let is_expiry_set = AtomicBool::new(is_never);
        let dirty_expire = dirty_expire.max(DIRTY_EXPIRE_MIN);
        Self { queue, times, dirty_expire, is_expiry_set }
    }

    /// A page has become dirty: has the I/O thread look at it in time.
    #[inline]
    pub(crate) fn note_dirty(&self) {
        if !self.is_expiry_set.load(Ordering::Relaxed) {
            self.set_expiry();
        }
    }

    #[cold]
    fn set_expiry(&self) {
        self.is_expiry_set.store(true, Ordering::Relaxed);
        let at = Deadline::after(self.dirty_expire);
        self.set(Why::Expiry, |time| time.earlier(at));
    }

    /// The caller, which is the I/O thread, is to go on with dirty pages after this time at the
    /// latest; no more, if there is none.
    pub(crate) fn go_on_after(&self, after: Option<Duration>) {
        let mut times = self.times.lock();
        let goes_on = times.of(Why::GoesOn);
        *goes_on = after.map_or(Deadline::NEVER, |after| goes_on.earlier(Deadline::after(after)));
    }

    /// The time of the next look.
    pub(crate) fn next(&self) -> Deadline {
        self.times.lock().next()
    }

    /// Has the I/O thread look at the deadlines of tasks at `at`. The caller's task is in its queue
    /// by then.
    pub(crate) fn set_deadline(&self, at: Timestamp) {
        self.set(Why::Deadline, |time| time.earlier(Deadline::at(at)));
    }

    /// A task was notified about a frame just now.
    pub(crate) fn note_notified(&self) {
        // This puts off the look for a task that was notified before. Then that frame is found by a
        // later look, or by the next waiter that is woken.
        let at = Deadline::after(POLL_WAIT);
        self.set(Why::Polled, |_| at);
    }

    /// Changes a time, and wakes the I/O thread if the next is earlier now.
    fn set(&self, why: Why, change: impl FnOnce(Deadline) -> Deadline) {
        {
            let mut times = self.times.lock();
            let before = times.next();
            *times.of(why) = change(*times.of(why));
            let after = times.next();
            if after.earlier(before) == before {
                return;
            }
        }
        self.queue.interrupt();
    }

    /// What has come, which is set no longer: so one who sets it while the caller sees to it has
    /// the caller look again. Whether it is a task's deadline, a task's poll, the expiry of dirty
    /// pages, or that this goes on.
    pub(crate) fn take_due(&self) -> [bool; 4] {
        let mut times = self.times.lock();
        if times.next() == Deadline::NEVER {
            return [false; 4];
        }
        let now = Timestamp::now();
        let due = times.0.map(|time| time.has_passed(now));
        for (time, is_due) in times.0.iter_mut().zip(due) {
            if is_due {
                *time = Deadline::NEVER;
            }
        }
        if due[Why::Expiry as usize] {
            self.is_expiry_set.store(false, Ordering::Relaxed);
        }
        due
    }
}
