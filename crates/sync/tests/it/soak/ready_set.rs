//! A ready set under threads and tasks at once: of each source as many events are taken as were
//! made, by any of the waiters.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use unherd_sync::{Deadline, Interest, ReadyBatch, ReadySet, Source, SourceToken};
use unherd_sys::primitives::{Arc, AtomicU64, Ordering, thread};
use unherd_testkit::Seed;

const POSTERS: usize = 8;
/// Half are threads, half tasks.
const WAITERS: usize = 8;
/// Of each poster in an epoch.
const POSTS: u64 = 20_000;

/// Counts by place. Relaxed: they are read when all threads were joined.
type Counts = Arc<[AtomicU64]>;

fn counts(sources: usize) -> Counts {
    (0..sources).map(|_| AtomicU64::new(0)).collect()
}

/// A waiter's part. Says whether it is to go on: the event of `end` is for each waiter once.
fn count(set: &ReadySet, batch: &ReadyBatch, taken: &Counts, end: SourceToken) -> bool {
    let mut goes_on = true;
    for token in batch {
        if token == end {
            set.rearm(end);
            goes_on = false;
        } else {
            taken[token.place()].fetch_add(1, Ordering::Relaxed);
        }
    }
    goes_on
}

/// Runs one epoch, and says how many posts it was.
pub(super) fn epoch(mut seed: Seed) -> u64 {
    let sources = 1 << seed.below(11);
    let builder = ReadySet::builder(sources + 2);
    let set = if seed.below(4) == 0 { builder.lifo() } else { builder }.build();
    let budget = 1 + seed.below(64) as usize;
    let all: Vec<Source> = (0..sources).map(|_| set.source().expect("there is room")).collect();
    let end = set.source().expect("there is room");
    // In every other epoch a thread leads, and may be the one that a post wakes.
    let (_peer, stream) = UnixStream::pair().expect("there are descriptors");
    let _descriptor = (seed.below(2) == 0).then(|| set.fd(stream, Interest::Readable));
    let (posted, taken) = (counts(sources + 1), counts(sources + 1));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("threads start");
    let tasks: Vec<_> = (0..WAITERS / 2)
        .map(|_| {
            let (set, taken, end) = (set.clone(), Arc::clone(&taken), end.token());
            runtime.spawn(async move {
                let mut batch = ReadyBatch::with_capacity(budget);
                loop {
                    set.wait_async(&mut batch).await;
                    if !count(&set, &batch, &taken, end) {
                        return;
                    }
                }
            })
        })
        .collect();
    thread::scope(|scope| {
        let waiter = |times_out: bool| {
            let (set, taken, end) = (&set, &taken, end.token());
            move || {
                let mut batch = ReadyBatch::with_capacity(budget);
                loop {
                    let brief = Deadline::after(Duration::from_micros(50));
                    set.wait(&mut batch, if times_out { brief } else { Deadline::NEVER });
                    if !count(set, &batch, taken, end) {
                        return;
                    }
                }
            }
        };
        (0..WAITERS / 2).for_each(|number| _ = scope.spawn(waiter(number == 0)));
        let posters: Vec<_> = (0..POSTERS)
            .map(|_| {
                let (mut seed, all, posted, set) = (seed.fork(), &all, &posted, &set);
                scope.spawn(move || {
                    for _ in 0..POSTS {
                        let source = &all[seed.below(sources as u64) as usize];
                        let is_new = match seed.below(8) {
                            0 => set.rearm(source.token()),
                            _ => source.post(),
                        };
                        let place = source.token().place();
                        posted[place].fetch_add(u64::from(is_new), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        posters.into_iter().for_each(|poster| poster.join().expect("no poster panics"));
        end.post();
    });
    tasks.into_iter().for_each(|task| runtime.block_on(task).expect("no task panics"));
    // What the last waiters left behind.
    let mut rest = ReadyBatch::with_capacity(sources + 1);
    set.try_wait(&mut rest);
    count(&set, &rest, &taken, end.token());
    for (place, (posted, taken)) in posted.iter().zip(taken.iter()).enumerate() {
        let (posted, taken) = (posted.load(Ordering::Relaxed), taken.load(Ordering::Relaxed));
        assert_eq!(posted, taken, "place {place}: made and taken");
    }
    POSTERS as u64 * POSTS
}
