//! Threads that are woken together, or in quick succession, and have work to do each time: nothing
//! is needless.
#![expect(unsafe_code, reason = "std's barrier is not the C library's")]

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::mem::MaybeUninit;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use unherd_sys::primitives::{Arc, thread};

use crate::monitor::Monitor;

/// Computes for about a millisecond of CPU time.
fn work() {
    let millisecond = 1_000_000;
    let began = cpu_ns();
    while cpu_ns() - began < millisecond {
        (0..20_000u64).for_each(|n| _ = black_box(n));
    }
}

/// The calling thread's CPU time.
fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

struct Barrier(UnsafeCell<MaybeUninit<libc::pthread_barrier_t>>);

// SAFETY: the C object is made for several threads.
unsafe impl Send for Barrier {}
// SAFETY: as above.
unsafe impl Sync for Barrier {}

/// `threads` threads meet `rounds` times, and compute in between.
pub(crate) fn meet(threads: usize, rounds: usize) -> Value {
    let barrier = Arc::new(Barrier(UnsafeCell::new(MaybeUninit::uninit())));
    let count = u32::try_from(threads).expect("a small number");
    let at = barrier.0.get().cast();
    // SAFETY: no thread uses it yet, and it stays where it is.
    let made = unsafe { libc::pthread_barrier_init(at, std::ptr::null(), count) };
    assert_eq!(made, 0, "pthread_barrier_init");
    let spawn = |_| {
        let barrier = Arc::clone(&barrier);
        thread::spawn(move || {
            for _ in 0..rounds {
                work();
                // SAFETY: it is initialized, and lives for as long as this reference.
                unsafe { libc::pthread_barrier_wait(barrier.0.get().cast()) };
            }
        })
    };
    let threads: Vec<_> = (0..threads).map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    json!({ "rounds": rounds, "needless": 0 })
}

/// `workers` threads share `items` pieces of work, which are handed out two at a time by a signal
/// each.
pub(crate) fn share_work(workers: usize, items: usize) -> Value {
    let monitor = Arc::new(Monitor::new());
    let spawn = |_| {
        let monitor = Arc::clone(&monitor);
        thread::spawn(move || monitor.take_each(work))
    };
    let workers: Vec<_> = (0..workers).map(spawn).collect();
    for _ in 0..items / 2 {
        monitor.give();
        monitor.give();
        crate::count::pause(std::time::Duration::from_millis(2));
    }
    monitor.close();
    let taken: u64 = workers.into_iter().map(|of| of.join().expect("it does not panic")).sum();
    json!({ "taken": taken, "needless": 0 })
}
