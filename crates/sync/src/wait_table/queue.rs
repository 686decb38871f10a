//! The waiters of one bucket: a few trees by hash, and a list of equals at each of their nodes.
//!
//! ```text
//!  roots: [ · · ▪ · · · ]                         by the class of the hash
//!               │
//!             first ⇄ equal ⇄ equal               a ring: the same key and kind, oldest first
//!        0 ╱  1│  ╲ 3
//!      first first first ⇄ equal                  a tree: each step down takes two bits more
//!              │ 2
//!            first
//! ```
//!
//! Many keys may share a bucket, and their nodes lie on as many stacks, so walking along all of
//! them to find one costs a cache miss each. The tree is a *digital search tree* (Coffman and Eve,
//! 1970): a node hangs anywhere on the path that the bits of its hash spell. So a new one is a
//! leaf, and a leaf can stand in for any node above it: each change writes to two or three nodes,
//! whose lines other processors have to fetch again. Four children, since that is what fits beside
//! the hash on one cache line: n waiters stand about log₄ n deep, and never deeper than 32, except
//! for lists of equal hashes. The hash is seeded, so nobody can choose keys that make the tree
//! deep.
//!
//! Invariants, under the bucket lock:
//!
//! - **Q1** A key has at most one list of shared and one of exclusive waiters. Each is a ring in
//!   the order of tickets, which is that of arrival; `first` marks its first node and no other.
//! - **Q2** The first of a list hangs on the path that [`path_of`] spells for its hash; its
//!   `children` mean something, and those of no other node. All of a list have its hash.
//! - **Q3** `queued` is set in the nodes of a queue and in no others.

use super::bucket::BucketGuard;
use super::bucket_word::{CLASSES_OF, root_of};
use super::node::NodeRef;

/// The bits of the path that choose a child.
pub(super) const WAY_BITS: u32 = 2;
/// How many children a node has.
pub(super) const WAYS: usize = 1 << WAY_BITS;

/// A place that holds a pointer into a tree.
enum Slot<'g, K> {
    Root(usize),
    Child(NodeRef<'g, K>, usize),
}

/// The bits that choose the way down, the highest first. 16 steps take bits that chose neither the
/// bucket nor the tree.
pub(super) fn path_of(hash: u64) -> u64 {
    hash
}

/// The waiters of one key, as an iterator: the longest waiting first. A node may be taken out once
/// it was given.
pub(super) struct Lists<'g, K> {
    pub(super) shared: Option<NodeRef<'g, K>>,
    pub(super) exclusive: Option<NodeRef<'g, K>>,
}

impl<'g, K> Lists<'g, K> {
    pub(super) fn is_empty(&self) -> bool {
        self.shared.is_none() && self.exclusive.is_none()
    }

    fn of(&mut self, shared: bool) -> &mut Option<NodeRef<'g, K>> {
        if shared { &mut self.shared } else { &mut self.exclusive }
    }
}

impl<'g, K> Iterator for Lists<'g, K> {
    type Item = NodeRef<'g, K>;

    fn next(&mut self) -> Option<NodeRef<'g, K>> {
        let shared_first = match (self.shared, self.exclusive) {
            (Some(shared), Some(exclusive)) => shared.links().ticket < exclusive.links().ticket,
            (shared, _) => shared.is_some(),
        };
        let head = self.of(shared_first);
        let node = (*head)?;
        let next = node.next();
        *head = (!next.links().first).then_some(next);
        Some(node)
    }
}

impl<K> BucketGuard<'_, K> {
    /// The classes of the trees that are not empty.
    pub(super) fn classes(&self) -> u32 {
        let classes = |(root, classes)| if self.root(root).is_some() { classes } else { 0 };
        CLASSES_OF.into_iter().enumerate().map(classes).fold(0, |all, classes| all | classes)
    }

    /// The lists of the key that `is_key` knows, with this `hash`. If that panics, nothing was
    /// changed.
    pub(super) fn lists(&self, hash: u64, mut is_key: impl FnMut(&K) -> bool) -> Lists<'_, K> {
        let mut lists = Lists { shared: None, exclusive: None };
        self.find(hash, |node| {
            let list = lists.of(node.links().shared);
            if node.hash() == hash && list.is_none() && node.has_key(&mut is_key) {
                *list = Some(node);
            }
            lists.shared.is_some() && lists.exclusive.is_some()
        });
        lists
    }

    /// Puts `node`, which is in no queue, behind all others of its kind of the key that `is_key`
    /// knows. If that panics, nothing was changed.
    pub(super) fn push_node<'g>(&'g self, node: NodeRef<'g, K>, is_key: impl FnMut(&K) -> bool) {
        let first = *self.lists(node.hash(), is_key).of(node.links().shared);
        self.push_behind(first, node);
    }

    /// Puts `node`, which is in no queue, at the end of the list of `first`; if there is none, it
    /// begins one.
    pub(super) fn push_behind<'g>(&'g self, first: Option<NodeRef<'g, K>>, node: NodeRef<'g, K>) {
        let ticket = self.take_ticket();
        node.change(|links| (links.queued, links.first, links.ticket) = (true, false, ticket));
        match first {
            Some(first) => {
                first.prev().join(node);
                node.join(first);
            }
            None => {
                node.join(node);
                node.begin(None);
                let (leaf, _) = self.find(node.hash(), |_| false);
                self.set(&leaf, Some(node));
            }
        }
        self.announce(node.hash());
    }

    /// Takes `node` out of this queue.
    pub(super) fn unlink<'g>(&'g self, node: NodeRef<'g, K>) {
        let (next, is_first) = (node.next(), node.links().first);
        node.change(|links| (links.queued, links.first) = (false, false));
        if is_first {
            let (slot, _) = self.find(node.hash(), |at| at.link() == node.link());
            if next.link() == node.link() {
                self.replace_by_leaf(&slot, node);
                return;
            }
            next.begin(Some(node));
            self.set(&slot, Some(next));
        }
        node.prev().join(next);
    }

    /// Puts a leaf from below `node`, if there is any, into its place at `slot`.
    fn replace_by_leaf<'g>(&'g self, slot: &Slot<'g, K>, node: NodeRef<'g, K>) {
        let (mut leaf_slot, mut leaf) = (None, node);
        while let Some((way, child)) =
            (0..WAYS).find_map(|way| leaf.child(way).map(|child| (way, child)))
        {
            (leaf_slot, leaf) = (Some(Slot::Child(leaf, way)), child);
        }
        let Some(leaf_slot) = leaf_slot else {
            return self.set(slot, None);
        };
        self.set(&leaf_slot, None);
        // Read now: the leaf may have been one of them.
        leaf.begin(Some(node));
        self.set(slot, Some(leaf));
    }

    /// The first node on the path of `hash` that `is_it` picks, and where it hangs; if there is
    /// none, where one more would hang.
    #[inline]
    fn find<'g>(
        &'g self,
        hash: u64,
        mut is_it: impl FnMut(NodeRef<'g, K>) -> bool,
    ) -> (Slot<'g, K>, Option<NodeRef<'g, K>>) {
        let (mut slot, mut path) = (Slot::Root(root_of(hash)), path_of(hash));
        let mut at = self.root(root_of(hash));
        while let Some(node) = at {
            if is_it(node) {
                break;
            }
            // Beyond the last bit always the same way.
            let way = (path >> (64 - WAY_BITS)) as usize;
            (slot, at) = (Slot::Child(node, way), node.child(way));
            path <<= WAY_BITS;
        }
        (slot, at)
    }

    fn set<'g>(&'g self, slot: &Slot<'g, K>, to: Option<NodeRef<'g, K>>) {
        match *slot {
            Slot::Root(root) => self.set_root(root, to),
            Slot::Child(node, way) => node.set_child(way, to),
        }
    }
}
