//! What operations are told, and what comes of them.

/// What a waiter brings along, for the filter of [`unpark_filter`](crate::unpark_filter).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParkToken(pub usize);

/// What a waiter is given when it is unparked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnparkToken(pub usize);

/// Zero.
pub const DEFAULT_PARK_TOKEN: ParkToken = ParkToken(0);
/// Zero.
pub const DEFAULT_UNPARK_TOKEN: UnparkToken = UnparkToken(0);

/// How a park ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkResult {
    /// Another thread unparked it.
    Unparked(UnparkToken),
    /// `validate` said no.
    Invalid,
    /// The time was over, and nobody had unparked it.
    TimedOut,
}

impl ParkResult {
    /// Whether another thread unparked it.
    #[inline]
    pub const fn is_unparked(self) -> bool {
        matches!(self, Self::Unparked(_))
    }
}

/// Whom an operation found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UnparkResult {
    /// Those that were unparked.
    pub unparked_threads: usize,
    /// Those that wait for the other address now.
    pub requeued_threads: usize,
    /// Whether others still wait for the address.
    pub have_more_threads: bool,
}

/// What a requeue does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueOp {
    /// Nothing.
    Abort,
    /// Unpark the first and move the rest.
    UnparkOneRequeueRest,
    /// Move all.
    RequeueAll,
    /// Unpark the first and leave the rest.
    UnparkOne,
    /// Move the first and leave the rest.
    RequeueOne,
}

/// What a filter does with a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterOp {
    /// Unpark it and go on.
    Unpark,
    /// Leave it and go on.
    Skip,
    /// Leave it and look no further.
    Stop,
}
