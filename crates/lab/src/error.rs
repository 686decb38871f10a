//! What can go wrong, as one line each: what it is, and what to do about it.

use std::path::{Path, PathBuf};

/// The exit code after an interrupt: 128 and SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a bench could not be run, or what it found broken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that nothing has.
    #[error("no {kind} is called '{name}'; {advice}")]
    UnknownName {
        /// What was to be named: workload, implementation, metric, option.
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The nearest name there is, or all of them.
        advice: String,
    },
    /// The command line asks for what cannot be.
    #[error("{what}; {advice}")]
    Usage {
        /// What is wrong.
        what: String,
        /// What to do.
        advice: String,
    },
    /// Fewer rounds than the statistics can say anything about.
    #[error(
        "too few rounds ({rounds}) to tell {cells} comparison{} apart; give --rounds {needed} or \
         more, or leave it out", if *cells == 1 { "" } else { "s" }
    )]
    TooFewRounds {
        /// What was asked for.
        rounds: usize,
        /// How many comparisons are judged together.
        cells: usize,
        /// How many rounds that takes.
        needed: usize,
    },
    /// The machine does not allow it.
    #[error("{what}: {source}; {advice}")]
    Machine {
        /// What was tried.
        what: String,
        /// What to do.
        advice: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A runner said that the command line or the machine does not allow the round.
    #[error("{line}")]
    Refused {
        /// The runner's own line.
        line: String,
    },
    /// A runner's catalogue cannot be used.
    #[error("{} load --describe: {what}; build it again, or leave it out", runner.display())]
    Catalogue {
        /// The executable.
        runner: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A round crashed, hung or printed nonsense.
    #[error(
        "round {round} of {label}: {what}{}; `{resume}` goes on with what has finished",
        below(stderr)
    )]
    Round {
        /// Which round.
        round: usize,
        /// Whose.
        label: String,
        /// What happened.
        what: String,
        /// What it wrote to standard error.
        stderr: String,
        /// The command that goes on.
        resume: String,
    },
    /// A command failed before the rounds.
    #[error("the first run of {label}{at}: {how}{}", below(output))]
    FirstRun {
        /// Which.
        label: String,
        /// At which point of a sweep.
        at: String,
        /// How it ended, or what is wrong with what it printed.
        how: String,
        /// What it wrote.
        output: String,
    },
    /// The commands should print the same, and do not, in their first runs.
    #[error("{a} and {b} print different outputs{at}; see what they print, or leave out --check")]
    DifferentOutputs {
        /// The one.
        a: String,
        /// The other.
        b: String,
        /// At which point of a sweep.
        at: String,
    },
    /// A command beside the rounds failed: a build, git.
    #[error("{what}: {how}{}", below_or_by_hand(output))]
    Step {
        /// What was run.
        what: String,
        /// How it ended.
        how: String,
        /// What it wrote.
        output: String,
    },
    /// The implementations did different work.
    #[error(
        "round {round}: {what}; their figures cannot be compared, the records are in {}",
        records.display()
    )]
    Disagreement {
        /// Which round.
        round: usize,
        /// Who disagrees, and on what.
        what: String,
        /// Where the finished rounds are.
        records: PathBuf,
    },
    /// A record could not be written or read.
    #[error("{}: {what}: {source}; {advice}", path.display())]
    Record {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What to do.
        advice: String,
        /// What the kernel said.
        source: std::io::Error,
        /// Whether anything had been measured by then.
        begun: bool,
    },
    /// A kept record or a file of claims does not hold what it should.
    #[error("{}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Somebody asked for an end.
    #[error(
        "interrupted after {finished}; go on by `{resume}`{}", shown_again(report.as_deref())
    )]
    Interrupted {
        /// How many rounds were finished, in words.
        finished: String,
        /// The command that goes on.
        resume: String,
        /// The command that judges what there is again, where a process has finished.
        report: Option<String>,
    },
    /// The same, outside of a round.
    #[error("{what}: interrupted")]
    InterruptedStep {
        /// What was being done.
        what: String,
    },
    /// What ended the rounds early, where some have been judged.
    #[error("{error}; `{resume}` goes on with what has finished")]
    EndedEarly {
        /// What it was.
        error: Box<Error>,
        /// The command that goes on.
        resume: String,
    },
}

impl Error {
    /// 2 where the command line or the machine does not allow what was asked, 1 where what was
    /// measured failed, 130 after an interrupt, as shells have it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::EndedEarly { error, .. } => error.exit_code(),
            Self::UnknownName { .. }
            | Self::Usage { .. }
            | Self::TooFewRounds { .. }
            | Self::Machine { .. }
            | Self::Refused { .. }
            | Self::Catalogue { .. }
            | Self::Malformed { .. }
            | Self::DifferentOutputs { .. }
            | Self::Record { begun: false, .. } => 2,
            Self::Round { .. }
            | Self::Step { .. }
            | Self::FirstRun { .. }
            | Self::Disagreement { .. }
            | Self::Record { begun: true, .. } => 1,
            Self::Interrupted { .. } | Self::InterruptedStep { .. } => INTERRUPTED,
        }
    }

    /// Whether its own line tells where the record in `directory` is.
    pub(crate) fn names_record(&self, directory: &Path) -> bool {
        match self {
            Self::Round { .. }
            | Self::Interrupted { .. }
            | Self::Disagreement { .. }
            | Self::EndedEarly { .. } => true,
            Self::Record { path, .. } | Self::Malformed { path, .. } => path.starts_with(directory),
            _ => false,
        }
    }

    /// In short, as a mark of what was measured all the same.
    pub(crate) fn mark(&self) -> String {
        match self {
            Self::Round { round, label, what, .. } => format!("round {round} of {label}: {what}"),
            Self::Step { what, how, .. } => format!("{what}: {how}"),
            Self::Interrupted { finished, .. } => format!("interrupted after {finished}"),
            error => error.to_string(),
        }
    }

    /// Whether the command line is wrong.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::UnknownName { .. } | Self::Usage { .. } | Self::TooFewRounds { .. })
    }

    /// Whether somebody asked for an end.
    pub const fn is_interrupt(&self) -> bool {
        matches!(self, Self::Interrupted { .. } | Self::InterruptedStep { .. })
    }

    /// What the measured process wrote to standard error before it failed, if this is about one.
    pub fn child_output(&self) -> Option<&str> {
        match self {
            Self::EndedEarly { error, .. } => error.child_output(),
            Self::Round { stderr: output, .. }
            | Self::Step { output, .. }
            | Self::FirstRun { output, .. }
                if !output.trim().is_empty() =>
            {
                Some(output)
            }
            _ => None,
        }
    }

    pub(crate) fn usage(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), advice: advice.into() }
    }

    /// An error that says how a share was understood, for `1` is easily taken for 1 %.
    pub(crate) fn share_out_of_range(option: &str, share: f64, example: &str) -> Self {
        let percent = (1e4 * share).round() / 1e2;
        Self::usage(
            format!("{option} is out of range, for {share} means {percent} %"),
            format!("give a share such as {example}"),
        )
    }

    pub(crate) fn machine(
        what: impl Into<String>,
        advice: impl Into<String>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self::Machine { what: what.into(), advice: advice.into(), source: source.into() }
    }

    pub(crate) fn no_record(directory: &Path, advice: &str) -> Self {
        Self::usage(format!("{} is not the directory of a record", directory.display()), advice)
    }

    pub(crate) fn malformed(path: &Path, what: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), what: what.into() }
    }

    /// An unknown name, with the nearest of `known` or, where none is near, all of them.
    pub fn unknown<'a>(
        kind: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let advice = match nearest(name, &known) {
            Some(near) => format!("did you mean '{near}'?"),
            None if known.is_empty() => "there is none".to_owned(),
            None => format!("there are: {}", known.join(", ")),
        };
        Self::UnknownName { kind, name: name.to_owned(), advice }
    }
}

/// What is said of an output that is shown, if there is any.
fn below(output: &str) -> &'static str {
    if output.trim().is_empty() { "" } else { "; its output is below" }
}

/// The same, or how to see more.
fn below_or_by_hand(output: &str) -> &'static str {
    match below(output) {
        "" => "; run it by hand to see why",
        below => below,
    }
}

/// What is said of a record that holds something.
fn shown_again(report: Option<&str>) -> String {
    report.map_or_else(String::new, |line| format!(", see what there is by `{line}`"))
}

/// What is wrong with a file of TOML, in one line.
pub(crate) fn in_toml(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().map_or("", |span| &text[..span.start.min(text.len())]);
    let line = before.matches('\n').count() + 1;
    format!("line {line}: {}", error.message().replace('\n', " "))
}

/// The one of `known` that `name` most likely was meant to be, if any is near enough to guess.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    const NEAR: f64 = 0.75;
    known
        .iter()
        .map(|&candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|&(likeness, _)| likeness >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_gets_nearest_or_list() {
        let known = ["pagewait", "tiotest"];
        let slip = Error::unknown("workload", "tiotset", known).to_string();
        assert_eq!(slip, "no workload is called 'tiotset'; did you mean 'tiotest'?");
        let wild = Error::unknown("workload", "xyz", known).to_string();
        assert_eq!(wild, "no workload is called 'xyz'; there are: pagewait, tiotest");
    }

    #[test]
    fn exit_codes_tell_whose_fault_it_is() {
        let few = Error::TooFewRounds { rounds: 2, cells: 1, needed: 6 };
        assert_eq!(few.exit_code(), 2);
        let resume = || "unherd bench --resume out/x".to_owned();
        let interrupted =
            Error::Interrupted { finished: String::new(), resume: resume(), report: None };
        assert_eq!(interrupted.exit_code(), 130);
        let early = Error::EndedEarly { error: Box::new(few), resume: resume() };
        assert_eq!(early.exit_code(), 2);
    }
}
