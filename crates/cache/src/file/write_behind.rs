//! Writing behind: which pages to write back because a writer has filled them and gone on.
//!
//! A file remembers the streams in which it is written. When a stream has filled as many pages as
//! make a large transfer, these are written back, long before anybody needs their frames: so the
//! device is busy while the writer goes on, and a sync finds little left to do.
//!
//! Pure: no I/O and no threads.

use std::ops::Range;

use crate::file::Advice;
use crate::file::preallocated::Preallocated;
use crate::frames::turns::Turn;

/// Streams of one file that are remembered.
const STREAMS: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The first page that was filled, and not yet written behind.
    first: u64,
    /// The page after the last one that was filled.
    next: u64,
    /// When it was used last; 0 of a stream that there is none.
    used: u64,
}

impl Stream {
    fn goes_on(&self, page: u64) -> bool {
        self.used > 0 && self.next == page
    }
}

/// The streams in which one file is written.
#[derive(Debug, Default)]
pub(crate) struct FilledPages {
    streams: [Stream; STREAMS],
    fills: u64,
    pub(crate) advice: Advice,
    /// To fill a large run; it may be over.
    pub(crate) turn: Option<Turn>,
    pub(crate) preallocated: Preallocated,
}

impl FilledPages {
    /// Whether a stream goes on at the page.
    pub(crate) fn go_on(&self, page: u64) -> bool {
        self.streams.iter().any(|stream| stream.goes_on(page))
    }

    /// Pages were written to their ends. Gives what is to be written back
    /// now: `run_pages` of a stream, or more; nothing, now or later, if that is `u64::MAX`.
    pub(crate) fn filled(&mut self, pages: Range<u64>, run_pages: u64) -> Option<Range<u64>> {
        if self.advice == Advice::Random {
            return None;
        }
        self.fills += 1;
        let goes_on = |stream: &&mut Stream| stream.goes_on(pages.start);
        let stream = match self.streams.iter_mut().find(goes_on) {
            Some(stream) => stream,
            None => {
                let [first, rest @ ..] = &mut self.streams;
                let oldest = rest.iter_mut().fold(first, |oldest, stream| {
                    if stream.used < oldest.used { stream } else { oldest }
                });
                oldest.first = pages.start;
                oldest
            }
        };
        stream.next = pages.end;
        stream.used = self.fills;
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
        let mut filled = FilledPages::default();
        let runs: Vec<_> = (10..74).filter_map(|page| filled.filled(page..page + 1, 16)).collect();
        assert_eq!(runs, [10..26, 26..42, 42..58, 58..74]);
        assert_eq!(filled.filled(100..300, 16), Some(100..300));
    }

    #[test]
    fn what_was_not_to_be_written_stays_so() {
        let mut filled = FilledPages::default();
        assert!((0..100).all(|page| filled.filled(page..page + 1, u64::MAX).is_none()));
        assert_eq!(filled.filled(100..101, 1), Some(100..101));
    }

    #[test]
    fn eight_interleaved_streams_go_on() {
        let mut filled = FilledPages::default();
        let pages = (0..16).flat_map(|at| (0..8).map(move |stream| stream * 1000 + at));
        let runs = pages.filter_map(|page| filled.filled(page..page + 1, 16)).count();
        assert_eq!(runs, 8);
    }

    #[test]
    fn scattered_pages_are_left_to_others() {
        let mut filled = FilledPages::default();
        assert!((0..100).all(|page| filled.filled(3 * page..3 * page + 1, 2).is_none()));
    }
}
