//! The tables of `docs/ordering.md`: made from the `ORDER[…]` comments and the tables of mutants,
//! so that nothing is written twice. `cargo x ordering` writes them.

use std::fmt::Write;
use std::path::Path;

use super::Finding;
use super::orderings::{Site, crate_of, of_label, sites};
use super::source::Source;
use crate::failure::Failure;
use crate::mutants::{By, Row, Table};

const PAGE: &str = "docs/ordering.md";

/// What stands above this line is written by hand.
const MARK: &str = "<!-- Made by `cargo x ordering`; do not edit below. -->";

/// Whether the page is what [`write()`] would write.
pub(crate) fn check(root: &Path, tables: &[Table], sources: &[Source]) -> Vec<Finding> {
    match page(root, tables, sources) {
        Ok((old, new)) if old == new => Vec::new(),
        Ok(_) => vec![Finding::new(PAGE, 0, "out of date; `cargo x ordering` writes it")],
        Err(what) => vec![Finding::new(PAGE, 0, what)],
    }
}

/// Writes the page.
pub(crate) fn write(root: &Path, tables: &[Table], sources: &[Source]) -> Result<(), Failure> {
    let (_, new) = page(root, tables, sources).map_err(Failure::Failed)?;
    std::fs::write(root.join(PAGE), new)
        .map_err(|error| Failure::Failed(format!("cannot write {PAGE}: {error}")))
}

/// The page as it is, and as it has to be.
fn page(root: &Path, tables: &[Table], sources: &[Source]) -> Result<(String, String), String> {
    let old = std::fs::read_to_string(root.join(PAGE));
    let old = old.map_err(|error| format!("cannot be read: {error}"))?;
    let (head, _) = old.split_once(MARK).ok_or_else(|| format!("has no line `{MARK}`"))?;
    let new = format!("{head}{MARK}\n{}", body(tables, &sites(sources)));
    Ok((old, new))
}

/// A chapter for each crate that orders anything.
fn body(tables: &[Table], sites: &[(String, Vec<Site>)]) -> String {
    let mut folders: Vec<&str> = sites.iter().map(|(_, sites)| crate_of(&sites[0].file)).collect();
    folders.extend(tables.iter().map(|table| table.folder.as_str()));
    folders.sort_unstable();
    folders.dedup();
    let mut text = String::new();
    for folder in folders {
        let rows: Vec<&Row> =
            tables.iter().filter(|table| table.folder == folder).flat_map(|t| &t.rows).collect();
        line(&mut text, format_args!("\n## `{folder}`"));
        let here = |(_, sites): &&(String, Vec<Site>)| crate_of(&sites[0].file) == folder;
        let labels: Vec<_> = sites.iter().filter(here).collect();
        for (label, sites) in &labels {
            line(&mut text, format_args!("\n### {label}\n"));
            sites.iter().for_each(|site| {
                let file = site.file.strip_prefix(folder).unwrap_or_default();
                line(
                    &mut text,
                    format_args!("- `{}`: {}", file.trim_start_matches('/'), site.text),
                );
            });
            let of_this = |row: &&&Row| of_label(&row.id, label);
            table(&mut text, rows.iter().filter(of_this));
        }
        let is_rule = |row: &&&Row| !labels.iter().any(|(label, _)| of_label(&row.id, label));
        if rows.iter().any(|row| is_rule(&row)) {
            line(&mut text, format_args!("\n### Rules that are no orderings"));
            table(&mut text, rows.iter().filter(is_rule));
        }
    }
    text
}

/// The mutants of a label, or the reason why there is none.
fn table<'a>(text: &mut String, rows: impl Iterator<Item = &'a &'a Row>) {
    let mut is_open = false;
    for row in rows {
        if let By::Nobody(reason) = &row.by {
            line(text, format_args!("\nNo mutant: {reason}."));
            continue;
        }
        if !is_open {
            line(
                text,
                format_args!("\n| mutant | breaks | effect | caught by |\n|---|---|---|---|"),
            );
            is_open = true;
        }
        let kind = match row.by {
            By::Loom(_) => "loom",
            By::Shuttle(_) => "shuttle",
            By::Test(_) | By::Nobody(_) => "test",
        };
        let cells = [&row.breaks, &row.effect].map(|cell| cell.replace('|', "\\|"));
        let (id, [breaks, effect], check) = (&row.id, cells, row.check());
        line(text, format_args!("| `{id}` | {breaks} | {effect} | {kind} `{check}` |"));
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::parse;

    #[test]
    fn labels_have_their_sites_and_mutants() {
        let code = "// ORDER[A]: Acquire; pairs with\n// the kernel.\nx.load(Acquire);\n";
        let sources = [Source::new("crates/a/src/b.rs", code)];
        let rows = "[A-x]\nbreaks = a|b\neffect = e\ncheck = loom: t\nfile = f\n- o\n+ n\n\
                    [RULE]\nbreaks = r\neffect = e\ncheck = test: u\nfile = f\n- o\n+ n\n";
        let table = Table { folder: "crates/a".to_owned(), rows: parse(rows).unwrap() };
        let text = body(&[table], &sites(&sources));
        assert!(
            text.contains("### A\n\n- `src/b.rs`: Acquire; pairs with the kernel.\n"),
            "{text}"
        );
        assert!(text.contains("| `A-x` | a\\|b | e | loom `t` |"));
        assert!(text.contains("### Rules that are no orderings\n\n| mutant"));
        assert!(text.contains("| `RULE` | r | e | test `u` |"));
    }
}
