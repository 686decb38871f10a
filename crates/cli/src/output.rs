//! Standard output and standard error: results whole or not at all, errors in one line.

use std::error::Error as _;
use std::io::{self, Write};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use unherd_lab::{Error, printable};

/// The exit code of commands that pass on the codes of others, where they fail themselves.
const FAILED: u8 = 125;

/// Why the command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The lab says why.
    Lab(Error),
    /// The command line is wrong.
    Usage(String),
    /// What was run did not hold what it should.
    Unmet(String),
    /// A file cannot be written.
    NotWritten(String),
    /// Standard output cannot be written.
    Output(io::Error),
    /// `trace` and `prove` have exit codes of their own.
    WithCode {
        /// What, and what to do.
        line: String,
        /// The code.
        code: u8,
    },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lab(error)
    }
}

impl Failure {
    pub(crate) fn usage(what: &str, advice: &str) -> Self {
        Self::Usage(format!("{what}; {advice}"))
    }

    /// Tracing failed, or what `prove` needs besides.
    pub(crate) fn tracing(line: String) -> Self {
        Self::WithCode { line, code: FAILED }
    }

    /// Whether the command line is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Lab(error) => error.is_usage(),
            _ => false,
        }
    }

    /// Reports it for `trace`, whose exit codes up to 124 are the command's; for `compare`, whose
    /// exit code 1 says that something is surely worse, and nothing else, and of which `git bisect
    /// run` passes over 125 alone; and for `prove`, where 1 says that the cure breaks the program.
    pub(crate) fn report_as_125(self, is_verbose: bool) -> ExitCode {
        let keeps_its_code = match &self {
            Self::Unmet(_) | Self::WithCode { .. } => true,
            Self::Lab(error) => error.is_interrupt(),
            _ => false,
        };
        let code = self.report(is_verbose);
        if keeps_its_code { code } else { ExitCode::from(FAILED) }
    }

    /// Writes the one line, then what belongs to it, and gives the exit code.
    pub(crate) fn report(self, is_verbose: bool) -> ExitCode {
        let mut text = String::new();
        let code = match &self {
            Self::Output(error) => {
                text = format!("standard output: {error}; redirect it to where there is room");
                1
            }
            Self::Usage(line) => {
                text.clone_from(line);
                2
            }
            Self::WithCode { line, code } => {
                text.clone_from(line);
                *code
            }
            Self::Unmet(line) | Self::NotWritten(line) => {
                text.clone_from(line);
                1
            }
            Self::Lab(error) => {
                text.push_str(&error.to_string());
                if is_verbose {
                    let mut cause = error.source();
                    while let Some(error) = cause {
                        text.push_str(&format!("\n  because: {error}"));
                        cause = error.source();
                    }
                }
                if let Some(output) = error.child_output() {
                    for line in output.lines() {
                        text.push_str(&format!("\n  | {line}"));
                    }
                }
                error.exit_code()
            }
        };
        note(&text);
        ExitCode::from(code)
    }
}

/// Writes a result to standard output. A reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

/// Writes one line to standard error. It is the last resort: where it is closed, the exit code must
/// do.
pub(crate) fn note(line: &str) {
    let _ = StandardError.write_all(format!("unherd: {}\n", printable(line)).as_bytes());
}

/// Standard error, that waits for its reader where somebody who shares it has made it non-blocking.
#[derive(Debug)]
pub(crate) struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        loop {
            match stderr.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // It returns where the reader has gone, too, which the next write tells.
                    match poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
