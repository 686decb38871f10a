//! Anonymous memory: page-aligned, zero-filled, given back on drop.
//!
//! A [`Map`] hands out a raw pointer and a length, never a slice: what lies in it is read and
//! written by devices and other threads under rules that its owner makes. A child made by fork(2)
//! gets a copy as of any private memory (`MADV_DONTFORK` is not set).
#![expect(unsafe_code, reason = "mmap, madvise and munmap are raw by nature")]

use std::ops::Range;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

#[cfg(not(loom))]
use crate::memory_policy;

/// The size of a huge page, in bytes: that of x86-64 and of AArch64 with 4 KiB pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Whether a [`Map`] should be backed by huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// As the system is set up; the map is aligned to ordinary pages.
    AsConfigured,
    /// The map is aligned to [`HUGE_PAGE_BYTES`], and the kernel is asked for huge pages.
    Advised,
}

/// Private anonymous memory.
///
/// ```
/// # fn main() -> Result<(), unherd_sys::Errno> {
/// use unherd_sys::{HugePages, Map};
///
/// let map = Map::new(5000, HugePages::AsConfigured)?;
/// assert!(map.len() >= 5000 && map.start().addr().get() % 4096 == 0);
/// map.populate()?;
/// // SAFETY: the first byte of a map that nobody else uses.
/// assert_eq!(unsafe { map.start().read() }, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Map {
    start: NonNull<u8>,
    len: usize,
    huge_pages_advised: bool,
}

// SAFETY: a `Map` is an address, a length and the duty to unmap; munmap(2) may be called by any
// thread. What the memory holds is reached through raw pointers alone, at their user's own duty.
unsafe impl Send for Map {}
// SAFETY: as above; the shared methods only tell the address and the length.
unsafe impl Sync for Map {}

impl Map {
    /// Maps at least `len_bytes` bytes, rounded up to whole pages, that read as zeros.
    ///
    /// No memory is used before it is touched. `EINVAL` for no bytes; `ENOMEM` where the address
    /// space or the limit on memory does not have them.
    pub fn new(len_bytes: usize, huge_pages: HugePages) -> Result<Self, Errno> {
        let page = rustix::param::page_size();
        let align = match huge_pages {
            HugePages::AsConfigured => page,
            HugePages::Advised => HUGE_PAGE_BYTES,
        };
        if len_bytes == 0 {
            return Err(Errno::INVAL);
        }
        let len = len_bytes.checked_next_multiple_of(page).ok_or(Errno::NOMEM)?;
        let (start, len) = map_aligned(len, align, page)?;
        let mut map = Self { start, len, huge_pages_advised: false };
        if huge_pages == HugePages::Advised {
            // SAFETY: the range is this map's own; the advice changes no content.
            let advised =
                unsafe { madvise(map.start.as_ptr().cast(), map.len, Advice::LinuxHugepage) };
            // A kernel without transparent huge pages says EINVAL: the map is as good without.
            map.huge_pages_advised = advised.is_ok();
        }
        Ok(map)
    }

    /// Takes all the memory now instead of at first touch: what was not touched reads as zeros.
    ///
    /// Many threads that touch a map at the same time each get a huge page before all but one give
    /// theirs back, which can carry a memory cgroup over its limit. One thread that calls this
    /// first avoids that, and a lack of memory is reported here: `ENOMEM`, `EFAULT` or
    /// `EHWPOISON`.
    pub fn populate(&self) -> Result<(), Errno> {
        self.populate_range(0..self.len)
    }

    /// As [`Map::populate`], for the pages in which a range of bytes lies. `EINVAL` for one beyond
    /// the map.
    pub fn populate_range(&self, range: Range<usize>) -> Result<(), Errno> {
        self.check(&range)?;
        let page = rustix::param::page_size();
        let (first, end) = (range.start / page * page, range.end.next_multiple_of(page));
        // SAFETY: in the map, as just checked; its length is a multiple of the page size.
        let start = unsafe { self.start.add(first) };
        // SAFETY: the range is this map's own, and populating it changes no content.
        match unsafe { madvise(start.as_ptr().cast(), end - first, Advice::LinuxPopulateWrite) } {
            // KERNEL: 5.14, MADV_POPULATE_WRITE; before that EINVAL, and memory comes at first
            // touch.
            Err(Errno::INVAL) => Ok(()),
            other => other,
        }
    }

    /// Has no huge pages from now on; those that are there stay until a part of them is released.
    #[cfg(not(loom))]
    pub fn renounce_huge_pages(&self) {
        // A kernel without transparent huge pages says EINVAL.
        // SAFETY: the range is this map's own; the advice changes no content.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxNoHugepage) };
    }

    /// Gives the memory of a range of bytes back to the kernel: it reads as zeros, and comes again
    /// at the next touch. Pages that a range shares with another are kept. `EINVAL` for a range
    /// beyond the map, and before Linux 5.18 for memory that is locked (mlock(2)).
    ///
    /// # Safety
    /// What the range holds is lost. Nobody has a reference to any of it, and who reads it at the
    /// same time does so by racy accesses, as if it were written.
    #[cfg(not(loom))]
    pub unsafe fn release(&self, range: Range<usize>) -> Result<(), Errno> {
        let (start, len) = self.whole_pages(range)?;
        if len == 0 {
            return Ok(());
        }
        let advise = |advice| {
            // SAFETY: whole pages of this map, whose content the caller gives up.
            unsafe { madvise(start.as_ptr().cast(), len, advice) }
        };
        match advise(Advice::LinuxDontNeed) {
            // It is locked.
            Err(Errno::INVAL) => advise(Advice::LinuxDontneedLocked),
            other => other,
        }
    }

    fn check(&self, range: &Range<usize>) -> Result<(), Errno> {
        let is_inside = range.start <= range.end && range.end <= self.len;
        if is_inside { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// Where the pages begin that lie in the range as a whole, and their length in bytes.
    #[cfg(not(loom))]
    fn whole_pages(&self, range: Range<usize>) -> Result<(NonNull<u8>, usize), Errno> {
        self.check(&range)?;
        let page = rustix::param::page_size();
        let first = range.start.next_multiple_of(page).min(self.len);
        let end = range.end / page * page;
        // SAFETY: in the map, as just checked.
        Ok((unsafe { self.start.add(first) }, end.saturating_sub(first)))
    }

    /// Has the pages come in turn from all nodes whose memory this process may use. On one node
    /// nothing changes. Comes before the first touch; an error changes nothing but where the memory
    /// comes from.
    #[cfg(not(loom))]
    pub fn interleave(&self) -> Result<(), Errno> {
        memory_policy::interleave(self.start, self.len)
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes; a multiple of the page size.
    #[expect(clippy::len_without_is_empty, reason = "a map is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the kernel took the advice to use huge pages. It may still lack free ones.
    pub fn huge_pages_advised(&self) -> bool {
        self.huge_pages_advised
    }
}

/// Maps `len` bytes at a multiple of `align`: maps more, then gives back both ends.
fn map_aligned(len: usize, align: usize, page: usize) -> Result<(NonNull<u8>, usize), Errno> {
    let reserve = len.checked_add(align - page).ok_or(Errno::NOMEM)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
    let base = unsafe {
        mmap_anonymous(std::ptr::null_mut(), reserve, ProtFlags::READ | ProtFlags::WRITE, flags)
    }?
    .cast::<u8>();
    let head = base.align_offset(align);
    let start = base.wrapping_add(head);
    let tail = reserve - head - len;
    for (at, surplus) in [(base, head), (start.wrapping_add(len), tail)] {
        if surplus > 0 {
            // SAFETY: a page-aligned part of the range mapped above that nobody has seen yet.
            unsafe { munmap(at.cast(), surplus) }?;
        }
    }
    Ok((NonNull::new(start).ok_or(Errno::NOMEM)?, len))
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; the owner gave up all use of it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole map cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_aligned_zeroed_and_writable() {
        for (huge, align) in
            [(HugePages::AsConfigured, 4096), (HugePages::Advised, HUGE_PAGE_BYTES)]
        {
            let map = Map::new(5 << 20 | 1, huge).unwrap();
            assert_eq!(map.start().as_ptr() as usize % align, 0);
            assert_eq!(map.len(), (5 << 20) + rustix::param::page_size());
            // SAFETY: the last byte of the map, which this test alone uses.
            let last = unsafe { map.start().add(map.len() - 1) };
            // SAFETY: mapped, and nobody else writes it.
            assert_eq!(unsafe { last.read() }, 0);
            // SAFETY: mapped, and nobody else uses it.
            unsafe { last.write(7) };
        }
    }

    #[test]
    fn populated_memory_is_resident_and_unchanged() {
        let map = Map::new(3 << 20, HugePages::AsConfigured).unwrap();
        // SAFETY: mapped, and nobody else uses it.
        unsafe { map.start().write(7) };
        map.populate().unwrap();
        assert!(resident(&map).iter().all(|&page| page));
        // SAFETY: as above.
        assert_eq!(unsafe { map.start().read() }, 7);
    }

    #[test]
    fn released_pages_are_zeros_and_their_neighbours_stay() {
        let map = Map::new(1 << 20, HugePages::AsConfigured).unwrap();
        let page = rustix::param::page_size();
        // SAFETY: mapped, and nobody else uses it.
        unsafe { map.start().write_bytes(7, map.len()) };
        // SAFETY: nobody has a reference to it.
        unsafe { map.release(1..3 * page + 1) }.unwrap();
        let expected: Vec<bool> = (0..map.len() / page).map(|at| at != 1 && at != 2).collect();
        assert_eq!(resident(&map), expected);
        let byte = |at| {
            // SAFETY: in the map.
            let at = unsafe { map.start().add(at) };
            // SAFETY: mapped, and nobody else uses it.
            unsafe { at.read() }
        };
        assert_eq!([byte(page - 1), byte(page), byte(3 * page - 1), byte(3 * page)], [7, 0, 0, 7]);
        map.populate_range(page + 1..page + 2).unwrap();
        assert!(resident(&map)[1] && byte(page) == 0);
        // SAFETY: refused.
        let beyond = unsafe { map.release(0..map.len() + 1) };
        let populated = map.populate_range(0..map.len() + 1);
        assert_eq!((beyond, populated), (Err(Errno::INVAL), Err(Errno::INVAL)));
    }

    #[test]
    fn locked_pages_are_released_too() {
        let map = Map::new(4 * rustix::param::page_size(), HugePages::AsConfigured).unwrap();
        map.populate().unwrap();
        // SAFETY: mapped; nothing is changed but that it stays in memory.
        unsafe { rustix::mm::mlock(map.start().as_ptr().cast(), map.len()) }.unwrap();
        // SAFETY: nobody has a reference to it.
        match unsafe { map.release(0..map.len()) } {
            Ok(()) => assert_eq!(resident(&map), [false; 4]),
            // KERNEL: 5.18, MADV_DONTNEED_LOCKED.
            Err(errno) => assert_eq!((errno, resident(&map)), (Errno::INVAL, vec![true; 4])),
        }
    }

    /// Which pages of the map are in memory.
    fn resident(map: &Map) -> Vec<bool> {
        let mut resident = vec![0_u8; map.len() / rustix::param::page_size()];
        let start = map.start().as_ptr().cast();
        // SAFETY: one byte a page of the map.
        let asked = unsafe { libc::mincore(start, map.len(), resident.as_mut_ptr()) };
        assert_eq!(asked, 0);
        resident.iter().map(|page| page & 1 == 1).collect()
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(Map::new(0, HugePages::AsConfigured).unwrap_err(), Errno::INVAL);
        assert_eq!(Map::new(usize::MAX, HugePages::Advised).unwrap_err(), Errno::NOMEM);
        assert_eq!(Map::new(1 << 62, HugePages::AsConfigured).unwrap_err(), Errno::NOMEM);
    }

    #[test]
    fn drop_unmaps() {
        let map = Map::new(1 << 20, HugePages::AsConfigured).unwrap();
        let start = map.start();
        drop(map);
        // SAFETY: mincore(2)-like question: madvise of an unmapped range changes nothing.
        let gone = unsafe { madvise(start.as_ptr().cast(), 4096, Advice::Normal) };
        assert_eq!(gone, Err(Errno::NOMEM));
    }

    /// Of several nodes, as in a virtual machine, `numa_maps` shows the policy.
    #[cfg(not(loom))]
    #[test]
    fn pages_interleave_over_all_nodes() {
        let map = Map::new(64 << 10, HugePages::AsConfigured).unwrap();
        match map.interleave() {
            Err(Errno::NOSYS | Errno::PERM) => println!("skipped: this kernel refuses"),
            done => assert_eq!(done, Ok(())),
        }
        map.populate().unwrap();
        // A list of numbers, as `0-1` or `0,2`.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let nodes = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
        let are_several = nodes.is_some_and(|nodes| nodes.contains(['-', ',']));
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        let start = format!("{:x} ", map.start().addr());
        match maps.lines().find(|line| line.starts_with(&start)) {
            Some(line) => assert_eq!(line.contains("interleave"), are_several, "{line}"),
            None => println!("skipped: no mapping of its own in numa_maps"),
        }
    }

    #[cfg(not(loom))]
    #[test]
    fn a_refused_interleave_says_so() {
        crate::refusal::in_child(|| {
            let map = Map::new(64 << 10, HugePages::AsConfigured).unwrap();
            crate::refusal::refuse_call(libc::SYS_get_mempolicy);
            assert_eq!(map.interleave(), Err(Errno::PERM));
        });
    }
}
