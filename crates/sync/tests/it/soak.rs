//! Random operations without end: one after the other against the model, which knows the whole
//! order, and many at once against what must hold of their sums.
//!
//! Both go in *epochs*. In each the number of waiters swings between few and thousands, in a table
//! of 1 to 1,024 buckets. A failure prints the seed that began the run; with it in `UNHERD_SEED`
//! the sequential half repeats it to the letter, the concurrent one with the same operations in
//! other interleavings.

mod concurrent;
mod futex_storm;
mod ready_set;
mod sequential;

use std::hash::{Hash, Hasher};
use std::io::Write;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use unherd_sync::WaitTable;
use unherd_sync::{Deadline, Outcome, Reason, Tag, Timestamp, Verdict, Wait, WaitFuture};
use unherd_sys::primitives::thread;
use unherd_testkit::Seed;

/// A key that shares its hash with another, so that queues are told apart by `Eq` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0 / 2).hash(state);
    }
}

impl Key {
    fn any(seed: &mut Seed, keys: u32) -> Self {
        Self(seed.below(u64::from(keys)) as u32)
    }
}

type Table = WaitTable<Key>;

/// Of 1 to 1,024 buckets, which the seed decides.
fn table(seed: u64) -> Table {
    Table::builder().buckets(1 << Seed::new(seed).below(11)).seed(seed).build()
}

/// A wait in a task that is polled by hand.
type Future<'t> = Pin<Box<WaitFuture<'t, Key, fn() -> bool>>>;

fn future(table: &Table, key: Key, how: Wait, validate: fn() -> bool) -> Future<'_> {
    Box::pin(table.wait_async(&key, validate, how))
}

fn poll(future: &mut Future<'_>, waker: &Waker) -> Poll<Outcome> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

fn how(tag: u64, shared: bool) -> Wait {
    let how = Wait::new(Reason::OTHER).tag(Tag(tag));
    if shared { how.shared() } else { how }
}

fn past() -> Deadline {
    Deadline::at(Timestamp::from_ns(1))
}

/// A filter whose verdicts `salt` decides: about half of the waiters, and up to about the 32nd.
fn verdict(salt: u64, tag: Tag) -> Verdict {
    match Seed::new(salt ^ tag.0).below(64) {
        0 => Verdict::Stop,
        1 => Verdict::WakeAndStop,
        dice if dice % 2 == 0 => Verdict::Wake,
        _ => Verdict::Skip,
    }
}

/// How many a wake asks for: mostly few, sometimes more than it can carry at a time, or all.
fn wake_n(seed: &mut Seed) -> usize {
    match seed.below(16) {
        0 => usize::MAX,
        1 | 2 => seed.below(100) as usize,
        _ => seed.below(4) as usize,
    }
}

/// A number below `1 << bits`, each size as likely as another.
fn of_any_size(seed: &mut Seed, bits: u64) -> u64 {
    let bits = seed.below(bits + 1);
    seed.below(1 << bits)
}

/// After such a time without an epoch that has ended somebody sleeps who was to be woken. The
/// longest takes well below a second.
const STUCK: Duration = Duration::from_secs(60);

/// Runs epochs until `operations` are done: each says how many it did. A run that is stuck is
/// aborted, since nobody could end its threads.
fn run(name: &str, seed: Seed, operations: u64, mut epoch: impl FnMut(Seed) -> u64) {
    let (ended, ends) = mpsc::channel::<()>();
    let origin = seed.origin();
    thread::scope(|scope| {
        scope.spawn(move || {
            loop {
                match ends.recv_timeout(STUCK) {
                    Ok(()) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        // Past the harness, which keeps what an aborted test says.
                        let _ = writeln!(
                            std::io::stderr(),
                            "{name}: no progress for {STUCK:?}, UNHERD_SEED={origin:#x}"
                        );
                        std::process::abort();
                    }
                }
            }
        });
        let (mut seed, mut done, mut epochs) = (seed, 0, 0_u64);
        while done < operations {
            done += epoch(seed.fork());
            epochs += 1;
            ended.send(()).expect("the watchdog lives as long as this");
        }
        drop(ended);
        eprintln!("{name}: {done} operations in {epochs} epochs");
    });
}

/// What CI has the time for.
const SHORT: u64 = 1_000_000;
/// Each half of the hundred millions.
const LONG: u64 = 50_000_000;

#[test]
fn operations_in_sequence_are_those_of_the_model() {
    sequential::run(Seed::of_test(1), SHORT);
}

#[test]
fn concurrent_operations_lose_nobody() {
    concurrent::run(Seed::of_test(1), SHORT);
}

#[test]
#[ignore = "half of the hundred million operations"]
fn long_operations_in_sequence_are_those_of_the_model() {
    sequential::run(Seed::of_test(2), LONG);
}

#[test]
#[ignore = "half of the hundred million operations"]
fn long_concurrent_operations_lose_nobody() {
    concurrent::run(Seed::of_test(2), LONG);
}

#[test]
fn concurrent_posts_are_taken_once() {
    run("ready set", Seed::of_test(1), SHORT, ready_set::epoch);
}

#[test]
#[ignore = "the hundred million posts"]
fn long_concurrent_posts_are_taken_once() {
    run("ready set", Seed::of_test(2), 2 * LONG, ready_set::epoch);
}

#[test]
fn futex_storm_wakes_as_asked() {
    run("futex storm", Seed::of_test(1), SHORT / 10, futex_storm::epoch);
}

#[test]
#[ignore = "the hundred million operations of 512 threads"]
fn long_futex_storm_wakes_as_asked() {
    run("futex storm", Seed::of_test(2), 2 * LONG, futex_storm::epoch);
}
