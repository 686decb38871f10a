//! What each system call is to a tracer: what it waits for, and whether it gets a thread anywhere.
//!
//! The table is data for the eBPF programs (`uh_class` in `bpf/record.h`), indexed by the number
//! that this architecture gives the call.

use libc as c;

/// Numbers beyond are not classified: there are none yet.
pub(crate) const SYSCALLS: usize = 512;

/// Bytes of one entry.
pub(crate) const CLASS_BYTES: usize = 8;

const LOOKS_AGAIN: u8 = 1;
const NEUTRAL: u8 = 2;
const CONSUMES: u8 = 4;
const RESTART: u8 = 8;
const POLLS: u8 = 16;
const LEDGER: u8 = 32;
const LOOKS: u8 = 64;
const FOR_NOBODY: u8 = 128;

/// What a call waits for.
#[derive(Clone, Copy)]
enum Waits {
    Nothing,
    /// For a futex, in the way of this entry point (`uh_futex_entry`).
    Futex(u8),
    /// For the descriptor in this argument.
    Descriptor(u8),
    /// For the set in this argument, unless the second named argument is zero.
    Set(u8, u8),
}

/// Calls that wait for the same in other words share a family. `Epoll` is known to the programs.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Family {
    Any = 0,
    Futex,
    Epoll,
    Poll,
    Select,
    Read,
    Accept,
    Signal,
    Pause,
    Lock,
    /// These are known to the programs: `uh_family`.
    MemoryFile = 32,
    Map,
    FileLock,
    Child,
}

#[derive(Clone, Copy)]
struct Class {
    waits: Waits,
    family: Family,
    flags: u8,
}

impl Class {
    const fn new(waits: Waits, family: Family, flags: u8) -> Self {
        Self { waits, family, flags }
    }

    /// As `struct uh_class` has it.
    fn bytes(self) -> [u8; CLASS_BYTES] {
        let (object, arg, nonempty, futex) = match self.waits {
            Waits::Nothing => (0, 0, 0, 0),
            Waits::Futex(entry) => (1, 0, 0, entry),
            Waits::Descriptor(arg) => (2, arg, 0, 0),
            Waits::Set(arg, count) => (3, arg, count + 1, 0),
        };
        [object, arg, self.family as u8, self.flags, futex, nonempty, 0, 0]
    }
}

// Calls that libc does not name everywhere; these numbers are the same on all architectures.
const EPOLL_PWAIT2: c::c_long = 441;
const FUTEX_WAITV: c::c_long = 449;
const FUTEX_WAKE: c::c_long = 454;
const FUTEX_WAIT: c::c_long = 455;
const FUTEX_REQUEUE: c::c_long = 456;

/// The calls that wait for something that has a name, and what they are.
fn waiting() -> Vec<(c::c_long, Class)> {
    let descriptor = Waits::Descriptor;
    let looks = LOOKS_AGAIN;
    let mut calls = vec![
        (c::SYS_futex, Class::new(Waits::Futex(1), Family::Futex, NEUTRAL | looks)),
        (FUTEX_WAITV, Class::new(Waits::Futex(2), Family::Futex, NEUTRAL | looks)),
        (FUTEX_WAKE, Class::new(Waits::Futex(3), Family::Futex, NEUTRAL | looks)),
        (FUTEX_WAIT, Class::new(Waits::Futex(4), Family::Futex, NEUTRAL | looks)),
        (FUTEX_REQUEUE, Class::new(Waits::Futex(5), Family::Futex, NEUTRAL | looks)),
        (c::SYS_epoll_pwait, Class::new(descriptor(0), Family::Epoll, NEUTRAL | looks | POLLS)),
        (EPOLL_PWAIT2, Class::new(descriptor(0), Family::Epoll, NEUTRAL | looks | POLLS)),
        (c::SYS_ppoll, Class::new(Waits::Set(0, 1), Family::Poll, NEUTRAL | looks | POLLS)),
        (c::SYS_pselect6, Class::new(Waits::Set(1, 0), Family::Select, NEUTRAL | looks | POLLS)),
        // Terminals, low-water marks and FUSE sleep again with a part in hand: no proof.
        (c::SYS_read, Class::new(descriptor(0), Family::Read, CONSUMES)),
        (c::SYS_readv, Class::new(descriptor(0), Family::Read, CONSUMES)),
        (c::SYS_recvfrom, Class::new(descriptor(0), Family::Read, CONSUMES)),
        (c::SYS_recvmsg, Class::new(descriptor(0), Family::Read, CONSUMES)),
        // Sleeps once a message, so a second sleep is no proof.
        (c::SYS_recvmmsg, Class::new(descriptor(0), Family::Read, CONSUMES)),
        (c::SYS_preadv, Class::new(descriptor(0), Family::Read, CONSUMES)),
        (c::SYS_pread64, Class::new(descriptor(0), Family::Read, CONSUMES)),
        (c::SYS_accept, Class::new(descriptor(0), Family::Accept, looks)),
        (c::SYS_accept4, Class::new(descriptor(0), Family::Accept, looks)),
        // These block as often as it takes to hand all over.
        (c::SYS_write, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_writev, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_sendto, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_sendmsg, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_sendmmsg, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_sendfile, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_splice, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_shutdown, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_connect, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_io_uring_enter, Class::new(descriptor(0), Family::Any, 0)),
        (c::SYS_flock, Class::new(descriptor(0), Family::Lock, looks)),
        (c::SYS_wait4, Class::new(Waits::Nothing, Family::Child, CONSUMES | looks)),
        (c::SYS_waitid, Class::new(Waits::Nothing, Family::Child, looks)),
        (c::SYS_rt_sigtimedwait, Class::new(Waits::Nothing, Family::Signal, CONSUMES | looks)),
        (c::SYS_rt_sigsuspend, Class::new(Waits::Nothing, Family::Signal, NEUTRAL)),
        (c::SYS_nanosleep, Class::new(Waits::Nothing, Family::Pause, NEUTRAL)),
        (c::SYS_clock_nanosleep, Class::new(Waits::Nothing, Family::Pause, NEUTRAL)),
        (c::SYS_memfd_create, Class::new(Waits::Nothing, Family::MemoryFile, LEDGER | FOR_NOBODY)),
        (c::SYS_mmap, Class::new(Waits::Nothing, Family::Map, LEDGER | FOR_NOBODY)),
        // Of its commands those that lock a file without waiting for it are looked at.
        (c::SYS_fcntl, Class::new(Waits::Nothing, Family::FileLock, NEUTRAL | LOOKS)),
        (c::SYS_restart_syscall, Class::new(Waits::Nothing, Family::Any, RESTART)),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        (c::SYS_epoll_wait, Class::new(descriptor(0), Family::Epoll, NEUTRAL | looks | POLLS)),
        (c::SYS_poll, Class::new(Waits::Set(0, 1), Family::Poll, NEUTRAL | looks | POLLS)),
        (c::SYS_select, Class::new(Waits::Set(1, 0), Family::Select, NEUTRAL | looks | POLLS)),
        (c::SYS_pause, Class::new(Waits::Nothing, Family::Signal, NEUTRAL)),
    ]);
    calls
}

/// Calls that only arrange the thread's own affairs: a thread that has done nothing else since it
/// was woken has got nowhere.
fn neutral() -> Vec<c::c_long> {
    let mut calls = vec![
        c::SYS_sched_yield,
        c::SYS_sched_getaffinity,
        c::SYS_sched_getparam,
        c::SYS_sched_getscheduler,
        c::SYS_clock_gettime,
        c::SYS_clock_getres,
        c::SYS_gettimeofday,
        c::SYS_times,
        c::SYS_getrusage,
        c::SYS_getcpu,
        c::SYS_getpid,
        c::SYS_getppid,
        c::SYS_gettid,
        c::SYS_getuid,
        c::SYS_geteuid,
        c::SYS_getgid,
        c::SYS_getegid,
        c::SYS_rt_sigaction,
        c::SYS_rt_sigprocmask,
        c::SYS_rt_sigpending,
        c::SYS_rt_sigreturn,
        c::SYS_sigaltstack,
        c::SYS_membarrier,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([c::SYS_time]);
    calls
}

/// Calls that only look: no progress, but where one succeeds the thread has not met EAGAIN alone.
fn looking() -> Vec<c::c_long> {
    let mut calls = vec![
        c::SYS_fstat,
        c::SYS_newfstatat,
        c::SYS_statx,
        c::SYS_faccessat,
        c::SYS_lseek,
        c::SYS_getsockopt,
        c::SYS_madvise,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([c::SYS_stat, c::SYS_lstat, c::SYS_access]);
    calls
}

/// Calls that get something done, of which nobody else has anything: a thread that makes just these
/// between two sleeps looks at files, or has made itself something to look with.
fn for_nobody() -> Vec<c::c_long> {
    let mut calls = vec![
        c::SYS_openat,
        c::SYS_openat2,
        c::SYS_close,
        c::SYS_getdents64,
        c::SYS_readlinkat,
        c::SYS_statfs,
        c::SYS_fstatfs,
        c::SYS_getxattr,
        c::SYS_fgetxattr,
        c::SYS_faccessat2,
        c::SYS_getcwd,
        c::SYS_munmap,
        c::SYS_mprotect,
        c::SYS_mremap,
        c::SYS_brk,
        c::SYS_mincore,
        c::SYS_dup,
        c::SYS_dup3,
        c::SYS_pipe2,
        c::SYS_socket,
        c::SYS_setsockopt,
        c::SYS_getsockname,
        c::SYS_getpeername,
        c::SYS_eventfd2,
        c::SYS_epoll_create1,
        c::SYS_epoll_ctl,
        c::SYS_timerfd_create,
        c::SYS_timerfd_settime,
        c::SYS_getrandom,
        c::SYS_uname,
        c::SYS_sysinfo,
        c::SYS_prlimit64,
        c::SYS_prctl,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([c::SYS_open, c::SYS_getdents, c::SYS_readlink, c::SYS_dup2, c::SYS_pipe]);
    calls
}

/// The table, as bytes of `struct uh_class[UH_SYSCALLS]`.
pub(crate) fn table() -> Vec<u8> {
    let mut table = vec![0; SYSCALLS * CLASS_BYTES];
    let class = |flags| Class::new(Waits::Nothing, Family::Any, flags);
    let neutral = neutral().into_iter().map(|nr| (nr, class(NEUTRAL)));
    let looking = looking().into_iter().map(|nr| (nr, class(NEUTRAL | LOOKS)));
    let for_nobody = for_nobody().into_iter().map(|nr| (nr, class(FOR_NOBODY)));
    for (nr, class) in waiting().into_iter().chain(neutral).chain(looking).chain(for_nobody) {
        let at = nr as usize * CLASS_BYTES;
        if let Some(entry) = table.get_mut(at..at + CLASS_BYTES) {
            entry.copy_from_slice(&class.bytes());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_stands_in_both_lists() {
        let neutral = neutral();
        for (nr, _) in waiting() {
            assert!(!neutral.contains(&nr), "{nr} is in both");
        }
    }

    #[test]
    fn every_call_has_its_own_entry() {
        let mut numbers: Vec<_> = waiting().into_iter().map(|(nr, _)| nr).collect();
        numbers.extend(neutral());
        numbers.extend(looking());
        numbers.extend(for_nobody());
        let table = table();
        let filled = table.chunks(CLASS_BYTES).filter(|entry| entry.iter().any(|b| *b != 0));
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "a number stands twice");
        // A neutral look and a wait all have at least a flag; writes have an object.
        assert_eq!(filled.count(), count);
    }

    #[test]
    fn entry_matches_what_programs_read() {
        let table = table();
        let entry = |nr: c::c_long| &table[nr as usize * CLASS_BYTES..][..CLASS_BYTES];
        assert_eq!(entry(c::SYS_futex), [1, 0, 1, 3, 1, 0, 0, 0]);
        assert_eq!(entry(c::SYS_recvfrom), [2, 0, 5, 4, 0, 0, 0, 0]);
        assert_eq!(entry(c::SYS_ppoll), [3, 0, 3, 19, 0, 2, 0, 0]);
    }
}
