//! Writing behind: which pages to write back because a writer has filled them and gone on.
//!
//! A file remembers the streams in which it is written. When a stream has filled as many pages as
//! make a large transfer, these are written back, long before anybody needs their frames: so the
//! device is busy while the writer goes on, and a sync finds little left to do.
//!
//! Pure: no I/O and no threads.

use std::ops::Range;

use crate::frames::Claim;
use crate::frames::turns::Turn;
use crate::state::Advice;
use crate::state::preallocated::{Left, Preallocated};

/// Streams of one file that are remembered.
const STREAMS: usize = 8;

#[derive(Debug, Default)]
struct Stream {
    /// The first page that was filled, and not yet written behind.
    first: u64,
    /// The page after the last one that was filled.
    next: u64,
    /// When it was used last; 0 of a stream that there is none.
    used: u64,
    preallocated: Preallocated,
}

impl Stream {
    fn goes_on(&self, page: u64) -> bool {
        self.used > 0 && self.next == page
    }
}

/// The streams in which one file is written.
#[derive(Debug, Default)]
pub(crate) struct WriteStreams {
    streams: [Stream; STREAMS],
    fills: u64,
    pub(crate) advice: Advice,
    /// To fill a large run; it may be over.
    turn: Option<Turn>,
    /// Whether a small run was written since the last sync. Streams wait for turns then: so a short
    /// burst of writes that is synced waits for nobody.
    has_written_run: bool,
    /// Of streams that others have replaced; they can be taken back as all that is preallocated.
    left: Left,
}

/// How a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    No,
    Yes,
    /// It is to wait for a turn first.
    AfterTurn,
}

impl WriteStreams {
    /// A call is about to write pages to their ends; with several, a stream begins if none goes on.
    pub(crate) fn join(&mut self, pages: &Range<u64>) -> Joined {
        if self.stream_at(pages.start).is_some() {
            let waits = self.turn.is_none() && self.has_written_run;
            return if waits { Joined::AfterTurn } else { Joined::Yes };
        }
        if pages.end - pages.start < 2 {
            return Joined::No;
        }
        self.begin(pages.start);
        Joined::Yes
    }

    /// The stream has waited for its turn; without it the next run is a small one.
    pub(crate) fn set_turn(&mut self, turn: Option<Turn>) {
        self.turn = turn.or(self.turn);
        // A sync may have come meanwhile.
        self.has_written_run &= turn.is_some();
    }

    /// The turn, if the next run is to be a large one.
    pub(crate) fn turn(&self) -> Option<Turn> {
        self.turn
    }

    /// A run was written, where there are too many files for large ones.
    pub(crate) fn note_run(&mut self) {
        self.has_written_run = true;
    }

    /// Gives `each` up to `most` preallocated frames of the stream that stands at `at`, for pages
    /// from `page` on. If there is none, says how many to take. Comes with frames that no stream
    /// needs any more. `each` runs under the lock of the streams.
    pub(crate) fn take_frames(
        &mut self,
        at: u64,
        page: u64,
        most: usize,
        mut each: impl FnMut(Claim),
    ) -> (Result<(), usize>, Left) {
        let mut left = std::mem::take(&mut self.left);
        let Some(stream) = self.stream_at(at) else { return (Err(1), left) };
        let Some(first) = stream.preallocated.take(page, &mut left) else {
            return (Err(stream.preallocated.next_batch()), left);
        };
        each(first);
        let rest = page + 1..page + most as u64;
        rest.map_while(|page| stream.preallocated.take(page, &mut left)).for_each(each);
        (Ok(()), left)
    }

    /// Frames for the pages from `page` on, in the stream that stands at `at`. The first one last.
    pub(crate) fn put_frames(&mut self, at: u64, page: u64, mut claims: Vec<Claim>) {
        let mut left = std::mem::take(&mut self.left);
        match self.stream_at(at) {
            Some(stream) => stream.preallocated.put(page, claims, &mut left),
            None => {
                left.counted += claims.len();
                left.claims.append(&mut claims);
            }
        }
        self.left = left;
    }

    /// Gives the frames of all streams back.
    pub(crate) fn give_back(&mut self) -> Left {
        let mut left = std::mem::take(&mut self.left);
        self.streams.iter_mut().for_each(|stream| stream.preallocated.give_back(&mut left));
        left
    }

    /// The file is synced.
    pub(crate) fn note_sync(&mut self) {
        self.has_written_run = false;
    }

    fn stream_at(&mut self, page: u64) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.goes_on(page))
    }

    /// Begins a stream in place of the one that was used longest ago.
    fn begin(&mut self, page: u64) -> &mut Stream {
        self.fills += 1;
        let [first, rest @ ..] = &mut self.streams;
        let oldest = rest
            .iter_mut()
            .fold(first, |oldest, stream| if stream.used < oldest.used { stream } else { oldest });
        oldest.preallocated.give_back(&mut self.left);
        *oldest = Stream { first: page, next: page, used: self.fills, ..Stream::default() };
        oldest
    }

    /// Pages were written to their ends. Gives what is to be written back now: `run_pages` of a
    /// stream, or more; nothing, now or later, if that is `u64::MAX`.
    pub(crate) fn filled(&mut self, pages: Range<u64>, run_pages: u64) -> Option<Range<u64>> {
        if self.advice == Advice::Random {
            return None;
        }
        self.fills += 1;
        let used = self.fills;
        let stream = match self.streams.iter_mut().position(|stream| stream.goes_on(pages.start)) {
            Some(nth) => &mut self.streams[nth],
            None => self.begin(pages.start),
        };
        stream.next = pages.end;
        stream.used = used;
        if run_pages < u64::MAX && stream.next - stream.first < run_pages {
            return None;
        }
        let run = stream.first..stream.next;
        stream.first = stream.next;
        self.turn = None;
        (run_pages < u64::MAX).then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_written_in_runs() {
        let mut filled = WriteStreams::default();
        let runs: Vec<_> = (10..74).filter_map(|page| filled.filled(page..page + 1, 16)).collect();
        assert_eq!(runs, [10..26, 26..42, 42..58, 58..74]);
        assert_eq!(filled.filled(100..300, 16), Some(100..300));
    }

    #[test]
    fn a_stream_takes_more_and_more_frames() {
        let mut filled = WriteStreams::default();
        assert_eq!(filled.join(&(10..11)), Joined::No);
        assert_eq!(filled.join(&(10..14)), Joined::Yes);
        let mut batch = |at, page| filled.take_frames(at, page, 1, |_| ()).0.unwrap_err();
        assert_eq!([10, 11, 12, 13, 14, 15].map(|page| batch(10, page)), [1, 2, 4, 8, 16, 16]);
        assert_eq!(batch(11, 11), 1, "there is no such stream");
    }

    #[test]
    fn streams_wait_for_turns_after_a_small_run_until_a_sync() {
        let mut filled = WriteStreams::default();
        filled.filled(0..16, 16);
        assert_eq!(filled.join(&(16..17)), Joined::Yes, "there is room for all");
        filled.note_run();
        assert_eq!(filled.join(&(16..17)), Joined::AfterTurn);
        filled.note_sync();
        assert_eq!(filled.join(&(16..17)), Joined::Yes);
        filled.note_run();
        filled.set_turn(None);
        assert_eq!(filled.join(&(16..17)), Joined::Yes, "it has waited in vain");
        // A sync came while it waited.
        filled.note_sync();
        filled.set_turn(None);
    }

    #[test]
    fn what_was_not_to_be_written_stays_so() {
        let mut filled = WriteStreams::default();
        assert!((0..100).all(|page| filled.filled(page..page + 1, u64::MAX).is_none()));
        assert_eq!(filled.filled(100..101, 1), Some(100..101));
    }

    #[test]
    fn eight_interleaved_streams_go_on() {
        let mut filled = WriteStreams::default();
        let pages = (0..16).flat_map(|at| (0..8).map(move |stream| stream * 1000 + at));
        let runs = pages.filter_map(|page| filled.filled(page..page + 1, 16)).count();
        assert_eq!(runs, 8);
    }

    #[test]
    fn scattered_pages_are_left_to_others() {
        let mut filled = WriteStreams::default();
        assert!((0..100).all(|page| filled.filled(3 * page..3 * page + 1, 2).is_none()));
    }
}
