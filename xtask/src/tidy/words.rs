//! No unfinished business, no path of one machine, and no word of the code's former dialect.

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

/// Words that were given up, and what stands for them. Put together here like the first.
const FORMER: [(&str, &str); 17] = [
    (concat!("who", "ever"), "the waiter, the thread, ..., that"),
    (concat!("who ", "waits"), "a waiter"),
    (concat!("who ", "wait"), "waiters"),
    (concat!("but ", "for"), "except"),
    (concat!("so ", "many"), "n, or the name of the count"),
    (concat!("an", "ew"), "again"),
    (concat!("to be ", "had"), "available"),
    (concat!("told ", "of"), "notified about"),
    (concat!("he", "ed"), "handle_wake"),
    (concat!("take_", "turn"), "try_acquire_write"),
    (concat!("shie", "lded"), "run_foreign_wakers"),
    (concat!("cen", "sus"), "frame_usage"),
    (concat!("closed ", "list"), "WakeBatch"),
    (concat!("Bar", "ren"), "fruitless_scans"),
    (concat!("Io::", "Own"), "Io::Blocking"),
    (concat!("Needs", "Queue"), "AsyncNeedsIoThread"),
    (concat!("HeldBy", "ThisThread"), "WouldDeadlock"),
];

/// Where former words may stand: a history of names.
const HISTORY: &str = "CHANGELOG.md";

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
        if path != HISTORY {
            let lower = line.to_lowercase();
            let is_there = |word: &str| words(&lower, &word.to_lowercase()).next().is_some();
            let former = FORMER.iter().filter(|(word, _)| is_there(word));
            findings.extend(former.map(|(word, plain)| {
                Finding::new(path, number, format!("`{word}`: say `{plain}`"))
            }));
        }
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
    fn former_words_are_found() {
        for (word, _) in FORMER {
            assert_eq!(check("a.md", &format!("It is {word} there.")).len(), 1, "{word}");
            assert_eq!(check("CHANGELOG.md", word), []);
        }
        let capital = concat!("Who", "ever comes");
        assert_eq!(check("a.rs", capital).len(), 1);
        assert_eq!(check("a.rs", concat!("reneg", "aned an", "ewer indeed")), []);
    }

    #[test]
    fn a_machines_path_is_found() {
        for start in MACHINES {
            assert_eq!(check("a.md", &format!("see `{start}me/a`")).len(), 1, "{start}");
            assert_eq!(check("a.md", &format!("see src{start}me/a")), []);
        }
    }
}
