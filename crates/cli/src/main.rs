//! The `unherd` command.
//!
//! Exit codes: 0 done; 1 the measured thing failed, the implementations disagree or a budget was
//! exceeded; 2 the command line or the machine does not allow it; 130 interrupted. `trace`,
//! `compare` and `prove` have more of their own, and 125 where they fail themselves; of `trace` and
//! `compare` a wrong command line is that, too. Results go to standard output, everything else to
//! standard error, an error's one line first.

mod arguments;
mod bench;
mod blocks;
mod claims;
mod compare;
mod output;
mod progress;
mod prove;
mod reports;
mod reproduce;
mod runners;
mod trace;
mod workloads;

use std::ffi::OsString;
use std::process::ExitCode;

use arguments::{Arguments, Command};
use output::Failure;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // What a bench starts: no catalogue, no parsing but the runner's own.
    if args.get(1).is_some_and(|arg| arg == "load") {
        return unherd_load::main(args.into_iter().skip(2));
    }
    let is_verbose =
        args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "-v" || arg == "--verbose");
    let command = arguments::subcommand(&args).and_then(|name| name.to_str());
    match (run(&args), command) {
        (Ok(code), _) => code,
        (Err(failure), Some("prove")) if failure.is_usage() => failure.report(is_verbose),
        (Err(failure), Some("trace" | "compare" | "prove")) => failure.report_as_125(is_verbose),
        (Err(failure), _) => failure.report(is_verbose),
    }
}

fn run(args: &[OsString]) -> Result<ExitCode, Failure> {
    let registry = arguments::needs_catalogue(args).then(runners::registry).transpose()?;
    let parsed = match arguments::parse(args, registry.as_ref())? {
        Ok(parsed) => parsed,
        Err(help) => return output::print(&help).map(|()| ExitCode::SUCCESS),
    };
    let Arguments { command, params, words } = parsed;
    match (command, registry) {
        (Command::Workloads { name }, Some(registry)) => workloads::run(name.as_deref(), &registry),
        (Command::Bench(args), Some(registry)) => bench::run(&args, params, words, &registry),
        (Command::Report { directory, format, files }, _) => {
            bench::report(&directory, format, &files)
        }
        (Command::Compare(args), _) => compare::run(&args),
        (Command::RunBlock { number, plan, out }, _) => blocks::run(number, &plan, out.as_deref()),
        (Command::Merge { blocks, out, format, files }, _) => {
            blocks::join(&blocks, out.as_deref(), format, &files)
        }
        (Command::Reproduce(args), _) => reproduce::run(&args),
        (Command::Trace(args), _) => trace::run(&args),
        (Command::Prove(args), _) => prove::run(&args),
        (Command::Claims(args), _) => claims::run(&args),
        (Command::Workloads { .. } | Command::Bench(_), None) => {
            Err(Failure::usage("the catalogue is missing", "report this as a fault"))
        }
    }
}
