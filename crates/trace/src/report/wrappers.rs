//! Functions that stand between a program and the kernel, as lists of data.
//!
//! Wrappers of calls are no site at all; runtimes are one only where nothing of the program's is on
//! the stack.

use crate::advice::Primitive;
use crate::symbols::{Frame, JIT};

/// Where threads begin.
const START: [&str; 5] = ["start_thread", "clone", "__clone", "_start", "__libc_start"];

/// Files whose functions stand between a program and the system call.
const WRAPPER_FILES: [&str; 9] = [
    "libc.so",
    "libc-",
    "libpthread",
    "ld-linux",
    "ld-musl",
    "ld-",
    "libstdc++",
    "libgcc_s",
    "[vdso]",
];

/// Namespaces of the same kind, for programs that are linked with them.
const WRAPPER_CRATES: [&str; 12] = [
    "std::",
    "core::",
    "alloc::",
    "rustix::",
    "libc::",
    "nix::",
    "mio::",
    "parking_lot::",
    "parking_lot_core::",
    "lock_api::",
    "unherd_sys::",
    "unherd_sync::",
];

/// Runtimes, below which the program's own code waits or wakes, where it is on the stack at all.
const RUNTIME_FILES: [&str; 8] =
    ["libjvm.so", "libjli.so", "libuv.so", "libgomp", "libomp", "libtbb", "libpython3", "python3"];

/// The same of crates, and of Go.
const RUNTIME_CRATES: [&str; 12] = [
    "runtime.",
    "tokio::",
    "async_std::",
    "async_executor::",
    "async_io::",
    "crossbeam",
    "event_listener::",
    "flume::",
    "futures_executor::",
    "futures_util::",
    "rayon_core::",
    "unherd_cache::",
];

/// How Go waits, and what a C library is called inside of a static program.
const WRAPPER_NAMES: [&str; 39] = [
    "syscall.",
    "sync.(*",
    "time.Sleep",
    "internal/",
    "__GI_",
    "__futex",
    "futex_",
    "pthread_",
    "__pthread",
    "___pthread",
    "__lll_",
    "lll_",
    "__libc_",
    "__clock_nanosleep",
    "clock_nanosleep",
    "__nanosleep",
    "nanosleep",
    "epoll_wait",
    "epoll_pwait",
    "__poll",
    "__ppoll",
    "__select",
    "__accept",
    "__syscall",
    "cnd_",
    "mtx_",
    "sem_wait",
    "sem_post",
    "sem_timedwait",
    "__new_sem",
    "__rust",
    "runtime.futex",
    "runtime.note",
    "runtime.usleep",
    "runtime.osyield",
    "runtime.netpoll",
    "runtime.epollwait",
    "runtime.mPark",
    "runtime.stopm",
];

const WRAPPER_FUNCTIONS: [&str; 17] = [
    "syscall",
    "sleep",
    "usleep",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "accept",
    "accept4",
    "read",
    "write",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "_start",
    "start_thread",
];

/// Java's machine, in its map for perf(1): what it interprets has no names of its own.
const JAVA_STUBS: [&str; 2] = ["Interpreter", "StubRoutines"];

/// Java's own classes, below which a program waits or wakes.
const JAVA_PACKAGES: [&str; 3] = ["java.", "jdk.", "sun."];

/// CPython's interpreter, alone or in a library.
const CPYTHON_FILES: [&str; 2] = ["python3", "libpython3"];

/// How it waits: for its own lock, for a lock of the program's, for time.
const CPYTHON_NAMES: [&str; 16] = [
    "PyThread_",
    "PyCOND_",
    "PyMUTEX_",
    "PyMutex_",
    "_PyMutex_",
    "_PyParkingLot_",
    "_PySemaphore_",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyEval_AcquireThread",
    "PyEval_ReleaseThread",
    "PyGILState_",
    "take_gil",
    "drop_gil",
    "acquire_timed",
    "pysleep",
];

/// By parts of their names, in small letters: what programs wait at or signal by.
const PRIMITIVES: [(&str, Primitive); 16] = [
    ("barrier", Primitive::Barrier),
    ("take_gil", Primitive::InterpreterLock),
    ("drop_gil", Primitive::InterpreterLock),
    ("pyeval_", Primitive::InterpreterLock),
    ("pygilstate_", Primitive::InterpreterLock),
    // What waits there may wait for a lock as well as for a queue.
    ("pythread_", Primitive::Semaphore),
    ("pymutex_", Primitive::Lock),
    ("pthread_cond", Primitive::Condition),
    ("cnd_", Primitive::Condition),
    ("condvar", Primitive::Condition),
    ("mutex", Primitive::Lock),
    ("rwlock", Primitive::Lock),
    ("lll_lock", Primitive::Lock),
    ("mtx_", Primitive::Lock),
    ("new_sem", Primitive::Semaphore),
    ("sem_", Primitive::Semaphore),
];

/// Whether threads begin in this function.
pub(crate) fn is_start(frame: &Frame) -> bool {
    START.iter().any(|name| frame.name.starts_with(name))
}

/// What a wrapper waits at or signals by.
pub(crate) fn primitive_of(frame: &Frame) -> Option<Primitive> {
    let name = frame.name.to_lowercase();
    PRIMITIVES.iter().find(|(part, _)| name.contains(part)).map(|(_, primitive)| *primitive)
}

/// Whether the function only passes a call on.
pub(crate) fn is_wrapper(frame: &Frame) -> bool {
    let file = frame.module.as_deref().unwrap_or(&frame.name);
    WRAPPER_FILES.iter().any(|prefix| file.starts_with(prefix))
        || is_of_crate(&frame.name, &WRAPPER_CRATES)
        || WRAPPER_NAMES.iter().any(|prefix| frame.name.starts_with(prefix))
        || WRAPPER_FUNCTIONS.contains(&frame.name.as_str())
        || CPYTHON_FILES.iter().any(|prefix| file.starts_with(prefix))
            && CPYTHON_NAMES.iter().any(|prefix| frame.name.starts_with(prefix))
}

/// Whether the function is a runtime's.
pub(crate) fn is_runtime(frame: &Frame) -> bool {
    let file = frame.module.as_deref().unwrap_or_default();
    RUNTIME_FILES.iter().any(|prefix| file.starts_with(prefix))
        || is_of_crate(&frame.name, &RUNTIME_CRATES)
        || file == JIT && JAVA_STUBS.iter().any(|prefix| frame.name.starts_with(prefix))
}

/// Whether the function is of a runtime's library, which programs know by name:
/// `void java.lang.Object.wait(long)`.
pub(crate) fn is_library(frame: &Frame) -> bool {
    let declared = frame.name.split('(').next().unwrap_or_default();
    let path = declared.rsplit(' ').next().unwrap_or_default();
    frame.module.as_deref() == Some(JIT)
        && JAVA_PACKAGES.iter().any(|prefix| path.starts_with(prefix))
}

/// By the path of a Rust function; of a method, that of its type; where the type has none
/// (`<isize as core::cmp::PartialOrd>::le`), the trait's.
fn is_of_crate(name: &str, crates: &[&str]) -> bool {
    let of_crate = |path: &str| crates.iter().any(|prefix| path.starts_with(prefix));
    let Some(inner) = name.strip_prefix('<') else { return of_crate(name) };
    let bare = |path: &str| {
        let path = path.trim_start_matches(['&', '*', '[', '(']);
        let words = ["const ", "mut ", "dyn "].iter();
        words.fold(path.to_owned(), |path, word| path.trim_start_matches(word).to_owned())
    };
    let kind = bare(inner);
    let path = kind.split([' ', '>', '<', ';', ',', ']', ')']).next().unwrap_or_default();
    match (path.contains("::"), inner.split_once(" as ")) {
        (true, _) => of_crate(path),
        (false, Some((_, implemented))) => of_crate(implemented),
        // A primitive type's, so core's.
        (false, None) => crates.contains(&"core::"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::symbols::Side;

    /// A frame of a user's program; in square brackets one without a name.
    pub(in crate::report) fn frame(name: &str, module: &str) -> Frame {
        Frame {
            name: name.into(),
            module: Some(module.into()),
            file: None,
            line: None,
            size_bytes: None,
            inlined: false,
            known: !name.starts_with('['),
            side: Side::User,
        }
    }

    #[test]
    fn methods_belong_to_their_types() {
        for wrapper in [
            "<isize as core::cmp::PartialOrd>::le",
            "<*const _>::is_null::runtime",
            "core::cmp::impls::<impl core::cmp::PartialOrd<&B> for &A>::le",
            "<&mut std::io::Stdin as std::io::Read>::read",
            "<alloc::vec::Vec<app::Item>>::push",
        ] {
            assert!(is_wrapper(&frame(wrapper, "app")), "{wrapper}");
        }
        for own in [
            "<app::Queue<T> as core::iter::Iterator>::next",
            "<T as app::Work>::run",
            "<&app::Item>::take",
            "app::run::<std::fs::File>",
        ] {
            assert!(!is_wrapper(&frame(own, "app")), "{own}");
        }
    }

    #[test]
    fn interpreter_names_count_in_interpreters_alone() {
        assert!(is_wrapper(&frame("take_gil", "python3.11")));
        assert!(is_wrapper(&frame("PyThread_acquire_lock_timed", "libpython3.12.so.1.0")));
        assert!(!is_wrapper(&frame("take_gil", "fishing")));
    }
}
