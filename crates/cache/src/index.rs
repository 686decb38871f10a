//! Which frame holds a page.
//!
//! Sharded maps under mutexes: the simplest index that is right. Nothing sleeps and no other lock
//! is taken while a shard is locked. A pin is taken under the page's shard lock, so whoever holds
//! that lock and sees a frame without pins knows that it stays so.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use unherd_sys::primitives::{Mutex, MutexGuard};

use crate::page::{FileId, FrameId, PageKey, PageNo, Spell};

/// What the index knows of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A thread has undertaken to bring the page in, and has no frame for it yet.
    Announced(Spell),
    /// The frame that holds the page, or will.
    Frame(FrameId),
}

/// That the caller brings a page in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced {
    pub(crate) key: PageKey,
    pub(crate) spell: Spell,
}

#[derive(Debug)]
struct Shard {
    pages: HashMap<PageKey, Entry, FixedState>,
    /// How many busy spells have begun; wraps around.
    spells: u32,
}

#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<Shard>]>,
    hasher: FixedState,
}

/// The locked shard of one page.
#[derive(Debug)]
pub(crate) struct ShardGuard<'a> {
    shard: MutexGuard<'a, Shard>,
    key: PageKey,
}

impl Index {
    /// An index with room for `frames` pages.
    pub(crate) fn new(frames: usize) -> Self {
        let shards = (frames / 64).clamp(1, 256).next_power_of_two();
        let room = frames / shards + 1;
        let hasher = FixedState::default();
        let pages = || HashMap::with_capacity_and_hasher(room, hasher.clone());
        let shard = || Mutex::new(Shard { pages: pages(), spells: 0 });
        Self { shards: (0..shards).map(|_| shard()).collect(), hasher: hasher.clone() }
    }

    /// Locks the shard of `key`.
    pub(crate) fn lock(&self, key: PageKey) -> ShardGuard<'_> {
        // The maps take their buckets from the low bits, so the shards take high ones.
        let at = (self.hasher.hash_one(key) >> 40) as usize & (self.shards.len() - 1);
        ShardGuard { shard: self.shards[at].lock(), key }
    }

    /// The pages of `file` from page `from` on that are in the index at the moment.
    pub(crate) fn pages_from(&self, file: FileId, from: PageNo) -> Vec<PageNo> {
        let mut pages = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let of_file = shard.pages.keys().filter(|key| key.file == file && key.page >= from);
            pages.extend(of_file.map(|key| key.page));
        }
        pages
    }

    /// About how many bytes it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entry = size_of::<(PageKey, Entry)>() + 1;
        let shard = |shard: &Mutex<Shard>| {
            size_of::<Mutex<Shard>>() + shard.lock().pages.capacity() * entry
        };
        self.shards.iter().map(shard).sum()
    }
}

impl ShardGuard<'_> {
    pub(crate) fn get(&self) -> Option<Entry> {
        self.shard.pages.get(&self.key).copied()
    }

    pub(crate) fn frame(&self) -> Option<FrameId> {
        match self.get() {
            Some(Entry::Frame(id)) => Some(id),
            Some(Entry::Announced(_)) | None => None,
        }
    }

    /// The page becomes busy anew.
    pub(crate) fn begin_spell(&mut self) -> Spell {
        self.shard.spells = self.shard.spells.wrapping_add(1);
        Spell(self.shard.spells)
    }

    /// Announces that the caller brings the page in.
    pub(crate) fn announce(&mut self) -> Announced {
        let spell = self.begin_spell();
        self.set(Entry::Announced(spell));
        Announced { key: self.key, spell }
    }

    pub(crate) fn set(&mut self, entry: Entry) {
        self.shard.pages.insert(self.key, entry);
    }

    pub(crate) fn remove(&mut self) {
        self.shard.pages.remove(&self.key);
    }
}
