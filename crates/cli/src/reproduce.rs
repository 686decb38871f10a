//! `unherd reproduce`: what a report ran, before and after, as far as there are workloads for it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use unherd_lab::{StoredRecord, gallery, holds_record, make_place};

use crate::arguments::{Arguments, Command, parse};
use crate::output::{self, Failure, note};
use crate::{bench, runners};

/// Run what one of the five reports ran, and print its tables before and after, with intervals.
///
/// 000 filtered wakeups, 001 lockless poll, 002 futex wakeups, 003 lockless page cache, 004
/// congestion wait. Each bench has a record and a page of its own, and index.html leads to these.
/// Run again with the same --out, it goes on where it was cut short.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unherd reproduce 002 --quick
  unherd reproduce 000 --list
  unherd reproduce 003 --dir /mnt/disk --out gallery")]
pub(crate) struct ReproduceArgs {
    /// Which report.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(REPORTS.map(|it| it.number)))]
    pub(crate) report: String,
    /// Where records and pages go [default: out/reproduce-REPORT].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Where files are made [default: the current directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Small files and the fewest rounds that can decide at all, which a mark says: minutes, and
    /// the first line says how many.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print the command lines, and run nothing.
    #[arg(long)]
    pub(crate) list: bool,
}

/// What a report ran.
struct Report {
    number: &'static str,
    about: &'static str,
    benches: &'static [Bench],
}

/// One bench of a report.
struct Bench {
    /// Its name for the files.
    name: &'static str,
    line: &'static str,
    /// What `--quick` adds to its command line.
    quick: &'static str,
    /// How long it took with `--quick` on two processors, in seconds.
    quick_s: u64,
    makes_files: bool,
}

const REPORTS: [Report; 5] = [
    Report {
        number: "000",
        about: "filtered wakeups of waiters for pages and buffers",
        benches: &[
            Bench {
                name: "wakeups",
                line: "pagewait --with before,unherd --threads 512",
                quick: "",
                quick_s: 20,
                makes_files: false,
            },
            Bench {
                name: "filter",
                line: "tiotest --with unherd-nofilter,unherd --threads 512 --profile",
                quick: "--memory 64M",
                quick_s: 105,
                makes_files: true,
            },
            Bench {
                name: "kernel",
                line: "tiotest --with kernel,unherd --threads 512 --profile",
                quick: "--memory 64M",
                quick_s: 140,
                makes_files: true,
            },
        ],
    },
    Report {
        number: "001",
        about: "poll without a lock",
        benches: &[
            Bench {
                name: "empty",
                line: "poll --with before,epoll,unherd --scene empty --sources 128,1024",
                quick: "",
                quick_s: 20,
                makes_files: false,
            },
            Bench {
                name: "event",
                line: "poll --with before,epoll,unherd --scene event --threads 8",
                quick: "",
                quick_s: 20,
                makes_files: false,
            },
            Bench {
                name: "web",
                line: "web --with before,epoll,unherd --threads 1,2 --clients 8,23",
                quick: "--budget-ms 250",
                quick_s: 90,
                makes_files: true,
            },
        ],
    },
    Report {
        number: "002",
        about: "futex wakeups without the bucket's lock",
        benches: &[
            Bench {
                name: "hash",
                line: "futex-hash --with kernel,unherd --threads 2,16,64",
                quick: "--budget-ms 250",
                quick_s: 20,
                makes_files: false,
            },
            Bench {
                name: "mutex",
                line: "mutex --with pthread,std,unherd --threads 1,2,4,16",
                quick: "--budget-ms 250",
                quick_s: 35,
                makes_files: false,
            },
            Bench {
                name: "wake",
                line: "futex-wake --with kernel,before,before-all,unherd --threads 2,16",
                quick: "--budget-ms 250",
                quick_s: 30,
                makes_files: false,
            },
            Bench {
                name: "storm",
                line: "futex-storm --with kernel,before,unherd --threads 64",
                quick: "--budget-ms 250",
                quick_s: 20,
                makes_files: false,
            },
        ],
    },
    Report {
        number: "003",
        about: "a page cache whose lookups take no lock",
        benches: &[
            Bench {
                name: "slices",
                line: "slices --with before,kernel,unherd --threads 1,16 --block 4K,256K",
                quick: "--memory 32M",
                quick_s: 165,
                makes_files: true,
            },
            Bench {
                name: "hit",
                line: "hit --with before,unherd-pin,unherd-peek --threads 1,2",
                quick: "",
                quick_s: 20,
                makes_files: false,
            },
        ],
    },
    Report {
        number: "004",
        about: "waiting for congestion only where there is some",
        benches: &[
            Bench {
                name: "stalls",
                line: "pressure --with fixed,skip,paced --device fast",
                quick: "",
                quick_s: 30,
                makes_files: false,
            },
            Bench {
                name: "steady",
                line: "pressure --with fixed,skip,paced --device steady",
                quick: "",
                quick_s: 30,
                makes_files: false,
            },
            Bench {
                name: "engine",
                line: "stall --with fixed,skip,paced --scene delay",
                quick: "",
                quick_s: 60,
                makes_files: false,
            },
            Bench {
                name: "mix",
                line: "mix --with kernel,unherd --threads 1,4,16",
                quick: "--memory 128M --transactions 2048",
                quick_s: 75,
                makes_files: true,
            },
            Bench {
                name: "highalloc",
                line: "highalloc --with kernel,unherd",
                quick: "--memory 128M",
                quick_s: 60,
                makes_files: true,
            },
        ],
    },
];

impl Report {
    /// How long it takes, as far as that is known before it begins.
    fn duration(&self, is_quick: bool) -> String {
        let minutes = self.benches.iter().map(|it| it.quick_s).sum::<u64>().div_ceil(60);
        match (is_quick, minutes) {
            (true, 1) => "about a minute on a quiet machine of two processors".to_owned(),
            (true, _) => format!("about {minutes} minutes on a quiet machine of two processors"),
            (false, _) => "each bench says after its first round how long it takes".to_owned(),
        }
    }
}

/// Runs the benches of one report, one after the other. The first that fails ends it.
pub(crate) fn run(args: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let report = REPORTS.iter().find(|report| report.number == args.report);
    let Some(report) = report else {
        return Err(Failure::usage("there is no such report", "give 000 to 004"));
    };
    let default = format!("reproduce-{}", report.number);
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(&default));
    let lines = report.benches.iter().map(|bench| (bench.name, words(args, &out, bench)));
    if args.list {
        for (_, words) in lines {
            output::print(&format!("unherd {}\n", words.join(" ")))?;
        }
        note(&format!("it takes a while: {}", report.duration(args.quick)));
        return Ok(ExitCode::SUCCESS);
    }
    make_place(args.out.as_deref(), &default)?;
    let registry = runners::registry()?;
    let title = format!("Report {}: {}", report.number, report.about);
    output::print(&format!("{title}\n{}\n", report.duration(args.quick)))?;
    let mut pages = Vec::new();
    for (name, line) in lines {
        let record = out.join(name);
        let line = match holds_record(&record) {
            true => vec!["bench".to_owned(), "--resume".to_owned(), shown(&record)],
            false => line,
        };
        output::print(&format!("\n{name}: unherd {}\n\n", line.join(" ")))?;
        let words: Vec<OsString> =
            ["unherd"].into_iter().map(OsString::from).chain(line.iter().map(Into::into)).collect();
        match parse(&words, Some(&registry))? {
            Ok(Arguments { command: Command::Bench(args), params, words }) => {
                bench::run(&args, params, words, &registry)?;
            }
            _ => return Err(Failure::usage("a bench is none", "report this as a fault")),
        }
        let result = StoredRecord::load(&record)?.result();
        pages.push((name.to_owned(), format!("{name}.html"), result));
    }
    let index = out.join("index.html");
    fs::write(&index, gallery(&title, &pages)).map_err(|error| {
        Failure::NotWritten(format!("{}: {error}; the records are kept", index.display()))
    })?;
    note(&format!("the pages begin with {}", index.display()));
    Ok(ExitCode::SUCCESS)
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn page(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.html"))
}

/// A bench's command line.
fn words(args: &ReproduceArgs, out: &Path, bench: &Bench) -> Vec<String> {
    // What a report's memory is scaled to, unless it is to be quick.
    let memory = if bench.makes_files && !args.quick { " --memory 256M" } else { "" };
    let line = format!("bench {}{memory}", bench.line);
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    if args.quick {
        words.extend(bench.quick.split_whitespace().chain(["--quick"]).map(str::to_owned));
    }
    let mut add = |option: &str, path: &Path| {
        words.extend([option.to_owned(), shown(path)]);
    };
    if let (Some(directory), true) = (&args.dir, bench.makes_files) {
        add("--dir", directory);
    }
    add("--out", &out.join(bench.name));
    add("--html", &page(out, bench.name));
    words
}
