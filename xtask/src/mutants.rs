//! Each ordering removed in turn: its check must fail, or the list says why it cannot.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::suite::{MODELS, Model, target_directory};

/// The list of mutants, from the root of the repository.
pub(crate) const LIST: &str = "xtask/mutants.txt";

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) id: String,
    package: String,
    test: String,
    expected: Expected,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    /// By a checker, in one of its runs.
    Caught,
    /// By an ordinary test, which no checker runs.
    CaughtByTest,
    NotVisible(String),
}

impl Mutant {
    /// Whether the code can be built with it. Otherwise its line gives the reason why it has no
    /// switch, and is there for readers.
    pub(crate) fn has_switch(&self) -> bool {
        self.package != "-"
    }
}

/// Builds and checks every mutant of the list, or the one named.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let text = fs::read_to_string(root.join(LIST))
        .map_err(|error| Failure::Usage(format!("cannot read {LIST}: {error}")))?;
    let all = parse(&text).map_err(Failure::Failed)?;
    let chosen: Vec<Mutant> = match arguments {
        [] => all,
        [id] => all.into_iter().filter(|mutant| mutant.id == *id).collect(),
        _ => return Err(Failure::Usage("`mutants` takes one ID or none".to_owned())),
    };
    if let ([id], []) = (arguments, chosen.as_slice()) {
        return Err(Failure::Usage(format!("no mutant `{id}` stands in {LIST}")));
    }
    let mut wrong = Vec::new();
    for mutant in &chosen {
        let verdict = verdict(mutant, catcher(root, mutant)?);
        println!("{:<16} {}", mutant.id, verdict.as_ref().unwrap_or_else(|text| text));
        if verdict.is_err() {
            wrong.push(mutant.id.as_str());
        }
    }
    println!("{} mutants, {} not as expected", chosen.len(), wrong.len());
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!("not as {LIST} says: {}", wrong.join(", "))))
}

/// Reads the list.
pub(crate) fn parse(text: &str) -> Result<Vec<Mutant>, String> {
    let mut mutants: Vec<Mutant> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [id, package, test, expected] = fields.as_slice() else {
            return Err(format!("{LIST}:{number}: {} fields instead of 4", fields.len()));
        };
        let expected = match (*expected, expected.strip_prefix("not visible:")) {
            ("caught", _) => Expected::Caught,
            ("caught by a test", _) => Expected::CaughtByTest,
            (_, Some(reason)) if !reason.trim().is_empty() => {
                Expected::NotVisible(reason.trim().to_owned())
            }
            _ => return Err(format!("{LIST}:{number}: `{expected}` is no expectation")),
        };
        if mutants.iter().any(|other| other.id == *id) {
            return Err(format!("{LIST}:{number}: `{id}` stands twice"));
        }
        let [id, package, test] = [id, package, test].map(|&field| field.to_owned());
        mutants.push(Mutant { id, package, test, expected });
    }
    Ok(mutants)
}

/// The ordinary tests, as if they were a model.
const TESTS: Model = Model { name: "tests", package: "", cfgs: &[], target: "tests", filter: "" };

/// Which of loom's runs of the package fails, or that of its ordinary tests. That the mutant
/// builds, and that its test exists, is checked first: neither a compiler error nor an empty run is
/// a catch.
fn catcher(root: &Path, mutant: &Mutant) -> Result<Option<&'static str>, Failure> {
    let wrapper = compiler_of(root, mutant).map_err(|error| {
        Failure::Failed(format!("cannot write a script below {}: {error}", target_directory()))
    })?;
    let is_loom = |model: &&Model| model.package == mutant.package && model.cfgs.contains(&"loom");
    let models = match mutant.expected {
        Expected::CaughtByTest => vec![&TESTS],
        Expected::Caught | Expected::NotVisible(_) => MODELS.iter().filter(is_loom).collect(),
    };
    for model in models {
        let mut step = model
            .step(&mutant.package, &format!("mutants/{}", model.target))
            .environment("RUSTC_WORKSPACE_WRAPPER", wrapper.to_string_lossy());
        if mutant.expected == Expected::CaughtByTest {
            // Integration tests as well, which have no models.
            step = step.arguments(&["--tests"]);
        }
        let (builds, output) = step.clone().arguments(&["--no-run"]).run_quietly(root)?;
        if !builds {
            let what = format!("mutant `{}` does not build:\n{output}", mutant.id);
            return Err(Failure::Failed(what));
        }
        let (passes, output) = step.arguments(&["--", &mutant.test]).run_quietly(root)?;
        if !runs_any(&output) {
            let what = format!("mutant `{}`: no test is called `{}`", mutant.id, mutant.test);
            return Err(Failure::Failed(what));
        }
        if !passes {
            return Ok(Some(model.name));
        }
    }
    Ok(None)
}

/// Whether any of the binaries whose `output` this is has run a test.
fn runs_any(output: &str) -> bool {
    output.lines().any(|line| line.starts_with("running ") && line != "running 0 tests")
}

/// A compiler that builds the mutant: for the workspace's crates alone, so that their dependencies
/// need not be built again for each.
fn compiler_of(root: &Path, mutant: &Mutant) -> std::io::Result<PathBuf> {
    let directory = root.join(target_directory()).join("mutants");
    fs::create_dir_all(&directory)?;
    let script = directory.join(format!("rustc-{}", mutant.id));
    fs::write(&script, format!("#!/bin/sh\nexec \"$@\" --cfg 'mutant=\"{}\"'\n", mutant.id))?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    Ok(script)
}

/// What to say of a mutant; an error where the list is wrong about it.
fn verdict(mutant: &Mutant, catcher: Option<&str>) -> Result<String, String> {
    match (&mutant.expected, catcher) {
        (Expected::NotVisible(reason), None) => Ok(format!("not visible: {reason}")),
        (Expected::NotVisible(_), Some(_)) => {
            Err("CAUGHT, though listed as not visible".to_owned())
        }
        (_, Some(catcher)) => Ok(format!("caught by {} ({catcher})", mutant.test)),
        (_, None) => Err("SURVIVED: no check fails without it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_no_test_is_none() {
        assert!(!runs_any("running 0 tests\n\nok\nrunning 0 tests\n"));
        assert!(runs_any("running 0 tests\n\nok\nrunning 1 test\n"));
    }

    #[test]
    fn the_list_is_read_and_its_faults_are_named() {
        let good = "# head\n\nA1 | p | loom::wake | caught\nB2|p|t|not visible: the lock orders\n\
                    C3|p|t|caught by a test\n";
        let mutants = parse(good).unwrap();
        assert_eq!(mutants.len(), 3);
        assert_eq!(mutants[0].expected, Expected::Caught);
        assert_eq!(mutants[1].expected, Expected::NotVisible("the lock orders".to_owned()));
        assert_eq!(mutants[2].expected, Expected::CaughtByTest);
        assert!(parse("A1 | p | t").unwrap_err().contains(":1: 3 fields"));
        assert!(parse("A1 | p | t | not visible: ").unwrap_err().contains("no expectation"));
        assert!(parse("A|p|t|caught\nA|p|t|caught").unwrap_err().contains("twice"));
    }

    #[test]
    fn a_survivor_and_a_surprise_are_both_wrong() {
        let list = parse("A|p|t|caught\nB|p|t|not visible: why\nC|p|t|caught by a test").unwrap();
        assert_eq!(verdict(&list[0], Some("loom")), Ok("caught by t (loom)".to_owned()));
        assert_eq!(verdict(&list[1], None), Ok("not visible: why".to_owned()));
        assert_eq!(verdict(&list[2], Some("tests")), Ok("caught by t (tests)".to_owned()));
        for (mutant, catcher) in [(0, None), (1, Some("loom")), (2, None)] {
            assert!(verdict(&list[mutant], catcher).is_err());
        }
    }
}
