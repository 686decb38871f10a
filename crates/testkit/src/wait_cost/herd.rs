//! A mutex and a condition variable for each bucket, both on one line, as std has them: a word for
//! the one, and a count of wakes for the other. A wake wakes all of the bucket.

use super::Action::{self, Lock, Read, Write};
use super::{Kind, Layout, Way};

pub(super) struct Herd {
    bucket_of: Vec<usize>,
}

impl Herd {
    pub(super) fn new(bucket_of: &[usize]) -> Self {
        Self { bucket_of: bucket_of.to_vec() }
    }
}

impl Way for Herd {
    fn before(&self, _: Kind, waiter: usize, _: Layout) -> Vec<Action> {
        vec![Lock(self.bucket_of[waiter])]
    }

    fn locked(&mut self, kind: Kind, waiter: usize, layout: Layout, _: &mut u64) -> Vec<Action> {
        match kind {
            Kind::Wake => vec![Write(layout.condition(waiter))],
            // It has the mutex again, looks, and waits for the next wake.
            Kind::Wait | Kind::Look => {
                let bucket = layout.bucket(self.bucket_of[waiter]);
                vec![Read(layout.condition(waiter)), Read(bucket)]
            }
        }
    }

    fn after(&self, kind: Kind, waiter: usize, layout: Layout) -> Vec<Action> {
        match kind {
            Kind::Wake => vec![Write(layout.bucket(self.bucket_of[waiter]))],
            Kind::Wait | Kind::Look => Vec::new(),
        }
    }

    fn needless(&self, waiter: usize) -> Vec<usize> {
        let bucket = self.bucket_of[waiter];
        let waiters = self.bucket_of.iter().enumerate();
        waiters
            .filter(|(other, of)| **of == bucket && *other != waiter)
            .map(|(other, _)| other)
            .collect()
    }
}
