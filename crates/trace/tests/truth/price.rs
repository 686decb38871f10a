//! What a program takes that does one thing over and over, by its own clock of CPU time.

use std::io::{Read, Write, pipe};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use unherd_sys::Futex;
use unherd_sys::primitives::thread;

use crate::count;

/// CPU time of the whole process so far.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn told(began_ns: u64) -> Value {
    let ended_ns = cpu_ns();
    json!({ "cpu_ns": ended_ns, "loop_cpu_ns": ended_ns - began_ns })
}

/// Calls that do next to nothing.
pub(crate) fn calls(times: usize) -> Value {
    let began_ns = cpu_ns();
    (0..times).for_each(|_| _ = rustix::process::getppid());
    told(began_ns)
}

/// Wakes of a futex for which nobody waits.
pub(crate) fn wakes(times: usize) -> Value {
    let (word, began_ns) = (Futex::new(0), cpu_ns());
    (0..times).for_each(|_| _ = word.wake(1));
    told(began_ns)
}

/// A byte that two threads on one processor hand each other: each sleeps until it comes.
pub(crate) fn trips(times: usize) -> Value {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    sched_setaffinity(None, &one).expect("it runs there");
    let (mut far_in, mut near_out) = pipe().expect("descriptors are left");
    let (mut near_in, mut far_out) = pipe().expect("descriptors are left");
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while far_in.read(&mut byte).expect("a pipe can be read") == 1 {
            far_out.write_all(&byte).expect("a pipe takes a byte");
        }
    });
    let (began_ns, mut byte) = (cpu_ns(), [0]);
    for _ in 0..times {
        near_out.write_all(&byte).expect("a pipe takes a byte");
        near_in.read_exact(&mut byte).expect("a pipe can be read");
    }
    drop(near_out);
    echo.join().expect("it does not panic");
    told(began_ns)
}

/// Sleeps with nothing between.
pub(crate) fn naps(times: usize) -> Value {
    let began_ns = cpu_ns();
    (0..times).for_each(|_| count::pause(Duration::from_micros(500)));
    told(began_ns)
}
