//! The list of mutants and the switches in the code are the same, and no `ORDER[ID]` is forgotten:
//! it has a mutant, called `ID` or `ID-…`, or a line that says why it has none.

use std::collections::BTreeSet;

use super::Finding;
use super::orderings;
use super::source::Source;
use crate::mutants::{LIST, parse};

const SWITCH: &str = "mutant = \"";

/// Checks the list against the code of the crates, both ways.
pub(crate) fn check(listed: &str, sources: &[Source]) -> Vec<Finding> {
    let mutants = match parse(listed) {
        Ok(mutants) => mutants,
        Err(error) => return vec![Finding::new(LIST, 0, error)],
    };
    let (listed, without_switch): (Vec<_>, Vec<_>) =
        mutants.into_iter().partition(|mutant| mutant.has_switch());
    let [listed, without_switch] = [listed, without_switch]
        .map(|mutants| mutants.into_iter().map(|mutant| mutant.id).collect::<BTreeSet<_>>());
    let orders = orderings::ids(sources);
    let unknown = without_switch.difference(&orders);
    let mut findings: Vec<_> =
        unknown.map(|id| Finding::new(LIST, 0, format!("no code has ORDER[{id}]"))).collect();
    for order in orders.difference(&without_switch) {
        let of_order = |id: &String| {
            id.strip_prefix(order.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        if !listed.iter().any(of_order) {
            let what = format!("ORDER[{order}] has no mutant here, and no line that says why");
            findings.push(Finding::new(LIST, 0, what));
        }
    }
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

    #[test]
    fn each_order_has_a_mutant_or_a_reason() {
        let text =
            "// ORDER[W]\nfence(x);\n#[cfg(not(mutant = \"W-1\"))]\n// ORDER[V]\nfence(x);\n";
        let source = [Source::new("crates/sync/src/lib.rs", text)];
        let listed = |lines: &str| format!("W-1 | p | t | caught\n{lines}");
        assert_eq!(check(&listed("V | - | - | not visible: why"), &source), []);
        assert!(check(&listed(""), &source)[0].what.contains("ORDER[V] has no mutant"));
        let both = "V | - | - | not visible: why\nU | - | - | not visible: why";
        assert!(check(&listed(both), &source)[0].what.contains("no code has ORDER[U]"));
    }
}
