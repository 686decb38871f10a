//! The threads, the same for all implementations.
//!
//! Each thread goes through its sequence once before anything is timed and once after, and what it
//! loads is compared with what must be there; the first of these gives the `check`. The timed
//! operations go on from there in the same way. The clock is read every [`BATCH`] operations.

use std::hint::black_box;
use std::time::Duration;

use unherd::{Ledger, Timestamp};
use unherd_sys::primitives::thread;

use super::barrier::Barrier;
use super::page::{self, Page, Places, WRITTEN_BYTES};
use super::pattern;
use crate::random::{mix, mix_all};
use crate::{Basis, Job, LoadError, Meter, Round};

/// Operations between two looks at the clock, unless each is timed.
const BATCH: u64 = 4096;

/// The most operations of a thread whose times are kept.
const TIMES_MAX: usize = 1 << 22;

/// Pages that are all there.
pub trait Pages: Sync {
    /// Loads words of a page; with `N` = 0 from a copy of it in `block`, which is the thread's own.
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError>;

    /// Writes into the part of a page that is not loaded.
    fn write(&self, page: u32, bytes: &[u8; WRITTEN_BYTES]) -> Result<(), LoadError>;

    /// What it has counted so far.
    fn counts(&self) -> HitCounts {
        HitCounts::default()
    }
}

/// What an implementation counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct HitCounts {
    /// Pages that were not there.
    pub misses: u64,
    /// Pages that were copied because they were pinned.
    pub copies: u64,
    /// Looks at a page that was written meanwhile.
    pub peek_retries: u64,
    /// Pages that were given up.
    pub evictions: u64,
}

struct Plan {
    seed: u64,
    pages: u32,
    is_chained: bool,
    /// A write is an operation whose mixed number is below this; 0 for none.
    writes_below: u64,
    ops: Option<u64>,
    budget: Duration,
    /// Operations between two looks at the clock.
    batch: u64,
}

/// Runs a round of `hit` with `pages`, as the job's options say.
pub fn run_with<P: Pages>(job: &Job, pages: &P) -> Result<Round, LoadError> {
    match job.params.number("words")? {
        Some(0) => run::<P, 0>(job, pages),
        Some(1) => run::<P, 1>(job, pages),
        Some(4) => run::<P, 4>(job, pages),
        Some(8) => run::<P, 8>(job, pages),
        Some(16) => run::<P, 16>(job, pages),
        _ => Err(LoadError::usage("words: there are 0, 1, 4, 8 and 16")),
    }
}

fn run<P: Pages, const N: usize>(job: &Job, pages: &P) -> Result<Round, LoadError> {
    let plan = plan(job)?;
    let sequences: Vec<_> =
        (0..job.threads).map(|thread| pattern::sequence(job, thread)).collect::<Result<_, _>>()?;
    bring_in::<P, N>(pages, &plan)?;
    let barrier = Barrier::new(job.threads + 1);
    let waits_before = Ledger::snapshot();
    thread::scope(|scope| {
        let mut workers = Vec::with_capacity(job.threads);
        for (index, sequence) in sequences.iter().enumerate() {
            let worker = Worker::<P, N> {
                pages,
                plan: &plan,
                sequence,
                block: Page::default(),
                operation: (index as u64) << 40,
                at: 0,
            };
            let barrier = &barrier;
            workers.push(scope.spawn(move || worker.work(index, barrier)));
        }
        barrier.wait();
        let counts_before = pages.counts();
        let meter = Meter::start(Basis::Process);
        barrier.wait();
        // They work, and say when they are done before they verify.
        barrier.wait();
        let span = meter.and_then(|meter| meter.stop(job.plant));
        let counts = pages.counts();
        barrier.wait();
        let waits = Ledger::snapshot().since(&waits_before);
        let (mut hits, mut check, mut times) = (0, 0, Vec::new());
        for (index, worker) in workers.into_iter().enumerate() {
            let done = worker.join().map_err(|panic| LoadError::panicked(index, &*panic))??;
            hits += done.operations;
            times.extend(done.times);
            // All were compared with what must be there; the first is the same for any number.
            check = if index == 0 { done.check } else { check };
        }
        let span = span?;
        let misses = counts.misses - counts_before.misses;
        if misses > 0 {
            return Err(LoadError::Missed { misses });
        }
        let per_hit = |value: f64| if hits == 0 { 0.0 } else { value / hits as f64 };
        times.sort_unstable();
        let rare = times.get(times.len().saturating_sub(1) * 999 / 1000);
        let metrics = [
            ("ns_p999", rare.copied().map_or(0.0, f64::from)),
            (
                "evictions_per_s",
                (counts.evictions - counts_before.evictions) as f64 / span.elapsed_s,
            ),
            ("ns_per_hit", per_hit(span.elapsed_s * 1e9 * job.threads as f64)),
            ("hits_per_s", hits as f64 / span.elapsed_s),
            ("cpu_us_per_hit", per_hit(span.cpu_s * 1e6)),
            ("copies", (counts.copies - counts_before.copies) as f64),
            ("peek_retries", (counts.peek_retries - counts_before.peek_retries) as f64),
            ("hits", hits as f64),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Ok(Round { check, metrics, waits })
    })
}

fn plan(job: &Job) -> Result<Plan, LoadError> {
    let writes_pct = job.params.number("writes")?.unwrap_or(0);
    if writes_pct > 100 {
        return Err(LoadError::usage(format!("writes={writes_pct}: give 0 to 100 percent")));
    }
    if writes_pct > 0 && (job.with.starts_with("floor") || job.with == "mmap") {
        let with = &job.with;
        return Err(LoadError::usage(format!(
            "{with} has nothing that keeps a reader from a writer: leave --writes at 0"
        )));
    }
    Ok(Plan {
        seed: job.seed,
        pages: pattern::resident_pages(job)?,
        is_chained: job.params.text("chain") == "true",
        writes_below: (u64::MAX / 100).saturating_mul(writes_pct),
        ops: job.params.number("ops")?,
        budget: Duration::from_millis(job.params.number("budget-ms")?.unwrap_or(300)),
        batch: if job.params.text("tail") == "true" { 1 } else { BATCH },
    })
}

/// Asks for each page once, in the order in which they lie.
fn bring_in<P: Pages, const N: usize>(pages: &P, plan: &Plan) -> Result<(), LoadError> {
    let mut block = Page::default();
    for page in 0..plan.pages {
        let places = Places::<N>::new(u64::from(page));
        let found = pages.load(page, places, &mut block)?;
        page::check(page, places.expected(plan.seed, page), found)?;
    }
    Ok(())
}

struct Worker<'a, P, const N: usize> {
    pages: &'a P,
    plan: &'a Plan,
    sequence: &'a [u32],
    block: Page,
    /// The number of the next operation; those of different threads are far apart.
    operation: u64,
    /// Where in the sequence it is.
    at: usize,
}

struct Done {
    operations: u64,
    check: u64,
    /// Nanoseconds of each operation, if each was timed.
    times: Vec<u32>,
}

impl<P: Pages, const N: usize> Worker<'_, P, N> {
    /// A thread that fails or panics still comes to the barriers, or the others wait for it.
    fn work(mut self, index: usize, barrier: &Barrier) -> Result<Done, LoadError> {
        let verified = caught(index, || self.verify());
        barrier.wait();
        barrier.wait();
        let timed = verified.and_then(|check| Ok((check, caught(index, || self.timed())?)));
        barrier.wait();
        barrier.wait();
        let (check, (operations, times)) = timed?;
        caught(index, || self.verify())?;
        Ok(Done { operations, check, times })
    }

    /// Goes through the sequence once and compares.
    fn verify(&mut self) -> Result<u64, LoadError> {
        let mut check = 0;
        for &page in self.sequence {
            let places = Places::<N>::new(self.operation);
            let found = self.pages.load(page, places, &mut self.block)?;
            page::check(page, places.expected(self.plan.seed, page), found)?;
            check = mix_all(&[check, found]);
            self.operation += 1;
        }
        Ok(check)
    }

    /// How many operations there were, and how long each took, if that was wanted.
    fn timed(&mut self) -> Result<(u64, Vec<u32>), LoadError> {
        let mut now = Timestamp::now();
        let end = now.after(self.plan.budget);
        let (mut done, mut times) = (0, Vec::new());
        if self.plan.batch == 1 {
            times.reserve(TIMES_MAX);
        }
        loop {
            let batch = match self.plan.ops {
                Some(ops) if done == ops => return Ok((done, times)),
                Some(ops) => self.plan.batch.min(ops - done),
                None if done > 0 && now >= end => return Ok((done, times)),
                None => self.plan.batch,
            };
            match (self.plan.is_chained, self.plan.writes_below > 0) {
                (true, false) => self.batch::<true, false>(batch)?,
                (false, false) => self.batch::<false, false>(batch)?,
                (true, true) => self.batch::<true, true>(batch)?,
                (false, true) => self.batch::<false, true>(batch)?,
            }
            done += batch;
            let before = std::mem::replace(&mut now, Timestamp::now());
            if times.len() < times.capacity() {
                times.push(u32::try_from(now.since(before).as_nanos()).unwrap_or(u32::MAX));
            }
        }
    }

    #[inline(never)]
    fn batch<const CHAINED: bool, const WRITES: bool>(
        &mut self,
        operations: u64,
    ) -> Result<(), LoadError> {
        let (mut at, mut all) = (self.at, 0_u64);
        let end = self.operation + operations;
        for operation in self.operation..end {
            let page = self.sequence[at & (self.sequence.len() - 1)];
            at += 1;
            if WRITES && mix(operation) < self.plan.writes_below {
                self.pages.write(page, &page::written(operation))?;
                continue;
            }
            let sum = self.pages.load(page, Places::<N>::new(operation), &mut self.block)?;
            all ^= sum;
            if CHAINED {
                at += page::chained(sum);
            }
        }
        black_box(all);
        (self.at, self.operation) = (at, end);
        Ok(())
    }
}

/// What `work` gives, or its panic as an error.
fn caught<R>(thread: usize, work: impl FnOnce() -> Result<R, LoadError>) -> Result<R, LoadError> {
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    ended.unwrap_or_else(|panic| Err(LoadError::panicked(thread, &*panic)))
}
