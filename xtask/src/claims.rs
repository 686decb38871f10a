//! The published figures, measured again.

use std::path::Path;

use crate::demo;
use crate::failure::Failure;
use crate::step::Step;
use crate::suite::RIVALS;

const WITHOUT_RIVALS: &str = "--without-rivals";

/// Options of `unherd claims` that have a value of their own, other than `--file`.
const WITH_VALUE: [&str; 2] = ["--page", "--commit"];

/// Builds what the claims of `claims.toml` need, and hands over to `unherd claims`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    if !arguments.iter().any(|argument| argument.starts_with("--file")) {
        let file = root.join("claims.toml");
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?;
        check_names(&text, arguments)?;
    }
    let program = demo::build(root)?;
    let is_one_of = |words: &[&str]| arguments.iter().any(|it| words.contains(&it.as_str()));
    let with_rivals = !is_one_of(&[WITHOUT_RIVALS, "--list", "--table", "--help", "-h"]);
    if with_rivals && root.join(RIVALS).exists() {
        let outcome =
            Step::cargo("build of rivals", &["build", "--release", "--manifest-path", RIVALS])
                .environment("CARGO_TARGET_DIR", rivals_target(root, &program))
                .run(root)?;
        if !outcome.succeeded {
            let what = format!("the build of rivals failed; {WITHOUT_RIVALS} does without them");
            return Err(Failure::Failed(what));
        }
    }
    let commit = commit(root);
    let passed_on: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|&argument| argument != WITHOUT_RIVALS)
        .collect();
    let program = Step::program("unherd", &program);
    program.arguments(&["claims", "--commit", &commit]).arguments(&passed_on).run_last(root)
}

/// Where the rivals are built, so that `program` finds them: beside it, or in their own workspace
/// where it is in this one's directory.
fn rivals_target(root: &Path, program: &Path) -> String {
    let target = program.parent().and_then(Path::parent);
    match target.filter(|target| *target != root.join("target")) {
        Some(target) => target.display().to_string(),
        None => "rivals/target".to_owned(),
    }
}

/// Refuses a name that no claim has in the words of `unherd claims`, before minutes of building.
fn check_names(claims: &str, arguments: &[String]) -> Result<(), Failure> {
    let known: Vec<&str> = claims
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .collect();
    let mut is_value = false;
    for argument in arguments.iter().map(String::as_str) {
        if !is_value && !argument.starts_with('-') && !known.contains(&argument) {
            let known = known.join(", ");
            let what = format!("no claim is called '{argument}'; there are: {known}");
            return Err(Failure::Usage(what));
        }
        is_value = WITH_VALUE.contains(&argument);
    }
    Ok(())
}

/// The commit that is measured, marked where the checkout differs from it.
fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        Step::program("commit", Path::new("git")).arguments(arguments).run_quietly(root)
    };
    let Ok((true, commit)) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let clean = git(&["diff", "--quiet", "HEAD"]).is_ok_and(|(clean, _)| clean);
    format!("{}{}", commit.trim(), if clean { "" } else { "-dirty" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_are_built_where_unherd_looks() {
        let of = |program: &str| rivals_target(Path::new("/a"), Path::new(program));
        assert_eq!(of("/a/target/release/unherd"), "rivals/target");
        assert_eq!(of("/elsewhere/release/unherd"), "/elsewhere");
    }

    #[test]
    fn unknown_claim_is_refused_before_building() {
        let claims = "[[claim]]\nname = \"good\"\nsays = \"x\"\n[[claim]]\nname = \"bold\"\n";
        let check = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            check_names(claims, &arguments).map_err(|failure| failure.to_string())
        };
        assert_eq!(check("good --quick bold"), Ok(()));
        assert_eq!(check("--update --commit abc good"), Ok(()));
        let refused = "no claim is called 'nosuch'; there are: good, bold";
        assert_eq!(check("good nosuch"), Err(refused.to_owned()));
    }
}
