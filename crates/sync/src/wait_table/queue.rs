//! The waiters of one bucket: a few trees by hash, and a list of equals at each of their nodes.
//!
//! ```text
//!  roots: [ · · ▪ · · · · ]                       by the upper half of the hash
//!               │
//!             first ⇄ equal ⇄ equal               a list: the same hash, oldest first
//!            ╱     ╲
//!       first       first ⇄ equal                 a tree: smaller hashes left, larger right
//!      ╱     ╲           ╲
//!   first   first       first
//! ```
//!
//! Many keys may share a bucket, and their nodes lie on as many stacks, so walking along all of
//! them to find one costs a cache miss each. A tree finds it in about 2 log₂ n steps instead, and
//! so that it stays level without bookkeeping it is a *treap* (Aragon and Seidel, 1989): a heap by
//! a priority that is a scramble of the hash. Each set of hashes has exactly one such tree, and the
//! hash is seeded, so no order of arrival can bend it.
//!
//! Equal hashes are as good as always equal keys; the few others are told apart by whoever walks
//! along the list.
//!
//! Invariants, under the bucket lock:
//!
//! - **Q1** `left` and `right` mean something in the first node of a list; so does `last`.
//! - **Q2** `prev` is null in the first node of a list and in no other.
//! - **Q3** Every hash is in the tree once; a node's priority is above its children's.
#![expect(unsafe_code, reason = "an intrusive tree of nodes on their threads' stacks")]

use std::ptr;

use super::waiter::{Links, Waiter};

/// What is left of a bucket's cache line beside its word.
const ROOTS: usize = 7;

/// The queue of one bucket. All of it is guarded by the bucket lock; so are the links of the nodes
/// in it, and these are alive (B1 and B4 in [`super::bucket`]): the contract of every unsafe
/// function here.
pub(super) struct Queue<K> {
    roots: [*const Waiter<K>; ROOTS],
}

/// A place that holds a pointer into a tree.
enum Slot<'a, K> {
    Root(usize),
    Left(&'a Waiter<K>),
    Right(&'a Waiter<K>),
}

/// Odd, so that different hashes have different priorities (2⁶⁴ divided by the golden ratio).
const SCRAMBLE: u64 = 0x9e37_79b9_7f4a_7c15;

pub(super) fn priority<K>(node: &Waiter<K>) -> u64 {
    node.hash().wrapping_mul(SCRAMBLE)
}

/// The tree that a hash belongs to. The bucket was chosen by the lower half.
fn root_of(hash: u64) -> usize {
    (((hash >> 32) * ROOTS as u64) >> 32) as usize
}

impl<K> Queue<K> {
    pub(super) const fn new() -> Self {
        Self { roots: [ptr::null(); ROOTS] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.roots.iter().all(|root| root.is_null())
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
        let mut at = self.roots[root_of(hash)];
        // SAFETY: null or in the tree.
        while let Some(node) = unsafe { at.as_ref() } {
            if node.hash() == hash {
                break;
            }
            // SAFETY: the lock is held.
            let links = unsafe { node.links() };
            at = if hash < node.hash() { links.left } else { links.right };
        }
        at
    }

    /// Puts `node` behind all others of its hash.
    ///
    /// # Safety
    /// The bucket lock is held; the node is in no queue.
    pub(super) unsafe fn push(&mut self, node: &Waiter<K>) {
        // SAFETY: the lock is held.
        unsafe { node.change(|links| *links = Links { queued: true, ..Links::NONE }) };
        let hash = node.hash();
        let root = root_of(hash);
        let (mut slot, mut at) = (Slot::Root(root), self.roots[root]);
        // SAFETY: null or in the tree.
        while let Some(above) = unsafe { at.as_ref() } {
            if priority(above) <= priority(node) {
                break;
            }
            slot = if hash < above.hash() { Slot::Left(above) } else { Slot::Right(above) };
            // SAFETY: the lock is held.
            at = unsafe { self.get(&slot) };
        }
        // Equal hashes have equal priorities: if the hash is in the tree, the search ended at it.
        // SAFETY: null or in the tree.
        match unsafe { at.as_ref() } {
            // SAFETY: the lock is held, and it is the first of its list.
            Some(first) if first.hash() == hash => unsafe { Self::append(first, node) },
            _ => {
                // SAFETY: the lock is held.
                unsafe { node.change(|links| links.last = node) };
                // SAFETY: the lock is held.
                unsafe { self.split(at, node) };
                // SAFETY: the lock is held.
                unsafe { self.set(&slot, node) };
            }
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
        // SAFETY: null or in the list.
        let prev = unsafe { links.prev.as_ref() };
        // SAFETY: null or in the list.
        let next = unsafe { links.next.as_ref() };
        match (prev, next) {
            (Some(prev), next) => {
                // SAFETY: the lock is held.
                unsafe { prev.change(|prev| prev.next = links.next) };
                if let Some(next) = next {
                    // SAFETY: the lock is held.
                    unsafe { next.change(|next| next.prev = prev) };
                } else {
                    // SAFETY: the lock is held.
                    let first = unsafe { self.first_of(node.hash()) };
                    // SAFETY: the node's list has a first node, in the tree.
                    let first = unsafe { &*first };
                    // SAFETY: the lock is held.
                    unsafe { first.change(|first| first.last = prev) };
                }
            }
            (None, Some(next)) => {
                // It becomes the first: Q1, Q2.
                let promote = |to: &mut Links<K>| {
                    (to.prev, to.left, to.right, to.last) =
                        (ptr::null(), links.left, links.right, links.last);
                };
                // SAFETY: the lock is held.
                unsafe { next.change(promote) };
                // SAFETY: the lock is held; the node is in the tree.
                let slot = unsafe { self.slot_of(node) };
                // SAFETY: the lock is held.
                unsafe { self.set(&slot, next) };
            }
            (None, None) => {
                // SAFETY: the lock is held; the node is in the tree.
                let slot = unsafe { self.slot_of(node) };
                // SAFETY: the lock is held; these two are the node's subtrees.
                unsafe { self.merge(slot, links.left, links.right) };
            }
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

    /// Divides the tree at `at` by the hash of `node`, and hangs the halves below `node`.
    unsafe fn split(&mut self, mut at: *const Waiter<K>, node: &Waiter<K>) {
        let (mut smaller, mut larger) = (Slot::Left(node), Slot::Right(node));
        // SAFETY: null or in the tree.
        while let Some(below) = unsafe { at.as_ref() } {
            let (place, rest) = if below.hash() < node.hash() {
                (&mut smaller, Slot::Right(below))
            } else {
                (&mut larger, Slot::Left(below))
            };
            // SAFETY: the contract.
            unsafe { self.set(place, below) };
            // SAFETY: the contract.
            at = unsafe { self.get(&rest) };
            *place = rest;
        }
        // SAFETY: the contract.
        unsafe { self.set(&smaller, ptr::null()) };
        // SAFETY: the contract.
        unsafe { self.set(&larger, ptr::null()) };
    }

    /// Joins two trees, all hashes of the first below those of the second, and hangs them at
    /// `slot`.
    unsafe fn merge(
        &mut self,
        mut slot: Slot<'_, K>,
        mut left: *const Waiter<K>,
        mut right: *const Waiter<K>,
    ) {
        loop {
            // SAFETY: null or in the tree.
            let smaller = unsafe { left.as_ref() };
            // SAFETY: null or in the tree.
            let larger = unsafe { right.as_ref() };
            let (Some(smaller), Some(larger)) = (smaller, larger) else { break };
            let (upper, rest, from) = if priority(smaller) > priority(larger) {
                (smaller, Slot::Right(smaller), &mut left)
            } else {
                (larger, Slot::Left(larger), &mut right)
            };
            // SAFETY: the contract.
            unsafe { self.set(&slot, upper) };
            // SAFETY: the contract.
            *from = unsafe { self.get(&rest) };
            slot = rest;
        }
        let rest = if left.is_null() { right } else { left };
        // SAFETY: the contract.
        unsafe { self.set(&slot, rest) };
    }

    /// Where the tree holds `node`, the first of its list.
    unsafe fn slot_of<'a>(&self, node: &'a Waiter<K>) -> Slot<'a, K> {
        let mut slot = Slot::Root(root_of(node.hash()));
        loop {
            // SAFETY: the contract.
            let at = unsafe { self.get(&slot) };
            if ptr::eq(at, node) {
                return slot;
            }
            // SAFETY: the node is in the tree, so the search does not leave it, and nodes on the
            // way are as alive as the node itself while the lock is held.
            let above: &'a Waiter<K> = unsafe { &*at };
            let left = node.hash() < above.hash();
            slot = if left { Slot::Left(above) } else { Slot::Right(above) };
        }
    }

    unsafe fn get(&self, slot: &Slot<'_, K>) -> *const Waiter<K> {
        match slot {
            Slot::Root(root) => self.roots[*root],
            // SAFETY: the contract.
            Slot::Left(node) => unsafe { node.links() }.left,
            // SAFETY: the contract.
            Slot::Right(node) => unsafe { node.links() }.right,
        }
    }

    unsafe fn set(&mut self, slot: &Slot<'_, K>, to: *const Waiter<K>) {
        match slot {
            Slot::Root(root) => self.roots[*root] = to,
            // SAFETY: the contract.
            Slot::Left(node) => unsafe { node.change(|links| links.left = to) },
            // SAFETY: the contract.
            Slot::Right(node) => unsafe { node.change(|links| links.right = to) },
        }
    }
}
