//! A result as Markdown, for a comment on a pull request.

use std::fmt::Write as _;

use super::compared::{title, verdicts, word};
use super::comparison::finding;
use super::summary;
use crate::printable::printable;
use crate::record::Header;
use crate::result::BenchResult;

/// The verdict, a table of all comparisons, and what to know before believing it.
pub fn markdown(header: &Header, result: &BenchResult) -> String {
    let verdict = match header.sides.is_empty() {
        true => summary(result, |_| None),
        false => verdicts(result),
    };
    let mut text = format!("**{}**\n\n", cell(verdict.trim_end()).replace('\n', "  \n"));
    text.push_str("| metric | side | base | pairs | verdict |\n|---|---|---|---:|---|\n");
    for line in &result.comparisons {
        let point = line.point.to_string();
        let at = if point.is_empty() { point } else { format!(" ({point})") };
        let _ = writeln!(
            text,
            "| {}{} | {} | {} | {} | {} {} |",
            cell(&title(&line.metric)),
            cell(&at),
            cell(&line.label),
            cell(&line.base),
            line.pairs,
            word(line),
            cell(finding(line, result.delta).trim())
        );
    }
    for mark in &result.marks {
        let _ = write!(text, "\n- {}", cell(mark));
    }
    if !result.marks.is_empty() {
        text.push('\n');
    }
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
