//! Files in which a result goes beside what is printed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use unherd_lab::{BenchResult, Header, csv, html, markdown};

use crate::output::Failure;

/// Where they are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ReportFiles {
    /// Also a page to look at: one file, which needs no network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also as Markdown, for a comment on a pull request.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also each figure of each process as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl ReportFiles {
    /// Writes what was asked for.
    pub(crate) fn write(&self, header: &Header, result: &BenchResult) -> Result<(), Failure> {
        if let Some(path) = &self.html {
            write(path, Ok(html(header, result)))?;
        }
        if let Some(path) = &self.markdown {
            write(path, Ok(markdown(header, result)))?;
        }
        if let Some(path) = &self.csv {
            write(path, csv(result))?;
        }
        Ok(())
    }
}

fn write(path: &Path, text: io::Result<String>) -> Result<(), Failure> {
    let written = text.and_then(|text| fs::write(path, text));
    written.map_err(|error| {
        Failure::NotWritten(format!("{}: {error}; the record is kept", path.display()))
    })
}
