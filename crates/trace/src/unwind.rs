//! Stacks of code without frame pointers, unwound by the tables that exceptions need.
//!
//! The kernel walks user stacks by frame pointers. Few distributions' libraries have them, so the
//! walk ends in the C library, and what it found stands for every path that leads there. Of some
//! samples the programs hand over a copy of the stack's top with the registers (`bpf/stack.h`).
//! When tracing is over and all mappings are known, each copy is unwound by the `.eh_frame` of the
//! mapped files, and [`Paths`] says which of the frame-pointer stacks stand for what.
//!
//! What cannot be unwound (a JIT's code without frame pointers, a file that is gone, a 32-bit
//! program) keeps the stack that frame pointers gave. Copies stay in memory, and no byte of them is
//! shown.
//!
//! A file whose tables hold an expression that loops would hold up the end of tracing, since
//! framehop sets no bound there. No compiler makes such.

mod copy;
mod image;
mod paths;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use framehop::{
    CacheNative, Error, FrameAddress, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};

pub(crate) use self::copy::{StackCopies, StackCopy};
use self::image::Image;
pub(crate) use self::paths::{FutexPlace, Pair, Paths, kernel_stack_id};
use crate::observation::{Mapping, Process, Stack};
use crate::symbols;

/// More frames than a copy has room for, except the smallest: a bound, should tables be wrong.
const FRAMES_MAX: usize = 512;

/// Files whose tables are kept; what is in others is not unwound.
const FILES_MAX: usize = 1024;

/// What their tables may take together.
const TABLES_BYTES_MAX: u64 = 256 << 20;

/// The bytes of a section.
type Bytes = Rc<[u8]>;

/// Unwinds copies of stacks. Remembers the tables of the files that it met.
pub(crate) struct Unwinder {
    images: HashMap<String, Option<Rc<Image>>>,
    /// The process of the last copy: what it has mapped where.
    pid: Option<u32>,
    tables: UnwinderNative<Bytes, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Where the mappings begin that were looked at, and whether they have tables.
    added: BTreeMap<u64, bool>,
    /// What more tables may take.
    room_bytes: u64,
}

impl Unwinder {
    pub(crate) fn new() -> Self {
        Self {
            images: HashMap::new(),
            pid: None,
            tables: UnwinderNative::new(),
            cache: CacheNative::new(),
            added: BTreeMap::new(),
            room_bytes: TABLES_BYTES_MAX,
        }
    }

    /// The stack of a copy. It is cheaper when copies of one process come one after another.
    ///
    /// It is marked as cut where it does not reach the thread's first function: the copy was too
    /// short, or there is no table for some function.
    pub(crate) fn unwind(&mut self, process: &Process, copy: &StackCopy) -> Stack {
        if self.pid != Some(process.pid) {
            self.pid = Some(process.pid);
            self.tables = UnwinderNative::new();
            // It tells tables apart by a number of 16 bits, which is enough for one process.
            self.cache = CacheNative::new();
            self.added.clear();
        }
        let mut frames = Vec::new();
        let mut next = Some(FrameAddress::from_instruction_pointer(copy.ip));
        let mut registers = registers_of(copy);
        let (mut left_copy, mut lacks_tables) = (false, false);
        let mut read = |at| copy.word(at).ok_or_else(|| left_copy |= at >= copy.sp);
        while let Some(address) = next.take() {
            // A word that is no code's address: some table has not told the truth.
            let Some(mapping) = mapping_of(process, address.address_for_lookup()) else {
                return Stack { frames, truncated: true };
            };
            frames.push(address.address());
            if frames.len() == FRAMES_MAX {
                return Stack { frames, truncated: true };
            }
            // Without tables the frame pointer is followed. It may skip callers, and where it is 0
            // the stack seems to end.
            lacks_tables |= !self.know(mapping);
            let caller =
                self.tables.unwind_frame(address, &mut registers, &mut self.cache, &mut read);
            next = match caller {
                Ok(Some(caller)) => FrameAddress::from_return_address(caller),
                Ok(None) | Err(Error::ReturnAddressIsNull) => None,
                Err(_) => return Stack { frames, truncated: true },
            };
        }
        Stack { frames, truncated: left_copy || lacks_tables }
    }

    /// Adds the tables of a mapping, once; whether it has any.
    fn know(&mut self, mapping: &Mapping) -> bool {
        if let Some(known) = self.added.get(&mapping.start) {
            return *known;
        }
        let has_tables = self.add(mapping).is_some();
        self.added.insert(mapping.start, has_tables);
        has_tables
    }

    fn add(&mut self, mapping: &Mapping) -> Option<()> {
        let path = symbols::readable_file(mapping)?;
        let name = path.to_string_lossy().into_owned();
        if !self.images.contains_key(&name) {
            let has_room = self.images.len() < FILES_MAX;
            let image = has_room.then(|| Image::read(&path, self.room_bytes)).flatten();
            self.room_bytes -= image.as_ref().map_or(0, Image::bytes);
            self.images.insert(name.clone(), image.map(Rc::new));
        }
        let image = self.images.get(&name)?.as_ref()?;
        let range = mapping.start..mapping.end;
        let module = Module::new(name, range, image.base(mapping)?, image.sections());
        self.tables.add_module(module);
        Some(())
    }
}

/// Of mappings that overlap the last is of the program that was executed last.
fn mapping_of(process: &Process, address: u64) -> Option<&Mapping> {
    let within = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
    process.maps.iter().rev().find(within)
}

#[cfg(target_arch = "x86_64")]
fn registers_of(copy: &StackCopy) -> UnwindRegsNative {
    UnwindRegsNative::new(copy.ip, copy.sp, copy.fp)
}

#[cfg(target_arch = "aarch64")]
fn registers_of(copy: &StackCopy) -> UnwindRegsNative {
    UnwindRegsNative::new(copy.lr, copy.sp, copy.fp)
}

#[cfg(test)]
mod tests;
