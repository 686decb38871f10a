//! Sizes, memory, and what is left where it is refused. Most waiters are counted without any, by
//! the addresses that their nodes would have: growth cannot tell.
#![expect(unsafe_code, reason = "setrlimit")]

use std::process::Command;

use unherd_sys::primitives::{Arc, thread};
use unherd_sys::{Deadline, Timestamp};

use super::*;
use crate::Reason;
use crate::wait_table::word::{index_at, level_of};
use crate::wait_table::{Outcome, Token, WaitTable};

fn table(floor: usize, ceiling: usize) -> WaitTable<u64> {
    WaitTable::<u64>::builder().grow(floor, ceiling).seed(1).build()
}

/// The addresses of nodes on stacks of 64 KiB.
fn arrive(table: &WaitTable<u64>, waiters: std::ops::Range<usize>) {
    waiters.for_each(|at| table.buckets.arrive(at << 16 | 0x7fc0));
}

fn leave(table: &WaitTable<u64>, waiters: std::ops::Range<usize>) {
    waiters.for_each(|at| table.buckets.leave(at << 16 | 0x7fc0));
}

/// How many buckets there are, and that they have the levels that the resizer thinks.
fn buckets(table: &WaitTable<u64>) -> usize {
    let resizer = table.buckets.rest().growth.as_ref().expect("it grows").resizer.lock();
    let &Resizer { level, divided } = &*resizer;
    for index in 0..resizer.buckets() {
        let is_divided = index_at(level, hash_of_index(index)) < divided;
        let word = table.buckets.at(index).word();
        assert_eq!(level_of(word), Some(level + u32::from(is_divided)), "bucket {index}");
    }
    resizer.buckets()
}

/// Runs `scene` in a process of its own, in which nothing else changes what it measures: this test
/// program again, with this test alone.
fn alone(test: &str, scene: impl FnOnce()) {
    const CHILD: &str = "UNHERD_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return scene();
    }
    let program = std::env::current_exe().expect("this program");
    let (_, path) = module_path!().split_once("::").expect("the crate, and the path in it");
    let test = format!("{path}::{test}");
    let run = Command::new(program)
        .args(["--exact", &test])
        .env(CHILD, "")
        .env("RUST_BACKTRACE", "0")
        .output();
    let run = run.expect("this program starts again");
    let told = [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let told = told.concat();
    assert!(run.status.success() && told.contains("1 passed"), "{told}");
}

/// A figure of this process's in kB, by its name in /proc/self/status.
fn status_kb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with(name)).expect("the kernel tells it");
    line.split_whitespace().nth(1).expect("a figure").parse().expect("a number")
}

/// Sets the soft limit of a resource, in bytes.
fn limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the limits to where it is told.
    assert_eq!(unsafe { libc::getrlimit(resource, &mut limits) }, 0);
    limits.rlim_cur = bytes.min(limits.rlim_max);
    // SAFETY: reads them.
    assert_eq!(unsafe { libc::setrlimit(resource, &limits) }, 0);
}

#[test]
fn the_size_follows_the_waiters() {
    let table = table(16, 1 << 12);
    assert_eq!((buckets(&table), table.size().live), (16, Some(0)));
    for (waiters, expected) in [(1, 16), (5, 32), (64, 256), (600, 4096), (2000, 4096)] {
        arrive(&table, 0..waiters);
        table.settle();
        assert_eq!((buckets(&table), table.size().live), (expected, Some(waiters)));
        assert_eq!(table.size().buckets, expected);
        leave(&table, 0..waiters);
        table.settle();
        assert_eq!((buckets(&table), table.size().live), (16, Some(0)));
    }
}

#[test]
fn between_four_and_thirty_two_buckets_a_waiter_nothing_moves() {
    let table = table(16, 1 << 12);
    arrive(&table, 0..129);
    table.settle();
    assert_eq!(buckets(&table), 1024);
    for waiters in [256, 32] {
        if waiters > 129 {
            arrive(&table, 129..waiters)
        } else {
            leave(&table, waiters..256)
        }
        table.settle();
        assert_eq!((buckets(&table), table.size().live), (1024, Some(waiters)));
    }
    leave(&table, 31..32);
    table.settle();
    assert_eq!(buckets(&table), 512);
}

#[test]
fn it_may_turn_round_midway() {
    let table = table(4, 1 << 10);
    let mut midway = 0;
    for leaving in 0..64 {
        // The arrivals want all that there may be, and move as much as they can; so do those that
        // leave, so that each round ends somewhere else.
        arrive(&table, 0..256);
        leave(&table, 0..192 + leaving);
        midway += u32::from(!buckets(&table).is_power_of_two());
        leave(&table, 192 + leaving..256);
    }
    assert!(midway > 0);
    table.settle();
    assert_eq!((buckets(&table), table.size().live), (4, Some(0)));
}

/// As where the kernel has addresses, and then no pages for all of them.
#[test]
fn memory_refused_midway_takes_the_table_back_until_it_has_shrunk() {
    let table = table(64, 1 << 12);
    arrive(&table, 0..1 << 9);
    table.settle();
    arrive(&table, 1 << 9..(1 << 9) + 1);
    let reached = buckets(&table);
    assert!(reached > 1 << 11 && !reached.is_power_of_two());
    table.buckets.rest().growth.as_ref().expect("it grows").keep_to(11);
    for more in [1 << 10, 1 << 11] {
        arrive(&table, 0..more);
        table.settle();
        assert_eq!(buckets(&table), 1 << 11);
        leave(&table, 0..more);
    }
    leave(&table, 0..(1 << 9) + 1);
    table.settle();
    arrive(&table, 0..1 << 11);
    table.settle();
    assert_eq!(buckets(&table), 1 << 12);
}

/// There is nothing to shrink from then.
#[test]
fn memory_refused_at_the_floor_is_asked_for_again() {
    let table = table(64, 1 << 12);
    arrive(&table, 0..16);
    table.buckets.rest().growth.as_ref().expect("it grows").keep_to(6);
    arrive(&table, 16..100);
    table.settle();
    assert_eq!(buckets(&table), 64);
    leave(&table, 0..100);
    arrive(&table, 0..100);
    table.settle();
    assert_eq!(buckets(&table), 512);
}

/// Waiters that move from bucket to bucket are found, and the oldest of their key first.
#[test]
fn waiters_move_with_their_buckets() {
    const KEYS: u64 = 7;
    let table = Arc::new(table(1, 1 << 10));
    let waiters: Vec<_> = (0..28)
        .map(|at| {
            let theirs = Arc::clone(&table);
            let wait = move || theirs.wait(&(at % KEYS), || true, Reason::OTHER);
            let thread = thread::spawn(wait);
            while table.size().live <= Some(at as usize) {
                thread::yield_now();
            }
            thread
        })
        .collect();
    table.settle();
    assert_eq!(buckets(&table), 128);
    for round in 0..4 {
        for key in 0..KEYS {
            assert_eq!(table.wake_with(&key, 1, Token(round)), 1);
        }
        table.settle();
    }
    for (waiter, at) in waiters.into_iter().zip(0..) {
        assert_eq!(waiter.join().expect("no panic"), Outcome::Woken(Token(at / KEYS)));
    }
    table.settle();
    assert_eq!((buckets(&table), table.size().live), (1, Some(0)));
}

#[test]
fn memory_comes_and_goes() {
    alone("memory_comes_and_goes", || {
        const WAITERS: usize = 1 << 18;
        let table = table(64, 1 << 20);
        let (few, rss) = (table.memory_bytes(), status_kb("VmRSS"));
        arrive(&table, 0..WAITERS);
        assert_eq!(buckets(&table), 1 << 20, "without being asked to");
        assert!(table.memory_bytes() >= 64 << 20);
        assert!(status_kb("VmRSS") >= rss + (60 << 10));
        leave(&table, 0..WAITERS);
        table.settle();
        assert_eq!((table.size().buckets, table.memory_bytes()), (64, few));
        assert!(status_kb("VmRSS") <= rss + (4 << 10));
    });
}

#[test]
fn a_table_whose_memory_is_refused_stays_as_it_is() {
    alone("a_table_whose_memory_is_refused_stays_as_it_is", || {
        let table = Arc::new(table(64, 1 << 20));
        let theirs = Arc::clone(&table);
        let waiter = thread::spawn(move || theirs.wait(&7, || true, Reason::OTHER));
        while table.size().live == Some(0) {
            thread::yield_now();
        }
        // The table gets 16 MiB of it; the rest is for the allocator.
        limit(libc::RLIMIT_DATA, (status_kb("VmData") << 10) + (24 << 20));
        arrive(&table, 0..1 << 17);
        table.settle();
        let size = table.size();
        assert_eq!((size.refused, size.live), (1, Some((1 << 17) + 1)));
        assert!((64..=1 << 18).contains(&size.buckets), "{size:?}");
        assert_eq!(buckets(&table), size.buckets);
        arrive(&table, 0..1 << 10);
        assert_eq!(table.size().refused, 1, "it was not asked for again");

        let past = Deadline::at(Timestamp::from_ns(1));
        assert_eq!(table.wait(&7, || true, past), Outcome::TimedOut);
        assert_eq!(table.wake_all(&7), 1);
        assert_eq!(waiter.join().expect("no panic"), Outcome::Woken(Token(0)));

        // When it has shrunk it asks again.
        leave(&table, 0..1 << 10);
        leave(&table, 0..1 << 17);
        table.settle();
        limit(libc::RLIMIT_DATA, libc::RLIM_INFINITY);
        arrive(&table, 0..1 << 17);
        table.settle();
        assert_eq!((buckets(&table), table.size().refused), (1 << 19, 1));
    });
}

#[test]
fn a_table_whose_addresses_are_refused_keeps_its_floor() {
    alone("a_table_whose_addresses_are_refused_keeps_its_floor", || {
        limit(libc::RLIMIT_AS, (status_kb("VmSize") << 10) + (8 << 20));
        let table = table(64, 1 << 20);
        arrive(&table, 0..1000);
        table.settle();
        let size = table.size();
        assert_eq!((size.buckets, size.refused, size.live), (64, 1, None));
        let past = Deadline::at(Timestamp::from_ns(1));
        assert_eq!(table.wait(&7, || true, past), Outcome::TimedOut);
    });
}
