//! Nothing stays in the kernel.

use std::collections::BTreeSet;

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
use unherd_trace::{Follow, KernelObjects, TraceOptions, Tracer};

use crate::session::{root, settle};

/// What there is of all tracers, ours and others'.
fn loaded() -> KernelObjects {
    KernelObjects {
        programs: ProgInfoIter::default().map(|program| u64::from(program.id)).collect(),
        maps: MapInfoIter::default().map(|map| u64::from(map.id)).collect(),
        links: LinkInfoIter::default().map(|link| u64::from(link.id)).collect(),
    }
}

#[test]
fn root_hundred_tracers_leave_kernel_clean() {
    let Some(_machine) = root("leaks") else { return };
    let mut ours = KernelObjects::default();
    // The smallest maps: it is about what is left, not about what is seen.
    let mut options = TraceOptions::default();
    (options.waits, options.wakes, options.futexes, options.stacks) = (64, 64, 64, 64);
    (options.locks, options.processes, options.stack_pairs) = (64, 64, 64);
    for round in 0..100 {
        let tracer = Tracer::start(Follow::NextChild, &options).expect("root may trace");
        let objects = tracer.kernel_objects();
        assert!(objects.programs.len() > 20 && objects.maps.len() > 10, "{objects:?}");
        assert!(objects.links.len() > 18, "{objects:?}");
        ours.programs.extend(objects.programs);
        ours.maps.extend(objects.maps);
        ours.links.extend(objects.links);
        if round % 2 == 0 {
            tracer.finish().expect("the maps can be read");
        }
    }
    // The kernel frees them after a grace period.
    let left = |now: &BTreeSet<u64>, ours: &BTreeSet<u64>| now.intersection(ours).count();
    let mut counts = [usize::MAX; 3];
    for _ in 0..100 {
        let now = loaded();
        counts = [
            left(&now.programs, &ours.programs),
            left(&now.maps, &ours.maps),
            left(&now.links, &ours.links),
        ];
        if counts == [0; 3] {
            return;
        }
        settle();
    }
    panic!("left in the kernel: {counts:?} programs, maps, links");
}
