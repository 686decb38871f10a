//! The demonstration: tiotest in alternating rounds, from an empty checkout to a verdict. Its last
//! five lines say what was shown against the kernel's page cache, and against a table that does not
//! filter.

use std::path::Path;

use crate::failure::Failure;
use crate::step::Step;

/// The file system work of the first report, as the published figures have it. The first table is
/// there within half a minute, and the verdict after seven to ten.
const DEMO: &str = "bench tiotest --with kernel,unherd-nofilter,unherd \
                    --base kernel,unherd-nofilter --threads 512 --memory 256M --profile \
                    --timeout 60 --dir target/demo";

/// Builds the command, and runs the demonstration.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        let what = format!("`demo` takes no arguments, not `{argument}`");
        return Err(Failure::Usage(format!("{what}; use `target/release/unherd bench`")));
    }
    let program = build(root)?;
    let directory = root.join("target/demo");
    std::fs::create_dir_all(&directory).map_err(|error| {
        Failure::Usage(format!("cannot make the directory {}: {error}", directory.display()))
    })?;
    let mut arguments: Vec<&str> = DEMO.split_whitespace().collect();
    if !is_root() {
        // The record says that the kernel's page cache was not bounded.
        arguments.push("--without-cgroup");
    }
    println!("\n== target/release/unherd {} ==", arguments.join(" "));
    program.arguments(&arguments).run_last(root)
}

/// Whether memory cgroups can be made: root may, and others most often may not.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uid.is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

/// Builds the `unherd` command for measuring, and gives the step that runs it.
pub(crate) fn build(root: &Path) -> Result<Step, Failure> {
    // The figures are those of this build: its directory does not depend on the environment.
    let outcome = Step::cargo("build", &["build", "--release", "-p", "unherd-cli"])
        .environment("CARGO_TARGET_DIR", "target")
        .run(root)?;
    if !outcome.succeeded {
        return Err(Failure::Failed("the build of `unherd` failed".to_owned()));
    }
    println!("built in {:.1} s", outcome.elapsed.as_secs_f64());
    Ok(Step::program("unherd", &root.join("target/release/unherd")))
}
