//! Atomics, mutexes and threads come through one door, so that a model checker can stand in it.

use super::Finding;
use super::paths::paths;
use super::source::Source;
use super::statement;

const DOOR: &str = "crates/sys/src/primitives.rs";

/// What must come through the door, and everything below it.
const PRIMITIVES: [&str; 9] = [
    "std::sync::atomic",
    "core::sync::atomic",
    "std::sync::Mutex",
    "std::sync::Condvar",
    "std::sync::RwLock",
    "std::sync::Barrier",
    "std::thread",
    "loom",
    "shuttle",
];

/// The mark of a word that is shared with the kernel, which no checker can stand in for.
const EXEMPTION: &str = "KERNEL-WORD:";

/// Checks one file: of the library's crates, and of what measures; not of the command or of tests.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let path = source.path.as_str();
    if !path.starts_with("crates/") || path.starts_with("crates/cli/") || path == DOOR {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, path) in paths(source, &["std", "core", "loom", "shuttle"]) {
        let is_primitive = PRIMITIVES.iter().any(|primitive| {
            path.strip_prefix(primitive)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        });
        let line = source.line_of(at);
        let exempt = || statement::comments(source, line).iter().any(|c| c.contains(EXEMPTION));
        if is_primitive && !source.is_test(at) && !exempt() {
            let what = format!("`{path}`: take it from unherd_sys::primitives");
            findings.push(Finding::new(&source.path, line + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn another_door_is_found() {
        let path = "crates/sync/src/lib.rs";
        assert_eq!(count(path, "use std::sync::{Arc, Mutex, atomic::AtomicU32};\n"), 2);
        assert_eq!(count(path, "fn a() { std::thread::spawn(b); }\n"), 1);
        assert_eq!(count(path, "use loom::sync::Arc;\n"), 1);
    }

    #[test]
    fn door_kernel_words_and_tests_exempt() {
        let text = "use std::sync::atomic::AtomicU32;\n";
        assert_eq!(count(DOOR, text), 0);
        assert_eq!(count("crates/cli/src/main.rs", text), 0);
        assert_eq!(count("crates/sync/tests/it/main.rs", text), 0);
        assert_eq!(count("xtask/src/main.rs", text), 0);
        let marked = format!("// KERNEL-WORD: futex(2) reads it.\n{text}");
        assert_eq!(count("crates/sys/src/futex.rs", &marked), 0);
        assert_eq!(count("crates/sync/src/lib.rs", "use std::sync::{Arc, OnceLock};\n"), 0);
    }
}
