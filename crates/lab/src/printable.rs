//! What others have written, made safe to show.

/// `text` with its control characters written out, except for line ends and tabs: what a runner
/// prints must not move the cursor, colour the screen or retitle the window of its reader.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A command line that a shell takes as it was given.
pub(crate) fn command_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-+=/.,:@%^".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_written_out() {
        assert_eq!(
            printable("a\x1b[31mb\u{9b}2J\r\x07\x7f"),
            "a\\u{1b}[31mb\\u{9b}2J\\r\\u{7}\\u{7f}"
        );
        assert_eq!(printable("plain ×\n\tline"), "plain ×\n\tline");
    }

    #[test]
    fn command_lines_can_be_typed_again() {
        let words = ["unherd", "--build", "cargo build", "it's", "", "a{n}"].map(str::to_owned);
        assert_eq!(command_line(&words), r"unherd --build 'cargo build' 'it'\''s' '' 'a{n}'");
    }
}
