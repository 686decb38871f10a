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

/// Prints a line for each crate.
pub(crate) fn print(sources: &[Source]) {
    let mut crates: BTreeMap<&str, Size> = BTreeMap::new();
    let of_crates = |source: &&Source| source.path.starts_with("crates/");
    for source in sources.iter().filter(of_crates) {
        let Size { lines, unsafe_blocks } = size(source);
        let sum = crates.entry(crate_of(&source.path)).or_default();
        sum.lines += lines;
        sum.unsafe_blocks += unsafe_blocks;
    }
    println!("{:<18} {:>6} {:>14}", "crate", "lines", "unsafe blocks");
    for (name, Size { lines, unsafe_blocks }) in crates {
        println!("{name:<18} {lines:>6} {unsafe_blocks:>14}");
    }
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
}
