//! The rules of this repository that neither the compiler nor clippy checks.
//!
//! Each rule is a file of its own with a test in which it goes red. What the rules read is in
//! `source` (Rust text, split into code and comments) and `json` (what `cargo metadata` prints).

mod circles;
mod columns;
mod footprint;
mod imports;
pub(crate) mod json;
mod layers;
mod length;
mod modules;
mod mutants;
mod ordering_page;
mod orderings;
mod paths;
mod primitives;
mod purity;
mod safety;
mod size;
mod source;
mod statement;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use source::Source;

/// A place where a rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, from the root of the repository.
    file: String,
    /// Counted from 1; 0 for the file as a whole.
    line: usize,
    what: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

/// Workspaces of this repository. Those besides the first may not be there.
const MANIFESTS: [&str; 6] = [
    "Cargo.toml",
    "rivals/Cargo.toml",
    "rivals/parking_lot_core_09/Cargo.toml",
    "examples/redb/Cargo.toml",
    "examples/sqlite/Cargo.toml",
    "fuzz/Cargo.toml",
];

/// What is read, from the root of the repository.
const FOLDERS: [&str; 8] =
    ["crates", "xtask", "rivals", "examples", "fuzz", "docs", ".ci", ".cargo"];

/// What programs have made; `.git` is a file in a second checkout of one repository.
const MADE: [&str; 3] = ["target", "proptest-regressions", ".git"];

/// Checks the whole repository, and prints what it finds.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let mut findings = check(root)?;
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: nothing found");
            Ok(())
        }
        n => Err(Failure::Failed(format!("tidy found {n} places; the lines above name them"))),
    }
}

fn check(root: &Path) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let texts = texts(root)?;
    for (path, text) in &texts {
        findings.extend(words::check(path, text));
        findings.extend(columns::check(path, text));
        findings.extend(length::check(path, text));
    }
    let sources = sources(root, &texts, &mut findings)?;
    findings.extend(footprint::check(&footprint::tree(root)?));

    let tables = crate::mutants::read(root)?;
    findings.extend(mutants::check(root, &tables, &sources));
    findings.extend(ordering_page::check(root, &tables, &sources));
    findings.extend(orderings::check(&sources));
    findings.extend(circles::check(&sources));
    for source in &sources {
        findings.extend(safety::check(source));
        findings.extend(primitives::check(source));
        findings.extend(purity::check(source));
        findings.extend(layers::check(source));
    }
    Ok(findings)
}

/// The files that are text. What is not text is nobody's prose or code.
fn texts(root: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut texts = Vec::new();
    for path in files(root)? {
        if let Ok(text) = std::fs::read_to_string(root.join(&path)) {
            texts.push((path, text));
        }
    }
    Ok(texts)
}

/// The Rust among `texts`, with tests known as such.
fn sources(
    root: &Path,
    texts: &[(String, String)],
    findings: &mut Vec<Finding>,
) -> Result<Vec<Source>, Failure> {
    let mut sources: Vec<Source> = texts
        .iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .map(|(path, text)| Source::new(path, text))
        .collect();
    let mut crate_roots = Vec::new();
    for manifest in MANIFESTS.iter().filter(|manifest| root.join(manifest).exists()) {
        let packages = imports::packages(root, manifest)?;
        findings.extend(imports::check(manifest, &packages));
        crate_roots.extend(packages.into_iter().flat_map(|package| package.roots));
    }
    findings.extend(modules::check(&crate_roots, &mut sources));
    Ok(sources)
}

/// Writes the tables of `docs/ordering.md`.
pub(crate) fn write_ordering_page(root: &Path) -> Result<(), Failure> {
    let sources = sources(root, &texts(root)?, &mut Vec::new())?;
    ordering_page::write(root, &crate::mutants::read(root)?, &sources)
}

/// Counts the code of each crate.
pub(crate) fn print_sizes(root: &Path) -> Result<(), Failure> {
    let sources = sources(root, &texts(root)?, &mut Vec::new())?;
    size::print(&sources);
    Ok(())
}

/// The files to check, from the root: those that lie in it, and those in the folders above.
fn files(root: &Path) -> Result<Vec<String>, Failure> {
    let mut folders: Vec<PathBuf> = vec![PathBuf::new()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let cannot = |error: std::io::Error| {
            Failure::Failed(format!("cannot list {}: {error}", root.join(&folder).display()))
        };
        for entry in std::fs::read_dir(root.join(&folder)).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let path = folder.join(entry.file_name());
            let name = path.to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(cannot)?;
            let made = MADE.iter().any(|made| path.ends_with(made));
            let at_root = folder.as_os_str().is_empty();
            if kind.is_dir() && !made && (!at_root || FOLDERS.contains(&name.as_str())) {
                folders.push(path);
            } else if kind.is_file() && !made {
                files.push(name);
            }
        }
    }
    files.sort();
    Ok(files)
}
