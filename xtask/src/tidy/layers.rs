//! The layers of the cache: `frames`, `pages`, `io`, `state` and `file`, and who may look into
//! which.
//!
//! What lies beside them is the ground, on which all stand; on top are the cache itself and the
//! simulation, which may name everything.

use super::Finding;
use super::paths::paths;
use super::source::Source;

const CRATE: &str = "crates/cache/src/";

/// Each layer, and those that it must not name.
const ABOVE: [(&str, &[&str]); 5] = [
    ("frames", &["pages", "io", "state", "file", "cache"]),
    ("pages", &["io", "state", "file", "cache"]),
    ("io", &["pages", "state", "file", "cache"]),
    ("state", &["file", "cache"]),
    ("file", &["cache"]),
];

const GROUND: &[&str] = &["frames", "pages", "io", "state", "file", "cache"];

/// Files that may name everything.
const TOP: [&str; 3] = ["lib", "cache", "shuttle"];

/// Checks one file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let Some(path) = source.path.strip_prefix(CRATE) else { return Vec::new() };
    let layer = path.split(['/', '.']).next().unwrap_or_default();
    if TOP.contains(&layer) {
        return Vec::new();
    }
    let above = ABOVE.iter().find(|(name, _)| *name == layer).map_or(GROUND, |(_, above)| above);
    paths(source, &["crate"])
        .into_iter()
        .filter_map(|(at, path)| {
            let other = path.split("::").nth(1)?.to_owned();
            (above.contains(&other.as_str()) && !source.is_test(at)).then(|| {
                let what = format!("`{path}`: {layer} may not name {other}");
                Finding::new(&source.path, source.line_of(at) + 1, what)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Source::new(&format!("{CRATE}{path}"), text)).len()
    }

    #[test]
    fn arrows_back_up_are_found() {
        let text = "use crate::{page::PageNo, file::core::Core};\nfn f(_: crate::pages::P) {}\n";
        assert_eq!(found("frames/pool.rs", text), 2);
        assert_eq!(found("pages.rs", text), 1);
        assert_eq!(found("io/run.rs", text), 2);
        assert_eq!(found("io/run.rs", "use crate::{cache::Cache, frames::Pin};\n"), 1);
        assert_eq!(found("latch.rs", text), 2);
        assert_eq!(found("state/table.rs", text), 1);
        assert_eq!(found("file/fill.rs", text), 0);
        assert_eq!(found("cache.rs", text), 0);
    }
}
