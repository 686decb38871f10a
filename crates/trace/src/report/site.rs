//! Where something happened: stacks with names, and the one frame of them that tells the site.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::observation::{Object, Observation, Process, SampledStack, StackId};
use crate::symbols::{Frame, Symbols, printable};

/// A stack with names, the innermost frame first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct NamedStack {
    /// Its frames.
    pub frames: Vec<Frame>,
    /// It was deeper than could be walked.
    pub truncated: bool,
}

/// Both sides of a stack, by their indices in [`crate::Report::stacks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StackPair {
    /// The kernel's side.
    pub kernel: Option<usize>,
    /// The program's side.
    pub user: Option<usize>,
    /// How often it was met among the stacks that were taken.
    pub count: u64,
}

/// The place in a program that something is counted for: the innermost function that is not the C
/// library's or a runtime's own wrapper of the call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Site {
    /// The function; `?` if no stack was kept.
    pub function: String,
    /// Its file and line, where debug information tells them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The mapped file that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

impl Site {
    pub(crate) fn unknown() -> Self {
        Self { function: "?".into(), ..Self::default() }
    }

    fn of(frame: &Frame) -> Self {
        let module = frame.module.clone().filter(|_| frame.known);
        Self { function: frame.name.clone(), place: frame.place(), module }
    }
}

/// `worker_loop (server.c:120)`, or `worker_loop [nginx]` where the line is not known.
impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.function)?;
        match (&self.place, &self.module) {
            (Some(place), _) => write!(f, " ({place})"),
            (None, Some(module)) => write!(f, " [{module}]"),
            (None, None) => Ok(()),
        }
    }
}

/// Names the stacks of an observation, each once.
pub(crate) struct Namer<'a> {
    observation: &'a Observation,
    symbols: &'a mut Symbols,
    processes: HashMap<u32, &'a Process>,
    nobody: Process,
    known: HashMap<(Option<u32>, StackId), Option<usize>>,
    by_content: HashMap<NamedStack, usize>,
    stacks: Vec<NamedStack>,
}

impl<'a> Namer<'a> {
    pub(crate) fn new(observation: &'a Observation, symbols: &'a mut Symbols) -> Self {
        let processes = observation.processes.iter().map(|process| (process.pid, process));
        Self {
            observation,
            symbols,
            processes: processes.collect(),
            nobody: Process::default(),
            known: HashMap::new(),
            by_content: HashMap::new(),
            stacks: Vec::new(),
        }
    }

    /// The kernel's name for a process.
    pub(crate) fn comm(&self, pid: u32) -> String {
        let comm = self.processes.get(&pid).map(|process| printable(&process.comm));
        comm.filter(|comm| !comm.is_empty()).unwrap_or_else(|| format!("[{pid}]"))
    }

    pub(crate) fn user(&mut self, pid: u32, id: Option<StackId>) -> Option<usize> {
        self.stack(Some(pid), id?)
    }

    pub(crate) fn kernel(&mut self, id: Option<StackId>) -> Option<usize> {
        self.stack(None, id?)
    }

    pub(crate) fn pairs(&mut self, pid: Option<u32>, stacks: &[SampledStack]) -> Vec<StackPair> {
        let pair = |stack: &SampledStack| StackPair {
            kernel: self.kernel(stack.kernel),
            user: pid.and_then(|pid| self.user(pid, stack.user)),
            count: stack.count,
        };
        let mut pairs: Vec<StackPair> = stacks.iter().map(pair).collect();
        pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.count), pair.user, pair.kernel));
        pairs
    }

    /// The frames of one address, the innermost of those inlined there first.
    pub(crate) fn frame(&mut self, pid: Option<u32>, address: u64, exact: bool) -> Vec<Frame> {
        match pid {
            None => self.symbols.kernel(address, exact).to_vec(),
            Some(pid) => {
                self.nobody.pid = pid;
                let process = self.processes.get(&pid).copied().unwrap_or(&self.nobody);
                self.symbols.user(process, address, exact).to_vec()
            }
        }
    }

    /// The innermost function that has code of its own, with its size.
    pub(crate) fn function(&mut self, pid: Option<u32>, id: Option<StackId>) -> Option<Frame> {
        let address = *self.observation.stacks.get(&id?)?.frames.first()?;
        self.frame(pid, address, true).pop()
    }

    fn stack(&mut self, pid: Option<u32>, id: StackId) -> Option<usize> {
        if let Some(known) = self.known.get(&(pid, id)) {
            return *known;
        }
        let found = self.observation.stacks.get(&id).filter(|stack| !stack.frames.is_empty());
        let index = found.map(|stack| {
            let addresses = stack.frames.iter().enumerate();
            let frames = addresses
                .flat_map(|(depth, address)| self.frame(pid, *address, depth == 0))
                .collect();
            self.keep(NamedStack { frames, truncated: stack.truncated })
        });
        self.known.insert((pid, id), index);
        index
    }

    fn keep(&mut self, stack: NamedStack) -> usize {
        let next = self.stacks.len();
        let index = *self.by_content.entry(stack.clone()).or_insert(next);
        if index == next {
            self.stacks.push(stack);
        }
        index
    }

    /// The site of a user stack.
    pub(crate) fn site(&self, user: Option<usize>) -> Site {
        let Some(stack) = user.and_then(|index| self.stacks.get(index)) else {
            return Site::unknown();
        };
        site_frame(&stack.frames).map_or_else(Site::unknown, Site::of)
    }

    /// The site that most of the sampled stacks have, and its share of them in percent.
    pub(crate) fn main_site(&self, pairs: &[StackPair]) -> (Site, Option<f64>) {
        let mut counts: BTreeMap<Site, u64> = BTreeMap::new();
        for pair in pairs.iter().filter(|pair| pair.user.is_some()) {
            let count = counts.entry(self.site(pair.user)).or_default();
            *count = count.saturating_add(pair.count);
        }
        let sum = counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let most = counts.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
        most.map_or((Site::unknown(), None), |(site, count)| {
            (site, super::share::percent(count, sum))
        })
    }

    pub(crate) fn stacks(&self) -> &[NamedStack] {
        &self.stacks
    }

    pub(crate) fn finish(self) -> Vec<NamedStack> {
        self.stacks
    }
}

/// The innermost frame that is the program's own; else the innermost of a runtime that is no
/// wrapper; else the outermost wrapper that was walked to before names end, which is the call as
/// the program knows it; else the innermost.
fn site_frame(frames: &[Frame]) -> Option<&Frame> {
    let told = || frames.iter().filter(|frame| !is_wrapper(frame) && frame.name != "[unknown]");
    let own = told().find(|frame| !is_runtime(frame)).or_else(|| told().next());
    let is_start = |frame: &&Frame| START.iter().any(|name| frame.name.starts_with(name));
    let walked = frames.iter().take_while(|frame| frame.known && !is_start(frame));
    own.or_else(|| walked.last()).or_else(|| frames.first())
}

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
const WRAPPER_CRATES: [&str; 11] = [
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
];

/// Runtimes, below which the program's own code waits or wakes, where it is on the stack at all.
const RUNTIME_FILES: [&str; 5] = ["libjvm.so", "libuv.so", "libgomp", "libomp", "libtbb"];

/// The same of crates.
const RUNTIME_CRATES: [&str; 10] = [
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
];

/// More of Go's runtime, and what a C library is called inside of a static program.
const WRAPPER_NAMES: [&str; 32] = [
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
    "runtime.",
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

fn is_wrapper(frame: &Frame) -> bool {
    let file = frame.module.as_deref().unwrap_or(&frame.name);
    WRAPPER_FILES.iter().any(|prefix| file.starts_with(prefix))
        || is_of_crate(&frame.name, &WRAPPER_CRATES)
        || WRAPPER_NAMES.iter().any(|prefix| frame.name.starts_with(prefix))
        || WRAPPER_FUNCTIONS.contains(&frame.name.as_str())
}

fn is_runtime(frame: &Frame) -> bool {
    let file = frame.module.as_deref().unwrap_or_default();
    RUNTIME_FILES.iter().any(|prefix| file.starts_with(prefix))
        || is_of_crate(&frame.name, &RUNTIME_CRATES)
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

/// What a wait, a wake or a call was about, in words.
pub(crate) fn object_text(object: Object, name: Option<&str>) -> String {
    let named = |what: String| match name.filter(|name| !name.is_empty()) {
        Some(name) => format!("{what} {}", printable(name)),
        None => what,
    };
    match object {
        Object::None => named("nothing named".into()),
        Object::SEVERAL_FUTEXES => named("several futexes".into()),
        Object::Futex(word) => named(format!("futex {word:#x}")),
        Object::Descriptor(number) => named(format!("fd {number}")),
        Object::Set(address) => named(format!("set {address:#x}")),
        Object::Socket { port: 0, listening: true } => named("listening socket".into()),
        Object::Socket { port: 0, listening: false } => named("socket".into()),
        Object::Socket { port, listening: true } => named(format!("listening socket :{port}")),
        Object::Socket { port, listening: false } => named(format!("socket :{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Side;

    fn frame(name: &str, module: &str) -> Frame {
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

    fn chosen(frames: &[(&str, &str)]) -> String {
        let frames: Vec<Frame> = frames.iter().map(|(name, module)| frame(name, module)).collect();
        site_frame(&frames).map_or_else(String::new, |frame| frame.name.clone())
    }

    #[test]
    fn site_is_innermost_own_frame() {
        let wait = [("epoll_wait", "libc.so.6"), ("worker", "server"), ("main", "server")];
        assert_eq!(chosen(&wait), "worker");
        let rust = [
            ("syscall", "app"),
            ("std::sys::pal::unix::futex::futex_wait", "app"),
            ("<std::sync::Condvar>::wait", "app"),
            ("app::queue::pop", "app"),
        ];
        assert_eq!(chosen(&rust), "app::queue::pop");
        assert_eq!(chosen(&[("runtime.futex", "go"), ("main.work", "go")]), "main.work");
        assert_eq!(chosen(&[("poll", "libc.so.6"), ("[nginx+0x1234]", "nginx")]), "[nginx+0x1234]");
        assert_eq!(chosen(&[("poll_events", "app")]), "poll_events", "only whole names of calls");
    }

    #[test]
    fn runtimes_are_walked_through_to_program() {
        let notify = [
            ("syscall", "libc.so.6"),
            ("parking_lot_core::parking_lot::unpark_one", "app"),
            ("<tokio::runtime::scheduler::multi_thread::park::Unparker>::unpark", "app"),
            ("tokio::sync::notify::Notify::notify_one", "app"),
            ("app::queue::push", "app"),
        ];
        assert_eq!(chosen(&notify), "app::queue::push");
        assert_eq!(chosen(&notify[..4]), notify[2].0, "a worker's own stack has nothing else");
        let java = [("poll", "libc.so.6"), ("ObjectMonitor::wait", "libjvm.so"), ("run", "")];
        assert_eq!(chosen(&java), "run");
        assert_eq!(chosen(&[("sync.(*Cond).Wait", "go"), ("main.work", "go")]), "main.work");
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
    fn without_own_frame_call_is_named() {
        let cut =
            [("__futex_wait", "libc.so.6"), ("pthread_cond_wait", "libc.so.6"), ("[unknown]", "")];
        assert_eq!(chosen(&cut), "pthread_cond_wait");
        let start = [("poll", "libc.so.6"), ("start_thread", "libc.so.6"), ("clone3", "libc.so.6")];
        assert_eq!(chosen(&start), "poll");
        assert_eq!(chosen(&[("[unknown]", "")]), "[unknown]");
        assert_eq!(chosen(&[]), "");
    }
}
