use unherd_testkit::{Seed, SimDevice};

use super::*;
use crate::{Cache, Io, OpenOptions};

const PAGE: usize = 512;
const FRAMES: usize = 4096;

/// A cache that is full of clean pages.
fn full() -> Cache {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    device.put("f", &vec![1; FRAMES * PAGE]);
    let builder = Cache::builder().capacity(FRAMES * PAGE).page_size(PAGE).io(Io::Blocking);
    let cache = builder.device(device).build().unwrap();
    let file = cache.open("f", OpenOptions::new()).unwrap();
    let mut buf = vec![0; 64 * PAGE];
    for at in (0..FRAMES).step_by(64) {
        file.read_at(&mut buf, (at * PAGE) as u64).unwrap();
    }
    cache
}

#[test]
fn a_shrink_looks_at_all_frames_a_few_times_only() {
    for waits in [true, false] {
        let cache = full();
        let core = &cache.owner.core;
        // As a task that waits, and is not polled.
        let entered = waits.then(|| core.supply().waiters.events.enter());
        let before = core.supply().looks();
        cache.resize(FRAMES / 8 * PAGE).unwrap();
        let looks = core.supply().looks() - before;
        assert!(looks <= 2, "{looks} looks");
        drop(entered);
    }
}
