//! Files in which a result goes beside what is printed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{Access, access};
use unherd_lab::{BenchResult, Header, Outcome, add_to_history, csv, html, markdown};

use crate::output::{self, Failure};

/// Where they are; `-` is standard output, which holds nothing else then.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ReportFiles {
    /// Write the result as a page for a browser, too. For this and the next two, - is standard
    /// output, which then has nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write it as Markdown, for a comment on a pull request.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write each figure of each process as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Add a row to this CSV file, a table over time as Apache Otava reads it; it is made if there
    /// is none.
    #[arg(long, value_name = "FILE")]
    otava: Option<PathBuf>,
}

impl ReportFiles {
    /// Whether standard output is one of them.
    pub(crate) fn take_standard_output(&self) -> bool {
        self.paths().any(is_standard_output)
    }

    /// Sees whether they can be written, before anything is measured.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.paths().filter(|path| is_standard_output(path)).count() > 1 {
            return Err(Failure::usage("two files are standard output", "give - once"));
        }
        if let Some(history) = &self.otava
            && (is_standard_output(history) || self.paths().any(|path| path == history))
        {
            return Err(Failure::usage("--otava adds to a file", "name one of its own"));
        }
        let files =
            self.paths().filter(|path| !is_standard_output(path)).chain(self.otava.as_deref());
        for path in files {
            let place = match path.parent() {
                _ if path.exists() => path,
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            let writable = access(place, Access::WRITE_OK).map_err(io::Error::from);
            let writable = match path.is_dir() {
                true => Err(io::ErrorKind::IsADirectory.into()),
                false => writable,
            };
            writable.map_err(|error| {
                let what = format!("cannot write {}: {error}", path.display());
                Failure::usage(&what, "name a file that can be written")
            })?;
        }
        Ok(())
    }

    /// As [`Self::write`], of what was just measured.
    pub(crate) fn write_outcome(&self, outcome: &Outcome) -> Result<(), Failure> {
        let Outcome { header, result, failed, .. } = outcome;
        self.write(outcome.directory(), header, result, failed.is_none())
    }

    /// Writes what was asked for, of the record in `directory`; of one that was cut off, no row in
    /// a table over time.
    pub(crate) fn write(
        &self,
        directory: &Path,
        header: &Header,
        result: &BenchResult,
        is_whole: bool,
    ) -> Result<(), Failure> {
        if let Some(path) = &self.html {
            write(directory, path, "html", Ok(html(header, result)))?;
        }
        if let Some(path) = &self.markdown {
            write(directory, path, "markdown", Ok(markdown(header, result, directory)))?;
        }
        if let Some(path) = &self.csv {
            write(directory, path, "csv", csv(result))?;
        }
        if let Some(path) = self.otava.as_ref().filter(|_| is_whole) {
            add_to_history(path, directory, header, result)
                .map_err(|error| not_written(directory, path, "otava", &error))?;
        }
        Ok(())
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.html, &self.markdown, &self.csv].into_iter().flatten().map(PathBuf::as_path)
    }
}

fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

fn write(
    directory: &Path,
    path: &Path,
    option: &str,
    text: io::Result<String>,
) -> Result<(), Failure> {
    if let (true, Ok(text)) = (is_standard_output(path), &text) {
        return output::print(text);
    }
    text.and_then(|text| fs::write(path, text))
        .map_err(|error| not_written(directory, path, option, &error))
}

fn not_written(directory: &Path, path: &Path, option: &str, error: &io::Error) -> Failure {
    Failure::NotWritten(format!(
        "{}: {error}; the record is kept: unherd report {} --{option} FILE",
        path.display(),
        directory.display()
    ))
}
