//! The example's key/value store, with the power cut at each operation of the device.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "../../examples/kv/store.rs"]
mod store;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;

use store::{Store, Value};
use unherd::{Cache, Io};
use unherd_testkit::{Failure, FaultPlan, Seed, SimDevice};

const PAGE: usize = 512;
const KEYS: u64 = 24;

type Content = BTreeMap<u64, Value>;

fn value(number: u64) -> Value {
    let mut value = Value::default();
    value.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    value
}

fn key(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number % KEYS + 1).unwrap()
}

/// What a store may hold: the states between its transactions, from the last that is known to be
/// durable on.
struct Expected {
    states: Vec<Content>,
    transactions: u64,
}

impl Expected {
    fn new() -> Self {
        Self { states: vec![Content::new()], transactions: 0 }
    }

    /// The store was opened: it holds one of the states, which is durable then.
    fn check(&mut self, store: &Store) {
        let get = |number| Some((number, store.get(NonZeroU64::new(number)?).unwrap()?));
        let found: Content = (1..=KEYS).filter_map(get).collect();
        let at = self.states.iter().position(|state| *state == found);
        let at = at.unwrap_or_else(|| panic!("{found:?} is none of {:?}", self.states));
        self.states = vec![self.states.swap_remove(at)];
    }

    /// A transaction on three pages or fewer.
    fn commit(&mut self, store: &Store) -> io::Result<()> {
        self.transactions += 1;
        let number = self.transactions;
        let keys = [number, number * 7 + 1, number * 11 + 5].map(key);
        let mut state = self.states.last().unwrap().clone();
        state.extend(keys.map(|key| (key.get(), value(number))));
        self.states.push(state);
        store.commit(&keys.map(|key| (key, value(number))))?;
        self.states.drain(..self.states.len() - 1);
        Ok(())
    }
}

/// Opens the store and commits, up to the first fault; then the power fails.
fn run(device: &Arc<SimDevice>, io: Io, plan: FaultPlan, expected: &mut Expected) {
    device.set_faults(plan);
    let cache = Cache::builder().capacity(12 * PAGE).page_size(PAGE);
    let cache = cache.device(device.clone()).io(io).build().unwrap();
    if let Ok(store) = Store::open(&cache, "kv", 9, 1200) {
        expected.check(&store);
        for _ in 0..40 {
            if expected.commit(&store).is_err() {
                break;
            }
        }
    }
    device.crash();
}

#[test]
fn committed_transactions_survive_a_cut_at_each_operation() {
    for io in [Io::Blocking, Io::Queued] {
        let device = Arc::new(SimDevice::new(Seed::new(1)));
        run(&device, io, FaultPlan::default(), &mut Expected::new());
        let counts = ["kv.data", "kv.log"].map(|name| device.counts(name));
        let writes = counts.iter().map(|counts| counts.writes).sum();
        let syncs = counts.iter().map(|counts| counts.syncs).sum();
        assert!(writes > 60 && syncs > 40, "{counts:?}");
        let sound = FaultPlan::default();
        let cut_writes = (1..=writes).map(|at| FaultPlan { write: Failure::from(at), ..sound });
        let cut_syncs = (1..=syncs).map(|at| FaultPlan { sync: Failure::from(at), ..sound });
        let cut_after =
            (1..=syncs).map(|syncs| FaultPlan { power_fails_after_syncs: Some(syncs), ..sound });
        for (seed, plan) in (0..).zip(cut_writes.chain(cut_syncs).chain(cut_after)) {
            let device = Arc::new(SimDevice::new(Seed::new(seed)));
            let mut expected = Expected::new();
            run(&device, io, plan, &mut expected);
            // Cut again while it recovers, or soon after, which leaves two torn logs.
            let again = Failure::from(1 + Seed::new(seed).below(20));
            run(&device, io, FaultPlan { write: again, ..sound }, &mut expected);
            run(&device, io, sound, &mut expected);
            assert_eq!(expected.states.len(), 1, "{io:?} {seed}: the last run had no fault");
        }
    }
}

#[test]
fn a_store_that_failed_is_opened_again_in_its_cache() {
    let device = Arc::new(SimDevice::new(Seed::new(2)));
    let cache = Cache::builder().capacity(12 * PAGE).page_size(PAGE);
    let cache = cache.device(device.clone()).build().unwrap();
    let mut expected = Expected::new();
    let store = Store::open(&cache, "kv", 9, 1200).unwrap();
    (0..5).for_each(|_| expected.commit(&store).unwrap());
    device.set_faults(FaultPlan { write: Failure::from(1), ..FaultPlan::default() });
    expected.commit(&store).unwrap_err();
    assert!(store.commit(&[]).unwrap_err().to_string().contains("open the store again"));
    drop(store);
    device.set_faults(FaultPlan::default());
    let store = Store::open(&cache, "kv", 9, 1200).unwrap();
    expected.check(&store);
    (0..5).for_each(|_| expected.commit(&store).unwrap());
}

#[test]
fn threads_that_commit_at_once_share_flushes() {
    let device = Arc::new(SimDevice::new(Seed::new(3)));
    device.set_faults(FaultPlan { yields_max: 500, ..FaultPlan::default() });
    let cache = Cache::builder().capacity(64 * PAGE).page_size(PAGE);
    let cache = cache.device(device.clone()).build().unwrap();
    let store = Store::open(&cache, "kv", 9, 100_000).unwrap();
    let before = device.counts("kv.log").syncs;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            let commits = move || {
                (0..10).for_each(|nth| store.commit(&[(key(thread), value(nth))]).unwrap());
            };
            scope.spawn(commits);
        }
    });
    let flushes = device.counts("kv.log").syncs - before;
    assert!(flushes < 80, "{flushes} flushes for 80 commits");
}

/// Neither of two transactions was committed when the power failed, and the record of the first is
/// torn: the second is none, also when another takes the place of the first.
#[test]
fn a_record_behind_a_torn_one_does_not_come_back() {
    let device = Arc::new(SimDevice::new(Seed::new(4)));
    let open = || {
        let cache = Cache::builder().capacity(64 * PAGE).page_size(PAGE).device(device.clone());
        Store::open(&cache.io(Io::Blocking).build().unwrap(), "kv", 9, 2000).unwrap()
    };
    let store = open();
    let before = device.bytes("kv.data").unwrap();
    (1..=2).for_each(|number| store.commit(&[(key(number), value(number))]).unwrap());
    device.crash();
    drop(store);
    device.put("kv.data", &before);
    device.overwrite("kv.log", 30, &[0xff]);
    let store = open();
    store.commit(&[(key(3), value(3))]).unwrap();
    device.crash();
    drop(store);
    let store = open();
    let found = [1, 2, 3].map(|number| store.get(key(number)).unwrap());
    assert_eq!(found, [None, None, Some(value(3))]);
}

/// Each thread sets two keys of its own to a number that rises. Of records that overlap, any may be
/// torn, also one before others that are whole.
#[test]
fn transactions_of_threads_survive_cuts() {
    const THREADS: u64 = 4;
    for seed in 0..150 {
        let device = Arc::new(SimDevice::new(Seed::new(seed)));
        let mut durable = [0; THREADS as usize];
        let mut next = 0;
        for cut in [1 + Seed::new(seed).below(30), 1 + Seed::new(seed).below(9), u64::MAX] {
            let write = Failure::from(cut);
            device.set_faults(FaultPlan { write, yields_max: 20, ..FaultPlan::default() });
            let cache = Cache::builder().capacity(16 * PAGE).page_size(PAGE);
            let cache = cache.device(device.clone()).build().unwrap();
            let Ok(store) = Store::open(&cache, "kv", 9, 2000) else {
                device.crash();
                continue;
            };
            for (thread, durable) in (0..).zip(&mut durable) {
                let [one, other] =
                    [thread, thread + THREADS].map(|key_of| store.get(key(key_of)).unwrap());
                assert_eq!(one, other, "seed {seed}: half of a transaction");
                let found =
                    one.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().unwrap()));
                assert!(
                    found >= *durable,
                    "seed {seed}: {durable} was committed, and {found} is there"
                );
                *durable = found;
            }
            next += 100;
            std::thread::scope(|scope| {
                for (thread, durable) in (0..).zip(&mut durable) {
                    let store = &store;
                    scope.spawn(move || {
                        for number in next..next + 20 {
                            let keys = [thread, thread + THREADS].map(key);
                            if store.commit(&keys.map(|key| (key, value(number)))).is_err() {
                                break;
                            }
                            *durable = number;
                        }
                    });
                }
            });
            device.crash();
        }
    }
}
