//! The pages that a thread holds: it never waits for itself.
//!
//! While a [`PageMut`](crate::PageMut) lives, its page is *changing*: readers and writers of it
//! wait, and so do syncs of the file; a thread that changes the file's length waits because the
//! guard holds `file.writers` shared. A thread that does one of these while it holds the guard
//! would wait for itself. So it remembers what it holds, and looks at that where it would sleep:
//!
//! | the thread holds a `PageMut` and calls | it would wait | instead |
//! |---|---|---|
//! | a read or write of that page | for the page, `page-change` | [`Error::WouldDeadlock`] |
//! | a sync or `write_back` of the file | for the page, `page-change` | the same, before anything is done |
//! | `set_len`, `punch_hole` or `allocate` of the file | in `file.writers` | the same |
//! | `invalidate` of the file | for the page, `page-change` | the same |
//! | `close` of the file | for nothing, but the page would never be written | the same |
//! | a write elsewhere in the file, while another is in `set_len` | in `file.writers`, for one that waits for it | it takes the latch once more |

use std::cell::RefCell;

use unherd_sys::primitives::thread_local;

use crate::Error;
use crate::latch::SharedGuard;
use crate::page::{ALL_PAGES, PageKey, PageNo, PageRange};
use crate::pages::Pages;
use crate::state::FileState;

thread_local! {
    /// The pages that this thread holds; few.
    static OWN: RefCell<Vec<OwnPage>> = const { RefCell::new(Vec::new()) };
}

/// A page that a thread holds by a `PageMut`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnPage {
    /// The number of the cache. Not its address: another may come to lie there, and a guard that
    /// was forgotten is remembered.
    cache: u64,
    key: PageKey,
}

impl OwnPage {
    pub(crate) fn new(file: &FileState, key: PageKey) -> Self {
        Self { cache: file.cache, key }
    }

    pub(crate) fn begin(self) {
        let _ = OWN.try_with(|own| own.borrow_mut().push(self));
    }

    pub(crate) fn end(self) {
        let _ = OWN.try_with(|own| {
            let mut own = own.borrow_mut();
            if let Some(at) = own.iter().rposition(|page| *page == self) {
                own.swap_remove(at);
            }
        });
    }
}

impl FileState {
    /// Refuses to wait for pages of the file, if this thread holds one of them.
    pub(crate) fn check_has_none_of(&self, pages: &PageRange) -> Result<(), Error> {
        match self.own_page(pages) {
            Some(page) => Err(Error::WouldDeadlock { file: self.path.clone(), page: page.0 }),
            None => Ok(()),
        }
    }

    /// One of the pages that this thread holds. Where the thread's locals are gone, it holds none.
    fn own_page(&self, pages: &PageRange) -> Option<PageNo> {
        let is_it = |own: &&OwnPage| {
            let PageKey { file, page } = own.key;
            own.cache == self.cache && file == self.id && pages.contains(&page.0)
        };
        let find = |own: &RefCell<Vec<_>>| own.borrow().iter().find(is_it).map(|own| own.key.page);
        OWN.try_with(find).ok().flatten()
    }

    /// Lets the caller write to the file. Waits under `file` while its length is being changed.
    pub(crate) fn lock_writers_shared<'a>(&'a self, pages: &'a Pages) -> SharedGuard<'a> {
        let (writers, waits) = (self.writers.mine(), &pages.supply.waits);
        if !writers.try_lock_shared() {
            match self.own_page(&ALL_PAGES) {
                Some(_) => writers.lock_shared_again(),
                None => writers.lock_shared(waits, pages.reasons.file),
            }
        }
        SharedGuard::new(writers, waits)
    }
}
