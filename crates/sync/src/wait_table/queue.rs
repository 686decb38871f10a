//! The waiters of one bucket: a few trees by hash, and a list of equals at each of their nodes.
//!
//! ```text
//!  roots: [ · · ▪ · · · · ]                       by the middle of the hash
//!               │
//!             first ⇄ equal ⇄ equal               a list: the same hash, oldest first
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
//! the hash on one cache line: n waiters stand about log₄ n deep, and never deeper than 32. The
//! hash is seeded, so nobody can choose keys that make the tree deep.
//!
//! Equal hashes are as good as always equal keys; the few others are told apart by whoever walks
//! along the list.
//!
//! Invariants, under the bucket lock:
//!
//! - **Q1** `children` mean something in the first node of a list; so does `last`.
//! - **Q2** `prev` is null in the first node of a list and in no other.
//! - **Q3** Every hash is in one tree once, on the path that [`path_of`] spells.
#![expect(unsafe_code, reason = "an intrusive tree of nodes on their threads' stacks")]

mod division;

use std::ptr;

use super::waiter::{Links, Waiter};
use super::word::{CLASSES_OF, ROOTS, root_of};

/// The queue of one bucket. All of it is guarded by the bucket lock; so are the links of the nodes
/// in it, and these are alive (B1 and B4 in [`super::bucket`]): the contract of every unsafe
/// function here.
pub(super) struct Queue<K> {
    roots: [*const Waiter<K>; ROOTS],
}

/// The bits of the path that choose a child.
pub(super) const WAY_BITS: u32 = 2;

/// A place that holds a pointer into a tree.
enum Slot<'a, K> {
    Root(usize),
    Child(&'a Waiter<K>, usize),
}

/// The bits that choose the way down, the highest first. 16 steps take bits that chose neither the
/// bucket nor the tree.
pub(super) fn path_of(hash: u64) -> u64 {
    hash
}

impl<K> Queue<K> {
    pub(super) const fn new() -> Self {
        Self { roots: [ptr::null(); ROOTS] }
    }

    /// The classes of the trees that are not empty.
    pub(super) fn classes(&self) -> u32 {
        let roots = self.roots.iter().zip(CLASSES_OF);
        roots.fold(0, |all, (root, classes)| if root.is_null() { all } else { all | classes })
    }

    /// The roots of the trees, null for those that are empty.
    pub(super) fn roots(&self) -> [*const Waiter<K>; ROOTS] {
        self.roots
    }

    /// The oldest node with `hash`, null if there is none.
    ///
    /// # Safety
    /// The bucket lock is held.
    pub(super) unsafe fn first_of(&self, hash: u64) -> *const Waiter<K> {
        // SAFETY: the lock is held.
        unsafe { self.find(hash) }.1
    }

    /// Puts `node` behind all others of its hash.
    ///
    /// # Safety
    /// The bucket lock is held; the node is in no queue.
    pub(super) unsafe fn push(&mut self, node: &Waiter<K>) {
        // SAFETY: the lock is held.
        unsafe { node.change(|links| *links = Links { queued: true, last: node, ..Links::NONE }) };
        // SAFETY: the lock is held.
        let (slot, first) = unsafe { self.find(node.hash()) };
        // SAFETY: null or in the tree.
        match unsafe { first.as_ref() } {
            // SAFETY: the lock is held, and it is the first of its list.
            Some(first) => unsafe { Self::append(first, node) },
            // SAFETY: the lock is held.
            None => unsafe { self.set(&slot, node) },
        }
    }

    /// Takes `node` out.
    ///
    /// # Safety
    /// The bucket lock is held; the node is in this queue.
    pub(super) unsafe fn unlink(&mut self, node: &Waiter<K>) {
        // SAFETY: the lock is held.
        let links = unsafe { node.links() };
        // SAFETY: the lock is held.
        unsafe { node.change(|links| links.queued = false) };
        // SAFETY: the lock is held; the list of the node's hash has a first node, in the tree.
        let (slot, first) = unsafe { self.find(node.hash()) };
        // SAFETY: null or in the list.
        let prev = unsafe { links.prev.as_ref() };
        // SAFETY: null or in the list.
        let next = unsafe { links.next.as_ref() };
        match (prev, next) {
            (Some(prev), next) => {
                // SAFETY: the lock is held.
                unsafe { prev.change(|prev| prev.next = links.next) };
                // SAFETY: in the tree.
                let first = unsafe { &*first };
                match next {
                    // SAFETY: the lock is held.
                    Some(next) => unsafe { next.change(|next| next.prev = prev) },
                    // SAFETY: the lock is held.
                    None => unsafe { first.change(|first| first.last = prev) },
                }
            }
            (None, Some(next)) => {
                // It becomes the first: Q1, Q2.
                let promote = |to: &mut Links<K>| {
                    (to.prev, to.children, to.last) = (ptr::null(), links.children, links.last);
                };
                // SAFETY: the lock is held.
                unsafe { next.change(promote) };
                // SAFETY: the lock is held.
                unsafe { self.set(&slot, next) };
            }
            // SAFETY: the lock is held.
            (None, None) => unsafe { self.replace_by_leaf(&slot, node) },
        }
    }

    /// Appends `node` to the list of `first`.
    unsafe fn append(first: &Waiter<K>, node: &Waiter<K>) {
        // SAFETY: the contract.
        let last = unsafe { first.links() }.last;
        // SAFETY: the contract.
        unsafe { node.change(|links| links.prev = last) };
        // SAFETY: Q1: the last of the list, perhaps the first itself.
        let last = unsafe { &*last };
        // SAFETY: the contract.
        unsafe { last.change(|links| links.next = node) };
        // SAFETY: the contract.
        unsafe { first.change(|links| links.last = node) };
    }

    /// Puts a leaf from below `node`, if there is any, into its place at `slot`.
    unsafe fn replace_by_leaf(&mut self, slot: &Slot<'_, K>, node: &Waiter<K>) {
        let (mut leaf_slot, mut leaf): (_, *const Waiter<K>) = (None, node);
        loop {
            // SAFETY: in the tree, so alive under the lock.
            let at = unsafe { &*leaf };
            // SAFETY: the contract.
            let children = unsafe { at.links() }.children;
            let Some(side) = children.iter().position(|child| !child.is_null()) else { break };
            (leaf_slot, leaf) = (Some(Slot::Child(at, side)), children[side]);
        }
        let Some(leaf_slot) = leaf_slot else {
            // SAFETY: the contract.
            return unsafe { self.set(slot, ptr::null()) };
        };
        // SAFETY: the contract.
        unsafe { self.set(&leaf_slot, ptr::null()) };
        // Read now: the leaf may have been one of them.
        // SAFETY: the contract.
        let children = unsafe { node.links() }.children;
        // SAFETY: in the tree.
        let stand_in = unsafe { &*leaf };
        // SAFETY: the contract.
        unsafe { stand_in.change(|links| links.children = children) };
        // SAFETY: the contract.
        unsafe { self.set(slot, leaf) };
    }

    /// The place of `hash`: where its first node hangs, or would.
    unsafe fn find<'a>(&self, hash: u64) -> (Slot<'a, K>, *const Waiter<K>) {
        let (mut slot, mut path) = (Slot::Root(root_of(hash)), path_of(hash));
        loop {
            let at = match slot {
                Slot::Root(root) => self.roots[root],
                // SAFETY: the contract.
                Slot::Child(node, side) => unsafe { node.links() }.children[side],
            };
            // SAFETY: null or in the tree, and so alive while the lock is held.
            match unsafe { at.as_ref() } {
                Some(node) if node.hash() != hash => {
                    slot = Slot::Child(node, (path >> (64 - WAY_BITS)) as usize);
                    path <<= WAY_BITS;
                }
                _ => return (slot, at),
            }
        }
    }

    unsafe fn set(&mut self, slot: &Slot<'_, K>, to: *const Waiter<K>) {
        match *slot {
            Slot::Root(root) => self.roots[root] = to,
            // SAFETY: the contract.
            Slot::Child(node, side) => unsafe { node.change(|links| links.children[side] = to) },
        }
    }
}
