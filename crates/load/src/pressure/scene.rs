//! The threads of a round, and what it gives.

use std::time::Duration;

use unherd::{GateMode, Ledger, Timestamp};
use unherd_sys::primitives::{AtomicBool, Ordering, thread};

use super::device::Device;
use super::pool::{Background, FRAME_BYTES, Gates, Pool, Reclaim};
use crate::congestion::{GateWaits, Latencies, sleep_until};
use crate::random::{Random, mix_all};
use crate::{Basis, Job, LoadError, Meter, Round, Span};

/// Frames of one request.
const REQUEST: usize = 32;
/// What the interactive thread touches, and how often.
const INTERACTIVE_BYTES: usize = 16 << 20;
const INTERACTIVE_PERIOD: Duration = Duration::from_millis(10);

pub(super) struct Plan {
    pub(super) frames: usize,
    /// Frames of one write-back.
    pub(super) batch: usize,
    /// Of each writer.
    pub(super) pages: usize,
    pub(super) readers: usize,
    pub(super) askers: usize,
    /// Of each asker.
    pub(super) asks: usize,
}

/// What threads of one kind have done.
#[derive(Default)]
struct Done {
    reclaim: Reclaim,
    latencies: Latencies,
}

impl Done {
    fn of(mut self, other: Self) -> Self {
        self.reclaim.add(other.reclaim);
        self.latencies.append(other.latencies);
        self
    }
}

type Handle<'scope> = thread::ScopedJoinHandle<'scope, Done>;

fn join(handles: Vec<Handle<'_>>) -> Result<Done, LoadError> {
    let mut joined = handles
        .into_iter()
        .enumerate()
        .map(|(index, handle)| handle.join().map_err(|panic| LoadError::panicked(index, &*panic)));
    joined.try_fold(Done::default(), |sum, done| Ok(sum.of(done?)))
}

pub(super) fn run(
    job: &Job,
    mode: GateMode,
    device: &Device,
    plan: &Plan,
) -> Result<Round, LoadError> {
    let gates = Gates::new(mode);
    let pool = Pool::new(&gates, plan.frames);
    // Relaxed: it ends loops, and orders nothing.
    let over = AtomicBool::new(false);
    let waits_before = Ledger::snapshot();
    let meter = Meter::start(Basis::Process)?;
    let (kinds, background, span) = thread::scope(|scope| {
        let (pool, over) = (&pool, &over);
        let is_over = || over.load(Ordering::Relaxed);
        let flusher = scope.spawn(|| pool.flush(device, plan.batch));
        let background = scope.spawn(|| pool.reclaim());
        let readers = (0..plan.readers).map(|_| scope.spawn(move || read(pool, device, is_over)));
        let readers: Vec<_> = readers.collect();
        let interactive = vec![scope.spawn(move || interact(pool, is_over))];
        let writers = (0..job.threads).map(|index| {
            let seed = mix_all(&[job.seed, index as u64]);
            scope.spawn(move || write(pool, seed, plan.pages))
        });
        let writers: Vec<_> = writers.collect();
        let askers = (0..plan.askers).map(|_| scope.spawn(move || ask(pool, plan.asks)));
        let askers: Vec<_> = askers.collect();
        let (writers, askers) = (join(writers), join(askers));
        // The flusher writes what is left outside of the region.
        let span = meter.stop(job.plant);
        over.store(true, Ordering::Relaxed);
        let (readers, interactive) = (join(readers), join(interactive));
        pool.end();
        let background = background.join().map_err(|panic| LoadError::panicked(0, &*panic));
        let flushed = flusher.join().map_err(|panic| LoadError::panicked(0, &*panic));
        flushed?;
        let kinds = [
            ("writer", writers?),
            ("reader", readers?),
            ("asker", askers?),
            ("interactive", interactive?),
        ];
        Ok::<_, LoadError>((kinds, background?, span?))
    })?;
    device.failed()?;
    let (written, wake_requests) = pool.counts();
    let pages = (plan.pages * job.threads) as u64;
    if written != pages {
        return Err(LoadError::NotPolled { expected: pages, found: written });
    }
    let mut all = Reclaim::default();
    kinds.iter().for_each(|(_, done)| all.add(done.reclaim));
    let mut metrics = metrics(&all, &background, &span, written);
    metrics.push(("wake_requests".to_owned(), wake_requests as f64));
    metrics.push(("overdue".to_owned(), gates.overdue() as f64));
    for (who, done) in kinds {
        metrics.extend(done.latencies.metrics(who));
    }
    let check = mix_all(&[job.seed, pages, (plan.asks * plan.askers) as u64]);
    Ok(Round { check, metrics, waits: Ledger::snapshot().since(&waits_before) })
}

fn metrics(
    all: &Reclaim,
    background: &Background,
    span: &Span,
    written: u64,
) -> Vec<(String, f64)> {
    let mut waits = GateWaits::default();
    [all.waits, all.throttle, background.waits].into_iter().for_each(|some| waits.add(some));
    let ms = |ns: u64| ns as f64 / 1e6;
    let scanned = all.scanned + background.scanned;
    let metrics = [
        ("elapsed_s", span.elapsed_s),
        ("cpu_s", span.cpu_s),
        ("waits", waits.waits as f64),
        ("needless_waits", waits.needless as f64),
        ("congestion_wait_ms", ms(waits.slept_ns)),
        ("direct_waits", all.waits.waits as f64),
        ("direct_needless_waits", all.waits.needless as f64),
        ("direct_wait_ms", ms(all.waits.slept_ns)),
        ("background_waits", background.waits.waits as f64),
        ("background_needless_waits", background.waits.needless as f64),
        ("background_wait_ms", ms(background.waits.slept_ns)),
        ("throttle_waits", all.throttle.waits as f64),
        ("throttle_wait_ms", ms(all.throttle.slept_ns)),
        ("direct_reclaims", all.reclaims as f64),
        ("direct_scanned", all.scanned as f64),
        ("direct_stall_ms", ms(all.stall_ns)),
        ("background_wakeups", background.wakeups as f64),
        ("background_scanned", background.scanned as f64),
        ("background_awake_ms", ms(background.awake_ns)),
        ("written", written as f64),
        ("scanned_per_written_pct", scanned as f64 * 100.0 / written.max(1) as f64),
        ("planted_s", span.planted_s),
    ];
    metrics.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// Dirties pages as fast as it can.
fn write(pool: &Pool<'_>, seed: u64, pages: usize) -> Done {
    let (mut done, mut random) = (Done::default(), Random::new(seed));
    let mut page = vec![0_u64; FRAME_BYTES as usize / 8];
    for _ in 0..pages {
        let began = Timestamp::now();
        let frame = pool.take(&mut done.reclaim);
        page.fill_with(|| random.next_word());
        std::hint::black_box(&page);
        pool.publish_dirty(frame, &mut done.reclaim);
        done.latencies.end(began);
    }
    done
}

/// Reads pages that are not there.
fn read(pool: &Pool<'_>, device: &Device, is_over: impl Fn() -> bool) -> Done {
    let mut done = Done::default();
    while !is_over() {
        let began = Timestamp::now();
        let frame = pool.take(&mut done.reclaim);
        device.read();
        pool.publish_clean(frame);
        done.latencies.end(began);
    }
    done
}

/// Asks for some frames at a time, and gives them back.
fn ask(pool: &Pool<'_>, asks: usize) -> Done {
    let mut done = Done::default();
    for _ in 0..asks {
        let began = Timestamp::now();
        let frames = [(); REQUEST].map(|()| pool.take(&mut done.reclaim));
        done.latencies.end(began);
        frames.into_iter().for_each(|frame| pool.publish_clean(frame));
    }
    done
}

/// Touches its memory when it is due; each time one page of it must have a frame first.
fn interact(pool: &Pool<'_>, is_over: impl Fn() -> bool) -> Done {
    let mut done = Done::default();
    let mut memory = vec![1_u8; INTERACTIVE_BYTES];
    let mut due = Timestamp::now();
    while !is_over() {
        sleep_until(due);
        let frame = pool.take(&mut done.reclaim);
        for byte in memory.iter_mut().step_by(FRAME_BYTES as usize) {
            *byte = std::hint::black_box(byte.wrapping_add(1));
        }
        pool.publish_clean(frame);
        done.latencies.end(due);
        due = due.after(INTERACTIVE_PERIOD).max(Timestamp::now());
    }
    done
}
