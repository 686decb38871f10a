//! `before`: a page cache whose files each have one lock around their page table, as Linux 2.6.15
//! had with `mapping->tree_lock`.
//!
//! | step | under the file's lock |
//! |---|---|
//! | look a page up | once a page |
//! | announce a page that is to be read | once a page |
//! | give a page up for it | once a page |
//!
//! All else happens outside of it: the read of a run, which is announced first so that others wait
//! for it, and the copy, under the page's own lock. There is readahead, a window for each reader
//! that doubles up to 1 MiB while it reads in order, and pages are given up in the order in which
//! they came. (2.6.15's lock let readers look pages up together; what the report found was
//! its writers: announcing and giving up.)

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};

use unherd_sys::primitives::{Arc, Condvar, Mutex};

use super::plan::Plan;
use super::scene::{self, Reader, SlicedFile};
use crate::files::{AlignedBytes, KernelFile, PAGE_BYTES, Way, capacity_bytes};
use crate::{Job, LoadError, Round, Span};

const PAGE: usize = PAGE_BYTES as usize;

/// The largest readahead, in pages.
const WINDOW_PAGES_MAX: usize = 256;

/// The pieces of memory that one system call takes.
const RUN_PAGES_MAX: usize = 1024;

pub(super) fn run(job: &Job, plan: &Plan) -> Result<Round, LoadError> {
    let capacity_bytes = capacity_bytes(plan.memory_bytes, plan.threads, plan.block_bytes)?;
    // All of it now, as the other caches take theirs.
    let mut memory = vec![PageBytes([0; PAGE]); capacity_bytes / PAGE];
    scene::run(job, plan, |path| {
        let file = KernelFile::open(path, Way::Direct);
        let file = file.map_err(|source| LoadError::Open { path: path.into(), source })?;
        let cached = CachedFile {
            file,
            file_pages: plan.file_bytes() / PAGE_BYTES,
            block_bytes: plan.block_bytes,
            // All reads together take half of the cache at most, and readahead half of that.
            run_pages_max: (memory.len() / 2 / plan.threads).clamp(1, RUN_PAGES_MAX) as u64,
            window_pages_max: (memory.len() / 4 / plan.threads).clamp(1, WINDOW_PAGES_MAX) as u64,
            tree: Mutex::new(Tree { free: memory.iter_mut().collect(), ..Tree::default() }),
        };
        Ok((cached, Span::default()))
    })
}

struct CachedFile<'m> {
    file: KernelFile,
    file_pages: u64,
    block_bytes: usize,
    run_pages_max: u64,
    window_pages_max: u64,
    tree: Mutex<Tree<'m>>,
}

#[derive(Default)]
struct Tree<'m> {
    pages: HashMap<u64, Arc<Page<'m>>>,
    /// The oldest page first.
    order: VecDeque<u64>,
    /// Memory that no page has. What a failed read had is lost, as the round is.
    free: Vec<&'m mut PageBytes>,
}

struct Page<'m> {
    state: Mutex<State<'m>>,
    at_rest: Condvar,
}

enum State<'m> {
    Reading,
    Ready(&'m mut PageBytes),
    Failed,
}

#[derive(Clone)]
#[repr(C, align(4096))]
struct PageBytes([u8; PAGE]);

impl<'m> SlicedFile for CachedFile<'m> {
    type Reader<'a>
        = TreeReader<'a, 'm>
    where
        Self: 'a;

    fn reader(&self) -> Result<TreeReader<'_, 'm>, LoadError> {
        let block = AlignedBytes::new(self.block_bytes)?;
        Ok(TreeReader { cached: self, block, window_pages: 1, expected: u64::MAX })
    }
}

struct TreeReader<'a, 'm> {
    cached: &'a CachedFile<'m>,
    block: AlignedBytes,
    window_pages: u64,
    /// The page after those that this reader has read or announced last.
    expected: u64,
}

impl Reader for TreeReader<'_, '_> {
    fn read(&mut self, offset: u64, see: &mut impl FnMut(&[u8])) -> io::Result<()> {
        let first = offset / PAGE_BYTES;
        let pages = self.block.len() / PAGE;
        let mut at = 0;
        while at < pages {
            let page = first + at as u64;
            let known = self.cached.tree.lock().pages.get(&page).cloned();
            let Some(known) = known else {
                self.window_pages = match self.expected == page {
                    true => (self.window_pages * 2).min(self.cached.window_pages_max),
                    false => 1,
                };
                let wanted = self.window_pages.max((pages - at) as u64);
                self.expected = page + self.cached.fill(page, wanted)?;
                continue;
            };
            let mut state = known.state.lock();
            while matches!(*state, State::Reading) {
                state = known.at_rest.wait(state);
            }
            match &*state {
                State::Ready(bytes) => self.block[at * PAGE..][..PAGE].copy_from_slice(&bytes.0),
                _ => return Err(io::Error::other("another thread's read of the page failed")),
            }
            at += 1;
        }
        see(&self.block);
        Ok(())
    }
}

impl<'m> CachedFile<'m> {
    /// Brings in up to `wanted` pages from `first` on, up to the next one that is known. Gives the
    /// number of pages.
    fn fill(&self, first: u64, wanted: u64) -> io::Result<u64> {
        let wanted = wanted.min(self.file_pages - first).min(self.run_pages_max);
        let mut announced = Vec::with_capacity(wanted as usize);
        let mut memory = Vec::with_capacity(wanted as usize);
        for page in first..first + wanted {
            let Some(bytes) = self.take_memory() else { break };
            memory.push(bytes);
            let Some(mine) = self.announce(page) else { break };
            announced.push(mine);
        }
        if memory.is_empty() {
            return Err(io::Error::other("all pages are in use: the memory is too small"));
        }
        let spare = memory.split_off(announced.len());
        self.tree.lock().free.extend(spare);
        let mut pieces: Vec<_> =
            memory.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
        let read = match pieces.is_empty() {
            true => Ok(()),
            false => self.file.read_vectored_at(&mut pieces, first * PAGE_BYTES),
        };
        for (page, bytes) in announced.iter().zip(memory) {
            *page.state.lock() = if read.is_ok() { State::Ready(bytes) } else { State::Failed };
            page.at_rest.notify_all();
        }
        read.map(|()| announced.len() as u64)
    }

    /// Makes a page known; `None` if it is.
    fn announce(&self, page: u64) -> Option<Arc<Page<'m>>> {
        let mut tree = self.tree.lock();
        if tree.pages.contains_key(&page) {
            return None;
        }
        let state = Mutex::new(State::Reading);
        let mine = Arc::new(Page { state, at_rest: Condvar::new() });
        tree.pages.insert(page, Arc::clone(&mine));
        tree.order.push_back(page);
        Some(mine)
    }

    /// Free memory, or that of the oldest page that nobody uses.
    fn take_memory(&self) -> Option<&'m mut PageBytes> {
        let mut tree = self.tree.lock();
        if let Some(bytes) = tree.free.pop() {
            return Some(bytes);
        }
        for _ in 0..tree.order.len() {
            let oldest = tree.order.pop_front()?;
            // A thread that uses it has a share of it, and gets one under this lock alone.
            if tree.pages.get(&oldest).is_some_and(|page| Arc::strong_count(page) > 1) {
                tree.order.push_back(oldest);
                continue;
            }
            let page = Arc::into_inner(tree.pages.remove(&oldest)?)?;
            if let State::Ready(bytes) = std::mem::replace(&mut *page.state.lock(), State::Failed) {
                return Some(bytes);
            }
        }
        None
    }
}
