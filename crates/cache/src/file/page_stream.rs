//! Pages in an order that the caller knows: what comes next is named, not guessed.
//!
//! A stream names the next pages to the cache before it gives the first of them, in batches: those
//! that are missing are sorted, neighbours are read together, and the I/O thread has them all under
//! way. How many are named grows with each page that was not there when it was asked for. Nothing
//! is pinned but what the caller has. The idea is that of PostgreSQL's read streams (T. Munro and
//! others, version 17).

use std::collections::VecDeque;
use std::iter::Fuse;

use crate::Error;
use crate::file::File;
use crate::page::PageNo;
use crate::pages::PageGuard;

/// How many pages are named at first.
const FIRST: usize = 8;

/// The most pages that are named and not given yet.
const MOST: usize = 512;

/// Pages of a file, pinned one after the other, in an order that is known before: an iterator.
/// [`File::stream`] makes it.
#[derive(Debug)]
#[must_use = "an iterator reads nothing until it is asked"]
pub struct PageStream<'a, I> {
    file: &'a File,
    pages: Fuse<I>,
    /// Named, and not given yet.
    named: VecDeque<PageNo>,
    /// How many of those are there or under way, from the first on.
    begun: usize,
    /// How many are to be named.
    distance: usize,
    /// More are begun when so few of those that are begun are left. Half of what could be begun
    /// last, or each page that is given would let a single one be begun.
    low: usize,
}

impl File {
    /// The pages, each pinned when it comes, in an order that is known before: a scan of a tree's
    /// leaves, or the matches of an index. What comes next is read meanwhile, up to 512 pages ahead
    /// (with [`Io::Blocking`](crate::Io::Blocking) only neighbours, together), however it is
    /// scattered. A page may be named twice. What is read and not taken was for nothing.
    ///
    /// Each step blocks and fails as [`File::page`]. After an error the next step gives the next
    /// page.
    ///
    /// ```no_run
    /// # use unherd_cache as unherd;
    /// use unherd::{Cache, OpenOptions, PageNo};
    ///
    /// let cache = Cache::builder().build()?;
    /// let file = cache.open("tree", OpenOptions::new())?;
    /// let leaves = [9, 4, 5, 230, 6].map(PageNo);
    /// for leaf in file.stream(leaves) {
    ///     println!("{}", leaf?[0]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stream<I>(&self, pages: I) -> PageStream<'_, I::IntoIter>
    where
        I: IntoIterator<Item = PageNo>,
    {
        let (pages, named) = (pages.into_iter().fuse(), VecDeque::new());
        PageStream { file: self, pages, named, begun: 0, distance: FIRST, low: 0 }
    }
}

impl<I: Iterator<Item = PageNo>> PageStream<'_, I> {
    /// Names pages up to the distance, and begins to read them.
    fn name(&mut self) {
        let more = self.distance.saturating_sub(self.named.len());
        self.named.extend(self.pages.by_ref().take(more));
        let rest = &self.named.make_contiguous()[self.begun..];
        self.begun += self.file.prefetch(rest);
        self.low = self.begun / 2;
    }
}

impl<'a, I: Iterator<Item = PageNo>> Iterator for PageStream<'a, I> {
    type Item = Result<PageGuard<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.begun <= self.low {
            self.name();
        }
        let page = self.named.pop_front()?;
        self.begun = self.begun.saturating_sub(1);
        let (core, file) = (self.file.core(), &self.file.file);
        if let Some(hit) = core.pages.try_hit(file.key(page)) {
            return Some(Ok(PageGuard::new(&core.pages, hit.pin)));
        }
        self.distance = (self.distance * 2).min(MOST);
        self.low = self.distance / 2;
        let next = (1..).map_while(|step| page.0.checked_add(step));
        let neighbours = self.named.iter().zip(next).take_while(|(a, b)| a.0 == *b);
        Some(core.guard(file, page, 1 + neighbours.count() as u64))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.pages.size_hint();
        let named = self.named.len();
        (least.saturating_add(named), most.and_then(|most| most.checked_add(named)))
    }
}
