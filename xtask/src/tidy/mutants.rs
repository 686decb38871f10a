//! Each mutant fits the code: its texts stand exactly once in their files, its check exists, and
//! each `ORDER[LABEL]` has a mutant, called `LABEL` or `LABEL-…`, or a reason why it has none.

use std::path::Path;

use super::Finding;
use super::orderings::{Site, of_label};
use super::source::Source;
use crate::mutants::{By, Row, Table};

/// Checks the tables against the code of the crates.
pub(crate) fn check(root: &Path, tables: &[Table], sources: &[Source]) -> Vec<Finding> {
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let sites = super::orderings::sites(sources);
    let mut findings = Vec::new();
    for table in tables {
        for row in &table.rows {
            let whats = edits_that_do_not_fit(table, row, read)
                .chain(missing_check(table, row, sources))
                .chain(unknown_label(row, &sites));
            let what = |what| Finding::new(&table.path(), 0, format!("`{}`: {what}", row.id));
            findings.extend(whats.map(what));
        }
    }
    let rows = || tables.iter().flat_map(|table| &table.rows);
    for (label, sites) in &sites {
        if !rows().any(|row| of_label(&row.id, label)) {
            let what = format!("ORDER[{label}] has no mutant, and no reason why, in mutants.txt");
            findings.push(Finding::new(&sites[0].file, sites[0].line, what));
        }
    }
    findings
}

fn edits_that_do_not_fit(
    table: &Table,
    row: &Row,
    read: impl Fn(&str) -> String,
) -> impl Iterator<Item = String> {
    row.edits
        .iter()
        .filter_map(move |edit| edit.apply(&read(&format!("{}/{}", table.folder, edit.file))).err())
}

/// A check is the name of a test of the crate, or a part of one.
fn missing_check(table: &Table, row: &Row, sources: &[Source]) -> Option<String> {
    let name = row.check().rsplit("::").next().unwrap_or_default();
    let is_named = |source: &Source| {
        source.path.starts_with(&format!("{}/", table.folder))
            && source.words("fn").any(|at| {
                let name_end = source.code[at..].find('(').unwrap_or_default();
                source.code[at..at + name_end].contains(name)
            })
    };
    let missing = !name.is_empty() && !sources.iter().any(is_named);
    missing.then(|| format!("no test is called `{}`", row.check()))
}

/// A row without a mutant is there for a label.
fn unknown_label(row: &Row, sites: &[(String, Vec<Site>)]) -> Option<String> {
    let is_reason = matches!(row.by, By::Nobody(_));
    let known = sites.iter().any(|(label, _)| *label == row.id);
    (is_reason && !known).then(|| format!("no code has ORDER[{}]", row.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::parse;

    /// What is found with this table, of a crate that has one file with this text.
    fn whats(rows: &str, text: &str) -> Vec<String> {
        let folder = std::env::temp_dir().join(format!("xtask-{}", std::process::id()));
        let file = "crates/a/src/lib.rs";
        std::fs::create_dir_all(folder.join("crates/a/src")).unwrap();
        std::fs::write(folder.join(file), text).unwrap();
        let table = Table { folder: "crates/a".to_owned(), rows: parse(rows).unwrap() };
        let found = check(&folder, &[table], &[Source::new(file, text)]);
        std::fs::remove_dir_all(&folder).unwrap();
        found.into_iter().map(|finding| finding.what).collect()
    }

    const ROW: &str = "[A-x]\nbreaks = b\neffect = e\ncheck = loom: t_x\nfile = src/lib.rs\n\
                       - Acquire\n+ Relaxed\n";
    const CODE: &str = "fn test_x() {\n    // ORDER[A]: with a\n    x.load(Acquire);\n}\n";

    #[test]
    fn mutants_and_code_must_agree() {
        assert_eq!(whats(ROW, CODE), [""; 0]);
        assert!(whats(ROW, &CODE.replace("Acquire", "SeqCst"))[0].contains("stands 0 times"));
        assert!(whats(ROW, &format!("{CODE}// Acquire"))[0].contains("stands 2 times"));
        assert!(whats(ROW, &CODE.replace("test_x", "test_y"))[0].contains("no test is called"));
        assert!(whats("", CODE)[0].contains("ORDER[A] has no mutant"));
        assert_eq!(whats("[A]\nunseen = why\n", CODE), [""; 0]);
        let unknown = whats(&format!("{ROW}[B]\nunseen = why\n"), CODE);
        assert!(unknown[0].contains("no code has ORDER[B]"));
    }
}
