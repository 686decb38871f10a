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
//! A *cut* leaves the beginning of what a read could have found while the cut was under way, be
//! that the beginning of a page itself, or zeros. A read that finds the beginning of a page, and
//! then zeros, needs such a beginning among what it may find, and for its end one of these:
//!
//! - a cut that it may find. Mostly that is the one which left it; but a length and a page are
//!   looked at one after the other, and a crash may undo a write and not a cut;
//! - a cut, or a change to zeros, under way during the read: a page that is read in parts meets it
//!   between two of them, so it may end anywhere from there on.
//!
//! A sequence of reads and writes may pass these rules and still have no order that explains it
//! (two reads that began together may find two writes in opposite orders); none that has one fails.

use std::ops::RangeInclusive;

use unherd_sys::primitives::{Mutex, thread};

use crate::Found;

/// What a write leaves in the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// All of it, with the stamp of the write's sequence.
    Stamped,
    /// Zeros, as the file ends before it. While that comes about, others may see how the page
    /// becomes shorter.
    Zeros,
    /// What there was, or this many of its first bytes, and then zeros.
    Cut(usize),
}

/// How a write has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has happened.
    Done,
    /// It has not happened, and will not.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Write {
    sequence: u64,
    content: Content,
    began: u64,
    /// `u64::MAX` while it is under way.
    ended: u64,
    /// That of a read that began with it.
    horizon: u64,
}

/// What a page begins with; then come zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Beginning {
    /// The page of which it is the beginning; none of zeros.
    of: Option<u64>,
    bytes: usize,
    left_by: Write,
}

#[derive(Debug, Default, Clone)]
struct State {
    now: u64,
    sequence: u64,
    horizon: u64,
    /// Those that a read under way, or one that begins now, may find; and those of which a cut
    /// among them may have left the beginning.
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

/// A read that is given up if it is dropped, as that of a task may be.
#[derive(Debug)]
#[must_use]
pub struct ReadGuard<'a> {
    history: &'a PageHistory,
    read: Option<PageRead>,
}

impl ReadGuard<'_> {
    /// As [`PageHistory::end_read`].
    ///
    /// # Errors
    /// As there.
    pub fn end(mut self, found: Found) -> Result<(), String> {
        let read = self.read.take().ok_or("it has ended")?;
        self.history.end_read(read, found)
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        if let Some(read) = self.read.take().filter(|_| !thread::panicking()) {
            self.history.give_up(read);
        }
    }
}

impl PageHistory {
    /// Of a page that holds the stamp of sequence 1, or zeros.
    pub fn new(content: Content) -> Self {
        let first = Write { sequence: 1, content, began: 0, ended: 1, horizon: 0 };
        Self(Mutex::new(State { now: 1, sequence: 1, writes: vec![first], ..State::default() }))
    }

    /// A write begins; gives its sequence.
    pub fn begin_write(&self, content: Content) -> u64 {
        let mut state = self.0.lock();
        state.now += 1;
        state.sequence += 1;
        let (sequence, began, horizon) = (state.sequence, state.now, state.horizon);
        state.writes.push(Write { sequence, content, began, ended: u64::MAX, horizon });
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

    /// As [`PageHistory::begin_read`], of a read that may be dropped.
    pub fn begin_guarded_read(&self) -> ReadGuard<'_> {
        ReadGuard { history: self, read: Some(self.begin_read()) }
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
        let Some(happened) = state.explain(&read, found) else {
            return Err(format!("{found:?} is none of {:?}, from {}", state.writes, read.horizon));
        };
        state.horizon = state.horizon.max(happened);
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

    /// If the read may find that, the beginning of the write that must have happened for it.
    fn explain(&self, read: &PageRead, found: Found) -> Option<u64> {
        let may_find = |write: &Write| write.ended > read.horizon;
        let beginnings = |of: Option<u64>| {
            let all = self.beginnings().into_iter();
            all.filter(move |it| it.of == of && may_find(&it.left_by))
        };
        let write = |sequence| self.writes.iter().find(|write| write.sequence == sequence);
        match found {
            // Before a change of the length has ended, one may see it and the next one not.
            Found::Zeros => beginnings(None).next().map(|_| 0),
            Found::Whole(sequence) => {
                let write = write(sequence)?;
                (write.content == Content::Stamped && may_find(write)).then_some(write.began)
            }
            Found::Cut { sequence, least, most } => {
                let may_end = |it: Beginning| {
                    self.writes.iter().any(|cut| it.may_end(cut, read, least..=most))
                };
                let began = write(sequence)?.began;
                beginnings(Some(sequence)).any(may_end).then_some(began)
            }
        }
    }

    /// What the writes have left, or may have.
    fn beginnings(&self) -> Vec<Beginning> {
        let begin = |&left_by: &Write| {
            let (of, bytes) = match left_by.content {
                Content::Stamped => (Some(left_by.sequence), usize::MAX),
                Content::Zeros => (None, 0),
                Content::Cut(_) => return None,
            };
            Some(Beginning { of, bytes, left_by })
        };
        let mut all: Vec<_> = self.writes.iter().filter_map(begin).collect();
        let mut at = 0;
        while let Some(&before) = all.get(at) {
            at += 1;
            for &cut in &self.writes {
                let Content::Cut(bytes) = cut.content else { continue };
                let Write { began, ended, .. } = before.left_by;
                let meets = ended > cut.horizon && began < cut.ended && before.left_by != cut;
                let left = Beginning { bytes: before.bytes.min(bytes), left_by: cut, ..before };
                if meets && !all.contains(&left) {
                    all.push(left);
                }
            }
        }
        all
    }

    /// Forgets the writes that nobody may find any more, not even the beginning of them.
    fn prune(&mut self) {
        let mut horizon = self.reads.iter().copied().fold(self.horizon, u64::min);
        loop {
            let is_cut = |write: &&Write| matches!(write.content, Content::Cut(_));
            let found = self.writes.iter().filter(|write| write.ended > horizon);
            let earliest = found.filter(is_cut).map(|cut| cut.horizon).fold(horizon, u64::min);
            if earliest == horizon {
                break;
            }
            horizon = earliest;
        }
        self.writes.retain(|write| write.ended > horizon);
    }
}

impl Beginning {
    /// Whether a read may have found that it ends within `at`, because of `cut`.
    fn may_end(self, cut: &Write, read: &PageRead, at: RangeInclusive<usize>) -> bool {
        let bytes = match cut.content {
            Content::Stamped => return false,
            Content::Zeros => 0,
            Content::Cut(bytes) => bytes,
        };
        let is_cut = matches!(cut.content, Content::Cut(_)) && cut.ended > read.horizon;
        let meets_it = cut.ended > read.began && bytes <= *at.end() && self.bytes >= *at.start();
        meets_it || is_cut && at.contains(&self.bytes.min(bytes))
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn find(page: &PageHistory, sequence: u64) -> Result<(), String> {
        page.end_read(page.begin_read(), Found::Whole(sequence))
    }

    fn find_cut(page: &PageHistory, sequence: u64, bytes: usize) -> Result<(), String> {
        let found = Found::Cut { sequence, least: bytes, most: bytes };
        page.end_read(page.begin_read(), found)
    }

    #[test]
    fn later_read_never_finds_overwritten_value() {
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
    fn either_of_overlapping_writes_is_last() {
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
    fn failed_write_changes_nothing() {
        let page = PageHistory::new(Content::Stamped);
        let two = page.begin_write(Content::Stamped);
        page.end_write(two, Outcome::Failed);
        find(&page, 2).unwrap_err();
        find(&page, 1).unwrap();
        let zeros = page.begin_write(Content::Zeros);
        find_cut(&page, 1, 40).unwrap();
        page.end_write(zeros, Outcome::Failed);
        find_cut(&page, 1, 40).unwrap_err();
    }

    #[test]
    fn a_cut_of_zeros_leaves_zeros() {
        let page = PageHistory::new(Content::Zeros);
        let cut = page.begin_write(Content::Cut(40));
        page.end_write(cut, Outcome::Done);
        page.end_read(page.begin_read(), Found::Zeros).unwrap();
        let two = page.begin_write(Content::Stamped);
        page.end_write(two, Outcome::Done);
        page.end_read(page.begin_read(), Found::Zeros).unwrap_err();
    }

    #[test]
    fn truncation_keeps_the_beginning() {
        let page = PageHistory::new(Content::Stamped);
        let two = page.begin_write(Content::Stamped);
        page.end_write(two, Outcome::Done);
        let cut = page.begin_write(Content::Cut(40));
        find(&page, two).unwrap();
        page.end_write(cut, Outcome::Done);
        find(&page, two).unwrap_err();
        find_cut(&page, 1, 40).unwrap_err();
        find_cut(&page, two, 41).unwrap_err();
        find_cut(&page, two, 39).unwrap_err();
        find_cut(&page, two, 40).unwrap();
        let shorter = page.begin_write(Content::Cut(36));
        // It is not yet that short, but it is becoming so.
        find_cut(&page, two, 38).unwrap();
        page.end_write(shorter, Outcome::Done);
        let longer = page.begin_write(Content::Cut(48));
        page.end_write(longer, Outcome::Done);
        find_cut(&page, two, 40).unwrap_err();
        find_cut(&page, two, 48).unwrap_err();
        find_cut(&page, two, 36).unwrap();
        let three = page.begin_write(Content::Stamped);
        page.end_write(three, Outcome::Done);
        find_cut(&page, two, 36).unwrap_err();
        find_cut(&page, three, 36).unwrap_err();
    }

    #[test]
    fn writes_beside_truncation_are_remembered() {
        let page = PageHistory::new(Content::Stamped);
        let cut = page.begin_write(Content::Cut(40));
        let two = page.begin_write(Content::Stamped);
        let three = page.begin_write(Content::Stamped);
        page.end_write(two, Outcome::Done);
        page.end_write(cut, Outcome::Done);
        // The cut is the last, whichever it has met.
        for sequence in [1, two, three] {
            let page = PageHistory(Mutex::new(page.0.lock().clone()));
            find_cut(&page, sequence, 40).unwrap();
        }
        page.end_write(three, Outcome::Done);
        let four = page.begin_write(Content::Stamped);
        page.end_write(four, Outcome::Done);
        for sequence in [1, two, three, four] {
            find_cut(&page, sequence, 40).unwrap_err();
        }
    }

    #[test]
    fn length_and_page_are_read_in_sequence() {
        let page = PageHistory::new(Content::Stamped);
        let cut = page.begin_write(Content::Cut(40));
        page.end_write(cut, Outcome::Done);
        let read = page.begin_read();
        let three = page.begin_write(Content::Stamped);
        page.end_write(three, Outcome::Done);
        let found = Found::Cut { sequence: three, least: 40, most: 40 };
        page.end_read(read, found).unwrap();
        page.end_read(page.begin_read(), found).unwrap_err();
    }
}
