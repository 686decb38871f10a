//! Rust text, line by line, with code and comments apart.
//!
//! A small lexer, not a parser: it knows comments (nested ones too), strings (raw ones too),
//! character literals and lifetimes, and blanks what is not code, so that rules can look for words.

use std::ops::Range;

/// A Rust file.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// From the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments, strings and characters blanked; every byte is where it was.
    pub(crate) code: String,
    /// The text of nothing but comments; every byte is where it was.
    comments: String,
    /// Where each line begins.
    starts: Vec<usize>,
    /// The bytes that are compiled for tests alone.
    tests: Vec<Range<usize>>,
}

/// What the lexer is inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    LineComment,
    BlockComment { depth: u32 },
    String,
    RawString { hashes: usize },
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        let starts = std::iter::once(0)
            .chain(text.bytes().zip(1..).filter(|&(byte, _)| byte == b'\n').map(|(_, at)| at))
            .collect();
        let tests = test_items(&code);
        let mut source =
            Self { path: path.to_owned(), text: text.to_owned(), code, comments, starts, tests };
        if path.contains("/tests/") || path.contains("/benches/") {
            source.mark_as_test();
        }
        source
    }

    /// The whole file is compiled for tests alone.
    pub(crate) fn mark_as_test(&mut self) {
        self.tests = std::iter::once(0..self.text.len() + 1).collect();
    }

    /// Whether the byte is in what is compiled for tests alone.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// The line of a byte, counted from 0.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|&start| start <= at) - 1
    }

    /// How many lines there are.
    pub(crate) fn lines(&self) -> usize {
        self.starts.len()
    }

    /// The code of a line, counted from 0.
    pub(crate) fn code_line(&self, line: usize) -> &str {
        &self.code[self.range(line)]
    }

    /// The comments of a line, counted from 0.
    pub(crate) fn comment_line(&self, line: usize) -> &str {
        self.comments[self.range(line)].trim()
    }

    /// Where a line begins.
    pub(crate) fn start_of(&self, line: usize) -> usize {
        self.starts[line]
    }

    fn range(&self, line: usize) -> Range<usize> {
        let end = self.starts.get(line + 1).map_or(self.text.len(), |&next| next - 1);
        self.starts[line]..end
    }

    /// Where `word` stands in the code, by itself and not inside another word.
    pub(crate) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        words(&self.code, word)
    }
}

/// Where `word` stands in `code`, by itself and not inside another word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

pub(crate) fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The text twice: with nothing but code, and with nothing but comments.
fn split(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let mut code = vec![b' '; bytes.len()];
    let mut comments = code.clone();
    let mut inside = Inside::Code;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (next, len) = step(inside, rest, at.checked_sub(1).map(|before| bytes[before]));
        let chunk = at..at + len;
        let is_comment =
            |inside| matches!(inside, Inside::LineComment | Inside::BlockComment { .. });
        if is_comment(inside) || is_comment(next) {
            comments[chunk.clone()].copy_from_slice(&bytes[chunk]);
        } else if inside == Inside::Code && next == Inside::Code && !is_character(rest, len) {
            code[chunk.clone()].copy_from_slice(&bytes[chunk]);
        }
        for line_end in at..at + len {
            if bytes[line_end] == b'\n' {
                code[line_end] = b'\n';
                comments[line_end] = b'\n';
            }
        }
        inside = next;
        at += len;
    }
    // Both keep whole characters or blank them byte by byte, so both are text.
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(code), text(comments))
}

/// Where a step from `inside` leads, and how many bytes it takes.
fn step(inside: Inside, rest: &[u8], before: Option<u8>) -> (Inside, usize) {
    match inside {
        Inside::Code if rest.starts_with(b"//") => (Inside::LineComment, 2),
        Inside::Code if rest.starts_with(b"/*") => (Inside::BlockComment { depth: 1 }, 2),
        Inside::Code if rest[0] == b'"' => (Inside::String, 1),
        Inside::Code => {
            let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            match raw_string(rest) {
                Some((hashes, len)) if !in_word => (Inside::RawString { hashes }, len),
                _ => (Inside::Code, character(rest).unwrap_or(1)),
            }
        }
        Inside::LineComment if rest[0] == b'\n' => (Inside::Code, 1),
        Inside::LineComment => (inside, 1),
        Inside::BlockComment { depth } if rest.starts_with(b"/*") => {
            (Inside::BlockComment { depth: depth + 1 }, 2)
        }
        Inside::BlockComment { depth: 1 } if rest.starts_with(b"*/") => (Inside::Code, 2),
        Inside::BlockComment { depth } if rest.starts_with(b"*/") => {
            (Inside::BlockComment { depth: depth - 1 }, 2)
        }
        Inside::BlockComment { .. } => (inside, 1),
        Inside::String if rest[0] == b'\\' => (inside, rest.len().min(2)),
        Inside::String if rest[0] == b'"' => (Inside::Code, 1),
        Inside::String => (inside, 1),
        Inside::RawString { hashes } => {
            let ends = rest[0] == b'"'
                && rest.len() > hashes
                && rest[1..=hashes].iter().all(|&byte| byte == b'#');
            if ends { (Inside::Code, 1 + hashes) } else { (inside, 1) }
        }
    }
}

/// The hashes and the length of what opens a raw string here.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = [b"r".as_slice(), b"br", b"cr"].into_iter().find(|p| rest.starts_with(p))?.len();
    let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
    (rest.get(prefix + hashes) == Some(&b'"')).then_some((hashes, prefix + hashes + 1))
}

/// The length of the character literal that begins here; none for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest[0] != b'\'' {
        return None;
    }
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|&byte| byte == b'\'')?;
        return Some(end + 4);
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]).unwrap_or_else(|error| {
        std::str::from_utf8(&rest[1..][..error.valid_up_to()]).unwrap_or("")
    });
    let len = text.chars().next()?.len_utf8();
    (rest.get(1 + len) == Some(&b'\'')).then_some(len + 2)
}

fn is_character(rest: &[u8], len: usize) -> bool {
    len > 1 && rest[0] == b'\''
}

/// The items behind `#[cfg(…)]` attributes that ask for `test`.
fn test_items(code: &str) -> Vec<Range<usize>> {
    code.match_indices("#[cfg(")
        .filter_map(|(at, _)| {
            let condition = balanced(code, at + "#[cfg".len())?;
            asks_for_test(&code[condition.clone()]).then(|| at..item_end(code, condition.end))
        })
        .collect()
}

/// Whether a condition holds in test builds alone: `test` stands in it, outside of any `not(…)`.
fn asks_for_test(condition: &str) -> bool {
    let mut rest = condition.to_owned();
    loop {
        let not = words(&rest, "not").next();
        let Some(at) = not else { break };
        let Some(not) = balanced(&rest, at + "not".len()) else {
            break;
        };
        rest.replace_range(at..not.end, "");
    }
    let any = words(&rest, "any").next().is_some();
    words(&rest, "test").next().is_some() && !any
}

/// From the bracket that opens at `open` to behind the one that closes it.
fn balanced(code: &str, open: usize) -> Option<Range<usize>> {
    let mut depth = 0_u32;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(open..at + 1);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Where the item ends that stands behind `from`: at its semicolon, or behind its braces.
fn item_end(code: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(found) = code[at..].find([';', '{', '[', '(']) {
        let place = at + found;
        match code.as_bytes()[place] {
            b';' => return place + 1,
            b'{' => return balanced(code, place).map_or(code.len(), |braces| braces.end),
            _ => at = balanced(code, place).map_or(code.len(), |brackets| brackets.end),
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_comments_come_apart() {
        let text = "let a = \"// no\"; // yes \"x\n/* a /* b */ c */ let b = r#\"/* \"no\"#;\n";
        let source = Source::new("a.rs", text);
        assert_eq!(source.code_line(0).trim(), "let a =        ;");
        assert_eq!(source.comment_line(0), "// yes \"x");
        assert_eq!(source.comment_line(1), "/* a /* b */ c */");
        assert_eq!(source.code_line(1).split_whitespace().collect::<String>(), "letb=;");
    }

    #[test]
    fn characters_strings_and_lifetimes_differ() {
        let text = "f('\"', '\\'', 'é', b'\\x27', &'a x, \"s\\\"//\"); // end";
        let source = Source::new("a.rs", text);
        assert!(source.code_line(0).contains("&'a x,"), "{}", source.code);
        assert!(source.code_line(0).trim_end().ends_with(");"));
        assert_eq!(source.comment_line(0), "// end");
    }

    #[test]
    fn what_is_for_tests_is_known() {
        let text = "fn a() {}\n#[cfg(test)]\n#[x(y)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n\
                    #[cfg(not(test))]\nfn d() {}\n#[cfg(all(test, not(any(loom))))]\nmod e;\n";
        let source = Source::new("a.rs", text);
        let tested = |name: &str| source.is_test(text.find(name).unwrap());
        assert!(!tested("fn a"));
        assert!(tested("fn b"));
        assert!(!tested("fn c"));
        assert!(!tested("fn d"));
        assert!(tested("mod e"));
        assert!(Source::new("crates/a/tests/it/main.rs", "fn a() {}").is_test(0));
    }

    #[test]
    fn words_stand_by_themselves() {
        let source = Source::new("a.rs", "fence(x); offence(); fence_a; // fence\n");
        assert_eq!(source.words("fence").collect::<Vec<_>>(), [0]);
    }
}
