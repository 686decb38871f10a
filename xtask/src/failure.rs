//! How a command of `x` ends when it does not succeed.

use std::fmt;

/// One line that says what, and what to do about it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was checked or run has failed: exit code 1.
    Failed(String),
    /// The command line or the machine does not allow it: exit code 2.
    Usage(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(what) | Self::Usage(what) => f.write_str(what),
        }
    }
}
