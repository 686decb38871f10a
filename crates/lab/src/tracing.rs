//! A round under `unherd trace`: another process, so that the lab links nothing of what it
//! measures.
//!
//! The tracer runs outside of the round's memory cgroup, which its maps would fill. Its report goes
//! into the record, as text and as JSON.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Error;
use crate::launch::{Ending, Finished, Launch};
use crate::result::Traced;

/// How `unherd trace` says that it could not trace.
const FAILED: i32 = 125;

/// Enters the cgroup whose `cgroup.procs` comes first, then becomes what follows.
const ENTER: &str = "echo 0 > \"$0\" && exec \"$@\"";

/// Who traces, and where the report goes.
#[derive(Debug)]
pub(crate) struct Tracing<'a> {
    pub(crate) unherd: &'a Path,
    pub(crate) files: &'a TraceFiles,
}

impl Tracing<'_> {
    /// `launch`, traced. It enters `cgroup` by itself.
    pub(crate) fn around<'a>(&'a self, launch: Launch<'a>, cgroup: Option<&Path>) -> Launch<'a> {
        let mut args: Vec<OsString> = ["trace", "--full", "-o"].map(OsString::from).into();
        args.push((&self.files.text).into());
        args.push("--json".into());
        args.push((&self.files.json).into());
        args.push("--".into());
        if let Some(cgroup) = cgroup {
            args.extend(["sh", "-c", ENTER].map(OsString::from));
            args.push(cgroup.join("cgroup.procs").into());
        }
        args.push(launch.program.into());
        args.extend(launch.args);
        Launch { program: self.unherd, args, cgroup: None, ..launch }
    }

    /// Why there is no trace, if that is why the process has ended.
    pub(crate) fn refusal(&self, finished: &Finished) -> Option<String> {
        let Ending::Exited(status) = finished.ending else { return None };
        if status.code() != Some(FAILED) {
            return None;
        }
        let line = finished.stderr.lines().next().unwrap_or("the tracer says nothing");
        Some(line.strip_prefix("unherd: ").unwrap_or(line).to_owned())
    }
}

/// The report of one traced round, in the record.
#[derive(Debug)]
pub(crate) struct TraceFiles {
    pub(crate) text: PathBuf,
    pub(crate) json: PathBuf,
}

impl TraceFiles {
    /// What the tracer wrote.
    pub(crate) fn read(&self) -> Result<Traced, Error> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| Error::Record {
                path: path.to_owned(),
                what: "cannot read the trace",
                advice: "trace the round by hand".to_owned(),
                source,
                begun: true,
            })
        };
        let mut report: Value = serde_json::from_str(&read(&self.json)?)
            .map_err(|error| Error::malformed(&self.json, error.to_string()))?;
        let file = self.json.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Traced::Taken {
            file: format!("{}/{file}", crate::record::TRACES),
            verdict: report["verdict"].take(),
            summary: report["summary"].take(),
            text: read(&self.text)?,
        })
    }
}
