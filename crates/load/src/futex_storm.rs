//! `futex-storm`: threads on few words, with random waits, wakes and requeues: the report's
//! "bang-the-hell-out-of hb locks".
//!
//! Each wait has a deadline of up to 200 µs, and half of the operations are wakes. Those that the
//! wakes say they have woken are as many as have come back from a wait by a wake, or the round
//! fails: nobody was woken without a wake, and nobody slept on who was woken.

use std::time::Duration;

use unherd::{Deadline, Ledger};
use unherd_sys::primitives::Ordering;
use unherd_sys::{Futex, FutexWait};

use crate::futexes::{self, CONTENDED, Table, with_table};
use crate::random::{Random, mix_all};
use crate::timed_threads::{Region, work_for};
use crate::{Better, Description, Job, Kind, LoadError, Metric, Param, Round, Workload};

/// The workload `futex-storm`.
#[derive(Debug, Clone, Copy)]
pub struct FutexStorm;

const PARAMS: &[Param] = &[
    Param { name: "words", about: "words of all threads", default: "64", kind: Kind::Count },
    Param {
        name: "budget-ms",
        about: "how long the timed region lasts",
        default: "500",
        kind: Kind::Count,
    },
];

/// What a thread has done.
#[derive(Default)]
struct Done {
    operations: u64,
    waits: u64,
    woken: u64,
    came_back: u64,
}

impl Workload for FutexStorm {
    fn describe(&self) -> Description {
        use Better::{Higher, Lower, Neither};
        let contended = CONTENDED.map(|(name, about)| Metric::new(name, Lower, about));
        let metrics = [
            Metric::new("operations_per_s", Higher, "waits, wakes, requeues and changes of words"),
            Metric::new("cpu_ns_per_operation", Lower, "user and system time"),
            Metric::new("woken_pct", Neither, "of the waits, those that a wake has ended"),
            Metric::new("elapsed_s", Neither, "the timed region on the clock"),
            Metric::new("planted_s", Neither, "CPU time burned on purpose"),
        ];
        Description {
            name: "futex-storm",
            about: "T threads wait, wake and requeue on few words",
            primary: vec!["cpu_ns_per_operation".to_owned()],
            impls: futexes::IMPLS.to_vec(),
            default_impls: vec!["before", "kernel", "unherd"],
            params: PARAMS.to_vec(),
            metrics: metrics.into_iter().chain(contended).collect(),
            default_threads: 512,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        with_table(job, self, |table| run_with(job, table))
    }
}

fn run_with(job: &Job, table: &dyn Table) -> Result<Round, LoadError> {
    let words = job.params.at_least_one("words")?;
    let budget_ms = job.params.at_least_one("budget-ms")? as u64;
    let words: Vec<Futex> = (0..words).map(|_| Futex::default()).collect();
    let waits_before = Ledger::snapshot();
    let (done, span) = work_for(job, budget_ms, |index, region| {
        let mut done = Done::default();
        region.begin();
        done.work(table, &words, Random::new(mix_all(&[job.seed, index as u64])), region);
        done
    })?;
    let waits = Ledger::snapshot().since(&waits_before);
    let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum::<u64>();
    let (woken, came_back) = (sum(|d| d.woken), sum(|d| d.came_back));
    if woken != came_back {
        return Err(LoadError::NotAsWoken { woken, came_back });
    }
    let operations = sum(|d| d.operations);
    let per = |amount: f64, n: u64| amount / n.max(1) as f64;
    let mut metrics = vec![
        ("operations_per_s", operations as f64 / span.elapsed_s),
        ("cpu_ns_per_operation", per(span.cpu_s * 1e9, operations)),
        ("woken_pct", per(came_back as f64 * 100.0, sum(|d| d.waits))),
        ("elapsed_s", span.elapsed_s),
        ("planted_s", span.planted_s),
    ];
    metrics.extend(futexes::contended_pct(table, job.threads as f64 * span.elapsed_s));
    let metrics = metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Round { check: mix_all(&[job.seed, words.len() as u64]), metrics, waits })
}

impl Done {
    fn work(&mut self, table: &dyn Table, words: &[Futex], mut random: Random, region: &Region) {
        while !region.is_over() {
            let [word, other] = [(); 2].map(|()| &words[random.below(words.len())]);
            let n = 1 + random.below(4) as u32;
            self.operations += 1;
            match random.below(8) {
                0 | 1 => {
                    let deadline = Duration::from_micros(random.below(200) as u64);
                    let value = word.word().load(Ordering::Relaxed);
                    let outcome = table.wait(word, value, Deadline::after(deadline));
                    self.waits += 1;
                    self.came_back += u64::from(outcome == FutexWait::Woken);
                }
                2 => drop(word.word().fetch_add(1, Ordering::Relaxed)),
                3 => table.requeue(word, other, n),
                _ => self.woken += table.wake(word, n) as u64,
            }
        }
    }
}
