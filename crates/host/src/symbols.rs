//! From addresses to functions: the kernel's by `/proc/kallsyms`, a program's by its ELF file.
//!
//! The kernel's list has no sizes: a function reaches to the next one. Programs' mappings are noted
//! while the process lives (from the sampler's own records, and from `/proc/PID/maps` when a
//! process is first seen), so that functions can be named after its end.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

/// Which side of the system call an address is on.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// In the kernel.
    Kernel,
    /// In a program.
    User,
}

/// A function, or what stands for the functions of a file that does not name them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// `None` where it is not known.
    pub(crate) size_bytes: Option<u64>,
}

#[derive(Debug)]
struct Symbol {
    start: u64,
    end: u64,
    name: Box<str>,
}

/// Functions in the order of their addresses.
#[derive(Debug, Default)]
struct SymbolTable(Vec<Symbol>);

impl SymbolTable {
    /// Sorts; what has no size (`end` 0) reaches to the next; of aliases the first stays.
    fn new(mut symbols: Vec<Symbol>) -> Self {
        symbols.sort_by_key(|symbol| symbol.start);
        symbols.dedup_by_key(|symbol| symbol.start);
        for index in 0..symbols.len() {
            let next = symbols.get(index + 1).map(|next| next.start);
            let symbol = &mut symbols[index];
            if symbol.end == 0 {
                symbol.end = next.unwrap_or(symbol.start + 1);
            }
        }
        Self(symbols)
    }

    fn find(&self, address: u64) -> Option<&Symbol> {
        let after = self.0.partition_point(|symbol| symbol.start <= address);
        self.0.get(after.checked_sub(1)?).filter(|symbol| address < symbol.end)
    }
}

/// The kernel's functions.
#[derive(Debug)]
pub(crate) struct KernelSymbols(SymbolTable);

impl KernelSymbols {
    /// Reads `/proc/kallsyms`. Where the kernel hides addresses no function is found in it.
    pub(crate) fn load() -> Self {
        Self::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let symbols = text.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let start = u64::from_str_radix(fields.next()?, 16).ok()?;
            let is_text = matches!(fields.next()?, "t" | "T" | "w" | "W");
            let name = fields.next()?.into();
            (is_text && start != 0).then_some(Symbol { start, end: 0, name })
        });
        Self(SymbolTable::new(symbols.collect()))
    }

    pub(crate) fn function(&self, address: u64) -> Function {
        match self.0.find(address) {
            Some(symbol) => Function {
                name: symbol.name.to_string(),
                size_bytes: Some(symbol.end - symbol.start),
            },
            None => Function { name: "[kernel]".to_owned(), size_bytes: None },
        }
    }

    /// The function's name, empty where it is not known.
    pub(crate) fn name(&self, address: u64) -> &str {
        self.0.find(address).map_or("", |symbol| &symbol.name)
    }
}

/// A piece of a file in the memory of a process.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) file_offset: u64,
    pub(crate) path: String,
}

impl Mapping {
    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.len
    }
}

/// The executable mappings of processes, dead ones included.
#[derive(Debug, Default)]
pub(crate) struct ProcessMaps {
    by_pid: HashMap<u32, Vec<Mapping>>,
    parents: HashMap<u32, u32>,
}

impl ProcessMaps {
    pub(crate) fn add(&mut self, pid: u32, mapping: Mapping) {
        self.by_pid.entry(pid).or_default().push(mapping);
    }

    /// A forked process has its parent's mappings until it makes its own.
    pub(crate) fn add_fork(&mut self, pid: u32, parent: u32) {
        self.parents.insert(pid, parent);
    }

    /// Reads the mappings of a process that is seen for the first time, if it still lives.
    pub(crate) fn see(&mut self, pid: u32) {
        let mappings = self.by_pid.entry(pid).or_default();
        if mappings.is_empty()
            && let Ok(text) = fs::read_to_string(format!("/proc/{pid}/maps"))
        {
            mappings.extend(text.lines().filter_map(parse_mapping));
        }
    }

    /// The mapping that holds `address`, the newest first.
    fn find(&self, pid: u32, address: u64) -> Option<&Mapping> {
        let mut pid = pid;
        // A bound instead of a check for circles, which reused numbers could make.
        for _generation in 0..16 {
            let mappings = self.by_pid.get(&pid).map_or(&[][..], Vec::as_slice);
            let found = mappings.iter().rev().find(|mapping| mapping.contains(address));
            if found.is_some() {
                return found;
            }
            pid = *self.parents.get(&pid)?;
        }
        None
    }
}

/// `start-end perms offset dev inode path`.
pub(crate) fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let is_executable = fields.next()?.as_bytes().get(2) == Some(&b'x');
    let file_offset = hex(fields.next()?)?;
    let path = fields.nth(2)?.trim_start().to_owned();
    is_executable.then_some(Mapping { start, len: end - start, file_offset, path })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The functions of the files that are mapped; each file is read once.
#[derive(Debug, Default)]
pub(crate) struct UserSymbols {
    files: HashMap<String, Rc<FileSymbols>>,
}

#[derive(Debug, Default)]
struct FileSymbols {
    table: SymbolTable,
    /// File offset, length and address of each loaded segment.
    segments: Vec<(u64, u64, u64)>,
}

impl UserSymbols {
    pub(crate) fn function(&mut self, maps: &ProcessMaps, pid: u32, address: u64) -> Function {
        let Some(mapping) = maps.find(pid, address) else {
            return Function { name: "[unknown]".to_owned(), size_bytes: None };
        };
        if mapping.path.starts_with('[') || mapping.path.is_empty() {
            let is_vdso = mapping.path == "[vdso]";
            let name = if mapping.path.is_empty() { "[anonymous]" } else { &mapping.path };
            let size_bytes = is_vdso.then_some(mapping.len);
            return Function { name: name.to_owned(), size_bytes };
        }
        let file = self
            .files
            .entry(mapping.path.clone())
            .or_insert_with(|| Rc::new(FileSymbols::load(&mapping.path).unwrap_or_default()));
        let offset = address - mapping.start + mapping.file_offset;
        match file.find(offset) {
            Some(symbol) => Function {
                name: format!("{:#}", rustc_demangle::demangle(&symbol.name)),
                size_bytes: Some(symbol.end - symbol.start),
            },
            None => {
                let file = Path::new(&mapping.path).file_name().unwrap_or_default();
                Function { name: format!("[{}]", file.to_string_lossy()), size_bytes: None }
            }
        }
    }
}

impl FileSymbols {
    fn load(path: &str) -> Option<Self> {
        let data = fs::read(path).ok()?;
        let file = object::File::parse(data.as_slice()).ok()?;
        let symbols = file.symbols().chain(file.dynamic_symbols()).filter_map(|symbol| {
            let is_function = symbol.kind() == SymbolKind::Text && symbol.is_definition();
            let (start, size) = (symbol.address(), symbol.size());
            let end = if size == 0 { 0 } else { start + size };
            let name = symbol.name().ok()?.into();
            (is_function && start != 0).then_some(Symbol { start, end, name })
        });
        let table = SymbolTable::new(symbols.collect());
        let segments = file.segments().map(|segment| {
            let (offset, len) = segment.file_range();
            (offset, len, segment.address())
        });
        Some(Self { table, segments: segments.collect() })
    }

    fn find(&self, file_offset: u64) -> Option<&Symbol> {
        let (offset, _, address) = self
            .segments
            .iter()
            .find(|(offset, len, _)| file_offset.wrapping_sub(*offset) < *len)?;
        self.table.find(file_offset - offset + address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_functions_reach_to_the_next() {
        let text = "0000000000000100 T first\n0000000000000100 t alias\n\
                    0000000000000180 d data\n0000000000000200 t second\t[module]\n";
        let kernel = KernelSymbols::parse(text);
        let first = Function { name: "first".to_owned(), size_bytes: Some(0x100) };
        assert_eq!(kernel.function(0x1ff), first);
        assert_eq!(kernel.name(0x200), "second");
        assert_eq!(kernel.name(0xff), "");
        assert_eq!(kernel.function(0xff).name, "[kernel]");
    }

    /// A function whose address the test takes.
    #[inline(never)]
    fn a_function_to_be_named() -> u64 {
        std::hint::black_box(4711)
    }

    #[test]
    fn own_functions_are_named() {
        assert_eq!(a_function_to_be_named(), 4711);
        let pid = std::process::id();
        let mut maps = ProcessMaps::default();
        maps.see(pid);
        let address = a_function_to_be_named as fn() -> u64 as usize as u64;
        let mut symbols = UserSymbols::default();
        let function = symbols.function(&maps, pid, address + 1);
        assert!(function.name.ends_with("a_function_to_be_named"), "{}", function.name);
        assert!(function.size_bytes.is_some_and(|size| size > 0 && size < 4096));
        maps.add_fork(u32::MAX, pid);
        assert_eq!(symbols.function(&maps, u32::MAX, address + 1), function);
        assert_eq!(symbols.function(&maps, pid, 1).name, "[unknown]");
    }

    #[test]
    fn mappings_are_read() {
        let line = "7f00-7f80 r-xp 00001000 fd:00 1234      /usr/lib/a b.so";
        let mapping = parse_mapping(line).unwrap();
        assert_eq!((mapping.start, mapping.len, mapping.file_offset), (0x7f00, 0x80, 0x1000));
        assert_eq!(mapping.path, "/usr/lib/a b.so");
        assert!(parse_mapping("7f00-7f80 rw-p 0 00:00 0 [heap]").is_none());
    }
}
