//! The reads and what they cost, the same for all implementations.

use std::io;
use std::path::Path;

use unherd::Timestamp;
use unherd_sys::primitives::{AtomicBool, Ordering};

use super::plan::Plan;
use super::sleep;
use crate::crew::{self, Timed};
use crate::files::{
    AlignedBytes, Content, PAGE_BYTES, QueuedReads, ScratchDir, device_read_bytes,
    write_numbered_pages,
};
use crate::random::mix_all;
use crate::{Basis, Job, LoadError, Meter, Round, Span};

/// The file as an implementation gives it.
pub(super) trait RandomFile: Sync {
    /// Fills the page, whose memory is aligned.
    fn read_at(&self, page: &mut [u8], offset: u64) -> io::Result<()>;

    /// Whether the ledger knows the implementation's wakeups.
    const COUNTS_WAKEUPS: bool;
}

/// Reads under way where nobody sleeps for a single one.
const DEPTH: usize = 64;

/// Runs a round on a file that is made for it and removed at the end. `open` gets its path, and
/// gives the implementation with what it has cost to make it.
pub(super) fn run<F: RandomFile>(
    job: &Job,
    plan: &Plan,
    open: impl FnOnce(&Path) -> Result<(F, Span), LoadError>,
) -> Result<Round, LoadError> {
    let scratch = ScratchDir::create(&plan.dir, "randread")?;
    let path = scratch.file(0);
    write_numbered_pages(&path, plan.seed, plan.file_bytes())?;
    let (file, setup) = open(&path)?;
    let scene = Scene { plan, file, failed: AtomicBool::new(false) };
    let device_bytes = device_read_bytes();
    let timed = crew::run(job, |_| Buffers::new(plan), |thread, mine| scene.read(thread, mine))?;
    let device_bytes = device_read_bytes().zip(device_bytes).map(|(after, before)| after - before);
    drop(scene);
    let parts = Parts { io_us: io_us(plan, &path)?, sleep_wake_us: sleep::sleep_wake_us(job)? };
    Ok(report::<F>(plan, timed, device_bytes, parts, &setup))
}

/// What the parts of a miss cost, in µs of CPU time.
struct Parts {
    io_us: f64,
    sleep_wake_us: f64,
}

/// One thread that has many reads under way, at random places.
fn io_us(plan: &Plan, path: &Path) -> Result<f64, LoadError> {
    let opened = QueuedReads::open(path, DEPTH);
    let mut reads = opened.map_err(|source| LoadError::Open { path: path.into(), source })?;
    let pages: Vec<u64> = (0..plan.threads).flat_map(|thread| plan.sequence(thread)).collect();
    let count = pages.len() as f64;
    let meter = Meter::start(Basis::Process)?;
    let read = reads.read(pages.into_iter(), |_, _| Ok(()));
    let span = meter.stop(0.0)?;
    read?;
    Ok(span.cpu_s * 1e6 / count)
}

struct Scene<'a, F> {
    plan: &'a Plan,
    file: F,
    /// Ends the other threads' work early. Relaxed: it publishes nothing.
    failed: AtomicBool,
}

struct Buffers {
    page: AlignedBytes,
    latencies_ns: Vec<u64>,
}

impl Buffers {
    fn new(plan: &Plan) -> Result<Self, LoadError> {
        let page = AlignedBytes::new(PAGE_BYTES as usize)?;
        Ok(Self { page, latencies_ns: Vec::with_capacity(plan.reads as usize) })
    }
}

/// What one thread did.
struct Done {
    hash: u64,
    latencies_ns: Vec<u64>,
}

impl<F: RandomFile> Scene<'_, F> {
    fn read(&self, thread: usize, mine: Result<Buffers, LoadError>) -> Result<Done, LoadError> {
        let Buffers { mut page, mut latencies_ns } = mine?;
        let mut hash = 0_u64;
        for number in self.plan.sequence(thread) {
            if self.failed.load(Ordering::Relaxed) {
                break;
            }
            let begin = Timestamp::now();
            let read = self.file.read_at(&mut page, number * PAGE_BYTES);
            latencies_ns.push(Timestamp::now().since(begin).as_nanos() as u64);
            let verified = read
                .map_err(|error| LoadError::file("reading", 0, &error))
                .and_then(|()| {
                    Content::new(self.plan.seed, 0, number, 1)
                        .verify(&page)
                        .map_err(|wrong| wrong.in_file(0, number * PAGE_BYTES))
                })
                .inspect_err(|_| self.failed.store(true, Ordering::Relaxed))?;
            hash = hash.wrapping_add(mix_all(&[number, verified]));
        }
        Ok(Done { hash, latencies_ns })
    }
}

fn report<F: RandomFile>(
    plan: &Plan,
    timed: Timed<Done>,
    device_bytes: Option<u64>,
    parts: Parts,
    setup: &Span,
) -> Round {
    let Timed { span, waits, done } = timed;
    // The sum does not depend on which thread was first.
    let check = done.iter().fold(plan.seed, |sum, done| sum.wrapping_add(done.hash));
    let mut latencies_ns: Vec<u64> = done.into_iter().flat_map(|done| done.latencies_ns).collect();
    latencies_ns.sort_unstable();
    let quantile_us = |per_cent: usize| {
        let at = latencies_ns.len() * per_cent / 100;
        latencies_ns.get(at.min(latencies_ns.len() - 1)).map(|ns| *ns as f64 / 1e3)
    };
    let reads = latencies_ns.len() as f64;
    let us = |seconds: f64| seconds * 1e6 / reads;
    let device_ratio = device_bytes.map(|bytes| bytes as f64 / (reads * PAGE_BYTES as f64));
    // A hit has neither part. Where the device's share is not known, all are taken for misses.
    let misses = device_ratio.unwrap_or(1.0).min(1.0);
    let (io_us, sleep_wake_us) = (misses * parts.io_us, misses * parts.sleep_wake_us);
    let cpu_us = us(span.cpu_s);
    let counted = F::COUNTS_WAKEUPS.then(|| waits.total());
    let figures = [
        ("reads", Some(reads)),
        ("s", Some(span.elapsed_s)),
        ("mb_per_s", Some(reads * PAGE_BYTES as f64 / f64::from(1 << 20) / span.elapsed_s)),
        ("cpu_us_per_read", Some(cpu_us)),
        ("user_us_per_read", Some(us(span.user_s))),
        ("device_ratio", device_ratio),
        ("io_us_per_read", Some(io_us)),
        ("sleep_wake_us_per_read", Some(sleep_wake_us)),
        ("cache_us_per_read", Some(cpu_us - io_us - sleep_wake_us)),
        ("x_floor", Some(cpu_us / (io_us + sleep_wake_us))),
        ("context_switches_per_read", Some(span.voluntary_switches as f64 / reads)),
        ("wakeups_per_read", counted.as_ref().map(|counted| counted.wakeups as f64 / reads)),
        ("needless_wakeups", counted.map(|counted| counted.needless_wakeups as f64)),
        ("latency_us_p50", quantile_us(50)),
        ("latency_us_p99", quantile_us(99)),
        ("latency_us_max", quantile_us(100)),
        ("setup_s", Some(setup.elapsed_s)),
        ("setup_cpu_s", Some(setup.cpu_s)),
        ("planted_s", Some(span.planted_s)),
    ];
    let named = |(name, value): (&str, Option<f64>)| Some((name.to_owned(), value?));
    Round { check, metrics: figures.into_iter().filter_map(named).collect(), waits }
}
