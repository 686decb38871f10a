//! Each ordering removed in turn: its check must fail, or the list says why it cannot.

use std::path::Path;

use crate::failure::Failure;
use crate::suite::{MODELS, Model};

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
    let text = std::fs::read_to_string(root.join(LIST))
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
        let verdict = verdict(&mutant.expected, is_caught(root, mutant)?);
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
const TESTS: Model = Model { name: "tests", package: "", cfgs: &[], target: "", filter: "" };

/// Whether one of loom's runs of the package fails, or that of its ordinary tests. That the mutant
/// builds, and that its test exists, is checked first: neither a compiler error nor an empty run is
/// a catch.
fn is_caught(root: &Path, mutant: &Mutant) -> Result<bool, Failure> {
    let cfg = format!("mutant=\"{}\"", mutant.id);
    let is_loom = |model: &&Model| model.package == mutant.package && model.cfgs.contains(&"loom");
    let models = match mutant.expected {
        Expected::CaughtByTest => vec![&TESTS],
        Expected::Caught | Expected::NotVisible(_) => MODELS.iter().filter(is_loom).collect(),
    };
    for model in models {
        let step = model.step(&mutant.package, "mutants", std::slice::from_ref(&cfg));
        let (builds, output) = step.clone().arguments(&["--no-run"]).run_quietly(root)?;
        if !builds {
            let what = format!("mutant `{}` does not build:\n{output}", mutant.id);
            return Err(Failure::Failed(what));
        }
        let (passes, output) = step.arguments(&["--", &mutant.test]).run_quietly(root)?;
        if output.contains("running 0 tests") {
            let what = format!("mutant `{}`: no test is called `{}`", mutant.id, mutant.test);
            return Err(Failure::Failed(what));
        }
        if !passes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What to say of a mutant; an error where the list is wrong about it.
fn verdict(expected: &Expected, caught: bool) -> Result<String, String> {
    match (expected, caught) {
        (Expected::Caught | Expected::CaughtByTest, true) => Ok("caught".to_owned()),
        (Expected::Caught | Expected::CaughtByTest, false) => {
            Err("SURVIVED: no check fails without it".to_owned())
        }
        (Expected::NotVisible(reason), false) => Ok(format!("not visible: {reason}")),
        (Expected::NotVisible(_), true) => Err("CAUGHT, though listed as not visible".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let not_visible = Expected::NotVisible("why".to_owned());
        assert!(verdict(&Expected::Caught, true).is_ok());
        assert!(verdict(&Expected::Caught, false).is_err());
        assert!(verdict(&not_visible, false).is_ok());
        assert!(verdict(&not_visible, true).is_err());
    }
}
