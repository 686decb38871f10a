//! What waste and being traced cost on this machine: prices, measured by the tracer's own threads.

use std::io::{self, Read, Write};

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use unherd_sys::primitives::thread;
use unherd_sys::{Futex, Timestamp};

use crate::observation::AddedPrices;

/// Measurements of each; the first decile counts: what it takes on this machine while nobody else
/// uses it, whatever else uses it now.
const ROUNDS: usize = 301;
/// Calls that are timed together, being shorter than the clock is exact.
const CALLS: u64 = 32;

/// In nanoseconds of one processor that does nothing else meanwhile, so of its CPU time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prices {
    /// Two threads on one processor wake each other, and each sleeps: two sleeps, two wakeups.
    pub(crate) round_trip_ns: u64,
    /// A futex call that returns at once.
    pub(crate) futex_call_ns: u64,
    /// A call that does next to nothing.
    pub(crate) call_ns: u64,
}

/// The system calls of a round trip: each thread reads and writes.
const CALLS_OF_ROUND_TRIP: u64 = 4;
/// And its context switches: a thread may be preempted by the one that it wakes, before it sleeps.
const SWITCHES_OF_ROUND_TRIP: u64 = 2;

impl Prices {
    pub(crate) fn measure() -> io::Result<Self> {
        let word = Futex::new(0);
        Ok(Self {
            round_trip_ns: round_trip_ns()?,
            futex_call_ns: repeated_ns(|| _ = word.wake(1)),
            call_ns: repeated_ns(|| _ = rustix::process::getppid()),
        })
    }

    /// The lower of both: others may have used the machine during one measurement.
    pub(crate) fn least(self, other: Self) -> Self {
        Self {
            round_trip_ns: self.round_trip_ns.min(other.round_trip_ns),
            futex_call_ns: self.futex_call_ns.min(other.futex_call_ns),
            call_ns: self.call_ns.min(other.call_ns),
        }
    }

    /// What being traced adds, from the prices of threads that are.
    pub(crate) fn added(self, traced: Self) -> AddedPrices {
        let call_ns = traced.call_ns.saturating_sub(self.call_ns);
        let trip_ns = traced.round_trip_ns.saturating_sub(self.round_trip_ns);
        AddedPrices {
            call_ns,
            futex_call_ns: traced.futex_call_ns.saturating_sub(self.futex_call_ns),
            sleep_ns: trip_ns.saturating_sub(CALLS_OF_ROUND_TRIP * call_ns)
                / SWITCHES_OF_ROUND_TRIP,
        }
    }
}

fn first_decile(mut times_ns: Vec<u64>) -> u64 {
    times_ns.sort_unstable();
    times_ns[times_ns.len() / 10]
}

/// Through two pipes. On two processors the time to wake the other one up would be counted, which
/// in a virtual machine is ten times as long, and is nobody's work.
fn round_trip_ns() -> io::Result<u64> {
    let (mut far_in, mut near_out) = io::pipe()?;
    let (mut near_in, mut far_out) = io::pipe()?;
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    let echo = thread::spawn(move || -> io::Result<()> {
        sched_setaffinity(None, &one)?;
        let mut byte = [0];
        while far_in.read(&mut byte)? == 1 {
            far_out.write_all(&byte)?;
        }
        Ok(())
    });
    // In a thread of its own too: the caller keeps its processors.
    let caller = thread::spawn(move || -> io::Result<Vec<u64>> {
        sched_setaffinity(None, &one)?;
        let mut byte = [0];
        let trip = |_| {
            let began = Timestamp::now();
            near_out.write_all(&byte)?;
            near_in.read_exact(&mut byte)?;
            Ok(Timestamp::now().as_ns() - began.as_ns())
        };
        (0..ROUNDS).map(trip).collect()
    });
    // Neither can panic; the echo ends with its pipe.
    let gone = |_| io::Error::other("a thread that measured has panicked");
    let times_ns = caller.join().map_err(gone)?;
    echo.join().map_err(gone)??;
    times_ns.map(first_decile)
}

fn repeated_ns(call: impl Fn()) -> u64 {
    let calls = |_| {
        let began = Timestamp::now();
        (0..CALLS).for_each(|_| call());
        (Timestamp::now().as_ns() - began.as_ns()) / CALLS
    };
    first_decile((0..ROUNDS).map(calls).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_outlasts_a_call() {
        let Prices { round_trip_ns, futex_call_ns, .. } = Prices::measure().unwrap();
        assert!(
            0 < futex_call_ns && futex_call_ns < round_trip_ns,
            "{futex_call_ns} {round_trip_ns}"
        );
    }

    #[test]
    fn added_prices_are_differences() {
        let bare = Prices { round_trip_ns: 5_000, futex_call_ns: 300, call_ns: 100 };
        let traced = Prices { round_trip_ns: 7_800, futex_call_ns: 900, call_ns: 300 };
        let added = AddedPrices { call_ns: 200, futex_call_ns: 600, sleep_ns: 1_000 };
        assert_eq!(bare.added(traced), added);
        assert_eq!(traced.added(bare), AddedPrices::default(), "a busy machine gives no price");
    }

    #[test]
    fn the_caller_keeps_its_processors() {
        let allowed = || rustix::thread::sched_getaffinity(None).unwrap();
        let before = allowed();
        Prices::measure().unwrap();
        assert_eq!(allowed(), before);
    }
}
