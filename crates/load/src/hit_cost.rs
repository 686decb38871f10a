//! `hit-cost`: what a hit executes, counted instead of timed.
//!
//! The same loops as those of [`hit`](crate::hit), by one thread under callgrind, which counts each
//! instruction. One run does three times the operations of another; the difference is what they
//! cost, without what comes before and after. An atomic write is an instruction that locks a word
//! of memory: one with a lock prefix, or an exchange with memory.

use std::path::Path;
use std::process::{Command, Stdio};

use object::{Object, ObjectSection, SectionKind};

use crate::hit::UNCOUNTED;
use crate::{Better, Description, Job, LoadError, Metric, Param, Round, Waits, Workload};

/// The workload `hit-cost` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct HitCost;

/// Operations of the shorter run: whole turns through the sequence of a set of `l2`.
const OPERATIONS: u64 = 1 << 15;

/// Options of `hit` that are passed on. The others are left at what makes counts repeat.
const PASSED_ON: [&str; 3] = ["pattern", "words", "writes"];

impl Workload for HitCost {
    fn describe(&self) -> Description {
        let default_impls = vec!["floor-pin", "unherd-pin", "unherd-peek"];
        describe_with(&crate::hit::Hit, if UNCOUNTED { Vec::new() } else { default_impls })
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        run(job)
    }
}

/// The description of `hit-cost` for a runner that has this `hit`.
pub fn describe_with(hit: &impl Workload, default_impls: Vec<&'static str>) -> Description {
    let Description { impls, params, .. } = hit.describe();
    let one_word = |param: Param| match param.name {
        "words" => Param { default: "1", ..param },
        _ => param,
    };
    let metrics = [
        ("instructions_per_hit", Better::Lower, "instructions of an operation, with its loop's"),
        ("atomic_writes_per_hit", Better::Lower, "of these, those that lock a word of memory"),
    ];
    Description {
        name: "hit-cost",
        about: "the instructions of a hit, counted under valgrind",
        primary: metrics.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        impls,
        default_impls,
        params: params
            .into_iter()
            .filter(|param| PASSED_ON.contains(&param.name))
            .map(one_word)
            .collect(),
        metrics: metrics.map(|(name, better, about)| Metric::new(name, better, about)).to_vec(),
        uses_dir: true,
        default_threads: 1,
        ..Description::default()
    }
}

/// Runs a round: the running executable's own `load hit`, twice, under valgrind.
pub fn run(job: &Job) -> Result<Round, LoadError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(LoadError::usage("hit-cost knows the atomic writes of x86-64 alone"));
    }
    if job.threads != 1 {
        return Err(LoadError::usage("hit-cost counts one thread: leave --threads at 1"));
    }
    let executable = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .map_err(|error| failed(job, &format!("cannot find itself: {error}")))?;
    let code = std::fs::read(&executable).map_err(|error| failed(job, &error.to_string()))?;
    let code = Code::parse(&code).map_err(|error| failed(job, &error))?;
    let count = |operations| {
        let profile = profile(job, &executable, operations)?;
        InstructionCounts::parse(&profile, &executable, &code).map_err(|error| failed(job, &error))
    };
    let (few, many) = (count(OPERATIONS)?, count(3 * OPERATIONS)?);
    // What comes before and after varies by a few instructions, of which none is a hit's.
    let per_hit = |few: u64, many: u64| many.saturating_sub(few) as f64 / (2 * OPERATIONS) as f64;
    let metrics = [
        ("instructions_per_hit", per_hit(few.instructions, many.instructions)),
        ("atomic_writes_per_hit", per_hit(few.atomic_writes, many.atomic_writes)),
    ];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).to_vec();
    // The runs have compared what they loaded with what must be there.
    Ok(Round { check: job.seed, metrics, waits: Waits::default() })
}

fn failed(job: &Job, message: &str) -> LoadError {
    LoadError::Setup { name: job.with.clone(), message: message.to_owned() }
}

/// What callgrind writes about a run of `hit`.
fn profile(job: &Job, executable: &Path, operations: u64) -> Result<String, LoadError> {
    // Of each run its own: the file of its pages must not be there yet.
    let dir = job.dir()?.join(operations.to_string());
    std::fs::create_dir(&dir)
        .map_err(|source| LoadError::Directory { dir: dir.clone(), source })?;
    let out = dir.join("callgrind.out");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--dump-instr=yes"])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(executable)
        .args(["load", "hit", "--with", &job.with, "--threads", "1"])
        .args(["--seed", &job.seed.to_string(), "--dir"])
        .arg(&dir)
        .args(["--param", "chain=false", "--param", &format!("ops={operations}")]);
    for name in PASSED_ON {
        command.args(["--param", &format!("{name}={}", job.params.text(name))]);
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        LoadError::usage(format!("valgrind: {error}: install it to count instructions"))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // Valgrind's own lines begin with its number.
        let own = said.lines().rev().find(|line| !line.starts_with("==") && !line.is_empty());
        let why = own.or_else(|| said.lines().next_back()).unwrap_or("it said nothing");
        return Err(failed(job, &format!("under valgrind: {why}")));
    }
    let profile = std::fs::read_to_string(&out)
        .map_err(|error| failed(job, &format!("{}: {error}", out.display())))?;
    std::fs::remove_dir_all(&dir).map_err(|source| LoadError::Directory { dir, source })?;
    Ok(profile)
}

/// The executable's instructions.
struct Code<'a> {
    sections: Vec<(u64, &'a [u8])>,
}

impl<'a> Code<'a> {
    fn parse(executable: &'a [u8]) -> Result<Self, String> {
        let file = object::File::parse(executable).map_err(|error| error.to_string())?;
        let text = file.sections().filter(|section| section.kind() == SectionKind::Text);
        let sections = text
            .map(|section| Ok((section.address(), section.data()?)))
            .collect::<Result<_, object::Error>>()
            .map_err(|error| error.to_string())?;
        Ok(Self { sections })
    }

    fn at(&self, address: u64) -> Option<&'a [u8]> {
        self.sections.iter().find_map(|&(start, bytes)| {
            let at = usize::try_from(address.checked_sub(start)?).ok()?;
            bytes.get(at..).filter(|bytes| !bytes.is_empty())
        })
    }
}

/// Whether the instruction in front of `code` locks a word of memory.
fn is_atomic_write(code: &[u8]) -> bool {
    const OPERAND_SIZE: u8 = 0x66;
    const LOCK: u8 = 0xf0;
    const XCHG: [u8; 2] = [0x86, 0x87];
    let code = code.strip_prefix(&[OPERAND_SIZE]).unwrap_or(code);
    match code {
        [LOCK, ..] => true,
        [0x40..=0x4f, opcode, operands, ..] | [opcode, operands, ..] if XCHG.contains(opcode) => {
            // Two registers are exchanged by one thread for itself.
            operands >> 6 != 0b11
        }
        _ => false,
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct InstructionCounts {
    instructions: u64,
    atomic_writes: u64,
}

impl InstructionCounts {
    /// Reads callgrind's format, written without compression: the lines of an object begin with
    /// `ob=`; `ADDRESS LINE COUNT` is one of its instructions; after `calls=`, the sum of a call.
    fn parse(profile: &str, executable: &Path, code: &Code<'_>) -> Result<Self, String> {
        let mut counts = Self::default();
        let (mut is_ours, mut is_call, mut found) = (false, false, false);
        for line in profile.lines() {
            if let Some(object) = line.strip_prefix("ob=") {
                is_ours = Path::new(object) == executable;
            }
            if !line.starts_with("0x") {
                is_call = line.starts_with("calls=");
                continue;
            }
            if std::mem::take(&mut is_call) {
                continue;
            }
            let malformed = || format!("callgrind wrote {line:?}, which is no count");
            let mut fields = line.split(' ');
            let address = fields.next().and_then(|field| field.strip_prefix("0x"));
            let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let address = address.ok_or_else(malformed)?;
            let count = fields.nth(1).and_then(|field| field.parse::<u64>().ok());
            let count = count.ok_or_else(malformed)?;
            counts.instructions += count;
            if is_ours {
                let code = code.at(address).ok_or_else(malformed)?;
                found = true;
                counts.atomic_writes += if is_atomic_write(code) { count } else { 0 };
            }
        }
        if found { Ok(counts) } else { Err(format!("nothing ran of {}", executable.display())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_lock_memory() {
        let locking: [&[u8]; 4] = [
            &[0xf0, 0x48, 0x0f, 0xc1, 0x0b], // lock xadd [rbx], rcx
            &[0x66, 0xf0, 0x0f, 0xc1, 0x0b], // lock xadd [rbx], cx
            &[0x48, 0x87, 0x0b],             // xchg [rbx], rcx
            &[0x86, 0x0b],                   // xchg [rbx], cl
        ];
        let others: [&[u8]; 4] = [
            &[0x48, 0x87, 0xcb],             // xchg rbx, rcx
            &[0x66, 0x90],                   // nop
            &[0x48, 0x89, 0xf0],             // mov rax, rsi
            &[0x48, 0x0f, 0xc1, 0x0b, 0xf0], // xadd [rbx], rcx
        ];
        assert!(locking.into_iter().all(is_atomic_write));
        assert!(!others.into_iter().any(is_atomic_write));
    }

    #[test]
    fn a_profile_is_summed_without_its_calls() {
        let code = Code { sections: vec![(0x10, &[0xf0, 0x01, 0x90])] };
        let profile = "events: Ir\nob=/own\nfn=f\n0x10 1 5\n0x12 2 7\ncalls=3 0x40 1\n0x12 2 99\n\
                       ob=/libc.so\nfn=g\n0x10 1 11\n";
        let counts = InstructionCounts::parse(profile, Path::new("/own"), &code);
        assert_eq!(counts, Ok(InstructionCounts { instructions: 23, atomic_writes: 5 }));
        assert!(
            InstructionCounts::parse(profile, Path::new("/other"), &code).is_err(),
            "not its own code"
        );
        assert!(InstructionCounts::parse("ob=/own\n0x99 1 2\n", Path::new("/own"), &code).is_err());
        assert!(InstructionCounts::parse("ob=/own\n0x10 1\n", Path::new("/own"), &code).is_err());
    }
}
