//! The tests, and what CI checks besides them.

use std::path::Path;

use crate::elsewhere;
use crate::failure::Failure;
use crate::fresh;
use crate::step::{Outcome, Step};
use crate::tidy;

/// A set of models that a checker runs: a module of a crate, built with flags of its own.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    /// The flags, and the directory below `target/` for what is built with them.
    pub(crate) cfgs: &'static [&'static str],
    pub(crate) target: &'static str,
    /// What starts the compiler for our own crates, if cargo does not.
    pub(crate) wrapper: Option<&'static str>,
    /// The tests whose path contains this.
    pub(crate) filter: &'static str,
}

/// The models of each checker. The second run of loom replaces sleeping by yielding, because the
/// mutex that models a futex word adds order of its own.
pub(crate) const MODELS: [Model; 5] = [
    Model {
        name: "loom models",
        package: "unherd-sync",
        cfgs: &["loom"],
        target: "loom",
        wrapper: None,
        filter: "loom",
    },
    Model {
        name: "loom models of the cache",
        package: "unherd-cache",
        cfgs: &["loom"],
        target: "loom",
        wrapper: None,
        filter: "loom",
    },
    Model {
        name: "loom models, yielding",
        package: "unherd-sync",
        cfgs: &["loom"],
        target: "loom",
        wrapper: Some(".ci/rustc-model-yield"),
        filter: "loom",
    },
    Model {
        name: "shuttle models",
        package: "unherd-sync",
        cfgs: &["shuttle"],
        target: "shuttle",
        wrapper: None,
        filter: "shuttle",
    },
    SIMULATION,
];

/// The whole cache under shuttle.
pub(crate) const SIMULATION: Model = Model {
    name: "simulation of the cache",
    package: "unherd-cache",
    cfgs: &["shuttle"],
    target: "shuttle",
    wrapper: None,
    filter: "shuttle",
};

impl Model {
    /// The step that builds and runs tests of `package` under the flags of this model, below
    /// `target`.
    pub(crate) fn step(&self, package: &str, target: &str) -> Step {
        let flags: Vec<String> = self.cfgs.iter().map(|cfg| format!("--cfg {cfg}")).collect();
        let step = Step::cargo(self.name, &["test", "--release", "--no-fail-fast", "--lib"])
            .arguments(&["-p", package])
            .environment("RUSTFLAGS", flags.join(" "))
            .environment("CARGO_TARGET_DIR", format!("{}/{target}", target_directory()))
            // To optimize across crates takes longer than it spares. Panics name lines anyway.
            .environment("CARGO_PROFILE_RELEASE_LTO", "off")
            .environment("CARGO_PROFILE_RELEASE_DEBUG", "none")
            .environment("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        match self.wrapper {
            Some(wrapper) => step.environment("RUSTC_WORKSPACE_WRAPPER", wrapper),
            None => step,
        }
    }
}

/// Where cargo builds.
pub(crate) fn target_directory() -> String {
    std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned())
}

/// Runs every test, whatever fails before, and sums up.
pub(crate) fn test(root: &Path) -> Result<(), Failure> {
    let runner = fresh::runner(root)?;
    let all = ["--workspace", "--no-fail-fast"];
    let mut outcomes = vec![
        Step::cargo("unit and integration tests", &["test", "--config", &runner])
            .arguments(&all)
            .arguments(&["--lib", "--bins", "--tests", "--examples"])
            .run_tests(root)?,
        Step::cargo("documentation tests", &["test"])
            .arguments(&all)
            .arguments(&["--doc"])
            .run_tests(root)?,
    ];
    if root.join(FACADE).exists() {
        let step = Step::cargo("tests of the facade", &["test", "--locked", "--tests"]);
        outcomes.push(step.arguments(&["--manifest-path", FACADE]).run_tests(root)?);
    }
    outcomes.extend(run_models(root)?);
    conclude(&outcomes)
}

/// Runs the models alone.
pub(crate) fn models(root: &Path) -> Result<(), Failure> {
    conclude(&run_models(root)?)
}

/// Simulates the cache with ten thousand seeds, or those that `UNHERD_SEED` and `UNHERD_SEEDS` say.
pub(crate) fn simulate(root: &Path) -> Result<Outcome, Failure> {
    let tests = ["--", "shuttle::many_seeds", "--include-ignored", "--nocapture"];
    SIMULATION.step(SIMULATION.package, SIMULATION.target).arguments(&tests).run_tests(root)
}

/// What CI runs: the checks, up to the first that fails, then the tests.
pub(crate) fn ci(root: &Path) -> Result<(), Failure> {
    let lints = ["--all-targets", "--", "-D", "warnings"];
    let mut checks = vec![
        Step::cargo("format", &["fmt", "--all", "--check"]),
        Step::cargo("lints", &["clippy", "--locked", "--workspace"]).arguments(&lints),
        // What counting costs is measured against it: see record/2026-11-22-counting.
        Step::cargo("lints of the build that does not count", &["clippy", "--locked"])
            .arguments(&["-p", "unherd-cli", "--features", "uncounted"])
            .arguments(&lints),
        // Readers of the code follow the links of private items too.
        Step::cargo("documentation", &["doc", "--no-deps", "--workspace"])
            .arguments(&["--document-private-items"])
            .environment("RUSTDOCFLAGS", "-Dwarnings -Arustdoc::redundant-explicit-links"),
    ];
    let features = ["", "cache", "async", "cache,async", "uncounted"];
    checks.extend(features.map(|features| {
        Step::cargo(format!("lints of the library with features: {features}"), &["clippy"])
            .arguments(&["--locked", "-p", "unherd", "--no-default-features"])
            .arguments(&["--features", features, "--", "-D", "warnings"])
    }));
    checks.push(package());
    checks.extend(elsewhere::steps(root)?);
    // Workspaces of their own, so the others' code is no dependency; but they must follow ours.
    for manifest in [RIVALS, FACADE_09, REDB, SQLITE] {
        if root.join(manifest).exists() {
            let step = Step::cargo(format!("lints of {manifest}"), &["clippy", "--locked"])
                .arguments(&["--workspace", "--manifest-path", manifest])
                .arguments(&lints);
            checks.push(step);
        }
    }
    println!("== tidy ==");
    tidy::run(root)?;
    for check in checks {
        let outcome = check.run(root)?;
        if !outcome.succeeded {
            return Err(Failure::Failed(format!("the step `{}` failed", outcome.name)));
        }
        println!("{}: {:.1} s", outcome.name, outcome.elapsed.as_secs_f64());
    }
    test(root)
}

/// Packs the library's crates, and builds each from its package. They are not on crates.io, so the
/// one that a package asks for is taken from here.
fn package() -> Step {
    let patches = ["sys", "sync", "cache"]
        .map(|name| format!("patch.crates-io.unherd-{name}.path = \"crates/{name}\""));
    let step = Step::cargo("packages of the library", &["package", "--allow-dirty"]);
    let step = step.arguments(&elsewhere::LIBRARY);
    patches.iter().fold(step, |step, patch| step.arguments(&["--config", patch]))
}

/// The manifest of the other projects' implementations.
pub(crate) const RIVALS: &str = "rivals/Cargo.toml";

/// parking_lot_core's interface on the wait table; and that of 0.9, a workspace of its own.
const FACADE: &str = "rivals/parking_lot_core/Cargo.toml";
const FACADE_09: &str = "rivals/parking_lot_core_09/Cargo.toml";

/// The manifests of the examples with other people's storage engines.
const REDB: &str = "examples/redb/Cargo.toml";
const SQLITE: &str = "examples/sqlite/Cargo.toml";

fn run_models(root: &Path) -> Result<Vec<Outcome>, Failure> {
    MODELS
        .iter()
        .map(|model| {
            let step = model.step(model.package, model.target).arguments(&["--", model.filter]);
            let mut outcome = step.run_tests(root)?;
            if outcome.succeeded && outcome.tests.passed == 0 {
                println!("no test of {} is called `{}`", model.package, model.filter);
                outcome.succeeded = false;
            }
            Ok(outcome)
        })
        .collect()
}

/// Prints what became of each step, and the sum as the last line of standard output.
pub(crate) fn conclude(outcomes: &[Outcome]) -> Result<(), Failure> {
    println!("\n== summary ==");
    for outcome in outcomes {
        let verdict = if outcome.succeeded { "ok" } else { "FAILED" };
        println!(
            "{:<28} {:>6.1} s  {:>5} passed {:>4} failed {:>4} ignored  {verdict}",
            outcome.name,
            outcome.elapsed.as_secs_f64(),
            outcome.tests.passed,
            outcome.tests.failed,
            outcome.tests.ignored,
        );
    }
    let (passed, failed) = total(outcomes);
    println!("{passed} passed, {failed} failed");
    match outcomes.iter().find(|outcome| !outcome.succeeded) {
        None => Ok(()),
        Some(first) => Err(Failure::Failed(format!("the step `{}` failed", first.name))),
    }
}

/// The sums of the tests. A step that failed without a failed test (it did not compile, or it was
/// killed) counts as one: no sum may say "0 failed" of it.
fn total(outcomes: &[Outcome]) -> (u64, u64) {
    outcomes.iter().fold((0, 0), |(passed, failed), outcome| {
        let silent = u64::from(!outcome.succeeded && outcome.tests.failed == 0);
        (passed + outcome.tests.passed, failed + outcome.tests.failed + silent)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::step::Tests;

    fn outcome(succeeded: bool, passed: u64, failed: u64) -> Outcome {
        let tests = Tests { passed, failed, ignored: 0 };
        Outcome { name: "step".to_owned(), succeeded, elapsed: Duration::ZERO, tests }
    }

    #[test]
    fn failed_step_counts_as_one_failure() {
        assert_eq!(total(&[outcome(true, 3, 0), outcome(false, 0, 0)]), (3, 1));
        assert_eq!(total(&[outcome(true, 3, 0), outcome(false, 1, 2)]), (4, 2));
        assert!(conclude(&[outcome(true, 1, 0)]).is_ok());
        assert!(conclude(&[outcome(true, 1, 0), outcome(false, 0, 0)]).is_err());
    }
}
