//! The index against a map.

use proptest::prelude::*;
use std::cell::Cell;

use super::*;

const FRAMES: u32 = 40;
/// Of frames that another page has, or none.
const NO_PAGE: PageKey = PageKey { file: FileId(u32::MAX), page: PageNo(0) };

#[derive(Debug, Clone)]
enum Op {
    Announce(PageKey),
    Frame(PageKey),
    Remove(PageKey),
    /// Out, and in again in another frame, under one hold of the lock.
    Again(PageKey),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || {
        (0..2_u32, 0..40_u64)
            .prop_map(|(file, page)| PageKey { file: FileId(file), page: PageNo(page) })
    };
    let op = prop_oneof![
        1 => key().prop_map(Op::Announce),
        4 => key().prop_map(Op::Frame),
        3 => key().prop_map(Op::Remove),
        1 => key().prop_map(Op::Again),
    ];
    prop::collection::vec(op, 1..200)
}

/// An index, what should be in it, and the keys of the frames.
struct Scene {
    index: Index,
    model: HashMap<PageKey, Entry>,
    keys: Vec<Cell<PageKey>>,
    free: Vec<FrameId>,
}

impl Scene {
    fn new(shards: usize, slots: usize) -> Self {
        Self {
            index: Index::with_shards(shards, slots).unwrap(),
            model: HashMap::new(),
            keys: (0..FRAMES).map(|_| Cell::new(NO_PAGE)).collect(),
            free: (0..FRAMES).map(FrameId).collect(),
        }
    }

    fn run(&mut self, op: &Op) {
        let (Op::Announce(key) | Op::Frame(key) | Op::Remove(key) | Op::Again(key)) = *op;
        let keys = &self.keys;
        let mut shard = self.index.lock(key, |frame| keys[frame.index()].get());
        assert_eq!(shard.get(), self.model.get(&key).copied());
        // A frame whose page was dropped may be another's before its entry is taken out.
        let old = shard.frame();
        match op {
            Op::Announce(_) if shard.get().is_none() => {
                let FillReservation { generation, .. } = shard.announce();
                self.model.insert(key, Entry::Announced(generation));
            }
            Op::Announce(_) => return,
            Op::Frame(_) | Op::Again(_) => {
                let Some(frame) = self.free.pop() else { return };
                keys[frame.index()].set(key);
                old.inspect(|old| keys[old.index()].set(NO_PAGE));
                if matches!(op, Op::Again(_)) {
                    shard.remove();
                }
                shard.set_frame(frame);
                self.model.insert(key, Entry::Frame(frame));
            }
            Op::Remove(_) => {
                old.inspect(|old| keys[old.index()].set(NO_PAGE));
                shard.remove();
                self.model.remove(&key);
            }
        }
        self.free.extend(old);
        assert_eq!(shard.get(), self.model.get(&key).copied());
    }

    fn check(&self) {
        let key_of = |frame: FrameId| self.keys[frame.index()].get();
        for file in [FileId(0), FileId(1)] {
            // Looks up a few, and through all.
            for wanted in [7..9, 7..u64::MAX] {
                let mut pages = self.index.pages_in(file, wanted.clone(), key_of);
                pages.sort();
                let is_wanted = |key: &&PageKey| key.file == file && wanted.contains(&key.page.0);
                let mut expected: Vec<_> =
                    self.model.keys().filter(is_wanted).map(|key| key.page).collect();
                expected.sort();
                assert_eq!(pages, expected);
            }
        }
        for (&key, &entry) in &self.model {
            let shard = self.index.lock(key, key_of);
            assert_eq!(shard.get(), Some(entry));
            match shard.at {
                At::Slot(_, frame) => assert_eq!(self.index.lookup(key), Some(frame)),
                // The tags of these pages differ, so that nothing else is found either.
                At::Nowhere(_) | At::Rest(..) => assert_eq!(self.index.lookup(key), None),
            }
        }
    }
}

fn cases() -> ProptestConfig {
    let told = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if told { default } else { ProptestConfig { cases: 64, ..default } }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn it_is_a_map(ops in ops()) {
        // Room for all; two shards; pages that find no room in the segment.
        for (shards, slots) in [(1, 128), (2, 64), (1, 16)] {
            let mut scene = Scene::new(shards, slots);
            for op in &ops {
                scene.run(op);
            }
            scene.check();
        }
    }
}

/// Each pattern of pages is found in few looks: files of one page, of a few and of many that were
/// opened one after the other, one file from its beginning, and every 16th, 64th and 4096th page of
/// one.
#[test]
fn pages_spread_over_slots_and_shards() {
    for pages in [1, 4, 16, 256] {
        spread(|number| (number / pages, number % pages));
    }
    for stride in [1, 16, 64, 4096] {
        spread(|number| (7, number * stride));
    }
}

fn spread(page_of: impl Fn(u32) -> (u32, u32)) {
    let frames = 16 * PAGES_PER_SHARD;
    let index = Index::new(frames).unwrap();
    assert_eq!((index.shards.len(), index.segment.slots()), (16, 2 * PAGES_PER_SHARD));
    let mut keys = HashMap::new();
    for number in 0..frames as u32 {
        let (file, page) = page_of(number);
        let key = PageKey { file: FileId(file), page: PageNo(u64::from(page)) };
        keys.insert(FrameId(number), key);
        index.lock(key, |frame| keys[&frame]).set_frame(FrameId(number));
    }
    let found = keys.iter().filter(|(frame, key)| index.lookup(**key) == Some(**frame)).count();
    // Pages of one tag hide each other from one who does not hold the lock: one in a million.
    assert!(frames - found < 8, "{found} of {frames} pages are found without the lock");
    let steps: usize = keys
        .iter()
        .map(|(_, &key)| {
            let Place { begin, tag } = index.place(key);
            let At::Slot(at, _) = index.lock(key, |frame| keys[&frame]).at else { return 0 };
            index.segment(begin).steps_from_home(tag, at) + 1
        })
        .sum();
    // Half full, linear probing takes 1.5 looks on average.
    assert!(steps < 2 * frames, "{steps} looks for {frames} pages");
}
