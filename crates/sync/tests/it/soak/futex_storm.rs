//! `futex-storm`: 512 threads on a few words of a [`FutexTable`], with random waits, wakes and
//! requeues, and deadlines.
//!
//! Each wake says how many it has woken. That is at most what it asked for, and all together are as
//! many as have come back from a wait with success, so none was woken without a wake, and none that
//! was woken slept on. In the end all sleep without a deadline, and one wake of each word ends all
//! of them.

use std::num::NonZeroU32;
use std::time::Duration;

use unherd_sync::{Barrier, Deadline, FutexTable};
use unherd_sys::Errno;
use unherd_sys::primitives::{AtomicU32, Ordering, thread};
use unherd_testkit::Seed;

const THREADS: usize = 512;
/// Of each thread in an epoch.
const OPERATIONS: usize = 400;

/// What threads have seen.
#[derive(Default)]
struct Sums {
    woken: usize,
    came_back: usize,
}

pub(super) fn epoch(mut seed: Seed) -> u64 {
    let (table, storm_is_over) = (FutexTable::new(), Barrier::new(THREADS as u32 + 1));
    let words: Vec<_> = (0..1 << seed.below(8)).map(|_| AtomicU32::new(0)).collect();
    let all = || words.iter().map(|word| table.requeue(word, word, 0, usize::MAX)).sum::<usize>();
    let seeds: Vec<_> = (0..THREADS).map(|_| seed.fork()).collect();
    let mut sums = Sums::default();
    thread::scope(|scope| {
        let work = |mut seed: Seed| {
            let sums = storm(&table, &words, &mut seed);
            storm_is_over.wait();
            let word = &words[seed.below(words.len() as u64) as usize];
            assert_eq!(table.wait(word, word.load(Ordering::Relaxed), Deadline::NEVER), Ok(()));
            sums
        };
        let workers: Vec<_> =
            seeds.into_iter().map(|seed| scope.spawn(move || work(seed))).collect();
        storm_is_over.wait();
        while all() < THREADS {
            thread::yield_now();
        }
        let woken: usize = words.iter().map(|word| table.wake(word, usize::MAX)).sum();
        assert_eq!(woken, THREADS, "all sleep, and each is woken once");
        for worker in workers {
            let its = worker.join().expect("it asserts nothing that fails");
            sums.woken += its.woken;
            sums.came_back += its.came_back;
        }
    });
    assert_eq!(sums.woken, sums.came_back, "as many were woken as came back");
    (THREADS * OPERATIONS) as u64
}

fn storm(table: &FutexTable, words: &[AtomicU32], seed: &mut Seed) -> Sums {
    let mut sums = Sums::default();
    for _ in 0..OPERATIONS {
        let [word, other] = [(); 2].map(|()| &words[seed.below(words.len() as u64) as usize]);
        let n = 1 + seed.below(4) as usize;
        let bits = NonZeroU32::new(1 << seed.below(2)).unwrap_or(NonZeroU32::MIN);
        match seed.below(8) {
            0 | 1 => {
                let deadline = Deadline::after(Duration::from_micros(seed.below(200)));
                let value = word.load(Ordering::Relaxed);
                let end = match n {
                    1 => table.wait_any(&[(word, value), (other, value)], deadline).map(drop),
                    2 => table.wait_bitset(word, value, bits, deadline),
                    _ => table.wait(word, value, deadline),
                };
                assert!([Ok(()), Err(Errno::AGAIN), Err(Errno::TIMEDOUT)].contains(&end));
                sums.came_back += usize::from(end.is_ok());
            }
            2 => drop(word.fetch_add(1, Ordering::Relaxed)),
            3 => assert!(table.requeue(word, other, 0, n) <= n),
            4 => {
                // What it wakes is told apart from what it moves by moving none.
                let woken = table.cmp_requeue(word, word.load(Ordering::Relaxed), other, n, 0);
                sums.woken += woken.unwrap_or(0);
                assert!(woken.unwrap_or(0) <= n);
            }
            operation => {
                let woken = if operation == 5 {
                    table.wake_bitset(word, n, bits)
                } else {
                    table.wake(word, n)
                };
                sums.woken += woken;
                assert!(woken <= n);
            }
        }
    }
    sums
}
