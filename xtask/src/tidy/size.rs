//! How much code a crate has: lines that are neither blank, nor comments, nor compiled for tests
//! and checkers alone; and its unsafe blocks.

use std::collections::BTreeMap;

use super::orderings::crate_of;
use super::source::Source;

/// What was counted of a crate, or of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Size {
    lines: usize,
    unsafe_blocks: usize,
}

/// Modules that are counted by themselves as well.
const MODULES: &[&str] = &["crates/sync/src/wait_table"];

/// Prints a line for each crate, and one for each of [`MODULES`].
pub(crate) fn print(sources: &[Source]) {
    println!("{:<28} {:>6} {:>14}", "crate or module", "lines", "unsafe blocks");
    for (name, Size { lines, unsafe_blocks }) in sums(sources) {
        println!("{name:<28} {lines:>6} {unsafe_blocks:>14}");
    }
}

fn sums(sources: &[Source]) -> BTreeMap<&str, Size> {
    let mut sums: BTreeMap<&str, Size> = BTreeMap::new();
    let of_crates = |source: &&Source| source.path.starts_with("crates/");
    for source in sources.iter().filter(of_crates) {
        let Size { lines, unsafe_blocks } = size(source);
        let module = MODULES.iter().copied().find(|module| {
            let rest = source.path.strip_prefix(module);
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
        for name in [Some(crate_of(&source.path)), module].into_iter().flatten() {
            let sum = sums.entry(name).or_default();
            sum.lines += lines;
            sum.unsafe_blocks += unsafe_blocks;
        }
    }
    sums
}

fn size(source: &Source) -> Size {
    let is_code = |line: &usize| {
        !source.code_line(*line).trim().is_empty() && !source.is_test(source.start_of(*line))
    };
    let is_block = |at: &usize| {
        source.code[at + "unsafe".len()..].trim_start().starts_with('{') && !source.is_test(*at)
    };
    Size {
        lines: (0..source.lines()).filter(is_code).count(),
        unsafe_blocks: source.words("unsafe").filter(is_block).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_tests_do_not_count() {
        let text = "//! Head.\n\nfn a() {\n    // SAFETY: so.\n    unsafe { b() }\n}\n\
                    unsafe fn b() {}\n#[cfg(test)]\nmod tests {\n    fn c() { unsafe { b() } }\n\
                    }\n";
        let source = Source::new("crates/a/src/lib.rs", text);
        assert_eq!(size(&source), Size { lines: 4, unsafe_blocks: 1 });
    }

    #[test]
    fn a_module_counts_in_its_crate_too() {
        let source = |path| Source::new(path, "fn a() {}\n");
        let sources = [
            source("crates/sync/src/wait_table.rs"),
            source("crates/sync/src/wait_table/wake.rs"),
            source("crates/sync/src/wait_tables.rs"),
        ];
        let lines: Vec<_> = sums(&sources).into_values().map(|size| size.lines).collect();
        assert_eq!(lines, [3, 2]);
    }
}
