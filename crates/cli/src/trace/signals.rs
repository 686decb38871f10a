//! Signals that ask for an end, as something to be read.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use unherd_sys::Timestamp;

/// A second signal within this time is meant seriously. A command that takes Ctrl-C for something
/// else than its end, as a shell does, gets it more rarely.
const SERIOUSLY: Duration = Duration::from_secs(2);

/// The same signal again within this time is the same wish: timeout(1) signals its command and then
/// the group that this is in, and nobody presses a key twice as fast.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The signals that are caught.
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    last: Option<Last>,
    /// Those that were ignored, as [`ignored_signals`] has them: the terminal's still are.
    ignored: u64,
}

/// The signal before.
#[derive(Debug, Clone, Copy)]
struct Last {
    signal: i32,
    at: Timestamp,
}

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The terminal has sent it, to all of the foreground process group.
    ByTerminal(i32),
    /// Somebody has sent it to the tracer.
    PassOn(i32),
    /// It is the second within a short time.
    Again,
}

impl Signals {
    /// Catches those signals that are not ignored: what `nohup` set holds for the command too.
    ///
    /// Where there is no command, SIGINT and SIGQUIT are caught all the same: shells have them
    /// ignored in the background of a script, so that the terminal's do not end it, and those
    /// are left out; but who sends one to the tracer alone means it.
    pub(super) fn register(has_command: bool) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let ignored = ignored_signals();
        let caught = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter();
        let is_ignored = move |signal: i32| ignored >> (signal - 1) & 1 == 1;
        let is_for_terminals = |signal: i32| !has_command && matches!(signal, SIGINT | SIGQUIT);
        let caught = caught.filter(|signal| !is_ignored(*signal) || is_for_terminals(*signal));
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), caught)?;
        Ok(Self { delivery, last: None, ignored })
    }

    /// Readable when a signal has come.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// What has come.
    pub(super) fn take(&mut self) -> Vec<Told> {
        let now = Timestamp::now();
        let origins = self.delivery.pending();
        let is_heard = |signal: i32, cause: Cause| {
            self.ignored >> (signal - 1) & 1 == 0 || !matches!(cause, Cause::Kernel)
        };
        let heard = origins.filter(|origin| is_heard(origin.signal, origin.cause));
        let told = heard.map(|origin| meaning(origin.signal, origin.cause, &mut self.last, now));
        told.flatten().collect()
    }
}

/// What the signal says that has come `now`; nothing if it is the last one once more.
fn meaning(signal: i32, cause: Cause, last: &mut Option<Last>, now: Timestamp) -> Option<Told> {
    if let Some(last) = last {
        let since = now.since(last.at);
        match (since < AT_ONCE, last.signal == signal) {
            (true, true) => return None,
            // Who ends a program sends a row of different ones: SIGTERM and SIGHUP, say.
            (true, false) => {}
            (false, _) if since < SERIOUSLY => return Some(Told::Again),
            (false, _) => {}
        }
    }
    *last = Some(Last { signal, at: now });
    Some(match cause {
        // A hangup goes to the session's leader alone.
        Cause::Kernel if signal != SIGHUP => Told::ByTerminal(signal),
        _ => Told::PassOn(signal),
    })
}

/// A bit for each ignored signal, the first lowest.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What signals mean that come at these milliseconds.
    fn meanings(signals: &[(i32, Cause, u64)]) -> Vec<Option<Told>> {
        let mut last = None;
        let of = |&(signal, cause, at_ms): &(i32, Cause, u64)| {
            meaning(signal, cause, &mut last, Timestamp::from_ns(1_000_000 * (1 + at_ms)))
        };
        signals.iter().map(of).collect()
    }

    #[test]
    fn second_signal_kills_within_its_window() {
        let user = Cause::Sent(signal_hook::low_level::siginfo::Sent::User);
        let int = Some(Told::PassOn(SIGINT));
        assert_eq!(
            meanings(&[(SIGINT, Cause::Kernel, 0), (SIGINT, user, 3), (SIGINT, user, 600)]),
            [Some(Told::ByTerminal(SIGINT)), None, Some(Told::Again)]
        );
        assert_eq!(meanings(&[(SIGINT, user, 0), (SIGINT, user, 2_500)]), [int, int]);
        assert_eq!(
            meanings(&[(SIGTERM, user, 0), (SIGHUP, user, 0), (SIGTERM, user, 500)]),
            [Some(Told::PassOn(SIGTERM)), Some(Told::PassOn(SIGHUP)), Some(Told::Again)]
        );
        // One that is kept pressed is not put off for ever.
        let held: Vec<_> = (0..4).map(|n| (SIGINT, user, 40 * n)).collect();
        assert_eq!(meanings(&held), [int, None, None, Some(Told::Again)]);
    }
}
