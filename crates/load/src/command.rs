//! The command line of a runner: `load WORKLOAD --with IMPL …` and `load --describe`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::catalogue::{Catalogue, Description};
use crate::job::{Report, parse_size};
use crate::{Job, LoadError, Params, Workload};

const USAGE: &str = "usage: load WORKLOAD --with IMPL --threads N --seed S [--memory BYTES] \
                     [--dir DIR] [--plant FRACTION] [--idle-busy CPUS] [--param NAME=VALUE]… \
                     | load --describe";

/// More need more memory maps than a process may have, and std aborts when it has none for a stack.
const THREADS_MAX: usize = 8192;

/// Runs a runner that has these workloads; `args` is what follows the word `load`.
///
/// Prints the catalogue, or one round's JSON as the last line of standard output. An error is one
/// line on standard error; the exit code is 1 where the round failed and 2 where the command line
/// or the machine does not allow it.
pub fn main_with(workloads: &[&dyn Workload], args: impl Iterator<Item = OsString>) -> ExitCode {
    match run(workloads, args) {
        Ok(line) => {
            let mut out = std::io::stdout().lock();
            match writeln!(out, "{line}").and_then(|()| out.flush()) {
                Ok(()) => ExitCode::SUCCESS,
                // Nobody is there to read the result, nor an error about it.
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            let mut err = std::io::stderr().lock();
            // Standard error is the last resort; where it is closed the exit code must do.
            let _ = writeln!(err, "{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// What [`main_with`] prints, or why not.
pub fn run(
    workloads: &[&dyn Workload],
    args: impl Iterator<Item = OsString>,
) -> Result<String, LoadError> {
    let mut args = Args(args);
    let first = args.next_text()?.ok_or_else(|| LoadError::usage(USAGE))?;
    if first == "--describe" {
        if let Some(more) = args.next_text()? {
            return Err(LoadError::usage(format!("--describe stands alone; drop {more:?}")));
        }
        let catalogue = Catalogue::new(workloads.iter().map(|workload| workload.describe()));
        return Ok(to_line(&catalogue));
    }
    let found = workloads.iter().map(|known| (known, known.describe()));
    let Some((workload, description)) = found.into_iter().find(|(_, known)| known.name == first)
    else {
        let known: Vec<_> = workloads.iter().map(|known| known.describe().name).collect();
        return Err(LoadError::usage(format!(
            "no workload {first:?}; there are: {}",
            known.join(", ")
        )));
    };
    let job = parse(&description, &mut args)?;
    let round = workload.run(&job)?;
    Ok(to_line(&Report::new(description.name, &job, &round)))
}

fn to_line(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("keys are strings, and nothing here refuses to be written")
}

/// The arguments as text: all but a directory's name must be UTF-8.
struct Args<I>(I);

impl<I: Iterator<Item = OsString>> Args<I> {
    fn next_text(&mut self) -> Result<Option<String>, LoadError> {
        let text = |arg: OsString| {
            arg.into_string()
                .map_err(|arg| LoadError::usage(format!("{arg:?} is not UTF-8; {USAGE}")))
        };
        self.0.next().map(text).transpose()
    }

    fn value(&mut self, option: &str) -> Result<OsString, LoadError> {
        self.0.next().ok_or_else(|| LoadError::usage(format!("{option} needs a value; {USAGE}")))
    }

    fn text_value(&mut self, option: &str) -> Result<String, LoadError> {
        self.value(option)?
            .into_string()
            .map_err(|value| LoadError::usage(format!("{option} {value:?} is not UTF-8")))
    }

    fn parsed<T>(
        &mut self,
        option: &str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, LoadError> {
        let text = self.text_value(option)?;
        parse(&text).ok_or_else(|| LoadError::usage(format!("{option} {text}: give {what}")))
    }
}

fn parse<I>(description: &Description, args: &mut Args<I>) -> Result<Job, LoadError>
where
    I: Iterator<Item = OsString>,
{
    let mut job = Job {
        with: String::new(),
        threads: description.default_threads,
        seed: 1,
        memory_bytes: None,
        dir: None,
        plant: 0.0,
        idle_busy: 0.0,
        params: Params::defaults(description),
    };
    let finite = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    while let Some(option) = args.next_text()? {
        match option.as_str() {
            "--with" => job.with = args.text_value("--with")?,
            "--threads" => {
                let count =
                    |text: &str| text.parse().ok().filter(|n| (1..=THREADS_MAX).contains(n));
                job.threads = args.parsed("--threads", "1 to 8192", count)?;
            }
            "--seed" => {
                job.seed = args.parsed("--seed", "a whole number", |text| text.parse().ok())?;
            }
            "--memory" => {
                job.memory_bytes = Some(args.parsed("--memory", "bytes, as 256M", parse_size)?);
            }
            "--dir" => job.dir = Some(PathBuf::from(args.value("--dir")?)),
            "--plant" => job.plant = args.parsed("--plant", "a fraction, as 0.05", finite)?,
            "--idle-busy" => job.idle_busy = args.parsed("--idle-busy", "CPUs, as 0.02", finite)?,
            "--param" => {
                let pair = args.text_value("--param")?;
                let (name, value) = pair
                    .split_once('=')
                    .ok_or_else(|| LoadError::usage(format!("--param {pair}: give NAME=VALUE")))?;
                job.params.set(name, value)?;
            }
            other => return Err(LoadError::usage(format!("no option {other:?}; {USAGE}"))),
        }
    }
    if !description.impls.iter().any(|known| known.name == job.with) {
        return Err(match job.with.as_str() {
            "" => LoadError::usage(format!("--with is missing; {USAGE}")),
            _ => job.unknown_impl(description),
        });
    }
    Ok(job)
}
