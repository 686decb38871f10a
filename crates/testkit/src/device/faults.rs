//! What goes wrong on a simulated device, and when.

use unherd_sys::Alignment;

use crate::Seed;

/// When an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// Never.
    #[default]
    Never,
    /// The n-th of its kind since the plan was set, counted from 1 over all files.
    Operation(u64),
    /// This many times in a thousand.
    PerMille(u32),
}

/// How one kind of operation fails: with `EIO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failure {
    /// When.
    pub when: When,
    /// After the first failure every operation of this kind fails, until another plan is set.
    pub sticky: bool,
}

impl Failure {
    /// The n-th operation fails, and no other.
    pub const fn at(operation: u64) -> Self {
        Self { when: When::Operation(operation), sticky: false }
    }

    /// The n-th operation and all after it fail.
    pub const fn from(operation: u64) -> Self {
        Self { when: When::Operation(operation), sticky: true }
    }

    /// This many operations in a thousand fail, each by itself.
    pub const fn per_mille(per_mille: u32) -> Self {
        Self { when: When::PerMille(per_mille), sticky: false }
    }
}

/// The faults of a [`SimDevice`](crate::SimDevice). The default is a device without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPlan {
    /// Failing reads. The memory of one that failed holds garbage.
    pub read: Failure,
    /// Failing writes. A random subset of the sectors of one that failed has been written.
    pub write: Failure,
    /// Failing syncs. Unsynced writes can still be read, but no later sync makes them durable.
    pub sync: Failure,
    /// This many transfers in a thousand move less than was asked for, but at least one unit of the
    /// alignment.
    pub short_per_mille: u32,
    /// A queued transfer completes after a random number of reaps up to this, sooner if nothing
    /// else is left to complete; a blocking one yields the processor as often.
    pub held_reaps_max: u32,
    /// A transfer or a sync takes as long as it takes one thread (its own, or the one that reaps)
    /// to yield the processor a random number of times up to this, besides.
    pub yields_max: u32,
    /// Completions of one reap come out in random order.
    pub reorder: bool,
    /// Direct I/O is refused, as some file systems do.
    pub refuse_direct: bool,
    /// The power fails when this many syncs have succeeded: everything after is `EIO`, and changes
    /// nothing, until [`crash`](crate::SimDevice::crash) has brought the device back.
    pub power_fails_after_syncs: Option<u64>,
    /// What direct transfers must be aligned to.
    pub alignment: Alignment,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self {
            read: Failure::default(),
            write: Failure::default(),
            sync: Failure::default(),
            short_per_mille: 0,
            held_reaps_max: 0,
            yields_max: 0,
            reorder: false,
            refuse_direct: false,
            power_fails_after_syncs: None,
            alignment: Alignment { memory: 512, offset: 512 },
        }
    }
}

/// A kind of operation with its own count and its own failures.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    operations: u64,
    has_failed: bool,
}

impl Tally {
    /// Counts one operation, and says whether it fails.
    pub(super) fn fails(&mut self, failure: Failure, seed: &mut Seed) -> bool {
        self.operations += 1;
        let fails = (failure.sticky && self.has_failed)
            || match failure.when {
                When::Never => false,
                When::Operation(n) => self.operations == n,
                When::PerMille(per_mille) => seed.chance_per_mille(per_mille),
            };
        self.has_failed |= fails;
        fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(failure: Failure, operations: usize) -> Vec<bool> {
        let (mut tally, mut seed) = (Tally::default(), Seed::new(1));
        (0..operations).map(|_| tally.fails(failure, &mut seed)).collect()
    }

    #[test]
    fn planned_failures_hit_their_operation() {
        assert_eq!(failures(Failure::at(2), 4), [false, true, false, false]);
        assert_eq!(failures(Failure::from(2), 4), [false, true, true, true]);
        assert_eq!(failures(Failure::default(), 2), [false, false]);
    }

    #[test]
    fn random_failures_have_the_asked_rate() {
        let failed = failures(Failure::per_mille(250), 10_000).iter().filter(|&&f| f).count();
        assert!((2200..2800).contains(&failed), "{failed}");
    }
}
