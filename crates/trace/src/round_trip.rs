//! How long it takes to give the processor away and get it back on this machine.

use std::io::{self, Read, Write};

use unherd_sys::Timestamp;
use unherd_sys::primitives::thread;

/// Rounds that are timed. The first decile counts: what a switch takes on this machine while
/// nobody else uses it, whoever else uses it now.
const ROUNDS: usize = 301;

/// The time of a round trip between two threads through two pipes, in nanoseconds: each wakes the
/// other and sleeps. Whoever sleeps for less would have done better to stay awake.
pub(crate) fn measure_ns() -> io::Result<u64> {
    let (mut far_in, mut near_out) = io::pipe()?;
    let (mut near_in, mut far_out) = io::pipe()?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while let Ok(1) = far_in.read(&mut byte) {
            if far_out.write_all(&byte).is_err() {
                return;
            }
        }
    });
    let mut times_ns = Vec::with_capacity(ROUNDS);
    let mut byte = [0];
    for _ in 0..ROUNDS {
        let began = Timestamp::now();
        near_out.write_all(&byte)?;
        near_in.read_exact(&mut byte)?;
        times_ns.push(Timestamp::now().as_ns() - began.as_ns());
    }
    drop(near_out);
    // The echo ends with its pipe, and cannot panic.
    let _ended = echo.join();
    times_ns.sort_unstable();
    Ok(times_ns[ROUNDS / 10])
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_round_trip_takes_some_time() {
        assert!(super::measure_ns().unwrap() > 0);
    }
}
