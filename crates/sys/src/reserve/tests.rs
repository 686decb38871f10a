use std::collections::HashMap;
use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::Topology;
use crate::refusal::{in_child, refuse_call};

fn page() -> usize {
    rustix::param::page_size()
}

fn write(reserve: &Reserve, at: usize, value: u8) {
    assert!(at < reserve.len());
    // SAFETY: in the reserve, committed by the test, and nobody else uses it.
    unsafe { reserve.start().as_ptr().wrapping_add(at).write_volatile(value) };
}

fn read(reserve: &Reserve, at: usize) -> u8 {
    assert!(at < reserve.len());
    // SAFETY: in the reserve, committed by the test, and nobody else uses it.
    unsafe { reserve.start().as_ptr().wrapping_add(at).read_volatile() }
}

/// What the kernel tells of the reserve's mappings: how many there are, the sums of the fields that
/// are sizes, in bytes, and the flags of the last. In a child: the kernel makes one mapping of
/// neighbours that are alike, and other tests make such.
fn mappings_of(reserve: &Reserve) -> (usize, HashMap<String, usize>, String) {
    let start = reserve.start().as_ptr() as usize;
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut count, mut sizes, mut flags) = (0, HashMap::new(), String::new());
    let mut inside = false;
    for line in smaps.lines() {
        let (name, value) = line.split_once(' ').unwrap();
        let Some(name) = name.strip_suffix(':') else {
            let first = usize::from_str_radix(name.split_once('-').unwrap().0, 16).unwrap();
            inside = (start..start + reserve.len()).contains(&first);
            count += usize::from(inside);
            continue;
        };
        if !inside {
            continue;
        }
        if let Some(kib) = value.trim().strip_suffix(" kB") {
            *sizes.entry(name.to_owned()).or_default() += kib.parse::<usize>().unwrap() << 10;
        } else if name == "VmFlags" {
            flags = value.to_owned();
        }
    }
    (count, sizes, flags)
}

#[test]
fn reserved_space_has_no_memory_and_no_access() {
    in_child(|| {
        let reserve = Reserve::new((64 << 20) - 1).unwrap();
        assert_eq!(reserve.len(), 64 << 20);
        assert_eq!(reserve.resident_bytes().unwrap(), 0);
        let (_, sizes, flags) = mappings_of(&reserve);
        assert_eq!((sizes["Size"], sizes["Rss"]), (64 << 20, 0));
        let has = |flag| flags.split_ascii_whitespace().any(|name| name == flag);
        assert!(!has("rd") && !has("wr"), "{flags}");
        let overcommit = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
        assert!(has("nr") || overcommit.trim() == "2", "{flags}");
        assert!(
            has("nh") || !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap(),
            "{flags}"
        );
    });
}

#[test]
fn committed_pages_read_zeros_and_take_memory_by_page() {
    in_child(|| {
        let reserve = Reserve::new(64 << 20).unwrap();
        for at in (0..16).map(|n| n * page()) {
            reserve.commit(at..at + page()).unwrap();
        }
        assert_eq!(mappings_of(&reserve).0, 2, "what follows each other is one mapping");
        assert_eq!(reserve.resident_bytes().unwrap(), 0);
        write(&reserve, 3 * page() + 7, 1);
        assert_eq!(reserve.resident_bytes().unwrap(), page());
        assert_eq!((read(&reserve, 3 * page() + 7), read(&reserve, 16 * page() - 1)), (1, 0));
        reserve.commit(0..16 * page()).unwrap();
        assert_eq!(read(&reserve, 3 * page() + 7), 1, "committing again changes nothing");
    });
}

#[test]
fn the_last_page_can_be_used() {
    // Longer than what is asked about at a time, and no multiple of it.
    let reserve = Reserve::new(9001 * page()).unwrap();
    let last = reserve.len() - page()..reserve.len();
    reserve.commit(last).unwrap();
    write(&reserve, reserve.len() - 1, 1);
    assert_eq!(reserve.resident_bytes().unwrap(), page());
    reserve.populate(0..reserve.len()).unwrap();
    assert_eq!(reserve.resident_bytes().unwrap(), reserve.len());
    assert_eq!(read(&reserve, reserve.len() - 1), 1);
}

#[test]
fn populated_pages_are_there_and_keep_what_they_hold() {
    in_child(|| {
        let reserve = Reserve::new(64 << 20).unwrap();
        reserve.commit(0..8 * page()).unwrap();
        write(&reserve, page(), 7);
        // Half of it is committed by this.
        reserve.populate(0..16 * page()).unwrap();
        assert_eq!(reserve.resident_bytes().unwrap(), 16 * page());
        assert_eq!(mappings_of(&reserve).1["Anonymous"], 16 * page());
        assert_eq!((read(&reserve, page()), read(&reserve, 15 * page())), (7, 0));
    });
}

#[test]
fn touching_takes_pages_as_populating_does() {
    in_child(|| {
        let reserve = Reserve::new(64 << 20).unwrap();
        reserve.commit(0..8 * page()).unwrap();
        write(&reserve, page(), 7);
        assert_eq!(read(&reserve, 2 * page()), 0);
        reserve.touch(0..4 * page());
        // Not resident alone, which the shared page of zeros is too.
        assert_eq!(mappings_of(&reserve).1["Anonymous"], 4 * page());
        assert_eq!(read(&reserve, page()), 7);
    });
}

#[test]
fn memory_given_back_reads_zeros_and_is_not_resident() {
    in_child(|| {
        let reserve = Reserve::new(64 << 20).unwrap();
        reserve.populate(0..32 * page()).unwrap();
        for at in 0..32 {
            write(&reserve, at * page() + at, 9);
        }
        reserve.give_back(8 * page()..32 * page()).unwrap();
        assert_eq!(reserve.resident_bytes().unwrap(), 8 * page());
        assert!((0..8).all(|at| read(&reserve, at * page() + at) == 9));
        assert!((8..32).all(|at| read(&reserve, at * page() + at) == 0));
        assert_eq!(reserve.resident_bytes().unwrap(), 32 * page(), "the page of zeros counts");
        assert_eq!(mappings_of(&reserve).1["Anonymous"], 8 * page(), "and takes no memory");
        write(&reserve, 20 * page(), 5);
        assert_eq!(read(&reserve, 20 * page()), 5, "still committed");
        reserve.give_back(0..reserve.len()).unwrap();
        assert_eq!(reserve.resident_bytes().unwrap(), 0);
    });
}

#[test]
fn locked_memory_stays_and_the_error_says_so() {
    let reserve = Reserve::new(4 * page()).unwrap();
    reserve.commit(0..4 * page()).unwrap();
    write(&reserve, 0, 3);
    // SAFETY: locking the first page changes no content.
    if let Err(errno) = unsafe { rustix::mm::mlock(reserve.start().as_ptr().cast(), page()) } {
        println!("skipped: no memory may be locked ({errno})");
        return;
    }
    let error = reserve.give_back(0..2 * page()).unwrap_err();
    assert_eq!(error, ReserveError::NotGivenBack { bytes: 2 * page(), errno: Errno::INVAL });
    assert_eq!(read(&reserve, 0), 3);
}

#[test]
fn ranges_are_checked() {
    in_child(|| {
        let reserve = Reserve::new(4 * page()).unwrap();
        let node = Topology::of(1).nodes()[0];
        let backwards = Range { start: 2 * page(), end: page() };
        for range in [1..page(), 0..page() - 1, 0..5 * page(), 5 * page()..5 * page(), backwards] {
            let refused = Err(ReserveError::NoSuchRange {
                range: range.clone(),
                len_bytes: 4 * page(),
                page_bytes: page(),
            });
            assert_eq!(reserve.commit(range.clone()), refused);
            assert_eq!(reserve.populate(range.clone()), refused);
            assert_eq!(reserve.give_back(range.clone()), refused);
            assert_eq!(reserve.bind(range, node), refused);
        }
        for at in [0, 4 * page()] {
            reserve.commit(at..at).unwrap();
            reserve.populate(at..at).unwrap();
            reserve.give_back(at..at).unwrap();
        }
        assert_eq!(mappings_of(&reserve).1["Rss"], 0);
    });
}

#[test]
fn impossible_lengths_are_refused() {
    for (bytes, errno) in [(0, Errno::INVAL), (usize::MAX, Errno::NOMEM), (1 << 62, Errno::NOMEM)] {
        assert_eq!(Reserve::new(bytes).unwrap_err(), ReserveError::NotReserved { bytes, errno });
    }
}

#[test]
fn drop_gives_the_addresses_back() {
    in_child(|| {
        let reserve = Reserve::new(1 << 20).unwrap();
        reserve.commit(0..page()).unwrap();
        let start = reserve.start();
        drop(reserve);
        // SAFETY: this advice of an unmapped range changes nothing.
        let gone = unsafe { madvise(start.as_ptr().cast(), page(), Advice::Normal) };
        assert_eq!(gone, Err(Errno::NOMEM));
    });
}

/// A field of `/proc/self/status` that is a size, in bytes.
fn status_bytes(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Lets this process have so many bytes more of what the resource limits than it has: in a child.
fn limit_to(resource: Resource, bytes: usize) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(bytes as u64), maximum }).unwrap();
}

#[test]
fn a_commit_over_the_limit_on_data_is_an_error_and_no_end() {
    in_child(|| {
        let reserve = Reserve::new(64 << 20).unwrap();
        reserve.commit(0..page()).unwrap();
        write(&reserve, 0, 7);
        limit_to(Resource::Data, status_bytes("VmData") + (8 << 20));
        let range = 0..32 << 20;
        let refused = ReserveError::NoMemory { bytes: 32 << 20, errno: Errno::NOMEM };
        assert_eq!(reserve.commit(range.clone()).unwrap_err(), refused);
        assert_eq!(reserve.populate(range).unwrap_err(), refused);
        assert!(refused.to_string().contains("ulimit -d"), "{refused}");
        // What was there is there, and what the limit has room for can be had.
        assert_eq!(read(&reserve, 0), 7);
        reserve.populate(0..1 << 20).unwrap();
        assert!(reserve.resident_bytes().unwrap() >= 1 << 20);
        reserve.give_back(0..1 << 20).unwrap();
        Reserve::new(1 << 30).unwrap();
    });
}

#[test]
fn a_reserve_over_the_limit_on_addresses_is_an_error_and_no_end() {
    in_child(|| {
        limit_to(Resource::As, status_bytes("VmSize") + (32 << 20));
        let bytes = 64 << 20;
        let refused = ReserveError::NotReserved { bytes, errno: Errno::NOMEM };
        assert_eq!(Reserve::new(bytes).unwrap_err(), refused);
        assert!(refused.to_string().contains("ulimit -v"), "{refused}");
        let reserve = Reserve::new(8 << 20).unwrap();
        reserve.populate(0..8 << 20).unwrap();
    });
}

/// The policy of the page at a place, and the first word of its nodes.
fn policy_at(reserve: &Reserve, at: usize) -> (libc::c_int, u64) {
    const OF_ADDRESS: libc::c_ulong = 2;
    let mut policy: libc::c_int = -1;
    let mut nodes = [0_u64; NodeId::COUNT_MAX / 64];
    let place = reserve.start().as_ptr().wrapping_add(at);
    // SAFETY: both answers have room; the place is looked up, not read.
    let done = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut policy,
            nodes.as_mut_ptr(),
            NodeId::COUNT_MAX as libc::c_ulong,
            place,
            OF_ADDRESS,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    (policy, nodes[0])
}

#[test]
fn pages_are_placed_by_node() {
    let reserve = Reserve::new(64 << 20).unwrap();
    let topology = Topology::of_this_machine().unwrap();
    let (first, all) = (topology.nodes()[0], topology.nodes());
    match reserve.interleave(all) {
        Err(ReserveError::NotPlaced { errno: errno @ (Errno::NOSYS | Errno::PERM), .. }) => {
            println!("skipped: this kernel refuses mbind(2): {errno}");
            return;
        }
        done => done.unwrap(),
    }
    reserve.bind(4 * page()..8 * page(), first).unwrap();
    let (interleaved, nodes) = policy_at(&reserve, 0);
    assert_eq!(interleaved, libc::MPOL_INTERLEAVE);
    assert_eq!(nodes & 1 << first.number(), 1 << first.number());
    assert_eq!(policy_at(&reserve, 4 * page()), (libc::MPOL_PREFERRED, 1 << first.number()));
    assert_eq!(policy_at(&reserve, 8 * page()), (interleaved, nodes));
    // Placing says nothing of access.
    reserve.populate(0..16 * page()).unwrap();
    assert_eq!(reserve.resident_bytes().unwrap(), 16 * page());
}

#[test]
fn nodes_that_are_not_there_are_refused_and_the_memory_comes_all_the_same() {
    let reserve = Reserve::new(1 << 20).unwrap();
    let invented = NodeId::new(NodeId::COUNT_MAX as u32 - 1).unwrap();
    for refused in [
        reserve.interleave(&[]),
        reserve.interleave(&[invented]),
        reserve.bind(0..1 << 20, invented),
    ] {
        assert!(matches!(refused, Err(ReserveError::NotPlaced { bytes, .. }) if bytes == 1 << 20));
    }
    reserve.populate(0..1 << 20).unwrap();
    assert_eq!(reserve.resident_bytes().unwrap(), 1 << 20);
}

#[test]
fn a_container_that_forbids_placing_is_told_by_its_number() {
    in_child(|| {
        refuse_call(libc::SYS_mbind);
        let reserve = Reserve::new(1 << 20).unwrap();
        let refused = ReserveError::NotPlaced { bytes: 1 << 20, errno: Errno::PERM };
        assert_eq!(reserve.interleave(Topology::of(4).nodes()).unwrap_err(), refused);
        reserve.populate(0..1 << 20).unwrap();
    });
}
