//! Where something happened: stacks with names, and the one frame of them that tells the site.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::wrappers::{is_library, is_runtime, is_start, is_wrapper, primitive_of};
use crate::advice::Primitive;
use crate::observation::{AddedPrices, Object, Observation, Process, SampledStack, StackId};
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

    /// What tracing adds to a call or a sleep.
    pub(crate) fn added_prices(&self) -> AddedPrices {
        self.observation.totals.added
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
        match site_frame(&stack.frames) {
            None => Site::unknown(),
            // It is no site, and its callers part there, or were not walked to.
            Some((Told::Call, frame))
                if frame.name != "[unknown]"
                    && (stack.truncated || !stack.frames.iter().any(is_start)) =>
            {
                Site { function: format!("callers of {}", frame.name), ..Site::of(frame) }
            }
            Some((_, frame)) => Site::of(frame),
        }
    }

    /// How the program waits or signals in this stack, where a library does it.
    pub(crate) fn primitive(&self, user: Option<usize>) -> Option<Primitive> {
        primitive(&self.stacks.get(user?)?.frames)
    }

    /// Whether the stack ends before the program's own code, or a runtime's.
    pub(crate) fn is_cut_at_call(&self, user: Option<usize>) -> bool {
        self.told(user) == Told::Call
    }

    fn told(&self, user: Option<usize>) -> Told {
        let stack = user.and_then(|index| self.stacks.get(index));
        stack.and_then(|stack| site_frame(&stack.frames)).map_or(Told::Call, |(told, _)| told)
    }

    /// The site that most of the sampled stacks have, and its share of them in percent. Stacks that
    /// end before any of the program's code do not count where others tell more.
    pub(crate) fn main_site(&self, pairs: &[StackPair]) -> (Site, Option<f64>) {
        let mut counts: BTreeMap<Site, u64> = BTreeMap::new();
        let walked = || pairs.iter().filter(|pair| pair.user.is_some());
        let any_told = walked().any(|pair| !self.is_cut_at_call(pair.user));
        for pair in walked().filter(|pair| !any_told || !self.is_cut_at_call(pair.user)) {
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

/// How much a site says: the program's own code, a runtime's, or only the call's wrapper, where the
/// walk ended before either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Call,
    Runtime,
    Program,
}

/// The innermost frame that is the program's own, else of a library of its runtime's; else the
/// innermost of a runtime that is no wrapper, of those with names if there are any; else the
/// outermost wrapper that was walked to before names end, which is the call as the program knows
/// it; else the innermost.
fn site_frame(frames: &[Frame]) -> Option<(Told, &Frame)> {
    let told = || frames.iter().filter(|frame| !is_wrapper(frame) && frame.name != "[unknown]");
    let outside = || told().filter(|frame| !is_runtime(frame));
    if let Some(own) = outside().find(|frame| !is_library(frame)).or_else(|| outside().next()) {
        return Some((Told::Program, own));
    }
    if let Some(runtime) = told().find(|frame| frame.known).or_else(|| told().next()) {
        return Some((Told::Runtime, runtime));
    }
    let walked = frames.iter().take_while(|frame| frame.known && !is_start(frame));
    walked.last().or_else(|| frames.first()).map(|frame| (Told::Call, frame))
}

/// What the program waits at or signals by, as it knows it: the outermost of the wrappers that is
/// one of these.
fn primitive(frames: &[Frame]) -> Option<Primitive> {
    let wrappers = frames.iter().take_while(|frame| is_wrapper(frame) || !frame.known);
    wrappers.filter_map(primitive_of).last()
}

/// What a wait, a wake or a call was about, in words.
pub(crate) fn object_text(object: Object, name: Option<&str>) -> String {
    let name = name.filter(|name| !name.is_empty()).map(printable);
    let named = |what: String| match &name {
        Some(name) => format!("{what} {name}"),
        None => what,
    };
    match object {
        Object::None => named("no object".into()),
        Object::SEVERAL_FUTEXES => named("several futexes".into()),
        Object::Futex(word) => named(format!("futex {word:#x}")),
        Object::Descriptor(number) => match name {
            Some(name) => format!("{name} (fd {number})"),
            None => format!("fd {number}"),
        },
        Object::Set(address) => {
            name.unwrap_or_else(|| format!("the set of descriptors at {address:#x}"))
        }
        Object::Socket { port: 0, listening: true } => named("listening socket".into()),
        Object::Socket { port: 0, listening: false } => named("socket".into()),
        Object::Socket { port, listening: true } => named(format!("listening socket :{port}")),
        Object::Socket { port, listening: false } => named(format!("socket :{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::wrappers::tests::frame;

    fn chosen(frames: &[(&str, &str)]) -> String {
        let frames: Vec<Frame> = frames.iter().map(|(name, module)| frame(name, module)).collect();
        site_frame(&frames).map_or_else(String::new, |(_, frame)| frame.name.clone())
    }

    fn primitive_in(names: &[(&str, &str)]) -> Option<Primitive> {
        let frames: Vec<Frame> = names.iter().map(|(name, module)| frame(name, module)).collect();
        primitive(&frames)
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
        let ours = [
            ("unherd_sys::futex::Futex::wait", "app"),
            ("unherd_sync::parker::Parker::park", "app"),
            ("<unherd_sync::wait_table::WaitTable<app::Key>>::wait_until::<app::pop>", "app"),
            ("app::queue::pop", "app"),
        ];
        assert_eq!(chosen(&ours), "app::queue::pop");
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
        let go = ["futex", "notesleep", "mPark", "stopm", "findRunnable", "schedule", "mcall"];
        let go = go.map(|name| (format!("runtime.{name}"), "go"));
        let go: Vec<_> = go.iter().map(|(name, module)| (name.as_str(), *module)).collect();
        assert_eq!(chosen(&go), "runtime.findRunnable", "a thread without a goroutine");
        let sysmon =
            [("runtime.usleep", "go"), ("runtime.sysmon", "go"), ("runtime.mstart1", "go")];
        assert_eq!(chosen(&sysmon), "runtime.sysmon");
        let parked = [
            ("os::PlatformEvent::park()", "libjvm.so"),
            ("void java.lang.Object.wait(long)", "jit"),
            ("Interpreter", "jit"),
            ("StubRoutines (1)", "jit"),
            ("thread_entry(JavaThread*, JavaThread*)", "libjvm.so"),
        ];
        assert_eq!(chosen(&parked), parked[1].0, "what is interpreted has no name");
        let compiled = [parked[0], parked[1], ("void NotifyAll.take()", "jit"), parked[2]];
        assert_eq!(chosen(&compiled), "void NotifyAll.take()");
    }

    #[test]
    fn interpreters_are_walked_through_to_their_calls() {
        let lock = [
            ("__futex_abstimed_wait_common", "libc.so.6"),
            ("__new_sem_wait_slow64", "libc.so.6"),
            ("PyThread_acquire_lock_timed", "python3.11"),
            ("acquire_timed", "python3.11"),
            ("lock_PyThread_acquire_lock", "python3.11"),
            ("_PyEval_EvalFrameDefault", "python3.11"),
        ];
        let found = (chosen(&lock), primitive_in(&lock));
        assert_eq!(found, (lock[4].0.into(), Some(Primitive::Semaphore)));
        let gil = [
            ("__futex_abstimed_wait_common", "libc.so.6"),
            ("___pthread_cond_timedwait64", "libc.so.6"),
            ("PyCOND_TIMEDWAIT", "python3.11"),
            ("take_gil", "python3.11"),
            ("PyEval_RestoreThread", "python3.11"),
            ("pysleep", "python3.11"),
            ("time_sleep", "python3.11"),
        ];
        let found = (chosen(&gil), primitive_in(&gil));
        assert_eq!(found, ("time_sleep".into(), Some(Primitive::InterpreterLock)));
        // Without the names of static functions, and with a module of the program's.
        let stripped = [
            ("pthread_cond_timedwait", "libc.so.6"),
            ("[python3.11+0x12]", "python3.11"),
            ("PyEval_RestoreThread", "python3.11"),
            ("[python3.11+0x34]", "python3.11"),
            ("_PyEval_EvalFrameDefault", "python3.11"),
            ("step", "_solver.cpython-311.so"),
        ];
        assert_eq!(chosen(&stripped[..5]), "_PyEval_EvalFrameDefault");
        assert_eq!(chosen(&stripped), "step");
        assert_eq!(primitive_in(&stripped), Some(Primitive::InterpreterLock));
    }

    #[test]
    fn primitive_is_outermost_wrapper() {
        let barrier = [("futex_wait", "libc.so.6"), ("___pthread_barrier_wait", "libc.so.6")];
        assert_eq!(primitive_in(&barrier), Some(Primitive::Barrier));
        let relock = [
            ("__lll_lock_wait", "libc.so.6"),
            ("__pthread_mutex_cond_lock", "libc.so.6"),
            ("pthread_cond_wait", "libc.so.6"),
            ("pop", "app"),
            ("pthread_barrier_wait", "app"),
        ];
        assert_eq!(primitive_in(&relock), Some(Primitive::Condition));
        let rust = [("syscall", "libc.so.6"), ("std::sync::poison::mutex::Mutex::lock", "app")];
        assert_eq!(primitive_in(&rust), Some(Primitive::Lock));
        assert_eq!(primitive_in(&[("syscall", "libc.so.6"), ("app::Mutex::lock", "app")]), None);
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
