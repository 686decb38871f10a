//! A file of over 800 lines is most often two ideas.

use super::Finding;

const LINES_MAX: usize = 800;

/// Checks one file of code.
pub(crate) fn check(path: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    let is_long = path.ends_with(".rs") && lines > LINES_MAX;
    is_long.then(|| Finding::new(path, 0, format!("{lines} lines; divide it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found() {
        assert_eq!(check("a.rs", &"\n".repeat(801)).unwrap().file, "a.rs");
        assert_eq!(check("a.rs", &"\n".repeat(800)), None);
        assert_eq!(check("a.md", &"\n".repeat(801)), None);
    }
}
