//! Address space now, memory later: what a table that grows in place is built on.
//!
//! A [`Reserve`] keeps its address for life, so whoever holds a pointer into it never finds
//! something else there. Each page is in one of three states:
//!
//! | state | how it gets there | an access | memory |
//! |---|---|---|---|
//! | reserved | [`Reserve::new`] | SIGSEGV | none |
//! | committed | [`Reserve::commit`]; [`Reserve::give_back`] | reads zeros; a write takes a page | none |
//! | populated | [`Reserve::populate`], or a write to it | what was written last | a page |
//!
//! No page goes back to *reserved* before the drop: a pointer into a page that once was committed
//! can be followed until then, and reads zeros at worst. The kernel changes its page tables for all
//! threads before `commit` returns; a thread that learns of it by an Acquire of what the committer
//! released afterwards may use the memory.
//!
//! Like a [`Map`](crate::Map) it hands out a raw pointer, never a slice. What lies in the memory is
//! read and written under rules that the owner makes, and those rules must allow for what the
//! methods here do to it: `give_back` makes zeros of it, and `populate` on a kernel before 5.14
//! reads the first four bytes of each page, and writes zeros over zeros, as one atomic of that
//! size. That is why none of the methods is `unsafe`. A child made by fork(2) gets a copy in the
//! same state.
//!
//! Ranges are in bytes from the start and consist of whole pages ([`Reserve::page_bytes`]); an
//! empty range is allowed, and nothing is done to it. All methods may be called by several threads
//! at a time. `commit`, `interleave` and `bind` take the lock of the process's address space for
//! writing, so that page faults of other threads wait for them; the others at most share it.
//!
//! What it costs on a virtual machine of two processors: `commit` 2 µs whatever the length,
//! `populate` 1 µs a page, `give_back` 2 µs and 0.2 µs a page, and 10 µs more while a thread of
//! the process runs on the other one, which is interrupted.
#![expect(unsafe_code, reason = "mmap, mprotect, madvise and mincore are raw by nature")]

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap,
};

use crate::primitives::{AtomicU32, Ordering};
use crate::{NodeId, memory_policy};

/// Why a [`Reserve`] did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// There is no such range.
    NoSuchRange {
        /// The range asked for, in bytes.
        range: Range<usize>,
        /// The length of the reserve, in bytes.
        len_bytes: usize,
        /// The size of a page, in bytes.
        page_bytes: usize,
    },
    /// The address space could not be reserved.
    NotReserved {
        /// How much was asked for, in bytes.
        bytes: usize,
        /// What the kernel said.
        errno: Errno,
    },
    /// The memory was refused: what was committed before still is, and holds what it held.
    NoMemory {
        /// How much was asked for, in bytes.
        bytes: usize,
        /// What the kernel said.
        errno: Errno,
    },
    /// The memory was not taken back. `EINVAL`: it is locked (mlock(2), mlockall(2)).
    NotGivenBack {
        /// How much was to be given back, in bytes.
        bytes: usize,
        /// What the kernel said.
        errno: Errno,
    },
    /// The wish for nodes was refused; the memory comes from where the kernel chooses. `EINVAL`: no
    /// such node has memory that this process may use; `ENOSYS`: a kernel without NUMA; `EPERM`: a
    /// container's filter, which wants CAP_SYS_NICE.
    NotPlaced {
        /// How much was to be placed, in bytes.
        bytes: usize,
        /// What the kernel said.
        errno: Errno,
    },
    /// The kernel did not tell what is in memory.
    NotCounted {
        /// The length of the reserve, in bytes.
        bytes: usize,
        /// What the kernel said.
        errno: Errno,
    },
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchRange { range, len_bytes, page_bytes } => write!(
                f,
                "bytes {} to {} are not whole pages of {page_bytes} bytes in {len_bytes}",
                range.start, range.end
            ),
            Self::NotReserved { bytes, errno } => write!(
                f,
                "no address space for {bytes} bytes ({errno}): raise the limit on it (ulimit -v)"
            ),
            Self::NoMemory { bytes, errno } => write!(
                f,
                "no memory for {bytes} bytes ({errno}): raise the limit on data (ulimit -d), that \
                 of the memory cgroup, or with vm.overcommit_memory=2 what the machine may commit"
            ),
            Self::NotGivenBack { bytes, errno } => write!(
                f,
                "{bytes} bytes stay in memory ({errno}): if they are locked, unlock them first"
            ),
            Self::NotPlaced { bytes, errno } => {
                write!(f, "{bytes} bytes could not be placed on the NUMA nodes asked for ({errno})")
            }
            Self::NotCounted { bytes, errno } => {
                write!(f, "what of {bytes} bytes is in memory was not told ({errno})")
            }
        }
    }
}

impl Error for ReserveError {}

/// A range of addresses whose memory comes and goes by page.
///
/// ```
/// # fn main() -> Result<(), unherd_sys::ReserveError> {
/// use unherd_sys::Reserve;
///
/// let reserve = Reserve::new(64 << 20)?;
/// let first = 0..reserve.page_bytes();
/// reserve.commit(first.clone())?;
/// reserve.populate(first.clone())?;
/// assert_eq!(reserve.resident_bytes()?, reserve.page_bytes());
/// reserve.give_back(first)?;
/// assert_eq!(reserve.resident_bytes()?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reserve {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Reserve` is an address, a length and the duty to unmap; munmap(2) may be called by any
// thread. What the memory holds is reached through raw pointers alone, at their user's own duty.
unsafe impl Send for Reserve {}
// SAFETY: as above; the shared methods are system calls, which the kernel orders, and an atomic.
unsafe impl Sync for Reserve {}

impl Reserve {
    /// Reserves `len_bytes` bytes of addresses, rounded up to whole pages.
    ///
    /// No memory is used or promised: the pages have no access (`PROT_NONE`), are not counted by
    /// overcommit (`MAP_NORESERVE`; mode 2 counts at [`Reserve::commit`]), and never become huge
    /// pages (`MADV_NOHUGEPAGE`), which would take 2 MiB where one page was touched. Refused with
    /// [`ReserveError::NotReserved`]: `EINVAL` for no bytes, `ENOMEM` over the limit `RLIMIT_AS`,
    /// `EAGAIN` where all memory is to be locked (mlockall(2)) and the limit on that is too low.
    pub fn new(len_bytes: usize) -> Result<Self, ReserveError> {
        let not_reserved = |errno| ReserveError::NotReserved { bytes: len_bytes, errno };
        if len_bytes == 0 {
            return Err(not_reserved(Errno::INVAL));
        }
        let len = len_bytes
            .checked_next_multiple_of(rustix::param::page_size())
            .ok_or_else(|| not_reserved(Errno::NOMEM))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses a range that nothing else uses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) }
            .map_err(not_reserved)?;
        let start = NonNull::new(start.cast()).ok_or_else(|| not_reserved(Errno::NOMEM))?;
        let reserve = Self { start, len };
        // SAFETY: the range is this reserve's own; the advice changes no content.
        let advised = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxNoHugepage) };
        match advised {
            // A kernel without transparent huge pages does not know the advice, nor needs it.
            Ok(()) | Err(Errno::INVAL) => Ok(reserve),
            Err(errno) => Err(not_reserved(errno)),
        }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes; a multiple of [`Reserve::page_bytes`].
    #[expect(clippy::len_without_is_empty, reason = "a reserve is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The size of a page, in bytes: what ranges are multiples of.
    pub fn page_bytes(&self) -> usize {
        rustix::param::page_size()
    }

    /// Makes a range accessible: it reads as zeros, and a first write to a page takes memory.
    /// What was committed already keeps what it holds.
    ///
    /// [`ReserveError::NoMemory`] beyond `RLIMIT_DATA` or, with `vm.overcommit_memory=2`, beyond
    /// what the machine may commit; or where the process has too many mappings
    /// (`vm.max_map_count`: ranges that follow each other are one). Part of the range may be
    /// accessible then. That this succeeds does not mean that the memory will be there: a memory
    /// cgroup counts pages as they are written.
    pub fn commit(&self, range: Range<usize>) -> Result<(), ReserveError> {
        let (start, bytes) = self.part(range)?;
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: a part of this reserve; access is only added, so no pointer loses its target.
        unsafe { mprotect(start.as_ptr().cast(), bytes, access) }
            .map_err(|errno| ReserveError::NoMemory { bytes, errno })
    }

    /// Takes the memory of a range now instead of at the first writes; what it holds stays. Commits
    /// what is not yet committed.
    ///
    /// [`ReserveError::NoMemory`] as of [`Reserve::commit`], and where no page can be had; some of
    /// the pages may have come then. Under the limit of a memory cgroup it takes what a write would
    /// take: the cgroup's processes are first made to reclaim, then the kernel may kill one of
    /// them. Blocks for as long as clearing the pages and that reclaim take.
    pub fn populate(&self, range: Range<usize>) -> Result<(), ReserveError> {
        let (start, bytes) = self.part(range.clone())?;
        let populate = || {
            // SAFETY: a part of this reserve; populating changes no content.
            unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) }
        };
        match populate() {
            // EINVAL: not all of it is committed, or the kernel does not know the advice.
            Err(Errno::INVAL) => {
                self.commit(range.clone())?;
                match populate() {
                    // KERNEL: 5.14, MADV_POPULATE_WRITE.
                    Err(Errno::INVAL) => {
                        self.touch(range);
                        Ok(())
                    }
                    done => done,
                }
            }
            done => done,
        }
        .map_err(|errno| ReserveError::NoMemory { bytes, errno })
    }

    /// Writes to each page of a committed range without changing what it holds.
    fn touch(&self, range: Range<usize>) {
        for at in range.step_by(self.page_bytes()) {
            let page = self.start.as_ptr().wrapping_add(at).cast();
            // SAFETY: aligned, in a part of this reserve that is committed, and by the rule at the
            // top nobody uses it otherwise than as an atomic of this size at the time.
            let word = unsafe { AtomicU32::from_ptr(page) };
            // Zeros over zeros; what is not zero was written, so it has its page. A `fetch_or(0)`
            // would not do: compilers make a load of it, which takes no page.
            let _ = word.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Gives the memory of a range back to the kernel: it reads as zeros afterwards, and stays as
    /// accessible as it was.
    ///
    /// Every processor that runs a thread of this process is interrupted, to forget what it knows
    /// of these pages: give back few large ranges rather than many small ones.
    /// [`ReserveError::NotGivenBack`] for locked memory; any part of the range may read as zeros
    /// then.
    pub fn give_back(&self, range: Range<usize>) -> Result<(), ReserveError> {
        let (start, bytes) = self.part(range)?;
        // SAFETY: a part of this reserve, whose users must allow for zeros by the rule at the top.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }
            .map_err(|errno| ReserveError::NotGivenBack { bytes, errno })
    }

    /// Has the pages of the whole reserve come from `nodes` in turn. Pages that are there already
    /// stay where they are; of `nodes`, those are left out that have no memory for this process.
    ///
    /// [`ReserveError::NotPlaced`] changes nothing but where the memory comes from, so it is no
    /// reason to fail: count it and go on. `EINVAL` if none is left of `nodes`.
    pub fn interleave(&self, nodes: &[NodeId]) -> Result<(), ReserveError> {
        self.set_policy(0..self.len, libc::MPOL_INTERLEAVE, nodes)
    }

    /// Has the pages of a range come from `node` while that has some, else from near it. Pages that
    /// are there already stay where they are. Each range that is bound is a mapping of its own.
    ///
    /// [`ReserveError::NotPlaced`] as of [`Reserve::interleave`].
    pub fn bind(&self, range: Range<usize>, node: NodeId) -> Result<(), ReserveError> {
        self.set_policy(range, libc::MPOL_PREFERRED, &[node])
    }

    fn set_policy(
        &self,
        range: Range<usize>,
        policy: libc::c_int,
        nodes: &[NodeId],
    ) -> Result<(), ReserveError> {
        let (start, bytes) = self.part(range)?;
        memory_policy::set(start, bytes, policy, nodes)
            .map_err(|errno| ReserveError::NotPlaced { bytes, errno })
    }

    /// How many bytes of the reserve are in memory, as mincore(2) tells.
    ///
    /// It is an upper bound: a committed page that was read but never written counts, although the
    /// one page of zeros that the kernel shows there belongs to nobody. Allocates up to 4 KiB; for
    /// reports, not for hot paths.
    pub fn resident_bytes(&self) -> Result<usize, ReserveError> {
        const PAGES_AT_A_TIME: usize = 4096;
        let page = self.page_bytes();
        let mut told = vec![0_u8; PAGES_AT_A_TIME.min(self.len / page)];
        let mut resident = 0;
        for at in (0..self.len).step_by(PAGES_AT_A_TIME * page) {
            let bytes = (self.len - at).min(PAGES_AT_A_TIME * page);
            let start = self.start.as_ptr().wrapping_add(at).cast();
            // SAFETY: a part of this reserve, and room for one byte of answer for each of its
            // pages.
            if unsafe { libc::mincore(start, bytes, told.as_mut_ptr()) } != 0 {
                return Err(ReserveError::NotCounted { bytes: self.len, errno: last_errno() });
            }
            resident += told[..bytes / page].iter().filter(|page| **page & 1 == 1).count();
        }
        Ok(resident * page)
    }

    /// Where a range starts and how long it is, if it is one.
    fn part(&self, range: Range<usize>) -> Result<(NonNull<u8>, usize), ReserveError> {
        let page_bytes = self.page_bytes();
        let whole = [range.start, range.end].iter().all(|at| at.is_multiple_of(page_bytes));
        if !whole || range.start > range.end || range.end > self.len {
            return Err(ReserveError::NoSuchRange { range, len_bytes: self.len, page_bytes });
        }
        // SAFETY: in the reserve or one past its end, as just checked.
        let start = unsafe { self.start.add(range.start) };
        Ok((start, range.end - range.start))
    }
}

/// What the last system call through libc said.
fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `new` mapped; the owner gave up all use of it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole reserve cannot fail");
    }
}

#[cfg(test)]
mod tests;
