//! How far a bench has come: a bar on a terminal, nothing when piped.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unherd_lab::{BenchObserver, Plan, printable};
use unherd_sys::Timestamp;

use crate::output::{StandardError, note};

/// What remains after the first round is said where it takes longer than this, in seconds.
const LONG_S: f64 = 60.0;

/// A bar on standard error, and the first round's tables; or there, where that is no terminal, the
/// few words that a waiter must know. Standard output has the result alone, once.
pub(crate) struct Progress {
    bar: ProgressBar,
    shows_tables: bool,
    is_terminal: bool,
    began: Timestamp,
    /// The rounds that there are to be.
    rounds: usize,
    has_repeated: bool,
}

impl Progress {
    pub(crate) fn new(shows_tables: bool) -> Self {
        Self {
            bar: ProgressBar::hidden(),
            shows_tables,
            is_terminal: io::stderr().is_terminal(),
            began: Timestamp::now(),
            rounds: 0,
            has_repeated: false,
        }
    }
}

impl BenchObserver for Progress {
    fn begun(&mut self, plan: &Plan, processes: usize, _record: &Path) {
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

    fn first_round(&mut self, tables: &str) {
        let left = self.rounds.saturating_sub(1);
        let left_s = Timestamp::now().since(self.began).as_secs_f64() * left as f64;
        if !self.is_terminal && left_s > LONG_S {
            let minutes = (left_s / 60.0).ceil();
            note(&format!("{left} more rounds take about {minutes} minutes"));
        }
        if self.shows_tables && self.is_terminal {
            // It is the last resort, as for any note: where it is closed, the end must do.
            let text = format!("{tables}\n");
            self.bar.suspend(|| drop(StandardError.write_all(text.as_bytes())));
        }
    }

    fn ended(&mut self) {
        self.bar.finish_and_clear();
    }
}
