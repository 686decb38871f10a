//! The frames' memory, and the only accesses to it, except for the devices'.
//!
//! A page that is peeked at may be written meanwhile. So all writes, and all reads but those under
//! a pin or a loan, are racy accesses (`unherd_sys::racy`): one ordinary write would be undefined
//! behaviour that no test shows.
#![expect(unsafe_code, reason = "the frames' memory is shared under the invariants of frame.rs")]

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use unherd_sys::{Errno, HugePages, IoBuf, IoBufs, Map, racy};

use crate::frames::{Claim, Lent, Pin};
use crate::page::{FrameId, PageNo};

/// A page of memory for each frame.
#[derive(Debug)]
pub(crate) struct FrameMemory {
    map: Map,
    frames: usize,
    page_bytes: usize,
    /// The binary logarithm of that.
    page_shift: u32,
}

/// A page that may be written meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RacyPage<'a> {
    start: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a FrameMemory>,
}

impl FrameMemory {
    /// `page_bytes` is a power of two. No memory is taken before [`FrameMemory::take`].
    pub(crate) fn new(
        frames: usize,
        page_bytes: usize,
        huge_pages: HugePages,
    ) -> Result<Self, Errno> {
        let bytes = frames.checked_mul(page_bytes).ok_or(Errno::NOMEM)?;
        let map = Map::new(bytes, huge_pages)?;
        Ok(Self { map, frames, page_bytes, page_shift: page_bytes.trailing_zeros() })
    }

    pub(crate) fn huge_pages_advised(&self) -> bool {
        self.map.huge_pages_advised()
    }

    #[inline]
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The page that holds the byte at `offset` of a file, and where in the page.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> (PageNo, usize) {
        let at = offset & (self.page_bytes as u64 - 1);
        (PageNo(offset >> self.page_shift), at as usize)
    }

    /// Where a page begins in its file, in bytes.
    pub(crate) fn offset(&self, page: PageNo) -> u64 {
        page.0 * self.page_bytes as u64
    }

    /// How many pages `len` bytes reach over that begin at `at` in a page.
    pub(crate) fn pages_of(&self, at: usize, len: usize) -> u64 {
        (at + len).div_ceil(self.page_bytes) as u64
    }

    #[inline]
    fn start(&self, id: FrameId) -> NonNull<u8> {
        assert!(id.index() < self.frames, "a frame of another cache");
        // SAFETY: the map holds a page for each frame, and `id` is one of them.
        unsafe { self.map.start().add(id.index() << self.page_shift) }
    }

    /// A part of a page, which must lie in it.
    #[inline]
    fn part(&self, id: FrameId, part: Range<usize>) -> (*mut u8, usize) {
        assert!(part.start <= part.end && part.end <= self.page_bytes(), "beyond the page");
        // SAFETY: in the page, as just checked.
        let start = unsafe { self.start(id).add(part.start) };
        (start.as_ptr(), part.len())
    }

    /// Takes the memory of frames now. The longer their rows, the fewer calls; on failure some may
    /// have it.
    pub(crate) fn take(&self, claims: &[Claim]) -> Result<(), Errno> {
        self.rows(claims).try_for_each(|row| self.map.populate_range(row))
    }

    /// Gives the memory of frames back, as far as they have whole pages of the system: the longer
    /// their rows, the more. There are no huge pages from then on: where few pages of one are left,
    /// the kernel would fill it up again.
    pub(crate) fn give_back(&self, claims: &mut [Claim]) {
        self.map.renounce_huge_pages();
        claims.iter().for_each(Claim::begin_write);
        for row in self.rows(claims) {
            // SAFETY: invariant 1: the holder of the claims alone writes, and nobody has a pin;
            // who peeks does so by racy reads.
            // Before Linux 5.18 memory that is locked stays, as the documentation says.
            let _ = unsafe { self.map.release(row) };
        }
    }

    /// The bytes of frames, neighbours together.
    fn rows(&self, claims: &[Claim]) -> impl Iterator<Item = Range<usize>> {
        let rows = claims.chunk_by(|a, b| a.id().0 + 1 == b.id().0);
        rows.map(|row| {
            let first = row[0].id().index() * self.page_bytes;
            first..first + row.len() * self.page_bytes
        })
    }

    // Reads.

    #[inline]
    pub(crate) fn bytes<'a>(&'a self, pin: &'a Pin) -> &'a [u8] {
        // SAFETY: invariant 4: nobody writes the memory while `pin` exists.
        unsafe { std::slice::from_raw_parts(self.start(pin.id()).as_ptr(), self.page_bytes()) }
    }

    /// What the holder of the claim has written. Nobody else writes.
    pub(crate) fn claimed_bytes<'a>(&'a self, claim: &'a Claim) -> &'a [u8] {
        // SAFETY: invariant 1: only its holder writes the memory, and `claim` is borrowed here.
        unsafe { std::slice::from_raw_parts(self.start(claim.id()).as_ptr(), self.page_bytes()) }
    }

    /// What is being written back.
    pub(crate) fn lent_bytes<'a>(&'a self, lent: &'a Lent) -> &'a [u8] {
        // SAFETY: invariant 4: nobody writes the memory while the loan exists.
        unsafe { std::slice::from_raw_parts(self.start(lent.id()).as_ptr(), self.page_bytes()) }
    }

    /// As [`FrameMemory::claimed_bytes`], of frames in a row, in their order.
    pub(crate) fn claimed_row<'a>(&'a self, row: &'a [Claim]) -> &'a [u8] {
        let (start, len) = self.row(row);
        // SAFETY: the frames' memory lies in a row in the map; invariant 1: only the holder of the
        // claims writes it, and they are borrowed here; who peeks still only reads.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The memory of frames in a row, in their order.
    fn row(&self, row: &[Claim]) -> (NonNull<u8>, usize) {
        let is_next = |two: &[Claim]| two[0].id().0 + 1 == two[1].id().0;
        debug_assert!(row.windows(2).all(is_next), "the frames are no row");
        let last = row[row.len() - 1].id().index();
        assert!(row[0].id().index() + row.len() == last + 1, "the frames are no row");
        (self.start(row[0].id()), row.len() * self.page_bytes())
    }

    /// What the frame holds, be it a page or not.
    #[inline]
    pub(crate) fn racy(&self, id: FrameId) -> RacyPage<'_> {
        RacyPage { start: self.start(id), len: self.page_bytes(), memory: PhantomData }
    }

    // Writes.

    /// Writes `bytes` at `at` in the page.
    #[inline]
    pub(crate) fn write(&self, claim: &mut Claim, at: usize, bytes: &[u8]) {
        claim.begin_write();
        let (to, len) = self.part(claim.id(), at..at + bytes.len());
        // SAFETY: both are `len` bytes long; invariant 1: nobody else writes, and who peeks does so
        // by racy reads.
        unsafe { racy::copy(bytes.as_ptr(), to, len) };
    }

    /// Writes whole pages, in their order. They are not likely to be read soon: memory that no
    /// cache of the processor has gets them without being read before, as far as that goes.
    pub(crate) fn write_pages(&self, claims: &mut [Claim], bytes: &[u8]) {
        assert_eq!(bytes.len(), claims.len() * self.page_bytes, "whole pages");
        for (claim, bytes) in claims.iter_mut().zip(bytes.chunks_exact(self.page_bytes)) {
            claim.begin_write();
            let (to, len) = self.part(claim.id(), 0..bytes.len());
            // SAFETY: as in `write`; those copies are ended below, before a claim is.
            unsafe { racy::copy_past_caches(bytes.as_ptr(), to, len) };
        }
        racy::end_copies_past_caches();
    }

    /// Writes `bytes` at `at` in the memory of frames in a row, in their order.
    pub(crate) fn write_row(&self, row: &mut [Claim], at: usize, bytes: &[u8]) {
        let (_, len) = self.row(row);
        assert!(at <= len && bytes.len() <= len - at, "beyond the frames");
        let to = self.row_to_write(row).as_ptr();
        // SAFETY: in the row, as just checked.
        let to = unsafe { to.add(at) };
        // SAFETY: as in `write`.
        unsafe { racy::copy(bytes.as_ptr(), to, bytes.len()) };
    }

    /// The memory of frames in a row, in their order, for the kernel or a device to write.
    pub(crate) fn row_to_write(&self, row: &mut [Claim]) -> NonNull<u8> {
        row.iter().for_each(Claim::begin_write);
        self.row(row).0
    }

    /// Writes zeros from `from` to the end of the page.
    pub(crate) fn zero_from(&self, claim: &mut Claim, from: usize) {
        claim.begin_write();
        let (to, len) = self.part(claim.id(), from..self.page_bytes());
        // SAFETY: as in `write`.
        unsafe { racy::zero(to, len) };
    }

    /// Copies the first `len` bytes of a pinned page.
    pub(crate) fn copy(&self, claim: &mut Claim, page: &Pin, len: usize) {
        self.write(claim, 0, &self.bytes(page)[..len]);
    }

    // For devices.

    /// The memory for a device to write: the bytes `range` of the frames, one after the other. The
    /// claims, and `list`, must be kept until the transfer is complete.
    pub(crate) fn pieces_to_fill(
        &self,
        claims: &mut [Claim],
        range: Range<usize>,
        list: &mut Vec<IoBuf>,
    ) -> IoBufs {
        claims.iter().for_each(Claim::begin_write);
        self.pieces(claims.iter().map(Claim::id), range, list)
    }

    /// The memory for a device to read, as [`FrameMemory::pieces_to_fill`]. The loans, and `list`,
    /// must be kept until the transfer is complete.
    pub(crate) fn pieces_to_write(
        &self,
        lents: &[Lent],
        range: Range<usize>,
        list: &mut Vec<IoBuf>,
    ) -> IoBufs {
        self.pieces(lents.iter().map(Lent::id), range, list)
    }

    /// Frames that are neighbours in memory make one piece; several pieces are put into `list`.
    fn pieces(
        &self,
        frames: impl Iterator<Item = FrameId>,
        range: Range<usize>,
        list: &mut Vec<IoBuf>,
    ) -> IoBufs {
        let page_bytes = self.page_bytes();
        let (skipped, mut skip) = (range.start / page_bytes, range.start % page_bytes);
        let (mut left, mut last) = (range.len(), None::<IoBuf>);
        list.clear();
        for frame in frames.skip(skipped) {
            if left == 0 {
                break;
            }
            let len = left.min(page_bytes - skip);
            let (start, len) = self.part(frame, skip..skip + len);
            left -= len;
            skip = 0;
            match &mut last {
                Some(last) if last.start.as_ptr().wrapping_add(last.len) == start => {
                    last.len += len;
                }
                _ => {
                    // SAFETY: a part of the map is not null.
                    let start = unsafe { NonNull::new_unchecked(start) };
                    list.extend(last.replace(IoBuf { start, len }));
                }
            }
        }
        debug_assert_eq!(left, 0, "a range beyond the frames");
        match last {
            // So a read of one page needs no list.
            Some(one) if list.is_empty() => IoBufs::One(one),
            last => {
                list.extend(last);
                IoBufs::list(list)
            }
        }
    }
}

macro_rules! racy_loads {
    ($($name:ident, $load:path, $type:ty;)*) => {$(
        /// A little-endian number; `None` beyond the page.
        #[inline]
        pub(crate) fn $name(self, at: usize) -> Option<$type> {
            let from = self.part(at, size_of::<$type>())?;
            // SAFETY: in the page, which is written by racy stores alone.
            Some(<$type>::from_le(unsafe { $load(from) }))
        }
    )*};
}

impl RacyPage<'_> {
    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    #[inline]
    fn part(self, at: usize, bytes: usize) -> Option<*const u8> {
        let fits = bytes <= self.len && at <= self.len - bytes;
        // SAFETY: in the page, as just checked.
        fits.then(|| unsafe { self.start.as_ptr().add(at) }.cast_const())
    }

    racy_loads! {
        get_u8, racy::load_u8, u8;
        get_u16, racy::load_u16, u16;
        get_u32, racy::load_u32, u32;
        get_u64, racy::load_u64, u64;
    }

    /// Fills `to` with the bytes from `at` on; false if there are fewer.
    #[inline]
    pub(crate) fn copy_to(self, at: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.part(at, to.len()) else { return false };
        // SAFETY: in the page, which is written by racy stores alone; `to` is the caller's own.
        unsafe { racy::copy(from, to.as_mut_ptr(), to.len()) };
        true
    }

    /// As [`RacyPage::copy_to`], of a page that is not likely to be read again soon.
    pub(crate) fn copy_once_to(self, at: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.part(at, to.len()) else { return false };
        // SAFETY: as in `copy_to`.
        unsafe { racy::copy_once(from, to.as_mut_ptr(), to.len()) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{Frames, State};
    use crate::page::{BusyGeneration, FileId, PageKey};

    #[test]
    fn what_is_written_is_read_and_its_neighbours_stay() {
        let (frames, mut claims) = Frames::new(2).unwrap();
        let memory = FrameMemory::new(2, 512, HugePages::AsConfigured).unwrap();
        let key = PageKey { file: FileId(0), page: PageNo(0) };
        let pins: Vec<Pin> = [1u8, 2]
            .map(|fill| {
                let mut claim = claims.pop().unwrap();
                memory.write(&mut claim, 0, &[fill; 512]);
                memory.zero_from(&mut claim, 500);
                memory.write(&mut claim, 100, &[7; 3]);
                frames.install(&claim, key, State::Reading, BusyGeneration(0));
                frames.publish_pinned(claim, State::Clean)
            })
            .into();
        for (pin, fill) in pins.iter().zip([1, 2]) {
            let page = memory.bytes(pin);
            assert!(page[..100].iter().chain(&page[103..500]).all(|&byte| byte == fill));
            assert_eq!((&page[100..103], &page[500..]), (&[7; 3][..], &[0; 12][..]));
        }
    }
}
