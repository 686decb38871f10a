//! Exit codes: the command's, a budget's, our own.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

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

/// What a session's error means to the caller.
pub(super) fn failure(error: SessionError) -> Failure {
    match &error {
        SessionError::Spawn { source, .. } => {
            let code = if source.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
            Failure::Trace { line: error.to_string(), code }
        }
        SessionError::Trace(TraceError::NotPermitted | TraceError::NoBtf) => Failure::tracing(
            format!("{error}; --unprivileged tells of one's own processes what it can without"),
        ),
        _ => Failure::tracing(error.to_string()),
    }
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
}
