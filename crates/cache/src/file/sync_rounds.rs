//! Group commit: those who sync a file while a sync of it runs share the next one.
//!
//! Syncs of a file run in *rounds*, one at a time. A round covers all that was written before it
//! began, so one who comes while a round runs needs the next; the first one runs it, for all.
//!
//! | the caller finds | it |
//! |---|---|
//! | no round under way | runs one |
//! | a round under way | waits for its end; then one of the waiters runs the next |
//! | that a round has ended which began after it came | takes that round's outcome |
//! | that such a round has unwound | needs another |

use unherd_sync::{Reason, Tag, Verdict, Wait, WaitKey, WaitTable};
use unherd_sys::primitives::Mutex;

use crate::file::durability::Failure;

#[derive(Debug, Default)]
pub(crate) struct SyncRounds(Mutex<Rounds>);

/// One round is under way if one more has begun than ended.
#[derive(Debug, Default)]
struct Rounds {
    begun: u64,
    ended: u64,
    /// The latest round that succeeded.
    succeeded: u64,
    /// The latest round that failed, and why.
    failure: Option<(u64, Failure)>,
}

impl Rounds {
    fn is_running(&self) -> bool {
        self.begun > self.ended
    }

    /// What those get who need the round `wanted`, once one that began as late has ended.
    fn outcome(&self, wanted: u64) -> Option<Result<(), Failure>> {
        if self.succeeded >= wanted {
            return Some(Ok(()));
        }
        let failure = self.failure.as_ref().filter(|(round, _)| *round >= wanted);
        failure.map(|(_, failure)| Err(failure.clone()))
    }
}

/// Ends the round, also if the one that runs it unwinds.
struct Ending<'a> {
    rounds: &'a SyncRounds,
    waits: &'a WaitTable<WaitKey>,
    outcome: Result<(), Option<Failure>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let ended = {
            let mut rounds = self.rounds.0.lock();
            rounds.ended = rounds.begun;
            match std::mem::replace(&mut self.outcome, Ok(())) {
                Ok(()) => rounds.succeeded = rounds.ended,
                Err(Some(failure)) => rounds.failure = Some((rounds.ended, failure)),
                // It has unwound: who needed it looks for another.
                Err(None) => {}
            }
            rounds.ended
        };
        // All who needed this round, and one who will run the next.
        let mut next_is_woken = false;
        let choose = |Tag(wanted)| {
            if wanted > ended && std::mem::replace(&mut next_is_woken, true) {
                return Verdict::Skip;
            }
            Verdict::Wake
        };
        self.waits.wake_where(&self.rounds.key(), choose, unherd_sync::Token(0));
    }
}

impl SyncRounds {
    fn key(&self) -> WaitKey {
        WaitKey::Address(std::ptr::from_ref(self) as usize)
    }

    /// Returns when a round has ended that began after the call; runs it by `sync`, unless another
    /// caller does. Waits under `reason`.
    pub(crate) fn run(
        &self,
        waits: &WaitTable<WaitKey>,
        reason: Reason,
        sync: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut wanted = self.0.lock().begun + 1;
        loop {
            {
                let mut rounds = self.0.lock();
                if let Some(outcome) = rounds.outcome(wanted) {
                    return outcome;
                }
                // Rounds that have ended without an outcome are no good any more.
                wanted = wanted.max(rounds.ended + 1);
                if !rounds.is_running() {
                    rounds.begun += 1;
                    break;
                }
            }
            let runs = || {
                let rounds = self.0.lock();
                rounds.is_running() && rounds.ended < wanted
            };
            // Without a deadline it cannot time out.
            let _ = waits.wait(&self.key(), runs, Wait::new(reason).tag(Tag(wanted)));
        }
        let mut ending = Ending { rounds: self, waits, outcome: Err(None) };
        let outcome = sync();
        ending.outcome = outcome.clone().map_err(Some);
        outcome
    }
}

#[cfg(test)]
mod tests {
    #[cfg(not(shuttle))]
    use unherd_sync::Ledger;
    use unherd_sys::primitives::{AtomicU64, Ordering, thread};

    use super::*;
    use crate::Error;

    #[cfg(not(shuttle))]
    #[test]
    fn a_round_that_unwinds_is_no_outcome() {
        let waits = WaitTable::<WaitKey>::builder().build();
        let reason = Reason::register("test-a-round-that-unwinds");
        let rounds = SyncRounds::default();
        let (begun, runs) = (AtomicU64::new(0), AtomicU64::new(0));
        let until = |reached: &dyn Fn() -> bool| {
            while !reached() {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            let (waits, rounds, begun, runs) = (&waits, &rounds, &begun, &runs);
            let first = scope.spawn(move || {
                let sync = || {
                    begun.store(1, Ordering::Relaxed);
                    until(&|| Ledger::snapshot().reason(reason).waits == 2);
                    Ok(())
                };
                rounds.run(waits, reason, sync)
            });
            until(&|| begun.load(Ordering::Relaxed) == 1);
            let others = [0, 1].map(|_| {
                let sync = || {
                    let nth = runs.fetch_add(1, Ordering::Relaxed);
                    assert!(nth > 0, "the first round that they need unwinds");
                    Ok(())
                };
                scope.spawn(move || rounds.run(waits, reason, sync))
            });
            assert_eq!(first.join().unwrap(), Ok(()));
            let outcomes = others.map(|other| other.join().is_ok_and(|outcome| outcome.is_ok()));
            assert!(outcomes[0] != outcomes[1], "one has unwound, and one has synced");
        });
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn callers_share_the_next_round() {
        let waits = WaitTable::<WaitKey>::builder().build();
        let rounds = SyncRounds::default();
        let (runs, ready) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            let (runs, ready) = (&runs, &ready);
            let first = move || {
                runs.fetch_add(1, Ordering::Relaxed);
                while ready.load(Ordering::Relaxed) < 32 {
                    thread::yield_now();
                }
                (0..100).for_each(|_| thread::yield_now());
                Err((Error::TooManyFiles, 1))
            };
            let first = scope.spawn({
                let (waits, rounds) = (&waits, &rounds);
                move || rounds.run(waits, Reason::OTHER, first)
            });
            while runs.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            let others: Vec<_> = (0..32)
                .map(|_| {
                    scope.spawn(|| {
                        ready.fetch_add(1, Ordering::Relaxed);
                        rounds.run(&waits, Reason::OTHER, || {
                            runs.fetch_add(1, Ordering::Relaxed);
                            Ok(())
                        })
                    })
                })
                .collect();
            assert!(first.join().unwrap().is_err(), "its own outcome");
            for other in others {
                assert_eq!(other.join().unwrap(), Ok(()), "not that of the round before");
            }
        });
        assert!((2..16).contains(&runs.load(Ordering::Relaxed)), "{runs:?}");
    }
}
