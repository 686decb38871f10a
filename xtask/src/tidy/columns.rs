//! Code is at most 100 columns wide. (rustfmt leaves comments and long strings as they are.)
//!
//! A row of a table in the documentation may be wider: it cannot be broken.

use super::Finding;

const COLUMNS_MAX: usize = 100;

/// Checks one file of code or script.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    if !path.ends_with(".rs") && !path.ends_with(".sh") && path != "x" {
        return Vec::new();
    }
    let is_table = |line: &str| {
        let comment = line.trim_start();
        comment.starts_with("//! |") || comment.starts_with("/// |")
    };
    text.lines()
        .zip(1..)
        .filter(|(line, _)| !is_table(line))
        .map(|(line, number)| (line.chars().count(), number))
        .filter(|&(columns, _)| columns > COLUMNS_MAX)
        .map(|(columns, number)| {
            Finding::new(path, number, format!("{columns} columns; {COLUMNS_MAX} are allowed"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_counted_in_characters() {
        assert_eq!(check("a.rs", &"é".repeat(100)), []);
        assert_eq!(check("a.rs", &format!("\n{}", "a".repeat(101)))[0].line, 2);
        assert_eq!(check("a.rs", &format!("    /// | {} |", "a".repeat(101))), []);
        assert_eq!(check("a.md", &"a".repeat(101)), []);
    }
}
