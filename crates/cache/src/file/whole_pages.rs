//! Pages that a call writes as a whole, where they are missing: many at a time, so that of most
//! locks one is taken for all of them.
//!
//! A thread has several pages here that others may wait for. So it waits for nothing until all of
//! them are published: frames, and room for dirty pages, it has before the first is in the index.

use unherd_sys::primitives::Arc;

use crate::file::Core;
#[cfg(test)]
use crate::file::steps;
use crate::frames::{EXTENT, State};
use crate::page::PageNo;
use crate::state::FileState;
use crate::state::room::Reserved;
use crate::stats::Count;

impl Core {
    /// Writes pages of `bytes`, from `page` on, that are missing, in the stream that stood at page
    /// `stream` before the call: up to where the next extent of the file begins. Gives how many;
    /// none where one by one is the way: a page is there, or there is no frame or no room at hand.
    ///
    /// Blocks for nothing. The caller is inside `file.writers`.
    pub(crate) fn write_whole_pages(
        &self,
        file: &Arc<FileState>,
        page: PageNo,
        bytes: &[u8],
        stream: u64,
    ) -> usize {
        let page_bytes = self.memory().page_bytes();
        let most = (bytes.len() / page_bytes).min(EXTENT - page.0 as usize % EXTENT);
        let key = file.key(page);
        if most < 2 || self.pages.index.lookup(key).is_some() {
            return 0;
        }
        let mut room = Reserved::new(&self.files, self.supply(), file);
        if !self.files.has_room(self.supply(), file, most) || !room.reserve(most) {
            return 0;
        }
        let mut claims = Vec::with_capacity(most);
        claims.extend(self.take_for_stream(file, stream, key));
        if !claims.is_empty() {
            let rest = page.0 + 1..page.0 + most as u64;
            let (more, left) = file.filled.lock().take_frames(stream, rest);
            self.files.free_left(left, &self.pages);
            claims.extend(more);
        }
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
        claims.drain(written..).for_each(|claim| self.pages.free_frame(claim));
        if written == 0 {
            return 0;
        }
        self.counters().add(Count::Misses, written as u64);
        #[cfg(test)]
        steps::reach(self, steps::Step::WritePages, page);
        self.memory().write_pages(&mut claims, bytes);
        file.grow(self.memory().offset(PageNo(page.0 + written as u64)));
        let is_reserved = room.use_up(written);
        debug_assert!(is_reserved, "it was");
        self.end_changes(file, page, claims);
        written
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
