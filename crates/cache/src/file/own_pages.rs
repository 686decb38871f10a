//! The pages that a thread holds: it never waits for itself.
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

use unherd_sys::primitives::thread_local;

use crate::Error;
use crate::file::FileState;
use crate::latch::InsideGuard;
use crate::page::{PageKey, PageNo};
use crate::pages::Pages;

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
    pub(crate) fn new(file: &FileState, page: PageNo) -> Self {
        Self { cache: file.cache, key: file.key(page) }
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

impl FileState {
    /// Refuses to wait for a page that this thread holds.
    pub(crate) fn check_not_held(&self, page: PageNo) -> Result<(), Error> {
        let this = HeldPage::new(self, page);
        self.not_held(HeldPage::find(|held| *held == this))
    }

    /// Refuses what would wait for any page of the file that this thread holds.
    pub(crate) fn check_none_held(&self) -> Result<(), Error> {
        self.not_held(self.held_page())
    }

    fn held_page(&self) -> Option<PageNo> {
        HeldPage::find(|held| held.cache == self.cache && held.key.file == self.id)
    }

    fn not_held(&self, held: Option<PageNo>) -> Result<(), Error> {
        match held {
            Some(page) => Err(Error::WouldDeadlock { file: self.path.clone(), page: page.0 }),
            None => Ok(()),
        }
    }

    /// Lets the caller write to the file. Waits under `file` while its length is being changed.
    pub(crate) fn enter_writers<'a>(&'a self, pages: &'a Pages) -> InsideGuard<'a> {
        let (writers, waits) = (self.writers.mine(), &pages.supply.waits);
        if !writers.try_enter() {
            match self.held_page() {
                Some(_) => writers.enter_again(),
                None => writers.enter(waits, pages.reasons.file),
            }
        }
        InsideGuard::new(writers, waits)
    }
}
