//! Sizes, memory, and what is left where it is refused. Waiters are counted without any, by the
//! addresses that their nodes would have: the table cannot tell.
#![expect(unsafe_code, reason = "setrlimit and getrlimit")]

use std::process::Command;

use unherd_sys::primitives::{Arc, thread};

use super::*;
use crate::wait_table::{Outcome, Token, WaitTable};
use crate::{Reason, Wait};

fn table(floor: usize, ceiling: usize) -> WaitTable<u64> {
    WaitTable::<u64>::builder().grow(floor, ceiling).seed(1).build()
}

/// The addresses of so many nodes, on stacks of 64 KiB.
fn nodes(n: usize) -> impl Iterator<Item = usize> {
    (0..n).map(|at| at << 16 | 0x7fc0)
}

fn arrive(table: &WaitTable<u64>, n: usize) {
    nodes(n).for_each(|node| table.buckets.arrive(node));
}

fn leave(table: &WaitTable<u64>, from: usize, to: usize) {
    nodes(from).skip(to).for_each(|node| table.buckets.leave(node));
}

/// Whether every hash has one home, as H1 says, and the words below `buckets` alone are present.
fn is_whole(table: &WaitTable<u64>) -> bool {
    let resizer = table.buckets.rest().growth.as_ref().expect("grows").resizer.lock();
    let present = resizer.buckets();
    (0..present).all(|index| {
        let divided = resizer.divided;
        let level = resizer.level + u32::from(index & ((1 << resizer.level) - 1) < divided);
        level_of(table.buckets.at(index).word()) == Some(level)
    }) && (present == table.buckets.rest().storage.room()
        || table.buckets.locate_index(hash_of_index(present)) < present)
}

/// Runs `scene` in a process of its own, in which nothing else changes what it measures: this test
/// program again, with this test alone.
fn alone(test: &str, scene: impl FnOnce()) {
    const CHILD: &str = "UNHERD_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return scene();
    }
    let program = std::env::current_exe().expect("this program");
    let name = format!("{}::{test}", module_path!().split_once("::").expect("a path").1);
    let run = Command::new(program).args(["--exact", &name]).env(CHILD, "").output();
    let run = run.expect("this program starts");
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
fn the_size_follows_the_waiters() {
    let table = table(16, 1 << 12);
    let buckets = || table.size().buckets;
    assert_eq!((buckets(), table.size().live), (16, Some(0)));
    for (waiters, expected) in [(1, 16), (5, 32), (64, 256), (600, 4096), (2000, 4096)] {
        arrive(&table, waiters);
        table.settle();
        assert_eq!((buckets(), table.size().live), (expected, Some(waiters)));
        assert!(is_whole(&table));
        leave(&table, waiters, 0);
        table.settle();
        assert_eq!((buckets(), table.size().live), (16, Some(0)));
        assert!(is_whole(&table));
    }
}
