//! One simulated world: the device, the files, what is expected of them, and the end of it all.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use unherd_sys::primitives::{Arc, Mutex, thread};
use unherd_testkit::{Content, Failure, FaultPlan, PageHistory, PageRead, Seed, SimDevice, Stamp};

use super::actor::Actor;
use crate::{Cache, Error, File, Io, OpenOptions};

pub(super) const PAGE_BYTES: usize = 512;
pub(super) const FILES: usize = 2;
pub(super) const PAGES: u64 = 8;

/// What one seed has drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    io: Io,
    frames: usize,
    threads: usize,
    pub(super) operations: u64,
    is_filtered: bool,
    /// Whether a wait for a frame may end without one.
    pub(super) waits_for_frames_end: bool,
    pub(super) faults: FaultPlan,
    /// The power fails at the end, if it has not before.
    crashes: bool,
}

impl Plan {
    fn draw(seed: &mut Seed) -> Self {
        let mut faults = FaultPlan {
            held_reaps_max: seed.below(4) as u32,
            reorder: seed.coin(),
            ..FaultPlan::default()
        };
        if seed.below(3) == 0 {
            faults.read = Failure::per_mille(100);
            faults.write = Failure::per_mille(150);
            faults.short_per_mille = 200;
        }
        if seed.below(4) == 0 {
            faults.sync = Failure::per_mille(300);
        }
        if seed.below(4) == 0 {
            faults.power_fails_after_syncs = Some(seed.below(4));
        }
        Self {
            io: if seed.coin() { Io::Own } else { Io::Ring },
            // Few, of which there are never enough; or so many that several write-backs go on.
            frames: if seed.below(3) > 0 { 6 + seed.below(8) as usize } else { 32 },
            threads: 2 + seed.below(3) as usize,
            operations: 6 + seed.below(14),
            is_filtered: seed.below(4) > 0,
            waits_for_frames_end: seed.coin(),
            faults,
            crashes: seed.coin(),
        }
    }

    /// Whether a call may fail because the device does.
    pub(super) fn device_fails(&self) -> bool {
        let FaultPlan { read, write, sync, power_fails_after_syncs, .. } = self.faults;
        [read, write, sync] != [Failure::default(); 3] || power_fails_after_syncs.is_some()
    }

    fn cache(&self, device: Arc<SimDevice>) -> Cache {
        let frame_wait =
            if self.waits_for_frames_end { Duration::from_secs(1) } else { Duration::MAX };
        Cache::builder()
            .device(device)
            .io(self.io)
            .page_size(PAGE_BYTES)
            .capacity(self.frames * PAGE_BYTES)
            .filtered(self.is_filtered)
            .frame_wait(frame_wait)
            .build()
            .expect("a small cache")
    }
}

/// What was read of each page of a file, had it been read when a sync began.
type Durable = Vec<PageRead>;

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) cache: Cache,
    device: Arc<SimDevice>,
    pub(super) histories: Vec<Vec<PageHistory>>,
    /// By file: what a crash must leave at least. A sync that began later is later in line.
    durable: Vec<Mutex<(u64, Durable)>>,
    syncs: Mutex<u64>,
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
            // So many write-backs failed.
            Err(Error::NoFrames { .. }) if self.plan.device_fails() => None,
            Err(
                Error::Io { .. }
                | Error::ShortTransfer { .. }
                | Error::LostDurability { .. }
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

    /// Syncs, and remembers what is durable then.
    pub(super) fn sync(&self, number: usize, file: &File) -> bool {
        let began = {
            let mut syncs = self.syncs.lock();
            *syncs += 1;
            *syncs
        };
        let reads = self.begin_reads(number);
        if self.allowed(file.sync_all()).is_none() {
            self.give_up(number, reads);
            return false;
        }
        let mut durable = self.durable[number].lock();
        let earlier = if durable.0 < began {
            std::mem::replace(&mut *durable, (began, reads)).1
        } else {
            reads
        };
        drop(durable);
        self.give_up(number, earlier);
        true
    }

    /// Judges the pages of a file, each by a read.
    fn judge(&self, number: usize, bytes: &[u8], reads: Durable) {
        let mut bytes = bytes.to_vec();
        bytes.resize(PAGES as usize * PAGE_BYTES, 0);
        for ((bytes, read), page) in bytes.chunks(PAGE_BYTES).zip(reads).zip(0..) {
            let stamp = Stamp { file: number, page };
            let found = stamp.examine(bytes).unwrap_or_else(|torn| panic!("{torn}"));
            self.note(usize::MAX, &(stamp, found));
            let judged = self.history(stamp).end_read(read, found);
            judged.unwrap_or_else(|wrong| panic!("at the end, {stamp:?}: {wrong}"));
        }
    }

    /// The device fails no more: after a sync it has everything, and so it has when all is closed.
    fn end(&self, files: Vec<File>) {
        let bytes = |number| self.device.bytes(path(number)).expect("it was opened");
        self.device.set_faults(FaultPlan::default());
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
    }

    /// The power fails. What it leaves is read by a new cache.
    fn crash(&mut self, files: Vec<File>) {
        self.device.crash();
        self.device.set_faults(FaultPlan::default());
        // What they try to write is refused: the device knows them no more.
        drop(files);
        // The queue of the device is still that of the cache before.
        let plan = Plan { io: Io::Own, ..self.plan };
        self.cache = plan.cache(self.device.clone());
        for number in 0..FILES {
            let file = self.open(number).expect("the device is well");
            let mut bytes = vec![0; PAGES as usize * PAGE_BYTES];
            file.read_at(&mut bytes, 0).expect("the device is well");
            let durable = std::mem::take(&mut self.durable[number].lock().1);
            self.judge(number, &bytes, durable);
        }
    }
}

/// A device with files whose first halves are stamped; so are the histories.
fn begin(seed: &mut Seed) -> (Arc<SimDevice>, Vec<Vec<PageHistory>>) {
    let device = Arc::new(SimDevice::new(seed.fork()));
    let histories = (0..FILES).map(|file| {
        let mut bytes = vec![0; PAGES as usize / 2 * PAGE_BYTES];
        for (bytes, page) in bytes.chunks_mut(PAGE_BYTES).zip(0..) {
            Stamp { file, page }.fill(1, bytes);
        }
        device.put(path(file), &bytes);
        let content = |page| if page < PAGES / 2 { Content::Stamped } else { Content::Zeros };
        (0..PAGES).map(|page| PageHistory::new(content(page))).collect()
    });
    let histories = histories.collect();
    (device, histories)
}

/// Runs one world; the hash of its history.
pub(super) fn run(seed: u64) -> u64 {
    let mut seed = Seed::new(seed);
    let plan = Plan::draw(&mut seed);
    let (device, histories) = begin(&mut seed);
    let mut world = World {
        plan,
        cache: plan.cache(device.clone()),
        device,
        histories,
        durable: Vec::new(),
        syncs: Mutex::new(0),
        events: Mutex::new(DefaultHasher::new()),
    };
    world.durable = (0..FILES).map(|file| Mutex::new((0, world.begin_reads(file)))).collect();
    // What closes a file while the device fails may lose it, so then these keep all files open.
    let kept_open = if plan.device_fails() { FILES } else { FILES / 2 };
    let files: Vec<File> =
        (0..kept_open).map(|number| world.open(number).expect("the device is well")).collect();
    world.device.set_faults(plan.faults);
    thread::scope(|scope| {
        for number in 0..plan.threads {
            let (world, files, seed) = (&world, &files, seed.fork());
            scope.spawn(move || Actor::new(world, files, number, seed).run());
        }
    });
    if plan.crashes || plan.faults.power_fails_after_syncs.is_some() {
        world.crash(files);
    } else {
        world.end(files);
    }
    world.events.lock().finish()
}
