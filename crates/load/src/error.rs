//! Why a round was not measured.

use std::io;
use std::path::PathBuf;

use unherd::device::OpenError;

/// Why a round was not measured. Its text is one line: what, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The command line asks for something that there is not.
    #[error("{0}")]
    Usage(String),
    /// The directory's file system has too little space; nothing was written.
    #[error(
        "{dir}: the file set needs {needed_bytes} bytes and {free_bytes} are free: \
         free some, give another --dir, or a smaller --memory"
    )]
    Space {
        /// The directory.
        dir: PathBuf,
        /// What the run would write at its largest, in bytes.
        needed_bytes: u64,
        /// What the file system has for this user, in bytes.
        free_bytes: u64,
    },
    /// The directory cannot hold the run's files.
    #[error("{dir}: {source}: give a --dir that exists and can be written")]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel or the file system has no uncached buffered I/O; nothing was written.
    #[error(
        "{dir}: no uncached buffered I/O (RWF_DONTCACHE) here: give a --dir on ext4, XFS or \
         another file system that has it, with Linux 6.14 or later, or leave kernel-dontcache out"
    )]
    NoDontCache {
        /// The directory.
        dir: PathBuf,
    },
    /// A file of the run could not be made.
    #[error("{path}: {}", why_not_open(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system or the cache said.
        source: io::Error,
    },
    /// A file operation of the measured implementation failed.
    #[error("{doing} file {file}: {message}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file's number in the file set.
        file: usize,
        /// What the implementation said.
        message: String,
    },
    /// What was read is not what was written.
    #[error(
        "file {file}, byte {offset}: read {found:#018x} where {expected:#018x} was written: \
         the implementation lost or damaged data"
    )]
    Corrupt {
        /// The file's number in the file set.
        file: usize,
        /// Where in the file, in bytes.
        offset: u64,
        /// The eight bytes that were written there.
        expected: u64,
        /// The eight bytes that were read.
        found: u64,
    },
    /// A thread did not see each completion of its page once and in order.
    #[error(
        "page {page}: completion {completion} reached its thread as {found:#018x}, not as \
         {expected:#018x}: the implementation lost or repeated a completion"
    )]
    Disorder {
        /// The page.
        page: usize,
        /// Which completion of it.
        completion: u64,
        /// The value that was published with it.
        expected: u64,
        /// The value that the thread saw.
        found: u64,
    },
    /// A wait ended while its page was still pending.
    #[error(
        "page {page}: the wait for completion {completion} ended before it came: the \
         implementation must look again before it returns"
    )]
    Early {
        /// The page.
        page: usize,
        /// Which completion of it.
        completion: u64,
    },
    /// Pages that had been brought in were not there when they were timed.
    #[error("{misses} misses among the hits: the cache gave up pages that it had room for")]
    Missed {
        /// How many.
        misses: u64,
    },
    /// The kernel does not give this process a table of futexes of its own.
    #[error(
        "PR_FUTEX_HASH with {slots} slots: {source}: give 0 or a power of two as slots, with Linux \
         6.16 or later, or leave kernel-tuned out"
    )]
    FutexSlots {
        /// What was asked for.
        slots: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Sections that were to exclude each other did not.
    #[error(
        "{done} sections were done, and {counted} were counted under the mutex: \
         the implementation lets two threads in at a time"
    )]
    NotExclusive {
        /// By the threads' own counts.
        done: u64,
        /// By the count that the mutex guards.
        counted: u64,
    },
    /// A wait whose word held another value was not refused.
    #[error("{refused} of {waits} waits were refused: the implementation must compare the word")]
    NotRefused {
        /// How many there were.
        waits: u64,
        /// How many of them were refused.
        refused: u64,
    },
    /// Wakes and waits do not agree on how many were woken.
    #[error(
        "{woken} threads were woken and {came_back} waits ended by a wake: the implementation \
         loses or invents some"
    )]
    NotAsWoken {
        /// How many, as the wakes say.
        woken: u64,
        /// How many, as the waits say.
        came_back: u64,
    },
    /// Events were lost or invented.
    #[error(
        "{found} events or empty checks of {expected}: the implementation loses or invents some"
    )]
    NotPolled {
        /// How many there were.
        expected: u64,
        /// How many were found.
        found: u64,
    },
    /// A stall was not told in time.
    #[error("{by} does not tell a stall of {stall:?}, which has lasted for longer")]
    StallNotTold {
        /// How long it was to last.
        stall: std::time::Duration,
        /// What does not tell it.
        by: &'static str,
    },
    /// A program that the workload runs did not do its part.
    #[error("{program} {message}")]
    Program {
        /// The program.
        program: String,
        /// What it did instead, with what it had to say.
        message: String,
    },
    /// The server of `web` could not be set up.
    #[error("{doing}: {source}: give a --port that is free, and raise `ulimit -n`")]
    Web {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The runner cannot find itself.
    #[error("the path of the running program: {0}")]
    OwnProgram(io::Error),
    /// A thread could not be started.
    #[error("thread {thread} of {threads} could not be started: {source}: give fewer --threads")]
    Thread {
        /// The thread's number.
        thread: usize,
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The same of one that is only to wait.
    #[error("thread {thread} of {threads} could not be started: {source}: give fewer --{param}")]
    WaitingThread {
        /// The thread's number.
        thread: usize,
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        source: io::Error,
        /// What says how many there are to be.
        param: &'static str,
    },
    /// The implementation could not be set up.
    #[error("{name} could not be set up: {message}")]
    Setup {
        /// The implementation.
        name: String,
        /// What it said.
        message: String,
    },
    /// A thread of the measured implementation panicked.
    #[error("thread {thread} panicked: {message}")]
    Panicked {
        /// The thread's number.
        thread: usize,
        /// What it said.
        message: String,
    },
    /// The machine's busy time is not available.
    #[error("/proc/stat: {0}: the machine's busy time is needed; mount /proc")]
    BusyTime(unherd_sys::Errno),
    /// The waker's own context switches are not available.
    #[error("/proc/thread-self/status: {0}: context switches are needed; mount /proc")]
    Switches(io::Error),
}

impl LoadError {
    /// The exit code: 2 where the command line or the machine does not allow the run, 1 where the
    /// run failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::Space { .. }
            | Self::Directory { .. }
            | Self::NoDontCache { .. }
            | Self::Open { .. }
            | Self::FutexSlots { .. }
            | Self::Setup { .. }
            | Self::Thread { .. }
            | Self::WaitingThread { .. }
            | Self::OwnProgram(_)
            | Self::Web { .. }
            | Self::BusyTime(_)
            | Self::Switches(_) => 2,
            Self::File { .. }
            | Self::Corrupt { .. }
            | Self::Disorder { .. }
            | Self::Early { .. }
            | Self::Missed { .. }
            | Self::NotExclusive { .. }
            | Self::NotRefused { .. }
            | Self::NotAsWoken { .. }
            | Self::NotPolled { .. }
            | Self::StallNotTold { .. }
            | Self::Program { .. }
            | Self::Panicked { .. } => 1,
        }
    }

    /// The failure of a file operation.
    pub(crate) fn file(doing: &'static str, file: usize, error: &io::Error) -> Self {
        Self::File { doing, file, message: error.to_string() }
    }

    /// What a joined thread that panicked has left.
    pub(crate) fn panicked(thread: usize, panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panicked { thread, message: message.unwrap_or_else(|| "no message".to_owned()) }
    }

    /// A usage error that says `what`.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Usage(what.into())
    }
}

/// Whether it is for want of direct I/O that a file could not be opened.
fn is_direct_refused(error: &io::Error) -> bool {
    let inner = error.get_ref();
    let of_cache = inner.and_then(|inner| inner.downcast_ref::<unherd::Error>());
    let of_device = inner.and_then(|inner| inner.downcast_ref::<OpenError>());
    matches!(of_cache, Some(unherd::Error::DirectRefused { .. }))
        || matches!(of_device, Some(OpenError::DirectRefused))
        // What open(2) says of O_DIRECT.
        || error.raw_os_error() == Some(unherd::Errno::INVAL.raw_os_error())
}

/// What kept a file from being opened, and what to do.
fn why_not_open(error: &io::Error) -> String {
    if is_direct_refused(error) {
        return "the directory is on a file system without direct I/O, such as tmpfs, and unherd \
                needs direct I/O: give --dir on a disk"
            .to_owned();
    }
    format!("{error}: give a --dir that can be written, and have `ulimit -n` above --threads")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_without_direct_io_is_named() {
        let file = std::path::Path::new("/dev/shm/file-0").into();
        for source in [
            unherd::Error::DirectRefused { file }.into(),
            io::Error::other(OpenError::DirectRefused),
            unherd::Errno::INVAL.into(),
        ] {
            let said = LoadError::Open { path: "/dev/shm/file-0".into(), source }.to_string();
            assert!(said.contains("without direct I/O"), "{said}");
            assert!(said.ends_with("give --dir on a disk"), "{said}");
        }
        let source = io::ErrorKind::PermissionDenied.into();
        let other = LoadError::Open { path: "/file-0".into(), source }.to_string();
        assert!(!other.contains("direct I/O") && other.contains("`ulimit -n`"), "{other}");
    }
}
