//! The wait account (schema `unherd.waits/1`) as the lab reads it.
//!
//! The lab links nothing that it measures, so it does not know the account's type: it takes any JSON
//! in which objects carry counts by name, and keeps the order in which they were printed.

use serde_json::Value;

/// One line of an account: a wait site or reason and its counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WaitLine {
    /// What names the line: its text fields, or the key it stands under.
    pub(crate) name: String,
    /// Its counts by name.
    pub(crate) counts: Vec<(String, f64)>,
}

/// All lines of an account: the objects in it that hold numbers, however deep.
pub(crate) fn lines(account: &Value) -> Vec<WaitLine> {
    let mut found = Vec::new();
    collect("", account, &mut found);
    found
}

fn collect(key: &str, value: &Value, found: &mut Vec<WaitLine>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(key, item, found)),
        Value::Object(fields) => {
            let counts: Vec<(String, f64)> = fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)))
                .collect();
            if !counts.is_empty() {
                let texts: Vec<&str> = fields.values().filter_map(Value::as_str).collect();
                let name = if texts.is_empty() { key.to_owned() } else { texts.join(" ") };
                found.push(WaitLine { name, counts });
            }
            fields.iter().for_each(|(name, value)| collect(name, value, found));
        }
        _ => {}
    }
}

/// Whether the mechanism was used: the counts called `count` are not all 0. Accounts that have no
/// such count (another's implementation keeps none) leave the question open, and it passes.
pub(crate) fn exercised<'a>(accounts: impl IntoIterator<Item = &'a Value>, count: &str) -> bool {
    let mut counts = accounts
        .into_iter()
        .flat_map(lines)
        .flat_map(|line| line.counts)
        .filter(|(name, _)| name == count)
        .map(|(_, value)| value)
        .peekable();
    counts.peek().is_none() || counts.any(|value| value != 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_found_in_lists_and_under_keys() {
        let list = json!({"schema": "unherd.waits/1",
            "reasons": [{"reason": "page", "waits": 3, "wakeups": 2}]});
        let keyed = json!({"page": {"waits": 3, "wakeups": 2}});
        let counts = vec![("waits".to_owned(), 3.0), ("wakeups".to_owned(), 2.0)];
        let line = WaitLine { name: "page".to_owned(), counts };
        assert_eq!(lines(&list), std::slice::from_ref(&line));
        assert_eq!(lines(&keyed), [line]);
        assert_eq!(lines(&Value::Null), []);
    }

    #[test]
    fn an_account_without_the_count_leaves_the_question_open() {
        assert!(exercised([&Value::Null], "wakeups"));
        assert!(!exercised([&json!({"page": {"wakeups": 0}})], "wakeups"));
        let (zero, one) = (json!({"a": {"wakeups": 0}}), json!({"a": {"wakeups": 1}}));
        assert!(exercised([&zero, &one], "wakeups"));
    }
}
