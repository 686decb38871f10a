//! The kernel's functions by `/proc/kallsyms`.

use std::fs;

use super::frame::{Frame, Side, printable};

#[derive(Debug)]
struct Function {
    start: u64,
    name: Box<str>,
    module: Option<Box<str>>,
}

/// The kernel's functions in the order of their addresses. The list has no sizes: a function
/// reaches to the next one, padding included.
#[derive(Debug)]
pub(super) struct KernelFunctions(Vec<Function>);

impl KernelFunctions {
    pub(super) fn load() -> Self {
        Self::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Without the right to see addresses all of them are 0 in the list: then nothing has a name.
    pub(super) fn parse(text: &str) -> Self {
        let function = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let start = u64::from_str_radix(fields.next()?, 16).ok()?;
            let is_code = matches!(fields.next()?, "t" | "T" | "w" | "W");
            let name = fields.next()?.into();
            let module = fields.next().map(|name| name.trim_matches(['[', ']']).into());
            (is_code && start != 0).then_some(Function { start, name, module })
        };
        let mut functions: Vec<Function> = text.lines().filter_map(function).collect();
        functions.sort_by_key(|function| function.start);
        functions.dedup_by_key(|function| function.start);
        Self(functions)
    }

    pub(super) fn frame(&self, address: u64) -> Frame {
        let after = self.0.partition_point(|function| function.start <= address);
        let next = self.0.get(after);
        // Behind the last function anything could be.
        let found = after.checked_sub(1).and_then(|index| self.0.get(index)).zip(next);
        let Some((function, next)) = found else {
            let nameless = Frame::unknown("[unknown]".into());
            return Frame { side: Side::Kernel, ..nameless };
        };
        Frame {
            name: printable(&function.name),
            module: Some(function.module.as_deref().map_or("kernel".into(), printable)),
            file: None,
            line: None,
            size_bytes: Some(next.start - function.start),
            inlined: false,
            known: true,
            side: Side::Kernel,
        }
    }
}
