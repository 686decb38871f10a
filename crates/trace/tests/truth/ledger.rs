//! A ledger as programs with our library keep it, with numbers that are known.

use serde_json::{Value, json};
use unherd_sys::ledger_layout::{
    FIELDS, GATE_BYTES, GATE_FIELDS, GATES, MAGIC, NAME_BYTES, REASONS, ROOT_GATES, ROW_BYTES,
    ROW_WAITING, SLAB_NEXT, SLOTS, put_up_signpost,
};
use unherd_sys::{HugePages, Map, Timestamp};

#[repr(C)]
struct Root {
    magic: [u8; 16],
    head: u64,
    orphans: u64,
    names: [[u8; NAME_BYTES]; REASONS],
    pad: [u8; ROOT_GATES - 32 - NAME_BYTES * REASONS],
    gates: [[u64; GATE_BYTES / 8]; GATES],
}

/// Memory for ever, of which only the pages with these numbers are ever written.
#[expect(unsafe_code, reason = "a map is reached by raw pointers")]
fn slab(numbers: &[(usize, u64)]) -> u64 {
    let map = Map::new(SLAB_NEXT + 64, HugePages::AsConfigured).expect("there is memory");
    for (at, number) in numbers {
        let place = map.start().as_ptr().wrapping_add(*at).cast::<u64>();
        // SAFETY: inside of the map, aligned, and nobody else's.
        unsafe { place.write(*number) };
    }
    let start = map.start().addr().get();
    std::mem::forget(map);
    start as u64
}

fn row(reason: usize, slot: usize, field: &str) -> usize {
    let field = FIELDS.iter().position(|known| *known == field).expect("a field's name");
    (reason * SLOTS + slot) * ROW_BYTES + 8 * field
}

/// As many slabs, in which every slot has `waits` waits for the second reason. As many threads as
/// `waiters` wait at the one gate: number 4711 since 5 ms before that last had progress, each of
/// the next since 1 us later, from the last slab of the list on. Then exits at once, or, if
/// `lingers`, waits for its standard input to end.
pub(crate) fn keep(slabs: usize, waits: usize, waiters: usize, lingers: bool) -> Value {
    let counted: Vec<_> = (0..SLOTS).map(|slot| (row(1, slot, "waits"), waits as u64)).collect();
    let progress_ns = Timestamp::now().as_ns();
    let since_ns = progress_ns - 5_000_000;
    let waiting = |waiter: usize| {
        let at = row(1, waiter % SLOTS, FIELDS[0]) + ROW_WAITING;
        let (since_ns, thread) = (since_ns + 1000 * waiter as u64, 4711 + waiter as u64);
        [(at, since_ns), (at + 8, 1 << 32 | thread)]
    };
    let mut head = 0;
    for first in (0..slabs).map(|slab| slab * SLOTS) {
        let waiting = (first..waiters.min(first + SLOTS)).flat_map(waiting).collect();
        head = slab(&[counted.clone(), waiting, vec![(SLAB_NEXT, head)]].concat());
    }
    let orphans = slab(&[(row(0, 0, "locks_contended"), 3)]);
    let mut names = [[0; NAME_BYTES]; REASONS];
    names[1][..9].copy_from_slice(b"page-read");
    let mut gates = [[0; GATE_FIELDS.len()]; GATES];
    gates[0] = [2, since_ns, progress_ns, 0, waiters as u64, 0, 0, 9];
    let pad = [0; ROOT_GATES - 32 - NAME_BYTES * REASONS];
    let root = Box::leak(Box::new(Root { magic: MAGIC, head, orphans, names, pad, gates }));
    put_up_signpost(root).expect("a memory file can be made");
    if lingers {
        println!("{}", json!({ "progress_ns": progress_ns }));
        let _end = std::io::stdin().read_line(&mut String::new());
    }
    json!({ "waits": slabs * SLOTS * waits, "locks_contended": 3, "progress_ns": progress_ns })
}
