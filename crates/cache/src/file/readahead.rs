//! Readahead: which pages to bring in with one that is missing.
//!
//! A file remembers the streams in which it is read. A miss that comes where a stream has got to
//! goes on with it, and doubles its window; another miss begins a stream, in place of the one that
//! was used longest ago, and brings in what was asked for alone. So random reads bring in nothing
//! else, and many streams may run through one file at a time.
//!
//! | a miss | brings in | the stream's window |
//! |---|---|---|
//! | at the first page of the file | what is asked for, at least [`FIRST`] pages | [`FIRST`] |
//! | where a stream goes on | what is asked for, and the window | doubled |
//! | anywhere else | what is asked for | 0 |
//!
//! Pure: no I/O and no threads. That a window grows with each proof that a reader goes on is the
//! idea of Linux (F. Wu and others, "On the Design of a New Linux Readahead Framework", 2008).

/// Streams of one file that are remembered.
const STREAMS: usize = 16;

/// The first window, in pages.
const FIRST: u64 = 4;

/// The first window of a file that is said to be read in streams.
const SEQUENTIAL: u64 = 64;

/// How far a stream may jump and still go on, in pages: pages between that were there are skipped
/// by misses.
const JUMP: u64 = 64;

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The page after the last one that was brought in.
    next: u64,
    /// Pages that the next miss brings in.
    window: u64,
    /// When it was used last; 0 of a stream that there is none.
    used: u64,
}

/// How a file is going to be read and written; the words of posix_fadvise(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Advice {
    /// In streams or at random: a miss that goes on where another ended is read ahead of.
    #[default]
    Normal,
    /// In streams: each miss is read ahead of, from the first on.
    Sequential,
    /// At random: nothing is brought in that was not asked for, and nothing is written behind.
    Random,
}

/// The streams in which one file is read.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    misses: u64,
    pub(crate) advice: Advice,
}

impl Streams {
    /// A page is missing, and `wanted` pages are asked for from it on. How many to bring in: as
    /// many, or more, but of those that nobody has asked for at most `ahead_max`; and no more than
    /// `possible` says, which is told how many are planned.
    pub(crate) fn miss(
        &mut self,
        page: u64,
        wanted: u64,
        ahead_max: u64,
        possible: impl FnOnce(u64) -> u64,
    ) -> u64 {
        if self.advice == Advice::Random {
            return possible(wanted);
        }
        self.misses += 1;
        let goes_on = |stream: &&mut Stream| {
            stream.used > 0 && (stream.next..=stream.next.saturating_add(JUMP)).contains(&page)
        };
        let found = self.streams.iter_mut().filter(goes_on).min_by_key(|stream| page - stream.next);
        let stream = match found {
            Some(stream) => {
                stream.window = (stream.window.max(wanted).max(FIRST / 2) * 2).min(1 << 20);
                stream
            }
            None => {
                let [first, rest @ ..] = &mut self.streams;
                let oldest = rest.iter_mut().fold(first, |oldest, stream| {
                    if stream.used < oldest.used { stream } else { oldest }
                });
                oldest.window = match self.advice {
                    Advice::Sequential => SEQUENTIAL,
                    _ if page == 0 => FIRST,
                    _ => 0,
                };
                oldest
            }
        };
        let pages = wanted.max(stream.window.min(wanted.saturating_add(ahead_max)));
        // A window that cannot be had does not go on growing.
        stream.window = stream.window.min(pages.max(FIRST));
        let pages = possible(pages);
        stream.next = page + pages;
        stream.used = self.misses;
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads pages one by one; gives how many each miss brings in.
    fn read(streams: &mut Streams, pages: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut there = std::collections::BTreeSet::new();
        let mut runs = Vec::new();
        for page in pages {
            if !there.contains(&page) {
                let run = streams.miss(page, 1, 256, |pages| pages);
                there.extend(page..page + run);
                runs.push(run);
            }
        }
        runs
    }

    #[test]
    fn a_sequential_reader_gets_growing_windows() {
        let mut streams = Streams::default();
        assert_eq!(read(&mut streams, 0..300), [4, 8, 16, 32, 64, 128, 256]);
        assert_eq!(read(&mut streams, 1000..1400), [1, 4, 8, 16, 32, 64, 128, 256]);
    }

    #[test]
    fn random_reads_bring_in_nothing_else() {
        let mut streams = Streams::default();
        let pages = (1..200).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
        assert!(read(&mut streams, pages).iter().all(|&run| run == 1));
    }

    #[test]
    fn sixteen_interleaved_streams_go_on() {
        let mut streams = Streams::default();
        let pages = (0..200).flat_map(|at| (1..=16).map(move |stream| stream * 100_000 + at));
        let runs = read(&mut streams, pages);
        // 1, 4, 8, ... 128 pages: seven misses for 200 pages.
        assert_eq!(runs.len(), 16 * 7);
    }

    #[test]
    fn advice_decides_about_the_first_miss() {
        let first = |advice| {
            let mut streams = Streams { advice, ..Streams::default() };
            [7, 8].map(|page| streams.miss(page, 1, 256, |pages| pages))
        };
        assert_eq!(first(Advice::Normal), [1, 4]);
        assert_eq!(first(Advice::Random), [1, 1]);
        assert_eq!(first(Advice::Sequential)[0], 64);
    }

    #[test]
    fn hits_between_do_not_end_a_stream() {
        let mut streams = Streams::default();
        // Every second page is there.
        let mut planned = Vec::new();
        for page in (100..116).step_by(2) {
            streams.miss(page, 1, 256, |pages| {
                planned.push(pages);
                1
            });
        }
        assert_eq!(planned, [1, 4, 8, 16, 32, 64, 128, 256]);
    }

    #[test]
    fn a_window_keeps_to_its_share() {
        let mut streams = Streams::default();
        assert_eq!([0, 4, 12].map(|page| streams.miss(page, 1, 7, |pages| pages)), [4, 8, 8]);
        assert_eq!(streams.miss(20, 300, 7, |pages| pages), 307);
        assert_eq!(streams.miss(327, 1, 0, |pages| pages), 1);
    }
}
