//! A file lock that one thread holds and another polls for by timed sleeps, as SQLite's busy
//! handler does: the rest of the last sleep, after the lock was free, is waited for nothing.
#![expect(unsafe_code, reason = "locks of open file descriptions are in neither std nor rustix")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};
use unherd_sys::Timestamp;
use unherd_sys::primitives::{Arc, AtomicU64, Ordering, thread};

use crate::count;

const HELD: Duration = Duration::from_micros(1_500);
const STEP: Duration = Duration::from_millis(2);

/// Locks or unlocks one byte; whether that was done.
fn set_lock(file: &File, kind: i32) -> bool {
    // SAFETY: all zeros is a valid value of this struct of numbers.
    let mut lock = unsafe { std::mem::zeroed::<libc::flock>() };
    (lock.l_type, lock.l_start, lock.l_len) = (kind as i16, 10, 1);
    // SAFETY: the kernel only reads the struct.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

fn other_opening(of: &impl AsRawFd) -> File {
    let path = format!("/proc/self/fd/{}", of.as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path).expect("a memory file can be opened")
}

/// Holds the lock `rounds` times while another thread climbs, and then holds it for a while.
pub(crate) fn climb(rounds: usize) -> Value {
    let memory = memfd_create("ladder", MemfdFlags::CLOEXEC).expect("a descriptor is left");
    let (held, climbed) = (other_opening(&memory), other_opening(&memory));
    let (mut begun, mut begin) = io::pipe().expect("descriptors are left");
    let (mut ended, mut end) = io::pipe().expect("descriptors are left");
    // Given back at this time; 0: not yet.
    let given_back_ns = Arc::new(AtomicU64::new(0));
    let given_back = Arc::clone(&given_back_ns);
    let climber = thread::spawn(move || {
        let (mut times, mut over_ns, mut vain) = (0_u64, 0, 0_u64);
        while begun.read(&mut [0]).expect("a pipe can be read") == 1 {
            let mut slept_ns = None;
            while !set_lock(&climbed, libc::F_WRLCK) {
                // The first look comes after no sleep.
                vain += u64::from(slept_ns.is_some());
                slept_ns = Some(Timestamp::now().as_ns());
                count::pause(STEP);
            }
            let now_ns = Timestamp::now().as_ns();
            let free_ns = given_back.load(Ordering::Relaxed);
            if slept_ns.is_some_and(|slept_ns| slept_ns < free_ns) {
                times += 1;
                over_ns += now_ns - free_ns;
            }
            count::pause(STEP);
            set_lock(&climbed, libc::F_UNLCK);
            end.write_all(&[0]).expect("a pipe can be written");
        }
        (times, over_ns, vain)
    });
    for _ in 0..rounds {
        given_back_ns.store(0, Ordering::Relaxed);
        assert!(set_lock(&held, libc::F_WRLCK), "nobody else has it");
        begin.write_all(&[0]).expect("a pipe can be written");
        count::pause(HELD);
        given_back_ns.store(Timestamp::now().as_ns(), Ordering::Relaxed);
        set_lock(&held, libc::F_UNLCK);
        ended.read_exact(&mut [0]).expect("a pipe can be read");
    }
    drop(begin);
    let (times, over_ns, vain) = climber.join().expect("it does not panic");
    json!({ "rounds": rounds, "overslept": times, "over_ns": over_ns, "polls": vain })
}
