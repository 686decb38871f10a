//! What programs that use unherd's library say of themselves: their ledgers, read from outside.
//!
//! The eBPF programs add a process's rows up as it ends. Of one that goes on, this module reads
//! them from `/proc/PID/mem`. How the memory is laid out is said in
//! [`unherd_sys::ledger_layout`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use unherd_sys::Timestamp;
use unherd_sys::ledger_layout::{
    FIELDS, GATE_BYTES, GATE_FIELDS, GATES, MAGIC, NAME_BYTES, REASONS, ROOT_GATES,
    ROOT_GATES_HIDDEN, ROW_BYTES, ROW_WAITING, SIGNPOST, SLAB_NEXT, SLOTS,
};

use crate::observation::{GateRow, GateWaiter, LedgerRow};

/// Slabs that are followed from one to the next: 2,048 threads at a time. The eBPF side has the
/// same bound.
pub(crate) const SLABS_MAX: usize = 64;

/// Magic, names and gates.
pub(crate) const ROOT_BYTES: usize = ROOT_GATES + GATES * GATE_BYTES;

/// A ledger, added up.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    /// `ROOT_BYTES` of it.
    root: Vec<u8>,
    /// By reason, then by field.
    sums: Vec<u64>,
    /// When it was read.
    read_ns: u64,
    /// Of each thread that waits at a gate: since when, the number of the gate and, in the lower
    /// half, of the thread, and that of its reason.
    waiters: Vec<[u64; 3]>,
}

impl Ledger {
    /// What the eBPF programs have added up: `struct uh_ledger`.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let (root, sums) = bytes.split_at(bytes.len().min(ROOT_BYTES));
        let mut numbers = sums.as_chunks::<8>().0.iter().map(|n| u64::from_ne_bytes(*n));
        let sums = numbers.by_ref().take(REASONS * FIELDS.len()).collect();
        let read_ns = numbers.next().unwrap_or_default();
        let waiters = numbers.next().unwrap_or_default() as usize;
        let numbers: Vec<_> = numbers.take(3 * waiters).collect();
        let waiters = numbers.as_chunks().0.to_vec();
        Self { root: root.to_vec(), sums, read_ns, waiters }
    }

    /// Adds up the ledger that a living process has at `root`.
    pub(crate) fn read(pid: u32, root: u64) -> io::Result<Self> {
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let number = |at: u64| {
            let mut bytes = [0; 8];
            memory.read_exact_at(&mut bytes, at).map(|()| u64::from_ne_bytes(bytes))
        };
        let mut bytes = vec![0; ROOT_BYTES];
        memory.read_exact_at(&mut bytes, root)?;
        if !bytes.starts_with(&MAGIC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut ledger = Self {
            root: bytes,
            sums: vec![0; REASONS * FIELDS.len()],
            read_ns: Timestamp::now().as_ns(),
            waiters: Vec::new(),
        };
        ledger.add_slab(&memory, number(root + 24)?)?;
        let mut slab = number(root + 16)?;
        for _ in 0..SLABS_MAX {
            if slab == 0 {
                break;
            }
            ledger.add_slab(&memory, slab)?;
            slab = number(slab + SLAB_NEXT as u64)?;
        }
        Ok(ledger)
    }

    fn add_slab(&mut self, memory: &File, slab: u64) -> io::Result<()> {
        let mut rows = vec![0; SLAB_NEXT];
        memory.read_exact_at(&mut rows, slab)?;
        for (index, row) in rows.chunks_exact(ROW_BYTES).enumerate() {
            let sums = self.sums[index / SLOTS * FIELDS.len()..].iter_mut();
            for (sum, eight) in sums.take(FIELDS.len()).zip(row.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*eight));
            }
            let [since_ns, at] = [0, 8].map(|at| {
                row[ROW_WAITING + at..].first_chunk().map_or(0, |eight| u64::from_ne_bytes(*eight))
            });
            if since_ns > 0 {
                self.waiters.push([since_ns, at, (index / SLOTS) as u64]);
            }
        }
        Ok(())
    }

    /// A row for each reason with anything counted.
    pub(crate) fn rows(&self, pid: u32, at_end: bool) -> Vec<LedgerRow> {
        (0..REASONS)
            .map(|reason| self.name(reason))
            .zip(self.sums.chunks_exact(FIELDS.len()))
            .filter(|(_, sums)| sums.iter().any(|sum| *sum > 0))
            .map(|(reason, sums)| {
                let named = FIELDS.iter().map(|field| (*field).to_owned());
                let counts: BTreeMap<_, _> = named.zip(sums.iter().copied()).collect();
                LedgerRow { pid, reason, counts, at_end }
            })
            .collect()
    }

    fn name(&self, reason: usize) -> String {
        // The first reason is for waits that nobody named.
        let names = self.root.get(32..32 + REASONS * NAME_BYTES).unwrap_or_default();
        let name = names.chunks_exact(NAME_BYTES).nth(reason).filter(|_| reason > 0);
        let name = name.map(|name| name.split(|byte| *byte == 0).next().unwrap_or_default());
        name.map_or_else(|| "other".to_owned(), |name| String::from_utf8_lossy(name).into_owned())
    }

    /// The numbers in the root from this byte on.
    fn numbers(&self, at: usize) -> impl Iterator<Item = u64> {
        let bytes = self.root.get(at..).unwrap_or_default();
        bytes.as_chunks::<8>().0.iter().map(|number| u64::from_ne_bytes(*number))
    }

    /// How many gates there were that had no place in the ledger.
    pub(crate) fn gates_hidden(&self) -> u64 {
        self.numbers(ROOT_GATES_HIDDEN).next().unwrap_or_default()
    }

    /// Whether something that it names could not be read: the gate of a waiter, or the name of a
    /// reason with counts. In an ended process only memory can be read that was not swapped out.
    pub(crate) fn is_torn(&self) -> bool {
        let sums = self.sums.chunks_exact(FIELDS.len()).enumerate();
        let mut counted = sums.filter(|(_, sums)| sums.iter().any(|sum| *sum > 0));
        let owner = |gate: usize| self.numbers(ROOT_GATES + (gate - 1) * GATE_BYTES).next();
        let gates = self.waiters.iter().map(|[_, at, _]| (at >> 32) as usize);
        counted.any(|(reason, _)| self.name(reason).is_empty())
            || gates.filter(|gate| *gate > 0).any(|gate| owner(gate) == Some(0))
    }

    /// The gates that there were.
    pub(crate) fn gates(&self, pid: u32) -> Vec<GateRow> {
        let words: Vec<_> = self.numbers(ROOT_GATES).collect();
        let gates = words.as_chunks::<{ GATE_FIELDS.len() }>().0.iter().zip(1..);
        let gate = |(words, number): (&[u64; GATE_FIELDS.len()], u64)| {
            let [owner, changed_ns, progressed_ns, _, waiting, untrusted, untrusted_ns, overdue] =
                *words;
            let here = self.waiters.iter().filter(|[_, at, _]| at >> 32 == number);
            let waiter = |&[since_ns, at, reason]: &[u64; 3]| GateWaiter {
                thread: at as u32,
                reason: self.name(reason as usize),
                since_ns,
            };
            let mut waiters: Vec<_> = here.map(waiter).collect();
            waiters.sort_by_key(|of| of.since_ns);
            Some(GateRow {
                pid,
                reason: self.name(owner.checked_sub(1)? as usize),
                waiters,
                waiting,
                changed_ns,
                progressed_ns: (progressed_ns > 0).then_some(progressed_ns),
                untrusted,
                is_trusted: untrusted_ns <= changed_ns.max(progressed_ns),
                overdue,
                read_ns: self.read_ns,
            })
        };
        gates.filter_map(gate).collect()
    }
}

/// Where the ledger of a living process begins, if it has one.
pub(crate) fn find_root(pid: u32) -> Option<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let name = format!("/memfd:{SIGNPOST}");
    let line = maps.lines().find(|line| line.contains(&name))?;
    let signpost = u64::from_str_radix(line.split('-').next()?, 16).ok()?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut content = [0; 24];
    memory.read_exact_at(&mut content, signpost).ok()?;
    let (magic, root) = content.split_at(MAGIC.len());
    (magic == MAGIC).then(|| root.try_into().map(u64::from_ne_bytes).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger as a process keeps it, in this one.
    #[repr(C)]
    struct Root {
        magic: [u8; 16],
        head: u64,
        orphans: u64,
        names: [[u8; NAME_BYTES]; REASONS],
        gates_hidden: u64,
        pad: [u8; 24],
        gates: [[u64; GATE_FIELDS.len()]; GATES],
    }

    /// Always zeros, except `numbers`, by their places in bytes.
    fn slab(numbers: &[(usize, u64)]) -> u64 {
        let mut words = vec![0_u64; SLAB_NEXT / 8 + 1];
        for (at, number) in numbers {
            words[at / 8] = *number;
        }
        words.leak().as_ptr().addr() as u64
    }

    fn row(reason: usize, slot: usize, field: &str) -> usize {
        let field = FIELDS.iter().position(|known| *known == field).unwrap();
        (reason * SLOTS + slot) * ROW_BYTES + 8 * field
    }

    #[test]
    fn a_ledger_is_found_and_added_up() {
        let waiting = row(1, 31, "waits") + ROW_WAITING;
        let last = slab(&[
            (row(1, 31, "waits"), 5),
            (row(63, 0, "locks"), 9),
            (waiting, 700),
            (waiting + 8, 2 << 32 | 4711),
        ]);
        let first = slab(&[(row(1, 0, "waits"), 7), (SLAB_NEXT, last)]);
        let orphans = slab(&[(row(1, 0, "waits"), 1), (row(0, 0, "timeouts"), 2)]);
        let mut names = [[0; NAME_BYTES]; REASONS];
        names[1][..9].copy_from_slice(b"page-read");
        names[63][..4].copy_from_slice(b"last");
        let (pad, mut gates) = ([0; 24], [[0; GATE_FIELDS.len()]; GATES]);
        gates[1] = [64, 500, 600, 10, 1, 3, 650, 7];
        assert_eq!(std::mem::offset_of!(Root, gates), ROOT_GATES);
        let (magic, head, gates_hidden) = (MAGIC, first, 6);
        let root: &'static Root =
            Box::leak(Box::new(Root { magic, head, orphans, names, gates_hidden, pad, gates }));
        unherd_sys::ledger_layout::put_up_signpost(root).unwrap();

        let own = std::process::id();
        assert_eq!(find_root(own), Some(std::ptr::from_ref(root).addr() as u64));
        let ledger = Ledger::read(own, find_root(own).unwrap()).unwrap();
        let waiter = GateWaiter { thread: 4711, reason: "page-read".into(), since_ns: 700 };
        let gate = GateRow {
            pid: own,
            reason: "last".into(),
            waiters: vec![waiter],
            waiting: 1,
            changed_ns: 500,
            progressed_ns: Some(600),
            untrusted: 3,
            is_trusted: false,
            overdue: 7,
            read_ns: ledger.read_ns,
        };
        assert_eq!((ledger.gates(own), ledger.gates_hidden()), (vec![gate], 6));
        assert!(!ledger.is_torn(), "{ledger:?}");
        let without = |at: usize, len: usize| {
            let mut torn = ledger.clone();
            torn.root[at..at + len].fill(0);
            torn.is_torn()
        };
        assert!(without(ROOT_GATES + GATE_BYTES, GATE_BYTES) && without(32 + NAME_BYTES, 16));
        let rows = ledger.rows(own, false);
        let found: Vec<_> = rows
            .iter()
            .map(|row| {
                let counts = row.counts.iter().filter(|(_, count)| **count > 0);
                (row.reason.as_str(), counts.map(|(n, c)| (n.as_str(), *c)).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            found,
            [
                ("other", vec![("timeouts", 2)]),
                ("page-read", vec![("waits", 13)]),
                ("last", vec![("locks", 9)])
            ]
        );
    }

    #[test]
    fn a_process_without_a_ledger_has_none() {
        assert_eq!(find_root(1), None);
        assert!(Ledger::read(u32::MAX, 0).is_err());
    }
}
