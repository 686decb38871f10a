//! Reads a block trace.
//!
//! A line is `FIRST COUNT …`: a request of COUNT blocks from the first on, each of which counts
//! as a request of one page. What follows in the line is ignored. This is the format in which the
//! traces of N. Megiddo and D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST
//! 2003) are handed on.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::LoadError;
use crate::random::mix_all;

/// More requests than any known trace has; beyond it, a line is taken for a mistake.
const REQUESTS_MAX: usize = 1 << 30;

/// What was requested, in order.
#[derive(Debug)]
pub(super) struct Trace {
    /// Pages, numbered in the order of their first request.
    pub(super) requests: Vec<u32>,
    /// How many different ones.
    pub(super) pages: u32,
}

impl Trace {
    pub(super) fn read(path: &Path) -> Result<Self, LoadError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            LoadError::usage(format!("{}: {error}: give a trace that can be read", path.display()))
        };
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        if path.extension().is_none_or(|extension| extension != "zst") {
            return Self::parse(file, path);
        }
        let mut zstd = Command::new("zstd")
            .arg("-dcq")
            .stdin(file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let path = path.display();
                LoadError::usage(format!("{path}: zstd: {error}: install zstd, or unpack the file"))
            })?;
        let parsed = match zstd.stdout.take() {
            Some(output) => Self::parse(output, path),
            None => Err(unreadable(&"zstd has no output")),
        };
        // A trace cut short by a damaged file may parse; what zstd says comes first.
        decompressed(zstd).map_err(|error| unreadable(&error)).and(parsed)
    }

    fn parse(text: impl Read, path: &Path) -> Result<Self, LoadError> {
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        let mut requests = Vec::new();
        for (index, line) in BufReader::new(text).lines().enumerate() {
            let wrong = |what: &dyn std::fmt::Display| {
                let (path, line) = (path.display(), index + 1);
                LoadError::usage(format!("{path}:{line}: {what}; a line is `FIRST COUNT …`"))
            };
            let line = line.map_err(|error| wrong(&error))?;
            let mut words = line.split_ascii_whitespace();
            let Some(first) = words.next() else { continue };
            let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
            let (Some(first), Some(count)) = (number(Some(first)), number(words.next())) else {
                return Err(wrong(&format!("{line:?} has no two whole numbers in front")));
            };
            let room = (REQUESTS_MAX - requests.len()) as u64;
            let end = first.checked_add(count).filter(|_| count <= room);
            let end = end.ok_or_else(|| wrong(&format!("{count} blocks from {first} on")))?;
            for block in first..end {
                let next = numbers.len() as u32;
                requests.push(*numbers.entry(block).or_insert(next));
            }
        }
        if requests.is_empty() {
            return Err(LoadError::usage(format!("{}: no requests in it", path.display())));
        }
        Ok(Self { requests, pages: numbers.len() as u32 })
    }

    /// A value that follows from all requests.
    pub(super) fn check(&self) -> u64 {
        self.requests.iter().fold(0, |sum, page| mix_all(&[sum, u64::from(*page)]))
    }
}

/// What was wrong with the file.
fn decompressed(mut zstd: Child) -> Result<(), String> {
    let mut said = String::new();
    if let Some(mut errors) = zstd.stderr.take() {
        // It is short, and there is nothing to do about it where it cannot be read.
        let _ = errors.read_to_string(&mut said);
    }
    match zstd.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(said.lines().next().map_or(status.to_string(), str::to_owned)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Trace, String> {
        Trace::parse(text.as_bytes(), Path::new("t")).map_err(|error| error.to_string())
    }

    #[test]
    fn line_requests_each_of_its_blocks() {
        let trace = parse("7 3 0 1\n\n100 1 0 2\n8 2 0 3\n9 0\n").unwrap();
        assert_eq!((trace.requests, trace.pages), (vec![0, 1, 2, 3, 1, 2], 4));
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, what) in [
            ("7 1\nx 1\n", "t:2: \"x 1\""),
            ("7\n", "t:1: \"7\""),
            ("7 -1\n", "t:1"),
            ("18446744073709551615 2\n", "t:1: 2 blocks"),
            ("0 99999999999\n", "t:1: 99999999999 blocks"),
            ("\n", "t: no requests"),
        ] {
            assert!(parse(text).unwrap_err().starts_with(what), "{text:?}: {:?}", parse(text));
        }
    }
}
