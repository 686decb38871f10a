//! The ready set.

use std::hint::black_box;

use unherd::{Deadline, ReadyBatch, ReadySet, Source};

use super::Sources;
use crate::LoadError;

pub(super) struct Set {
    set: ReadySet,
    sources: Vec<Source>,
}

impl Set {
    pub(super) fn new(sources: usize, lifo: bool) -> Result<Self, LoadError> {
        let builder = ReadySet::builder(sources);
        let set = if lifo { builder.lifo() } else { builder }.build();
        let sources = (0..sources).map(|_| set.source()).collect::<Result<_, _>>();
        let sources = sources.map_err(|full| LoadError::usage(full.to_string()))?;
        Ok(Self { set, sources })
    }
}

impl Sources for Set {
    type Waiter<'s> = ReadyBatch;

    fn waiter(&self) -> ReadyBatch {
        ReadyBatch::with_capacity(64)
    }

    #[inline]
    fn check(&self, waiter: &mut ReadyBatch) -> usize {
        black_box(&self.set).try_wait(waiter)
    }

    fn wait(&self, waiter: &mut ReadyBatch) -> Option<usize> {
        self.set.wait(waiter, Deadline::NEVER);
        waiter.tokens().first().map(|token| token.place())
    }

    fn wait_all(&self, waiter: &mut ReadyBatch, found: &mut dyn FnMut(usize)) {
        self.set.wait(waiter, Deadline::NEVER);
        waiter.tokens().iter().for_each(|token| found(token.place()));
    }

    #[inline]
    fn post(&self, source: usize) {
        self.sources[source].post();
    }
}
