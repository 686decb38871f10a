//! The copy of the tree that mutants are applied to.
//!
//! It stays from run to run, and a file is written only where it differs: cargo builds again only
//! what has changed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Row, Table};
use crate::failure::Failure;

/// What cargo needs of the repository to build a crate, and the checkers to run it.
const PARTS: [&str; 5] = ["Cargo.toml", "Cargo.lock", ".ci", "crates", "xtask"];

pub(super) struct Tree {
    original: PathBuf,
    root: PathBuf,
}

/// The files of a mutant. [`Mutated::restore`] puts the original ones back; after a run that broke
/// off, the next [`Tree::copy`] does.
pub(super) struct Mutated<'a> {
    tree: &'a Tree,
    files: Vec<PathBuf>,
}

impl Tree {
    /// Brings the copy below `root` up to date with the tree at `original`.
    pub(super) fn copy(original: &Path, root: &Path) -> Result<Self, Failure> {
        let tree = Self { original: original.to_owned(), root: root.to_owned() };
        let copied = fs::create_dir_all(root).and_then(|()| {
            let mut parts = Vec::new();
            for part in PARTS {
                files(original, Path::new(part), &mut parts)?;
            }
            let wanted: BTreeSet<_> = parts.iter().collect();
            let mut there = Vec::new();
            for part in PARTS.iter().filter(|part| root.join(part).exists()) {
                files(root, Path::new(part), &mut there)?;
            }
            for stale in there.iter().filter(|path| !wanted.contains(path)) {
                fs::remove_file(root.join(stale))?;
            }
            parts.iter().try_for_each(|path| tree.take(path))
        });
        copied.map_err(|error| cannot(root, &error))?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the edits of `row`. Nothing is written if one of them does not fit.
    pub(super) fn apply(&self, table: &Table, row: &Row) -> Result<Mutated<'_>, Failure> {
        let mut texts: Vec<(PathBuf, String)> = Vec::new();
        for edit in &row.edits {
            let path = Path::new(&table.folder).join(&edit.file);
            let at = texts.iter().position(|(known, _)| *known == path);
            let at = match at {
                Some(at) => at,
                None => {
                    let text = fs::read_to_string(self.original.join(&path));
                    texts.push((path.clone(), text.map_err(|error| cannot(&path, &error))?));
                    texts.len() - 1
                }
            };
            let mutated = edit.apply(&texts[at].1);
            texts[at].1 =
                mutated.map_err(|what| Failure::Failed(format!("mutant `{}`: {what}", row.id)))?;
        }
        let mut mutated = Mutated { tree: self, files: Vec::new() };
        for (path, text) in texts {
            let written = fs::write(self.root.join(&path), text);
            written.map_err(|error| cannot(&path, &error))?;
            mutated.files.push(path);
        }
        Ok(mutated)
    }

    /// Copies one file, if it differs.
    fn take(&self, path: &Path) -> io::Result<()> {
        let (from, to) = (self.original.join(path), self.root.join(path));
        let wanted = fs::read(&from)?;
        if fs::read(&to).is_ok_and(|there| there == wanted) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        // With its permissions: `.ci` has programs.
        fs::copy(from, to).map(drop)
    }
}

impl Mutated<'_> {
    pub(super) fn restore(self) -> Result<(), Failure> {
        let restore = |path: &PathBuf| self.tree.take(path).map_err(|error| cannot(path, &error));
        self.files.iter().try_for_each(restore)
    }
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot copy to or from {}: {error}", path.display()))
}

/// The files at or below `path`, from `root`; not what programs have made.
fn files(root: &Path, path: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if !root.join(path).is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(root.join(path))? {
        let entry = entry?;
        if entry.file_name() != "target" {
            files(root, &path.join(entry.file_name()), found)?;
        }
    }
    Ok(())
}
