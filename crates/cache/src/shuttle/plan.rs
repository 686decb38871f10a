//! What one seed has drawn: the cache, the device, and who uses them.

use std::time::Duration;

use unherd_sys::primitives::Arc;
use unherd_testkit::{Failure, FaultPlan, Seed, SimDevice};

use super::world::{FILES, PAGE_BYTES};
use crate::{Cache, Io};

/// Longer than any run takes: where a wait with a deadline ends, the model of the futex ends it.
const AN_HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) io: Io,
    pub(super) frames: usize,
    /// Pages of each file.
    pub(super) pages: u64,
    /// Of these, from the first on, this many are wanted more than the others.
    pub(super) hot_pages: u64,
    /// The cache is full at the beginning.
    pub(super) is_warm: bool,
    pub(super) actors: usize,
    /// This many of the actors are tasks; the others are threads.
    pub(super) task_actors: usize,
    pub(super) operations: u64,
    pub(super) is_filtered: bool,
    /// Whether a thread's wait for a frame may end without one.
    pub(super) waits_for_frames_end: bool,
    pub(super) faults: FaultPlan,
    /// A file for which there is no space until the end.
    pub(super) full_file: Option<usize>,
    /// The power fails at the end, if it has not before.
    pub(super) crashes: bool,
    /// The files are said to be read once.
    pub(super) reads_once: bool,
}

impl Plan {
    pub(super) fn draw(seed: &mut Seed) -> Self {
        let (frames, pages, hot_pages) = match seed.below(4) {
            // So few that there are never enough, with a buffer for one write-back.
            0..2 => (6 + seed.below(8) as usize, 8, 8),
            // Buffers for several write-backs, and too few frames all the same.
            2 => (16 + seed.below(9) as usize, 16, 16),
            // Enough for write-backs of neighbours in one transfer.
            _ => (128, 80, 6),
        };
        let actors = 2 + seed.below(3) as usize;
        let plan = Self {
            io: if seed.below(3) == 0 { Io::Blocking } else { Io::Queued },
            frames,
            pages,
            hot_pages,
            is_warm: frames >= 16,
            actors,
            task_actors: if seed.coin() { 0 } else { seed.below(actors as u64) as usize },
            operations: 6 + seed.below(14),
            is_filtered: seed.below(4) > 0,
            waits_for_frames_end: seed.coin(),
            faults: faults(seed),
            full_file: (seed.below(6) == 0).then(|| seed.below(FILES as u64) as usize),
            crashes: seed.coin(),
            reads_once: seed.below(3) == 0,
        };
        // Pages that cannot be written keep their frames, and nothing but a deadline ends that.
        Self { waits_for_frames_end: plan.waits_for_frames_end || plan.device_fails(), ..plan }
    }

    /// Whether a call may fail because the device does.
    pub(super) fn device_fails(&self) -> bool {
        let FaultPlan { read, write, sync, power_fails_after_syncs, .. } = self.faults;
        [read, write, sync] != [Failure::default(); 3]
            || power_fails_after_syncs.is_some()
            || self.full_file.is_some()
    }

    /// Whether enough frames are left beside those of held pages.
    pub(super) fn holds_pages(&self) -> bool {
        self.frames >= 16
    }

    pub(super) fn cache(&self, device: Arc<SimDevice>) -> Cache {
        let frame_wait = if self.waits_for_frames_end { AN_HOUR } else { Duration::MAX };
        Cache::builder()
            .device(device)
            .io(self.io)
            .page_size(PAGE_BYTES)
            .capacity(self.frames * PAGE_BYTES)
            .filtered(self.is_filtered)
            .frame_wait(frame_wait)
            .flush_behind(4 * PAGE_BYTES as u64)
            .build()
            .expect("a small cache")
    }
}

fn faults(seed: &mut Seed) -> FaultPlan {
    let mut faults = FaultPlan {
        held_reaps_max: seed.below(4) as u32,
        // An operation takes about a hundred steps. So others have the time to change a page which
        // is in write-back.
        yields_max: if seed.coin() { 0 } else { 300 },
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
    faults
}
