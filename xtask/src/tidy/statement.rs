//! The comments that belong to a statement: on its lines, and in the block right above it.

use super::source::Source;

/// The comments of the statement that holds the code of `line`, the nearest first.
///
/// Upwards, the statement begins behind the line that ends another one, or opens a block. Comments
/// count as the statement's wherever they stand in it, and right above it.
pub(crate) fn comments(source: &Source, line: usize) -> Vec<String> {
    let mut block = vec![source.comment_line(line).to_owned()];
    let mut above = line;
    let mut in_head = false;
    while above > 0 {
        above -= 1;
        let code = source.code_line(above).trim();
        let comment = source.comment_line(above);
        if code.is_empty() && comment.is_empty() {
            break;
        }
        let is_attribute = code.starts_with("#[");
        if !code.is_empty() && !is_attribute && (in_head || code.ends_with([';', '{', '}'])) {
            break;
        }
        in_head |= code.is_empty() && begins_statement(source, above);
        block.push(comment.to_owned());
    }
    block
}

/// Whether the statement before the comment at `line` has ended, so that only comments can follow.
fn begins_statement(source: &Source, line: usize) -> bool {
    (0..line)
        .rev()
        .map(|above| source.code_line(above).trim())
        .find(|code| !code.is_empty())
        .is_none_or(|code| code.ends_with([';', '{', '}', ',']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn above(text: &str, code: &str) -> String {
        let source = Source::new("a.rs", text);
        let line = source.line_of(text.find(code).expect("the code stands in the text"));
        comments(&source, line).join(" ")
    }

    #[test]
    fn long_statement_takes_comment_above() {
        let text = "b();\n// one\n// two\nlet x = a\n    .c(\n        1,\n        D,\n    );\n";
        let found = above(text, "D,");
        assert!(found.contains("one") && found.contains("two"), "{found}");
    }

    #[test]
    fn previous_statements_comment_is_ignored() {
        assert!(!above("// one\na();\nb();\n", "b()").contains("one"));
        assert!(!above("// one\n\na();\n", "a()").contains("one"));
        assert!(!above("// one\nif x {\n    a();\n", "a()").contains("one"));
    }

    #[test]
    fn arms_have_comments_of_their_own() {
        let text = "match x {\n    // one\n    A => a(),\n    // two\n    B => b(),\n}\n";
        assert!(!above(text, "b()").contains("one"));
        assert!(above(text, "b()").contains("two"));
    }
}
