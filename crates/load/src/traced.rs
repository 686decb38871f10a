//! `traced`: what a tracer costs the program that it watches.
//!
//! A known program runs a known load, by itself (`floor`) or under a tracer, and its throughput is
//! compared. The scenes are what people trace: a web server, a database, and, as the worst case,
//! two processes that do nothing but wake each other. The programs are the system's own and must
//! be installed. The tracer starts the program and follows it from there; it gets no CPU of its
//! own, so what it takes is taken from the program, as on a busy server.
//!
//! Clients and servers share the processors with each other and with the tracer.

mod scene;

use std::ffi::OsString;
use std::fs::{read_dir, read_link, remove_file};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::random::mix_all;
use crate::{
    Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Waits, Workload,
};
use scene::{Scene, Speed};
use unherd::Ledger;
use unherd_host::ChildProcess;

/// The workload `traced`.
#[derive(Debug, Clone, Copy)]
pub struct Traced;

const IMPLS: &[Impl] = &[
    Impl { name: "floor", about: "the program by itself" },
    Impl { name: "unherd", about: "under `unherd trace`" },
    Impl { name: "unherd-no-calls", about: "under `unherd trace --no-calls`" },
    Impl {
        name: "bystander",
        about: "the program by itself, while `unherd trace` watches another that sleeps",
    },
    Impl {
        name: "listening",
        about: "under one eBPF program on sys_exit that ends at once: the kernel's own price",
    },
    Impl { name: "perf-trace", about: "under `perf trace -s`, which counts system calls" },
    Impl { name: "strace", about: "under `strace -c -f`, which counts system calls by ptrace" },
    Impl {
        name: "offcputime",
        about: "the program by itself, while bcc's `offcputime` adds up all sleeps by stack",
    },
];

const PARAMS: &[Param] = &[
    Param {
        name: "scene",
        about: "pipe (perf bench sched pipe), nginx (under wrk), postgres (under pgbench)",
        default: "pipe",
        kind: Kind::Text,
    },
    Param {
        name: "seconds",
        about: "how long the clients of nginx and postgres run",
        default: "2",
        kind: Kind::Count,
    },
    Param { name: "loops", about: "round trips of pipe", default: "100000", kind: Kind::Count },
];

/// What `unherd trace` listens to besides system calls. Without these it follows nobody, and its
/// program on sys_exit finds that out by one load.
const ALL_BUT_CALLS: [&str; 21] = [
    "sys_enter_exit_group",
    "sched_switch",
    "sched_waking",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "hrtimer_expire_entry",
    "hrtimer_expire_exit",
    "timer_expire_entry",
    "timer_expire_exit",
    "irq_handler_entry",
    "irq_handler_exit",
    "sk_data_ready",
    "contention_begin",
    "contention_end",
    "mm_vmscan_throttled",
    "mm_vmscan_direct_reclaim_begin",
    "mm_vmscan_direct_reclaim_end",
    "mm_vmscan_memcg_reclaim_begin",
    "mm_vmscan_memcg_reclaim_end",
    "balance_dirty_pages",
];

impl Workload for Traced {
    fn describe(&self) -> Description {
        Description {
            name: "traced",
            about: "throughput of a program by itself and under a tracer",
            primary: vec!["operations_per_s".to_owned()],
            impls: IMPLS.to_vec(),
            default_impls: vec!["floor", "unherd"],
            params: PARAMS.to_vec(),
            metrics: vec![
                Metric::new("operations_per_s", Better::Higher, "requests, transactions or trips"),
                Metric::new("operation_us", Better::Lower, "the time of one, on the whole"),
                Metric::new("cpu_us", Better::Lower, "the machine's CPU time for one"),
                Metric::new("system_us", Better::Lower, "of it, in the kernel"),
            ],
            uses_dir: true,
            default_threads: 16,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let waits_before = Ledger::snapshot();
        let tracer = Tracer::named(job, &self.describe())?;
        let name = job.params.text("scene");
        let scene = Scene::named(name)?;
        let _beside = tracer.start_beside(job)?;
        let Speed { per_s, cpu_us, system_us } = scene.run(job, &tracer)?;
        let metrics = [
            ("operations_per_s", per_s),
            ("operation_us", 1e6 / per_s),
            ("cpu_us", cpu_us),
            ("system_us", system_us),
        ];
        let waits: Waits = Ledger::snapshot().since(&waits_before);
        // Every round that comes to its end has done its scene; there is nothing else to agree on.
        let check = mix_all(&name.bytes().map(u64::from).collect::<Vec<_>>());
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Ok(Round { check, metrics, waits })
    }
}

/// A tracer's command line, and what it watches.
struct Tracer {
    line: Vec<OsString>,
    watches: Watches,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watches {
    /// The program: it starts it.
    Program,
    /// Another program.
    Another,
    /// All threads of the machine.
    All,
}

impl Tracer {
    fn named(job: &Job, description: &Description) -> Result<Self, LoadError> {
        let report = job.dir()?.join("report").into_os_string();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let own = |more: &[&str]| {
            let program = std::env::current_exe().map_err(LoadError::OwnProgram)?;
            Ok::<_, LoadError>(
                [vec![program.into_os_string(), "trace".into()], words(more)].concat(),
            )
        };
        let mut line = match job.with.as_str() {
            "floor" => return Ok(Self { line: Vec::new(), watches: Watches::Program }),
            "offcputime" => {
                return Ok(Self { line: words(&["offcputime"]), watches: Watches::All });
            }
            "unherd" | "bystander" => own(&["--full", "-o"])?,
            "unherd-no-calls" => own(&["--full", "--no-calls", "-o"])?,
            "listening" => {
                let others = ALL_BUT_CALLS.iter().flat_map(|name| ["--pretend-missing", name]);
                own(&others.chain(["--hertz", "0", "-o"]).collect::<Vec<_>>())?
            }
            "perf-trace" => words(&["perf", "trace", "-s", "-o"]),
            "strace" => words(&["strace", "-c", "-f", "-o"]),
            _ => return Err(job.unknown_impl(description)),
        };
        line.extend([report, "--".into()]);
        let watches = if job.with == "bystander" { Watches::Another } else { Watches::Program };
        Ok(Self { line, watches })
    }

    /// Starts it beside the program, unless it is to start that, until the result is dropped.
    fn start_beside(&self, job: &Job) -> Result<Option<ChildProcess>, LoadError> {
        match self.watches {
            Watches::Program => return Ok(None),
            Watches::All => return self.watch_all().map(Some),
            Watches::Another => {}
        }
        let sign = job.dir()?.join("watching");
        let line = "> \"$0\" && exec sleep 600";
        let another = [OsString::from("sh"), "-c".into(), line.into(), sign.clone().into()];
        let mut tracer = scene::spawn(self.before(&another))?;
        scene::until(&mut tracer, "unherd trace", || sign.exists())?;
        remove_file(&sign).map_err(|source| LoadError::Open { path: sign, source })?;
        Ok(Some(tracer))
    }

    fn watch_all(&self) -> Result<ChildProcess, LoadError> {
        let mut tracer = scene::spawn(command_of(&self.line))?;
        let descriptors = format!("/proc/{}/fd", tracer.pid());
        // It says nothing when its program is attached, but then it has a link to it.
        let is_link = |target: PathBuf| target.as_os_str() == "anon_inode:bpf_link";
        scene::until(&mut tracer, "offcputime", || {
            let entries = read_dir(&descriptors).into_iter().flatten().flatten();
            entries.filter_map(|entry| read_link(entry.path()).ok()).any(is_link)
        })?;
        Ok(tracer)
    }

    /// `program`, under the tracer if that starts it, without standard input and output.
    fn command(&self, program: &[OsString]) -> Command {
        if self.watches == Watches::Program { self.before(program) } else { command_of(program) }
    }

    fn before(&self, program: &[OsString]) -> Command {
        let line: Vec<OsString> = self.line.iter().chain(program).cloned().collect();
        command_of(&line)
    }
}

/// The command of this line, without standard input and output.
fn command_of(line: &[OsString]) -> Command {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}
