//! Starting a program without a copy of the one that starts it.
//!
//! fork(2) copies the page tables of its caller, which then takes a page fault for each page that
//! it touches. Here the child borrows the memory of its parent until it executes the program, and
//! the parent's thread stands still meanwhile (clone(2), `CLONE_VM` and `CLONE_VFORK`), as in
//! posix_spawn(3), which cannot enter a cgroup, keep to processors or ask for a signal at its
//! parent's end.
//!
//! What the child may do until then (the invariants that SAFETY comments cite):
//!
//! 1. It has a stack of its own, and the thread whose memory and thread-local storage it borrows
//!    does not run: nothing of [`Start`] changes under it.
//! 2. Other threads of the parent run, and may hold any lock: it takes neither lock nor memory, and
//!    makes system calls alone.
//! 3. All signals are blocked until no handler of the parent is left, so none runs in the child.
#![expect(unsafe_code, reason = "clone and the steps between it and exec")]

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, getpid};

use crate::usage::{SpawnHow, settle};

/// As much as glibc's own search through `PATH` may take, and as much again.
const STACK_BYTES: usize = 64 << 10;

/// A program to be started with no input.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// What to execute; searched for in this process's `PATH` where it has no slash.
    pub path: &'a Path,
    /// Its arguments, without its name.
    pub args: &'a [OsString],
    /// Added to the environment of this process.
    pub environment: &'a [(&'a str, &'a str)],
    /// Where it runs, if not here.
    pub directory: Option<&'a Path>,
}

/// What a started program is known by.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// What the child reads, and the error that it leaves.
struct Start<'a> {
    program: *const c_char,
    args: *const *const c_char,
    environment: *const *const c_char,
    directory: Option<CString>,
    outputs: [RawFd; 3],
    how: SpawnHow<'a>,
    parent: Pid,
    failed: c_int,
}

/// Starts the program.
///
/// # Errors
///
/// What the kernel says to any step up to the program's execution; a NUL in a text.
pub(crate) fn start(program: &Program<'_>, how: SpawnHow<'_>) -> io::Result<Started> {
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
    let path = text(program.path.as_os_str())?;
    let mut args = vec![path.clone()];
    for arg in program.args {
        args.push(text(arg)?);
    }
    let is_replaced = |name: &OsStr| program.environment.iter().any(|(new, _)| name == *new);
    let mut environment = Vec::new();
    for (name, value) in std::env::vars_os().filter(|(name, _)| !is_replaced(name)) {
        environment.push(text(&[name, value].join(OsStr::new("=")))?);
    }
    for (name, value) in program.environment {
        environment.push(CString::new(format!("{name}={value}"))?);
    }
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (arg_pointers, environment_pointers) = (pointers(&args), pointers(&environment));
    let mut start = Start {
        program: path.as_ptr(),
        args: arg_pointers.as_ptr(),
        environment: environment_pointers.as_ptr(),
        directory: program.directory.map(|it| text(it.as_os_str())).transpose()?,
        outputs: [nothing.as_raw_fd(), stdout_end.as_raw_fd(), stderr_end.as_raw_fd()],
        how,
        parent: getpid(),
        failed: 0,
    };
    let (pid, pidfd) = clone_into(&mut start, args.len())?;
    match start.failed {
        0 => Ok(Started { pid, pidfd, stdout, stderr }),
        errno => {
            crate::usage::wait4(pid)?;
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// The texts as exec(2) takes them.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Runs [`run_child`] in a child, until that has executed the program or ended.
fn clone_into(start: &mut Start<'_>, args: usize) -> io::Result<(Pid, OwnedFd)> {
    // glibc puts the arguments on the stack again where a file without a format goes to sh(1).
    let words = (STACK_BYTES + (args + 2) * size_of::<usize>()).div_ceil(size_of::<u128>());
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(words);
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let mut pidfd: c_int = -1;
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the pointer is to a writable set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both are sets; no handler runs from here on (invariant 3).
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), mask.as_mut_ptr()) };
    // SAFETY: invariant 1: the stack and `start` outlive the child's use of them, because this
    // thread goes on only when the child has executed the program or ended.
    let pid = unsafe {
        libc::clone(run_child, top.cast(), flags, ptr::from_mut(start).cast(), &raw mut pidfd)
    };
    let error = io::Error::last_os_error();
    // SAFETY: the set is the one that was filled in above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut()) };
    drop(stack);
    let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else { return Err(error) };
    // SAFETY: the kernel has opened it for this call, and nobody else knows it.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// The child, up to the program.
extern "C" fn run_child(start: *mut c_void) -> c_int {
    // SAFETY: invariant 1: it is the `Start` of the thread that stands still.
    let start = unsafe { &mut *start.cast::<Start<'_>>() };
    start.failed = execute(start).raw_os_error();
    // SAFETY: it ends this process, and runs nothing of the parent's.
    unsafe { libc::_exit(127) }
}

/// Comes back only with an error.
fn execute(start: &Start<'_>) -> Errno {
    for (at, &output) in (0..).zip(&start.outputs) {
        // SAFETY: descriptors are the child's own: no `CLONE_FILES`.
        if unsafe { libc::dup2(output, at) } < 0 {
            return last_errno();
        }
    }
    if let Some(directory) = &start.directory {
        // SAFETY: the text ends with NUL; the working directory is the child's own.
        if unsafe { libc::chdir(directory.as_ptr()) } < 0 {
            return last_errno();
        }
    }
    if start.how.own_group && !start.how.own_session {
        // SAFETY: it changes this process alone.
        if unsafe { libc::setpgid(0, 0) } < 0 {
            return last_errno();
        }
    }
    if let Err(errno) = settle(start.how, start.parent) {
        return errno;
    }
    let_go_of_handlers();
    // SAFETY: program, arguments and environment end as exec(2) wants it and stay (invariant 1).
    unsafe { libc::execvpe(start.program, start.args, start.environment) };
    last_errno()
}

/// No handler and no blocked signal, as std starts programs; what is ignored stays so, except
/// SIGPIPE, which Rust's runtime ignores for itself.
fn let_go_of_handlers() {
    for signal in 1..=libc::SIGRTMAX() {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the pointer is to a writable action; the actions are the child's own.
        if unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: plain numbers, zeroed at least, and filled in by the kernel.
        let mut action = unsafe { action.assume_init() };
        let is_kept = action.sa_sigaction == libc::SIG_DFL
            || (action.sa_sigaction == libc::SIG_IGN && signal != libc::SIGPIPE);
        if !is_kept {
            action.sa_sigaction = libc::SIG_DFL;
            // SAFETY: an action like the one before, with the kernel's default.
            unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        }
    }
    let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the pointer is to a writable set.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set is empty; no handler is left that could run (invariant 3).
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) };
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use unherd_sys::Deadline;

    use super::*;
    use crate::ChildProcess;

    const HOW: SpawnHow<'static> = SpawnHow {
        die_with_parent: true,
        own_group: true,
        own_session: false,
        cgroup: None,
        cpus: None,
    };

    fn run(script: &str, directory: Option<&Path>, how: SpawnHow<'_>) -> (i32, String) {
        let args = ["-c".into(), script.into(), "name".into(), "an argument".into()];
        let program = Program {
            path: Path::new("sh"),
            args: &args,
            environment: &[("UNHERD_TEST", "a value"), ("HOME", "/replaced")],
            directory,
        };
        let mut child = ChildProcess::start(&program, how).unwrap();
        let mut said = String::new();
        child.take_stdout().unwrap().read_to_string(&mut said).unwrap();
        child.take_stderr().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait(Deadline::NEVER).unwrap().unwrap().status;
        (status.code().unwrap(), said)
    }

    #[test]
    fn started_program_has_what_was_asked() {
        let script = "echo \"$UNHERD_TEST $HOME $1\"; pwd; cat; echo err >&2; exit 3";
        let (code, said) = run(script, Some(Path::new("/usr")), HOW);
        assert_eq!((code, &*said), (3, "a value /replaced an argument\n/usr\nerr\n"));
    }

    #[test]
    fn group_and_session_are_its_own() {
        let fields = |how| {
            let (_, said) = run("set -- $(cat /proc/$$/stat); echo $1 $5 $6", None, how);
            said.split_whitespace().map(|it| it.parse().unwrap()).collect::<Vec<i32>>()
        };
        let [pid, group, session] = fields(HOW)[..] else { panic!("three numbers") };
        assert!(pid == group && session != pid, "{pid} {group} {session}");
        let own = fields(SpawnHow { own_session: true, ..HOW });
        assert!(own.iter().all(|it| *it == own[0]), "{own:?}");
    }

    #[test]
    fn started_program_has_default_signals() {
        // Rust ignores SIGPIPE (bit 12) for itself; a program is not to inherit that, a block or a
        // handler.
        let (_, said) = run("exec cat /proc/self/status", None, HOW);
        let bits = |name: &str| {
            let line = said.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap()
        };
        assert_eq!((bits("SigBlk"), bits("SigIgn") & 1 << 12, bits("SigCgt")), (0, 0, 0), "{said}");
    }

    #[test]
    fn refused_start_names_the_reason() {
        let error = |path: &str, directory: Option<&str>| {
            let program = Program {
                path: Path::new(path),
                args: &[],
                environment: &[],
                directory: directory.map(Path::new),
            };
            ChildProcess::start(&program, HOW).unwrap_err().kind()
        };
        assert_eq!(error("/nonexistent/program", None), io::ErrorKind::NotFound);
        assert_eq!(error("no-such-program", None), io::ErrorKind::NotFound);
        assert_eq!(error("/dev/null", None), io::ErrorKind::PermissionDenied);
        assert_eq!(error("true", Some("/nonexistent")), io::ErrorKind::NotFound);
        assert_eq!(error("a\0b", None), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn blocked_signals_come_back_after_a_start() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|line| line.starts_with("SigBlk")).unwrap().to_owned()
        };
        let before = blocked();
        run("true", None, HOW);
        assert_eq!(blocked(), before);
    }
}
