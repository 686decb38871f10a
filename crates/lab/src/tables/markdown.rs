//! A result as Markdown, for a comment on a pull request.

use std::fmt::Write as _;
use std::path::Path;

use super::compared::{direction, median, title, verdicts, word};
use super::comparison::finding;
use super::summary;
use crate::fingerprint::fingerprint;
use crate::printable::{command_line, printable};
use crate::record::Header;
use crate::result::BenchResult;

/// The verdict, a table of all comparisons, and what to know before believing it. `record` is
/// where the record is.
pub fn markdown(header: &Header, result: &BenchResult, record: &Path) -> String {
    let verdict = match header.sides.is_empty() {
        true => summary(result, |_| None),
        false => verdicts(result),
    };
    let mut text = format!("**{}**\n\n", cell(verdict.trim_end()).replace('\n', "  \n"));
    for side in &header.sides {
        let _ = writeln!(text, "- {}: {}", cell(&side.label), cell(&side.shown()));
    }
    text.push_str(
        "\n| metric | side | median | base | median | pairs | verdict |\n\
         |---|---|---:|---|---:|---:|---|\n",
    );
    for line in &result.comparisons {
        let _ = writeln!(
            text,
            "| {}{}{} | {} | {} | {} | {} | {} | {} {} |",
            cell(&title(&line.metric)),
            direction(header, &line.metric),
            cell(&line.point.bracketed()),
            cell(&line.label),
            median(result, &line.point, &line.label, &line.metric),
            cell(&line.base),
            median(result, &line.point, &line.base, &line.metric),
            line.pairs,
            word(line),
            cell(&finding(line, result.delta))
        );
    }
    for mark in &result.marks {
        let _ = write!(text, "\n- {}", cell(mark));
    }
    if !result.marks.is_empty() {
        text.push('\n');
    }
    let command = command_line(&header.command);
    let _ = write!(
        text,
        "\n{}; by {}; the record is {}\n",
        cell(&fingerprint(&header.machine)),
        cell(&command),
        cell(&record.display().to_string())
    );
    printable(&text)
}

/// What would end a cell, or begin a tag or a list, is written out.
fn cell(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if ['|', '<', '>', '*', '_', '`', '[', ']', '\\'].contains(&c) {
            shown.push('\\');
        }
        shown.push(c);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_hold_what_would_end_them() {
        assert_eq!(cell("a|b <i> wall_s"), "a\\|b \\<i\\> wall\\_s");
    }
}
