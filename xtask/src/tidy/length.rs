//! A file of over 800 lines is most often two ideas. One that is not gives its reason in a list.

use super::Finding;

/// The list, from the root of the repository: `path: reason`.
pub(crate) const LIST: &str = "xtask/long-files.txt";

const LINES_MAX: usize = 800;

/// Checks all files against the list, and the list against the files.
pub(crate) fn check(listed: &str, texts: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut excused = Vec::new();
    for (line, number) in listed.lines().zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(':') {
            Some((path, reason)) if !reason.trim().is_empty() => excused.push((path, number)),
            _ => findings.push(Finding::new(LIST, number, "not of the form `path: reason`")),
        }
    }
    let lines_of = |path: &str| {
        texts.iter().find(|(other, _)| other == path).map_or(0, |(_, text)| text.lines().count())
    };
    for (path, _) in texts.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let lines = lines_of(path);
        if lines > LINES_MAX && !excused.iter().any(|(excused, _)| excused == path) {
            let what = format!("{lines} lines; divide it, or give the reason in {LIST}");
            findings.push(Finding::new(path, 0, what));
        }
    }
    for (path, number) in excused {
        if lines_of(path) <= LINES_MAX {
            let what = format!("{path} has no more than {LINES_MAX} lines: strike it out");
            findings.push(Finding::new(LIST, number, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_and_reasons_match() {
        let long = [("a.rs".to_owned(), "\n".repeat(801))];
        assert_eq!(check("", &long)[0].file, "a.rs");
        assert_eq!(check("# head\na.rs: a table\n", &long), []);
        assert_eq!(check("a.rs:\n", &long).len(), 2);
        let short = [("a.rs".to_owned(), "\n".repeat(800))];
        assert_eq!(check("", &short), []);
        assert_eq!(check("a.rs: a table\n", &short)[0].file, LIST);
    }
}
