//! The passes over the file, the same for all implementations.

use std::io;
use std::path::Path;

use unherd::Timestamp;
use unherd_host::BusyTime;
use unherd_sys::primitives::{AtomicBool, Ordering};

use super::plan::{Plan, Verify};
use crate::crew::{self, Timed};
use crate::files::{Content, PAGE_BYTES, ScratchDir, device_read_bytes, write_numbered_pages};
use crate::random::mix_all;
use crate::{Job, LoadError, Round, Span};

/// The passes in their order, as metrics name them.
pub(super) const PASSES: [&str; 2] = ["cold", "hot"];

/// How often the hot part is read before it is timed: a cache that tells pages which were used
/// twice from those of a scan takes its time to keep them.
const WARM_TURNS: u64 = 3;

/// The file as an implementation gives it.
pub(super) trait SlicedFile: Sync {
    /// What one thread has of it; made outside the timing.
    type Reader<'a>: Reader
    where
        Self: 'a;

    fn reader(&self) -> Result<Self::Reader<'_>, LoadError>;
}

pub(super) trait Reader {
    /// Reads the block at `offset`, and shows it to `see` in its order, in one piece or in several
    /// of whole pages.
    fn read(&mut self, offset: u64, see: &mut impl FnMut(&[u8])) -> io::Result<()>;
}

/// Runs a round on a file that is made for it and removed at the end. `open` gets its path, and
/// gives the implementation with what it has cost to make it.
pub(super) fn run<F: SlicedFile>(
    job: &Job,
    plan: &Plan,
    open: impl FnOnce(&Path) -> Result<(F, Span), LoadError>,
) -> Result<Round, LoadError> {
    let scratch = ScratchDir::create(&plan.dir, "slices")?;
    let path = scratch.file(0);
    write_numbered_pages(&path, plan.seed, plan.file_bytes())?;
    let (file, setup) = open(&path)?;
    let scene = Scene { plan, file, failed: AtomicBool::new(false) };
    let before = unherd::Ledger::snapshot();
    let mut report = Report::default();
    report.setup(&setup);
    report.pass(PASSES[0], plan, &scene.pass(job, plan.blocks, 1)?);
    scene.pass(job, plan.hot_blocks, WARM_TURNS)?;
    report.pass(PASSES[1], plan, &scene.pass(job, plan.hot_blocks, plan.hot_turns)?);
    let waits = unherd::Ledger::snapshot().since(&before);
    Ok(Round { check: report.check, metrics: report.metrics, waits })
}

struct Scene<'a, F> {
    plan: &'a Plan,
    file: F,
    /// Ends the other threads' work early. Relaxed: it publishes nothing.
    failed: AtomicBool,
}

/// What one thread did in one pass.
#[derive(Debug, Default)]
struct Done {
    blocks: u64,
    time_s: f64,
    latency_ns_max: u64,
    hash: u64,
}

struct Pass {
    timed: Timed<Done>,
    device_bytes: Option<u64>,
    interrupts_s: f64,
}

impl<F: SlicedFile> Scene<'_, F> {
    /// Each thread reads its slice of the first `blocks` blocks, `turns` times.
    fn pass(&self, job: &Job, blocks: u64, turns: u64) -> Result<Pass, LoadError> {
        let interrupts = BusyTime::now().map_err(LoadError::BusyTime)?;
        let device_bytes = device_read_bytes();
        let work = |thread, reader: Result<_, LoadError>| self.read(thread, reader?, blocks, turns);
        let timed = crew::run(job, |_| self.file.reader(), work)?;
        let interrupts = BusyTime::now().map_err(LoadError::BusyTime)?.since(interrupts);
        let device_bytes =
            device_read_bytes().zip(device_bytes).map(|(after, before)| after - before);
        Ok(Pass { timed, device_bytes, interrupts_s: interrupts.interrupts_ns as f64 / 1e9 })
    }

    fn read(
        &self,
        thread: usize,
        mut reader: F::Reader<'_>,
        blocks: u64,
        turns: u64,
    ) -> Result<Done, LoadError> {
        let mut done = Done::default();
        let begin = Timestamp::now();
        for turn in 0..turns {
            for block in self.plan.slice(thread, blocks) {
                if self.failed.load(Ordering::Relaxed) {
                    return Ok(done);
                }
                let before = Timestamp::now();
                let hash = self.read_block(&mut reader, block).inspect_err(|_| {
                    self.failed.store(true, Ordering::Relaxed);
                })?;
                let took_ns = Timestamp::now().since(before).as_nanos() as u64;
                done.latency_ns_max = done.latency_ns_max.max(took_ns);
                done.blocks += 1;
                if turn == 0 {
                    done.hash = done.hash.wrapping_add(hash);
                }
            }
        }
        done.time_s = Timestamp::now().since(begin).as_secs_f64();
        Ok(done)
    }

    /// A hash of the block as it was read.
    fn read_block(&self, reader: &mut F::Reader<'_>, block: u64) -> Result<u64, LoadError> {
        let offset = block * self.plan.block_bytes as u64;
        let first = offset / PAGE_BYTES;
        let (mut page, mut hash, mut wrong) = (first, 0_u64, None);
        let mut see = |bytes: &[u8]| {
            for bytes in bytes.chunks(PAGE_BYTES as usize) {
                let content = Content::new(self.plan.seed, 0, page, 1);
                let found = match self.plan.verify {
                    Verify::Stamp => content.verify_stamp(bytes),
                    Verify::Full => content.verify(bytes),
                };
                match found {
                    Ok(of_page) => hash = hash.wrapping_add(mix_all(&[page, of_page])),
                    Err(mismatch) => wrong = wrong.or(Some((page, mismatch))),
                }
                page += 1;
            }
        };
        reader.read(offset, &mut see).map_err(|error| LoadError::file("reading", 0, &error))?;
        if let Some((page, mismatch)) = wrong {
            return Err(mismatch.in_file(0, page * PAGE_BYTES));
        }
        let pages = self.plan.block_bytes as u64 / PAGE_BYTES;
        if page != first + pages {
            let error = io::Error::other(format!("{} of {pages} pages were given", page - first));
            return Err(LoadError::file("reading", 0, &error));
        }
        Ok(hash)
    }
}

/// The round's figures, as the passes bring them.
#[derive(Default)]
struct Report {
    check: u64,
    metrics: Vec<(String, f64)>,
}

impl Report {
    fn setup(&mut self, span: &Span) {
        let figures = [("setup_s", span.elapsed_s), ("setup_cpu_s", span.cpu_s)];
        self.metrics.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    }

    fn pass(&mut self, name: &str, plan: &Plan, pass: &Pass) {
        let Timed { span, done, .. } = &pass.timed;
        // The sum does not depend on which thread was first, nor on how many there were.
        let hash = done.iter().fold(0_u64, |sum, done| sum.wrapping_add(done.hash));
        self.check = mix_all(&[self.check, hash]);

        let blocks = done.iter().map(|done| done.blocks).sum::<u64>();
        let bytes = (blocks * plan.block_bytes as u64) as f64;
        let (mb, gb) = (bytes / f64::from(1 << 20), bytes / f64::from(1 << 30));
        let latency_ns_max = done.iter().map(|done| done.latency_ns_max).max().unwrap_or(0);
        let av_time_s = done.iter().map(|done| done.time_s).sum::<f64>() / done.len() as f64;
        let percent = |seconds: f64| 100.0 * seconds / span.elapsed_s;
        let figures = [
            ("mb", Some(mb)),
            ("s", Some(span.elapsed_s)),
            ("count", Some(blocks as f64)),
            ("av_time_s", Some(av_time_s)),
            ("mb_per_s", Some(mb / span.elapsed_s)),
            ("user_pct", Some(percent(span.user_s))),
            ("sys_pct", Some(percent(span.cpu_s - span.user_s))),
            ("intr_pct", Some(percent(pass.interrupts_s))),
            ("cpu_s", Some(span.cpu_s)),
            ("cpu_s_per_gb", Some(span.cpu_s / gb)),
            ("mb_per_cpusec", Some(mb / span.cpu_s)),
            ("device_ratio", pass.device_bytes.map(|read| read as f64 / bytes)),
            ("context_switches_per_op", Some(span.voluntary_switches as f64 / blocks as f64)),
            ("latency_us_max", Some(latency_ns_max as f64 / 1e3)),
            ("planted_s", Some(span.planted_s)),
        ];
        let named =
            |(metric, value): (&str, Option<f64>)| Some((format!("{name}_{metric}"), value?));
        self.metrics.extend(figures.into_iter().filter_map(named));
    }
}
