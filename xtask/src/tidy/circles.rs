//! No circle between the files of the cache: each names only itself and what lies below it.
//!
//! A file names another by a path to something in it, or by a method of a type whose `impl`s lie in
//! several files; whose methods are called is told by the receiver's name. What a module lists of
//! its children counts as theirs.

use std::collections::BTreeMap;

use super::Finding;
use super::paths::paths;
use super::source::{Source, is_word};

const CRATE: &str = "crates/cache/src/";

/// The types with `impl`s in several files, and what a value of each is called, beside `self`.
const SPREAD: [(&str, &str); 3] = [("Core", "core"), ("Pages", "pages"), ("File", "handle")];

/// By module.
type Files<'a> = BTreeMap<String, &'a Source>;

/// Who names whom, and where first.
type Arrows<'a> = BTreeMap<(&'a str, &'a str), usize>;

/// Finds one circle, if there is any.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let module = |source: &Source| {
        let path = source.path.strip_prefix(CRATE)?.strip_suffix(".rs")?;
        Some(format!("crate::{path}").replace("::lib", "").replace('/', "::"))
    };
    let code = sources.iter().filter(|source| !source.is_test(0));
    let files: Files = code.filter_map(|source| Some((module(source)?, source))).collect();
    let arrows = arrows(&files);
    let circle = circle(&arrows);
    let Some(first) = circle.windows(2).next() else { return Vec::new() };
    let (source, at) = (files[first[0]], arrows[&(first[0], first[1])]);
    let what = format!("a circle of files: {}", circle.join(" -> "));
    vec![Finding::new(&source.path, source.line_of(at) + 1, what)]
}

fn arrows<'a>(files: &'a Files) -> Arrows<'a> {
    let (mut exports, mut methods) = (BTreeMap::new(), BTreeMap::new());
    for (module, source) in files {
        let child = |file: &'a String| file.strip_prefix(module)?.strip_prefix("::");
        for (_, path) in paths(source, &files.keys().filter_map(child).collect::<Vec<_>>()) {
            let name = path.rsplit("::").next().unwrap_or(&path);
            exports.insert(format!("{module}::{name}"), format!("{module}::{path}"));
        }
        for (of, _) in SPREAD {
            let fns = source.words("fn").filter(|at| is_in_impl(source, *at, of));
            let names = fns.filter_map(|at| source.code[at + 3..].split(['(', '<']).next());
            methods.extend(names.map(|name| ((of, name), module.as_str())));
        }
    }
    let mut arrows = Arrows::new();
    for (module, source) in files {
        let mut named = Vec::new();
        let parent = module.rsplit_once("::").map_or("crate", |(parent, _)| parent);
        for (at, path) in paths(source, &["crate", "super"]) {
            named.push((at, file_of(files, &exports, &path.replacen("super", parent, 1))));
        }
        for (of, called) in SPREAD {
            let this = source.words("self").filter(|at| is_in_impl(source, *at, of));
            for at in this.chain(source.words(called)) {
                let rest = source.code[at..].trim_start_matches(is_word);
                let rest = rest.strip_prefix("()").unwrap_or(rest).trim_start();
                let call = rest.strip_prefix('.').and_then(|rest| rest.split_once('('));
                named.push((at, call.and_then(|(name, _)| methods.get(&(of, name)).copied())));
            }
        }
        for (at, to) in named {
            if let Some(to) = to.filter(|to| *to != module && !source.is_test(at)) {
                arrows.entry((module.as_str(), to)).or_insert(at);
            }
        }
    }
    // The root names all, for users; a path to it may lead anywhere.
    arrows.retain(|(from, _), _| *from != "crate");
    arrows
}

/// Whether the byte is in an `impl` of the type's own. That ends as rustfmt has it.
fn is_in_impl(source: &Source, at: usize, of: &str) -> bool {
    let begin = source.code[..at].rfind(&format!("\nimpl {of} {{"));
    begin.is_some_and(|begin| !source.code[begin + 1..at].contains("\n}"))
}

/// The file with what the path names.
fn file_of<'a>(
    files: &'a Files,
    exports: &BTreeMap<String, String>,
    path: &str,
) -> Option<&'a str> {
    if let Some((file, _)) = files.get_key_value(path) {
        return Some(file);
    }
    match exports.get(path) {
        Some(path) => file_of(files, exports, path),
        None => file_of(files, exports, path.rsplit_once("::")?.0),
    }
}

/// The files of a circle in their order, the first once more at the end; nothing if there is none.
fn circle<'a>(arrows: &Arrows<'a>) -> Vec<&'a str> {
    let mut left = arrows.clone();
    // An arrow to a file that names no other is in no circle.
    while let Some(&arrow) = left.keys().find(|(_, to)| left.keys().all(|(from, _)| from != to)) {
        left.remove(&arrow);
    }
    let mut way: Vec<&str> = left.keys().take(1).map(|(from, _)| *from).collect();
    while let Some((_, next)) = left.keys().find(|(from, _)| Some(from) == way.last()) {
        let seen = way.iter().position(|file| file == next);
        way.push(next);
        if let Some(begin) = seen {
            return way.split_off(begin);
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let source = |(path, text): &(&str, &str)| Source::new(&format!("{CRATE}{path}.rs"), text);
        let sources: Vec<Source> = files.iter().map(source).collect();
        check(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn circles_by_paths_and_methods_are_found() {
        let root = ("file", "mod core;\nmod fill;\npub(crate) use {core::Core, fill::Fill};\n");
        let core = ("file/core", "pub(crate) struct Core;\nimpl Core {\n fn a(&self) {}\n}\n");
        let fill = "use crate::file::Core;\n\nimpl Core {\n fn b(&self) { self.a() }\n}\n";
        let fill = ("file/fill", fill);
        assert_eq!(found(&[root, core, fill]), [""; 0]);
        for back in ["use crate::file::Fill;\n", "fn f(core: &C) {\n core\n .b();\n}\n"] {
            let text = format!("{}{back}", core.1);
            let circle = found(&[root, ("file/core", &text), fill]);
            assert_eq!(circle.len(), 1, "{back}");
            assert!(
                circle[0].ends_with("file::core -> crate::file::fill -> crate::file::core"),
                "{circle:?}"
            );
        }
        let test = format!("{}#[cfg(test)]\nmod tests {{ use super::super::Fill; }}\n", core.1);
        assert_eq!(found(&[root, ("file/core", &test), fill]), [""; 0]);
    }
}
