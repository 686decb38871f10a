//! The list of mutants and the switches in the code are the same.

use std::collections::BTreeSet;

use super::Finding;
use super::source::Source;
use crate::mutants::{LIST, parse};

const SWITCH: &str = "mutant = \"";

/// Checks the list against the code of the crates, both ways.
pub(crate) fn check(listed: &str, sources: &[Source]) -> Vec<Finding> {
    let listed: BTreeSet<String> = match parse(listed) {
        Ok(mutants) => mutants.into_iter().map(|mutant| mutant.id).collect(),
        Err(error) => return vec![Finding::new(LIST, 0, error)],
    };
    let mut findings = Vec::new();
    let mut switches = BTreeSet::new();
    for source in sources.iter().filter(|source| source.path.starts_with("crates/")) {
        for (at, id) in ids(source) {
            if !listed.contains(id) {
                let what = format!("mutant `{id}` does not stand in {LIST}");
                findings.push(Finding::new(&source.path, source.line_of(at) + 1, what));
            }
            switches.insert(id.to_owned());
        }
    }
    let stale = listed.difference(&switches);
    findings.extend(stale.map(|id| Finding::new(LIST, 0, format!("no code has mutant `{id}`"))));
    findings
}

/// The switches of a file. An ID is a string, so the text is read where the code has the word.
fn ids(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.words("mutant").filter_map(|at| {
        let (id, _) = source.text[at..].strip_prefix(SWITCH)?.split_once('"')?;
        Some((at, id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_and_the_code_must_agree() {
        let source = |text| [Source::new("crates/sync/src/lib.rs", text)];
        let switch = source("#[cfg(not(mutant = \"W1\"))]\nfence(x);\n// mutant = \"W2\"\n");
        assert_eq!(check("W1 | p | t | caught", &switch), []);
        assert_eq!(check("", &switch).len(), 1);
        assert_eq!(check("W1 | p | t | caught\nW3 | p | t | caught", &switch).len(), 1);
        assert_eq!(check("W1", &switch).len(), 1);
    }
}
