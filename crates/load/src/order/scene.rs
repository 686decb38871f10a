//! The scan, the same for all implementations.

use std::path::Path;

use unherd::Timestamp;
use unherd_sys::primitives::{AtomicBool, Ordering};

use super::plan::Plan;
use crate::crew::{self, Timed};
use crate::files::{Content, PAGE_BYTES, ScratchDir, device_read_bytes, write_numbered_pages};
use crate::random::mix_all;
use crate::{Job, LoadError, Round, Span};

/// The file as an implementation gives it.
pub(super) trait OrderedFile: Sync {
    /// What one thread has of it; made outside the timing.
    type Reader<'a>: Reader
    where
        Self: 'a;

    fn reader(&self) -> Result<Self::Reader<'_>, LoadError>;

    /// Pages that were read ahead and not used; `None` where nobody counts them.
    fn wasted_pages(&self) -> Option<u64> {
        None
    }
}

pub(super) trait Reader {
    /// Reads `pages`, and shows each to `see` in their order.
    fn read(
        &mut self,
        pages: &[u64],
        see: impl FnMut(u64, &[u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError>;

    /// Whether it asks for a page only when the last one has been seen.
    const WAITS_FOR_EACH: bool;
}

/// Runs a round on a file that is made for it and removed at the end. `open` gets its path, and
/// gives the implementation with what it has cost to make it.
pub(super) fn run<F: OrderedFile>(
    job: &Job,
    plan: &Plan,
    open: impl FnOnce(&Path) -> Result<(F, Span), LoadError>,
) -> Result<Round, LoadError> {
    let scratch = ScratchDir::create(&plan.dir, "order")?;
    let path = scratch.file(0);
    write_numbered_pages(&path, plan.seed, plan.file_bytes())?;
    let (file, setup) = open(&path)?;
    let scene = Scene { plan, file, failed: AtomicBool::new(false) };
    let before = crew::run(job, |_| (), |thread, ()| scene.read(&plan.cached_before(thread)))?;
    let cached_pages: usize = before.done.iter().map(|done| done.pages).sum();
    let (device_bytes, wasted) = (device_read_bytes(), scene.file.wasted_pages());
    let timed = crew::run(job, |thread| plan.sequence(thread), |_, mine| scene.read(&mine))?;
    let device_bytes = device_read_bytes().zip(device_bytes).map(|(after, before)| after - before);
    // What was read ahead before may be used only now.
    let fewer = |(after, before): (u64, u64)| after.saturating_sub(before);
    let wasted = scene.file.wasted_pages().zip(wasted).map(fewer);
    let waits_for_each = <F::Reader<'_> as Reader>::WAITS_FOR_EACH;
    Ok(report(&timed, cached_pages, device_bytes, wasted, waits_for_each, &setup))
}

struct Scene<'a, F> {
    plan: &'a Plan,
    file: F,
    /// Ends the other threads' work early. Relaxed: it publishes nothing.
    failed: AtomicBool,
}

/// What one thread did.
struct Done {
    pages: usize,
    hash: u64,
    latency_ns_max: u64,
}

impl<F: OrderedFile> Scene<'_, F> {
    fn read(&self, pages: &[u64]) -> Result<Done, LoadError> {
        let mut done = Done { pages: 0, hash: 0, latency_ns_max: 0 };
        let mut last_seen = Timestamp::now();
        let see = |page: u64, bytes: &[u8]| {
            if self.failed.load(Ordering::Relaxed) {
                return Err(LoadError::usage("another thread has failed"));
            }
            let took_ns = Timestamp::now().since(last_seen).as_nanos() as u64;
            done.latency_ns_max = done.latency_ns_max.max(took_ns);
            let content = Content::new(self.plan.seed, 0, page, 1);
            let hash =
                content.verify(bytes).map_err(|wrong| wrong.in_file(0, page * PAGE_BYTES))?;
            // In the order in which the pages came.
            done.hash = mix_all(&[done.hash, page, hash]);
            done.pages += 1;
            last_seen = Timestamp::now();
            Ok(())
        };
        let read = self.file.reader().and_then(|mut reader| reader.read(pages, see));
        match read {
            Ok(()) => Ok(done),
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

fn report(
    timed: &Timed<Done>,
    cached_pages: usize,
    device_bytes: Option<u64>,
    wasted: Option<u64>,
    waits_for_each: bool,
    setup: &Span,
) -> Round {
    let Timed { span, waits, done } = timed;
    let check = done.iter().fold(0_u64, |sum, done| sum.wrapping_add(done.hash));
    let pages = done.iter().map(|done| done.pages).sum::<usize>();
    let missing_bytes = ((pages - cached_pages) as u64 * PAGE_BYTES) as f64;
    let pages = pages as f64;
    let mb = pages * PAGE_BYTES as f64 / f64::from(1 << 20);
    let us = |seconds: f64| seconds * 1e6 / pages;
    let latency_ns_max = done.iter().map(|done| done.latency_ns_max).max().unwrap_or(0);
    let device_pages = device_bytes.map(|bytes| (bytes / PAGE_BYTES).max(1) as f64);
    let figures = [
        ("mb", Some(mb)),
        ("s", Some(span.elapsed_s)),
        ("mb_per_s", Some(mb / span.elapsed_s)),
        ("cpu_us_per_page", Some(us(span.cpu_s))),
        ("user_us_per_page", Some(us(span.user_s))),
        ("device_ratio", device_bytes.map(|bytes| bytes as f64 / missing_bytes)),
        ("wasted_pct", wasted.zip(device_pages).map(|(wasted, all)| 100.0 * wasted as f64 / all)),
        ("context_switches_per_page", Some(span.voluntary_switches as f64 / pages)),
        ("latency_us_max", waits_for_each.then_some(latency_ns_max as f64 / 1e3)),
        ("setup_s", Some(setup.elapsed_s)),
        ("setup_cpu_s", Some(setup.cpu_s)),
        ("planted_s", Some(span.planted_s)),
    ];
    let named = |(name, value): (&str, Option<f64>)| Some((name.to_owned(), value?));
    let metrics = figures.into_iter().filter_map(named).collect();
    Round { check, metrics, waits: waits.clone() }
}
