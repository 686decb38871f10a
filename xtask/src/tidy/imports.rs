//! Who may import whom.

use std::path::Path;

use super::Finding;
use super::json::Value;
use crate::failure::Failure;
use crate::step::Step;

/// For each package of the repository: which others of it may stand below it.
///
/// The lab starts what it measures as processes, so nothing of that is linked into it; the command
/// is where both meet. Every package's tests may use the testkit besides, and the package itself,
/// with other features.
const MAY_IMPORT: [(&str, &[&str]); 15] = [
    ("unherd-sys", &[]),
    ("unherd-sync", &["unherd-sys"]),
    ("unherd-cache", &["unherd-sys", "unherd-sync"]),
    ("unherd", &["unherd-sys", "unherd-sync", "unherd-cache"]),
    ("unherd-host", &["unherd-sys"]),
    ("unherd-trace", &["unherd-sys", "unherd-host"]),
    ("unherd-testkit", &["unherd-sys"]),
    ("unherd-load", &["unherd-sys", "unherd-host", "unherd"]),
    ("unherd-lab", &["unherd-sys", "unherd-host"]),
    ("unherd-cli", &["unherd-sys", "unherd-host", "unherd-load", "unherd-lab", "unherd-trace"]),
    ("unherd-rivals", &["unherd-sys", "unherd-sync", "unherd-load", FACADE]),
    (FACADE, &["unherd-sys", "unherd-sync", FACADE]),
    ("unherd-example-redb", &["unherd"]),
    ("unherd-example-sqlite", &["unherd"]),
    ("xtask", &[]),
];

const TESTKIT: &str = "unherd-testkit";

/// Ours, with the name of the package whose place it takes. The rivals use the original.
const FACADE: &str = "parking_lot_core";

/// A package that uses nothing but the standard library.
const STANDARD_ONLY: &str = "xtask";

/// What the rules ask of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    name: String,
    /// The roots of its crates, from the root of the repository.
    pub(crate) roots: Vec<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Dependency {
    name: String,
    for_tests: bool,
}

/// The packages of the workspace that `manifest` describes.
pub(crate) fn packages(root: &Path, manifest: &str) -> Result<Vec<Package>, Failure> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest];
    let (succeeded, output) = Step::cargo("metadata", &arguments).run_quietly(root)?;
    let text = output.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    if !succeeded {
        return Err(Failure::Failed(format!("cargo metadata of {manifest} failed:\n{output}")));
    }
    let metadata = Value::parse(text)
        .map_err(|error| Failure::Failed(format!("cargo metadata of {manifest}: {error}")))?;
    let prefix = format!("{}/", root.display());
    Ok(metadata.items("packages").iter().map(|package| read(package, &prefix)).collect())
}

fn read(package: &Value, prefix: &str) -> Package {
    let text = |value: &Value, name: &str| value.text(name).unwrap_or_default().to_owned();
    let roots = package
        .items("targets")
        .iter()
        .filter_map(|target| target.text("src_path")?.strip_prefix(prefix).map(str::to_owned))
        .collect();
    let dependencies = package
        .items("dependencies")
        .iter()
        .map(|dependency| Dependency {
            name: text(dependency, "name"),
            for_tests: dependency.text("kind") == Some("dev"),
        })
        .collect();
    Package { name: text(package, "name"), roots, dependencies }
}

/// Checks the packages of one workspace.
pub(crate) fn check(manifest: &str, packages: &[Package]) -> Vec<Finding> {
    let ours = |name: &str| MAY_IMPORT.iter().any(|(ours, _)| *ours == name);
    let mut findings = Vec::new();
    for package in packages {
        let rule = MAY_IMPORT.iter().find(|(name, _)| *name == package.name);
        let Some((name, allowed)) = rule else {
            let what = format!("no rule says what `{}` may import", package.name);
            findings.push(Finding::new(manifest, 0, what));
            continue;
        };
        for Dependency { name: other, for_tests } in &package.dependencies {
            let foreign = !ours(other) && !other.starts_with("unherd");
            let in_tests = *for_tests && [TESTKIT, name].contains(&other.as_str());
            let forbidden = if foreign {
                *name == STANDARD_ONLY
            } else {
                !(allowed.contains(&other.as_str()) || in_tests)
            };
            if forbidden {
                let what = format!("`{name}` may not import `{other}`");
                findings.push(Finding::new(manifest, 0, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(name: &str, other: &str, kind: &str) -> Vec<String> {
        let text = format!(
            r#"{{"name": "{name}", "targets": [{{"src_path": "/r/crates/a/src/lib.rs"}}],
                "dependencies": [{{"name": "{other}", "kind": {kind}}}]}}"#
        );
        let package = read(&Value::parse(&text).unwrap(), "/r/");
        assert_eq!(package.roots, ["crates/a/src/lib.rs"]);
        check("Cargo.toml", &[package]).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn an_import_against_the_direction_is_found() {
        assert_eq!(whats("unherd-sync", "unherd-cache", "null").len(), 1);
        assert_eq!(whats("unherd-lab", "unherd-load", "null").len(), 1);
        assert_eq!(whats("unherd-lab", "unherd-load", "\"dev\"").len(), 1);
        assert_eq!(whats("unherd-cache", "unherd-testkit", "null").len(), 1);
        assert_eq!(whats("unherd-cache", "unherd-host", "null").len(), 1);
        assert_eq!(whats("xtask", "serde", "null").len(), 1);
        assert_eq!(whats("unherd-more", "serde", "null").len(), 1);
        assert_eq!(whats("unherd-sync", "unherd-more", "null").len(), 1);
    }

    #[test]
    fn what_the_table_allows_is_free() {
        assert_eq!(whats("unherd-cache", "unherd-sync", "null"), [""; 0]);
        assert_eq!(whats("unherd-cache", "unherd-testkit", "\"dev\""), [""; 0]);
        assert_eq!(whats("unherd-cache", "unherd-cache", "\"dev\""), [""; 0]);
        assert_eq!(whats("unherd-cache", "foldhash", "null"), [""; 0]);
    }
}
