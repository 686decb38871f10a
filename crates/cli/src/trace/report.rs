//! Where the report goes, and whether it is within the budgets.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use unherd_trace::{Budget, Observation, Report, Symbols};

use super::TraceArgs;
use crate::arguments::Format;
use crate::output::{Failure, StandardError, note};

/// Columns of the text.
const WIDTH: usize = 100;

/// Open files, so that a path that cannot be written is known before anything runs.
pub(super) struct Outputs {
    main: Sink,
    format: Format,
    full: bool,
    unprivileged: bool,
    others: Vec<(Sink, WriteReport)>,
    budgets: Vec<Budget>,
}

/// Writes a report in one of its formats.
type WriteReport = fn(&Report, &mut dyn Write) -> io::Result<()>;

/// A file, or standard error.
struct Sink {
    path: Option<PathBuf>,
    out: Box<dyn Write>,
}

/// A file that was opened for one of the outputs, and is as it was.
struct Opened<'a> {
    option: &'static str,
    path: &'a Path,
    file: File,
}

impl<'a> Opened<'a> {
    fn at(option: &'static str, path: &'a Option<PathBuf>) -> Result<Option<Self>, Failure> {
        let Some(path) = path.as_deref() else { return Ok(None) };
        if path == Path::new("-") {
            return Err(Failure::tracing(format!(
                "{option} -: standard output is the command's; name a file"
            )));
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| cannot_write(path, &error))?;
        Ok(Some(Self { option, path, file }))
    }

    /// Empties it, for it is written from its begin on.
    fn sink(self) -> Result<Sink, Failure> {
        let path = self.path;
        let is_file = self.file.metadata().is_ok_and(|of| of.is_file());
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        emptied.map_err(|error| cannot_write(path, &error))?;
        Ok(Sink { path: Some(path.to_owned()), out: Box::new(BufWriter::new(self.file)) })
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or name another file"
        }
        _ => "name a file that can be written",
    };
    Failure::tracing(format!("cannot write '{path}': {error}; {advice}"))
}

/// What tells a regular file from others; nothing else is spoilt by two writers.
fn identity(file: &Metadata) -> Option<(u64, u64)> {
    file.is_file().then(|| (file.dev(), file.ino()))
}

/// Refuses a file that is to take two outputs, of which each would write over the other.
fn check_apart(files: &[&Opened<'_>], has_command: bool) -> Result<(), Failure> {
    let mut taken: Vec<(&str, (u64, u64))> = Vec::new();
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    let stderr = io::stderr().as_fd().try_clone_to_owned();
    // Nothing is written to standard output but by a command.
    let streams =
        [("standard error", Some(stderr)), ("standard output", has_command.then_some(stdout))];
    for (name, stream) in streams {
        let metadata = stream.and_then(|of| File::from(of.ok()?).metadata().ok());
        taken.extend(metadata.and_then(|of| Some((name, identity(&of)?))));
    }
    for opened in files {
        let metadata = opened.file.metadata().map_err(|error| cannot_write(opened.path, &error))?;
        let Some(this) = identity(&metadata) else { continue };
        if let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == this) {
            return Err(Failure::tracing(format!(
                "{other} and {} are one file, '{}'; give each its own",
                opened.option,
                opened.path.display()
            )));
        }
        taken.push((opened.option, this));
    }
    Ok(())
}

impl Sink {
    /// Writes all, or says where it could not. A reader that has seen enough is no error.
    fn write(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let written = write(&mut self.out).and_then(|()| self.out.flush());
        match (written, &self.path) {
            (Err(error), _) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            (Err(error), Some(path)) => Err(cannot_write(path, &error)),
            (Err(error), None) => {
                Err(Failure::tracing(format!("cannot write the report: {error}; give -o FILE")))
            }
            (Ok(()), _) => Ok(()),
        }
    }
}

impl Outputs {
    pub(super) fn open(args: &TraceArgs) -> Result<Self, Failure> {
        let output = Opened::at("-o", &args.output)?;
        let formats: [(&'static str, &Option<PathBuf>, WriteReport); 6] = [
            ("--json", &args.json, |of, mut to| of.write_json(&mut to)),
            ("--folded", &args.folded, |of, mut to| of.write_folded(&mut to).map(drop)),
            ("--pprof", &args.pprof, |of, mut to| of.write_pprof(&mut to)),
            ("--perfetto", &args.perfetto, |of, mut to| of.write_perfetto(&mut to)),
            ("--firefox", &args.firefox, |of, mut to| of.write_firefox(&mut to)),
            ("--html", &args.html, |of, mut to| of.write_html(&mut to)),
        ];
        let mut others = Vec::new();
        for (option, path, write) in formats {
            others.extend(Opened::at(option, path)?.map(|opened| (opened, write)));
        }
        let files: Vec<_> = output.iter().chain(others.iter().map(|(opened, _)| opened)).collect();
        check_apart(&files, !args.command.is_empty())?;
        let main = match output {
            Some(opened) => opened.sink()?,
            None => Sink { path: None, out: Box::new(BufWriter::new(StandardError)) },
        };
        Ok(Self {
            main,
            format: args.format,
            full: args.full,
            unprivileged: args.unprivileged,
            others: others
                .into_iter()
                .map(|(opened, write)| Ok((opened.sink()?, write)))
                .collect::<Result<_, Failure>>()?,
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
        let others = self.others.iter_mut().map(|(to, write)| to.write(|out| write(&report, out)));
        let written: Vec<_> = std::iter::once(main).chain(others).collect();
        let exceeded = report.exceeded(&self.budgets);
        for excess in &exceeded {
            note(&format!("budget exceeded: {excess}"));
        }
        // Where one could not be written, the others are there all the same.
        written.into_iter().collect::<Result<(), _>>()?;
        Ok(exceeded.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_pipe_ends_quietly() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut sink = Sink { path: Some("/dev/stdout".into()), out: Box::new(writer) };
        assert!(sink.write(|to| to.write_all(b"a report")).is_ok());
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut sink = Sink { path: Some("/dev/full".into()), out: Box::new(full) };
        assert!(sink.write(|to| to.write_all(b"a report")).is_err());
    }
}
