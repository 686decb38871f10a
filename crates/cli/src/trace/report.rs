//! Where the report goes, and whether it is within the budgets.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use unherd_trace::{Budget, Observation, Report, Symbols};

use super::TraceArgs;
use crate::arguments::Format;
use crate::output::{Failure, note};

/// Columns of the text.
const WIDTH: usize = 100;

/// Open files, so that a path that cannot be written is known before anything runs.
pub(super) struct Outputs {
    main: Sink,
    format: Format,
    full: bool,
    unprivileged: bool,
    json: Option<Sink>,
    folded: Option<Sink>,
    budgets: Vec<Budget>,
}

/// A file, or standard error.
struct Sink {
    path: Option<PathBuf>,
    out: Box<dyn Write>,
}

impl Sink {
    fn file(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| {
            Failure::tracing(format!("cannot write '{}': {error}", path.display()))
        })?;
        Ok(Self { path: Some(path.to_owned()), out: Box::new(BufWriter::new(file)) })
    }

    /// Writes all, or says where it could not.
    fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let written = write(&mut self.out).and_then(|()| self.out.flush());
        written.map_err(|error| match &self.path {
            Some(path) => Failure::tracing(format!("cannot write '{}': {error}", path.display())),
            None => Failure::tracing(format!("cannot write the report: {error}; give -o FILE")),
        })
    }
}

impl Outputs {
    pub(super) fn open(args: &TraceArgs) -> Result<Self, Failure> {
        let optional = |path: &Option<PathBuf>| path.as_deref().map(Sink::file).transpose();
        let main = match &args.output {
            Some(path) => Sink::file(path)?,
            None => Sink { path: None, out: Box::new(BufWriter::new(io::stderr())) },
        };
        Ok(Self {
            main,
            format: args.format,
            full: args.full,
            unprivileged: args.unprivileged,
            json: optional(&args.json)?,
            folded: optional(&args.folded)?,
            budgets: args.max.clone(),
        })
    }

    /// Writes the reports; says whether all budgets hold.
    pub(super) fn write(mut self, seen: &Observation) -> Result<bool, Failure> {
        let mut symbols = Symbols::new();
        let report = if self.unprivileged {
            Report::of_switches_only(seen, &mut symbols)
        } else {
            Report::new(seen, &mut symbols)
        };
        let is_terminal = self.main.path.is_none() && io::stderr().is_terminal();
        let colour = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let (format, full) = (self.format, self.full);
        let main = self.main.write(|mut out| match format {
            Format::Text => report.write_text(&mut out, full, WIDTH, colour),
            Format::Json => report.write_json(&mut out),
        });
        let json = self.json.as_mut().map(|json| json.write(|mut out| report.write_json(&mut out)));
        let folded = self
            .folded
            .as_mut()
            .map(|folded| folded.write(|mut out| report.write_folded(&mut out).map(drop)));
        let exceeded = report.exceeded(&self.budgets);
        for excess in &exceeded {
            note(&format!("budget exceeded: {excess}"));
        }
        // Where one could not be written, the others are there all the same.
        [Some(main), json, folded].into_iter().flatten().collect::<Result<(), _>>()?;
        Ok(exceeded.is_empty())
    }
}
