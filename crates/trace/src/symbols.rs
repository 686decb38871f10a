//! Names for addresses, asked for when tracing is over.
//!
//! A user address is looked up in the mappings that were recorded while its process lived, so it
//! can be named after the process has ended, as long as the file is still there. Memory without a
//! file is a JIT's: it is named by the perf map that such runtimes write. Kernel addresses are
//! named by `/proc/kallsyms`.
//!
//! What cannot be named stays visible: `[file+0xoffset]` or `[unknown]`, and is counted. A file
//! that was deleted or replaced is not looked at, because its successor would give wrong names.

mod demangle;
mod frame;
mod kernel;
mod perf_map;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use serde::Serialize;

use self::demangle::demangled;
pub use self::frame::{Frame, Side};
pub(crate) use self::frame::{file_name, printable};
use self::kernel::KernelFunctions;
pub(crate) use self::perf_map::JIT;
use self::perf_map::PerfMap;
use crate::observation::{Mapping, Process};

/// Addresses that were asked for, and those of them that have no name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct UnknownFrames {
    /// Different user addresses that were asked for.
    pub user_asked: u64,
    /// Those without a function's name.
    pub user_unknown: u64,
    /// Different kernel addresses that were asked for.
    pub kernel_asked: u64,
    /// Those without a function's name.
    pub kernel_unknown: u64,
}

/// Gives names to addresses, and remembers what it has read.
#[derive(Debug)]
pub struct Symbols {
    elf: Symbolizer,
    kernel: Option<KernelFunctions>,
    perf_maps: HashMap<u32, PerfMap>,
    files: HashMap<(String, String), Option<PathBuf>>,
    user_frames: HashMap<(u32, u64), Rc<[Frame]>>,
    kernel_frames: HashMap<u64, Rc<[Frame]>>,
    unknown: UnknownFrames,
}

impl Default for Symbols {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbols {
    /// Reads nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let elf = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(true)
            .enable_inlined_fns(true)
            .enable_demangling(false)
            .build();
        Self {
            elf,
            kernel: None,
            perf_maps: HashMap::new(),
            files: HashMap::new(),
            user_frames: HashMap::new(),
            kernel_frames: HashMap::new(),
            unknown: UnknownFrames::default(),
        }
    }

    /// Takes the kernel's functions from a text in the form of `/proc/kallsyms` instead of reading
    /// that file.
    #[must_use]
    pub fn with_kallsyms(mut self, text: &str) -> Self {
        self.kernel = Some(KernelFunctions::parse(text));
        self
    }

    /// Takes the text of a JIT's perf map (`START SIZE NAME` in each line), for a process that may
    /// have taken its own with it by the time that names are asked for.
    pub fn add_perf_map(&mut self, pid: u32, text: &str) {
        self.perf_maps.insert(pid, PerfMap::parse(text));
        self.user_frames.retain(|(known, _), _| *known != pid);
    }

    /// The frames at an address of a program: the function, and before it those that were inlined
    /// there, the innermost first. Never empty.
    ///
    /// `exact` says that this is the instruction itself; otherwise it is a return address, which
    /// may already belong to the next line or even the next function.
    pub fn user(&mut self, process: &Process, address: u64, exact: bool) -> Rc<[Frame]> {
        let address = if exact { address } else { address.saturating_sub(1) };
        if let Some(known) = self.user_frames.get(&(process.pid, address)) {
            return Rc::clone(known);
        }
        let frames: Rc<[Frame]> = self.look_up(process, address).into();
        self.unknown.user_asked += 1;
        self.unknown.user_unknown += u64::from(frames.iter().all(|frame| !frame.known));
        self.user_frames.insert((process.pid, address), Rc::clone(&frames));
        frames
    }

    /// The frame at a kernel address; `exact` as in [`Self::user`].
    pub fn kernel(&mut self, address: u64, exact: bool) -> Rc<[Frame]> {
        let address = if exact { address } else { address.saturating_sub(1) };
        if let Some(known) = self.kernel_frames.get(&address) {
            return Rc::clone(known);
        }
        let functions = self.kernel.get_or_insert_with(KernelFunctions::load);
        let frame = functions.frame(address);
        self.unknown.kernel_asked += 1;
        self.unknown.kernel_unknown += u64::from(!frame.known);
        let frames: Rc<[Frame]> = [frame].into();
        self.kernel_frames.insert(address, Rc::clone(&frames));
        frames
    }

    /// How many addresses had no name so far.
    #[must_use]
    pub fn unknown(&self) -> UnknownFrames {
        self.unknown
    }

    fn look_up(&mut self, process: &Process, address: u64) -> Vec<Frame> {
        // Of mappings that overlap the last is of the program that was executed last.
        let within = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        let mapping = process.maps.iter().rev().find(within);
        match mapping {
            Some(mapping) if mapping.path.starts_with('/') => self.in_file(mapping, address),
            Some(mapping) if mapping.path == "[vdso]" => vec![Frame::unknown("[vdso]".into())],
            _ => vec![self.in_jit(process, address)],
        }
    }

    fn in_jit(&mut self, process: &Process, address: u64) -> Frame {
        let pid = process.pid;
        let functions = self.perf_maps.entry(pid).or_insert_with(|| PerfMap::load(pid));
        functions.frame(address).unwrap_or_else(|| Frame::unknown("[unknown]".into()))
    }

    fn in_file(&mut self, mapping: &Mapping, address: u64) -> Vec<Frame> {
        let offset = (address - mapping.start).saturating_add(mapping.offset);
        let module = file_name(&mapping.path);
        let nameless = || {
            let mut frame = Frame::unknown(format!("[{module}+{offset:#x}]"));
            frame.module = Some(module.clone());
            vec![frame]
        };
        let Some(file) = self.file(mapping) else { return nameless() };
        let source = Source::Elf(Elf::new(file));
        match self.elf.symbolize_single(&source, Input::FileOffset(offset)) {
            Ok(Symbolized::Sym(symbol)) => frames_of(&symbol, &module),
            Ok(Symbolized::Unknown(_)) | Err(_) => nameless(),
        }
    }

    /// The file behind a mapping, if it can be taken for the one that was mapped.
    fn file(&mut self, mapping: &Mapping) -> Option<PathBuf> {
        let key = (mapping.path.clone(), mapping.open_path.clone());
        self.files.entry(key).or_insert_with(|| readable_file(mapping)).clone()
    }
}

/// Anything but a plain file could block the one who opens it.
pub(crate) fn readable_file(mapping: &Mapping) -> Option<PathBuf> {
    if mapping.path.ends_with(" (deleted)") {
        return None;
    }
    let is_file = |path: &&String| fs::metadata(path).is_ok_and(|found| found.is_file());
    [&mapping.open_path, &mapping.path].into_iter().find(is_file).map(PathBuf::from)
}

fn frames_of(symbol: &Sym<'_>, module: &str) -> Vec<Frame> {
    let place = |info: Option<&CodeInfo<'_>>| match info {
        Some(info) => (Some(source_path(&info.to_path())), info.line),
        None => (None, None),
    };
    let frame = |name: &str, info: Option<&CodeInfo<'_>>, inlined: bool| {
        let (file, line) = place(info);
        Frame {
            name: printable(&demangled(name)),
            module: Some(module.to_owned()),
            file,
            line,
            size_bytes: symbol.size.filter(|_| !inlined).and_then(|size| size.try_into().ok()),
            inlined,
            known: true,
            side: Side::User,
        }
    };
    let inlined = symbol.inlined.iter().rev();
    let mut frames: Vec<Frame> =
        inlined.map(|function| frame(&function.name, function.code_info.as_ref(), true)).collect();
    frames.push(frame(&symbol.name, symbol.code_info.as_deref(), false));
    frames
}

fn source_path(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

#[cfg(test)]
mod tests;
