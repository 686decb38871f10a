//! One program run as a named step, with its time and, where it ran tests, their count.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// A program, what it is called in summaries, and what it needs in its environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    pub(crate) name: String,
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// How a step ended.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) succeeded: bool,
    pub(crate) elapsed: Duration,
    pub(crate) tests: Tests,
}

/// Tests by how they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tests {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Step {
    /// `cargo` with these arguments. It is the cargo that runs this program, if one does.
    pub(crate) fn cargo(name: impl Into<String>, arguments: &[&str]) -> Self {
        let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        Self { name: name.into(), program, ..Self::default() }.arguments(arguments)
    }

    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    pub(crate) fn environment(mut self, variable: &str, value: impl Into<String>) -> Self {
        self.environment.push((variable.to_owned(), value.into()));
        self
    }

    /// Runs the step in `root`, and passes its output on.
    pub(crate) fn run(&self, root: &Path) -> Result<Outcome, Failure> {
        self.announce();
        let watch = Stopwatch::start();
        let status = self.command(root).status().map_err(|error| self.not_started(&error))?;
        Ok(self.outcome(status, watch, Tests::default()))
    }

    /// Runs the step in `root`, passes its output on, and counts the tests that it tells of.
    pub(crate) fn run_tests(&self, root: &Path) -> Result<Outcome, Failure> {
        self.announce();
        let watch = Stopwatch::start();
        let mut child = self
            .command(root)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| self.not_started(&error))?;
        let mut tests = Tests::default();
        if let Some(output) = child.stdout.take() {
            // A line may be cut or not be text; it is passed on as well as can be.
            for line in lines(output) {
                println!("{line}");
                tests.add(&line);
            }
        }
        let status = child.wait().map_err(|error| self.not_started(&error))?;
        Ok(self.outcome(status, watch, tests))
    }

    /// Runs the step in `root`, passes on what it writes to standard error, and gives back what it
    /// prints.
    pub(crate) fn run_reading(&self, root: &Path) -> Result<(Outcome, String), Failure> {
        self.announce();
        let watch = Stopwatch::start();
        let output = self.command(root).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| self.not_started(&error))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((self.outcome(output.status, watch, Tests::default()), text))
    }

    /// Runs the step in `root` without showing what it prints, and gives that back.
    pub(crate) fn run_quietly(&self, root: &Path) -> Result<(bool, String), Failure> {
        let output = self.command(root).output().map_err(|error| self.not_started(&error))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
    }

    /// Runs the step in `root` as the last word of a command, in place of this process: its exit
    /// code is ours, and Ctrl-C ends no parent while it still prints. Returns only if it cannot be
    /// started.
    pub(crate) fn run_last(&self, root: &Path) -> Result<(), Failure> {
        Err(self.not_started(&self.command(root).exec()))
    }

    /// A step that runs a program which this repository has built.
    pub(crate) fn program(name: impl Into<String>, program: &Path) -> Self {
        let program = program.display().to_string();
        Self { name: name.into(), program, ..Self::default() }
    }

    fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(root);
        command.envs(self.environment.iter().map(|(variable, value)| (variable, value)));
        command
    }

    fn announce(&self) {
        println!("\n== {} ==", self.name);
    }

    fn not_started(&self, error: &std::io::Error) -> Failure {
        Failure::Usage(format!("cannot run `{}` for `{}`: {error}", self.program, self.name))
    }

    fn outcome(&self, status: ExitStatus, watch: Stopwatch, tests: Tests) -> Outcome {
        let succeeded = status.success();
        Outcome { name: self.name.clone(), succeeded, elapsed: watch.elapsed(), tests }
    }
}

impl Tests {
    /// Adds what a line of the test harness tells: "test result: ok. 3 passed; 0 failed; …".
    fn add(&mut self, line: &str) {
        let Some((_, counts)) =
            line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

fn lines(output: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(output)
        .split(b'\n')
        .map_while(Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// The time that a step took, shown to people and used for nothing else.
struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "xtask uses no crate of ours, so no Clock")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_over_lines() {
        let mut tests = Tests::default();
        tests.add("running 3 tests");
        tests.add("test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        tests.add("test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured");
        tests.add("test a::test result: ok. 9 passed; ... ok");
        assert_eq!(tests, Tests { passed: 3, failed: 4, ignored: 1 });
    }
}
