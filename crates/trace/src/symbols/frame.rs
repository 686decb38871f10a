//! One frame of a stack, with what is known of its function.

use std::fmt;

use serde::Serialize;

/// Which side of the system call a frame is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// In a program.
    User,
    /// In the kernel.
    Kernel,
}

/// A function in a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Frame {
    /// The function, demangled; `[file+0xoffset]` or `[unknown]` where it has no name.
    pub name: String,
    /// The last part of the mapped file's path, or the kernel's module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The source file, where debug information tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The size of the function's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// It was inlined into the next frame outwards.
    pub inlined: bool,
    /// Whether the name is a function's.
    pub known: bool,
    /// The side.
    pub side: Side,
}

impl Frame {
    /// A user frame without a function's name.
    pub(super) fn unknown(name: String) -> Self {
        Self {
            name,
            module: None,
            file: None,
            line: None,
            size_bytes: None,
            inlined: false,
            known: false,
            side: Side::User,
        }
    }

    /// `server.c:120`: the last part of the source's path and the line.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let file = file_name(self.file.as_deref()?);
        Some(self.line.map_or(file.clone(), |line| format!("{file}:{line}")))
    }
}

/// `worker_loop (server.c:120)`, or `worker_loop [nginx]` where the line is not known.
impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (self.place(), &self.module) {
            (Some(place), _) => write!(f, " ({place})"),
            (None, Some(module)) if self.known => write!(f, " [{module}]"),
            _ => Ok(()),
        }
    }
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> String {
    printable(path.rsplit('/').next().unwrap_or(path))
}

/// Names come from files that anybody may have written: nothing in them may steer a terminal, or
/// break a line.
pub(crate) fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
