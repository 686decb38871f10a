//! Pages that a call writes as a whole, where they are missing: many at a time, so that of most
//! locks one is taken for all of them.
//!
//! A thread has several pages here that others may wait for. So until all of them are published it
//! waits for nothing, and wakes nobody, as a waker may wait: frames, and room for dirty pages, it
//! has before the first is in the index.

use unherd_sys::primitives::Arc;

use crate::file::Core;
#[cfg(test)]
use crate::file::steps;
use crate::frames::{EXTENT, State};
use crate::page::PageNo;
use crate::state::FileState;
use crate::state::dirty_limit::DirtyReservation;
use crate::stats::Count;

/// The most bytes that are written at a time: for so long others wait for the first page.
const BYTES_MAX: usize = 256 << 10;

impl Core {
    /// Writes pages of `bytes`, from `page` on, that are missing, in the stream that stood at page
    /// `stream` before the call: up to where the next extent of the file begins. Gives how many;
    /// none if the first is there, or only that is missing. `None` where there are no frames, or
    /// there is no room: the rest of the call does better page by page.
    ///
    /// Waits for nothing, but may begin to write a page back. The caller holds
    /// `file.writers` shared.
    pub(crate) fn write_whole_pages(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        bytes: &[u8],
        stream: u64,
    ) -> Option<usize> {
        let page_bytes = self.memory().page_bytes();
        let most = (bytes.len().min(BYTES_MAX) / page_bytes) as u64;
        let most = most.min((EXTENT - page.0 as usize % EXTENT) as u64);
        let most = if most < 2 { 0 } else { self.missing(file, page.0..page.0 + most) as usize };
        if most < 2 {
            return Some(0);
        }
        if !self.files.fits_dirty_limit(self.supply(), file, most) {
            return None;
        }
        let mut claims = Vec::with_capacity(most);
        self.take_for_stream(file, stream, file.key(page), most, |claim| claims.push(claim));
        let mut reserved = DirtyReservation::new(&self.files, self.supply(), file);
        if claims.is_empty() || !reserved.reserve(claims.len()) {
            claims.into_iter().for_each(|claim| self.pages.free_frame(claim));
            return None;
        }
        #[cfg(test)]
        steps::reach(self, steps::Step::InstallPages, page);
        let mut locked = None;
        let keys = (page.0..).map(|page| file.key(PageNo(page)));
        let written = claims
            .iter()
            .zip(keys)
            .take_while(|(claim, key)| {
                let shard = self.pages.next_shard(&mut locked, *key);
                shard.install_missing(self.frames(), claim, State::Changing)
            })
            .count();
        drop(locked);
        let spare = claims.split_off(written);
        if written > 0 {
            self.counters().add(Count::WriteMisses, written as u64);
            #[cfg(test)]
            steps::reach(self, steps::Step::WritePages, page);
            self.memory().write_pages(&mut claims, &bytes[..written * page_bytes]);
            file.grow(self.memory().offset(PageNo(page.0 + written as u64)));
            let is_reserved = reserved.use_up(written);
            debug_assert!(is_reserved, "it was");
            self.end_changes(file, page, claims);
        }
        // Others have brought a page in meanwhile.
        spare.into_iter().for_each(|claim| self.pages.free_frame(claim));
        Some(written)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
