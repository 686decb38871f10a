//! Timed sleeps after each of which something is done, or nothing but a look.

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::time::Duration;

use rustix::thread::nanosleep;
use rustix::time::Timespec;
use serde_json::{Value, json};
use unherd_sys::Timestamp;
use unherd_sys::primitives::{Arc, Mutex, thread};
use unherd_sys::primitives::{AtomicBool, Ordering};

use crate::count::{self, Looks};
use crate::monitor::Monitor;

const TICK: Duration = Duration::from_millis(1);
/// The same.
const TIMESPEC: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// At each tick hands a worker something to do. Counts the ticks at which it was not waiting yet.
pub(crate) fn produce(ticks: usize) -> Value {
    let monitor = Arc::new(Monitor::new());
    let worker = Arc::clone(&monitor);
    let worker = thread::spawn(move || worker.take_all());
    let mut unheard = 0;
    for _ in 0..ticks {
        count::pause(TICK);
        unheard += u64::from(!monitor.give());
    }
    monitor.close();
    let taken = worker.join().expect("the worker does not panic");
    json!({ "ticks": ticks, "taken": taken, "unheard": unheard })
}

/// Workers at a queue, of which each pauses for each item that it takes. Counts the pauses before
/// which the worker has not slept for an item, so that it went from pause to pause.
pub(crate) fn serve(workers: usize, items: usize) -> Value {
    let monitor = Arc::new(Monitor::new());
    let worker = |_| {
        let monitor = Arc::clone(&monitor);
        thread::spawn(move || {
            let (mut unasked, mut sleeps) = (0, None);
            let taken = monitor.take_each(|| {
                unasked += u64::from(sleeps == Some(count::sleeps()));
                count::pause(TICK);
                sleeps = Some(count::sleeps());
            });
            (taken, unasked)
        })
    };
    let workers: Vec<_> = (0..workers).map(worker).collect();
    for _ in 0..items {
        // The workers are back by then, and asleep.
        count::pause(2 * TICK);
        monitor.give();
    }
    monitor.close();
    let counts = workers.into_iter().map(|of| of.join().expect("it does not panic"));
    let (taken, unasked) = counts.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    json!({ "taken": taken, "unasked": unasked })
}

/// Looks at a flag under a mutex that nobody else takes.
pub(crate) fn peek(ticks: usize) -> Value {
    let flag = Mutex::new(false);
    let mut counted = Looks::default();
    for _ in 0..ticks {
        count::pause(TICK);
        counted.pause_ended();
        assert!(!*flag.lock());
    }
    json!({ "looks": ticks, "certain": counted.certain() })
}

/// Sleeps with a lock held, for which another thread waits meanwhile.
pub(crate) fn guard(ticks: usize) -> Value {
    let lock = Arc::new(Mutex::new(()));
    let flags: [_; 3] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
    let [ended, waits, is_held] = flags.clone();
    let other = Arc::clone(&lock);
    let other = thread::spawn(move || {
        let [ended, waits, is_held] = flags;
        while !ended.load(Ordering::Relaxed) {
            if is_held.load(Ordering::Relaxed) {
                waits.store(true, Ordering::Relaxed);
                let held = other.lock();
                waits.store(false, Ordering::Relaxed);
                drop(held);
            }
            thread::yield_now();
        }
    });
    let mut unheard = 0;
    for _ in 0..ticks {
        let held = lock.lock();
        is_held.store(true, Ordering::Relaxed);
        count::pause(TICK);
        is_held.store(false, Ordering::Relaxed);
        unheard += u64::from(!waits.load(Ordering::Relaxed));
        drop(held);
    }
    ended.store(true, Ordering::Relaxed);
    other.join().expect("it does not panic");
    json!({ "ticks": ticks, "unheard": unheard })
}

/// Threads that contend for one lock, which each holds `rounds` times for a tick or longer: asleep,
/// in as many pauses as `naps`, or, if that is 0, computing.
pub(crate) fn hold(threads: usize, rounds: usize, naps: usize) -> Value {
    let lock = Arc::new(Mutex::new((Duration::ZERO, Duration::ZERO)));
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || (0..rounds).for_each(|_| hold_once(&lock, naps)))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    let (held, asleep) = *lock.lock();
    json!({ "asleep_percent": (asleep.as_nanos() * 100 / held.as_nanos()) as u64 })
}

#[inline(never)]
fn hold_once(lock: &Mutex<(Duration, Duration)>, naps: usize) {
    let mut times = lock.lock();
    let began = Timestamp::now();
    if naps == 0 {
        compute_for_a_tick();
    }
    for _ in 0..naps {
        // Not by the clock, which goes on while it waits for a processor.
        count::pause(TICK / naps as u32);
        times.1 += TICK / naps as u32;
    }
    times.0 += Timestamp::now().since(began);
}

/// To ask for the time takes no system call.
fn compute_for_a_tick() {
    let began = Timestamp::now();
    while Timestamp::now().since(began) < TICK {
        (0..10_000u64).for_each(|n| _ = black_box(n));
    }
}

/// Computes for a tick after each pause.
pub(crate) fn compute(ticks: usize) -> Value {
    for _ in 0..ticks {
        count::pause(TICK);
        compute_for_a_tick();
    }
    json!({ "ticks": ticks, "unheard": 0 })
}

/// Looks for a file that does not come, or what `/proc` says.
pub(crate) fn look(ticks: usize, at_proc: bool) -> Value {
    let mut counted = Looks::default();
    for _ in 0..ticks {
        count::pause(TICK);
        counted.pause_ended();
        if at_proc {
            assert!(!fs::read("/proc/self/stat").expect("/proc is there").is_empty());
        } else {
            assert!(fs::metadata("/proc/self/no-such-file").is_err());
            assert!(fs::metadata("/").is_ok());
        }
    }
    json!({ "looks": ticks, "certain": counted.certain() })
}

/// Sleeps `early` times in one function and then `late` times in another.
pub(crate) fn sites(early: usize, late: usize) -> Value {
    early_site(early);
    late_site(late);
    json!({ "early": early, "late": late })
}

/// Looks `looks` times, beside a thread that sleeps in the same call more often, and does something
/// after each sleep.
pub(crate) fn beside(looks: usize, paces: usize) -> Value {
    let file = fs::File::options().write(true).open("/dev/null").expect("it is there");
    let pacer = thread::spawn(move || pacing_site(&file, paces));
    let certain = looking_site(looks);
    pacer.join().expect("it does not panic");
    json!({ "looks": looks, "certain": certain })
}

#[inline(never)]
fn looking_site(times: usize) -> usize {
    let mut counted = Looks::default();
    for _ in 0..times {
        _ = nanosleep(&TIMESPEC);
        counted.pause_ended();
    }
    black_box(counted.certain())
}

#[inline(never)]
fn pacing_site(mut file: &fs::File, times: usize) {
    for _ in 0..times {
        _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: 100_000 });
        _ = black_box(file.write(b"x"));
    }
}

// What each returns keeps the compiler from making one of both.

#[inline(never)]
fn early_site(times: usize) -> u64 {
    (0..times).for_each(|_| _ = nanosleep(&TIMESPEC));
    black_box(1)
}

#[inline(never)]
fn late_site(times: usize) -> u64 {
    (0..times).for_each(|_| _ = nanosleep(&TIMESPEC));
    black_box(2)
}
