//! Every file is reached from the root of a crate: none lies about without an owner.
//!
//! Modules that stand in a file of their own inside of an inline module are not followed, and so
//! are reported; there should be none.

use std::collections::BTreeSet;

use super::Finding;
use super::source::Source;

/// Follows the modules from the crates' roots, marks those that are for tests, and gives the files
/// that were not reached.
pub(crate) fn check(crate_roots: &[String], sources: &mut [Source]) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<(String, bool)> =
        crate_roots.iter().map(|root| (root.clone(), false)).collect();
    let is_root = |path: &str| crate_roots.iter().any(|root| root == path);
    while let Some((path, test)) = open.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        let Some(source) = sources.iter_mut().find(|source| source.path == path) else {
            continue;
        };
        if test {
            source.mark_as_test();
        }
        let folder = folder(&path, is_root(&path));
        let declared = declarations(source);
        for (names, test) in declared {
            let candidates = names.into_iter().map(|name| format!("{folder}{name}"));
            let files: Vec<String> =
                candidates.filter(|path| sources.iter().any(|s| s.path == *path)).collect();
            open.extend(files.into_iter().map(|path| (path, test)));
        }
    }
    sources
        .iter()
        .filter(|source| !reached.contains(&source.path))
        .map(|source| Finding::new(&source.path, 0, "no `mod` names this file"))
        .collect()
}

/// The folder of a file's modules.
fn folder(path: &str, is_root: bool) -> String {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    if is_root || name == "mod.rs" {
        format!("{parent}/")
    } else {
        format!("{}/", path.trim_end_matches(".rs"))
    }
}

/// The files that each `mod name;` may mean, below the folder, and whether it is for tests.
fn declarations(source: &Source) -> Vec<(Vec<String>, bool)> {
    source
        .words("mod")
        .filter_map(|at| {
            let (name, _) = source.code[at + "mod".len()..].split_once([';', '{'])?;
            let end = at + "mod".len() + name.len();
            let name = name.trim();
            let is_name = !name.is_empty() && name.chars().all(super::source::is_word);
            (is_name && source.code.as_bytes()[end] == b';')
                .then(|| (vec![format!("{name}.rs"), format!("{name}/mod.rs")], source.is_test(at)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_owner_is_found() {
        let mut sources = [
            Source::new("c/src/lib.rs", "mod a;\n#[cfg(test)]\nmod tests;\nmod inline { }\n"),
            Source::new("c/src/a.rs", "pub(crate) mod b; // mod c;\n"),
            Source::new("c/src/a/b.rs", ""),
            Source::new("c/src/a/c.rs", ""),
            Source::new("c/src/tests.rs", "mod more;"),
            Source::new("c/src/tests/more.rs", ""),
        ];
        let findings = check(&["c/src/lib.rs".to_owned()], &mut sources);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].file, "c/src/a/c.rs");
        assert!(sources[4].is_test(0) && sources[5].is_test(0));
        assert!(!sources[1].is_test(0));
    }
}
