//! A machine of processors with caches that are kept coherent by the MESI protocol (Papamarcos and
//! Patel, 1984): it counts what an access of one processor asks of the others.
//!
//! | state of a line in a cache | a read by its processor | a write by its processor | a read by another | a write by another |
//! |---|---|---|---|---|
//! | Modified, Exclusive | nothing | nothing; Modified | Shared | Invalid |
//! | Shared | nothing | *upgrade*: the others become Invalid; Modified | Shared | Invalid |
//! | Invalid | *miss*: Shared, or Exclusive if nobody has it | *miss*: the others become Invalid; Modified | | |
//!
//! Misses and upgrades are *transfers*: messages that a processor waits for. Caches have room for
//! everything, and there is neither distance nor time. A read-modify-write is a write.

/// A cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineId(pub usize);

/// One line, as the caches have it.
#[derive(Debug, Clone)]
struct Line {
    /// A bit for each processor whose copy is not Invalid.
    holders: Vec<u64>,
    /// The one that holds it Modified or Exclusive.
    alone: Option<usize>,
}

/// Processors, caches and lines.
#[derive(Debug)]
pub struct Machine {
    lines: Vec<Line>,
    transfers: u64,
}

impl Machine {
    /// A machine with empty caches.
    pub fn new(processors: usize, lines: usize) -> Self {
        let line = Line { holders: vec![0; processors.div_ceil(64)], alone: None };
        Self { lines: vec![line; lines], transfers: 0 }
    }

    /// Misses and upgrades until now.
    pub fn transfers(&self) -> u64 {
        self.transfers
    }

    /// A load.
    pub fn read(&mut self, processor: usize, LineId(line): LineId) {
        let line = &mut self.lines[line];
        if line.has(processor) {
            return;
        }
        self.transfers += 1;
        line.alone = line.holders.iter().all(|bits| *bits == 0).then_some(processor);
        line.holders[processor / 64] |= 1 << (processor % 64);
    }

    /// A store, or a read-modify-write.
    pub fn write(&mut self, processor: usize, LineId(line): LineId) {
        let line = &mut self.lines[line];
        if line.alone == Some(processor) {
            return;
        }
        self.transfers += 1;
        line.alone = Some(processor);
        line.holders.fill(0);
        line.holders[processor / 64] = 1 << (processor % 64);
    }
}

impl Line {
    fn has(&self, processor: usize) -> bool {
        self.holders[processor / 64] >> (processor % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: LineId = LineId(0);

    /// What `accesses` of two processors ask for: `r` and `w` are the first's, `R` and `W` the
    /// second's.
    fn transfers(accesses: &str) -> u64 {
        let mut machine = Machine::new(65, 1);
        for access in accesses.chars() {
            // Far apart, so that their bits stand in different words.
            let processor = if access.is_lowercase() { 0 } else { 64 };
            match access {
                'r' | 'R' => machine.read(processor, LINE),
                _ => machine.write(processor, LINE),
            }
        }
        machine.transfers()
    }

    #[test]
    fn accesses_of_one_processor_miss_once() {
        assert_eq!(["r", "w", "rrr", "www", "rwrw"].map(transfers), [1; 5]);
    }

    #[test]
    fn readers_share_and_a_writer_invalidates() {
        assert_eq!(["rR", "rRrR", "wR", "wRr"].map(transfers), [2; 4]);
        assert_eq!(["rW", "rWr", "wWwW"].map(transfers), [2, 3, 4]);
        // Shared: the write is an upgrade, and the other's next read a miss.
        assert_eq!(["rRw", "rRwR", "rRwRw"].map(transfers), [3, 4, 5]);
    }
}
