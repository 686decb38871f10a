//! `web`: a small server of static files (HTTP/1.1, keep-alive, GET and HEAD), with N clients that
//! each send a request when the last response has come, and compare every byte.
//!
//! The files come from an unherd cache; the implementations differ in how a thread learns which
//! connection has something to do. The server's threads are pinned to as many CPUs as there are
//! threads; the clients are a process of their own, pinned to the other CPUs where there are any.

mod clients;
mod connection;
mod descriptors;
mod idle;
mod request;
mod server;
mod set;
mod site;

use std::net::TcpListener;
use std::time::Duration;

use unherd::{Deadline, Ledger, Timestamp};
use unherd_sys::Futex;
use unherd_sys::primitives::thread;

use crate::random::mix_all;
use crate::{
    Basis, Better, Description, Impl, Job, Kind, LoadError, Meter, Metric, Param, Round, Workload,
};
use clients::Clients;
use descriptors::{Poll, SharedEpoll};
use idle::IdleTicks;
use server::{Readiness, Server};
use set::Set;
use site::{Contents, Site};

/// The workload `web` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct Web;

const IMPLS: &[Impl] = &[
    Impl { name: "before", about: "poll(2): each thread over its own connections" },
    Impl { name: "epoll", about: "one epoll, edge-triggered, that all threads wait at" },
    Impl { name: "unherd", about: "ReadySet: one thread leads, the others sleep" },
    Impl {
        name: "floor",
        about: "epoll, and answers from memory without parsing: what the clients can ask for",
    },
];

const PARAMS: &[Param] = &[
    Param {
        name: "clients",
        about: "connections of the clients' process; 0: none, for clients from outside",
        default: "8",
        kind: Kind::Count,
    },
    Param {
        name: "budget-ms",
        about: "how long the timed region lasts",
        default: "1000",
        kind: Kind::Count,
    },
    Param { name: "files", about: "how many there are", default: "64", kind: Kind::Count },
    Param {
        name: "file-bytes",
        about: "the size of the largest; the smallest has a sixteenth",
        default: "8K",
        kind: Kind::Size,
    },
    Param {
        name: "port",
        about: "where it listens on 127.0.0.1; 0: any that is free",
        default: "0",
        kind: Kind::Count,
    },
    Param {
        name: "batch",
        about: "events that a thread takes at a time",
        default: "16",
        kind: Kind::Count,
    },
];

/// Before the timed region: connections are made, and the cache reads its files.
const WARM_UP: Duration = Duration::from_millis(100);

impl Workload for Web {
    fn describe(&self) -> Description {
        Description {
            name: "web",
            about: "a server of static files with closed-loop clients, judged per transaction",
            primary: vec!["transactions_per_s".to_owned(), "os_us_per_transaction".to_owned()],
            impls: IMPLS.to_vec(),
            default_impls: vec!["before", "epoll", "unherd", "floor"],
            params: PARAMS.to_vec(),
            metrics: metrics(),
            uses_dir: true,
            default_threads: 1,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let batch = job.params.at_least_one("batch")?;
        match job.with.as_str() {
            "before" => serve(job, Poll::new),
            "epoll" | "floor" => serve(job, |listener| SharedEpoll::new(listener, batch)),
            "unherd" => serve(job, |listener| Set::new(listener, batch)),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

fn metrics() -> Vec<Metric> {
    use Better::{Higher, Lower, Neither};
    [
        ("transactions_per_s", Higher, "responses that were sent whole, in a second"),
        ("user_us_per_transaction", Lower, "the server's user time"),
        ("os_us_per_transaction", Lower, "the server's system time"),
        ("user_pct", Neither, "of the server's CPUs: its user time"),
        ("os_pct", Neither, "of the server's CPUs: its system time"),
        ("idle_pct", Neither, "of the server's CPUs: idle, in ticks of 10 ms, of /proc/stat"),
        ("server_cpus", Neither, "how many CPUs the server is pinned to"),
        ("shared_cpus", Neither, "1 if the clients run on the server's CPUs, for want of others"),
        ("clients_cpu_pct", Neither, "of one CPU: what the clients' thread has used"),
        ("context_switches_per_transaction", Lower, "voluntary ones of the server"),
        ("planted_s", Neither, "CPU time burned on purpose"),
    ]
    .map(|(name, better, about)| Metric::new(name, better, about))
    .into()
}

/// Listens, starts the clients, serves them, and stops both.
fn serve<R: Readiness>(
    job: &Job,
    readiness: impl FnOnce(&TcpListener) -> std::io::Result<R>,
) -> Result<Round, LoadError> {
    let failed = |doing: &'static str| move |source| LoadError::Web { doing, source };
    let budget_ms = job.params.at_least_one("budget-ms")? as u64;
    let number = |name| Ok::<_, LoadError>(job.params.number(name)?.unwrap_or(0));
    let port = u16::try_from(number("port")?)
        .map_err(|_| LoadError::usage("port: give a number below 65536"))?;
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(failed("listening"))?;
    listener.set_nonblocking(true).map_err(failed("listening"))?;
    let address = listener.local_addr().map_err(failed("listening"))?;
    let contents = Contents::random(job)?;
    let cpus = idle::allowed_cpus()?;
    let (own, others) = cpus.split_at(job.threads.min(cpus.len()));
    let clients_cpus = if others.is_empty() { own } else { others };
    // Before there are threads, and a cache.
    let clients = Clients::start(number("clients")? as usize, address, &contents, clients_cpus)?;
    let site = Site::write(job, &contents, job.with == "floor")?;
    let readiness = readiness(&listener).map_err(failed("waiting for connections"))?;
    let server = Server::new(&site, listener, readiness, job.threads);
    let waits_before = Ledger::snapshot();
    let (span, transactions, idle, seen) = thread::scope(|scope| {
        let server = &server;
        let stop = StopOnDrop(server);
        for thread in 0..job.threads {
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                idle::pin(own);
                server.run(thread);
            });
            spawned.map_err(|source| LoadError::Thread { thread, threads: job.threads, source })?;
        }
        sleep(WARM_UP);
        let (before, idle) = (server.transactions(), IdleTicks::now(own)?);
        let meter = Meter::start(Basis::Process)?;
        sleep(Duration::from_millis(budget_ms));
        let transactions = server.transactions() - before;
        let span = meter.stop(job.plant)?;
        let idle = idle.share_until_now(own, span.elapsed_s)?;
        // They wait for their last responses.
        let seen = clients.stop()?;
        drop(stop);
        Ok::<_, LoadError>((span, transactions, idle, seen))
    })?;
    let count = transactions as f64;
    let share = |seconds: f64| 100.0 * seconds / (span.elapsed_s * own.len() as f64);
    let os_s = span.process_cpu_s - span.user_s;
    let each = |value: f64| value / count.max(1.0);
    let metrics = [
        ("transactions_per_s", count / span.elapsed_s),
        ("user_us_per_transaction", each(span.user_s * 1e6)),
        ("os_us_per_transaction", each(os_s * 1e6)),
        ("user_pct", share(span.user_s)),
        ("os_pct", share(os_s)),
        ("idle_pct", 100.0 * idle),
        ("server_cpus", own.len() as f64),
        ("shared_cpus", f64::from(u8::from(others.is_empty()))),
        ("clients_cpu_pct", 100.0 * seen.cpu_share),
        ("context_switches_per_transaction", each(span.voluntary_switches as f64)),
        ("planted_s", span.planted_s),
    ];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let waits = Ledger::snapshot().since(&waits_before);
    Ok(Round { check: mix_all(&[job.seed, contents.sum()]), metrics, waits })
}

struct StopOnDrop<'a, 'b, R: Readiness>(&'a Server<'b, R>);

impl<R: Readiness> Drop for StopOnDrop<'_, '_, R> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Blocks for that long.
fn sleep(duration: Duration) {
    let deadline = Deadline::after(duration);
    let word = Futex::new(0);
    while !deadline.has_passed(Timestamp::now()) {
        word.wait_until(0, deadline);
    }
}
