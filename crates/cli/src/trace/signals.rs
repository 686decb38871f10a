//! Signals that ask for an end, as something to be read.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use unherd_sys::Timestamp;

/// A second signal within this time is meant seriously. A command that takes Ctrl-C for something
/// else than its end, as a shell does, gets it more rarely.
const SERIOUSLY: Duration = Duration::from_secs(2);

/// The signals that are caught.
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    last: Option<Timestamp>,
}

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The terminal has sent it to the command too.
    CommandKnows,
    /// Somebody has sent it to the tracer.
    PassOn(i32),
    /// It is the second within a short time.
    Again,
}

impl Signals {
    /// Catches those signals that are not ignored: what `nohup` set holds for the command too.
    pub(super) fn register() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let ignored = ignored_signals();
        let caught = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|s| ignored >> (s - 1) & 1 == 0);
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), caught)?;
        Ok(Self { delivery, last: None })
    }

    /// Readable when a signal has come.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// What has come.
    pub(super) fn take(&mut self) -> Vec<Told> {
        let now = Timestamp::now();
        let origins: Vec<Origin> = self.delivery.pending().collect();
        let mut told = Vec::new();
        for origin in origins {
            let last = self.last.replace(now);
            told.push(meaning(&origin, last, now));
        }
        told
    }
}

fn meaning(origin: &Origin, last: Option<Timestamp>, now: Timestamp) -> Told {
    if last.is_some_and(|last| now.since(last) < SERIOUSLY) {
        return Told::Again;
    }
    match origin.cause {
        Cause::Kernel => Told::CommandKnows,
        _ => Told::PassOn(origin.signal),
    }
}

/// A bit for each ignored signal, the first lowest.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
