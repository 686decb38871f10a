//! How far a bench has come: a bar on a terminal, nothing when piped.

use std::io::{self, IsTerminal};
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unherd_lab::{BenchObserver, Plan, printable};

use crate::output;

/// A bar on standard error, and the first round's tables on standard output.
pub(crate) struct Progress {
    bar: ProgressBar,
    prints_tables: bool,
}

impl Progress {
    pub(crate) fn new(prints_tables: bool) -> Self {
        Self { bar: ProgressBar::hidden(), prints_tables }
    }
}

impl BenchObserver for Progress {
    fn begun(&mut self, _plan: &Plan, processes: usize, _record: &Path) {
        if !io::stderr().is_terminal() {
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
    }

    fn first_round(&mut self, tables: &str) {
        if self.prints_tables {
            // Nobody reads on: the rounds go on all the same, and the end reports it.
            self.bar.suspend(|| drop(output::print(&format!("{tables}\n"))));
        }
    }

    fn ended(&mut self) {
        self.bar.finish_and_clear();
    }
}
