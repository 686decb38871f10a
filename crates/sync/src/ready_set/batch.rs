//! What a check returns: tokens, in a batch that the caller keeps.

use std::fmt;

/// Names one source of a [`ReadySet`](crate::ReadySet) for as long as the set lives: no later
/// source has the same, even in the same place.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceToken(u64);

impl fmt::Debug for SourceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceToken")
            .field("place", &self.place())
            .field("generation", &self.generation())
            .finish()
    }
}

const PLACE_BITS: u32 = 24;

/// As many sources as a set can have.
pub(super) const SOURCES_MAX: usize = 1 << PLACE_BITS;
/// The last generation of a place, which is not used: a place that gets there stays unused.
pub(super) const GENERATION_MAX: u64 = (1 << (64 - PLACE_BITS)) - 1;

impl SourceToken {
    pub(super) fn new(place: usize, generation: u64) -> Self {
        Self(generation << PLACE_BITS | place as u64)
    }

    /// The token that a descriptor was registered with.
    pub(super) fn from_kernel(token: u64) -> Self {
        Self(token)
    }

    #[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "their scenes alone use it"))]
    pub(super) fn to_kernel(self) -> u64 {
        self.0
    }

    /// The place of the source among those of its set, below [`ReadySet::sources`]: an index for
    /// an array of the caller's. A later source may have the same place.
    ///
    /// [`ReadySet::sources`]: crate::ReadySet::sources
    #[inline]
    pub fn place(self) -> usize {
        self.0 as usize % SOURCES_MAX
    }

    /// How many sources had the place before.
    pub fn generation(self) -> u64 {
        self.0 >> PLACE_BITS
    }
}

/// The events that a check has taken: the tokens of their sources, each once.
///
/// Its capacity is the budget of a check: what it cannot hold stays in the set.
///
/// ```
/// # use unherd_sync as unherd;
/// let batch = unherd::ReadyBatch::with_capacity(64);
/// assert!(batch.is_empty());
/// ```
#[derive(Debug)]
pub struct ReadyBatch {
    tokens: Vec<SourceToken>,
    budget: usize,
}

impl ReadyBatch {
    /// One that holds up to `events`, at least one. The one allocation of a waiter.
    pub fn with_capacity(events: usize) -> Self {
        let budget = events.max(1);
        Self { tokens: Vec::with_capacity(budget), budget }
    }

    /// The tokens, in the order in which they were found.
    pub fn tokens(&self) -> &[SourceToken] {
        &self.tokens
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
    }

    pub(super) fn room(&self) -> usize {
        self.budget - self.tokens.len()
    }

    pub(super) fn push(&mut self, token: SourceToken) {
        self.tokens.push(token);
    }
}

/// One that holds up to 64 events.
impl Default for ReadyBatch {
    fn default() -> Self {
        Self::with_capacity(64)
    }
}

impl<'a> IntoIterator for &'a ReadyBatch {
    type Item = SourceToken;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, SourceToken>>;

    fn into_iter(self) -> Self::IntoIter {
        self.tokens.iter().copied()
    }
}
