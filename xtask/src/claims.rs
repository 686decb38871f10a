//! The published figures, measured again.

use std::path::Path;

use crate::demo;
use crate::failure::Failure;
use crate::step::Step;
use crate::suite::RIVALS;

const WITHOUT_RIVALS: &str = "--without-rivals";

/// Builds what the claims of `claims.toml` need, and hands over to `unherd claims`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let program = demo::build(root)?;
    let is_one_of = |words: &[&str]| arguments.iter().any(|it| words.contains(&it.as_str()));
    let with_rivals = !is_one_of(&[WITHOUT_RIVALS, "--list", "--table"]);
    if with_rivals && root.join(RIVALS).exists() {
        let outcome =
            Step::cargo("build of rivals", &["build", "--release", "--manifest-path", RIVALS])
                .environment("CARGO_TARGET_DIR", "rivals/target")
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
    program.arguments(&["claims", "--commit", &commit]).arguments(&passed_on).run_last(root)
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
