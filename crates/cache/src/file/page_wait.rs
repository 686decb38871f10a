//! The waits of a call for a page, or to write to a file: a thread never waits for itself.
//!
//! While a [`PageMut`](crate::PageMut) lives, its page is *changing*: readers and writers of it
//! wait, and so do syncs of the file; a thread that changes the file's length waits because the
//! guard is inside `file.writers`. A thread that does one of these while it holds the guard would
//! wait for itself. So it remembers what it holds, and looks at that where it would sleep:
//!
//! | the thread holds a `PageMut` and calls | it would wait | instead |
//! |---|---|---|
//! | a read or write of that page | for the page, `page-change` | [`Error::WouldDeadlock`] |
//! | `sync_all` of the file | for the page, `page-change` | the same, before anything is done |
//! | `set_len` of the file | in `file.writers` | the same |
//! | `invalidate` of the file | for the page, `page-change` | the same |
//! | `close` of the file | for nothing, but the page would never be written | the same |
//! | a write elsewhere in the file, while another is in `set_len` | in `file.writers`, for one that waits for it | it enters again |

use std::cell::RefCell;

use unherd_sys::Timestamp;
use unherd_sys::primitives::thread_local;

use crate::Error;
use crate::file::{Core, FileState};
use crate::latch::InsideGuard;
use crate::page::{FileId, PageKey, PageNo};
use crate::pages::{Busy, WakeMessage, Want};

/// The part of the frame deadline that a waiter does without, to give up together with others.
const LAST_PART: u32 = 16;

thread_local! {
    /// The pages that this thread holds; few.
    static HELD: RefCell<Vec<HeldPage>> = const { RefCell::new(Vec::new()) };
}

/// A page that a thread holds by a `PageMut`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldPage {
    /// The number of the cache. Not its address: another may come to lie there, and a guard that
    /// was forgotten is remembered.
    cache: u64,
    key: PageKey,
}

impl HeldPage {
    pub(crate) fn new(core: &Core, key: PageKey) -> Self {
        Self { cache: core.number, key }
    }

    /// A page that this thread holds and that `is_it`. Where the thread's locals are gone, it holds
    /// none.
    fn find(is_it: impl Fn(&Self) -> bool) -> Option<PageNo> {
        let find = |held: &RefCell<Vec<Self>>| {
            held.borrow().iter().find(|held| is_it(held)).map(|held| held.key.page)
        };
        HELD.try_with(find).ok().flatten()
    }

    pub(crate) fn begin(self) {
        let _ = HELD.try_with(|held| held.borrow_mut().push(self));
    }

    pub(crate) fn end(self) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|held| *held == self) {
                held.swap_remove(at);
            }
        });
    }
}

fn not_held(file: &FileState, held: Option<PageNo>) -> Result<(), Error> {
    match held {
        Some(page) => Err(Error::WouldDeadlock { file: file.path.clone(), page: page.0 }),
        None => Ok(()),
    }
}

impl Core {
    /// Refuses to wait for a page that this thread holds.
    pub(crate) fn check_not_held(&self, file: &FileState, key: PageKey) -> Result<(), Error> {
        let this = HeldPage::new(self, key);
        not_held(file, HeldPage::find(|held| *held == this))
    }

    /// Refuses what would wait for any page of the file that this thread holds.
    pub(crate) fn check_none_held(&self, file: &FileState) -> Result<(), Error> {
        not_held(file, self.held_in(file.id))
    }

    fn held_in(&self, file: FileId) -> Option<PageNo> {
        HeldPage::find(|held| held.cache == self.number && held.key.file == file)
    }

    /// Lets the caller write to the file. Waits under `file` while its length is being changed.
    pub(crate) fn enter_writers<'a>(&'a self, file: &'a FileState) -> InsideGuard<'a> {
        let writers = file.writers.mine();
        if !writers.try_enter() {
            match self.held_in(file.id) {
                Some(_) => writers.enter_again(),
                None => writers.enter(self.waits(), self.reasons().file),
            }
        }
        InsideGuard::new(writers, self.waits())
    }

    /// Blocks until this busy period ends. Re-check the page afterwards.
    ///
    /// If there was no frame for the page, but this call may wait on, gives when it `began` to wait
    /// for one. Pass that to the next wait.
    ///
    /// # Errors
    /// If it was being brought in, and that failed: each that waited for it gets the error. If the
    /// caller itself holds the page.
    pub(crate) fn wait_for_page(
        &self,
        file: &FileState,
        key: PageKey,
        busy: Busy,
        want: Want,
        began: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Error> {
        self.check_not_held(file, key)?;
        let began = began.unwrap_or_else(Timestamp::now);
        let told = self.pages.wait(key, busy, want);
        self.after_wait(file, key, told, began)
    }

    /// What follows for one that has waited for a page since `began`, by what it was told: see
    /// [`Core::wait_for_page`].
    ///
    /// The frame deadline is that of the caller, not that of the thread that looked for a frame.
    /// One that has waited for [`LAST_PART`] less gives up with that thread: so however many wait,
    /// they look again [`LAST_PART`] times at most, and not each when the one before gives up.
    pub(crate) fn after_wait(
        &self,
        file: &FileState,
        key: PageKey,
        told: WakeMessage,
        began: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        match told {
            WakeMessage::Look => Ok(None),
            WakeMessage::NoFrames(_) => {
                let waited = Timestamp::now().since(began);
                if waited < self.frame_wait - self.frame_wait / LAST_PART {
                    return Ok(Some(began));
                }
                Err(self.no_frames_as(self.supply().held_as_told(), waited))
            }
            WakeMessage::ReadFailed(_, errno) => Err(self.read_error(file, key, errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use unherd_sys::Errno;
    use unherd_sys::primitives::{Arc, thread};
    use unherd_testkit::{Seed, SimDevice};

    use super::*;
    use crate::Cache;
    use crate::file::{OpenOptions, Source};
    use crate::pages::{FillReservation, Work};

    /// The failure of one read must not reach the waiters for the next read of the page.
    #[test]
    fn an_earlier_read_fails_no_later_waiter() {
        let device = Arc::new(SimDevice::new(Seed::new(1)));
        device.put("f", &[0; 4096]);
        let cache = Cache::builder().io(crate::Io::Blocking).device(device).build().unwrap();
        let core = &cache.owner.core;
        let options = OpenOptions::new().lock(false);
        let file = core.open_file(Source::Path(Path::new("f")), &options).unwrap();
        let key = file.key(PageNo(0));
        let wait = |announced: FillReservation| {
            let busy = Busy { work: Work::Reading, generation: announced.generation };
            core.wait_for_page(&file, key, busy, Want::Read, None)
        };
        let late = core.pages.shard(key).announce();
        core.pages.shard(key).remove();
        let next = core.pages.shard(key).announce();
        // Who saw the earlier one has no need to wait.
        wait(late).unwrap();
        for (told, fails) in [(late, false), (next, true)] {
            let outcome = thread::scope(|scope| {
                let waiter = scope.spawn(|| wait(next));
                while !waiter.is_finished() {
                    core.pages
                        .wake_failed(key, WakeMessage::ReadFailed(told.generation, Errno::IO));
                    thread::yield_now();
                }
                waiter.join().unwrap()
            });
            assert_eq!(outcome.is_err(), fails, "{outcome:?}");
        }
    }
}
