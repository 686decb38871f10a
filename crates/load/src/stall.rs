//! `stall`: a storage engine whose memtables are full, and writers that wait for its one flusher.
//!
//! Each writer fills memtables. A full one is handed to the flusher; there is room for `tables` of
//! them. The flusher takes `flush-us` for one, as a simulated device. How long do writers sleep on
//! when nothing is left to flush?
//!
//! Scene `full`: a writer waits while there is no room, as in fjall #257, where it slept for 100 ms
//! between two looks. Scene `delay`: it also asks the gate before each table, as in `RocksDB`
//! #1884, whose writers were delayed with nothing pending. Scene `stuck`: the flusher does nothing
//! until the gate's status and the ledger tell a stall of `stall-ms`: how late is that? A sleep of
//! fixed length ends by itself, so this scene is for `event` and `paced`.

mod engine;

use std::time::Duration;

use unherd::{Deadline, Gate, GateAccount, GateMode, Ledger, Reason, Timestamp};
use unherd_sys::primitives::thread;

use crate::congestion::{self, GateWaits, Latencies, sleep_until};
use crate::random::mix_all;
use crate::{
    Basis, Better, Description, Job, Kind, LoadError, Meter, Metric, Param, Round, Workload,
};
use engine::{Engine, Plan};

/// The reason of the engine's gate.
const GATE: &str = "stall-gate";

/// How long after a stall has lasted long enough it must have been told.
const PATIENCE: Duration = Duration::from_secs(10);

/// The workload `stall`.
#[derive(Debug, Clone, Copy)]
pub struct Stall;

const PARAMS: &[Param] = &[
    Param {
        name: "scene",
        about: "full (waits for room), delay (also asks before each table), stuck (no flusher)",
        default: "full",
        kind: Kind::Text,
    },
    Param { name: "tables", about: "room for full memtables", default: "4", kind: Kind::Count },
    Param { name: "fills", about: "memtables of each writer", default: "50", kind: Kind::Count },
    Param {
        name: "fill-us",
        about: "how long a writer works for one",
        default: "200",
        kind: Kind::Count,
    },
    Param {
        name: "flush-us",
        about: "how long the flusher sleeps for one",
        default: "500",
        kind: Kind::Count,
    },
    Param {
        name: "stall-ms",
        about: "scene stuck: the stall that is looked for",
        default: "100",
        kind: Kind::Count,
    },
];

impl Workload for Stall {
    fn describe(&self) -> Description {
        use Better::{Lower, Neither};
        let mut metrics = vec![
            Metric::new("elapsed_s", Lower, "until all memtables were handed over"),
            Metric::new(
                "idle_sleep_ms",
                Lower,
                "asleep while nothing was pending, of sleeps that went on for over 1 ms so",
            ),
            Metric::new("idle_sleep_us_max", Lower, "the longest sleep while nothing was pending"),
            Metric::new("waits", Neither, "sleeps at the gate"),
            Metric::new("needless_waits", Lower, "sleeps that began while it was clear"),
            Metric::new("congestion_wait_ms", Lower, "asleep at the gate, of all writers"),
            Metric::new("stall_seen_ms", Lower, "scene stuck: from the last event to the report"),
            Metric::new(
                "stall_in_ledger_ms",
                Lower,
                "the same, to the ledger's account of the gate",
            ),
            Metric::new("cpu_s", Lower, "user and system time"),
            Metric::new("planted_s", Neither, "CPU time burned on purpose"),
        ];
        let latencies = Latencies::default().metrics("writer").into_iter();
        metrics.extend(latencies.map(|(name, _)| Metric::new(name, Lower, "a table: fill, wait")));
        Description {
            name: "stall",
            about: "T writers fill memtables, and wait for one flusher",
            primary: vec!["elapsed_s".to_owned()],
            impls: congestion::IMPLS.to_vec(),
            default_impls: vec!["fixed", "event", "paced"],
            params: PARAMS.to_vec(),
            metrics,
            default_threads: 4,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let mode = congestion::mode(job, &self.describe())?;
        let us = |name| Ok(Duration::from_micros(job.params.at_least_one(name)? as u64));
        let scene = job.params.text("scene");
        if !["full", "delay", "stuck"].contains(&scene) {
            return Err(LoadError::usage(format!(
                "scene={scene}: there are full, delay and stuck"
            )));
        }
        let plan = Plan {
            tables: job.params.at_least_one("tables")?,
            fills: job.params.at_least_one("fills")?,
            fill: us("fill-us")?,
            flush: us("flush-us")?,
            asks_always: scene == "delay",
        };
        let stall = Duration::from_millis(job.params.at_least_one("stall-ms")? as u64);
        if scene == "stuck" && !matches!(mode, GateMode::Event | GateMode::Paced) {
            return Err(LoadError::usage("scene=stuck: give event or paced, whose sleeps last"));
        }
        if scene == "stuck" && plan.fills * job.threads <= plan.tables {
            return Err(LoadError::usage("scene=stuck: give more fills than tables"));
        }
        let gate = Gate::builder().reason(Reason::register(GATE)).mode(mode).build();
        run_engine(job, &gate, plan, (scene == "stuck").then_some(stall))
    }
}

fn run_engine(
    job: &Job,
    gate: &Gate,
    plan: Plan,
    stall: Option<Duration>,
) -> Result<Round, LoadError> {
    let fills = (plan.fills * job.threads) as u64;
    let engine = Engine::new(gate, plan);
    let waits_before = Ledger::snapshot();
    let meter = Meter::start(Basis::Process)?;
    let (writers, told) = thread::scope(|scope| {
        let engine = &engine;
        let writers: Vec<_> = (0..job.threads).map(|_| scope.spawn(|| engine.write())).collect();
        let told = stall.map(|stall| watch(gate, stall, PATIENCE)).transpose();
        scope.spawn(|| engine.flush());
        let joined = writers.into_iter().enumerate().map(|(index, writer)| {
            writer.join().map_err(|panic| LoadError::panicked(index, &*panic))
        });
        let joined = joined.collect::<Result<Vec<_>, _>>();
        engine.end();
        joined.and_then(|joined| told.map(|told| (joined, told)))
    })?;
    let span = meter.stop(job.plant)?;
    if engine.flushed() != fills {
        return Err(LoadError::NotPolled { expected: fills, found: engine.flushed() });
    }
    let (mut waits, mut latencies) = (GateWaits::default(), Latencies::default());
    let (mut idle_ns, mut idle_ns_max) = (0, 0);
    for writer in writers {
        waits.add(writer.waits);
        latencies.append(writer.latencies);
        idle_ns += writer.idle_ns;
        idle_ns_max = idle_ns_max.max(writer.idle_ns_max);
    }
    let mut metrics = vec![
        ("elapsed_s".to_owned(), span.elapsed_s),
        ("idle_sleep_ms".to_owned(), idle_ns as f64 / 1e6),
        ("idle_sleep_us_max".to_owned(), idle_ns_max as f64 / 1e3),
        ("waits".to_owned(), waits.waits as f64),
        ("needless_waits".to_owned(), waits.needless as f64),
        ("congestion_wait_ms".to_owned(), waits.slept_ns as f64 / 1e6),
        ("cpu_s".to_owned(), span.cpu_s),
        ("planted_s".to_owned(), span.planted_s),
    ];
    if let Some([by_status, in_ledger]) = told {
        metrics.push(("stall_seen_ms".to_owned(), by_status.as_secs_f64() * 1e3));
        metrics.push(("stall_in_ledger_ms".to_owned(), in_ledger.as_secs_f64() * 1e3));
    }
    metrics.extend(latencies.metrics("writer"));
    let waits = Ledger::snapshot().since(&waits_before);
    Ok(Round { check: mix_all(&[job.seed, fills]), metrics, waits })
}

/// Looks once a millisecond until the gate's status and the ledger have told a stall: how old it
/// was then in each of them.
fn watch(gate: &Gate, stall: Duration, patience: Duration) -> Result<[Duration; 2], LoadError> {
    let end = Deadline::after(stall.saturating_add(patience));
    let mut told = [None; 2];
    loop {
        let is_late = end.has_passed(Timestamp::now());
        let accounts = Ledger::gates();
        let own = accounts.iter().filter(|account| account.reason.name() == GATE);
        let in_ledger = own.map(GateAccount::stalled_for).max().unwrap_or_default();
        for (told, stalled) in told.iter_mut().zip([gate.status().stalled_for(), in_ledger]) {
            *told = told.or((stalled >= stall).then_some(stalled));
        }
        match told {
            [Some(by_status), Some(in_ledger)] => return Ok([by_status, in_ledger]),
            [by_status, _] if is_late => {
                let by = if by_status.is_none() { "the gate's status" } else { "the ledger" };
                return Err(LoadError::StallNotTold { stall, by });
            }
            _ => sleep_until(Timestamp::now().after(Duration::from_millis(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a thread waits at a congested gate of that reason.
    fn watch_stalled(reason: &'static str) -> Result<[Duration; 2], LoadError> {
        let gate = Gate::builder().reason(Reason::register(reason)).build();
        let congested = gate.congest();
        thread::scope(|scope| {
            let (gate, waits) = (&gate, Reason::register("test-stall"));
            scope.spawn(move || gate.wait_iff(waits, Deadline::NEVER));
            while gate.status().waiters.is_empty() {
                thread::yield_now();
            }
            let told = watch(gate, Duration::from_millis(2), Duration::from_millis(50));
            drop(congested);
            told
        })
    }

    #[test]
    fn stall_of_another_gate_is_not_taken() {
        watch_stalled(GATE).unwrap();
        let error = watch_stalled("test-stall-gate").unwrap_err();
        let told = "the ledger does not tell a stall of 2ms, which has lasted for longer";
        assert_eq!(error.to_string(), told);
    }
}
