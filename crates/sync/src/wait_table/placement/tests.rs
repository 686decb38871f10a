//! Tables of two and of four nodes that this machine need not have: where their buckets lie, that
//! waits and wakes meet there, and that they grow part by part.

use unherd_sys::primitives::{Arc, thread};
use unherd_sys::{Deadline, NodeId, Reserve, Timestamp, Topology};

use super::nodes::PAGE_BYTES_MIN;
use super::*;
use crate::Reason;
use crate::wait_table::home::{Buckets, Rest};
use crate::wait_table::word::{BUCKET_BYTES, hash_of_index, index_at, level_of, turned_to};
use crate::wait_table::{Outcome, Token, WaitTable, WaitTableBuilder};

/// A key says where it belongs: a page and a node, or no node.
type Key = (u64, Option<u32>);

fn builder(nodes: u32) -> WaitTableBuilder<Key> {
    let home = |key: &Key| key.1.and_then(NodeId::new);
    WaitTable::<Key>::builder().seed(1).homes(Topology::of(nodes), home)
}

/// As many bits as the part has, of the index where a wake looks first.
fn part(table: &WaitTable<Key>, key: &Key) -> usize {
    let layout = table.buckets.rest().storage.layout();
    table.buckets.shape.load().index(table.hash_of(key)) >> layout.place_bits
}

/// The addresses of nodes on stacks of 64 KiB, as growth sees them.
fn node(at: usize) -> usize {
    at << 16 | 0x7fc0
}

/// Settles, and checks that the buckets there are, and no others, have the level of the whole.
fn settled_buckets(table: &WaitTable<Key>) -> usize {
    table.settle();
    let layout = table.buckets.rest().storage.layout();
    let buckets = table.buckets.len();
    let level = buckets.ilog2();
    for nth in 0..buckets {
        let index = layout.index(level, nth);
        let (word, distance) = (table.buckets.at(index).word(), 1 << layout.level_in_part(level));
        assert_eq!(level_of(word), Some(layout.level_in_part(level)), "bucket {index}");
        assert_eq!(index_at(level, hash_of_index(index)) % distance, nth % distance);
        assert_eq!(table.buckets.shape.load().index(hash_of_index(index)), index);
    }
    buckets
}

fn wait(table: &Arc<WaitTable<Key>>, key: Key) -> thread::JoinHandle<Outcome> {
    let theirs = Arc::clone(table);
    let live = table.size().live;
    let thread = thread::spawn(move || theirs.wait(&key, || true, Reason::OTHER));
    while table.size().live == live {
        thread::yield_now();
    }
    thread
}

#[test]
fn indices_are_part_by_part() {
    let layout = Layout::parts(2, 12);
    assert_eq!((layout.places(), layout.level_min()), (1 << 12, 1));
    assert_eq!([0, 1, 2, 3].map(|nth| layout.index(2, nth)), [0, 1, 1 << 11, 1 << 11 | 1]);
    assert_eq!([5, 1 << 11, 1 << 11 | 5].map(|index| layout.parent(index)), [1, 1 << 11, 2049]);
    assert!([0, 1 << 11].into_iter().all(|index| layout.is_first(index)));
    // A search stays in its part, here by a hash of the same.
    let hash = hash_of_index(1 << 11 | 0b101);
    assert_eq!(turned_to(2, 1 << 11, hash), 1 << 11 | 0b01);
    assert_eq!(turned_to(3, 1 << 11 | 0b01, hash), 1 << 11 | 0b101);
    assert_eq!(layout.shape(12).index(!0), (1 << 12) - 1);
    assert_eq!(layout.shape(3), Shape::of(2, 1 << 11 | 3));
    // Parts are whole pages, and nodes are rounded up.
    assert_eq!(Layout::parts(3, 2), Layout { part_bits: 2, place_bits: 10 });
    assert_eq!(Layout::parts(NodeId::COUNT_MAX, 20).places(), 1 << 20);
    assert_eq!(Layout::whole(4).index(4, 13), 13);
}

#[test]
fn a_key_lies_in_the_part_of_its_home() {
    for (nodes, parts) in [(2, 2), (3, 4), (4, 4)] {
        for builder in [builder(nodes).buckets(1), builder(nodes).grow(64, 1 << 12)] {
            let table = builder.build();
            let mut anywhere = vec![0; parts];
            for page in 0..1000 {
                for home in 0..nodes {
                    assert_eq!(part(&table, &(page, Some(home))), home as usize);
                }
                anywhere[part(&table, &(page, None))] += 1;
                let unknown = (page, Some(nodes));
                assert_eq!(
                    table.hash_of(&unknown),
                    std::hash::BuildHasher::hash_one(&table.hasher, unknown)
                );
            }
            assert!(anywhere.into_iter().all(|keys| keys > 1000 / parts / 2));
        }
    }
}

#[test]
fn one_node_has_no_parts() {
    let table = builder(1).buckets(4).build();
    assert!(table.buckets.rest().homes.is_none());
    assert_eq!(table.size().bytes_reserved, 4 * BUCKET_BYTES);
    assert_eq!(size_of_val(&table), 64);
    assert!(table.buckets.is_quiet_at_a_glance(table.hash_of(&(1, Some(0)))));
}

/// Each part has a bucket at least, and room for as many as the others.
#[test]
fn each_part_has_as_many_buckets() {
    for (nodes, floor, buckets) in [(2, 1, 2), (3, 1, 4), (4, 64, 64)] {
        let table = builder(nodes).buckets(floor).build();
        assert_eq!(settled_buckets(&table), buckets);
        let hash = table.hash_of(&(7, Some(1)));
        assert!(table.buckets.is_quiet(hash) && !table.buckets.is_quiet_at_a_glance(hash));
        assert_eq!(table.size().live, None, "it keeps its size");
        let past = Deadline::at(Timestamp::from_ns(1));
        assert_eq!(table.wait(&(7, Some(1)), || true, past), Outcome::TimedOut);
    }
}

#[test]
fn waits_and_wakes_meet_while_it_grows() {
    for nodes in [2, 4] {
        let table = Arc::new(builder(nodes).grow(4, 1 << 12).build());
        let keys =
            (0..24).map(|at| (at / 6, [None, Some(0), Some(1), Some(nodes - 1)][at as usize % 4]));
        let waiters: Vec<_> = keys.map(|key| (key, wait(&table, key))).collect();
        assert_eq!(settled_buckets(&table), 128);
        (0..1 << 9).for_each(|at| table.buckets.arrive(node(at)));
        assert_eq!(settled_buckets(&table), 1 << 12);
        assert_eq!(table.wake_all(&(99, Some(1))), 0);
        (0..1 << 9).for_each(|at| table.buckets.leave(node(at)));
        assert_eq!(settled_buckets(&table), 1 << 9, "as many as 24 waiters may have");
        for (key, waiter) in waiters {
            assert_eq!(table.wake_with(&key, 1, Token(key.0)), 1);
            assert_eq!(waiter.join().expect("no panic"), Outcome::Woken(Token(key.0)));
        }
        assert_eq!((settled_buckets(&table), table.size().live), (4, Some(0)));
    }
}

/// Wakes look for waiters while the buckets of all parts move.
#[test]
fn no_wake_is_lost_while_parts_grow_and_shrink() {
    const ROUNDS: u64 = 300;
    let table = &builder(4).grow(4, 1 << 8).build();
    thread::scope(|scope| {
        let pairs: Vec<_> = [Some(0), Some(3), None]
            .into_iter()
            .map(|home| {
                scope.spawn(move || {
                    (0..ROUNDS).for_each(|round| {
                        while table.wake(&(round, home), 1) == 0 {
                            thread::yield_now();
                        }
                    });
                });
                scope.spawn(move || {
                    (0..ROUNDS).all(|round| {
                        let key = (round, home);
                        table.wait(&key, || true, Reason::OTHER) == Outcome::Woken(Token(0))
                    })
                })
            })
            .collect();
        let (mut sizes, crowd) = ([false; 2], 0..1 << 6);
        while !pairs.iter().all(|waiter| waiter.is_finished()) || sizes != [true; 2] {
            crowd.clone().for_each(|at| table.buckets.arrive(node(at)));
            sizes[0] |= table.size().buckets == 1 << 8;
            crowd.clone().for_each(|at| table.buckets.leave(node(at)));
            sizes[1] |= table.size().buckets < 1 << 8;
        }
        assert!(pairs.into_iter().all(|waiter| waiter.join().expect("no panic")));
    });
    assert_eq!((settled_buckets(table), table.size().live), (4, Some(0)));
}

/// Also from a part with the lower addresses to one with the higher, and to a key without a home.
#[test]
fn a_requeue_crosses_parts() {
    for nodes in [2, 4] {
        let table = Arc::new(builder(nodes).grow(4, 1 << 12).build());
        let keys = [Some(0), Some(nodes - 1), None, Some(0)].map(|home| (1, home));
        let waiters: Vec<_> = (0..3).map(|_| wait(&table, keys[0])).collect();
        for pair in keys.windows(2) {
            let requeued = table.requeue(&pair[0], &pair[1], 0, usize::MAX);
            assert_eq!((requeued.woken.total(), requeued.moved), (0, 3));
            assert_eq!(table.wake_all(&pair[0]), 0);
            (0..1 << 9).for_each(|at| table.buckets.arrive(node(at)));
            settled_buckets(&table);
            (0..1 << 9).for_each(|at| table.buckets.leave(node(at)));
        }
        assert_eq!(table.wake_with(&keys[3], usize::MAX, Token(3)), 3);
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic"), Outcome::Woken(Token(3)));
        }
    }
}

/// A table that tells no keys apart has one list in each bucket, also in its parts.
#[test]
fn a_table_that_does_not_filter_has_parts_too() {
    let table = builder(2).buckets(8).filtered(false).build();
    let shape = table.buckets.shape.load();
    for key in [(1, Some(0)), (1, Some(1)), (1, None), (2, None)] {
        let hash = table.hash_of(&key);
        let in_queue = table.hash_in_queue(hash);
        assert_eq!(in_queue, hash_of_index(shape.index(hash)));
        let past = Deadline::at(Timestamp::from_ns(1));
        assert_eq!(table.wait(&key, || true, past), Outcome::TimedOut);
    }
}

/// The pages that the kernel places for this table's addresses: policy, and how many on which node.
fn placement(table: &WaitTable<Key>, index: usize) -> String {
    let address = std::ptr::from_ref(table.buckets.at(index)).addr();
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    let line = maps.lines().find(|line| line.starts_with(&format!("{address:x} ")));
    line.unwrap_or_default().to_owned()
}

/// The numbers in a list of the kernel's, such as `0-3,8`.
fn numbers(list: &str) -> Vec<u32> {
    let number = |text: &str| text.parse::<u32>().expect("the kernel's own");
    let ranges = list.trim().split(',').filter(|range| !range.is_empty());
    let bounds = ranges.map(|range| range.split_once('-').unwrap_or((range, range)));
    bounds.flat_map(|(first, last)| number(first)..=number(last)).collect()
}

/// The nodes from which this process may have memory: not those without any, nor those that its
/// cpuset leaves out. `None`, with a line that says so, where they are not known, or where the
/// kernel refuses to place memory, as containers have it do.
fn nodes_with_memory() -> Option<Vec<u32>> {
    let with_memory = std::fs::read_to_string("/sys/devices/system/node/has_memory");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    let (Ok(with_memory), Some(allowed)) = (with_memory, allowed) else {
        println!("skipped: this machine does not say which nodes have memory");
        return None;
    };
    let allowed = numbers(allowed);
    let nodes: Vec<_> =
        numbers(&with_memory).into_iter().filter(|it| allowed.contains(it)).collect();
    let any = NodeId::new(*nodes.first()?)?;
    let reserve = Reserve::new(1).expect("a page of addresses");
    if let Err(refused) = reserve.bind(0..reserve.len(), any) {
        println!("skipped: {refused}");
        return None;
    }
    Some(nodes)
}

/// On this machine's own nodes, of which it may have one: then there is nothing to place.
#[test]
fn memory_comes_from_the_nodes() {
    let machine = Topology::of_this_machine().expect("sysfs");
    if machine.nodes().len() == 1 {
        println!("skipped: this machine has one NUMA node");
        return;
    }
    let Some(usable) = nodes_with_memory() else { return };
    let is_usable = |node: &&NodeId| usable.contains(&node.number());
    let home = |key: &Key| key.1.and_then(NodeId::new);
    let table = WaitTable::<Key>::builder().homes(machine.clone(), home).build();
    let parts = machine.nodes().len().next_power_of_two();
    let refused = machine.nodes().iter().cycle().take(parts).filter(|it| !is_usable(it)).count();
    assert_eq!(table.size().unplaced, refused as u64, "of memory {usable:?}");
    let layout = table.buckets.rest().storage.layout();
    for waiters in [0, 1 << 12] {
        (0..waiters).for_each(|at| table.buckets.arrive(node(at)));
        settled_buckets(&table);
        for (part, node) in machine.nodes().iter().enumerate().filter(|(_, it)| is_usable(it)) {
            let line = placement(&table, part << layout.place_bits);
            println!("{line}");
            let number = node.number();
            assert!(line.contains(&format!("prefer:{number}")), "{line}");
            let pages = line.split(" N").skip(1).collect::<Vec<_>>();
            assert!(pages.len() == 1 && pages[0].starts_with(&format!("{number}=")), "{line}");
        }
    }
    // So large that each node has pages of it.
    let size = 1 << 16;
    let builder = WaitTable::<Key>::builder;
    for builder in [builder().grow(size, 2 * size), builder().buckets(size)] {
        let line = placement(&builder.build(), 0);
        println!("{line}");
        assert!(line.contains("interleave"), "{line}");
        for node in machine.nodes().iter().filter(is_usable) {
            assert!(line.contains(&format!(" N{}=", node.number())), "{line}");
        }
    }
}

/// Three nodes have four parts, of which the last is the first node's.
#[test]
fn parts_beyond_the_nodes_begin_again() {
    let Some(usable) = nodes_with_memory() else { return };
    if !usable.contains(&0) {
        println!("skipped: node 0 has no memory for this process");
        return;
    }
    let table = builder(3).build();
    let layout = table.buckets.rest().storage.layout();
    for part in [0, 3] {
        let line = placement(&table, part << layout.place_bits);
        assert!(line.contains("prefer:0"), "part {part}: {line}");
    }
}

/// What the kernel makes of nodes that it does not have: of several it uses those that there are,
/// one it refuses, and the memory comes from anywhere.
#[test]
fn nodes_that_are_not_there_are_counted() {
    let table = builder(1024).build();
    assert_eq!(settled_buckets(&table), 1024);
    let mut interleaved = WaitTable::<Key>::builder().grow(1, 1 << 12);
    interleaved.placement.topology = Some(Topology::of(2));
    let interleaved = interleaved.build();
    assert!(interleaved.buckets.rest().homes.is_none() && interleaved.size().unplaced <= 1);
    assert_eq!(settled_buckets(&interleaved), 1);
    let Some(usable) = nodes_with_memory() else { return };
    assert_eq!(table.size().unplaced, 1024 - usable.len() as u64, "of memory {usable:?}");
}

/// A machine that does not tell its nodes is one node's, and that is counted.
#[test]
fn nodes_that_are_not_known_are_counted() {
    for (nodes, unplaced) in [(Err(NodesUnknown), 1), (Ok(None), 0)] {
        let buckets = Buckets::<Key>::among(nodes, [4, 12], false, &Placement::NOTHING_TOLD);
        assert_eq!((buckets.unplaced(), buckets.refused(), buckets.len()), (unplaced, 0, 16));
        assert!(!buckets.rest().storage.layout().has_parts());
    }
}

/// A page has nothing to divide among nodes, unless it is to have parts, or to grow.
#[test]
fn a_small_table_that_keeps_its_size_stays_on_the_heap() {
    let on_two_nodes = |builder: WaitTableBuilder<Key>| {
        let mut builder = builder;
        builder.placement.topology = Some(Topology::of(2));
        builder.build().size()
    };
    let page = PAGE_BYTES_MIN / BUCKET_BYTES;
    let beside = 64 + size_of::<Rest<Key>>();
    for buckets in [1, page] {
        let size = on_two_nodes(WaitTable::builder().buckets(buckets));
        assert_eq!(size.bytes_resident, beside + buckets * BUCKET_BYTES);
        assert_eq!((size.bytes_reserved, size.unplaced), (buckets * BUCKET_BYTES, 0));
    }
    let growing = WaitTable::builder().grow(1, 2);
    assert!(on_two_nodes(growing).bytes_resident >= beside + PAGE_BYTES_MIN);
    let mut larger = WaitTable::<Key>::builder().buckets(2 * page);
    larger.placement.topology = Some(Topology::of(2));
    let larger = larger.build();
    let address = std::ptr::from_ref(larger.buckets.at(0)).addr();
    assert!(address.is_multiple_of(PAGE_BYTES_MIN), "of pages, not of the allocator");
}

/// What the homes of keys are looked up in is counted as memory of the table.
#[test]
fn memory_has_the_homes_in_it() {
    for nodes in [2, 1024] {
        let table = builder(nodes).buckets(1).build();
        let rest = table.buckets.rest();
        let homes = nodes as usize * size_of::<Option<u64>>();
        let beside = 64 + size_of_val(rest) + homes;
        assert_eq!(table.memory_bytes(), beside + rest.storage.resident_bytes());
    }
}
