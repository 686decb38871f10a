//! Every atomic operation that is not Relaxed names its partner: `ORDER[ID]`.
//!
//! The comment stands on the operation's statement or right above it. Each ID stands on two sites
//! at least, or its comment names the kernel, whose side is not in this repository.

use std::collections::BTreeMap;

use super::Finding;
use super::source::Source;
use super::statement;

const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

const MARK: &str = "ORDER[";

struct Site {
    file: String,
    line: usize,
    names_kernel: bool,
}

/// Checks the code of the crates; tests may order as they like.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sites: BTreeMap<String, Vec<Site>> = BTreeMap::new();
    for source in sources
        .iter()
        .filter(|source| source.path.starts_with("crates/"))
    {
        findings.extend(operations_without_mark(source));
        for (id, site) in marks(source) {
            sites.entry(id).or_default().push(site);
        }
    }
    for (id, sites) in sites {
        if let [
            Site {
                file,
                line,
                names_kernel: false,
            },
        ] = sites.as_slice()
        {
            let what = format!("{MARK}{id}] stands nowhere else, and does not name the kernel");
            findings.push(Finding::new(file, *line, what));
        }
    }
    findings
}

fn operations_without_mark(source: &Source) -> Vec<Finding> {
    let imported = source.code.contains("Ordering::{") || source.code.contains("Ordering::*");
    let mut findings = Vec::new();
    for ordering in ORDERINGS {
        for at in source.words(ordering) {
            let line = source.line_of(at);
            let code = source.code_line(line);
            let named = imported || source.code[..at].ends_with("Ordering::");
            if !named || source.is_test(at) || is_import(code) {
                continue;
            }
            if !statement::comments(source, line)
                .iter()
                .any(|comment| comment.contains(MARK))
            {
                let what = format!("{ordering} without a comment {MARK}ID] that names its pair");
                findings.push(Finding::new(&source.path, line + 1, what));
            }
        }
    }
    findings
}

fn is_import(code: &str) -> bool {
    let code = code.trim_start();
    code.starts_with("use ") || code.starts_with("pub use ") || code.starts_with("pub(crate) use ")
}

/// The marks of a file's plain comments. Documentation that quotes one is no site of it.
fn marks(source: &Source) -> Vec<(String, Site)> {
    let mut marks = Vec::new();
    for line in 0..source.lines() {
        let comment = source.comment_line(line);
        let is_documentation = comment.starts_with("///") || comment.starts_with("//!");
        if is_documentation || source.is_test(source.start_of(line)) {
            continue;
        }
        for (at, _) in comment.match_indices(MARK) {
            let Some((id, _)) = comment[at + MARK.len()..].split_once(']') else {
                continue;
            };
            let names_kernel = paragraph(source, line).contains("kernel");
            let site = Site {
                file: source.path.clone(),
                line: line + 1,
                names_kernel,
            };
            marks.push((id.to_owned(), site));
        }
    }
    marks
}

/// The comment that begins at `line`, to its end or the next mark.
fn paragraph(source: &Source, line: usize) -> String {
    let mut text = source.comment_line(line).to_owned();
    for below in line + 1..source.lines() {
        let comment = source.comment_line(below);
        if comment.is_empty()
            || comment.contains(MARK)
            || !source.code_line(below).trim().is_empty()
        {
            break;
        }
        text.push(' ');
        text.push_str(comment);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(text: &str) -> Vec<String> {
        let source = Source::new("crates/a/src/lib.rs", text);
        check(&[source])
            .into_iter()
            .map(|finding| finding.what)
            .collect()
    }

    #[test]
    fn an_ordering_without_a_mark_is_found() {
        assert_eq!(
            whats("fn a() {\n    x.store(1, Ordering::Release);\n}\n").len(),
            1
        );
        assert_eq!(
            whats("use x::Ordering::{self, SeqCst};\nfn a() {\n    fence(SeqCst);\n}").len(),
            1
        );
        assert_eq!(
            whats("fn a() {\n    // ORDER[A]\n    b();\n    fence(Ordering::SeqCst);\n}").len(),
            2
        );
    }

    #[test]
    fn a_mark_that_stands_alone_is_found_unless_it_names_the_kernel() {
        let alone = "fn a() {\n    // ORDER[A]: pairs with b.\n    x.load(Ordering::Acquire);\n}\n";
        assert!(whats(alone)[0].contains("stands nowhere else"));
        let kernel = "fn a() {\n    // ORDER[A]: pairs with the\n    // kernel.\n    x.load(Ordering::Acquire);\n}\n";
        assert_eq!(whats(kernel), [""; 0]);
        let pair =
            format!("{alone}fn b() {{\n    x.store(1, Ordering::Release); // ORDER[A]: a\n}}\n");
        assert_eq!(whats(&pair), [""; 0]);
    }

    #[test]
    fn tests_relaxed_and_other_words_are_free() {
        let text = "/// ORDER[Z]\nfn a() {\n    x.load(Ordering::Relaxed);\n    Kind::Release;\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn b() {\n        x.load(Ordering::SeqCst);\n    }\n}\n";
        assert_eq!(whats(text), [""; 0]);
    }
}
