//! `futex-wake`: threads that wake words, most of which nobody waits for.
//!
//! Of 100 wakes of a thread, `empty` are of words of its own for which nobody ever waits: that is
//! what a runtime's calls mostly are (up to 90 % in report 002). The others are of words for which
//! one of `sleepers` threads waits, if it has come back from the last time. So these sleep in the
//! same buckets as the words of nobody, and what a wake has found is counted by its result.
//!
//! Nobody's words are woken in batches, and each other wake is timed by itself: an implementation
//! that is done sooner with the empty ones finds fewer sleepers ready, and its share of empty wakes
//! is larger. So compare the times by outcome.

use unherd::{Deadline, Ledger, Timestamp};
use unherd_sys::primitives::{AtomicBool, Ordering, thread};
use unherd_sys::{Futex, FutexWait};

use crate::futexes::{self, CONTENDED, Table, with_table};
use crate::random::mix_all;
use crate::timed_threads::{Region, work_for};
use crate::{Better, Description, Job, Kind, LoadError, Metric, Param, Round, Workload};

/// The workload `futex-wake`.
#[derive(Debug, Clone, Copy)]
pub struct FutexWake;

const PARAMS: &[Param] = &[
    Param {
        name: "empty",
        about: "of 100 wakes, how many are of words that nobody waits for",
        default: "90",
        kind: Kind::Count,
    },
    Param { name: "words", about: "such words of each thread", default: "1024", kind: Kind::Count },
    Param {
        name: "sleepers",
        about: "threads that wait, each for a word of its own",
        default: "64",
        kind: Kind::Count,
    },
    Param {
        name: "budget-ms",
        about: "how long the timed region lasts",
        default: "500",
        kind: Kind::Count,
    },
];

/// What the word of a sleeper that is to end holds; others are even.
const END: u32 = u32::MAX;

/// A word, and the thread that waits for it.
#[derive(Default)]
struct Sleeper {
    word: Futex,
    /// Whether it is about to wait. Relaxed: a wake that comes too early finds nobody.
    is_ready: AtomicBool,
}

/// What a thread has done.
#[derive(Default)]
struct Done {
    batches: u64,
    batches_ns: u64,
    /// Wakes that were not in a batch, and whom they have found.
    others: u64,
    found: u64,
    found_ns: u64,
}

impl Workload for FutexWake {
    fn describe(&self) -> Description {
        use Better::{Higher, Lower, Neither};
        let contended = CONTENDED.map(|(name, about)| Metric::new(name, Lower, about));
        let metrics = [
            Metric::new("empty_wake_ns", Lower, "a wake of a word that nobody waits for"),
            Metric::new("found_wake_ns", Lower, "a wake that has found its thread"),
            Metric::new("wakes_per_s", Higher, "of all threads, of both kinds"),
            Metric::new("empty_pct", Neither, "of the wakes, those that have found nobody"),
            Metric::new("cpu_ns_per_wake", Lower, "user and system time, of the sleepers too"),
            Metric::new("elapsed_s", Neither, "the timed region on the clock"),
            Metric::new("planted_s", Neither, "CPU time burned on purpose"),
        ];
        Description {
            name: "futex-wake",
            about: "T threads wake words, most of which nobody waits for",
            primary: vec!["empty_wake_ns".to_owned()],
            impls: futexes::IMPLS.to_vec(),
            default_impls: vec!["before", "kernel", "unherd"],
            params: PARAMS.to_vec(),
            metrics: metrics.into_iter().chain(contended).collect(),
            default_threads: 2,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        with_table(job, self, |table| run_with(job, table))
    }
}

fn run_with(job: &Job, table: &dyn Table) -> Result<Round, LoadError> {
    let empty = job.params.number("empty")?.unwrap_or(0);
    if !(1..=100).contains(&empty) {
        return Err(LoadError::usage(format!("empty={empty}: give 1 to 100")));
    }
    let words = job.params.at_least_one("words")?;
    let sleepers = job.params.at_least_one("sleepers")?;
    let budget_ms = job.params.at_least_one("budget-ms")? as u64;
    let sleepers: Vec<Sleeper> = (0..sleepers).map(|_| Sleeper::default()).collect();
    let waits_before = Ledger::snapshot();
    let (done, woken_at_end, came_back) = thread::scope(|scope| {
        let threads: Vec<_> = sleepers.iter().map(|own| scope.spawn(|| own.sleep(table))).collect();
        while sleepers.iter().any(|own| !own.is_ready.load(Ordering::Relaxed)) {
            thread::yield_now();
        }
        let done = work_for(job, budget_ms, |index, region| {
            let mut done = Done::default();
            let own: Vec<Futex> = (0..words).map(|_| Futex::default()).collect();
            let theirs = sleepers.iter().skip(index % sleepers.len()).step_by(job.threads);
            let theirs: Vec<&Sleeper> = theirs.collect();
            region.begin();
            done.work(table, empty, &own, &theirs, region);
            done
        });
        let mut woken = 0;
        for sleeper in &sleepers {
            sleeper.word.word().store(END, Ordering::Relaxed);
            woken += table.wake(&sleeper.word, 1) as u64;
        }
        let came_back = threads.into_iter().map(|t| t.join().unwrap_or(0)).sum::<u64>();
        (done, woken, came_back)
    });
    let (done, span) = done?;
    let waits = Ledger::snapshot().since(&waits_before);
    let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum::<u64>();
    let (batches, others, found) = (sum(|d| d.batches), sum(|d| d.others), sum(|d| d.found));
    let woken = found + woken_at_end;
    if woken != came_back {
        return Err(LoadError::NotAsWoken { woken, came_back });
    }
    let (empties, wakes) = (batches * empty, batches * empty + others);
    let per = |amount: f64, n: u64| amount / n.max(1) as f64;
    let mut metrics = vec![
        ("empty_wake_ns", per(sum(|d| d.batches_ns) as f64, empties)),
        ("found_wake_ns", per(sum(|d| d.found_ns) as f64, found)),
        ("wakes_per_s", wakes as f64 / span.elapsed_s),
        ("empty_pct", per((wakes - found) as f64 * 100.0, wakes)),
        ("cpu_ns_per_wake", per(span.cpu_s * 1e9, wakes)),
        ("elapsed_s", span.elapsed_s),
        ("planted_s", span.planted_s),
    ];
    let threads = (job.threads + sleepers.len()) as f64;
    metrics.extend(futexes::contended_pct(table, threads * span.elapsed_s));
    let metrics = metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let check = mix_all(&[job.seed, empty, words as u64, sleepers.len() as u64]);
    Ok(Round { check, metrics, waits })
}

impl Sleeper {
    /// Waits again and again; says how often it was woken.
    fn sleep(&self, table: &dyn Table) -> u64 {
        let mut woken = 0;
        loop {
            let value = self.word.word().load(Ordering::Relaxed);
            if value == END {
                return woken;
            }
            self.is_ready.store(true, Ordering::Relaxed);
            let outcome = table.wait(&self.word, value, Deadline::NEVER);
            woken += u64::from(outcome == FutexWait::Woken);
        }
    }
}

impl Done {
    fn work(
        &mut self,
        table: &dyn Table,
        empty: u64,
        own: &[Futex],
        theirs: &[&Sleeper],
        region: &Region,
    ) {
        let (mut nobodys, mut others) = (own.iter().cycle(), theirs.iter().cycle());
        while !region.is_over() {
            let begin = Timestamp::now();
            for word in nobodys.by_ref().take(empty as usize) {
                table.wake(word, 1);
            }
            self.batches_ns += Timestamp::now().as_ns() - begin.as_ns();
            self.batches += 1;
            for sleeper in others.by_ref().take(100 - empty as usize) {
                if sleeper.is_ready.swap(false, Ordering::Relaxed) {
                    sleeper.word.word().fetch_add(2, Ordering::Relaxed);
                }
                let begin = Timestamp::now();
                let found = table.wake(&sleeper.word, 1) as u64;
                self.found_ns += found * (Timestamp::now().as_ns() - begin.as_ns());
                self.found += found;
                self.others += 1;
            }
        }
    }
}
