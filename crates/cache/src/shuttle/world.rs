//! One simulated world: the device, the files, what is expected of them, and the end of it all.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::path::PathBuf;

use unherd_sys::Errno;
use unherd_sys::primitives::{Arc, AtomicU64, Mutex, Ordering, thread};
use unherd_testkit::{Content, FaultPlan, Found, PageHistory, PageRead, Seed, SimDevice, Stamp};

use super::actor::Actor;
use super::outsider::Shared;
use super::plan::Plan;
use super::task_actor::TaskActor;
use crate::{Advice, Cache, Error, File, Io, OpenOptions, PageNo};

pub(super) const PAGE_BYTES: usize = 512;
pub(super) const FILES: usize = 2;

/// What was read of each page of a file, had it been read when a sync began.
type Durable = Vec<PageRead>;

/// The number of the latest successful sync that covers a page, and the page as it was then.
type Synced = (u64, PageRead);

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) cache: Cache,
    pub(super) device: Arc<SimDevice>,
    pub(super) shared: Shared,
    pub(super) histories: Vec<Vec<PageHistory>>,
    /// By file and page: what a crash must leave at least.
    durable: Vec<Mutex<Vec<Synced>>>,
    syncs: Mutex<u64>,
    /// By file: how many changes of its length have begun, and how many have ended.
    pub(super) cuts: Vec<[AtomicU64; 2]>,
    /// By file: the last log sequence number under which a page was held back.
    pub(super) held_until: Vec<AtomicU64>,
    /// All that happened, in its order.
    events: Mutex<DefaultHasher>,
}

pub(super) fn path(file: usize) -> PathBuf {
    PathBuf::from(format!("{file}"))
}

impl World {
    pub(super) fn history(&self, stamp: Stamp) -> &PageHistory {
        &self.histories[stamp.file][stamp.page as usize]
    }

    pub(super) fn open(&self, file: usize) -> Result<File, Error> {
        self.cache.open(path(file), OpenOptions::new().write(true))
    }

    pub(super) fn note(&self, actor: usize, event: &dyn fmt::Debug) {
        let mut events = self.events.lock();
        actor.hash(&mut *events);
        events.write(format!("{event:?}").as_bytes());
    }

    /// The value, unless the call failed as the plan allows.
    pub(super) fn allowed<T>(&self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::NoFrames { .. }) if self.plan.waits_for_frames_end => None,
            Err(Error::Held { .. } | Error::TooManyHeld { .. }) if self.plan.holds_pages() => None,
            // This many write-backs failed.
            Err(Error::NoFrames { .. }) if self.plan.device_fails() => None,
            Err(
                Error::Io { .. }
                | Error::ShortTransfer { .. }
                | Error::LostDurability { .. }
                | Error::LostWrites { .. }
                | Error::Open { .. },
            ) if self.plan.device_fails() => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn begin_reads(&self, file: usize) -> Durable {
        self.histories[file].iter().map(PageHistory::begin_read).collect()
    }

    fn give_up(&self, file: usize, reads: Durable) {
        for (history, read) in self.histories[file].iter().zip(reads) {
            history.give_up(read);
        }
    }

    /// A page, mostly one of the few that all want.
    pub(super) fn any_page(&self, seed: &mut Seed, file: usize) -> Stamp {
        let pages = if seed.below(3) > 0 { self.plan.hot_pages } else { self.plan.pages };
        Stamp { file, page: seed.below(pages) }
    }

    /// What the bytes are.
    pub(super) fn examine(&self, actor: usize, stamp: Stamp, bytes: &[u8]) -> Found {
        let found = stamp.examine(bytes).unwrap_or_else(|torn| panic!("{torn}"));
        self.note(actor, &(stamp, found));
        found
    }

    /// Brings in as much as there is room for.
    fn read_all(&self, files: &[File]) {
        for file in files {
            let mut bytes = vec![0; self.plan.pages as usize * PAGE_BYTES];
            file.read_at(&mut bytes, 0).expect("the device is well");
        }
    }

    /// Syncs some pages, or all, and remembers what is durable then.
    pub(super) fn sync(&self, number: usize, file: &File, pages: Range<u64>) -> bool {
        let began = {
            let mut syncs = self.syncs.lock();
            *syncs += 1;
            *syncs
        };
        let mut reads = self.begin_reads(number);
        let synced = if pages == (0..self.plan.pages) {
            file.sync_all()
        } else {
            let page_bytes = PAGE_BYTES as u64;
            file.sync_range(pages.start * page_bytes..pages.end * page_bytes)
        };
        let is_synced = self.allowed(synced).is_some();
        if is_synced {
            let mut durable = self.durable[number].lock();
            for page in pages.start as usize..pages.end as usize {
                if durable[page].0 < began {
                    durable[page].0 = began;
                    std::mem::swap(&mut durable[page].1, &mut reads[page]);
                }
            }
        }
        self.give_up(number, reads);
        is_synced
    }

    /// Lets all pages be written that are held back now.
    pub(super) fn release(&self, number: usize, file: &File) {
        file.release_to(self.held_until[number].load(Ordering::Relaxed));
    }

    /// Judges the pages of a file, each by a read.
    fn judge(&self, number: usize, bytes: &[u8], reads: Durable) {
        let mut bytes = bytes.to_vec();
        bytes.resize(self.plan.pages as usize * PAGE_BYTES, 0);
        for ((bytes, read), page) in bytes.chunks(PAGE_BYTES).zip(reads).zip(0..) {
            let stamp = Stamp { file: number, page };
            let found = self.examine(usize::MAX, stamp, bytes);
            let judged = self.history(stamp).end_read(read, found);
            judged.unwrap_or_else(|wrong| panic!("at the end, {stamp:?}: {wrong}"));
        }
    }

    fn end_faults(&self) {
        self.device.set_faults(FaultPlan::default());
        (0..FILES).for_each(|file| self.device.refuse_writes(path(file), None));
    }

    /// The device fails no more: after a sync it has everything, and so it has when all is closed.
    fn end(&self, files: Vec<File>) {
        let bytes = |number| self.device.bytes(path(number)).expect("it was opened");
        self.end_faults();
        files.iter().zip(0..).for_each(|(file, number)| self.release(number, file));
        drop(files);
        for number in 0..FILES {
            let file = self.open(number).expect("the device is well");
            let synced = file.sync_all().or_else(|_| file.sync_all());
            match synced {
                Ok(()) => {}
                Err(Error::LostDurability { .. }) if self.plan.device_fails() => {}
                Err(error) => panic!("the faults have stopped, and yet: {error}"),
            }
            self.judge(number, &bytes(number), self.begin_reads(number));
            let _ = file.close();
            self.judge(number, &bytes(number), self.begin_reads(number));
        }
        self.pin_all();
        self.shared.end(&self.device);
    }

    /// All is at rest, so every frame can be had, all at a time: none was lost. Before a crash it
    /// is not, and to bring it there would leave the crash nothing to lose.
    fn pin_all(&self) {
        let files: Vec<File> =
            (0..FILES).map(|number| self.open(number).expect("the device is well")).collect();
        let pages = |file| (0..self.plan.pages).map(move |page| File::page(file, PageNo(page)));
        let pinned: Vec<_> = files.iter().flat_map(pages).take(self.plan.frames).collect();
        if let Some(Err(error)) = pinned.iter().find(|page| page.is_err()) {
            panic!("frames were lost: {error}");
        }
    }

    /// The power fails. What it leaves is read by a new cache.
    fn crash(&mut self, files: Vec<File>) {
        self.device.crash();
        self.end_faults();
        // What they try to write is refused: the device knows them no more.
        drop(files);
        // The queue of the device is still that of the cache before.
        let plan = Plan { io: Io::Blocking, ..self.plan };
        self.cache = plan.cache(self.device.clone());
        for number in 0..FILES {
            let file = self.open(number).expect("the device is well");
            let mut bytes = vec![0; self.plan.pages as usize * PAGE_BYTES];
            file.read_at(&mut bytes, 0).expect("the device is well");
            let durable = std::mem::take(&mut *self.durable[number].lock());
            self.judge(number, &bytes, durable.into_iter().map(|(_, read)| read).collect());
        }
    }
}

/// A device with files whose first halves are stamped; so are the histories.
fn begin(seed: &mut Seed, pages: u64) -> (Arc<SimDevice>, Vec<Vec<PageHistory>>) {
    let device = Arc::new(SimDevice::new(seed.fork()));
    let histories = (0..FILES).map(|file| {
        let mut bytes = vec![0; pages as usize / 2 * PAGE_BYTES];
        for (bytes, page) in bytes.chunks_mut(PAGE_BYTES).zip(0..) {
            Stamp { file, page }.fill(1, bytes);
        }
        device.put(path(file), &bytes);
        let content = |page| if page < pages / 2 { Content::Stamped } else { Content::Zeros };
        (0..pages).map(|page| PageHistory::new(content(page))).collect()
    });
    let histories = histories.collect();
    (device, histories)
}

/// Runs one world; the hash of its history.
pub(super) fn run(seed: u64) -> u64 {
    let mut seed = Seed::new(seed);
    let plan = Plan::draw(&mut seed);
    let (device, histories) = begin(&mut seed, plan.pages);
    let mut world = World {
        plan,
        cache: plan.cache(device.clone()),
        shared: Shared::begin(&device),
        device,
        histories,
        durable: Vec::new(),
        syncs: Mutex::new(0),
        cuts: (0..FILES).map(|_| Default::default()).collect(),
        held_until: (0..FILES).map(|_| AtomicU64::new(0)).collect(),
        events: Mutex::new(DefaultHasher::new()),
    };
    let not_synced = |read| (0, read);
    let durable = |file| world.begin_reads(file).into_iter().map(not_synced).collect();
    world.durable = (0..FILES).map(|file| Mutex::new(durable(file))).collect();
    // What closes a file while the device fails may lose it, so then these keep all files open.
    let kept_open = if plan.device_fails() { FILES } else { FILES / 2 };
    let files: Vec<File> =
        (0..kept_open).map(|number| world.open(number).expect("the device is well")).collect();
    if plan.reads_once {
        files.iter().for_each(|file| file.advise(Advice::NoReuse));
    }
    if plan.is_warm {
        world.read_all(&files);
    }
    world.device.set_faults(plan.faults);
    if let Some(full) = plan.full_file {
        world.device.refuse_writes(path(full), Some(Errno::NOSPC));
    }
    thread::scope(|scope| {
        let (shared, world, outsider) = (&world.shared, &world, seed.fork());
        scope.spawn(move || shared.run(world, outsider));
        for number in 0..plan.actors {
            let (files, seed) = (&files, seed.fork());
            if number < plan.task_actors {
                scope.spawn(move || TaskActor::new(world, files, number, seed).run());
            } else {
                scope.spawn(move || Actor::new(world, files, number, seed).run());
            }
        }
    });
    if plan.crashes || plan.faults.power_fails_after_syncs.is_some() {
        world.crash(files);
    } else {
        world.end(files);
    }
    world.events.lock().finish()
}
