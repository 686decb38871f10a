//! Functions that a JIT has made, by the perf map that its runtime writes.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use super::frame::{Frame, Side, printable};

/// The module of its functions.
pub(crate) const JIT: &str = "jit";

/// More than any runtime writes, and a bound on what a hostile one can make us read.
const BYTES_MAX: u64 = 256 << 20;
const FUNCTIONS_MAX: usize = 1 << 22;
const NAME_CHARS_MAX: usize = 1_000;

#[derive(Debug)]
struct Function {
    start: u64,
    size_bytes: u64,
    name: Box<str>,
}

/// The functions in the order of their addresses.
#[derive(Debug, Default)]
pub(super) struct PerfMap(Vec<Function>);

impl PerfMap {
    /// Reads `/tmp/perf-PID.map`, as the process sees that path while it lives. Empty if there is
    /// none.
    pub(super) fn load(pid: u32) -> Self {
        let inside = innermost_pid(pid).unwrap_or(pid);
        let its_root = format!("/proc/{pid}/root");
        let seen_by_it = format!("{its_root}/tmp/perf-{inside}.map");
        let seen_by_us = format!("/tmp/perf-{pid}.map");
        let text = [seen_by_it, seen_by_us].iter().find_map(|path| read(path));
        text.map_or_else(Self::default, |text| Self::parse(&text))
    }

    /// Lines that are not `START SIZE NAME` are left out. Where code was replaced, the later line
    /// counts.
    pub(super) fn parse(text: &str) -> Self {
        let function = |line: &str| {
            let (start, rest) = line.split_once(' ')?;
            let (size, name) = rest.split_once(' ')?;
            let start = u64::from_str_radix(start.trim_start_matches("0x"), 16).ok()?;
            let size_bytes = u64::from_str_radix(size.trim_start_matches("0x"), 16).ok()?;
            let name: String = name.trim().chars().take(NAME_CHARS_MAX).collect();
            Some(Function { start, size_bytes, name: name.into() })
        };
        let mut functions: Vec<Function> =
            text.lines().filter_map(function).take(FUNCTIONS_MAX).collect();
        functions.reverse();
        functions.sort_by_key(|function| function.start);
        functions.dedup_by_key(|function| function.start);
        Self(functions)
    }

    pub(super) fn frame(&self, address: u64) -> Option<Frame> {
        let after = self.0.partition_point(|function| function.start <= address);
        let function = self.0.get(after.checked_sub(1)?)?;
        (address - function.start < function.size_bytes).then(|| Frame {
            name: printable(&function.name),
            module: Some(JIT.into()),
            file: None,
            line: None,
            size_bytes: Some(function.size_bytes),
            inlined: false,
            known: true,
            side: Side::User,
        })
    }
}

/// The process's id in its own namespace, which is the one in the file's name.
fn innermost_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// `/tmp` belongs to everybody: a pipe must not block us, nor a device be read.
fn read(path: &str) -> Option<String> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
