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

#[derive(Debug)]
struct Times {
    /// When the first task's deadline comes, or earlier.
    deadline: Deadline,
    /// When the task that was notified last should have been polled.
    polled: Deadline,
    /// When dirty pages are to be written back.
    expiry: Deadline,
    /// When that goes on.
    goes_on: Deadline,
}

impl Times {
    fn next(&self) -> Deadline {
        self.deadline.earlier(self.polled).earlier(self.expiry).earlier(self.goes_on)
    }
}

/// What has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Due {
    pub(crate) deadline: bool,
    pub(crate) polled: bool,
    pub(crate) expiry: bool,
    pub(crate) goes_on: bool,
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
        let never = Deadline::NEVER;
        let times = Times { deadline: never, polled: never, expiry: never, goes_on: never };
        // In a simulation no time passes.
        let is_never = dirty_expire == Duration::MAX || cfg!(shuttle);
        let is_expiry_set = AtomicBool::new(is_never);
        let dirty_expire = dirty_expire.max(DIRTY_EXPIRE_MIN);
        Self { queue, times: Mutex::new(times), dirty_expire, is_expiry_set }
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
        let at = Deadline::at(Timestamp::now().after(self.dirty_expire));
        self.set(|times| times.expiry = times.expiry.earlier(at));
    }

    /// The caller, which is the I/O thread, is to go on with dirty pages after this time at the
    /// latest; no more, if there is none.
    pub(crate) fn go_on_after(&self, after: Option<Duration>) {
        let mut times = self.times.lock();
        times.goes_on = after.map_or(Deadline::NEVER, |after| {
            times.goes_on.earlier(Deadline::at(Timestamp::now().after(after)))
        });
    }

    /// The time of the next look.
    pub(crate) fn next(&self) -> Deadline {
        self.times.lock().next()
    }

    /// Has the I/O thread look at the deadlines of tasks at `at`. The caller's task is in its queue
    /// by then.
    pub(crate) fn set_deadline(&self, at: Timestamp) {
        self.set(|times| times.deadline = times.deadline.earlier(Deadline::at(at)));
    }

    /// A task was notified about a frame just now.
    pub(crate) fn note_notified(&self) {
        // This puts off the look for a task that was notified before. Then that frame is found by a
        // later look, or by the next waiter that is woken.
        let at = Deadline::at(Timestamp::now().after(POLL_WAIT));
        self.set(|times| times.polled = at);
    }

    /// Changes the times, and wakes the I/O thread if the next is earlier now.
    fn set(&self, change: impl FnOnce(&mut Times)) {
        {
            let mut times = self.times.lock();
            let before = times.next();
            change(&mut times);
            let after = times.next();
            if after.earlier(before) == before {
                return;
            }
        }
        self.queue.interrupt();
    }

    /// What has come, which is set no longer: so one who sets it while the caller sees to it has
    /// the caller look again.
    pub(crate) fn take_due(&self) -> Due {
        let mut times = self.times.lock();
        let now = match times.next() {
            Deadline::NEVER => return Due::default(),
            _ => Timestamp::now(),
        };
        let take = |time: &mut Deadline| {
            let has_come = time.has_passed(now);
            if has_come {
                *time = Deadline::NEVER;
            }
            has_come
        };
        let due = Due {
            deadline: take(&mut times.deadline),
            polled: take(&mut times.polled),
            expiry: take(&mut times.expiry),
            goes_on: take(&mut times.goes_on),
        };
        if due.expiry {
            self.is_expiry_set.store(false, Ordering::Relaxed);
        }
        due
    }
}
