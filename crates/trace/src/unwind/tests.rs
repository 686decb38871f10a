use std::arch::asm;
use std::hint::black_box;

use proptest::prelude::*;
use unherd_host::CodeMapping;
use unherd_sys::primitives::thread;

use super::*;
use crate::symbols::Symbols;

/// This process with its mappings.
fn this_process() -> Process {
    let pid = std::process::id();
    let mappings = CodeMapping::of_process(pid).unwrap();
    let mapping = |of: &CodeMapping| Mapping {
        start: of.start,
        end: of.end,
        offset: of.file_offset,
        path: of.path.to_string(),
        open_path: of.path.to_string(),
    };
    Process { pid, maps: mappings.iter().map(mapping).collect(), ..Process::default() }
}

/// The stack of the caller as the programs would copy it, `bytes` of it at most.
#[inline(never)]
#[expect(unsafe_code, reason = "registers and a stack can be read in no other way")]
fn copy_of_this_stack(bytes: usize) -> StackCopy {
    let (ip, sp, fp): (u64, u64, u64);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: only reads registers.
    unsafe {
        asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) ip, out(reg) sp, out(reg) fp);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: only reads registers.
    unsafe {
        asm!("adr {}, .", "mov {}, sp", "mov {}, x29", out(reg) ip, out(reg) sp, out(reg) fp);
    }
    let mut stack = Vec::new();
    for at in (sp..).step_by(8).take(bytes / 8) {
        // SAFETY: a test's thread has at least this much above its function, and nobody else
        // writes there meanwhile.
        let word = unsafe { (at as *const u64).read_volatile() };
        stack.extend(word.to_ne_bytes());
    }
    let (pid, stack) = (std::process::id(), stack.into());
    StackCopy {
        of_futex: false,
        row: 1,
        kernel: -1,
        user: -1,
        pid,
        stands_for: 1,
        ip,
        sp,
        fp,
        lr: 0,
        stack,
    }
}

#[inline(never)]
fn outer(bytes: usize) -> StackCopy {
    let copy = black_box(middle(bytes));
    black_box(copy)
}

#[inline(never)]
fn middle(bytes: usize) -> StackCopy {
    let room = [0u8; 600];
    black_box(&room);
    let copy = copy_of_this_stack(bytes + usize::from(room[0]));
    black_box(copy)
}

/// The names of a stack's functions, without their paths.
fn names(process: &Process, stack: &Stack) -> Vec<String> {
    let mut symbols = Symbols::new();
    let frames = stack.frames.iter().enumerate();
    let named = frames.flat_map(|(depth, at)| symbols.user(process, *at, depth == 0).to_vec());
    named.map(|frame| frame.name.rsplit("::").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn own_stack_copy_unwinds_to_callers() {
    // A thread's own data lies above its first function, so this much can be read.
    let copy = thread::spawn(|| outer(1800)).join().unwrap();
    let process = this_process();
    let stack = Unwinder::new().unwind(&process, &copy);
    let names = names(&process, &stack);
    println!("{names:?}");
    let at = |name: &str| names.iter().position(|of| of == name);
    let order = ["copy_of_this_stack", "middle", "outer"].map(at);
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{names:?}");
}

#[test]
fn short_copy_makes_cut_stack() {
    let copy = thread::spawn(|| outer(1000)).join().unwrap();
    let process = this_process();
    let stack = Unwinder::new().unwind(&process, &StackCopy { stack: [].into(), ..copy.clone() });
    assert_eq!((stack.frames.as_slice(), stack.truncated), ([copy.ip].as_slice(), true));
    // It is long enough for one caller, and not for the next.
    let short = StackCopy { stack: copy.stack[..500].into(), ..copy };
    let stack = Unwinder::new().unwind(&process, &short);
    let names = names(&process, &stack);
    assert!(stack.truncated && names.iter().any(|name| name == "middle"), "{names:?}");
    assert!(names.iter().all(|name| name != "outer"), "{names:?}");
}

#[test]
fn without_mappings_nothing_is_claimed() {
    let copy = thread::spawn(|| outer(1000)).join().unwrap();
    let stack = Unwinder::new().unwind(&Process::default(), &copy);
    assert_eq!(stack, Stack { frames: Vec::new(), truncated: true });
    // Memory of a JIT: no file, no table, and here no frame pointer.
    let memory = Mapping {
        start: 0,
        end: u64::MAX,
        offset: 0,
        path: String::new(),
        open_path: String::new(),
    };
    let process = Process { maps: vec![memory], ..Process::default() };
    let stack = Unwinder::new().unwind(&process, &StackCopy { fp: 8, ..copy });
    assert!(stack.truncated && stack.frames.len() == 1, "{stack:?}");
}

proptest! {
    #[test]
    fn whatever_a_stack_holds_unwinding_it_ends(
        words in prop::collection::vec(any::<(bool, u64)>(), 0..300),
        ip in any::<u64>(),
        sp in any::<u64>(),
        frame in 0u64..4096,
    ) {
        let process = this_process();
        // Half of the words are addresses in some code of this process, as they would be.
        let in_code = |number: u64| {
            let mapping = &process.maps[number as usize % process.maps.len()];
            mapping.start + (number >> 16) % (mapping.end - mapping.start)
        };
        let word = |(code, number): &(bool, u64)| if *code { in_code(*number) } else { *number };
        let stack: Vec<u8> = words.iter().flat_map(|of| word(of).to_ne_bytes()).collect();
        let (ip, fp, stack) = (in_code(ip), sp.wrapping_add(frame), stack.into());
        let copy = StackCopy {
            of_futex: false, row: 1, kernel: -1, user: -1, pid: process.pid, stands_for: 1,
            ip, sp, fp, lr: ip, stack,
        };
        let stack = Unwinder::new().unwind(&process, &copy);
        prop_assert!(stack.frames.len() <= FRAMES_MAX && stack.frames[0] == ip);
    }
}
