//! What a sleep and a wake cost, and nothing else.
//!
//! Threads stand in *groups*, groups in *lanes*. In each lane one token goes round: the group that
//! has it is awake, its last thread to come gives it to the next group, which wakes by one system
//! call, and all sleep again until it comes back. So as many threads are awake at a time as an I/O
//! thread would wake together, and nobody spins.
//!
//! | word of a group | meaning |
//! |---|---|
//! | `tokens` | how often the token has come; its threads sleep on it |
//! | `left` | threads of the group that have not come since |

use unherd_sys::Futex;
use unherd_sys::primitives::{AtomicU32, Ordering};

use crate::{Job, LoadError, crew};

/// Threads that are woken together, at most.
const GROUP: usize = 16;

/// Sleeps of all threads together, about.
const SLEEPS: usize = 40_000;

/// µs of CPU time for a thread's sleep and its wake, with as many threads as the job has.
pub(super) fn sleep_wake_us(job: &Job) -> Result<f64, LoadError> {
    // One thread would have nobody to wake it.
    let threads = job.threads.max(2);
    let job = Job { threads, plant: 0.0, ..job.clone() };
    let lanes = lanes(threads);
    let places: Vec<(usize, usize)> = (0..lanes.len())
        .flat_map(|lane| (0..lanes[lane].len()).map(move |group| (lane, group)))
        .flat_map(|(lane, group)| (0..lanes[lane][group].threads).map(move |_| (lane, group)))
        .collect();
    let turns = (SLEEPS / threads).max(1) as u32;
    let work = |thread: usize, ()| {
        let (lane, at) = places[thread];
        let (lane, group) = (&lanes[lane], &lanes[lane][at]);
        for turn in 1..=turns {
            let is_last = group.come(turn);
            let is_end = turn == turns && at + 1 == lane.len();
            if is_last && !is_end {
                lane[(at + 1) % lane.len()].receive();
            }
        }
        Ok(())
    };
    let timed = crew::run(&job, |_| (), work)?;
    Ok(timed.span.process_cpu_s * 1e6 / (f64::from(turns) * threads as f64))
}

/// Two lanes, or one where there are too few threads, each of two groups at least.
fn lanes(threads: usize) -> Vec<Vec<Group>> {
    let of_lane = |threads: usize| {
        let groups = threads.div_ceil(GROUP).max(2);
        (0..groups).map(|at| Group::new((threads + at) / groups, at == 0)).collect()
    };
    if threads < 4 {
        vec![of_lane(threads)]
    } else {
        vec![of_lane(threads / 2), of_lane(threads - threads / 2)]
    }
}

struct Group {
    tokens: Futex,
    left: AtomicU32,
    threads: u32,
}

impl Group {
    fn new(threads: usize, has_token: bool) -> Self {
        let threads = threads as u32;
        Self { tokens: Futex::new(has_token.into()), left: AtomicU32::new(threads), threads }
    }

    fn receive(&self) {
        // ORDER[TOKEN]: Release; pairs with the Acquire in `come`. The group counts from a `left`
        // that its last thread has set again.
        self.tokens.word().fetch_add(1, Ordering::Release);
        self.tokens.wake(self.threads);
    }

    /// Sleeps until the token has come `turn` times; whether this thread is the last of the group
    /// to see that.
    fn come(&self, turn: u32) -> bool {
        loop {
            // ORDER[TOKEN]: Acquire; pairs with the Release in `receive`.
            match self.tokens.word().load(Ordering::Acquire) {
                tokens if tokens >= turn => break,
                tokens => drop(self.tokens.wait(tokens)),
            }
        }
        // ORDER[TOKEN]: AcqRel; pairs with itself in the group's other threads: the last one's
        // `receive` publishes that all of them have come.
        let is_last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.left.store(self.threads, Ordering::Relaxed);
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::randread::RandRead;

    #[test]
    fn every_thread_has_a_place() {
        for threads in [2, 3, 4, 5, 17, 64, 512] {
            let lanes = lanes(threads);
            let sizes: Vec<u32> = lanes.iter().flatten().map(|group| group.threads).collect();
            assert_eq!(sizes.iter().sum::<u32>() as usize, threads);
            assert!(sizes.iter().all(|size| (1..=GROUP as u32).contains(size)), "{sizes:?}");
            assert!(lanes.iter().all(|lane| lane.len() >= 2));
        }
    }

    #[test]
    fn tokens_go_round_to_the_end() {
        for threads in [1, 2, 5, 40] {
            let job = Job::new(&RandRead.describe(), "kernel", threads);
            assert!(sleep_wake_us(&job).unwrap() > 0.0);
        }
    }
}
