//! The power fails: what was synced is there.

use std::path::Path;

use proptest::prelude::*;
use unherd_cache::Io;
use unherd_sys::primitives::Arc;
use unherd_testkit::{FaultPlan, FileModel};

use crate::model::{Op, Scene, open_all, ops};
use crate::page_hook::Cipher;
use crate::scene::{BOTH, cases, sim, small, turn, writable};

/// Runs `ops`, lets the power fail after `crash_at` of them, and checks what is left.
fn crash_after(io: Io, seed: u64, ops: &[Op], crash_at: usize, is_hooked: bool) {
    let device = sim(seed, FaultPlan { held_reaps_max: 2, reorder: true, ..FaultPlan::default() });
    let cache = small(6, 1024).device(device.clone()).io(io).flush_behind(2048).build().unwrap();
    let options = writable();
    let options = if is_hooked { options.page_hook(Arc::new(Cipher)) } else { options };
    let files = open_all(&cache, Path::new("f"), &options);
    let mut scene = Scene::new(&files, 1024, false);
    if is_hooked {
        scene = scene.of_whole_pages();
    }
    // Every state that the file has had since the last sync.
    let mut states = vec![FileModel::default()];
    for op in &ops[..crash_at] {
        scene.run(op);
        if matches!(op, Op::Sync { .. }) {
            states.clear();
        }
        states.push(scene.model.clone());
    }
    device.crash();
    let mut left = device.bytes("f").unwrap();
    if is_hooked {
        Cipher::apply_all(&mut left, 1024);
    }
    // Each byte is that of one of these states; beyond their ends, up to a whole page, it is zero.
    let is_known = |at: usize, byte: u8| {
        states.iter().any(|state| state.bytes().get(at).map_or(byte == 0, |&b| b == byte))
    };
    for (at, &byte) in left.iter().enumerate() {
        assert!(is_known(at, byte), "byte {at} is {byte}");
    }
    let least = states.iter().map(FileModel::len).min().unwrap();
    assert!(left.len() as u64 >= least, "{} bytes are left of at least {least}", left.len());
}

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn what_was_synced_survives_a_crash_at_any_point(seed: u64, ops in ops(1024, 40)) {
        let _turn = turn();
        for io in BOTH {
            for crash_at in 0..=ops.len() {
                crash_after(io, seed, &ops, crash_at, false);
                if crash_at % 3 == 0 {
                    crash_after(io, seed, &ops, crash_at, true);
                }
            }
        }
    }
}
