//! The paths that code names: `a::b::{c, d::*}` is `a::b::c` and `a::b::d::*`.

use super::source::{Source, is_word};

/// Every path of the code that begins with one of `roots`, written out, and where it begins.
pub(crate) fn paths(source: &Source, roots: &[&str]) -> Vec<(usize, String)> {
    let code = source.code.as_str();
    let mut paths = Vec::new();
    for root in roots {
        for at in source.words(root) {
            let before = code[..at].trim_end();
            let is_tail = before.ends_with("::") && !is_absolute(before);
            let after = &code[at + root.len()..];
            if is_tail || before.ends_with('.') || !is_root(before, after) {
                continue;
            }
            let mut found = Vec::new();
            expand(&code[at..], String::new(), &mut found);
            paths.extend(found.into_iter().map(|path| (at, path)));
        }
    }
    paths
}

/// Whether what is read begins a path: it goes on with `::`, or is imported whole.
fn is_root(before: &str, after: &str) -> bool {
    let imported = before.ends_with("use") && after.trim_start().starts_with([';', 'a']);
    after.trim_start().starts_with("::") || imported
}

/// Whether the `::` at the end stands before the first word of a path.
fn is_absolute(before: &str) -> bool {
    let head = before.trim_end_matches("::").trim_end();
    !head.ends_with(|c: char| is_word(c) || c == '>') || head.ends_with("use")
}

/// Reads one path or tree at the start of `code`, appends what it names, and says how long it is.
fn expand(code: &str, prefix: String, found: &mut Vec<String>) -> usize {
    let start = code.len() - code.trim_start().len();
    let word: usize =
        code[start..].chars().take_while(|&c| is_word(c) || c == '*').map(char::len_utf8).sum();
    let mut path = prefix;
    let mut at = start + word;
    if word > 0 {
        if !path.is_empty() {
            path.push_str("::");
        }
        path.push_str(&code[start..at]);
    }
    let rest = &code[at..];
    let gap = rest.len() - rest.trim_start().len();
    if word > 0 && rest.trim_start().starts_with("::") {
        at += gap + 2;
        return at + expand(&code[at..], path, found);
    }
    if word == 0 && code[start..].starts_with('{') {
        at = start + 1;
        while let Some(next) = code[at..].chars().next().filter(|&c| c != '}') {
            if next == ',' || next.is_whitespace() {
                at += next.len_utf8();
                continue;
            }
            let read = expand(&code[at..], path.clone(), found);
            // Skips what is no path (`as name`), so that the loop always goes on.
            at += read;
            at += code[at..].find([',', '}']).unwrap_or(code.len() - at);
        }
        return at + 1;
    }
    found.push(path);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        let source = Source::new("a.rs", text);
        paths(&source, &["std", "loom"]).into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn trees_are_written_out() {
        assert_eq!(
            named("use std::{fs, sync::{Arc, atomic::*, Mutex as M}, io as i};"),
            ["std::fs", "std::sync::Arc", "std::sync::atomic::*", "std::sync::Mutex", "std::io"]
        );
        assert_eq!(named("let a = ::std::thread::spawn(b);"), ["std::thread::spawn"]);
        assert_eq!(named("use loom as backend;"), ["loom"]);
    }

    #[test]
    fn ordinary_words_are_not_paths() {
        assert_eq!(named("mod loom; crate::loom::a(); x.std(); // std::fs\n"), [""; 0]);
        assert_eq!(named("use std::{fs"), ["std::fs"]);
    }
}
