//! Pages of a file that are dropped, whatever they hold: it was cut, a hole was punched, or others
//! have changed it.

use unherd_sys::primitives::Ordering;

use crate::file::{ChangingPages, Core};
use crate::frames::State;
use crate::page::{PageKey, PageRange};
use crate::pages::{Busy, Entry, Want};
use crate::state::FileState;

impl Core {
    /// Drops `pages` of a file, whatever they hold. Pinned ones live on for those who have them.
    /// The caller keeps writers out; pages that somebody is changing although the file has no
    /// handle are skipped.
    pub(crate) fn drop_pages(&self, file: &FileState, pages: PageRange, changing: ChangingPages) {
        let key_of = |frame| self.frames().key(frame);
        for page in self.pages.index.pages_in(file.id, pages.clone(), key_of) {
            self.drop_page(file, file.key(page), changing);
        }
        file.unclean.lock().remove_in(&pages);
        if self.files.held.load(Ordering::Relaxed) > 0 {
            let mut holds = file.holds.lock();
            self.files.held.fetch_sub(holds.forget(&pages), Ordering::Relaxed);
        }
    }

    /// Takes a page from the index that a forgotten guard or future has, if it is one: with a
    /// guard its frame is lost. The file has no handle.
    fn drop_forgotten(&self, file: &FileState, key: PageKey) -> bool {
        let mut shard = self.pages.shard(key);
        match shard.get() {
            Some(Entry::Announced(_)) => shard.remove(),
            Some(Entry::Frame(frame)) if self.frames().word(frame).state() == State::Changing => {
                shard.remove();
                drop(shard);
                self.files.remove_unwritten(self.supply(), file, 1);
            }
            Some(Entry::Frame(_)) | None => return false,
        }
        true
    }

    /// Drops the page, whatever it holds, unless it is busy.
    pub(crate) fn try_drop_page(&self, file: &FileState, key: PageKey) -> Result<(), Busy> {
        // It is not behind: see `frame.rs`.
        let before = self.pages.detach(self.pages.shard(key))?;
        if before.state().is_unwritten() {
            self.files.remove_unwritten(self.supply(), file, 1);
        }
        Ok(())
    }

    fn drop_page(&self, file: &FileState, key: PageKey, changing: ChangingPages) {
        while let Err(busy) = self.try_drop_page(file, key) {
            if changing == ChangingPages::Skipped && self.drop_forgotten(file, key) {
                return;
            }
            // A read that fails leaves no page either.
            let _ = self.pages.wait(key, busy, Want::Read);
        }
    }
}
