//! Names of system calls.

/// `$name => SYS_$name` for each call, sorted by nothing: the table is searched by number.
macro_rules! calls {
    ($($(#[$condition:meta])* $name:literal $number:ident,)*) => {
        &[$($(#[$condition])* ($name, libc::$number),)*]
    };
}

/// Calls that can block, wake or fail with EAGAIN, and those that programs make most.
#[rustfmt::skip]
const CALLS: &[(&str, libc::c_long)] = calls! {
    "read" SYS_read, "write" SYS_write, "readv" SYS_readv, "writev" SYS_writev,
    "pread64" SYS_pread64, "pwrite64" SYS_pwrite64, "preadv" SYS_preadv, "pwritev" SYS_pwritev,
    "preadv2" SYS_preadv2, "pwritev2" SYS_pwritev2, "openat" SYS_openat, "openat2" SYS_openat2,
    "close" SYS_close, "fstat" SYS_fstat, "statx" SYS_statx, "lseek" SYS_lseek,
    "fcntl" SYS_fcntl, "ioctl" SYS_ioctl, "flock" SYS_flock, "fsync" SYS_fsync,
    "fdatasync" SYS_fdatasync, "sync" SYS_sync, "syncfs" SYS_syncfs,
    "sync_file_range" SYS_sync_file_range, "fallocate" SYS_fallocate,
    "ftruncate" SYS_ftruncate, "fadvise64" SYS_fadvise64, "readahead" SYS_readahead,
    "getdents64" SYS_getdents64, "unlinkat" SYS_unlinkat, "renameat2" SYS_renameat2,
    "mkdirat" SYS_mkdirat, "sendfile" SYS_sendfile, "splice" SYS_splice, "tee" SYS_tee,
    "vmsplice" SYS_vmsplice, "copy_file_range" SYS_copy_file_range,
    "ppoll" SYS_ppoll, "pselect6" SYS_pselect6, "epoll_create1" SYS_epoll_create1,
    "epoll_ctl" SYS_epoll_ctl, "epoll_pwait" SYS_epoll_pwait, "epoll_pwait2" SYS_epoll_pwait2,
    "eventfd2" SYS_eventfd2, "timerfd_create" SYS_timerfd_create,
    "timerfd_settime" SYS_timerfd_settime, "signalfd4" SYS_signalfd4, "pipe2" SYS_pipe2,
    "io_setup" SYS_io_setup, "io_submit" SYS_io_submit, "io_getevents" SYS_io_getevents,
    "io_uring_setup" SYS_io_uring_setup,
    "io_uring_enter" SYS_io_uring_enter, "io_uring_register" SYS_io_uring_register,
    "socket" SYS_socket, "bind" SYS_bind, "listen" SYS_listen, "accept" SYS_accept,
    "accept4" SYS_accept4, "connect" SYS_connect, "sendto" SYS_sendto,
    "recvfrom" SYS_recvfrom, "sendmsg" SYS_sendmsg, "recvmsg" SYS_recvmsg,
    "sendmmsg" SYS_sendmmsg, "recvmmsg" SYS_recvmmsg, "shutdown" SYS_shutdown,
    "setsockopt" SYS_setsockopt, "getsockopt" SYS_getsockopt,
    "futex" SYS_futex, "futex_waitv" SYS_futex_waitv,
    "membarrier" SYS_membarrier, "sched_yield" SYS_sched_yield,
    "semget" SYS_semget, "semop" SYS_semop, "semtimedop" SYS_semtimedop,
    "msgsnd" SYS_msgsnd, "msgrcv" SYS_msgrcv, "mq_timedsend" SYS_mq_timedsend,
    "mq_timedreceive" SYS_mq_timedreceive,
    "nanosleep" SYS_nanosleep, "clock_nanosleep" SYS_clock_nanosleep,
    "clock_gettime" SYS_clock_gettime, "gettimeofday" SYS_gettimeofday,
    "rt_sigtimedwait" SYS_rt_sigtimedwait, "rt_sigsuspend" SYS_rt_sigsuspend,
    "rt_sigaction" SYS_rt_sigaction, "rt_sigprocmask" SYS_rt_sigprocmask,
    "kill" SYS_kill, "tkill" SYS_tkill, "tgkill" SYS_tgkill,
    "wait4" SYS_wait4, "waitid" SYS_waitid, "clone" SYS_clone, "clone3" SYS_clone3,
    "execve" SYS_execve, "execveat" SYS_execveat, "exit" SYS_exit, "exit_group" SYS_exit_group,
    "ptrace" SYS_ptrace, "getpid" SYS_getpid, "gettid" SYS_gettid,
    "restart_syscall" SYS_restart_syscall,
    "mmap" SYS_mmap, "munmap" SYS_munmap, "mprotect" SYS_mprotect, "madvise" SYS_madvise,
    "mremap" SYS_mremap, "brk" SYS_brk, "msync" SYS_msync, "mlock" SYS_mlock,
    "getrandom" SYS_getrandom, "prctl" SYS_prctl, "bpf" SYS_bpf,
    "perf_event_open" SYS_perf_event_open, "userfaultfd" SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")] "open" SYS_open,
    #[cfg(target_arch = "x86_64")] "stat" SYS_stat,
    #[cfg(target_arch = "x86_64")] "lstat" SYS_lstat,
    #[cfg(target_arch = "x86_64")] "access" SYS_access,
    #[cfg(target_arch = "x86_64")] "pipe" SYS_pipe,
    #[cfg(target_arch = "x86_64")] "poll" SYS_poll,
    #[cfg(target_arch = "x86_64")] "select" SYS_select,
    #[cfg(target_arch = "x86_64")] "epoll_wait" SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")] "pause" SYS_pause,
    #[cfg(target_arch = "x86_64")] "fork" SYS_fork,
    #[cfg(target_arch = "x86_64")] "vfork" SYS_vfork,
    #[cfg(target_arch = "x86_64")] "unlink" SYS_unlink,
    #[cfg(target_arch = "x86_64")] "rename" SYS_rename,
};

/// Calls that the C library has no numbers for yet. KERNEL: 6.7; the numbers are those of all
/// architectures.
const NEW_CALLS: &[(&str, libc::c_long)] =
    &[("futex_wake", 454), ("futex_wait", 455), ("futex_requeue", 456)];

/// The name of a system call, or its number; `None` is a wait outside of any.
pub(crate) fn call_name(number: Option<u32>) -> String {
    let Some(number) = number else { return "no call".into() };
    let mut all = CALLS.iter().chain(NEW_CALLS);
    let found = all.find(|(_, known)| *known == libc::c_long::from(number));
    found.map_or_else(|| format!("syscall {number}"), |(name, _)| (*name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names() {
        assert_eq!(call_name(Some(libc::SYS_futex as u32)), "futex");
        assert_eq!(call_name(Some(u32::MAX)), format!("syscall {}", u32::MAX));
        assert_eq!(call_name(None), "no call");
        let all = CALLS.iter().chain(NEW_CALLS);
        let mut numbers: Vec<_> = all.map(|(_, number)| number).collect();
        numbers.sort();
        numbers.dedup();
        assert_eq!(numbers.len(), CALLS.len() + NEW_CALLS.len(), "a number stands for one name");
    }
}
