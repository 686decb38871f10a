//! Adapters: other people's benchmarks as data.
//!
//! An adapter is one file of TOML that says how a benchmark is run and where its figures stand in
//! what it prints. Those here are in `adapters/`; a user's own are named by their path.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::builds;
use super::metrics::Source;
use super::sides::Side;
use crate::error::{Error, in_toml};
use crate::interrupt::Interrupt;
use crate::leftovers::WorkDirectory;
use crate::statistics::Better;

/// One that comes with the lab.
macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../adapters/", $name, ".toml")))),*]
    };
}

/// Name and text of each.
const SHIPPED: [(&str, &str); 13] = shipped![
    "compile",
    "fio-randread",
    "hackbench",
    "iperf3",
    "mbw",
    "perf-futex-hash",
    "perf-sched-pipe",
    "pgbench",
    "redis-benchmark",
    "sysbench-cpu",
    "sysbench-memory",
    "sysbench-mutex",
    "sysbench-threads",
];

/// How a benchmark is run, and what it prints.
#[derive(Debug, Clone)]
pub struct Adapter {
    /// Its name.
    pub name: String,
    /// What it measures.
    pub about: String,
    /// How its programs are installed.
    pub install: String,
    /// The figures in its output.
    pub sources: Vec<Source>,
    /// The file.
    pub text: String,
    /// A line of sh(1) that succeeds where it is installed.
    installed: String,
    /// The command, without what a user adds.
    words: Vec<String>,
    /// A script of sh(1) that is run once, before the first run.
    setup: Option<String>,
}

/// The file's content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    about: String,
    install: String,
    installed: Option<String>,
    command: Option<Vec<String>>,
    script: Option<String>,
    setup: Option<String>,
    #[serde(default)]
    metric: Vec<Metric>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    name: String,
    pattern: Option<String>,
    json: Option<String>,
    better: Direction,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Lower,
    Higher,
}

impl Adapter {
    /// Those that come with the lab, in the order of their names.
    ///
    /// # Errors
    ///
    /// None: the tests read them all.
    pub fn shipped() -> Result<Vec<Self>, Error> {
        SHIPPED.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    /// The one with this name, or in this file if `wanted` has a `/` or ends in `.toml`.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`], or [`Error::Usage`] where a file cannot be read or is no adapter.
    pub fn load(wanted: &str) -> Result<Self, Error> {
        if !wanted.contains('/') && !wanted.ends_with(".toml") {
            let found = SHIPPED.iter().find(|(name, _)| *name == wanted);
            let names = SHIPPED.iter().map(|(name, _)| *name);
            let (name, text) = found.ok_or_else(|| Error::unknown("adapter", wanted, names))?;
            return Self::parse(name, text);
        }
        let text = fs::read_to_string(wanted).map_err(|source| {
            Error::machine(
                format!("cannot read the adapter {wanted}"),
                "`unherd workloads` names those that come with unherd",
                source,
            )
        })?;
        let name = Path::new(wanted).file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text).map_err(|error| match error {
            Error::Usage { what, advice } => Error::usage(format!("{wanted}: {what}"), advice),
            other => other,
        })
    }

    fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let refused = |what: String| Error::usage(what, "docs/compare.md says what it has");
        let content: Content =
            toml::from_str(text).map_err(|error| refused(in_toml(&error, text)))?;
        let source = |metric: &Metric| {
            let better = match metric.better {
                Direction::Lower => Better::Lower,
                Direction::Higher => Better::Higher,
            };
            match (&metric.pattern, &metric.json) {
                (Some(pattern), None) => Source::matching(&metric.name, pattern, better),
                (None, Some(path)) => Ok(Source::at(&metric.name, path, better)),
                _ => Err(refused(format!("{} needs either pattern or json", metric.name))),
            }
        };
        let words = match (content.command, content.script) {
            (Some(words), None) if !words.is_empty() => words,
            (None, Some(script)) => {
                let start = ["sh", "-e", "-c", &script, name];
                start.map(str::to_owned).to_vec()
            }
            _ => return Err(refused("it needs either command or script".to_owned())),
        };
        Ok(Self {
            sources: content.metric.iter().map(source).collect::<Result<_, _>>()?,
            installed: content.installed.unwrap_or_else(|| format!("command -v {}", words[0])),
            name: name.to_owned(),
            about: content.about,
            install: content.install,
            text: text.to_owned(),
            words,
            setup: content.setup,
        })
    }

    /// Whether its programs are installed.
    pub fn is_installed(&self) -> bool {
        let what = "the look for its programs".to_owned();
        Interrupt::new().is_ok_and(|interrupt| {
            builds::shell(what, &self.installed, None, Vec::new(), &interrupt).is_ok()
        })
    }

    /// What a user means by `given`: nothing and options are added to the adapter's own command,
    /// anything else is a command. Gives its words, and how tables show it if not by these.
    pub(crate) fn command(&self, given: &[String]) -> (Vec<String>, Option<String>) {
        match given.first() {
            Some(first) if !first.starts_with('-') => (given.to_vec(), None),
            _ => {
                let words = [&self.words, given].concat();
                let shown = [std::slice::from_ref(&self.name), given].concat().join(" ");
                (words, (self.words[0] == "sh").then_some(shown))
            }
        }
    }

    /// Makes a directory below `parent`, and sets the benchmark up in it. All sides work in this
    /// one: two files need not be equally fast.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where its programs are missing, [`Error::Step`] where the setup fails.
    pub(crate) fn set_up(
        &self,
        sides: &[Side],
        parent: &Path,
        interrupt: &Interrupt,
    ) -> Result<AdapterFiles, Error> {
        let is_own = sides.iter().any(|side| side.words.starts_with(&self.words));
        if is_own && !self.is_installed() {
            return Err(Error::usage(format!("{} is not installed", self.name), &*self.install));
        }
        let work = WorkDirectory::create(parent)?;
        // A server that does not run as root has to get to its files below.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(work.path(), permissions).map_err(|source| {
            let what = format!("cannot open {} to servers", work.path().display());
            Error::machine(what, "name another directory by --dir", source)
        })?;
        let files =
            AdapterFiles { directory: work.path().to_string_lossy().into_owned(), _work: work };
        if let Some(setup) = self.setup.as_ref().filter(|_| is_own) {
            let what = format!("the setup of {}", self.name);
            let setup = format!("set -e\n{setup}");
            let environment = vec![(DIRECTORY, &*files.directory)];
            builds::shell(what, &setup, None, environment, interrupt)?;
        }
        Ok(files)
    }
}

/// The name under which a command finds the directory.
pub(crate) const DIRECTORY: &str = "UNHERD_DIR";

/// The files of an adapter; removed on drop.
#[derive(Debug)]
pub(crate) struct AdapterFiles {
    /// Where they are.
    pub(crate) directory: String,
    _work: WorkDirectory,
}

#[cfg(test)]
mod tests;
