//! The plainest model of a wait queue.

use std::collections::VecDeque;

/// Waiters in the order in which they came, each with its key: what a wait table must agree with.
#[derive(Debug, Clone)]
pub struct QueueModel<K> {
    waiters: VecDeque<(K, u64)>,
}

impl<K> Default for QueueModel<K> {
    fn default() -> Self {
        Self { waiters: VecDeque::new() }
    }
}

impl<K: PartialEq> QueueModel<K> {
    /// A queue in which nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waiter `id` begins to wait for `key`. An `id` waits once at a time.
    pub fn wait(&mut self, key: K, id: u64) {
        assert!(self.waiters.iter().all(|&(_, other)| other != id), "waiter {id} waits already");
        self.waiters.push_back((key, id));
    }

    /// Wakes up to `n` waiters for `key`, the first come first, and says which.
    pub fn wake(&mut self, key: &K, n: usize) -> Vec<u64> {
        let mut room = n;
        self.take(|other, _| {
            let hit = room > 0 && other == key;
            room -= usize::from(hit);
            hit
        })
    }

    /// Wakes all waiters for `key`, and says which.
    pub fn wake_all(&mut self, key: &K) -> Vec<u64> {
        self.wake(key, usize::MAX)
    }

    /// Wakes all waiters for `key` that `chosen` chooses, and says which.
    pub fn wake_where(&mut self, key: &K, mut chosen: impl FnMut(u64) -> bool) -> Vec<u64> {
        self.take(|other, id| other == key && chosen(id))
    }

    /// Waiter `id` gives up. False if it does not wait (any more).
    pub fn timeout(&mut self, id: u64) -> bool {
        !self.take(|_, other| other == id).is_empty()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Takes out those that `leaves` picks, and keeps the order of both.
    fn take(&mut self, mut leaves: impl FnMut(&K, u64) -> bool) -> Vec<u64> {
        let mut taken = Vec::new();
        self.waiters.retain(|(key, id)| {
            let leaving = leaves(key, *id);
            if leaving {
                taken.push(*id);
            }
            !leaving
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> QueueModel<char> {
        let mut queue = QueueModel::new();
        for (id, key) in "abaab".chars().enumerate() {
            queue.wait(key, id as u64);
        }
        queue
    }

    #[test]
    fn wakes_match_the_key_in_the_order_of_arrival() {
        let mut queue = queue();
        assert_eq!(queue.wake(&'a', 2), [0, 2]);
        assert_eq!(queue.wake(&'c', 2), []);
        assert_eq!(queue.wake(&'b', 0), []);
        assert_eq!(queue.wake_all(&'b'), [1, 4]);
        assert_eq!(queue.waiting(), 1);
    }

    #[test]
    fn who_has_timed_out_is_not_woken() {
        let mut queue = queue();
        assert!(queue.timeout(2));
        assert!(!queue.timeout(2));
        assert_eq!(queue.wake_where(&'a', |id| id > 0), [3]);
        assert_eq!(queue.wake_all(&'a'), [0]);
    }
}
