//! A number of permits that threads and tasks take and give back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unherd_sys::Deadline;

use super::raw_semaphore::{PERMITS_MAX, RawSemaphore};

/// A number of permits: a thread that wants one when none is left sleeps until others give some
/// back.
///
/// Four bytes. Can stand in a `static`; no path allocates.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::Semaphore;
///
/// static CONNECTIONS: Semaphore = Semaphore::new(2);
/// std::thread::scope(|scope| {
///     for _ in 0..8 {
///         scope.spawn(|| {
///             let _one = CONNECTIONS.acquire(1);
///             // At most two threads at a time are here.
///         });
///     }
/// });
/// assert_eq!(CONNECTIONS.available(), 2);
/// ```
///
/// # Fairness
/// Waiters stand in one queue, whatever number they wait for: one that needs many keeps those
/// behind it waiting. `BARGING_US` is how long, in microseconds, running threads may take permits
/// ahead of those that sleep: 1,000, unless the type says otherwise ([`Semaphore::with_barging`]).
/// Once in that time permits are handed over to those that stand first; where there are too few for
/// the first, the semaphore is *closed*: nobody else gets any until there are enough for the first,
/// or it gives up. Tasks are handed theirs at any time. A thread that was woken and came too late
/// stands last again. 0 hands over at each release, which costs a switch of threads each time.
///
/// A waiter that needs more permits than there ever are so keeps all others out for ever, unless it
/// has a deadline. The semaphore cannot refuse it: [`Semaphore::release`] may add permits at any
/// time.
///
/// # Panics
/// [`Semaphore::release`] panics if there were more than [`Semaphore::PERMITS_MAX`] permits, and so
/// does the drop of [`Permits`]; an acquisition that may sleep, if it asks for more than these.
pub struct Semaphore<const BARGING_US: u32 = 1000>(RawSemaphore);

impl<const B: u32> fmt::Debug for Semaphore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish_non_exhaustive()
    }
}

/// Permits that were taken from a [`Semaphore`]: gives them back on drop. May go to another thread.
#[derive(Debug)]
#[must_use = "the permits are given back as soon as this is dropped"]
pub struct Permits<'a, const BARGING_US: u32 = 1000> {
    semaphore: &'a Semaphore<BARGING_US>,
    n: u32,
}

/// As [`Permits`], of a semaphore in an [`Arc`], which they keep: so they can stand in a struct, or
/// go to a task that is spawned.
#[derive(Debug)]
#[must_use = "the permits are given back as soon as this is dropped"]
pub struct OwnedPermits<const BARGING_US: u32 = 1000> {
    semaphore: Arc<Semaphore<BARGING_US>>,
    n: u32,
}

impl Semaphore {
    /// A semaphore with `permits` free permits, and 1 ms of barging.
    ///
    /// # Panics
    /// If `permits` is more than [`Semaphore::PERMITS_MAX`].
    #[track_caller]
    pub const fn new(permits: u32) -> Self {
        Self::with_barging(permits)
    }
}

impl<const BARGING_US: u32> Semaphore<BARGING_US> {
    /// The most permits of a semaphore: 2²⁹ − 1.
    pub const PERMITS_MAX: u32 = PERMITS_MAX;

    const BARGING: Duration = Duration::from_micros(BARGING_US as u64);

    /// As [`Semaphore::new`], with the fairness that the type names, as in
    /// `Semaphore::<0>::with_barging(2)`.
    ///
    /// # Panics
    /// As [`Semaphore::new`].
    #[track_caller]
    pub const fn with_barging(permits: u32) -> Self {
        assert!(permits <= PERMITS_MAX, "a semaphore has 2^29 - 1 permits at most");
        Self(RawSemaphore::new(permits))
    }

    /// Takes `n` permits. Sleeps, under the reason `semaphore`, until there are as many.
    ///
    /// One compare-and-swap if there are. Else it spins for some microseconds, and then sleeps in
    /// the wait table that all locks share. Waits for ever if there are never as many, and keeps
    /// all others out then. Never sleeps for none.
    ///
    /// **Not on a thread of an executor (async runtime) whose tasks take permits by
    /// `acquire_async`: a thread that polls tasks must not block on what these tasks await.**
    /// Permits that a task has, or was handed, come back only when it is polled; if the thread that
    /// would poll it sleeps here, both wait for ever.
    #[track_caller]
    pub fn acquire(&self, n: u32) -> Permits<'_, BARGING_US> {
        self.0.acquire(n, Self::BARGING, Deadline::NEVER);
        Permits { semaphore: self, n }
    }

    /// Takes `n` permits, if there are as many and the semaphore is not closed. Never sleeps.
    pub fn try_acquire(&self, n: u32) -> Option<Permits<'_, BARGING_US>> {
        self.0.try_acquire(n).then(|| Permits { semaphore: self, n })
    }

    /// As [`Semaphore::acquire`]; `None` if the deadline came first.
    #[track_caller]
    pub fn acquire_until(&self, n: u32, deadline: Deadline) -> Option<Permits<'_, BARGING_US>> {
        self.0.acquire(n, Self::BARGING, deadline).then(|| Permits { semaphore: self, n })
    }

    /// As [`Semaphore::acquire`], in an async task: tasks and threads stand in one queue. No
    /// runtime is needed.
    ///
    /// A future that is dropped gives back what it was given; one that was given permits keeps them
    /// until it is polled or dropped. So do not leave the future lying about. There is no deadline:
    /// drop it when its timer says so.
    ///
    /// **A thread that polls such tasks must not block on the semaphore itself, by
    /// [`Semaphore::acquire`]**: it may wait for a task that it alone would poll.
    ///
    /// ```
    /// # use unherd_sync as unherd;
    /// async fn limited(requests: &unherd::Semaphore) {
    ///     let _one = requests.acquire_async(1).await;
    /// }
    /// ```
    #[cfg(feature = "async")]
    pub async fn acquire_async(&self, n: u32) -> Permits<'_, BARGING_US> {
        self.0.acquire_async(n, Self::BARGING).await;
        Permits { semaphore: self, n }
    }

    /// As [`Semaphore::acquire`]; the permits keep the semaphore.
    ///
    /// ```
    /// # use unherd_sync as unherd;
    /// use std::sync::Arc;
    /// let requests = Arc::new(unherd::Semaphore::new(2));
    /// let one = requests.acquire_owned(1);
    /// std::thread::spawn(move || drop(one)).join().unwrap();
    /// assert_eq!(requests.available(), 2);
    /// ```
    #[track_caller]
    pub fn acquire_owned(self: &Arc<Self>, n: u32) -> OwnedPermits<BARGING_US> {
        self.acquire(n).into_owned(self)
    }

    /// As [`Semaphore::try_acquire`]; the permits keep the semaphore.
    pub fn try_acquire_owned(self: &Arc<Self>, n: u32) -> Option<OwnedPermits<BARGING_US>> {
        self.try_acquire(n).map(|permits| permits.into_owned(self))
    }

    /// As [`Semaphore::acquire_async`]; the permits keep the semaphore, and so does the future.
    #[cfg(feature = "async")]
    pub async fn acquire_owned_async(self: Arc<Self>, n: u32) -> OwnedPermits<BARGING_US> {
        self.acquire_async(n).await.into_owned(&self)
    }

    /// Adds `n` permits, also such as nobody took, and wakes those that have waited for them.
    ///
    /// One compare-and-swap if nobody waits, or one that was woken is on its way. Else the bucket
    /// lock as well, and a wakeup: of the first waiter, which wakes the next if permits are left,
    /// or at a hand-over of each that gets some.
    #[track_caller]
    pub fn release(&self, n: u32) {
        self.0.release(n, Self::BARGING);
    }

    /// How many permits are free, or were just now.
    pub fn available(&self) -> u32 {
        self.0.available()
    }
}

impl<const BARGING_US: u32> Permits<'_, BARGING_US> {
    /// How many they are.
    pub fn count(&self) -> u32 {
        self.n
    }

    /// Does not give them back; [`Semaphore::release`] may do so later.
    pub fn forget(self) {
        std::mem::forget(self);
    }

    /// These of `semaphore`, which they were taken from.
    fn into_owned(self, semaphore: &Arc<Semaphore<BARGING_US>>) -> OwnedPermits<BARGING_US> {
        let owned = OwnedPermits { semaphore: Arc::clone(semaphore), n: self.n };
        self.forget();
        owned
    }
}

impl<const BARGING_US: u32> OwnedPermits<BARGING_US> {
    /// How many they are.
    pub fn count(&self) -> u32 {
        self.n
    }

    /// Does not give them back; [`Semaphore::release`] may do so later.
    pub fn forget(mut self) {
        self.n = 0;
    }
}

impl<const BARGING_US: u32> Drop for OwnedPermits<BARGING_US> {
    fn drop(&mut self) {
        self.semaphore.release(self.n);
    }
}

impl<const BARGING_US: u32> Drop for Permits<'_, BARGING_US> {
    fn drop(&mut self) {
        self.semaphore.release(self.n);
    }
}
