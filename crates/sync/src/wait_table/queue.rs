//! The waiters of one bucket: a few trees by hash, and a list of equals at each of their nodes.
//!
//! ```text
//!  roots: [ · · ▪ · · · · ]                       by the class of the hash
//!               │
//!             first ⇄ equal ⇄ equal               a list: the same key, oldest first
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
//! the hash on one cache line: n waiters stand about log₄ n deep, and never deeper than 32, but for
//! lists of equal hashes. The hash is seeded, so nobody can choose keys that make the tree deep.
//!
//! # Lists
//!
//! | list | its nodes are | one for each | left by |
//! |---|---|---|---|
//! | open | queued | key that somebody waits for | a wake, a requeue, a deadline |
//! | closed | chosen | wake that has chosen more than it can carry | that wake, some at a time; a deadline |
//!
//! Closing the list of a key is how a wake chooses any number of waiters in a constant number of
//! steps: from then on they are that wake's alone, and nobody joins them. A closed list stays in
//! the tree, where its nodes find their places.
//!
//! Invariants, under the bucket lock:
//!
//! - **Q1** `children`, `closed`, `end` and `counts` mean something in the first node of a list.
//! - **Q2** `prev` is null in the first node of a list and in no other.
//! - **Q3** A list hangs on the path that [`path_of`] spells for its hash. All of its nodes have
//!   that hash and the list's number, which no other list of that hash has.
//! - **Q4** A key has one open list at most. `counts` of an open list count its nodes, and `end` is
//!   its last; `end` of a closed list is its closer, who does not leave before the list is empty.
#![expect(unsafe_code, reason = "an intrusive tree of nodes on their threads' stacks")]

use std::ptr;

use super::bucket_word::{CLASSES_OF, ROOTS, root_of};
use super::claimed::Closer;
use super::waiter::{End, Links, Waiter};

/// The queue of one bucket. All of it is guarded by the bucket lock; so are the nodes in it, and
/// these are alive (B1 and B4 in [`super::bucket`]): the contract of every unsafe function here.
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
    #[cfg(any(test, loom, shuttle))]
    pub(super) const fn new() -> Self {
        Self { roots: [ptr::null(); ROOTS] }
    }

    /// The classes of the trees that are not empty.
    pub(super) fn classes(&self) -> u32 {
        let roots = self.roots.iter().zip(CLASSES_OF);
        roots.fold(0, |all, (root, classes)| if root.is_null() { all } else { all | classes })
    }

    /// The roots of the trees, null for those that are empty.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn roots(&self) -> [*const Waiter<K>; ROOTS] {
        self.roots
    }

    /// The first of the open list of the key that `is_key` knows, with this `hash`; null if there
    /// is none. If `is_key` panics, nothing was changed.
    ///
    /// # Safety
    /// The bucket lock is held.
    pub(super) unsafe fn open_list(
        &self,
        hash: u64,
        mut is_key: impl FnMut(&K) -> bool,
    ) -> *const Waiter<K> {
        let is_it = |at: &Waiter<K>, links: &Links<K>| {
            // SAFETY: the lock is held.
            !links.closed && unsafe { at.with_key(&mut is_key) }
        };
        // SAFETY: the lock is held.
        unsafe { self.find(hash, is_it) }.1
    }

    /// The first of the open list with this `number`; null if there is none.
    ///
    /// # Safety
    /// The bucket lock is held.
    pub(super) unsafe fn open_list_of(&self, hash: u64, number: u32) -> *const Waiter<K> {
        let is_it = |_: &Waiter<K>, links: &Links<K>| !links.closed && links.list == number;
        // SAFETY: the lock is held.
        unsafe { self.find(hash, is_it) }.1
    }

    /// The first of the list that `closer` closed; null if nobody is left there.
    ///
    /// # Safety
    /// The bucket lock is held.
    pub(super) unsafe fn list_closed_by(&self, hash: u64, closer: &Closer) -> *const Waiter<K> {
        // SAFETY: the lock is held.
        unsafe { self.find(hash, |_, links| links.is_closed_by(closer)) }.1
    }

    /// Puts `node` behind all others of its key. `first` is that of the key's open list; if it is
    /// null, the node begins one.
    ///
    /// # Safety
    /// The bucket lock is held; the node is in no queue.
    pub(super) unsafe fn push(&mut self, first: *const Waiter<K>, node: &Waiter<K>) {
        // SAFETY: null or in the tree.
        let Some(first) = (unsafe { first.as_ref() }) else {
            // SAFETY: the lock is held.
            return unsafe { self.begin(node, End { last: node }, false) };
        };
        // SAFETY: the lock is held.
        let end = unsafe { first.look(|links| links.end) };
        // SAFETY: Q4: the list is open.
        let last = unsafe { end.last };
        // SAFETY: Q4: the last of the list, perhaps the first itself.
        let last = unsafe { &*last };
        // SAFETY: the lock is held.
        unsafe { Self::append(last, node) };
        // SAFETY: the lock is held.
        let shared = unsafe { node.look(|links| links.shared) };
        let count = |links: &mut Links<K>| {
            *links.counts.of(shared) += 1;
            links.end = End { last: node };
        };
        // SAFETY: the lock is held.
        unsafe { first.change(count) };
    }

    /// Closes the list of `first`, for `closer`.
    ///
    /// # Safety
    /// The bucket lock is held; the list is open, and the closer stays until it is empty.
    pub(super) unsafe fn close(first: &Waiter<K>, closer: &Closer) {
        let close = |links: &mut Links<K>| (links.closed, links.end) = (true, End { closer });
        // SAFETY: the lock is held.
        unsafe { first.change(close) };
    }

    /// Moves `node` from an open list to the closed one whose last is `tail`; if that is null, to a
    /// new one of `closer`'s.
    ///
    /// # Safety
    /// The bucket lock is held; the closer stays until its list is empty.
    pub(super) unsafe fn choose(
        &mut self,
        node: &Waiter<K>,
        tail: *const Waiter<K>,
        closer: &Closer,
    ) {
        // SAFETY: the lock is held.
        unsafe { self.unlink(node) };
        // SAFETY: null, or in the tree.
        match unsafe { tail.as_ref() } {
            // SAFETY: the lock is held.
            Some(tail) => unsafe { Self::append(tail, node) },
            // SAFETY: the lock is held.
            None => unsafe { self.begin(node, End { closer }, true) },
        }
    }

    /// Takes out up to `max` nodes from the head of the list of `first`, hands each to `take`, and
    /// says whether some are left. `take` says whether the node counts.
    ///
    /// # Safety
    /// The bucket lock is held; `take` does not panic.
    pub(super) unsafe fn pop(
        &mut self,
        first: &Waiter<K>,
        max: usize,
        mut take: impl FnMut(&Waiter<K>) -> bool,
    ) -> bool {
        // SAFETY: the lock is held.
        let hash = unsafe { first.hash() };
        // SAFETY: the lock is held.
        let place = unsafe { self.find(hash, |at, _| ptr::eq(at, first)) }.0;
        // SAFETY: the lock is held.
        let mut head = unsafe { first.look(|links| *links) };
        let (mut next, mut left): (*const _, _) = (first, max);
        while left > 0 {
            // SAFETY: null or in the list.
            let Some(node) = (unsafe { next.as_ref() }) else { break };
            // SAFETY: the lock is held.
            let shared = unsafe { node.look(|links| links.shared) };
            if !head.closed {
                *head.counts.of(shared) -= 1;
            }
            // SAFETY: the lock is held.
            unsafe { node.change(|links| links.queued = false) };
            // SAFETY: the lock is held.
            next = unsafe { node.look(|links| links.next) };
            left -= usize::from(take(node));
        }
        // SAFETY: null or in the list.
        let Some(next) = (unsafe { next.as_ref() }) else {
            // SAFETY: the lock is held.
            unsafe { self.replace_by_leaf(&place, first) };
            return false;
        };
        if ptr::eq(next, first) {
            return true;
        }
        // It becomes the first: Q1, Q2.
        let promote = |links: &mut Links<K>| {
            (links.prev, links.children) = (ptr::null(), head.children);
            (links.closed, links.end, links.counts) = (head.closed, head.end, head.counts);
        };
        // SAFETY: the lock is held.
        unsafe { next.change(promote) };
        // SAFETY: the lock is held.
        unsafe { self.set(&place, next) };
        true
    }

    /// Takes `node` out.
    ///
    /// # Safety
    /// The bucket lock is held; the node is in this queue.
    pub(super) unsafe fn unlink(&mut self, node: &Waiter<K>) {
        // SAFETY: the lock is held.
        let (prev, next, shared) =
            unsafe { node.look(|links| (links.prev, links.next, links.shared)) };
        // SAFETY: null or in the list.
        let Some(prev) = (unsafe { prev.as_ref() }) else {
            // SAFETY: the lock is held; it is the first.
            unsafe { self.pop(node, 1, |_| true) };
            return;
        };
        // SAFETY: the lock is held.
        unsafe { node.change(|links| links.queued = false) };
        // SAFETY: the lock is held.
        unsafe { prev.change(|prev| prev.next = next) };
        // SAFETY: null or in the list.
        if let Some(next) = unsafe { next.as_ref() } {
            // SAFETY: the lock is held.
            unsafe { next.change(|next| next.prev = prev) };
        }
        // SAFETY: the lock is held.
        let first = unsafe { self.first_of(node) };
        let count = |first: &mut Links<K>| {
            if !first.closed {
                *first.counts.of(shared) -= 1;
                if next.is_null() {
                    first.end = End { last: prev };
                }
            }
        };
        // SAFETY: the lock is held.
        unsafe { first.change(count) };
    }

    /// The first of the list of `node`.
    ///
    /// # Safety
    /// The bucket lock is held; the node is in this queue, or was until just now.
    pub(super) unsafe fn first_of<'a>(&self, node: &Waiter<K>) -> &'a Waiter<K> {
        // SAFETY: the lock is held.
        let list = unsafe { node.look(|links| links.list) };
        // SAFETY: the lock is held.
        let hash = unsafe { node.hash() };
        // SAFETY: the lock is held.
        let first = unsafe { self.find(hash, |_, links| links.list == list) }.1;
        // SAFETY: Q3: it is there.
        unsafe { &*first }
    }

    /// Puts `node` behind `last`, of its list by now.
    unsafe fn append(last: &Waiter<K>, node: &Waiter<K>) {
        // SAFETY: the contract.
        let list = unsafe { last.look(|links| links.list) };
        let join = |links: &mut Links<K>| {
            (links.prev, links.next) = (last, ptr::null());
            (links.queued, links.list) = (true, list);
        };
        // SAFETY: the contract.
        unsafe { node.change(join) };
        // SAFETY: the contract.
        unsafe { last.change(|links| links.next = node) };
    }

    /// Begins a list with `node`.
    unsafe fn begin(&mut self, node: &Waiter<K>, end: End<K>, closed: bool) {
        // SAFETY: the contract.
        let hash = unsafe { node.hash() };
        let mut list = 0;
        // The first number that is free: as many turns as there are lists of this hash.
        let place = loop {
            // SAFETY: the contract.
            let (place, taken) = unsafe { self.find(hash, |_, links| links.list == list) };
            if taken.is_null() {
                break place;
            }
            list += 1;
        };
        let begin = |links: &mut Links<K>| {
            let Links { shared, has_sleeper, .. } = *links;
            *links = Links { queued: true, closed, has_sleeper, list, end, ..Links::new(shared) };
            *links.counts.of(shared) = 1;
        };
        // SAFETY: the contract.
        unsafe { node.change(begin) };
        // SAFETY: the contract.
        unsafe { self.set(&place, node) };
    }

    /// Puts a leaf from below `node`, if there is any, into its place at `slot`.
    unsafe fn replace_by_leaf(&mut self, slot: &Slot<'_, K>, node: &Waiter<K>) {
        let (mut leaf_slot, mut leaf): (_, *const Waiter<K>) = (None, node);
        loop {
            // SAFETY: in the tree, so alive under the lock.
            let at = unsafe { &*leaf };
            // SAFETY: the contract.
            let children = unsafe { at.look(|links| links.children) };
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
        let children = unsafe { node.look(|links| links.children) };
        // SAFETY: in the tree.
        let stand_in = unsafe { &*leaf };
        // SAFETY: the contract.
        unsafe { stand_in.change(|links| links.children = children) };
        // SAFETY: the contract.
        unsafe { self.set(slot, leaf) };
    }

    /// The first node on the path of `hash` that has this hash and that `is_it` picks, and where it
    /// hangs; if there is none, null, and where one more would hang.
    unsafe fn find<'a>(
        &self,
        hash: u64,
        mut is_it: impl FnMut(&Waiter<K>, &Links<K>) -> bool,
    ) -> (Slot<'a, K>, *const Waiter<K>) {
        let (mut slot, mut path) = (Slot::Root(root_of(hash)), path_of(hash));
        let mut at = self.roots[root_of(hash)];
        // SAFETY: null or in the tree, and so alive while the lock is held.
        while let Some(node) = unsafe { at.as_ref() } {
            // SAFETY: the contract.
            if unsafe { node.hash() } == hash && unsafe { node.look(|links| is_it(node, links)) } {
                break;
            }
            // Beyond the last bit always the same way.
            let side = (path >> (64 - WAY_BITS)) as usize;
            // SAFETY: the contract.
            (slot, at) =
                (Slot::Child(node, side), unsafe { node.look(|links| links.children[side]) });
            path <<= WAY_BITS;
        }
        (slot, at)
    }

    unsafe fn set(&mut self, slot: &Slot<'_, K>, to: *const Waiter<K>) {
        match *slot {
            Slot::Root(root) => self.roots[root] = to,
            // SAFETY: the contract.
            Slot::Child(node, side) => unsafe { node.change(|links| links.children[side] = to) },
        }
    }
}
