//! Exit codes: the command's, a budget's, our own.

use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use signal_hook::consts::SIGINT;
use signal_hook::low_level::signal_name;
use unherd_lab::absence_advice;
use unherd_trace::{SessionError, TraceError};

use crate::output::Failure;

/// The command was found and cannot be run.
const CANNOT_RUN: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

/// How to exit after the command ended with `status`.
pub(super) fn exit_code(status: Option<ExitStatus>, is_within_budgets: bool) -> ExitCode {
    match code(status) {
        0 if !is_within_budgets => ExitCode::FAILURE,
        code => ExitCode::from(code),
    }
}

/// As a shell has it: the exit code, or 128 and the signal's number.
fn code(status: Option<ExitStatus>) -> u8 {
    let Some(status) = status else { return 0 };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// That a signal killed the command, which its exit code alone hardly tells. Who presses Ctrl-C
/// knows.
pub(super) fn death(status: Option<ExitStatus>) -> Option<String> {
    let status = status?;
    let signal = status.signal().filter(|signal| *signal != SIGINT)?;
    let name = signal_name(signal).map_or_else(String::new, |name| format!(" ({name})"));
    let core = if status.core_dumped() { "; it has left a core dump" } else { "" };
    Some(format!("the command was killed by signal {signal}{name}{core}"))
}

/// What a session's error means to the caller.
pub(super) fn failure(error: SessionError) -> Failure {
    match &error {
        SessionError::Spawn { program, source } => {
            let code = if source.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
            let advice = spawn_advice(program, source);
            Failure::WithCode { line: format!("{error}; {advice}"), code }
        }
        SessionError::Trace(TraceError::NotPermitted | TraceError::NoBtf | TraceError::TooOld) => {
            Failure::tracing(format!(
                "{error}; --unprivileged tells of one's own processes what it can without"
            ))
        }
        _ => Failure::tracing(error.to_string()),
    }
}

/// What to do about a command that cannot be started.
pub(crate) fn spawn_advice(program: &str, source: &io::Error) -> &'static str {
    absence_advice(program, None, source).unwrap_or("name a program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_as_shells_have_them() {
        let ended = |raw| code(Some(ExitStatus::from_raw(raw)));
        assert_eq!(ended(0), 0);
        assert_eq!(ended(7 << 8), 7);
        assert_eq!(ended(255 << 8), 255);
        assert_eq!(ended(9), 137);
        assert_eq!(code(None), 0);
    }

    #[test]
    fn deaths_by_signal_are_told() {
        let of = |raw| death(Some(ExitStatus::from_raw(raw)));
        assert_eq!(of(11).as_deref(), Some("the command was killed by signal 11 (SIGSEGV)"));
        assert!(of(6 | 0x80).unwrap().ends_with("(SIGABRT); it has left a core dump"));
        assert_eq!((of(0), of(7 << 8), of(SIGINT)), (None, None, None));
    }
}
