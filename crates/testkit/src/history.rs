//! What a page may hold at a time, when reads and writes of it overlap.
//!
//! A page is a register whose reads and writes take time, and seem to happen at one instant of it.
//! So a read may find a write unless another came between the two as a whole:
//!
//! ```text
//!  write of 1    |-------|
//!  write of 2                 |------|
//!  a read                                |-----|       finds 2, not 1
//!  another read            |-----|                     finds either
//! ```
//!
//! A write that was found has happened, though it may not have ended: then whatever ended before it
//! *began* will not be found again. So all that must be known of the past is one instant, the
//! *horizon*: the latest beginning of a write that has ended or was found. A read that begins now
//! finds no write that had ended by then.
//!
//! What a crash leaves is what could have been found by a read that began with the last sync that
//! succeeded.
//!
//! A sequence of reads and writes may pass these rules and still have no order that explains it
//! (two reads that began together may find two writes in opposite orders); none that has one fails.

use unherd_sys::primitives::Mutex;

use crate::Found;

/// What a write leaves in the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// All of it, with the stamp of the write's sequence.
    Stamped,
    /// Zeros, as the file ends before it. While that comes about, others may see how the page
    /// becomes shorter.
    Zeros,
    /// What there was, up to somewhere, and then zeros.
    Cut,
}

/// How a write has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has happened.
    Done,
    /// It has happened, or there was nothing for it to do.
    Perhaps,
    /// It has not happened, and will not.
    Failed,
}

#[derive(Debug, Clone, Copy)]
struct Write {
    sequence: u64,
    content: Content,
    began: u64,
    /// `u64::MAX` while it is under way.
    ended: u64,
}

#[derive(Debug, Default)]
struct State {
    now: u64,
    sequence: u64,
    horizon: u64,
    /// Those that a read under way, or one that begins now, may find.
    writes: Vec<Write>,
    /// The horizons of the reads under way.
    reads: Vec<u64>,
}

/// The reads and writes of one page.
#[derive(Debug)]
pub struct PageHistory(Mutex<State>);

/// A read under way.
#[derive(Debug)]
#[must_use]
pub struct PageRead {
    began: u64,
    horizon: u64,
}

impl PageHistory {
    /// Of a page that holds the stamp of sequence 1, or zeros.
    pub fn new(content: Content) -> Self {
        let first = Write { sequence: 1, content, began: 0, ended: 1 };
        Self(Mutex::new(State { now: 1, sequence: 1, writes: vec![first], ..State::default() }))
    }

    /// A write begins; gives its sequence.
    pub fn begin_write(&self, content: Content) -> u64 {
        let mut state = self.0.lock();
        state.now += 1;
        state.sequence += 1;
        let (sequence, began) = (state.sequence, state.now);
        state.writes.push(Write { sequence, content, began, ended: u64::MAX });
        sequence
    }

    /// A write has ended.
    pub fn end_write(&self, sequence: u64, outcome: Outcome) {
        let mut state = self.0.lock();
        state.now += 1;
        let now = state.now;
        let Some(at) = state.writes.iter().position(|write| write.sequence == sequence) else {
            panic!("a write ended twice: sequence {sequence}");
        };
        match outcome {
            Outcome::Failed => drop(state.writes.swap_remove(at)),
            Outcome::Perhaps => state.writes[at].ended = now,
            Outcome::Done => {
                state.writes[at].ended = now;
                state.horizon = state.horizon.max(state.writes[at].began);
            }
        }
        state.prune();
    }

    /// A read begins.
    pub fn begin_read(&self) -> PageRead {
        let mut state = self.0.lock();
        let horizon = state.horizon;
        state.reads.push(horizon);
        PageRead { began: state.now, horizon }
    }

    /// A read has ended without finding anything.
    pub fn give_up(&self, read: PageRead) {
        let mut state = self.0.lock();
        state.end_read(&read);
        state.prune();
    }

    /// A read has ended.
    ///
    /// # Errors
    /// If no write that it may find left what it has found.
    pub fn end_read(&self, read: PageRead, found: Found) -> Result<(), String> {
        let mut state = self.0.lock();
        let left = |write: &&Write| match found {
            Found::Zeros => write.content == Content::Zeros,
            // A page that is read in parts may meet the zeros between two of them.
            Found::Cut(_) if write.content == Content::Zeros => write.ended > read.began,
            Found::Cut(_) => write.content == Content::Cut,
            Found::Whole(sequence) => {
                write.content == Content::Stamped && write.sequence == sequence
            }
        };
        let may_find = |write: &&Write| write.ended > read.horizon;
        let Some(&write) = state.writes.iter().filter(may_find).find(left) else {
            return Err(format!("{found:?} is none of {:?}, from {}", state.writes, read.horizon));
        };
        if let Found::Whole(_) = found {
            state.horizon = state.horizon.max(write.began);
        }
        state.end_read(&read);
        state.prune();
        Ok(())
    }
}

impl State {
    fn end_read(&mut self, read: &PageRead) {
        let at = self.reads.iter().position(|&horizon| horizon == read.horizon);
        self.reads.swap_remove(at.expect("a read ends once"));
    }

    /// Forgets the writes that nobody may find any more.
    fn prune(&mut self) {
        let horizon = self.reads.iter().copied().fold(self.horizon, u64::min);
        self.writes.retain(|write| write.ended > horizon);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn find(page: &PageHistory, sequence: u64) -> Result<(), String> {
        page.end_read(page.begin_read(), Found::Whole(sequence))
    }

    #[test]
    fn what_was_overwritten_is_not_found_by_a_read_that_begins_after() {
        let page = PageHistory::new(Content::Stamped);
        let early = page.begin_read();
        let two = page.begin_write(Content::Stamped);
        find(&page, 1).unwrap();
        page.end_write(two, Outcome::Done);
        find(&page, 1).unwrap_err();
        find(&page, 2).unwrap();
        page.end_read(early, Found::Whole(1)).unwrap();
        page.end_read(page.begin_read(), Found::Zeros).unwrap_err();
    }

    #[test]
    fn of_writes_that_overlap_either_is_the_last() {
        let page = PageHistory::new(Content::Stamped);
        let (two, three) = (page.begin_write(Content::Stamped), page.begin_write(Content::Zeros));
        page.end_write(three, Outcome::Done);
        page.end_write(two, Outcome::Done);
        find(&page, 2).unwrap();
        page.end_read(page.begin_read(), Found::Zeros).unwrap();
        find(&page, 1).unwrap_err();
    }

    #[test]
    fn what_was_found_has_happened() {
        let page = PageHistory::new(Content::Stamped);
        let two = page.begin_write(Content::Stamped);
        find(&page, 2).unwrap();
        find(&page, 1).unwrap_err();
        page.end_write(two, Outcome::Done);
    }

    #[test]
    fn what_failed_is_never_found_and_changes_nothing() {
        let page = PageHistory::new(Content::Stamped);
        let two = page.begin_write(Content::Stamped);
        page.end_write(two, Outcome::Failed);
        find(&page, 2).unwrap_err();
        find(&page, 1).unwrap();
        let zeros = page.begin_write(Content::Zeros);
        page.end_read(page.begin_read(), Found::Cut(1)).unwrap();
        page.end_write(zeros, Outcome::Failed);
        page.end_read(page.begin_read(), Found::Cut(1)).unwrap_err();
        let cut = page.begin_write(Content::Cut);
        page.end_write(cut, Outcome::Perhaps);
        find(&page, 1).unwrap();
        page.end_read(page.begin_read(), Found::Cut(1)).unwrap();
    }
}
