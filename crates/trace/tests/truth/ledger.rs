//! A ledger as programs with our library keep it, with numbers that are known.

use serde_json::{Value, json};
use unherd_sys::ledger_layout::{
    FIELDS, MAGIC, NAME_BYTES, REASONS, ROW_BYTES, SLAB_NEXT, SLOTS, put_up_signpost,
};
use unherd_sys::{HugePages, Map};

#[repr(C)]
struct Root {
    magic: [u8; 16],
    head: u64,
    orphans: u64,
    names: [[u8; NAME_BYTES]; REASONS],
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

/// As many slabs, in which every slot has `waits` waits for the second reason; then exits at once,
/// or, if `lingers`, waits for its standard input to end.
pub(crate) fn keep(slabs: usize, waits: usize, lingers: bool) -> Value {
    let counted: Vec<_> = (0..SLOTS).map(|slot| (row(1, slot, "waits"), waits as u64)).collect();
    let mut head = 0;
    for _ in 0..slabs {
        head = slab(&[counted.clone(), vec![(SLAB_NEXT, head)]].concat());
    }
    let orphans = slab(&[(row(0, 0, "locks_contended"), 3)]);
    let mut names = [[0; NAME_BYTES]; REASONS];
    names[1][..9].copy_from_slice(b"page-read");
    let root = Box::leak(Box::new(Root { magic: MAGIC, head, orphans, names }));
    put_up_signpost(root).expect("a memory file can be made");
    if lingers {
        println!("{}", json!({ "ready": true }));
        let _end = std::io::stdin().read_line(&mut String::new());
    }
    json!({ "waits": slabs * SLOTS * waits, "locks_contended": 3 })
}
