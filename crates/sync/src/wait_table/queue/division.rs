//! Queues divide, and unite: how waiters move when the table changes its size.
//!
//! Lists move whole, by their first node: the order in a list, its last node and all nodes behind
//! the first stay as they are. A tree is taken apart from its root, by a stack that is threaded
//! through the `prev` of first nodes, which is null otherwise (Q2), and each first node is hung
//! anew. So it takes no memory, and as many steps as there are lists, times the depth of the trees.
#![expect(unsafe_code, reason = "an intrusive tree of nodes on their threads' stacks")]

use std::{mem, ptr};

use super::{Queue, WAY_BITS};
use crate::wait_table::waiter::Waiter;
use crate::wait_table::word::class_bit;

/// What a division leaves.
pub(in crate::wait_table) struct Divided<K> {
    pub(in crate::wait_table) stay: Half<K>,
    pub(in crate::wait_table) go: Half<K>,
}

/// A queue, and the classes of those that wait in it: no others.
pub(in crate::wait_table) struct Half<K> {
    pub(in crate::wait_table) queue: Queue<K>,
    pub(in crate::wait_table) classes: u32,
}

impl<K> Queue<K> {
    /// Takes the queue apart into the lists whose hash `goes`, and the others.
    ///
    /// # Safety
    /// The bucket lock is held.
    pub(in crate::wait_table) unsafe fn divide(self, goes: impl Fn(u64) -> bool) -> Divided<K> {
        let half = || Half { queue: Queue::new(), classes: 0 };
        let mut divided = Divided { stay: half(), go: half() };
        let hang = |first: &Waiter<K>| {
            // SAFETY: the lock is held.
            let hash = unsafe { first.hash() };
            let half = if goes(hash) { &mut divided.go } else { &mut divided.stay };
            half.classes |= class_bit(hash);
            // SAFETY: the lock is held, and the list is in no tree.
            unsafe { half.queue.hang(first) };
        };
        // SAFETY: the lock is held.
        unsafe { self.take_down(hang) };
        divided
    }

    /// Takes in all lists of `other`, which has no hash that this one has.
    ///
    /// # Safety
    /// The locks of both buckets are held.
    pub(in crate::wait_table) unsafe fn absorb(&mut self, other: Queue<K>) {
        // SAFETY: the locks are held, and the list is in no tree.
        let hang = |first: &Waiter<K>| unsafe { self.hang(first) };
        // SAFETY: the lock is held.
        unsafe { other.take_down(hang) };
    }

    /// An empty queue in its place.
    pub(in crate::wait_table) fn take(&mut self) -> Queue<K> {
        mem::replace(self, Queue::new())
    }

    /// Hands out the first nodes of all lists, out of any tree by then.
    unsafe fn take_down(self, mut each: impl FnMut(&Waiter<K>)) {
        for root in self.roots {
            let mut stack = root;
            // SAFETY: null or the first of a list, and so alive while the lock is held.
            while let Some(first) = unsafe { stack.as_ref() } {
                // SAFETY: the contract.
                let (prev, children) = unsafe { first.look(|links| (links.prev, links.children)) };
                stack = prev;
                for child in children {
                    // SAFETY: null or in the tree.
                    let Some(node) = (unsafe { child.as_ref() }) else { continue };
                    // SAFETY: the contract.
                    unsafe { node.change(|links| links.prev = stack) };
                    stack = child;
                }
                let alone = [ptr::null(); 1 << WAY_BITS];
                // SAFETY: the contract.
                unsafe {
                    first.change(|links| (links.prev, links.children) = (ptr::null(), alone));
                };
                each(first);
            }
        }
    }

    /// Puts the list of `first`, a leaf, where it belongs.
    unsafe fn hang(&mut self, first: &Waiter<K>) {
        // SAFETY: the contract.
        let hash = unsafe { first.hash() };
        // SAFETY: the contract.
        let place = unsafe { self.find(hash, |_, _| false) }.0;
        // SAFETY: the contract.
        unsafe { self.set(&place, first) };
    }
}
