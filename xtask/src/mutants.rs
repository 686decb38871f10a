//! Mutants: each ordering and each rule of a protocol, broken in turn; a check must fail.
//!
//! A crate lists its mutants in `mutants.txt`: the exact text to replace, and the check that must
//! go red. They are applied to a copy of the tree, so production code has no switches.

mod table;
mod tree;

use std::path::Path;

use crate::failure::Failure;
use crate::suite::{MODELS, Model, target_directory};
#[cfg(test)]
pub(crate) use table::parse;
pub(crate) use table::{By, Row, Table, read};
use tree::Tree;

/// Builds and checks every mutant, or the one named.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let tables = read(root)?;
    let all = || tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    let chosen: Vec<(&Table, &Row)> = match arguments {
        [] => all().collect(),
        [id] => all().filter(|(_, row)| row.id == *id).collect(),
        _ => return Err(Failure::Usage("`mutants` takes one ID or none".to_owned())),
    };
    if let ([id], []) = (arguments, chosen.as_slice()) {
        return Err(Failure::Usage(format!("no mutant `{id}` stands in crates/*/mutants.txt")));
    }
    let tree = Tree::copy(root, &root.join(target_directory()).join("mutants/tree"))?;
    let mut wrong = Vec::new();
    for (table, row) in &chosen {
        let verdict = match &row.by {
            By::Nobody(reason) => Ok(format!("not visible: {reason}")),
            by => {
                let mutated = tree.apply(table, row)?;
                let catcher = catcher(&tree, table, row, by)?;
                mutated.restore()?;
                catcher
                    .map(|catcher| format!("caught by {} ({catcher})", row.check()))
                    .ok_or("SURVIVED: no check fails")
            }
        };
        println!("{:<16} {}", row.id, verdict.as_deref().unwrap_or_else(|text| text));
        if verdict.is_err() {
            wrong.push(row.id.as_str());
        }
    }
    println!("{} mutants, {} survived", chosen.len(), wrong.len());
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!("not caught: {}", wrong.join(", "))))
}

/// The ordinary tests, as if they were a model.
const TESTS: Model =
    Model { name: "tests", package: "", cfgs: &[], target: "tests", wrapper: None, filter: "" };

/// The first run that fails: one of the checker's runs of the package, or its ordinary tests. The
/// mutant must build, and its check must exist: neither a compiler error nor an empty run is a
/// catch.
fn catcher(tree: &Tree, table: &Table, row: &Row, by: &By) -> Result<Option<String>, Failure> {
    let package = format!("unherd-{}", table.name());
    let of = |checker| move |model: &&Model| model.cfgs.contains(&checker);
    let own = MODELS.iter().filter(|model| model.package == package);
    let models = match by {
        By::Loom(_) => own.filter(of("loom")).collect(),
        By::Shuttle(_) => own.filter(of("shuttle")).collect(),
        By::Test(_) | By::Nobody(_) => vec![&TESTS],
    };
    for model in models {
        let target = tree.root().with_file_name(model.target);
        let mut step = model
            .step(&package, model.target)
            .environment("CARGO_TARGET_DIR", target.display().to_string())
            // A mutant changes a line or two.
            .environment("CARGO_INCREMENTAL", "1")
            .environment("CARGO_PROFILE_RELEASE_DEBUG", "none");
        if matches!(by, By::Test(_)) {
            // Integration tests as well, which have no models.
            step = step.arguments(&["--tests"]);
        }
        let (builds, output) = step.clone().arguments(&["--no-run"]).run_quietly(tree.root())?;
        if !builds {
            let what = format!("mutant `{}` does not build:\n{output}", row.id);
            return Err(Failure::Failed(what));
        }
        let (passes, output) = step.arguments(&["--", row.check()]).run_quietly(tree.root())?;
        if !runs_any(&output) {
            let what = format!("mutant `{}`: no test is called `{}`", row.id, row.check());
            return Err(Failure::Failed(what));
        }
        if !passes {
            return Ok(Some(model.name.to_owned()));
        }
    }
    Ok(None)
}

/// Whether any of the binaries whose `output` this is has run a test.
fn runs_any(output: &str) -> bool {
    output.lines().any(|line| line.starts_with("running ") && line != "running 0 tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_no_test_is_none() {
        assert!(!runs_any("running 0 tests\n\nok\nrunning 0 tests\n"));
        assert!(runs_any("running 0 tests\n\nok\nrunning 1 test\n"));
    }
}
