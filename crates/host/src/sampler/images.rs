//! Where processes have mapped code, in the order of time, dead processes included.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;

use super::ring::{Record, u32_at, u64_at};
use crate::symbols::{Mapping, parse_mapping};
use unherd_sys::primitives::Arc;

/// A piece of a file, or memory without one, that a process has mapped to be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeMapping {
    /// The first address, and the first behind it.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// The file as the process names it; empty, in brackets or `//anon` where there is none.
    pub path: Arc<str>,
}

impl CodeMapping {
    /// What a living process has mapped now: `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// The kernel's, where there is no such process or it may not be looked at.
    pub fn of_process(pid: u32) -> io::Result<Vec<Self>> {
        let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(text.lines().filter_map(parse_mapping).map(Self::from).collect())
    }

    fn from_record(body: &[u8], path: Arc<str>) -> Self {
        let (start, len) = (u64_at(body, 8), u64_at(body, 16));
        Self { start, end: start.saturating_add(len), file_offset: u64_at(body, 24), path }
    }
}

impl From<Mapping> for CodeMapping {
    fn from(mapping: Mapping) -> Self {
        let Mapping { start, len, file_offset, path } = mapping;
        Self { start, end: start.saturating_add(len), file_offset, path: path.as_str().into() }
    }
}

/// The most changes that are kept: about 64 MiB, for a hundred thousand programs executed.
const CHANGES_MAX: usize = 1 << 20;

/// What happened to the mappings of processes. The rings bring it out of order.
#[derive(Debug, Default)]
pub(super) struct Images {
    changes: Vec<(u64, Change)>,
    /// Most processes map the same few files.
    paths: HashSet<Arc<str>>,
    /// Changes that found no room.
    pub(super) lost: u64,
}

#[derive(Debug)]
enum Change {
    Mapped { pid: u32, mapping: CodeMapping },
    Forked { pid: u32, parent: u32 },
}

impl Images {
    /// A record of a mapping, at `time_ns`.
    pub(super) fn see_mapping(&mut self, time_ns: u64, record: &Record<'_>) {
        let name = record.body.get(64..).unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let path = self.path(&String::from_utf8_lossy(name));
        let mapping = CodeMapping::from_record(record.body, path);
        self.push(time_ns, Change::Mapped { pid: u32_at(record.body, 0), mapping });
    }

    /// A record of a new process or thread.
    pub(super) fn see_fork(&mut self, time_ns: u64, record: &Record<'_>) {
        let (pid, parent) = (u32_at(record.body, 0), u32_at(record.body, 4));
        if pid != parent {
            self.push(time_ns, Change::Forked { pid, parent });
        }
    }

    fn path(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.paths.get(name) {
            return Arc::clone(known);
        }
        let path: Arc<str> = name.into();
        self.paths.insert(Arc::clone(&path));
        path
    }

    fn push(&mut self, time_ns: u64, change: Change) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push((time_ns, change));
        } else {
            self.lost += 1;
        }
    }

    /// The mappings of each process in the order in which they were made; those that it had from
    /// its parent come first. Also each process's parent.
    pub(super) fn in_order(mut self) -> (HashMap<u32, Vec<CodeMapping>>, HashMap<u32, u32>) {
        self.changes.sort_by_key(|(time_ns, _)| *time_ns);
        let mut mappings: HashMap<u32, Vec<CodeMapping>> = HashMap::new();
        let mut parents = HashMap::new();
        for (_, change) in self.changes {
            match change {
                Change::Mapped { pid, mapping } => mappings.entry(pid).or_default().push(mapping),
                Change::Forked { pid, parent } => {
                    let inherited = mappings.get(&parent).cloned().unwrap_or_default();
                    mappings.insert(pid, inherited);
                    parents.insert(pid, parent);
                }
            }
        }
        (mappings, parents)
    }
}
