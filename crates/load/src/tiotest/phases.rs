//! The four phases, the same for all implementations.

use std::io;
use std::path::Path;

use unherd::Timestamp;
use unherd_sys::primitives::{AtomicBool, Ordering};

use super::plan::{Plan, Rewritten, Sequence};
use crate::crew::{self, Timed};
use crate::files::{Content, ScratchDir};
use crate::random::mix_all;
use crate::{Job, LoadError, Round, Span};

/// The phases in their order, as metrics name them.
pub(super) const NAMES: [&str; 4] = ["write", "random_write", "read", "random_read"];

/// A file as an implementation gives it. All calls block until done and move all bytes or fail.
pub(super) trait TestFile: Sync {
    fn read_at(&self, block: &mut [u8], offset: u64) -> io::Result<()>;

    fn write_at(&self, block: &[u8], offset: u64) -> io::Result<()>;

    /// Returns once all that was written is on stable storage.
    fn sync(&self) -> io::Result<()>;

    /// Whether the ledger knows the implementation's wakeups.
    const COUNTS_WAKEUPS: bool;
}

/// Runs a round on files that `create` makes; they are removed at the end, however it ends.
/// `setup` is what the implementation has cost so far; it is told by itself.
pub(super) fn run<F: TestFile>(
    job: &Job,
    plan: &Plan,
    setup: Span,
    create: impl Fn(&Path) -> io::Result<F>,
) -> Result<Round, LoadError> {
    let scratch = ScratchDir::create(&plan.dir, "tiotest")?;
    let mut files = Vec::with_capacity(plan.threads);
    for file in 0..plan.threads {
        let path = scratch.file(file);
        let opened = create(&path);
        files.push(opened.map_err(|source| LoadError::Open { path, source })?);
    }
    let scene = Scene { plan, files, failed: AtomicBool::new(false) };
    let before = unherd::Ledger::snapshot();
    let mut report = Report::<F>::default();
    report.setup(&setup);
    let write = |file, _| scene.write(file, 0..plan.blocks, 1);
    report.phase(0, crew::run(job, |_| (), write)?);
    let rewrite = |file, _| scene.write(file, plan.random_sequence(file, Sequence::Write), 2);
    report.phase(1, crew::run(job, |_| (), rewrite)?);
    let rewritten = |file| plan.rewritten(file);
    let read = |file, versions| scene.read(file, 0..plan.blocks, versions);
    report.phase(2, crew::run(job, rewritten, read)?);
    let random_read =
        |file, versions| scene.read(file, plan.random_sequence(file, Sequence::Read), versions);
    report.phase(3, crew::run(job, rewritten, random_read)?);
    let waits = unherd::Ledger::snapshot().since(&before);
    Ok(Round { check: report.check, metrics: report.metrics, waits })
}

struct Scene<'a, F> {
    plan: &'a Plan,
    files: Vec<F>,
    /// Ends the other threads' work early. Relaxed: it publishes nothing.
    failed: AtomicBool,
}

/// What one thread did in one phase.
#[derive(Debug, Default)]
struct Done {
    ops: u64,
    bytes: u64,
    latency_ns_max: u64,
    hash: u64,
}

impl<F: TestFile> Scene<'_, F> {
    fn write(
        &self,
        file: usize,
        blocks: impl Iterator<Item = u64>,
        version: u64,
    ) -> Result<Done, LoadError> {
        let mut buffer = vec![0; self.plan.block_bytes];
        let done = self.each(blocks, |done, block| {
            Content::new(self.plan.seed, file, block, version).fill(&mut buffer);
            let offset = block * buffer.len() as u64;
            done.timed(|| self.files[file].write_at(&buffer, offset))
                .map_err(|error| LoadError::file("writing", file, &error))
        })?;
        match self.files[file].sync() {
            Ok(()) => Ok(done),
            Err(error) => Err(self.fail(LoadError::file("syncing", file, &error))),
        }
    }

    fn read(
        &self,
        file: usize,
        blocks: impl Iterator<Item = u64>,
        versions: Rewritten,
    ) -> Result<Done, LoadError> {
        let mut buffer = vec![0; self.plan.block_bytes];
        let mut done = self.each(blocks, |done, block| {
            let offset = block * buffer.len() as u64;
            done.timed(|| self.files[file].read_at(&mut buffer, offset))
                .map_err(|error| LoadError::file("reading", file, &error))?;
            let content = Content::new(self.plan.seed, file, block, versions.version(block));
            let hash = content.verify(&buffer).map_err(|wrong| wrong.in_file(file, offset))?;
            done.hash = done.hash.rotate_left(1) ^ hash;
            Ok(())
        })?;
        done.hash = mix_all(&[file as u64, done.hash]);
        Ok(done)
    }

    fn each(
        &self,
        blocks: impl Iterator<Item = u64>,
        mut one: impl FnMut(&mut Done, u64) -> Result<(), LoadError>,
    ) -> Result<Done, LoadError> {
        let mut done = Done::default();
        for block in blocks {
            if self.failed.load(Ordering::Relaxed) {
                break;
            }
            one(&mut done, block).map_err(|error| self.fail(error))?;
            done.ops += 1;
            done.bytes += self.plan.block_bytes as u64;
        }
        Ok(done)
    }

    fn fail(&self, error: LoadError) -> LoadError {
        self.failed.store(true, Ordering::Relaxed);
        error
    }
}

impl Done {
    fn timed<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let begin = Timestamp::now();
        let result = operation();
        let took_ns = Timestamp::now().since(begin).as_nanos() as u64;
        self.latency_ns_max = self.latency_ns_max.max(took_ns);
        result
    }
}

/// The round's figures, as the phases bring them.
struct Report<F> {
    check: u64,
    metrics: Vec<(String, f64)>,
    file: std::marker::PhantomData<fn(F)>,
}

impl<F> Default for Report<F> {
    fn default() -> Self {
        Self { check: 0, metrics: Vec::new(), file: std::marker::PhantomData }
    }
}

impl<F: TestFile> Report<F> {
    fn setup(&mut self, span: &Span) {
        let figures = [("setup_s", span.elapsed_s), ("setup_cpu_s", span.cpu_s)];
        self.metrics.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    }

    fn phase(&mut self, phase: usize, timed: Timed<Done>) {
        let Timed { span, waits, done } = timed;
        // The sum does not depend on which thread was first.
        let hash = done.iter().fold(0_u64, |sum, done| sum.wrapping_add(done.hash));
        self.check = mix_all(&[self.check, hash]);

        let ops = done.iter().map(|done| done.ops).sum::<u64>().max(1) as f64;
        let mb = done.iter().map(|done| done.bytes).sum::<u64>() as f64 / f64::from(1 << 20);
        let latency_ns_max = done.iter().map(|done| done.latency_ns_max).max().unwrap_or(0);
        let percent = |seconds: f64| 100.0 * seconds / span.elapsed_s;
        let switches = span.voluntary_switches as f64;
        let counted = F::COUNTS_WAKEUPS.then(|| waits.total());
        let figures = [
            ("mb", Some(mb)),
            ("s", Some(span.elapsed_s)),
            ("mb_per_s", Some(mb / span.elapsed_s)),
            ("user_pct", Some(percent(span.user_s))),
            ("sys_pct", Some(percent(span.cpu_s - span.user_s))),
            ("cpu_s", Some(span.cpu_s)),
            ("mb_per_cpusec", Some(mb / span.cpu_s)),
            ("process_cpu_s", Some(span.process_cpu_s)),
            ("context_switches", Some(switches)),
            ("context_switches_per_op", Some(switches / ops)),
            ("wakeups_per_op", counted.as_ref().map(|counted| counted.wakeups as f64 / ops)),
            ("needless_wakeups", counted.map(|counted| counted.needless_wakeups as f64)),
            ("latency_us_max", Some(latency_ns_max as f64 / 1e3)),
            ("planted_s", Some(span.planted_s)),
        ];
        let named =
            |(name, value): (&str, Option<f64>)| Some((format!("{}_{name}", NAMES[phase]), value?));
        self.metrics.extend(figures.into_iter().filter_map(named));
    }
}
