//! Larger scenes under shuttle: many random schedules, sequentially consistent. Logic, not
//! ordering.

use unherd_sys::Deadline;
use unherd_sys::primitives::{Arc, AtomicU64, Ordering, thread};

use super::*;

const SCHEDULES: usize = 2000;

/// Producers and consumers of tokens over two keys in one bucket, with timeouts: each token that
/// was put is taken once, and nobody sleeps for ever (a deadlock fails the run).
#[test]
fn tokens_are_neither_lost_nor_doubled() {
    ::shuttle::check_random(
        || {
            let table = Arc::new(WaitTable::<u64>::builder().buckets(1).seed(1).build());
            let left: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let take = |count: &AtomicU64| {
                let some = |n: u64| n.checked_sub(1);
                count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, some).is_ok()
            };
            let consumers: Vec<_> = (0..6_u64)
                .map(|me| {
                    let (table, left) = (Arc::clone(&table), Arc::clone(&left));
                    thread::spawn(move || {
                        let key = me % 2;
                        let count = &left[key as usize];
                        if me < 4 {
                            table.wait_until(&key, || take(count), Reason::OTHER).unwrap();
                            return;
                        }
                        // Takes nothing, and gives up at once: a wake that finds it is passed on.
                        let past = Deadline::at(unherd_sys::Timestamp::from_ns(0));
                        let none = || count.load(Ordering::SeqCst) == 0;
                        if let Outcome::Woken(_) = table.wait(&key, none, past) {
                            table.wake(&key, 1);
                        }
                    })
                })
                .collect();
            let producers: Vec<_> = (0..2_u64)
                .map(|key| {
                    let (table, left) = (Arc::clone(&table), Arc::clone(&left));
                    thread::spawn(move || {
                        for _ in 0..2 {
                            left[key as usize].fetch_add(1, Ordering::SeqCst);
                            table.wake(&key, 1);
                        }
                    })
                })
                .collect();
            for thread in consumers.into_iter().chain(producers) {
                thread.join().unwrap();
            }
            assert!(left.iter().all(|count| count.load(Ordering::SeqCst) == 0));
        },
        SCHEDULES,
    );
}
