//! Waiting some calls deep, on two paths, in code without frame pointers.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use unherd_sys::primitives::thread;

use crate::count;

/// Sleeps `times` times in one function: every fifth time on the seldom path.
pub(crate) fn by_two_paths(times: usize) -> Value {
    let (mut from, mut to) = UnixStream::pair().expect("descriptors are left");
    let (asleep, mut wakes) = UnixStream::pair().expect("descriptors are left");
    let teller = thread::spawn(move || {
        // One byte at a time, each asked for, so that each is waited for.
        while wakes.read_exact(&mut [0]).is_ok() {
            count::pause(Duration::from_micros(50));
            to.write_all(&[1]).expect("it is read");
        }
    });
    let mut seldom = 0;
    for turn in 0..times {
        (&asleep).write_all(&[0]).expect("it is read");
        if turn % 5 == 0 {
            seldom += seldom_path(&mut from);
        } else {
            often_path(&mut from);
        }
    }
    drop(asleep);
    teller.join().expect("the teller does not panic");
    json!({ "times": times, "seldom": seldom })
}

// What each adds to the result keeps the compiler from leaving its frame before it calls.

#[inline(never)]
fn often_path(from: &mut UnixStream) -> u64 {
    black_box(middle_of_path(from)) * 3
}

#[inline(never)]
fn seldom_path(from: &mut UnixStream) -> u64 {
    black_box(middle_of_path(from))
}

#[inline(never)]
fn middle_of_path(from: &mut UnixStream) -> u64 {
    let room = black_box([0u64; 40]);
    black_box(waits_here(from)) + room[0]
}

#[inline(never)]
fn waits_here(from: &mut UnixStream) -> u64 {
    let mut byte = [0];
    from.read_exact(&mut byte).expect("the teller writes");
    u64::from(black_box(byte[0]))
}
