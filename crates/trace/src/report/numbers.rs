//! Tables of things that are named by their number.

use std::collections::HashMap;
use std::hash::Hash;

/// Numbers things from 1.
pub(super) struct Numbers<T>(HashMap<T, u64>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash> Numbers<T> {
    pub(super) fn of(&mut self, thing: T) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(thing).or_insert(next)
    }

    pub(super) fn in_order(self) -> Vec<T> {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_unstable_by_key(|(_, number)| *number);
        all.into_iter().map(|(thing, _)| thing).collect()
    }
}
