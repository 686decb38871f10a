//! The cache's policy is pure: it decides from what it is told, without I/O, time or threads.

use super::Finding;
use super::paths::paths;
use super::source::Source;

const PURE: [&str; 2] = ["crates/cache/src/frames/policy/", "crates/cache/src/frames/policy.rs"];

/// What a policy may not name, and everything below it.
const IMPURE: [&str; 7] =
    ["std::fs", "std::io", "std::net", "std::process", "std::thread", "std::time", "unherd_sys"];

/// A hint to the processor, which decides nothing.
const ALLOWED: &str = "unherd_sys::prefetch";

/// Checks one file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if !PURE.iter().any(|pure| source.path.starts_with(pure)) {
        return Vec::new();
    }
    paths(source, &["std", "unherd_sys"])
        .into_iter()
        .filter(|(at, path)| {
            let impure = |name: &&str| {
                path.strip_prefix(*name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            };
            IMPURE.iter().any(impure) && path != ALLOWED && !source.is_test(*at)
        })
        .map(|(at, path)| {
            let what = format!("`{path}`: the policy is pure");
            Finding::new(&source.path, source.line_of(at) + 1, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_found_in_policy_only() {
        let text = "use std::{io, time::Instant};\nuse unherd_sys::Clock;\nuse std::iter;\n";
        assert_eq!(check(&Source::new("crates/cache/src/frames/policy/s3fifo.rs", text)).len(), 3);
        assert_eq!(check(&Source::new("crates/cache/src/lib.rs", text)).len(), 0);
    }
}
