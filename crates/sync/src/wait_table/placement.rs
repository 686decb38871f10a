//! NUMA: of which node's memory the buckets are.
//!
//! A table that is told nothing takes its pages from all nodes in turn. One that is told the *home
//! node* of its keys consists of a part for each node, side by side in one array, each with its
//! buckets at its beginning and room behind them, and each in memory of its node:
//!
//! ```text
//!  bits of an index:  | part | place in the part |
//!
//!  | part 0: 2^l buckets, room | part 1: 2^l buckets, room | ...
//! ```
//!
//! The part is chosen by the hash as the place in it is: for a key with a home those bits of its
//! hash are replaced, and for all others they are as good as any. So only [`Homes::place`] knows
//! of homes, the resizer knows of parts ([`Layout`]), and a search never leaves the part in which
//! it begins:
//!
//! - **P1** The bits of the part are the highest of an index, beyond those of any level, and the
//!   same in a bucket and its parent. So all of a part's buckets are made out of its first, and
//!   the levels in their words count the bits below.
//! - **P2** The home of a key never changes, or its waiters and wakers would not meet: it is a
//!   function without state.
//! - **P3** Who looks at a bucket or locks it has placed the hash before; but the first look of a
//!   wake is a glance, by a shape of its own, which in a table with parts is none: no word is quiet
//!   by it, and the wake goes on to place the hash. So a table without parts pays nothing.
//!
//! There are as many parts as nodes, rounded up to a power of two; those beyond the nodes begin
//! with the first node again, and serve keys without a home.

use super::word::{Shape, parent};

pub(super) use nodes::{Homes, Nodes, Placement};

/// The machine does not tell its nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodesUnknown;

/// How the places of an array of buckets are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// How many bits of an index are the part.
    part_bits: u32,
    /// How many bits below are the place in it.
    place_bits: u32,
}

impl Layout {
    /// Of one part with 2^`level_max` places.
    pub(super) const fn whole(level_max: u32) -> Self {
        Self { part_bits: 0, place_bits: level_max }
    }

    pub(super) fn has_parts(self) -> bool {
        self.part_bits > 0
    }

    /// How many places there are: at most as many as indices (1024 nodes with one page each).
    pub(super) fn places(self) -> usize {
        1 << (self.part_bits + self.place_bits)
    }

    /// The least level of such a table: that at which each part has a bucket.
    pub(super) fn level_min(self) -> u32 {
        self.part_bits
    }

    /// The level of a part's buckets, in their words, when those of the whole table have `level`.
    pub(super) fn level_in_part(self, level: u32) -> u32 {
        level - self.part_bits
    }

    /// The index of the `nth` of the 2^`level` buckets, part by part.
    pub(super) fn index(self, level: u32, nth: usize) -> usize {
        let level = self.level_in_part(level);
        let (part, place) = (nth >> level, nth & ((1 << level) - 1));
        part << self.place_bits | place
    }

    /// Whether it is the index of a part's first bucket.
    pub(super) fn is_first(self, index: usize) -> bool {
        index.is_multiple_of(1 << self.place_bits)
    }

    /// The shape of a table whose buckets all have `level`.
    pub(super) fn shape(self, level: u32) -> Shape {
        Shape::of(self.level_in_part(level), self.index(level, (1 << level) - 1))
    }

    /// The bucket to ask in place of an absent one.
    pub(super) fn parent(self, index: usize) -> usize {
        let place = index & ((1 << self.place_bits) - 1);
        index - place + parent(place)
    }
}

/// Under the checkers, which have no model of the kernel's memory: no nodes.
#[cfg(any(loom, shuttle))]
mod nodes {
    use std::convert::Infallible;
    use std::marker::PhantomData;

    use super::{Layout, NodesUnknown};

    #[derive(Debug, Clone)]
    pub(in super::super) struct Placement<K>(PhantomData<fn(K)>);
    pub(in super::super) type Nodes = Infallible;
    pub(in super::super) struct Homes<K>(Infallible, PhantomData<fn(K)>);

    impl<K> Placement<K> {
        pub(in super::super) const NOTHING_TOLD: Self = Self(PhantomData);

        pub(in super::super) fn nodes(&self) -> Result<Option<Nodes>, NodesUnknown> {
            Ok(None)
        }

        pub(in super::super) fn homes(&self, _: Option<&Nodes>, _: Layout) -> Option<Homes<K>> {
            None
        }
    }

    impl<K> Homes<K> {
        pub(in super::super) fn place(&self, _: u64, _: &K) -> u64 {
            match self.0 {}
        }

        pub(in super::super) fn bytes(&self) -> usize {
            match self.0 {}
        }
    }
}

/// What asks the kernel.
#[cfg(not(any(loom, shuttle)))]
mod nodes {
    use std::fmt;
    use std::sync::OnceLock;

    use unherd_sys::{NodeId, Reserve, Topology};

    use super::super::word::{BUCKET_BYTES, hash_of_index};
    use super::{Layout, NodesUnknown};

    /// A page of buckets: the largest that Linux has, 64 KiB.
    const PAGE_BITS_MAX: u32 = ((64 << 10) / BUCKET_BYTES).ilog2();
    /// The smallest page: what fits in it has nothing to spread.
    pub(super) const PAGE_BYTES_MIN: usize = 4 << 10;

    /// This machine's nodes: read from `/sys` once, since a table is built faster than that.
    fn nodes_of_this_machine() -> Result<&'static [NodeId], NodesUnknown> {
        static NODES: OnceLock<Result<Box<[NodeId]>, NodesUnknown>> = OnceLock::new();
        let read = || Topology::of_this_machine().map(|machine| machine.nodes().into());
        NODES
            .get_or_init(|| read().map_err(|_| NodesUnknown))
            .as_deref()
            .map_err(|unknown| *unknown)
    }

    impl Layout {
        /// Of parts for so many nodes, with 2^`level_max` places together, or more: each consists
        /// of whole pages.
        pub(in super::super) fn parts(nodes: usize, level_max: u32) -> Self {
            let part_bits = nodes.next_power_of_two().ilog2();
            Self { part_bits, place_bits: level_max.saturating_sub(part_bits).max(PAGE_BITS_MAX) }
        }
    }

    /// What a builder was told.
    pub(in super::super) struct Placement<K> {
        /// `None`: this machine's.
        pub(in super::super) topology: Option<Topology>,
        pub(in super::super) home: Option<fn(&K) -> Option<NodeId>>,
    }

    impl<K> Placement<K> {
        pub(in super::super) const NOTHING_TOLD: Self = Self { topology: None, home: None };

        /// The homes of keys, in a table with that layout.
        pub(in super::super) fn homes(
            &self,
            nodes: Option<&Nodes>,
            layout: Layout,
        ) -> Option<Homes<K>> {
            Homes::new(self.home?, nodes?, layout)
        }

        /// The nodes, if there are several.
        pub(in super::super) fn nodes(&self) -> Result<Option<Nodes>, NodesUnknown> {
            let nodes = match &self.topology {
                Some(topology) => topology.nodes(),
                None => nodes_of_this_machine()?,
            };
            let apart = self.home.is_some();
            Ok((nodes.len() > 1).then(|| Nodes { nodes: nodes.into(), apart }))
        }
    }

    impl<K> Clone for Placement<K> {
        fn clone(&self) -> Self {
            Self { topology: self.topology.clone(), home: self.home }
        }
    }

    impl<K> fmt::Debug for Placement<K> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Placement")
                .field("topology", &self.topology)
                .field("home", &self.home.is_some())
                .finish()
        }
    }

    /// Several nodes, and how to use their memory.
    #[derive(Debug)]
    pub(in super::super) struct Nodes {
        nodes: Box<[NodeId]>,
        /// Whether each is to have a part of its own.
        apart: bool,
    }

    impl Nodes {
        /// Whether so many bytes of buckets, which never become more, are to come from several.
        pub(in super::super) fn divide(&self, bytes: usize) -> bool {
            self.apart || bytes > PAGE_BYTES_MIN
        }

        /// The layout of a table that may grow to 2^`level_max` buckets.
        pub(in super::super) fn layout(&self, level_max: u32) -> Layout {
            if self.apart {
                Layout::parts(self.nodes.len(), level_max)
            } else {
                Layout::whole(level_max)
            }
        }

        /// Has the pages of `reserve` come from where they should. Says how many wishes were
        /// refused: the memory comes from anywhere then.
        pub(in super::super) fn place(&self, reserve: &Reserve, layout: Layout) -> u64 {
            if !self.apart {
                return u64::from(reserve.interleave(&self.nodes).is_err());
            }
            let part_bytes = BUCKET_BYTES << layout.place_bits;
            let parts = (0..1 << layout.part_bits).zip(self.nodes.iter().cycle());
            let bind = |(part, node): (usize, &NodeId)| {
                let start = part * part_bytes;
                reserve.bind(start..start + part_bytes, *node)
            };
            parts.map(bind).filter(Result::is_err).count() as u64
        }
    }

    /// The home nodes of keys.
    pub(in super::super) struct Homes<K> {
        home: fn(&K) -> Option<NodeId>,
        /// The bits of a hash that choose the part.
        part: u64,
        /// What they are to be, by the number of the node.
        part_of: Box<[Option<u64>]>,
    }

    impl<K> Homes<K> {
        /// `None` if nobody has a home, or all the same.
        pub(in super::super) fn new(
            home: fn(&K) -> Option<NodeId>,
            nodes: &Nodes,
            layout: Layout,
        ) -> Option<Self> {
            if !layout.has_parts() {
                return None;
            }
            let bits = |part: usize| hash_of_index(part << layout.place_bits);
            let last = nodes.nodes.last()?.number() as usize;
            let mut part_of = vec![None; last + 1].into_boxed_slice();
            for (part, node) in nodes.nodes.iter().enumerate() {
                part_of[node.number() as usize] = Some(bits(part));
            }
            Some(Self { home, part: bits((1 << layout.part_bits) - 1), part_of })
        }

        /// Bytes beside the struct.
        pub(in super::super) fn bytes(&self) -> usize {
            size_of_val(&*self.part_of)
        }

        /// The hash of `key`, where it belongs; a node that is not there is none.
        pub(in super::super) fn place(&self, hash: u64, key: &K) -> u64 {
            let part = |node: NodeId| self.part_of.get(node.number() as usize).copied().flatten();
            match (self.home)(key).and_then(part) {
                Some(bits) => hash & !self.part | bits,
                None => hash,
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
