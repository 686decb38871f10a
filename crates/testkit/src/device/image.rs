//! The bytes of one simulated file: what a read sees, and what a crash leaves.
//!
//! Changes since the last sync are kept in the order in which they were made. A crash takes the
//! durable bytes and lays a random selection of these changes over them: each change of the length
//! and each hole as a whole, each write sector by sector. So a write is torn at sectors, never
//! inside one, and an earlier write of a sector may survive where a later one does not.
//!
//! Names are durable at once: what becomes of a directory in a crash is not simulated.

use std::ops::Range;

use crate::Seed;

/// The unit that a device writes as a whole, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;

/// A block of the file system. Where a cut ends inside of one, the file system writes the zeros
/// there itself.
pub(super) const BLOCK_BYTES: usize = 512;

#[derive(Debug, Clone)]
enum Change {
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    SetLen {
        len: usize,
        /// Whether the zeros in the rest of the last block are written.
        is_zeroed: bool,
    },
    PunchHole(Range<usize>),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// What lies behind the durable bytes in the last block, and comes back if the file grows.
    remains: Vec<u8>,
    unsynced: Vec<Change>,
}

impl Image {
    /// An image of which every byte is durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { live: bytes.clone(), durable: bytes, ..Self::default() }
    }

    /// What a read sees.
    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    /// What a crash leaves at least.
    pub(super) fn durable_bytes(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        put(&mut self.live, offset, bytes);
        self.unsynced.push(Change::Write { offset, bytes: bytes.to_vec() });
    }

    /// A write that did not come to its end: a random subset of its sectors is there.
    pub(super) fn write_torn(&mut self, offset: usize, bytes: &[u8], seed: &mut Seed) {
        for (at, sector) in sectors(offset, bytes) {
            if seed.coin() {
                self.write(at, sector);
            }
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.live.resize(len, 0);
        self.unsynced.push(Change::SetLen { len, is_zeroed: true });
    }

    /// Zeros, as far as the file reaches.
    pub(super) fn punch_hole(&mut self, range: Range<usize>) {
        clear(&mut self.live, &range);
        self.unsynced.push(Change::PunchHole(range));
    }

    /// Makes every change since the last sync durable.
    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Change::Write { offset, bytes } => self.put_durable(offset, &bytes),
                Change::SetLen { len, is_zeroed } => self.set_durable_len(len, is_zeroed),
                Change::PunchHole(range) => clear(&mut self.durable, &range),
            }
        }
    }

    /// Forgets that there are writes to sync: they can be read, and are lost in a crash.
    ///
    /// KERNEL: a failed flush marks pages clean; the next fsync(2) succeeds without them. The
    /// length and the holes are matters of the file system's journal: they stay in there, or all is
    /// over. But the zeros in the rest of a block that is cut are written through the page cache
    /// (ext4, XFS): they are lost as writes are.
    pub(super) fn lose_unsynced(&mut self) {
        self.unsynced.retain_mut(|change| match change {
            Change::Write { .. } => false,
            Change::SetLen { len, is_zeroed } => {
                *is_zeroed &= len.is_multiple_of(BLOCK_BYTES);
                true
            }
            Change::PunchHole(_) => true,
        });
    }

    fn put_durable(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.durable.len() < end {
            self.set_durable_len(end, true);
        }
        put(&mut self.durable, offset, bytes);
    }

    fn set_durable_len(&mut self, len: usize, is_zeroed: bool) {
        let before = self.durable.len();
        if before < len {
            let beyond = self.remains.split_off(self.remains.len().min(len - before));
            self.durable.append(&mut self.remains);
            self.remains = beyond;
        } else if is_zeroed {
            self.remains.clear();
        } else {
            let mut cut_off = self.durable.split_off(len);
            cut_off.append(&mut self.remains);
            cut_off.truncate(len.next_multiple_of(BLOCK_BYTES) - len);
            self.remains = cut_off;
        }
        self.durable.resize(len, 0);
    }

    /// What a crash leaves becomes all there is.
    pub(super) fn crash(&mut self, seed: &mut Seed) {
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Change::Write { offset, bytes } => {
                    for (at, sector) in sectors(offset, &bytes) {
                        if seed.coin() {
                            self.put_durable(at, sector);
                        }
                    }
                }
                Change::SetLen { len, is_zeroed } => {
                    if seed.coin() {
                        self.set_durable_len(len, is_zeroed);
                    }
                }
                Change::PunchHole(range) => {
                    if seed.coin() {
                        clear(&mut self.durable, &range);
                    }
                }
            }
        }
        self.live.clone_from(&self.durable);
    }
}

fn put(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[offset..end].copy_from_slice(bytes);
}

fn clear(bytes: &mut [u8], range: &Range<usize>) {
    let end = range.end.min(bytes.len());
    bytes[range.start.min(end)..end].fill(0);
}

/// The pieces of `bytes` that lie in one sector of the file each, with their offsets.
fn sectors(offset: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = bytes;
    let mut at = offset;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (sector, after) = rest.split_at(rest.len().min(SECTOR_BYTES - at % SECTOR_BYTES));
        let piece = (at, sector);
        rest = after;
        at += sector.len();
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_keeps_synced_and_tears_rest() {
        let mut kept = 0;
        for origin in 0..64 {
            let mut image = Image::default();
            image.write(0, &[1; 4096]);
            image.sync();
            image.write(0, &[2; 4096]);
            image.write(1024, &[3; 512]);
            image.crash(&mut Seed::new(origin));
            assert_eq!(image.live().len(), 4096);
            for (n, sector) in image.live().chunks(SECTOR_BYTES).enumerate() {
                assert!(sector.iter().all(|&byte| byte == sector[0]), "torn inside a sector");
                let legal: &[u8] = if n == 2 { &[1, 2, 3] } else { &[1, 2] };
                assert!(legal.contains(&sector[0]));
                kept += u32::from(sector[0] == 1);
            }
        }
        assert!((100..400).contains(&kept), "{kept} of 512 sectors were old");
    }

    #[test]
    fn unsynced_changes_stay_readable_until_crash() {
        let mut image = Image::durable(vec![1; 512]);
        image.write(0, &[2; 512]);
        image.set_len(600);
        image.lose_unsynced();
        image.sync();
        assert_eq!(image.live()[..512], [2; 512]);
        image.crash(&mut Seed::new(1));
        assert_eq!(image.live()[..512], [1; 512]);
        assert_eq!(image.live()[512..], [0; 88], "a length is not lost");
    }

    #[test]
    fn what_was_cut_off_inside_a_block_may_come_back() {
        let mut image = Image::durable(vec![1; 2 * BLOCK_BYTES]);
        image.set_len(100);
        image.lose_unsynced();
        image.sync();
        assert_eq!(image.durable_bytes().len(), 100);
        image.set_len(BLOCK_BYTES + 1);
        image.sync();
        assert_eq!(image.durable_bytes()[100..BLOCK_BYTES], [1; BLOCK_BYTES - 100]);
        assert_eq!(image.durable_bytes()[BLOCK_BYTES..], [0], "a whole block is gone");
    }

    #[test]
    fn pieces_end_at_sectors() {
        let bytes = [0; 1000];
        let pieces: Vec<_> = sectors(500, &bytes).map(|(at, piece)| (at, piece.len())).collect();
        assert_eq!(pieces, [(500, 12), (512, 512), (1024, 476)]);
    }
}
