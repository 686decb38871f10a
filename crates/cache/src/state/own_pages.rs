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
use crate::page::{PageKey, PageNo};
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

    /// A page that this thread holds and that `is_it`. Where the thread's locals are gone, it holds
    /// none.
    fn find(is_it: impl Fn(&Self) -> bool) -> Option<PageNo> {
        let find = |own: &RefCell<Vec<Self>>| {
            own.borrow().iter().find(|page| is_it(page)).map(|page| page.key.page)
        };
        OWN.try_with(find).ok().flatten()
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
    /// Refuses to wait for a page that this thread holds.
    pub(crate) fn check_not_own_page(&self, key: PageKey) -> Result<(), Error> {
        let this = OwnPage::new(self, key);
        self.refuse_own_page(OwnPage::find(|page| *page == this))
    }

    /// Refuses what would wait for any page of the file that this thread holds.
    pub(crate) fn check_has_no_own_page(&self) -> Result<(), Error> {
        self.refuse_own_page(self.own_page())
    }

    fn own_page(&self) -> Option<PageNo> {
        OwnPage::find(|page| page.cache == self.cache && page.key.file == self.id)
    }

    fn refuse_own_page(&self, own: Option<PageNo>) -> Result<(), Error> {
        match own {
            Some(page) => Err(Error::WouldDeadlock { file: self.path.clone(), page: page.0 }),
            None => Ok(()),
        }
    }

    /// Lets the caller write to the file. Waits under `file` while its length is being changed.
    pub(crate) fn lock_writers_shared<'a>(&'a self, pages: &'a Pages) -> SharedGuard<'a> {
        let (writers, waits) = (self.writers.mine(), &pages.supply.waits);
        if !writers.try_lock_shared() {
            match self.own_page() {
                Some(_) => writers.lock_shared_again(),
                None => writers.lock_shared(waits, pages.reasons.file),
            }
        }
        SharedGuard::new(writers, waits)
    }
}
