//! How far a bench has come: a bar on a terminal, nothing when piped.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unherd_lab::{BenchObserver, Plan, printable};
use unherd_sys::Timestamp;

use crate::output::{StandardError, note};

/// What remains is said, and the tables so far are shown, where it takes longer than this, in
/// seconds.
const LONG_S: f64 = 60.0;

/// How long the rounds take is said before them where that is more, in seconds.
const EXPECTED_S: f64 = 5.0;

/// A bar on standard error; or there, where that is no terminal, the few words that a waiter must
/// know. The tables so far go there, too: the first round's to a terminal at any rate. Standard
/// output has the result alone, once.
pub(crate) struct Progress {
    bar: ProgressBar,
    shows_tables: bool,
    /// What is said as the rounds begin: the line of an error before them comes first.
    warning: Option<String>,
    is_terminal: bool,
    began: Timestamp,
    /// The rounds that there are to be.
    rounds: usize,
    has_repeated: bool,
    has_told_duration: bool,
}

impl Progress {
    pub(crate) fn new(shows_tables: bool) -> Self {
        Self {
            bar: ProgressBar::hidden(),
            shows_tables,
            warning: None,
            is_terminal: io::stderr().is_terminal(),
            began: Timestamp::now(),
            rounds: 0,
            has_repeated: false,
            has_told_duration: false,
        }
    }

    pub(crate) fn with_warning(self, warning: Option<String>) -> Self {
        Self { warning, ..self }
    }
}

/// A duration in words.
fn about(seconds: f64) -> String {
    match seconds > LONG_S {
        true => format!("about {} minutes", (seconds / 60.0).ceil()),
        false => format!("about {} seconds", seconds.ceil()),
    }
}

impl BenchObserver for Progress {
    fn expects(&mut self, plan: &Plan, rounds: usize, duration: Duration) {
        let (seconds, runs) = (duration.as_secs_f64(), plan.cells.len() * plan.contenders.len());
        if seconds > EXPECTED_S && !self.has_told_duration {
            self.has_told_duration = true;
            note(&format!("{rounds} rounds of {runs} runs take {} in all", about(seconds)));
        }
    }

    fn begun(&mut self, plan: &Plan, processes: usize) {
        if let Some(warning) = self.warning.take() {
            note(&warning);
        }
        let of_round = plan.cells.len() * plan.contenders.len();
        (self.began, self.rounds) = (Timestamp::now(), processes / of_round.max(1));
        if !self.is_terminal {
            return;
        }
        let colour = if std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) {
            "{bar:30}"
        } else {
            "{bar:30.cyan}"
        };
        let template = format!("{colour} {{pos}}/{{len}}  {{msg}}  {{elapsed}}, {{eta}} to go");
        let target = ProgressDrawTarget::stderr();
        self.bar = ProgressBar::with_draw_target(Some(processes as u64), target);
        if let Ok(style) = ProgressStyle::with_template(&template) {
            self.bar.set_style(style);
        }
    }

    fn starting(&mut self, round: usize, label: &str) {
        self.bar.set_message(format!("round {round}: {}", printable(label)));
    }

    fn finished(&mut self) {
        self.bar.inc(1);
    }

    fn repeating(&mut self, processes: usize) {
        self.bar.inc_length(processes as u64);
        if !self.is_terminal && !self.has_repeated {
            self.has_repeated = true;
            note("other programs use the processors, so some processes are run again");
        }
    }

    fn so_far(&mut self, done: usize, tables: &str) {
        let left = self.rounds.saturating_sub(done);
        let took_s = Timestamp::now().since(self.began).as_secs_f64() / done.max(1) as f64;
        let left_s = took_s * left as f64;
        let is_long = left_s > LONG_S;
        if !self.is_terminal && is_long {
            note(&format!("{left} more rounds take {}", about(left_s)));
        }
        let is_first_on_terminal = self.is_terminal && done == 1;
        if self.shows_tables && (is_first_on_terminal || is_long) {
            // It is the last resort, as for any note: where it is closed, the end must do.
            let text = format!("{tables}\n");
            self.bar.suspend(|| drop(StandardError.write_all(text.as_bytes())));
        }
    }

    fn ended(&mut self) {
        self.bar.finish_and_clear();
    }

    fn not_restored(&mut self, what: &str) {
        note(&format!("warning: {what}"));
    }
}
