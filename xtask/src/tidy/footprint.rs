//! How many crates a user of the library compiles.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;
use crate::failure::Failure;
use crate::step::Step;

/// The library, with its own crates and those of others.
const MOST: usize = 12;

const MANIFEST: &str = "crates/unherd/Cargo.toml";

/// What cargo builds for a user of the library, one crate a line.
pub(crate) fn tree(root: &Path) -> Result<String, Failure> {
    let arguments = ["tree", "--package", "unherd", "--edges", "normal"];
    let step = Step::cargo("tree", &arguments).arguments(&["--prefix", "none", "--no-dedupe"]);
    match step.run_quietly(root)? {
        (true, tree) => Ok(tree),
        (false, said) => Err(Failure::Failed(format!("cargo tree failed:\n{said}"))),
    }
}

pub(crate) fn check(tree: &str) -> Vec<Finding> {
    // Such as "libc v0.2.191"; other lines are cargo's messages.
    let is_crate = |line: &&str| line.split_whitespace().nth(1).is_some_and(is_version);
    let crates: BTreeSet<&str> = tree.lines().filter(is_crate).collect();
    if (1..=MOST).contains(&crates.len()) {
        return Vec::new();
    }
    let names: Vec<&str> = crates.iter().filter_map(|line| line.split(' ').next()).collect();
    let what = format!("{} crates, at most {MOST} are allowed: {}", names.len(), names.join(", "));
    vec![Finding::new(MANIFEST, 0, what)]
}

fn is_version(word: &str) -> bool {
    word.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_of(count: usize) -> String {
        let lines: Vec<String> = (0..count).map(|n| format!("crate-{n} v1.{n}.0\n")).collect();
        format!("    Blocking waiting for file lock\n{}{}", lines.concat(), lines.concat())
    }

    #[test]
    fn crates_are_counted_once() {
        assert_eq!(check(&tree_of(MOST)), []);
        let findings = check(&tree_of(MOST + 1));
        assert!(findings[0].what.starts_with("13 crates, at most 12"), "{findings:?}");
    }

    #[test]
    fn an_empty_tree_is_found() {
        assert_eq!(check("").len(), 1);
    }
}
