//! A look at a page: without a pin as long as that goes, and else with one.

use unherd_sys::primitives::Arc;

use crate::Error;
use crate::file::{Core, FileState};
use crate::page::PageNo;
use crate::pages::{Peek, Seen, Torn};

/// Looks without a pin, before the page is pinned.
const TRIES: usize = 8;

/// The page itself is as it was: a version never comes back, so neither does what was torn. To look
/// again would not mend the other page, perhaps for ever.
#[cold]
fn torn_elsewhere(file: &FileState, page: PageNo) -> Error {
    Error::TornElsewhere { file: file.path.clone(), page: page.0 }
}

impl Core {
    /// As [`File::peek`](crate::File::peek).
    #[inline(always)]
    pub(crate) fn peek<R>(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        mut look: impl FnMut(&Peek<'_>) -> Result<R, Torn>,
    ) -> Result<R, Error> {
        match self.pages.try_peek(file.key(page), &mut look) {
            Seen::Whole { seen: Ok(value), was_unread } => {
                if was_unread {
                    self.read_on(file, page);
                }
                Ok(value)
            }
            other => self.peek_slow(file, page, look, other),
        }
    }

    /// Looks on, after a first look that ended so.
    #[cold]
    #[inline(never)]
    fn peek_slow<R>(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        mut look: impl FnMut(&Peek<'_>) -> Result<R, Torn>,
        first: Seen<R>,
    ) -> Result<R, Error> {
        let mut seen = first;
        let mut tries = 1;
        loop {
            match seen {
                Seen::Whole { seen, .. } => {
                    return seen.map_err(|_: Torn| torn_elsewhere(file, page));
                }
                Seen::Torn if tries < TRIES => tries += 1,
                Seen::Torn | Seen::Nothing => break,
            }
            seen = self.pages.try_peek(file.key(page), &mut look);
        }
        let pinned = self.guard(file, page, 1)?;
        look(&Peek::pinned(pinned.racy())).map_err(|_: Torn| torn_elsewhere(file, page))
    }
}
