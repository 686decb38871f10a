//! The plainest model of a wait queue.

use std::collections::{BTreeMap, VecDeque};

/// Waiters of each key in the order in which they came: what a wait table must agree with.
#[derive(Debug, Clone)]
pub struct QueueModel<K> {
    queues: BTreeMap<K, VecDeque<Waiter>>,
    /// For which key each waits.
    keys: BTreeMap<u64, K>,
}

#[derive(Debug, Clone)]
struct Waiter {
    id: u64,
    shared: bool,
}

impl<K> Default for QueueModel<K> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), keys: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> QueueModel<K> {
    /// A queue in which nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waiter `id` begins to wait for `key`. An `id` waits once at a time.
    pub fn wait(&mut self, key: K, id: u64) {
        self.push(key, Waiter { id, shared: false });
    }

    /// As [`QueueModel::wait`], of a waiter that every wake of its key wakes.
    pub fn wait_shared(&mut self, key: K, id: u64) {
        self.push(key, Waiter { id, shared: true });
    }

    fn push(&mut self, key: K, waiter: Waiter) {
        let id = waiter.id;
        assert!(self.keys.insert(id, key.clone()).is_none(), "waiter {id} waits already");
        self.queues.entry(key).or_default().push_back(waiter);
    }

    /// Wakes all shared waiters for `key` and up to `n` others, the first come first, and says
    /// which.
    pub fn wake(&mut self, key: &K, n: usize) -> Vec<u64> {
        let mut room = n;
        self.take(key, |waiter| {
            let hit = waiter.shared || room > 0;
            room -= usize::from(hit && !waiter.shared);
            hit
        })
    }

    /// Wakes all waiters for `key`, and says which.
    pub fn wake_all(&mut self, key: &K) -> Vec<u64> {
        self.wake(key, usize::MAX)
    }

    /// Wakes the first waiter for `key` that is not shared, and says which: what becomes of a wake
    /// that is passed on.
    pub fn wake_exclusive(&mut self, key: &K) -> Vec<u64> {
        let mut done = false;
        self.take(key, |waiter| !waiter.shared && !std::mem::replace(&mut done, true))
    }

    /// Wakes all waiters for `key` that `chosen` chooses, and says which.
    pub fn wake_where(&mut self, key: &K, mut chosen: impl FnMut(u64) -> bool) -> Vec<u64> {
        self.take(key, |waiter| chosen(waiter.id))
    }

    /// Wakes as [`QueueModel::wake`] does, then has the next `move_n` waiters for `from`, of both
    /// kinds, wait for `to`, behind all that do already: says who was woken, and how many moved.
    /// From a key to itself nobody moves.
    pub fn requeue(&mut self, from: &K, to: &K, wake_n: usize, move_n: usize) -> (Vec<u64>, usize) {
        let woken = self.wake(from, wake_n);
        let Some(queue) = self.queues.get_mut(from).filter(|_| from != to) else {
            return (woken, 0);
        };
        let n = move_n.min(queue.len());
        let moved: Vec<Waiter> = queue.drain(..n).collect();
        for waiter in moved {
            self.keys.remove(&waiter.id);
            self.push(to.clone(), waiter);
        }
        (woken, n)
    }

    /// Waiter `id` gives up. False if it does not wait (any more).
    pub fn timeout(&mut self, id: u64) -> bool {
        let Some(key) = self.keys.get(&id).cloned() else { return false };
        self.take(&key, |waiter| waiter.id == id);
        true
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.keys.len()
    }

    /// Takes out those of `key` that `leaves` picks, and keeps the order of both.
    fn take(&mut self, key: &K, mut leaves: impl FnMut(&Waiter) -> bool) -> Vec<u64> {
        let mut taken = Vec::new();
        let Some(queue) = self.queues.get_mut(key) else { return taken };
        queue.retain(|waiter| {
            let leaving = leaves(waiter);
            if leaving {
                self.keys.remove(&waiter.id);
                taken.push(waiter.id);
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
    fn wakes_match_key_in_arrival_order() {
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

    #[test]
    fn wake_takes_sharers_and_requeue_both() {
        let mut queue = queue();
        queue.wait_shared('a', 5);
        assert_eq!(queue.wake(&'a', 1), [0, 5]);
        queue.wait_shared('a', 6);
        assert_eq!(queue.requeue(&'a', &'a', 0, 9), (vec![6], 0));
        queue.wait_shared('b', 7);
        assert_eq!(queue.requeue(&'a', &'b', 1, 1), (vec![2], 1));
        assert_eq!(queue.wake_all(&'b'), [1, 4, 7, 3]);
    }
}
