//! The transactions, the same for all implementations.

use std::path::Path;

use unherd::Timestamp;
use unherd_sys::primitives::{AtomicBool, Ordering};

use crate::congestion::Latencies;
use crate::crew::{self, Timed};
use crate::files::{
    AlignedBytes, Content, KernelFile, MixedFile, PAGE_BYTES, ScratchDir, Way, write_pages,
};
use crate::random::{Random, mix_all};
use crate::{Job, LoadError, Round};

const RECORD_BYTES: usize = 128;
/// Records of a page, and the most threads.
pub(super) const RECORDS: usize = PAGE_BYTES as usize / RECORD_BYTES;
const READS: usize = 10;
/// Pages of a run. The file is a sequence of runs, hot ones and others.
const RANGE_PAGES: u64 = 4;
pub(super) const RANGE_BYTES: usize = (RANGE_PAGES * PAGE_BYTES) as usize;
const UPDATES: usize = 2;
/// One run in twenty is hot.
const HOT_PART: u64 = 20;
pub(super) const PAGES_MIN: u64 = HOT_PART * RANGE_PAGES;
/// Of ten accesses eight are to hot runs.
const HOT_TENTHS: usize = 8;

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) threads: usize,
    /// Of the file.
    pub(super) pages: u64,
    /// Of each thread, timed.
    pub(super) transactions: usize,
    /// Of each thread before these.
    pub(super) warm_up: usize,
}

impl Plan {
    /// A thread's record of a page, after this number of updates.
    fn content(&self, thread: usize, page: u64, updates: u8) -> Content {
        Content::new(self.seed, thread, page, u64::from(updates))
    }

    /// The first page of a run. Hot ones are spread over the file.
    fn run(&self, random: &mut Random) -> u64 {
        let runs = self.pages / RANGE_PAGES;
        let run = match random.below(10) {
            tenth if tenth < HOT_TENTHS => {
                random.below((runs / HOT_PART) as usize) as u64 * HOT_PART
            }
            _ => random.below(runs as usize) as u64,
        };
        run * RANGE_PAGES
    }

    fn page(&self, random: &mut Random) -> u64 {
        self.run(random) + random.below(RANGE_PAGES as usize) as u64
    }
}

/// Runs a round on a file that is made for it and removed at the end.
pub(super) fn run<F: MixedFile>(
    job: &Job,
    plan: &Plan,
    open: impl FnOnce(&Path) -> Result<F, LoadError>,
) -> Result<Round, LoadError> {
    let scratch = ScratchDir::create(job.dir()?, "mix")?;
    let path = scratch.file(0);
    write_pages(&path, plan.pages * PAGE_BYTES, |page, bytes| {
        for (thread, record) in bytes.chunks_exact_mut(RECORD_BYTES).enumerate() {
            plan.content(thread, page, 0).fill(record);
        }
    })?;
    // Relaxed: it ends the other threads' work early, and publishes nothing.
    let failed = AtomicBool::new(false);
    let file = open(&path)?;
    let work = |teller: &mut Teller<'_>, transactions| {
        let worked = teller.work(&file, transactions, || failed.load(Ordering::Relaxed));
        worked.inspect_err(|_| failed.store(true, Ordering::Relaxed))
    };
    let prepare = |thread| {
        let mut teller = Teller::new(plan, thread)?;
        work(&mut teller, plan.warm_up)?;
        teller.latencies = Latencies::default();
        Ok(teller)
    };
    let timed = crew::run(job, prepare, |_, teller: Result<_, LoadError>| {
        let mut teller = teller?;
        work(&mut teller, plan.transactions)?;
        Ok(teller)
    })?;
    drop(file);
    let Timed { span, waits, done } = timed;
    verify(plan, &path, &done)?;
    let (mut latencies, mut sum) = (Latencies::default(), plan.seed);
    for teller in done {
        latencies.append(teller.latencies);
        // The sum does not depend on which thread was first.
        sum = sum.wrapping_add(teller.hash);
    }
    let transactions = (plan.transactions * plan.threads) as f64;
    let us = |seconds: f64| seconds * 1e6 / transactions;
    let metrics = [
        ("transactions_per_s", transactions / span.elapsed_s),
        ("cpu_us_per_transaction", us(span.cpu_s)),
        ("user_us_per_transaction", us(span.user_s)),
        ("switches_per_transaction", span.voluntary_switches as f64 / transactions),
        ("s", span.elapsed_s),
        ("planted_s", span.planted_s),
    ];
    let mut metrics = metrics.map(|(name, value)| (name.to_owned(), value)).to_vec();
    metrics.extend(latencies.metrics("transaction"));
    Ok(Round { check: sum, metrics, waits })
}

/// A thread with what it knows of its records.
struct Teller<'p> {
    plan: &'p Plan,
    thread: usize,
    random: Random,
    /// How often its record of each page was updated, modulo 256.
    updates: Vec<u8>,
    range: AlignedBytes,
    latencies: Latencies,
    /// Of all that it has read.
    hash: u64,
}

impl<'p> Teller<'p> {
    fn new(plan: &'p Plan, thread: usize) -> Result<Self, LoadError> {
        Ok(Self {
            plan,
            thread,
            random: Random::new(mix_all(&[plan.seed, thread as u64])),
            updates: vec![0; plan.pages as usize],
            range: AlignedBytes::new(RANGE_BYTES)?,
            latencies: Latencies::default(),
            hash: 0,
        })
    }

    /// Runs as many transactions, and makes them durable.
    fn work(
        &mut self,
        file: &impl MixedFile,
        transactions: usize,
        is_over: impl Fn() -> bool,
    ) -> Result<(), LoadError> {
        for _ in 0..transactions {
            if is_over() {
                return Ok(());
            }
            let began = Timestamp::now();
            for _ in 0..READS {
                let page = self.plan.page(&mut self.random);
                self.read(file, page)?;
            }
            let page = self.plan.run(&mut self.random);
            self.read_range(file, page)?;
            for _ in 0..UPDATES {
                let page = self.plan.page(&mut self.random);
                self.update(file, page)?;
            }
            self.latencies.end(began);
        }
        file.sync().map_err(|error| LoadError::file("syncing", 0, &error))
    }

    fn offset(&self, page: u64) -> u64 {
        page * PAGE_BYTES + (self.thread * RECORD_BYTES) as u64
    }

    fn read(&mut self, file: &impl MixedFile, page: u64) -> Result<(), LoadError> {
        let mut record = [0; RECORD_BYTES];
        let read = file.read(&mut record, self.offset(page));
        read.map_err(|error| LoadError::file("reading", 0, &error))?;
        self.check(page, &record)
    }

    fn read_range(&mut self, file: &impl MixedFile, page: u64) -> Result<(), LoadError> {
        let read = file.read(&mut self.range, page * PAGE_BYTES);
        read.map_err(|error| LoadError::file("reading", 0, &error))?;
        for next in 0..RANGE_PAGES {
            let at = next as usize * PAGE_BYTES as usize + self.thread * RECORD_BYTES;
            let mut record = [0; RECORD_BYTES];
            record.copy_from_slice(&self.range[at..at + RECORD_BYTES]);
            self.check(page + next, &record)?;
        }
        Ok(())
    }

    fn update(&mut self, file: &impl MixedFile, page: u64) -> Result<(), LoadError> {
        self.read(file, page)?;
        let updates = &mut self.updates[page as usize];
        *updates = updates.wrapping_add(1);
        let mut record = [0; RECORD_BYTES];
        self.plan.content(self.thread, page, *updates).fill(&mut record);
        let written = file.write(&record, self.offset(page));
        written.map_err(|error| LoadError::file("writing to", 0, &error))
    }

    /// Whether it is the record as this thread has written it last.
    fn check(&mut self, page: u64, record: &[u8]) -> Result<(), LoadError> {
        let content = self.plan.content(self.thread, page, self.updates[page as usize]);
        let hash = content.verify(record).map_err(|wrong| wrong.in_file(0, self.offset(page)))?;
        self.hash = self.hash.wrapping_add(mix_all(&[page, hash]));
        Ok(())
    }
}

/// Of the pages one in 16 is read from the file system in the end.
const VERIFIED_PART: usize = 16;

/// Whether updates are in the file.
fn verify(plan: &Plan, path: &Path, tellers: &[Teller<'_>]) -> Result<(), LoadError> {
    let opened = KernelFile::open(path, Way::Buffered);
    let file = opened.map_err(|source| LoadError::Open { path: path.into(), source })?;
    let mut record = [0; RECORD_BYTES];
    for teller in tellers {
        let pages = teller.updates.iter().enumerate().step_by(VERIFIED_PART);
        for (page, updates) in pages.filter(|(_, updates)| **updates > 0) {
            let (page, offset) = (page as u64, teller.offset(page as u64));
            let read = file.read_at(&mut record, offset);
            read.map_err(|error| LoadError::file("reading", 0, &error))?;
            let content = plan.content(teller.thread, page, *updates);
            content.verify(&record).map_err(|wrong| wrong.in_file(0, offset))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use unherd_sys::primitives::Mutex;

    use super::*;
    use crate::Workload;
    use crate::mix::Mix;

    /// A file that answers from memory.
    struct InMemory {
        bytes: Mutex<Vec<u8>>,
        /// Whether writes reach the memory. They never reach the file.
        keeps_writes: bool,
    }

    impl MixedFile for InMemory {
        fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
            bytes.copy_from_slice(&self.bytes.lock()[offset as usize..][..bytes.len()]);
            Ok(())
        }

        fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            if self.keeps_writes {
                self.bytes.lock()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn plan(pages: u64) -> Plan {
        Plan { seed: 1, threads: 2, pages, transactions: 200, warm_up: 0 }
    }

    fn round(keeps_writes: bool) -> Result<Round, LoadError> {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut job = Job::new(&Mix.describe(), "kernel", 2);
        job.dir = Some(dir.path().into());
        let round = run(&job, &plan(PAGES_MIN), |path| {
            Ok(InMemory { bytes: Mutex::new(std::fs::read(path).unwrap()), keeps_writes })
        });
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
        round
    }

    #[test]
    fn lost_update_is_found() {
        for keeps_writes in [false, true] {
            let error = round(keeps_writes).unwrap_err();
            assert!(matches!(error, LoadError::Corrupt { .. }), "{keeps_writes}: {error}");
        }
    }

    #[test]
    fn hot_runs_are_most_accesses() {
        let (plan, mut random) = (plan(1000), Random::new(1));
        let pages: Vec<u64> = (0..1000).map(|_| plan.page(&mut random)).collect();
        let runs = pages.iter().map(|page| page / RANGE_PAGES);
        let hot = runs.filter(|run| run.is_multiple_of(HOT_PART)).count();
        assert!((770..860).contains(&hot), "{hot}: four fifths, and a twentieth of the rest");
        assert!(pages.iter().all(|page| *page < 1000));
    }
}
