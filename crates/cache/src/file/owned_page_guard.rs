//! Pinned pages that keep their file open.

use std::fmt;
use std::ops::Deref;

use unherd_sys::primitives::Arc;

use crate::error::Error;
use crate::file::File;
use crate::frames::Pin;
use crate::page::PageNo;

/// A pinned page that has a share of its [`File`]: for those who cannot borrow the handle, such as
/// an interface of another language. See [`File::page_owned`].
///
/// Its drop unpins the page, and drops its share of the handle, which closes the file if that was
/// the last.
pub struct OwnedPageGuard {
    /// Taken by the drop, before the file goes.
    pin: Option<Pin>,
    file: Arc<File>,
}

impl File {
    /// As [`File::page`]; the guard has a share of the handle instead of borrowing it, which costs
    /// two more atomic writes.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// use std::sync::Arc;
    /// use unherd::{Cache, OpenOptions, OwnedPageGuard, PageNo};
    ///
    /// fn first_page() -> Result<OwnedPageGuard, Box<dyn std::error::Error>> {
    ///     let cache = Cache::builder().build()?;
    ///     let file = Arc::new(cache.open("data", OpenOptions::new())?);
    ///     Ok(file.page_owned(PageNo(0))?)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`File::page`].
    pub fn page_owned(self: &Arc<Self>, page: PageNo) -> Result<OwnedPageGuard, Error> {
        let pin = self.core().find_and_pin(&self.file, page, 1)?;
        Ok(OwnedPageGuard { pin: Some(pin), file: self.clone() })
    }
}

impl fmt::Debug for OwnedPageGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPageGuard").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Deref for OwnedPageGuard {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.pin.as_ref().map_or(&[], |pin| self.file.core().memory().bytes(pin))
    }
}

impl Drop for OwnedPageGuard {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.file.core().pages.unpin(pin);
        }
    }
}
