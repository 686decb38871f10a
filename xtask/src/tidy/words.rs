//! No unfinished business, and no path of one machine, in any file.

use super::Finding;
use super::source::words;

/// What must not stay in the repository. Put together here, so that this file has none of it.
const UNFINISHED: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("todo", "!"),
    concat!("unimpl", "emented!"),
];

/// Where one machine's own paths begin.
const MACHINES: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// Checks one file of any kind.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let unfinished = UNFINISHED.iter().filter(|word| {
            // A macro's name ends with `!`, which whatever follows it cannot continue.
            let name = word.trim_end_matches('!');
            words(line, name).any(|at| line[at..].starts_with(*word))
        });
        findings.extend(
            unfinished.map(|word| {
                Finding::new(path, number, format!("`{word}`: do it, or open an issue"))
            }),
        );
        let machines = MACHINES.iter().filter(|start| begins_path(line, start));
        findings.extend(machines.map(|start| {
            Finding::new(path, number, format!("`{start}…` is a path of one machine"))
        }));
    }
    findings
}

/// Whether a path begins with `start` somewhere in the line: nothing of a path is before it.
fn begins_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        !line[..at]
            .ends_with(|c: char| c.is_alphanumeric() || ['_', '-', '.', '/', '~'].contains(&c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_business_is_found() {
        for word in UNFINISHED {
            assert_eq!(check("a.rs", &format!("// {word}(x): later")).len(), 1, "{word}");
        }
        assert_eq!(check("a.rs", concat!("let TO", "DOS = 1; // mas", "todons")), []);
    }

    #[test]
    fn a_machines_path_is_found() {
        for start in MACHINES {
            assert_eq!(check("a.md", &format!("see `{start}me/a`")).len(), 1, "{start}");
            assert_eq!(check("a.md", &format!("see src{start}me/a")), []);
        }
    }
}
