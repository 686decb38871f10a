//! Every unsafe block and implementation says why it is sound, in a sentence.
//!
//! clippy demands the comment; this rule demands that something stands in it. The name of an
//! invariant will do.

use super::Finding;
use super::source::Source;
use super::statement;

/// What is no reason, though it stands where one should.
const EMPTY_WORDS: [&str; 6] = ["", "fine", "ok", "safe", "sound", "untriaged"];

/// Checks one file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in source.words("unsafe") {
        let after = source.code[at + "unsafe".len()..].trim_start();
        if !after.starts_with('{') && !after.starts_with("impl") {
            continue;
        }
        let line = source.line_of(at);
        // The comments are collected upwards, so the sentence is read in the other direction.
        let mut comments = statement::comments(source, line);
        comments.reverse();
        let text = comments.join(" ");
        let reason = text.rsplit_once("SAFETY:").map_or("", |(_, reason)| reason);
        let reason = reason.trim().trim_end_matches('.').to_ascii_lowercase();
        if EMPTY_WORDS.contains(&reason.as_str()) {
            let what = "unsafe without a comment SAFETY: that gives the reason";
            findings.push(Finding::new(&source.path, line + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Source::new("crates/a/src/lib.rs", text)).len()
    }

    #[test]
    fn missing_and_empty_reasons_are_found() {
        assert_eq!(count("fn a() {\n    unsafe { b() };\n}\n"), 1);
        assert_eq!(count("fn a() {\n    // SAFETY: untriaged\n    unsafe { b() };\n}\n"), 1);
        assert_eq!(count("unsafe impl Send for A {}\n"), 1);
    }

    #[test]
    fn reason_suffices_and_declarations_need_none() {
        assert_eq!(
            count("fn a() {\n    // SAFETY: invariant 3\n    // holds.\n    unsafe { b() };\n}\n"),
            0
        );
        assert_eq!(count("fn a() {\n    // SAFETY: B1.\n    unsafe { b() };\n}\n"), 0);
        assert_eq!(count("unsafe fn a() {}\n// unsafe { }\n"), 0);
    }
}
