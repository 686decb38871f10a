//! The project's own commands: `cargo x demo`, `test`, `ci` and the rest; `./x` calls them too.
//!
//! Standard library only and no crate of ours, so that it builds in seconds and cannot be broken by
//! what it checks. People and CI run the same commands.

mod claims;
mod demo;
mod elsewhere;
mod failure;
mod fresh;
mod help;
mod mutants;
mod soak;
mod step;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use failure::Failure;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("x: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let root = repository();
    let (command, rest) = match arguments.split_first() {
        None => ("help", [].as_slice()),
        Some((command, rest)) => (command.as_str(), rest),
    };
    let asks_for_help = rest.iter().any(|it| it == "--help" || it == "-h");
    match command {
        // The options of `claims` are those of `unherd claims`.
        command if asks_for_help && command != "claims" => run(&["help".to_owned()]),
        "demo" => demo::run(&root, rest),
        "claims" => claims::run(&root, rest),
        "mutants" => mutants::run(&root, rest),
        "test" | "ci" | "tidy" | "loom" | "fresh" | "simulate" | "soak" | "ordering" | "size"
            if !rest.is_empty() =>
        {
            Err(Failure::Usage(format!("`{command}` takes no arguments, not `{}`", rest[0])))
        }
        "test" => suite::test(&root),
        "ci" => suite::ci(&root),
        "loom" => suite::models(&root),
        "simulate" => suite::conclude(&[suite::simulate(&root)?]),
        "tidy" => tidy::run(&root),
        "soak" => soak::run(&root),
        "fresh" => fresh::bare_debian(&root),
        "ordering" => tidy::write_ordering_page(&root),
        "size" => tidy::print_sizes(&root),
        "help" | "--help" | "-h" => {
            print!("{}", help::TEXT);
            Ok(())
        }
        other => Err(Failure::Usage(format!("no command `{other}`; `./x help` lists them"))),
    }
}

/// The root of the repository that this program was built from.
fn repository() -> PathBuf {
    // Cargo sets the variable when it runs a program; the constant serves a program run by hand.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), Path::to_path_buf)
}
