//! Which pages come in which order, and whether there is room for the file.

use std::path::PathBuf;

use crate::files::{PAGE_BYTES, check_space};
use crate::random::{Random, mix_all};
use crate::{Job, LoadError};

/// The file is this many times the memory.
const TIMES_MEMORY: u64 = 5;

/// Leaves of a tree that were split off one after the other lie side by side: at most this many.
const LEAVES_TOGETHER_MAX: usize = 8;
/// Further apart than this (8 MiB) neighbours in the tree do not lie.
const TREE_WINDOW_PAGES: usize = 2048;
const STRIDE_PAGES: u64 = 4;
const STREAMS: u64 = 16;
/// `alternating` reads what fits in one part in this many of the memory, half of it twice.
const ALTERNATING_PART: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    Tree,
    Strided,
    Backward,
    Interleaved,
    Alternating,
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) threads: usize,
    pub(super) pattern: Pattern,
    pub(super) depth: usize,
    /// Of the file.
    pub(super) pages: u64,
    pub(super) memory_bytes: u64,
    pub(super) dir: PathBuf,
}

impl Plan {
    /// The plan for `job`. Looks at the directory and its free space, and writes nothing.
    pub(super) fn of(job: &Job) -> Result<Self, LoadError> {
        let dir = job.dir()?.to_path_buf();
        let memory_bytes = job.memory_bytes()?;
        let pattern = match job.params.text("pattern") {
            "tree" => Pattern::Tree,
            "strided" => Pattern::Strided,
            "backward" => Pattern::Backward,
            "interleaved" => Pattern::Interleaved,
            "alternating" => Pattern::Alternating,
            other => {
                return Err(LoadError::usage(format!(
                    "pattern={other}: give tree, strided, backward, interleaved or alternating"
                )));
            }
        };
        let depth = job.params.at_least_one("depth")?;
        if depth > 1024 {
            return Err(LoadError::usage(format!("depth={depth}: give at most 1024")));
        }
        let file_bytes = job.params.number("file")?;
        let file_bytes = file_bytes.unwrap_or(memory_bytes.saturating_mul(TIMES_MEMORY));
        let pages = file_bytes / PAGE_BYTES;
        let least_pages = STREAMS.max(STRIDE_PAGES) * job.threads as u64;
        if pages < least_pages {
            return Err(LoadError::usage(format!(
                "file={file_bytes}: give at least {} for {} threads",
                least_pages * PAGE_BYTES,
                job.threads
            )));
        }
        check_space(&dir, file_bytes)?;
        let (seed, threads) = (job.seed, job.threads);
        Ok(Self { seed, threads, pattern, depth, pages, memory_bytes, dir })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.pages * PAGE_BYTES
    }

    /// The pages that a thread reads, in its order; all threads have parts of one order.
    pub(super) fn sequence(&self, thread: usize) -> Vec<u64> {
        let (all, thread) = (self.order(), thread as u64);
        let each = all.len() as u64 / self.threads as u64;
        let range = (each * thread) as usize..(each * (thread + 1)) as usize;
        all[range].to_vec()
    }

    /// What a thread reads beforehand, outside of the timing: every second page of its sequence, in
    /// an order in which no readahead brings in the others.
    pub(super) fn cached_before(&self, thread: usize) -> Vec<u64> {
        if self.pattern != Pattern::Alternating {
            return Vec::new();
        }
        let mut pages: Vec<u64> = self.sequence(thread).into_iter().skip(1).step_by(2).collect();
        shuffle(&mut pages, &mut Random::new(mix_all(&[self.seed, thread as u64])));
        pages
    }

    fn order(&self) -> Vec<u64> {
        let pages = self.pages;
        match self.pattern {
            Pattern::Tree => self.tree(),
            Pattern::Strided => (0..pages).step_by(STRIDE_PAGES as usize).collect(),
            Pattern::Backward => (0..pages).rev().collect(),
            Pattern::Interleaved => {
                let each = pages / STREAMS;
                (0..each).flat_map(|at| (0..STREAMS).map(move |s| s * each + at)).collect()
            }
            Pattern::Alternating => {
                let cached = self.memory_bytes / ALTERNATING_PART / PAGE_BYTES;
                (0..pages.min(cached.max(1))).collect()
            }
        }
    }

    /// Short rows of neighbours, shuffled within windows.
    fn tree(&self) -> Vec<u64> {
        let mut random = Random::new(mix_all(&[self.seed, 0x7472_6565]));
        let all: Vec<u64> = (0..self.pages).collect();
        let mut order = Vec::with_capacity(all.len());
        for mut window in all.chunks(TREE_WINDOW_PAGES) {
            let mut rows = Vec::new();
            while !window.is_empty() {
                let len = (1 + random.below(LEAVES_TOGETHER_MAX)).min(window.len());
                let (row, rest) = window.split_at(len);
                rows.push(row);
                window = rest;
            }
            shuffle(&mut rows, &mut random);
            order.extend(rows.into_iter().flatten());
        }
        order
    }
}

/// Puts the items in a random order (Fisher and Yates).
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last + 1));
    }
}
