//! parking_lot_core's queues: a list for each bucket. A waiter's data have one line.

use super::Action::{self, Lock, Read, Write};
use super::{Kind, Layout, Way};

pub(super) struct Chain {
    bucket_of: Vec<usize>,
    queues: Vec<Vec<usize>>,
}

impl Chain {
    pub(super) fn new(bucket_of: &[usize], buckets: usize) -> Self {
        Self { bucket_of: bucket_of.to_vec(), queues: vec![Vec::new(); buckets] }
    }
}

impl Way for Chain {
    fn before(&self, kind: Kind, waiter: usize, layout: Layout) -> Vec<Action> {
        let first = match kind {
            Kind::Wake => Write(layout.condition(waiter)),
            // The token of the wake before.
            Kind::Wait | Kind::Look => Read(layout.first(waiter)),
        };
        vec![first, Lock(self.bucket_of[waiter])]
    }

    fn locked(
        &mut self,
        kind: Kind,
        waiter: usize,
        layout: Layout,
        steps: &mut u64,
    ) -> Vec<Action> {
        let bucket = self.bucket_of[waiter];
        let queue = &mut self.queues[bucket];
        if kind != Kind::Wake {
            let mut actions = vec![Read(layout.condition(waiter)), Write(layout.first(waiter))];
            actions.extend(queue.last().map(|tail| Write(layout.first(*tail))));
            actions.push(Write(layout.bucket(bucket)));
            queue.push(waiter);
            return actions;
        }
        // To the end, to find all of the key.
        let mut actions: Vec<_> = queue.iter().map(|other| Read(layout.first(*other))).collect();
        *steps += queue.len() as u64;
        let place = queue.iter().position(|other| *other == waiter);
        let place = place.unwrap_or_else(|| unreachable!("it waits"));
        let before = place.checked_sub(1).map(|place| layout.first(queue[place]));
        actions.push(Write(before.unwrap_or(layout.bucket(bucket))));
        actions.push(Write(layout.first(waiter)));
        queue.remove(place);
        actions
    }
}
