//! The wait table's queues: six trees by hash for each bucket, whose roots stand on the line of the
//! lock. A node has two lines; a search reads the first of those that it passes.

use super::Action::{self, Lock, Read, Write};
use super::{Kind, Layout, Way};
use crate::Seed;
use crate::mesi::LineId;

const ROOTS: usize = 6;
const CLASSES: usize = 16;
const CLASS_SHIFT: u32 = 28;
const WAY_BITS: u32 = 2;
const WAYS: usize = 1 << WAY_BITS;

/// A place that holds a pointer into a tree.
#[derive(Clone, Copy)]
enum Slot {
    Root(usize, usize),
    Child(usize, usize),
}

pub(super) struct Tree {
    bucket_of: Vec<usize>,
    hash_of: Vec<u64>,
    roots: Vec<[Option<usize>; ROOTS]>,
    children: Vec<[Option<usize>; WAYS]>,
}

impl Tree {
    pub(super) fn new(bucket_of: &[usize], buckets: usize, seed: &mut Seed) -> Self {
        Self {
            bucket_of: bucket_of.to_vec(),
            hash_of: bucket_of.iter().map(|_| seed.next_u64()).collect(),
            roots: vec![[None; ROOTS]; buckets],
            children: vec![[None; WAYS]; bucket_of.len()],
        }
    }

    fn at(&mut self, slot: Slot) -> &mut Option<usize> {
        match slot {
            Slot::Root(bucket, root) => &mut self.roots[bucket][root],
            Slot::Child(waiter, way) => &mut self.children[waiter][way],
        }
    }

    /// Where `waiter` hangs, or would; and whom the search looks at on the way.
    fn find(&mut self, waiter: usize) -> (Slot, Vec<usize>) {
        let hash = self.hash_of[waiter];
        let class = (hash >> CLASS_SHIFT) as usize % CLASSES;
        let mut slot = Slot::Root(self.bucket_of[waiter], class * ROOTS / CLASSES);
        let (mut path, mut passed) = (hash, Vec::new());
        while let Some(at) = *self.at(slot) {
            passed.push(at);
            if at == waiter {
                break;
            }
            slot = Slot::Child(at, (path >> (u64::BITS - WAY_BITS)) as usize);
            path <<= WAY_BITS;
        }
        (slot, passed)
    }

    fn push(&mut self, waiter: usize, layout: Layout, steps: &mut u64) -> Vec<Action> {
        let (slot, passed) = self.find(waiter);
        // Once for its key, once for its place.
        *steps += 2 * passed.len() as u64;
        let mut actions = vec![Read(layout.condition(waiter))];
        actions.extend(passed.into_iter().map(|other| Read(layout.first(other))));
        actions.push(Write(layout.bucket(self.bucket_of[waiter])));
        actions.extend([Write(layout.first(waiter)), Write(layout.second(waiter))]);
        actions.push(Write(line_of(slot, layout)));
        *self.at(slot) = Some(waiter);
        actions
    }

    /// Takes it out: a leaf from below it stands in for it.
    fn unlink(&mut self, waiter: usize, layout: Layout, steps: &mut u64) -> Vec<Action> {
        let (slot, passed) = self.find(waiter);
        *steps += 2 * passed.len() as u64;
        let mut actions: Vec<_> =
            passed.into_iter().map(|other| Read(layout.first(other))).collect();
        actions.extend([Read(layout.second(waiter)), Write(layout.first(waiter))]);
        let (mut leaf_slot, mut leaf) = (None, waiter);
        while let Some(way) = (0..WAYS).find(|way| self.children[leaf][*way].is_some()) {
            leaf_slot = Some(Slot::Child(leaf, way));
            leaf = self.children[leaf][way].unwrap_or_else(|| unreachable!("it was looked at"));
            actions.push(Read(layout.first(leaf)));
            *steps += 1;
        }
        *self.at(slot) = None;
        if let Some(leaf_slot) = leaf_slot {
            *self.at(leaf_slot) = None;
            self.children[leaf] = self.children[waiter];
            *self.at(slot) = Some(leaf);
            actions.extend([Write(line_of(leaf_slot, layout)), Write(layout.first(leaf))]);
        }
        self.children[waiter] = [None; WAYS];
        actions.extend([Write(line_of(slot, layout)), Write(layout.second(waiter))]);
        actions
    }
}

fn line_of(slot: Slot, layout: Layout) -> LineId {
    match slot {
        Slot::Root(bucket, _) => layout.bucket(bucket),
        Slot::Child(waiter, _) => layout.first(waiter),
    }
}

impl Way for Tree {
    fn before(&self, kind: Kind, waiter: usize, layout: Layout) -> Vec<Action> {
        let bucket = self.bucket_of[waiter];
        // Each looks at the word before it takes the lock.
        let (look, lock) = (Read(layout.bucket(bucket)), Lock(bucket));
        if kind == Kind::Wake {
            return vec![Write(layout.condition(waiter)), look, lock];
        }
        // The token of the wake before, then the node again.
        let [first, second] = [layout.first(waiter), layout.second(waiter)];
        vec![Read(second), Write(first), Write(second), look, lock]
    }

    fn locked(
        &mut self,
        kind: Kind,
        waiter: usize,
        layout: Layout,
        steps: &mut u64,
    ) -> Vec<Action> {
        match kind {
            Kind::Wake => self.unlink(waiter, layout, steps),
            Kind::Wait | Kind::Look => self.push(waiter, layout, steps),
        }
    }
}
