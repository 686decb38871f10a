//! What is below the pool: a device inside the process (a bandwidth, a latency, and stalls), or
//! direct I/O on a file.

mod file;

use std::time::Duration;

use unherd::Timestamp;
use unherd_sys::primitives::Mutex;

use super::pool::FRAME_BYTES;
use crate::congestion::sleep_until;
use crate::{Job, LoadError};
use file::DeviceFile;

#[derive(Debug)]
pub(super) enum Device {
    Simulated(Simulated),
    Real(DeviceFile),
}

impl Device {
    /// 400 MB/s, and stalls.
    pub(super) fn fast() -> Self {
        let stalls =
            Stalls { period: Duration::from_millis(600), length: Duration::from_millis(150) };
        Self::Simulated(Simulated::new(400_000, Duration::from_micros(100), Some(stalls)))
    }

    /// 60 MB/s.
    pub(super) fn steady() -> Self {
        Self::Simulated(Simulated::new(60_000, Duration::from_millis(1), None))
    }

    /// The one below the job's directory, for writes of up to `batch` frames.
    pub(super) fn real(job: &Job, batch: usize) -> Result<Self, LoadError> {
        DeviceFile::create(job, batch).map(Self::Real)
    }

    /// Writes as many frames. Sleeps until that is done.
    pub(super) fn write(&self, frames: usize) {
        match self {
            Self::Simulated(device) => device.transfer(frames as u64 * FRAME_BYTES),
            Self::Real(file) => file.write(frames),
        }
    }

    /// Reads one frame. Sleeps until that is done.
    pub(super) fn read(&self) {
        match self {
            Self::Simulated(device) => device.transfer(FRAME_BYTES),
            Self::Real(file) => file.read(),
        }
    }

    /// The first transfer that failed.
    pub(super) fn failed(&self) -> Result<(), LoadError> {
        match self {
            Self::Simulated(_) => Ok(()),
            Self::Real(file) => file.failed(),
        }
    }
}

/// Transfers take their turn at the bandwidth, and each its latency beside the others'.
#[derive(Debug)]
pub(super) struct Simulated {
    bytes_per_ms: u64,
    latency: Duration,
    stalls: Option<Stalls>,
    begun: Timestamp,
    /// When all that it was given has passed.
    busy_until: Mutex<Timestamp>,
}

/// The device does nothing for `length`, at the end of each `period`.
#[derive(Debug, Clone, Copy)]
struct Stalls {
    period: Duration,
    length: Duration,
}

impl Simulated {
    fn new(bytes_per_ms: u64, latency: Duration, stalls: Option<Stalls>) -> Self {
        let begun = Timestamp::now();
        Self { bytes_per_ms, latency, stalls, begun, busy_until: Mutex::new(begun) }
    }

    /// Moves as many bytes. Sleeps until that is done.
    fn transfer(&self, bytes: u64) {
        let mut busy_until = self.busy_until.lock();
        let start = self.after_stall(busy_until.max(Timestamp::now()));
        let end = start.after(Duration::from_nanos(bytes * 1_000_000 / self.bytes_per_ms));
        *busy_until = end;
        drop(busy_until);
        sleep_until(end.after(self.latency));
    }

    /// When a transfer that is ready at `at` can begin.
    fn after_stall(&self, at: Timestamp) -> Timestamp {
        let Some(stalls) = self.stalls else { return at };
        let (period, length) = (stalls.period.as_nanos() as u64, stalls.length.as_nanos() as u64);
        let phase = at.since(self.begun).as_nanos() as u64 % period;
        if phase < period - length { at } else { at.after(Duration::from_nanos(period - phase)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_end_with_their_period() {
        let Device::Simulated(device) = Device::fast() else { unreachable!("it is simulated") };
        let at = |ms| device.begun.after(Duration::from_millis(ms));
        assert_eq!(device.after_stall(at(449)), at(449));
        assert_eq!(device.after_stall(at(450)), at(600));
        assert_eq!(device.after_stall(at(1199)), at(1200));
        let Device::Simulated(steady) = Device::steady() else { unreachable!("it is simulated") };
        assert_eq!(steady.after_stall(at(500)), at(500));
    }
}
