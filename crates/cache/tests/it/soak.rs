//! Random operations of many threads and tasks on few frames, for long: no torn byte is seen
//! through a pin, in an accepted look without one, or in a copy.
//!
//! Every page carries a checksum over all of it (`unherd_testkit::Stamp`), and its reads and writes
//! are those of a register (`unherd_testkit::PageHistory`): nobody finds what was overwritten
//! before he began, nor what a change of the length has cut off. A page that is pinned is compared
//! again when the pin ends.
//!
//! It goes in *epochs*, each with a new cache on a new simulated device: with each way of I/O in
//! turn, with late and reordered completions, and, in a test of its own, with transfers and flushes
//! that fail. Then calls may fail; bytes may not be torn all the same. At the end of an epoch the
//! bytes on the device are judged as well.
//!
//! A failure prints the seed of the run and of its epoch: with that in `UNHERD_SEED` the same
//! operations run again, in other interleavings. `UNHERD_SOAK_OPERATIONS` says how many the long
//! runs do.

mod tasks;

use std::cell::Cell;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use unherd_cache::{Cache, Error, File, Io, PageGuard, PageNo, Stats, Torn};
use unherd_sys::Timestamp;
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Ordering, thread};
use unherd_testkit::{
    Content, Failure, FaultPlan, Found, Outcome, PageHistory, PageRead, Seed, SimDevice, Stamp,
};

use crate::scene::{BOTH, sim, small, turn, writable};
use tasks::TaskWorker;

const THREADS: u64 = 64;
/// This many of the threads poll tasks, and do nothing else.
const TASK_THREADS: u64 = 16;
const FILES: usize = 8;
const PAGES: u64 = 512;
/// One for eight pages.
const FRAMES: usize = 512;
const PAGE_BYTES: usize = 4096;

/// Pages at the beginning of each file that most operations choose: all of them are a quarter of
/// what there is room for.
const HOT_PAGES: u64 = 16;

/// Operations of one epoch at most, and so between two signs of life.
const EPOCH: u64 = 1_000_000;

/// What CI has the time for.
const SHORT: u64 = 200_000;
const LONG: u64 = 100_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ReadAt,
    Page,
    Peek,
    WriteAt,
    PageMut,
    Hold,
    SetLen,
    PunchHole,
    SyncAll,
    SyncRange,
    Prefetch,
    Resize,
    PageAsync,
    ReadAtAsync,
    DroppedTask,
}

/// How many operations of ten thousand of a thread are of each kind. Those of tasks come on top.
const KINDS: [(Kind, u64); 15] = [
    (Kind::ReadAt, 1900),
    (Kind::Page, 2500),
    (Kind::Peek, 2500),
    (Kind::WriteAt, 1700),
    (Kind::PageMut, 1233),
    (Kind::Hold, 30),
    (Kind::SetLen, 5),
    (Kind::PunchHole, 10),
    (Kind::SyncAll, 10),
    (Kind::SyncRange, 10),
    (Kind::Prefetch, 100),
    (Kind::Resize, 2),
    (Kind::PageAsync, 0),
    (Kind::ReadAtAsync, 0),
    (Kind::DroppedTask, 0),
];

type Counts = [u64; KINDS.len()];

fn any_kind(seed: &mut Seed) -> Kind {
    let mut dice = seed.below(10_000);
    for (kind, share) in KINDS {
        if dice < share {
            return kind;
        }
        dice -= share;
    }
    unreachable!("the shares are ten thousand together")
}

/// What all threads of an epoch share.
struct Scene<'a> {
    cache: &'a Cache,
    files: &'a [File],
    io: Io,
    /// By file and page.
    histories: Vec<Vec<PageHistory>>,
    /// By file: the last log sequence number under which a page was held back.
    held_until: Vec<AtomicU64>,
    may_fail: bool,
    /// A thread has failed: the others need not go on.
    failed: AtomicBool,
}

impl<'a> Scene<'a> {
    fn new(cache: &'a Cache, files: &'a [File], io: Io, may_fail: bool) -> Self {
        let histories = |_| (0..PAGES).map(|_| PageHistory::new(Content::Stamped)).collect();
        let histories = (0..FILES).map(histories).collect();
        let held_until = (0..FILES).map(|_| AtomicU64::new(0)).collect();
        let failed = AtomicBool::new(false);
        Self { cache, files, io, histories, held_until, may_fail, failed }
    }

    fn history(&self, stamp: Stamp) -> &PageHistory {
        &self.histories[stamp.file][stamp.page as usize]
    }

    /// The value, or nothing if the device is one that fails.
    fn allowed<T>(&self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            // By held pages.
            Err(Error::Held { .. } | Error::TooManyHeld { .. } | Error::CannotShrink { .. }) => {
                None
            }
            Err(
                Error::Io { .. }
                | Error::ShortTransfer { .. }
                | Error::NoFrames { .. }
                | Error::LostDurability { .. },
            ) if self.may_fail => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Lets all pages be written that are held back now.
    fn release(&self, file: usize) {
        self.files[file].release_to(self.held_until[file].load(Ordering::Relaxed));
    }

    /// Judges what a read has found in a page.
    fn judge(&self, stamp: Stamp, read: PageRead, bytes: &[u8]) {
        let found = stamp.examine(bytes).unwrap_or_else(|torn| panic!("{torn}"));
        self.judge_found(stamp, read, found);
    }

    fn judge_found(&self, stamp: Stamp, read: PageRead, found: Found) {
        let judged = self.history(stamp).end_read(read, found);
        judged.unwrap_or_else(|wrong| panic!("{stamp:?}: {wrong}"));
    }
}

/// Every other file is cut now and then.
fn may_be_cut(file: usize) -> bool {
    file % 2 == 1
}

/// A page that stays pinned while its thread does other things.
struct Kept<'a> {
    stamp: Stamp,
    guard: PageGuard<'a>,
    before: Vec<u8>,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert!(
                self.guard[..] == self.before[..],
                "{:?} has changed, though pinned",
                self.stamp
            );
        }
    }
}

/// One thread.
struct Worker<'a> {
    scene: &'a Scene<'a>,
    seed: Seed,
    buf: Vec<u8>,
    kept: Option<Kept<'a>>,
    counts: Counts,
}

impl<'a> Worker<'a> {
    fn new(scene: &'a Scene<'a>, seed: Seed) -> Self {
        Self { scene, seed, buf: vec![0; 2 * PAGE_BYTES], kept: None, counts: Counts::default() }
    }

    fn run(mut self, operations: u64) -> Counts {
        let scene = self.scene;
        let failed = FailedOnPanic(&scene.failed);
        for _ in 0..operations {
            if scene.failed.load(Ordering::Relaxed) {
                break;
            }
            let kind = any_kind(&mut self.seed);
            self.counts[kind as usize] += 1;
            match kind {
                Kind::ReadAt => self.read_at(),
                Kind::Page => self.page(),
                Kind::Peek => self.peek(),
                Kind::WriteAt => self.write_at(),
                Kind::PageMut => self.page_mut(false),
                Kind::Hold => self.page_mut(true),
                Kind::SetLen => self.set_len(),
                Kind::PunchHole => self.punch_hole(),
                Kind::SyncRange => {
                    let (first, pages) = any_run(&mut self.seed);
                    let start = first.page * PAGE_BYTES as u64;
                    let range = start..start + pages * PAGE_BYTES as u64;
                    scene.allowed(scene.files[first.file].sync_range(range));
                }
                Kind::SyncAll => {
                    let file = self.seed.below(FILES as u64) as usize;
                    scene.allowed(scene.files[file].sync_all());
                }
                Kind::Prefetch => {
                    let file = self.seed.below(FILES as u64) as usize;
                    let pages: Vec<_> =
                        (0..8).map(|_| PageNo(self.seed.below(PAGES + 1))).collect();
                    assert!(scene.files[file].prefetch(&pages) <= pages.len());
                }
                Kind::Resize => {
                    let frames = FRAMES / 2 + self.seed.below(FRAMES as u64 / 2 + 1) as usize;
                    scene.allowed(scene.cache.resize(frames * PAGE_BYTES));
                }
                Kind::PageAsync | Kind::ReadAtAsync | Kind::DroppedTask => {
                    unreachable!("their share is 0: those of tasks are in `tasks.rs`")
                }
            }
        }
        self.kept = None;
        drop(failed);
        self.counts
    }

    fn read_at(&mut self) {
        let (first, pages) = any_run(&mut self.seed);
        let scene = self.scene;
        let stamps = run(first, pages);
        let reads: Vec<_> = stamps.clone().map(|it| (it, scene.history(it).begin_read())).collect();
        let buf = &mut self.buf[..pages as usize * PAGE_BYTES];
        let read = scene.files[first.file].read_at(buf, first.page * PAGE_BYTES as u64);
        let Some(bytes) = scene.allowed(read) else {
            reads.into_iter().for_each(|(stamp, read)| scene.history(stamp).give_up(read));
            return;
        };
        assert!(bytes == buf.len() || may_be_cut(first.file), "{first:?}: {bytes} bytes");
        // What lies beyond the end is as zeros.
        buf[bytes..].fill(0);
        for ((stamp, read), bytes) in reads.into_iter().zip(buf.chunks(PAGE_BYTES)) {
            scene.judge(stamp, read, bytes);
        }
    }

    fn page(&mut self) {
        let stamp = any_page(&mut self.seed);
        let scene = self.scene;
        let read = scene.history(stamp).begin_read();
        let page = scene.files[stamp.file].page(PageNo(stamp.page));
        let Some(guard) = scene.allowed(page) else { return scene.history(stamp).give_up(read) };
        scene.judge(stamp, read, &guard);
        match self.seed.below(8) {
            0 => self.kept = Some(Kept { stamp, before: guard.to_vec(), guard }),
            1 => {
                let before = guard.to_vec();
                thread::yield_now();
                assert!(guard[..] == before[..], "{stamp:?} has changed, though pinned");
            }
            _ => {}
        }
    }

    fn peek(&mut self) {
        let stamp = any_page(&mut self.seed);
        let scene = self.scene;
        let file = &scene.files[stamp.file];
        let read = scene.history(stamp).begin_read();
        if self.seed.coin() {
            let buf = &mut self.buf[..PAGE_BYTES];
            let looked = file.peek(PageNo(stamp.page), |page| page.copy_to(0, buf));
            return match scene.allowed(looked) {
                Some(()) => scene.judge(stamp, read, buf),
                None => scene.history(stamp).give_up(read),
            };
        }
        let looked = file.peek(PageNo(stamp.page), |page| {
            let torn: Cell<Option<Torn>> = Cell::new(None);
            let load = |at| {
                page.get_u64(at).unwrap_or_else(|is_torn| {
                    torn.set(Some(is_torn));
                    0
                })
            };
            let sequence = stamp.sequence_if_whole(load, page.len());
            torn.into_inner().map_or(Ok(sequence), Err)
        });
        match scene.allowed(looked) {
            Some(Some(sequence)) => scene.judge_found(stamp, read, Found::Whole(sequence)),
            other => {
                assert!(other.is_none() || may_be_cut(stamp.file), "torn: {stamp:?}, by words");
                scene.history(stamp).give_up(read);
            }
        }
    }

    fn write_at(&mut self) {
        let (first, pages) = any_run(&mut self.seed);
        let scene = self.scene;
        let buf = &mut self.buf[..pages as usize * PAGE_BYTES];
        let begun: Vec<_> = run(first, pages)
            .map(|it| (it, scene.history(it).begin_write(Content::Stamped)))
            .collect();
        for (&(stamp, sequence), bytes) in begun.iter().zip(buf.chunks_mut(PAGE_BYTES)) {
            stamp.fill(sequence, bytes);
        }
        let written = scene.files[first.file].write_at(buf, first.page * PAGE_BYTES as u64);
        let written = scene.allowed(written).unwrap_or(0);
        assert!(written == buf.len() || scene.may_fail, "{first:?}: {written} bytes");
        for ((stamp, sequence), pages) in begun.into_iter().zip(1..) {
            let is_done = written >= pages * PAGE_BYTES;
            let outcome = if is_done { Outcome::Done } else { Outcome::Failed };
            scene.history(stamp).end_write(sequence, outcome);
        }
    }

    /// In two parts, with time between them: nobody may see one alone.
    fn page_mut(&mut self, is_held_back: bool) {
        let stamp = any_page(&mut self.seed);
        let scene = self.scene;
        let history = scene.history(stamp);
        let read = history.begin_read();
        let held = scene.files[stamp.file].page_mut(PageNo(stamp.page));
        let Some(mut held) = scene.allowed(held) else { return history.give_up(read) };
        scene.judge(stamp, read, &held);
        if is_held_back {
            let lsn = scene.held_until[stamp.file].fetch_add(1, Ordering::Relaxed) + 1;
            scene.allowed(held.hold_until(lsn));
        }
        let sequence = history.begin_write(Content::Stamped);
        let page = &mut self.buf[..PAGE_BYTES];
        stamp.fill(sequence, page);
        let (front, back) = page.split_at(self.seed.below(PAGE_BYTES as u64) as usize);
        held.write(front.len(), back);
        if self.seed.below(8) == 0 {
            thread::yield_now();
        }
        held.write(0, front);
        assert!(held[..] == page[..], "{stamp:?} is not what its only writer wrote");
        drop(held);
        history.end_write(sequence, Outcome::Done);
        if is_held_back && self.seed.coin() {
            scene.release(self.seed.below(FILES as u64) as usize);
        }
    }

    /// Zeros some pages of a file that may be cut; half of the time not the beginning of the first.
    fn punch_hole(&mut self) {
        let scene = self.scene;
        let file = self.seed.below(FILES as u64 / 2) as usize * 2 + 1;
        let first = Stamp { file, page: self.seed.below(PAGES) };
        let pages = (1 + self.seed.below(8)).min(PAGES - first.page);
        // One that fails between whole pages and the parts at its ends is there in part.
        let tail = if scene.may_fail { 0 } else { any_tail(&mut self.seed) };
        let begun: Vec<_> = run(first, pages)
            .map(|stamp| (stamp, scene.history(stamp).begin_write(zeros(stamp == first, tail))))
            .collect();
        let start = first.page * PAGE_BYTES as u64;
        let punched = scene.files[file].punch_hole(start + tail..start + pages * PAGE_BYTES as u64);
        let is_done = scene.allowed(punched).is_some();
        let outcome = if is_done { Outcome::Done } else { Outcome::Failed };
        for (stamp, sequence) in begun {
            scene.history(stamp).end_write(sequence, outcome);
        }
    }

    /// Cuts a file somewhere in its second half. Half of the time it is made as long as it was, by
    /// zeros; else the next writes do that.
    fn set_len(&mut self) {
        let scene = self.scene;
        let file = self.seed.below(FILES as u64 / 2) as usize * 2 + 1;
        let first = Stamp { file, page: PAGES / 2 + self.seed.below(PAGES / 2) };
        let tail = any_tail(&mut self.seed);
        let begun: Vec<_> = run(first, PAGES - first.page)
            .map(|stamp| (stamp, scene.history(stamp).begin_write(zeros(stamp == first, tail))))
            .collect();
        let cut = scene.files[file].set_len(first.page * PAGE_BYTES as u64 + tail);
        let is_done = scene.allowed(cut).is_some();
        let outcome = if is_done { Outcome::Done } else { Outcome::Failed };
        for (stamp, sequence) in begun {
            scene.history(stamp).end_write(sequence, outcome);
        }
        if self.seed.coin() {
            // No file is ever longer.
            scene.allowed(scene.files[file].set_len(PAGES * PAGE_BYTES as u64));
        }
    }
}

/// How many bytes of a page stay that is cut.
fn any_tail(seed: &mut Seed) -> u64 {
    let header = Stamp::HEADER_BYTES as u64;
    if seed.coin() { header + seed.below(PAGE_BYTES as u64 - header) } else { 0 }
}

/// What a page holds that is to be zeros, but of the first the beginning.
fn zeros(is_first: bool, tail: u64) -> Content {
    if is_first && tail > 0 { Content::Cut(tail as usize) } else { Content::Zeros }
}

/// Mostly a hot page, and of these one above all; now and then any.
fn any_page(seed: &mut Seed) -> Stamp {
    let file = seed.below(FILES as u64) as usize;
    match seed.below(16) {
        0 => Stamp { file: 0, page: 0 },
        1..14 => Stamp { file, page: seed.below(HOT_PAGES) },
        _ => Stamp { file, page: seed.below(PAGES) },
    }
}

/// One page, now and then two: the first, and how many.
fn any_run(seed: &mut Seed) -> (Stamp, u64) {
    let first = any_page(seed);
    let pages = if seed.below(8) == 0 { 2 } else { 1 };
    (first, pages.min(PAGES - first.page))
}

/// This many pages, from the first on.
fn run(first: Stamp, pages: u64) -> impl Iterator<Item = Stamp> + Clone {
    (first.page..first.page + pages).map(move |page| Stamp { page, ..first })
}

struct FailedOnPanic<'a>(&'a AtomicBool);

impl Drop for FailedOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn path(file: usize) -> PathBuf {
    PathBuf::from(format!("{file}"))
}

fn device_with_files(seed: &mut Seed, faults: FaultPlan) -> Arc<SimDevice> {
    let device = sim(seed.next_u64(), FaultPlan::default());
    for file in 0..FILES {
        let mut bytes = vec![0; PAGES as usize * PAGE_BYTES];
        for (bytes, page) in bytes.chunks_mut(PAGE_BYTES).zip(0..) {
            Stamp { file, page }.fill(1, bytes);
        }
        device.put(path(file), &bytes);
    }
    device.set_faults(faults);
    device
}

/// One cache, one device; gives what was done, and what the cache counted.
fn epoch(mut seed: Seed, io: Io, faults: FaultPlan, operations: u64) -> (Counts, Stats) {
    let _turn = turn();
    let may_fail = faults.read != Failure::default();
    let device = device_with_files(&mut seed, faults);
    // What wakes now and then could hide that nobody else does.
    let dirty_expire = if seed.coin() { Duration::from_millis(20) } else { Duration::MAX };
    let cache = small(FRAMES, PAGE_BYTES)
        .device(device.clone())
        .io(io)
        .frame_wait(Duration::from_secs(60))
        .dirty_expire(dirty_expire)
        .flush_behind(16 * PAGE_BYTES as u64)
        .build()
        .unwrap();
    let files: Vec<File> =
        (0..FILES).map(|file| cache.open(path(file), writable()).unwrap()).collect();
    let scene = Scene::new(&cache, &files, io, may_fail);
    let mut counts = Counts::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (scene, seed) = (&scene, seed.fork());
                let operations = operations / THREADS;
                scope.spawn(move || match number {
                    0..TASK_THREADS => TaskWorker::new(scene, seed).run(operations),
                    _ => Worker::new(scene, seed).run(operations),
                })
            })
            .collect();
        for thread in threads {
            let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            counts.iter_mut().zip(done).for_each(|(sum, n)| *sum += n);
        }
    });
    device.set_faults(FaultPlan::default());
    judge_device(&scene, &device);
    let stats = cache.stats();
    (counts, stats)
}

/// Now that the device fails no more, it has everything after a sync.
fn judge_device(scene: &Scene<'_>, device: &SimDevice) {
    for (number, file) in scene.files.iter().enumerate() {
        scene.release(number);
        // The first may report what went wrong before.
        scene.allowed(file.sync_all());
        scene.allowed(file.sync_all());
        let mut bytes = device.bytes(path(number)).unwrap();
        assert_eq!(bytes.len() as u64, file.len());
        bytes.resize(PAGES as usize * PAGE_BYTES, 0);
        for (bytes, page) in bytes.chunks(PAGE_BYTES).zip(0..) {
            let stamp = Stamp { file: number, page };
            scene.judge(stamp, scene.history(stamp).begin_read(), bytes);
        }
    }
}

const IN_VAIN: &str = "such looks in vain";

/// What the cache must have done for a run to be worth anything.
fn done_by(stats: Stats) -> [(&'static str, u64); 8] {
    [
        ("hits", stats.hits),
        ("misses", stats.misses),
        ("misses deduplicated", stats.deduplicated_misses),
        ("looks without a pin", stats.peeks + stats.copies_out),
        (IN_VAIN, stats.peek_retries),
        ("evictions", stats.evictions),
        ("pages written back", stats.write_backs),
        ("copies on write", stats.copies),
    ]
}

/// Runs epochs until `operations` are done, and tells what was done. The seed of an epoch is that
/// of the run and the epoch's number, so that a run can begin with any epoch of another.
fn soak(name: &str, origin: u64, operations: u64, faults: fn(&mut Seed) -> FaultPlan) {
    let origin = Seed::of_test(origin).origin();
    // Past the harness, which keeps what an aborted test says.
    let say = |text: String| drop(writeln!(std::io::stderr(), "{name}: {text}"));
    let began = Timestamp::now();
    let mut counts = Counts::default();
    let mut done_by_cache = done_by(Stats::default());
    let epochs = operations.div_ceil(EPOCH).max(BOTH.len() as u64);
    for number in 0..epochs {
        let mut seed = Seed::new(origin.wrapping_add(number));
        let io = BOTH[seed.origin() as usize % BOTH.len()];
        say(format!("epoch {} of {epochs}, {io:?}, UNHERD_SEED={seed}", number + 1));
        let faults = faults(&mut seed);
        let (done, stats) = epoch(seed, io, faults, operations / epochs);
        counts.iter_mut().zip(done).for_each(|(sum, n)| *sum += n);
        done_by_cache.iter_mut().zip(done_by(stats)).for_each(|((_, sum), (_, n))| *sum += n);
    }
    let elapsed_s = Timestamp::now().since(began).as_secs_f64();
    say(format!("{} operations in {elapsed_s:.1} s", counts.iter().sum::<u64>()));
    for ((kind, _), n) in KINDS.iter().zip(counts) {
        say(format!("{n:>12} {kind:?}, {:.0} per s", n as f64 / elapsed_s));
        assert!(n > 0, "no {kind:?}: the run shows nothing");
    }
    for (what, n) in done_by_cache {
        say(format!("{n:>12} {what}"));
        // A look in vain needs luck, and the others nothing.
        assert!(n > 0 || what == IN_VAIN, "no {what}: the run shows nothing");
    }
}

/// Transfers are late, and overtake each other.
fn late(seed: &mut Seed) -> FaultPlan {
    FaultPlan { held_reaps_max: seed.below(3) as u32, reorder: true, ..FaultPlan::default() }
}

/// They fail as well, or move less than they should; so do flushes.
fn failing(seed: &mut Seed) -> FaultPlan {
    FaultPlan {
        read: Failure::per_mille(20),
        write: Failure::per_mille(50),
        sync: Failure::per_mille(100),
        short_per_mille: 100,
        ..late(seed)
    }
}

/// What `UNHERD_SOAK_OPERATIONS` says, or `operations`.
fn told_or(operations: u64) -> u64 {
    let told = std::env::var("UNHERD_SOAK_OPERATIONS").ok();
    told.map_or(operations, |text| text.parse().expect("UNHERD_SOAK_OPERATIONS is a number"))
}

#[test]
fn no_byte_is_torn() {
    soak("soak", 1, SHORT, late);
}

#[test]
fn no_byte_is_torn_where_transfers_fail() {
    soak("soak, failing", 2, SHORT, failing);
}

#[test]
#[ignore = "long: minutes"]
fn no_byte_is_torn_for_long() {
    soak("soak", 3, told_or(LONG), late);
}

#[test]
#[ignore = "long: minutes"]
fn no_byte_is_torn_for_long_where_transfers_fail() {
    soak("soak, failing", 4, told_or(LONG / 10), failing);
}
