//! Every atomic operation that is not Relaxed names its partner: `ORDER[ID]`.
//!
//! The comment stands on the operation's statement or right above it. A constant of the type
//! `Ordering` needs none where it is defined; who uses it does. Each ID stands on two sites
//! at least, or its comment names the kernel, whose side is not in this repository.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Finding;
use super::source::{Source, words};
use super::statement;

const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

const MARK: &str = "ORDER[";

/// A comment that names an ordering.
pub(crate) struct Site {
    pub(crate) file: String,
    pub(crate) line: usize,
    /// What it says behind the label, up to its end or the next one.
    pub(crate) text: String,
}

/// Checks the code of the crates; tests may order as they like.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let constants: Vec<String> = sources.iter().flat_map(constants).map(|(name, _)| name).collect();
    for source in of_crates(sources) {
        findings.extend(operations_without_mark(source, &constants));
    }
    for (label, sites) in sites(sources) {
        let Site { file, line, text } = &sites[0];
        if sites.len() == 1 && !text.contains("kernel") {
            let what = format!("{MARK}{label}] stands nowhere else, and does not name the kernel");
            findings.push(Finding::new(file, *line, what));
        }
        if let Some(other) = sites.iter().find(|site| crate_of(&site.file) != crate_of(file)) {
            let what = format!("{MARK}{label}] stands in another crate as well");
            findings.push(Finding::new(&other.file, other.line, what));
        }
    }
    findings
}

/// The labels that stand in the crates, and where.
pub(crate) fn sites(sources: &[Source]) -> Vec<(String, Vec<Site>)> {
    let mut sites: BTreeMap<String, Vec<Site>> = BTreeMap::new();
    for (label, site) in of_crates(sources).flat_map(marks) {
        sites.entry(label).or_default().push(site);
    }
    sites.into_iter().collect()
}

/// Whether `id` is that of a mutant of the ordering `label`: `label` or `label-…`.
pub(crate) fn of_label(id: &str, label: &str) -> bool {
    id.strip_prefix(label).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The folder of the crate that has `file`.
pub(crate) fn crate_of(file: &str) -> &str {
    file.match_indices('/').nth(1).map_or(file, |(at, _)| &file[..at])
}

fn of_crates(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| source.path.starts_with("crates/"))
}

fn operations_without_mark(source: &Source, constants: &[String]) -> Vec<Finding> {
    let imported = source.code.contains("Ordering::{") || source.code.contains("Ordering::*");
    let defined = self::constants(source);
    let is_defined = |at| defined.iter().any(|(_, range)| range.contains(&at));
    let named = |at: usize| imported || source.code[..at].ends_with("Ordering::");
    let by_name = ORDERINGS
        .iter()
        .flat_map(|&name| source.words(name).filter(|&at| named(at)).map(move |at| (name, at)));
    let by_constant =
        constants.iter().flat_map(|name| source.words(name).map(move |at| (name.as_str(), at)));
    let mut findings = Vec::new();
    for (name, at) in by_name.chain(by_constant) {
        let line = source.line_of(at);
        if source.is_test(at) || is_defined(at) || is_import(source.code_line(line)) {
            continue;
        }
        if !statement::comments(source, line).iter().any(|comment| comment.contains(MARK)) {
            let what = format!("{name} without a comment {MARK}ID] that names its pair");
            findings.push(Finding::new(&source.path, line + 1, what));
        }
    }
    findings
}

/// The constants of the type `Ordering` that may be other than Relaxed, and their definitions.
fn constants(source: &Source) -> Vec<(String, Range<usize>)> {
    source
        .words("const")
        .filter_map(|at| {
            let (head, _) = source.code[at..].split_once('=')?;
            let (name, kind) = head["const".len()..].split_once(':')?;
            let len = source.code[at..].find(';')?;
            let value = &source.code[at..at + len];
            let is_ordering = kind.trim() == "Ordering"
                && ORDERINGS.iter().any(|ordering| words(value, ordering).next().is_some());
            is_ordering.then(|| (name.trim().to_owned(), at..at + len))
        })
        .collect()
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
            let text = paragraph(source, line);
            let text = text.split_once(&format!("{id}]")).map_or("", |(_, text)| text);
            let text = text.trim_start_matches(':').trim().to_owned();
            let site = Site { file: source.path.clone(), line: line + 1, text };
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
        text.push_str(comment.trim_start_matches('/').trim_start());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(text: &str) -> Vec<String> {
        let source = Source::new("crates/a/src/lib.rs", text);
        check(&[source]).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn an_ordering_without_a_mark_is_found() {
        assert_eq!(whats("fn a() {\n    x.store(1, Ordering::Release);\n}\n").len(), 1);
        let imported = "use x::Ordering::{self, SeqCst};\nfn a() {\n    fence(SeqCst);\n}";
        assert_eq!(whats(imported).len(), 1);
        let of_another = "fn a() {\n    // ORDER[A]\n    b();\n    fence(Ordering::SeqCst);\n}";
        assert_eq!(whats(of_another).len(), 2);
    }

    #[test]
    fn constant_is_marked_at_use() {
        let defined = "const A: Ordering = if cfg!(x) { Ordering::Relaxed } else \
                       { Ordering::Acquire };\nconst B: Ordering = Ordering::Relaxed;\n";
        assert_eq!(whats(defined), [""; 0]);
        let used = format!("{defined}fn a() {{\n    x.load(A);\n    x.load(B);\n}}\n");
        assert_eq!(whats(&used).len(), 1);
    }

    const ALONE: &str =
        "fn a() {\n    // ORDER[A]: pairs with b.\n    x.load(Ordering::Acquire);\n}\n";

    #[test]
    fn lone_mark_must_name_kernel() {
        assert!(whats(ALONE)[0].contains("stands nowhere else"));
        let kernel = ALONE.replace("with b.", "with the\n    // kernel.");
        assert_eq!(whats(&kernel), [""; 0]);
        let pair = "fn b() {\n    x.store(1, Ordering::Release); // ORDER[A]: pairs with a.\n}\n";
        assert_eq!(whats(&format!("{ALONE}{pair}")), [""; 0]);
    }

    #[test]
    fn tests_relaxed_and_other_words_are_free() {
        let text = "/// ORDER[Z]\nfn a() {\n    x.load(Ordering::Relaxed);\n    Kind::Release;\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn b() {\n        x.load(Ordering::SeqCst);\n\
                    \x20   }\n}\n";
        assert_eq!(whats(text), [""; 0]);
    }
}
