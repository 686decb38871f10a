//! The length of a file is changed.

use unherd_sys::primitives::Arc;

use crate::Error;
use crate::error::Operation;
use crate::file::{ChangingPages, Core};
use crate::frames::Claim;
use crate::page::PageNo;
use crate::pages::{Busy, Want};
use crate::state::{DeviceLen, FileState};

impl Core {
    /// Makes the file `len` bytes long, and of a file with a hook as many more as make whole pages.
    ///
    /// The order matters. With writers (except those of `overwrite.rs`) and write-backs kept out,
    /// the file is cut on the device, then for readers, and the rest of its last page becomes
    /// zeros: had a write-back got in before that, the device would have the bytes back that were
    /// cut off. Only then are the pages beyond dropped. A page whose read began before the cut is
    /// in the index by then, so it is found; one whose read begins later finds the file cut.
    pub(crate) fn resize(&self, file: &Arc<FileState>, len: u64) -> Result<(), Error> {
        let page_bytes = self.memory().page_bytes() as u64;
        let _writers = file.writers.lock_exclusive(self.waits(), self.reasons().file);
        let before = file.len();
        let (cut, len) = (len, file.rounded_len(len));
        self.write_zeros(file, cut..len.min(before))?;
        let tail = (len % page_bytes) as usize;
        let is_cut = len < before;
        // The rest of the block there is the file system's.
        let zeroes = !len.min(before).is_multiple_of(file.block_bytes);
        // There is no way back once the device has cut the file: have the frame first. But not
        // before the writers are out, who may want it more.
        let last = PageNo(len / page_bytes);
        let key = file.key(last);
        let copy = if is_cut && tail > 0 { Some(self.take_frame(key, None)?) } else { None };
        let resized = self.without_write_backs(file, || {
            if is_cut {
                file.begin_cut(len);
            }
            let (before, began) = {
                let mut durability = file.durability.lock();
                let before = durability.device_len;
                durability.device_len.will_cut(len);
                (before, durability.period())
            };
            let resized = self.io.device.set_len(file.device_file, len);
            if resized.is_ok() {
                file.set_len(len);
                let mut durability = file.durability.lock();
                if zeroes {
                    durability.note_zeroed(began);
                } else {
                    durability.note_resize();
                }
                durability.device_len = DeviceLen::new(len);
            } else {
                let mut durability = file.durability.lock();
                durability.device_len = before;
                // The file system may have done a part of it.
                durability.note_zeroed(began);
            }
            file.end_cut();
            match copy {
                Some(copy) if resized.is_ok() => {
                    self.cut_page(file, last, tail, copy);
                }
                Some(copy) => self.pages.free_frame(copy),
                None => {}
            }
            resized
        });
        resized.map_err(|errno| file.io_error(Operation::SetLen, len, errno))?;
        if is_cut {
            let cut = len.div_ceil(page_bytes)..before.div_ceil(page_bytes);
            self.drop_pages(file, cut, ChangingPages::Awaited);
        }
        Ok(())
    }

    /// Makes the last page of a file that was cut end after `tail` bytes, by a copy in its place.
    ///
    /// The caller keeps out writers and write-backs, and the file is cut on the device. So a page
    /// that is not here needs nothing, nor does one that is announced: its read begins later, or
    /// keeps nothing (`read_uncached.rs`). To wait for that one would not do, as its thread may be
    /// waiting for a frame, and that for a write-back. The wait for a page that is being read ends
    /// with the read.
    pub(crate) fn cut_page(&self, file: &FileState, page: PageNo, tail: usize, mut copy: Claim) {
        let key = file.key(page);
        let old = loop {
            let mut shard = self.pages.shard(key);
            let Some(frame) = shard.frame() else {
                drop(shard);
                return self.pages.free_frame(copy);
            };
            let busy = match self.replace(&mut shard, key, frame, &mut copy) {
                Ok(old) => break old,
                Err(word) => Busy::in_frame(self.frames(), frame, word),
            };
            drop(shard);
            // A read that fails leaves no page.
            let _ = self.pages.wait(key, busy, Want::Read);
        };
        self.memory().copy(&mut copy, &old, tail);
        self.memory().zero_from(&mut copy, tail);
        self.supply().note_copied(&old, &copy);
        self.pages.unpin(old);
        if !copy.was_unwritten() {
            self.files.add_unwritten(file, 1);
        }
        self.end_change(file, key, copy);
    }
}
