//! Room for pages that are newer than the device: counted, and handed out; the rule stands in
//! `unwritten.rs`, and how room is made in `throttle.rs`.
#![expect(unsafe_code, reason = "the tag of a waiter is the address of its file")]

use unherd_sync::Tag;
use unherd_sys::primitives::Ordering;

use crate::frames::Supply;
use crate::state::{FileState, Files};

/// Room for pages of the file: counted as pages that are newer than the device. Given back when
/// dropped.
pub(crate) struct DirtyReservation<'a> {
    files: &'a Files,
    supply: &'a Supply,
    file: &'a FileState,
    /// For how many pages.
    pub(crate) pages: usize,
}

impl<'a> DirtyReservation<'a> {
    /// For none.
    pub(crate) fn new(files: &'a Files, supply: &'a Supply, file: &'a FileState) -> Self {
        Self { files, supply, file, pages: 0 }
    }

    /// Has room for as many pages, if that is allowed; whether it does.
    pub(crate) fn reserve(&mut self, pages: usize) -> bool {
        let missing = pages.saturating_sub(self.pages);
        if missing > 0 {
            if self.files.count_unwritten(self.supply, self.file, missing) {
                self.pages += missing;
            } else {
                self.files.hand_out_reservations(self.supply, missing);
            }
        }
        self.pages >= pages
    }

    /// Has room for as many pages, if that is allowed, and leaves it to pages that become newer;
    /// whether it did.
    pub(crate) fn use_up(&mut self, pages: usize) -> bool {
        let has_room = self.reserve(pages);
        if has_room {
            self.pages -= pages;
        }
        has_room
    }

    /// For others, as long as the caller waits for something else.
    pub(crate) fn give_back(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        if pages > 0 {
            self.files.remove_unwritten(self.supply, self.file, pages);
        }
    }
}

impl Drop for DirtyReservation<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The tag of the waiters for room of the file: its address.
pub(crate) fn tag_of(file: &FileState) -> Tag {
    Tag(std::ptr::from_ref(file).expose_provenance() as u64)
}

/// The file that a waiter waits for. The wait table shows `tag` under the lock of the queue.
fn file_of(tag: &Tag) -> &FileState {
    let file = std::ptr::with_exposed_provenance::<FileState>(tag.0 as usize);
    // SAFETY: the tag comes from `tag_of`, as `DirtyLimitWaiters::notify` does not show `NO_FILE`.
    // The waiter has a reference to the file until its wait returns, and leaves the queue before
    // that, under the lock that is held here.
    unsafe { &*file }
}

/// Whether a file may have `own` such pages, of `all`.
fn fits(supply: &Supply, own: usize, all: usize) -> bool {
    let others = all.saturating_sub(own);
    own <= supply.len_to_be().saturating_sub(others) * 3 / 4
}

impl Files {
    /// As many pages of the file have been written or dropped.
    pub(crate) fn remove_unwritten(&self, supply: &Supply, file: &FileState, pages: usize) {
        self.forget_unwritten(file, pages);
        self.hand_out_reservations(supply, pages);
    }

    /// There may be room for some pages more: counts them for those that wait, and wakes these.
    pub(crate) fn hand_out_reservations(&self, supply: &Supply, pages: usize) {
        let writing = || supply.waiters.writing();
        let mut was_undone = true;
        while was_undone {
            was_undone = false;
            supply.dirty_waiters.notify(&supply.waits, pages, writing, |tag| {
                let file = file_of(&tag);
                let has_room = self.fits_dirty_limit(supply, file, 1);
                let is_counted = has_room && self.count_unwritten(supply, file, 1);
                // Others may have found that page in their way.
                was_undone |= has_room && !is_counted;
                is_counted
            });
        }
    }

    /// Counts as many pages more, if that is allowed. Else the caller tells those that may have
    /// found these pages in their way.
    fn count_unwritten(&self, supply: &Supply, file: &FileState, pages: usize) -> bool {
        let own = file.unwritten.pages.fetch_add(pages, Ordering::Relaxed) + pages;
        let all = self.unwritten.fetch_add(pages, Ordering::Relaxed) + pages;
        let fits = fits(supply, own, all);
        if !fits {
            self.forget_unwritten(file, pages);
        }
        fits
    }

    /// Whether there is room for as many pages more of the file.
    pub(crate) fn fits_dirty_limit(&self, supply: &Supply, file: &FileState, pages: usize) -> bool {
        let own = file.unwritten.pages.load(Ordering::Relaxed) + pages;
        fits(supply, own, self.unwritten.load(Ordering::Relaxed) + pages)
    }
}
