//! Readahead: which pages to bring in with one that is missing, and which before they are missing.
//!
//! A file remembers the streams in which it is read. A miss that comes where a stream has got to
//! goes on with it, and doubles its window; another miss begins a stream, and brings in what was
//! asked for alone. So random reads bring in nothing else, and many streams may run through one
//! file at a time: of those that have gone on [`STREAMS`] are remembered, and of new ones a few, or
//! random reads would meet their ends by chance.
//!
//! | a miss | brings in | the stream's window |
//! |---|---|---|
//! | at the first page of the file | what is asked for, at least [`FIRST`] pages | [`FIRST`] |
//! | behind the pages of an earlier miss | what is asked for, and the window | doubled |
//! | as far from a miss as that from the one before | what is asked for, and the window | doubled |
//! | in a window or a little behind it, which was read to its end | the same | doubled |
//! | there, but the window was not read | what is asked for | 0 |
//! | anywhere else | what is asked for | 0 |
//!
//! A stream goes from page to page, or by a *stride*: backward, or over pages that it leaves out.
//! Then its windows are the pages of the stride alone.
//!
//! A reader that comes to a window finds the next two under way: of the pages that were brought in
//! ahead some ask, when they are first used, whether their stream is to go on: see
//! [`is_readahead_trigger`]. First uses are marked anyway, so a hit costs what it costs elsewhere;
//! and where a stream meets pages that are there already, the others ask.
//!
//! Pure: no I/O and no threads. That a window grows with each proof that a reader goes on, and that
//! a page in it asks for the next, are ideas of Linux (F. Wu and others, "On the Design of a New
//! Linux Readahead Framework", 2008).

use std::ops::{Range, RangeInclusive};

/// Streams of one file that are remembered.
const STREAMS: usize = 512;

/// Streams that are compared with a page at a time, without a branch between.
const GROUP: usize = 8;

/// Pages of a file for each stream that nothing has shown to go on.
const PAGES_EACH: u64 = 128;

/// The fewest and the most of these.
const NEW_STREAMS: RangeInclusive<u64> = 16..=64;

/// The first window, in pages.
const FIRST: u64 = 4;

/// The first window of a file that is said to be read in streams.
const SEQUENTIAL: u64 = 64;

/// How far a stream may jump and still go on, in pages; and the longest stride.
const REACH: u64 = 64;

/// The largest window of a stride that leaves pages out: each of its pages is a transfer.
const SINGLE_PAGES: u64 = 32;

/// Of pages in a row the first of each step asks for more. A step is 16 pages, or 64 KiB if these
/// are fewer pages; one page at least.
const STEP_PAGES: usize = 16;
const STEP_BYTES: usize = 64 << 10;

/// How many pages a step has: a power of two, as the size of a page is.
pub(crate) fn step_len(page_bytes: usize) -> u64 {
    (STEP_BYTES >> page_bytes.trailing_zeros()).clamp(1, STEP_PAGES) as u64
}

/// Without the division that it would take if steps had any other length: scans ask at each page.
fn is_multiple_of_step(number: u64, step: u64) -> bool {
    debug_assert!(step.is_power_of_two());
    number & (step - 1) == 0
}

/// The pages that a reader of a file that is read once has done with when it comes to `page`, and
/// whose turn has not come before; none for most pages. Those just read stay for one who reads them
/// in several steps.
pub(crate) fn behind(page: u64, step: u64) -> Range<u64> {
    if is_multiple_of_step(page, step) {
        page.saturating_sub(2 * step)..page.saturating_sub(step)
    } else {
        page..page
    }
}

/// Whether the first use of a page asks if its stream is to go on: the first of each step in a row
/// does, and about as many of those of a stride, whose numbers that may never divide.
#[inline]
pub(crate) fn is_readahead_trigger(page: u64, step: u64) -> bool {
    const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (page ^ page >> 7).wrapping_mul(SCATTER);
    is_multiple_of_step(page, step) || is_multiple_of_step((mixed ^ mixed >> 29) >> 32, step)
}

/// Before all pages, and near none.
const NOWHERE: i64 = i64::MIN / 2;

/// After this many misses and windows of others a stream counts as ended, if there are many new
/// ones.
const STALE: u64 = 4096;

#[derive(Debug, Clone, Copy)]
struct Stream {
    /// The page of the last miss.
    missed: i64,
    /// The page behind those that the last miss asked for.
    end: i64,
    /// The next page to bring in.
    front: i64,
    /// From one page to the next.
    stride: i64,
    /// How many pages are brought in at a time; 0 if nothing has shown that the stream goes on.
    window: u64,
    /// When it was used last.
    used: u64,
}

impl Stream {
    fn new(window: u64) -> Self {
        Self { missed: NOWHERE, end: NOWHERE, front: NOWHERE, stride: 1, window, used: 0 }
    }

    /// How many pages of the stream lie from its front to `page`, if that is near; fewer than 0 if
    /// it is in one of the last three windows.
    fn past_front(&self, page: i64) -> Option<i64> {
        let (distance, stride) = (page - self.front, self.stride.abs());
        let passed = 3 * self.window as i64;
        // Compared before it is divided: most streams are not near.
        if distance.abs() > (stride * passed).max(REACH as i64) || distance % stride != 0 {
            return None;
        }
        let pages = distance / self.stride;
        (-passed..=REACH as i64 / stride).contains(&pages).then_some(pages)
    }

    fn goes_on(&self, page: i64) -> bool {
        match self.window {
            0 => page == self.end || page == self.front,
            _ => self.past_front(page).is_some(),
        }
    }

    fn reach(&self) -> Reach {
        let near = REACH as i64;
        let Self { missed, end, front, .. } = *self;
        let (from, to) = match self.window {
            0 => (end.min(front).min(missed - near), end.max(front).max(missed + near)),
            _ => {
                let most = near.max(self.stride.abs() * 3 * self.window as i64);
                (front - most, front + most)
            }
        };
        Reach { from: from as u32, len: u32::try_from(to - from).unwrap_or(u32::MAX) }
    }

    /// Each stream takes a part of what is left for all, so they come to have equal windows.
    fn grow(&mut self, wanted: u64, limits: Limits, ahead: u64) {
        let (least, most) = match self.stride.abs() {
            1 => (FIRST, limits.run.min(ahead / 4).max(FIRST)),
            _ => (2, SINGLE_PAGES),
        };
        self.window = (self.window.max(wanted) * 2).clamp(least, most);
    }
}

/// Where a stream may go on: at no other page can its next miss be. Of the pages' numbers the lower
/// halves are compared, so pages far away may seem to be in it.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    from: u32,
    /// How far beyond `from` the last page is.
    len: u32,
}

impl Reach {
    fn may_have(self, page: i64) -> bool {
        (page as u32).wrapping_sub(self.from) <= self.len
    }
}

/// How a file is going to be read and written; the words of posix_fadvise(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Advice {
    /// In any order, by several readers perhaps: a miss that goes on where an earlier one ended
    /// starts readahead.
    #[default]
    Normal,
    /// In order: each miss starts readahead, also the first.
    Sequential,
    /// At random: nothing is brought in that was not asked for, and nothing is written behind a
    /// writer: dirty pages are written by a sync, for want of a frame or at the limit of dirty
    /// pages, and when they get old
    /// ([`CacheBuilder::dirty_expire`](crate::CacheBuilder::dirty_expire)).
    Random,
    /// As [`Advice::Normal`], and each page once, by one reader that goes forward: soon after it
    /// has read pages they are given up. So a scan keeps a few MiB (of large pages a dozen),
    /// whatever its length, and reads into the same memory again. A page that was used twice stays,
    /// and so do those that come by [`File::stream`](crate::File::stream).
    NoReuse,
}

/// How much may be brought in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Pages of one transfer.
    pub(crate) run: u64,
    /// Pages of the file.
    pub(crate) file: u64,
    /// Pages of a step: [`step_len`].
    pub(crate) step: u64,
}

/// Pages that nobody has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    first: i64,
    stride: i64,
    pages: u64,
}

impl Ahead {
    /// The pages, as ranges of at most `most` neighbours, as far as the file has them; those first
    /// that are wanted first.
    pub(crate) fn ranges(self, most: u64, file_pages: u64) -> impl Iterator<Item = Range<u64>> {
        let Self { first, stride, pages } = self;
        let each = if stride.abs() == 1 { most.max(1) } else { 1 };
        let range = move |nth: u64| {
            let at = nth * each;
            let from = first + stride * at as i64;
            let to = from + stride.signum() * (each.min(pages - at) as i64 - 1);
            let page = |page: i64| u64::try_from(page).unwrap_or(0).min(file_pages);
            page(from.min(to))..page(from.max(to) + 1)
        };
        (0..pages.div_ceil(each)).map(range).filter(|range| !range.is_empty())
    }
}

/// What to bring in because of a miss.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Pages from the missing one on.
    pub(crate) pages: u64,
    /// Those of a stride.
    pub(crate) ahead: Option<Ahead>,
}

/// The streams in which one file is read.
#[derive(Debug, Default)]
pub(crate) struct ReadStreams {
    streams: Vec<Stream>,
    /// Those of the streams, in groups; of the last group some are of none. A miss at random looks
    /// at these alone, which are few cache lines.
    reaches: Vec<[Reach; GROUP]>,
    /// How many streams nothing has shown to go on.
    new: u64,
    /// The last of these that another has replaced.
    latest: usize,
    uses: u64,
    advice: Advice,
}

impl ReadStreams {
    pub(crate) fn new(advice: Advice) -> Self {
        Self { advice, ..Self::default() }
    }

    /// A page is missing, and `wanted` pages are asked for from it on. How many to bring in: as
    /// many, or more; and no more from the missing one on than `possible` says, which is told how
    /// many are planned. `ahead` says how many pages may be brought in that nobody has asked for,
    /// `was_read` whether a page is there and was used: neither is asked about a miss at random.
    pub(crate) fn miss(
        &mut self,
        page: u64,
        wanted: u64,
        limits: Limits,
        ahead: impl FnOnce() -> u64,
        was_read: impl FnOnce(u64) -> bool,
        possible: impl FnOnce(u64) -> u64,
    ) -> Plan {
        if self.advice == Advice::Random {
            return Plan { pages: possible(wanted), ahead: None };
        }
        self.uses += 1;
        let (at, now) = (page as i64, self.uses);
        let nth = self.stream_of(at, limits.file);
        let mut stream = self.streams[nth];
        let goes_on = stream.goes_on(at);
        let most_ahead = if goes_on || stream.window > 0 { ahead() } else { 0 };
        if goes_on {
            // The page before this one, or the last that was brought in.
            let is_before = stream.past_front(at).is_some_and(|pages| pages < 0);
            let next = if is_before { at } else { stream.front };
            let last = u64::try_from(next - stream.stride).unwrap_or(0);
            if stream.window == 0 && at == stream.end {
                stream.stride = 1;
            }
            if stream.window == 0 || was_read(last) {
                stream.grow(wanted, limits, most_ahead);
            } else {
                stream = Stream::new(0);
            }
        }
        let pages = match stream.stride {
            1 => wanted.max(stream.window.min(wanted.saturating_add(most_ahead))),
            _ => wanted,
        };
        let pages = possible(pages);
        stream.missed = at;
        stream.end = at + wanted.min(pages) as i64;
        let mut ahead = None;
        if stream.stride == 1 {
            // A window that cannot be had does not go on growing.
            stream.window = stream.window.min(pages.max(FIRST));
            stream.front = at + pages as i64;
        } else {
            let pages = stream.window.min(most_ahead);
            stream.front = at + stream.stride * (1 + pages as i64);
            let first = at + stream.stride;
            ahead = (pages > 0).then_some(Ahead { first, stride: stream.stride, pages });
        }
        stream.used = now;
        self.put(nth, stream);
        Plan { pages, ahead }
    }

    fn put(&mut self, nth: usize, stream: Stream) {
        let before = std::mem::replace(&mut self.streams[nth], stream);
        self.new = self.new + u64::from(stream.window == 0) - u64::from(before.window == 0);
        self.note_reach(nth);
    }

    fn note_reach(&mut self, nth: usize) {
        self.reaches[nth / GROUP][nth % GROUP] = self.streams[nth].reach();
    }

    /// The stream that goes on at `page`; or a new one that may turn out to have gone there by a
    /// stride, which is kept; or one that begins. Of several the nearest.
    fn stream_of(&mut self, page: i64, file_pages: u64) -> usize {
        // One that goes on comes first: false is less than true.
        let way = |stream: &Stream| {
            let stride = (page - stream.missed).unsigned_abs();
            if stream.goes_on(page) {
                return Some((false, (page - stream.front).unsigned_abs()));
            }
            (stream.window == 0 && (1..=REACH).contains(&stride)).then_some((true, stride))
        };
        let Some(((is_stride, _), nth)) = self.nearest(page, way) else {
            return self.begin(page, file_pages);
        };
        if is_stride {
            // The miss is not where it was expected.
            let stride = page - self.streams[nth].missed;
            self.put(nth, Stream { stride, ..Stream::new(0) });
        }
        nth
    }

    /// The least that `distance` gives for a stream that reaches to `page`, and which one that is.
    fn nearest<D: Ord>(
        &self,
        page: i64,
        distance: impl Fn(&Stream) -> Option<D>,
    ) -> Option<(D, usize)> {
        let may_have = |reaches: &[Reach; GROUP]| {
            reaches.iter().fold(false, |any, reach| any | reach.may_have(page))
        };
        let groups = self.reaches.iter().zip(self.streams.chunks(GROUP)).enumerate();
        let near = groups.filter(|(_, (reaches, _))| may_have(reaches));
        let all = near.flat_map(|(group, (_, streams))| (group * GROUP..).zip(streams));
        all.filter_map(|(nth, stream)| Some((distance(stream)?, nth))).min()
    }

    /// Begins a stream; if there are many, in place of another.
    fn begin(&mut self, page: i64, file_pages: u64) -> usize {
        let window = match self.advice {
            Advice::Sequential => SEQUENTIAL,
            _ if page == 0 => FIRST,
            _ => 0,
        };
        let stream = Stream::new(window);
        let most = (file_pages / PAGES_EACH).clamp(*NEW_STREAMS.start(), *NEW_STREAMS.end());
        let nth = if self.new >= most {
            self.next_new()
        } else if self.streams.len() < STREAMS {
            self.streams.push(stream);
            self.reaches.resize(self.streams.len().div_ceil(GROUP), Default::default());
            self.note_reach(self.streams.len() - 1);
            self.new += u64::from(window == 0);
            return self.streams.len() - 1;
        } else {
            let all = self.streams.iter().enumerate();
            all.min_by_key(|(_, stream)| stream.used).map_or(0, |(nth, _)| nth)
        };
        self.put(nth, stream);
        nth
    }

    /// The streams that nothing has shown to go on, in turn: as they are begun in turn, the next is
    /// about the oldest.
    fn next_new(&mut self) -> usize {
        loop {
            self.latest += 1;
            if self.latest >= self.streams.len() {
                self.latest = 0;
                // Misses at random would pass by streams that have ended, each time.
                let since = self.uses.saturating_sub(STALE);
                self.streams.retain(|stream| stream.window == 0 || stream.used >= since);
                (0..self.streams.len()).for_each(|nth| self.note_reach(nth));
                self.reaches.truncate(self.streams.len().div_ceil(GROUP));
            }
            if self.streams[self.latest].window == 0 {
                return self.latest;
            }
        }
    }

    /// A page was used for the first time that had been brought in ahead, or that its reader has
    /// waited for. What to bring in now; `ahead` as for [`ReadStreams::miss`].
    pub(crate) fn used(
        &mut self,
        page: u64,
        limits: Limits,
        ahead: impl FnOnce() -> u64,
    ) -> Option<Ahead> {
        if self.advice == Advice::Random {
            return None;
        }
        let left = |stream: &Stream| {
            let pages = stream.past_front(page as i64).filter(|&pages| pages < 0)?;
            Some(pages.unsigned_abs())
        };
        let (left, nth) = self.nearest(page as i64, left)?;
        let mut stream = self.streams[nth];
        if stream.stride.abs() == 1 && !is_multiple_of_step(page, limits.step) {
            return None;
        }
        // Two windows are under way while the reader is in a third.
        if left > 2 * stream.window {
            return None;
        }
        let (before, most_ahead) = (stream.window, ahead());
        stream.grow(0, limits, most_ahead);
        let pages = (3 * stream.window).saturating_sub(left).min(most_ahead);
        if pages < before / 2 {
            return None;
        }
        let ahead = Ahead { first: stream.front, stride: stream.stride, pages };
        stream.front += stream.stride * pages as i64;
        self.uses += 1;
        stream.used = self.uses;
        self.put(nth, stream);
        Some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use unherd_testkit::Seed;

    use super::*;

    const LIMITS: Limits = Limits { run: 256, file: 1 << 20, step: 16 };

    fn ahead() -> u64 {
        1024
    }

    /// Reads a file page by page, as the cache would.
    #[derive(Default)]
    struct Reader {
        streams: ReadStreams,
        /// The pages that are there, and whether they were read.
        there: BTreeMap<u64, bool>,
        /// What each miss brings in from its page on.
        misses: Vec<u64>,
        /// The pages that were brought in ahead of their misses.
        ahead: Vec<u64>,
        has_no_io_thread: bool,
        /// Pages of the file; 0 if it is large.
        file_pages: u64,
    }

    impl Reader {
        fn limits(&self) -> Limits {
            let file = if self.file_pages > 0 { self.file_pages } else { LIMITS.file };
            Limits { file, ..LIMITS }
        }

        fn bring_in(&mut self, ahead: Option<Ahead>) {
            for page in ahead.into_iter().flat_map(|ahead| ahead.ranges(256, 1 << 40)).flatten() {
                self.there.entry(page).or_insert_with(|| {
                    self.ahead.push(page);
                    false
                });
            }
        }

        fn read(&mut self, pages: impl IntoIterator<Item = u64>) -> &mut Self {
            let limits = self.limits();
            for page in pages {
                match self.there.insert(page, true) {
                    Some(true) => {}
                    Some(false)
                        if is_readahead_trigger(page, limits.step) && !self.has_no_io_thread =>
                    {
                        let ahead = self.streams.used(page, limits, ahead);
                        self.bring_in(ahead);
                    }
                    Some(false) => {}
                    None => {
                        let was_read = |page| self.there.get(&page) == Some(&true);
                        let plan =
                            self.streams.miss(page, 1, limits, ahead, was_read, |pages| pages);
                        self.misses.push(plan.pages);
                        for page in page + 1..page + plan.pages {
                            self.there.entry(page).or_insert(false);
                        }
                        self.bring_in(plan.ahead);
                    }
                }
            }
            self
        }

        /// Pages that were brought in and not read.
        fn wasted(&self) -> usize {
            self.there.values().filter(|&&was_read| !was_read).count()
        }
    }

    #[test]
    fn a_sequential_reader_gets_growing_windows() {
        let mut reader = Reader { has_no_io_thread: true, ..Reader::default() };
        assert_eq!(reader.read(0..300).misses, [4, 8, 16, 32, 64, 128, 256]);
    }

    #[test]
    fn a_sequential_reader_finds_the_next_window_under_way() {
        let mut reader = Reader::default();
        reader.read(0..5000);
        assert_eq!(reader.misses, [4, 8, 16], "the others were asked for ahead");
        assert!(reader.wasted() <= 768, "three windows at most");
        assert!(reader.ahead.is_sorted());
    }

    #[test]
    fn random_reads_bring_in_nothing_else() {
        for pages in [640, 1 << 30] {
            let mut reader = Reader { file_pages: pages, ..Reader::default() };
            let mut seed = Seed::new(5);
            for _ in 0..200 {
                // The cache is small: what was read is soon gone.
                reader.there.clear();
                reader.read((0..50).map(|_| 1 + seed.below(pages)));
            }
            let brought_in = reader.misses.iter().sum::<u64>() as usize + reader.ahead.len();
            let misses = reader.misses.len();
            assert!(brought_in <= misses * 115 / 100, "{pages}: {brought_in} for {misses}");
        }
    }

    #[test]
    fn interleaved_streams_go_on() {
        for streams in [16, 64] {
            let mut reader = Reader::default();
            let all = move |at| (1..=streams).map(move |stream| stream * 10_000 + at);
            reader.read((0..200).flat_map(all));
            // 1, 4, 8 and perhaps 16 pages; the others are ahead.
            assert!(reader.misses.len() as u64 <= streams * 4, "{:?}", reader.misses);
        }
    }

    #[test]
    fn streams_that_were_begun_one_by_one_are_remembered() {
        let mut reader = Reader::default();
        let begin = |stream: u64| stream * 1000 + 1..stream * 1000 + 6;
        reader.read((0..400).flat_map(begin));
        reader.misses.clear();
        reader.read((0..400).map(|stream| stream * 1000 + 6));
        assert_eq!(reader.misses, [8; 400]);
    }

    #[test]
    fn a_reader_has_done_with_each_page_once() {
        for step in [1, 4, 16] {
            let pages = (0..=320).flat_map(|page| behind(page, step));
            assert!(pages.eq(0..320 - step), "{step}");
        }
        assert_eq!([512, 4 << 10, 16 << 10, 64 << 10, 2 << 20].map(step_len), [16, 16, 4, 1, 1]);
    }

    #[test]
    fn advice_decides_about_the_first_miss() {
        let first = |advice| {
            let mut streams = ReadStreams::new(advice);
            [7, 8].map(|page| streams.miss(page, 1, LIMITS, ahead, |_| true, |pages| pages).pages)
        };
        assert_eq!(first(Advice::Normal), [1, 4]);
        assert_eq!(first(Advice::Random), [1, 1]);
        assert_eq!(first(Advice::Sequential)[0], 64);
    }

    #[test]
    fn hits_between_do_not_end_a_stream() {
        let mut reader = Reader::default();
        let is_there = |page: u64| page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
        reader.there.extend((1000..9000).filter(|&page| is_there(page)).map(|page| (page, true)));
        reader.read(1000..9000);
        assert!(reader.misses.len() <= 12, "{:?}", reader.misses);
        assert!(reader.wasted() <= 768);
    }

    #[test]
    fn backward_and_strided_streams_are_read_ahead_of() {
        for (stride, from) in (-64..64).flat_map(|stride| [(stride, 0), (stride, 1), (stride, 7)]) {
            if (0..2).contains(&stride) {
                continue;
            }
            let mut reader = Reader::default();
            let pages = (0..2000_i64).map(|nth| (200_000 + from + nth * stride) as u64);
            reader.read(pages);
            let misses = reader.misses.len();
            assert!(misses <= 40, "{stride} from {from}: {misses} misses");
            let wasted = reader.wasted();
            assert!(wasted <= if stride == -1 { 768 } else { 96 }, "{stride}: {wasted} wasted");
        }
    }

    #[test]
    fn a_window_that_was_not_read_ends_the_stream() {
        let mut streams = ReadStreams::default();
        let mut miss = |page, was_read| {
            streams.miss(page, 1, LIMITS, ahead, |_| was_read, |pages| pages).pages
        };
        assert_eq!([miss(100, false), miss(101, false)], [1, 4]);
        assert_eq!(miss(120, false), 1, "the pages up to 105 were for nothing");
        assert_eq!([miss(121, false), miss(125, true)], [4, 8]);
    }

    #[test]
    fn a_backward_stream_ends_at_the_first_page() {
        let ranges = |first, stride, pages| {
            let ahead = Ahead { first, stride, pages };
            ahead.ranges(4, 100).map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(ranges(6, -1, 9), [(3, 7), (0, 3)]);
        assert_eq!(ranges(2, -2, 3), [(2, 3), (0, 1)]);
        assert_eq!(ranges(96, 1, 8), [(96, 100)]);
    }

    #[test]
    fn a_window_keeps_to_its_share() {
        let mut streams = ReadStreams::default();
        let mut miss = |page, wanted, ahead| {
            streams.miss(page, wanted, LIMITS, || ahead, |_| true, |pages| pages).pages
        };
        assert_eq!([miss(0, 1, 32), miss(4, 1, 32), miss(12, 1, 32)], [4, 8, 8]);
        assert_eq!(miss(20, 250, 1024), 256);
        assert_eq!(miss(276, 1, 0), 1);
    }
}
