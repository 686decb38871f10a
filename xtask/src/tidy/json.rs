//! As much of JSON as it takes to read what `cargo metadata` prints (RFC 8259).

use std::collections::BTreeMap;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

/// How deep values may nest: more than any metadata do, and little enough for the stack.
const DEPTH_MAX: u32 = 64;

impl Value {
    /// Reads a whole text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.skip_space();
        if reader.at < text.len() {
            return Err(reader.error("the end"));
        }
        Ok(value)
    }

    /// The member of an object; nothing if this is no object, or has none of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(name),
            _ => None,
        }
    }

    /// The text of a member.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Self::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The items of a member that is a list; none if it is no list.
    pub(crate) fn items(&self, name: &str) -> &[Self] {
        match self.get(name) {
            Some(Self::List(items)) => items,
            _ => &[],
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn error(&self, wanted: &str) -> String {
        format!("no JSON: {wanted} should stand at byte {}", self.at)
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    /// Takes `token` if it comes next, behind space.
    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(self.error(token)) }
    }

    fn value(&mut self, depth: u32) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(self.error("something less deep"));
        }
        for (token, value) in
            [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))]
        {
            if self.take(token) {
                return Ok(value);
            }
        }
        if self.take("{") {
            return self.object(depth);
        }
        if self.take("[") {
            return self.list(depth);
        }
        if self.take("\"") {
            return self.string().map(Value::Text);
        }
        let digits = self.rest().find(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c));
        let number = &self.rest()[..digits.unwrap_or(self.rest().len())];
        let value = number.parse().map_err(|_| self.error("a value"))?;
        self.at += number.len();
        Ok(Value::Number(value))
    }

    fn object(&mut self, depth: u32) -> Result<Value, String> {
        let mut members = BTreeMap::new();
        if self.take("}") {
            return Ok(Value::Object(members));
        }
        loop {
            self.expect("\"")?;
            let name = self.string()?;
            self.expect(":")?;
            members.insert(name, self.value(depth + 1)?);
            if !self.take(",") {
                self.expect("}")?;
                return Ok(Value::Object(members));
            }
        }
    }

    fn list(&mut self, depth: u32) -> Result<Value, String> {
        let mut items = Vec::new();
        if self.take("]") {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if !self.take(",") {
                self.expect("]")?;
                return Ok(Value::List(items));
            }
        }
    }

    /// The string whose opening quote was taken.
    fn string(&mut self) -> Result<String, String> {
        let mut text = String::new();
        loop {
            let Some(character) = self.rest().chars().next() else {
                return Err(self.error("a quote"));
            };
            self.at += character.len_utf8();
            match character {
                '"' => return Ok(text),
                '\\' => text.push(self.escape()?),
                other => text.push(other),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let Some(character) = self.rest().chars().next() else {
            return Err(self.error("an escape"));
        };
        self.at += character.len_utf8();
        Ok(match character {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let first = self.four_digits()?;
                let is_high = (0xd800..0xdc00).contains(&first);
                let code = if is_high && self.rest().starts_with("\\u") {
                    self.at += 2;
                    let second = self.four_digits()?;
                    0x1_0000 + ((first - 0xd800) << 10) + (second.wrapping_sub(0xdc00) & 0x3ff)
                } else {
                    first
                };
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            '"' | '\\' | '/' => character,
            _ => return Err(self.error("an escape")),
        })
    }

    fn four_digits(&mut self) -> Result<u32, String> {
        let digits = self.rest().get(..4).ok_or_else(|| self.error("four digits"))?;
        let code = u32::from_str_radix(digits, 16).map_err(|_| self.error("four digits"))?;
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_read() {
        let text =
            r#" {"a": [1, -2.5e1, true, null], "b": {"c": "x\"\u00e9\ud83d\ude00\n"}, "d": []} "#;
        let value = Value::parse(text).unwrap();
        assert_eq!(value.items("a").len(), 4);
        assert_eq!(value.items("a")[1], Value::Number(-25.0));
        assert_eq!(value.get("b").unwrap().text("c"), Some("x\"é😀\n"));
        assert_eq!(value.items("d"), []);
        assert_eq!(value.get("e"), None);
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for text in ["", "{", "[1,]", "{\"a\" 1}", "\"a", "1 2", "nul", "\"\\x\"", "\"\\u12\""] {
            assert!(Value::parse(text).is_err(), "{text}");
        }
        assert!(Value::parse(&"[".repeat(100_000)).is_err());
    }
}
