//! The whole cache, simulated: real calls of several threads and tasks, on a simulated device, in
//! an order that one seed decides, as it decides everything else: who makes the transfers, how many
//! frames and pages there are (`plan.rs`).
//!
//! The threads, those of the cache among them, are shuttle's, which lets one run at a time and
//! draws the next wherever two could meet. So a wakeup that is lost is a deadlock, and ends the
//! run. The device fails, is late, overtakes itself, and loses its power; what a crash leaves is
//! read by another cache. Nothing follows from time or addresses: the history of a seed is always
//! the same, and every hundredth is run twice to see that.
//!
//! An outsider writes to one of the files past the cache (`outsider.rs`).
//!
//! What is expected of each page stands in `unherd_testkit::PageHistory`; each carries a stamp, so
//! that no byte is taken on trust. Orderings cannot be seen here: every access is sequentially
//! consistent.
//!
//! A seed that fails is printed with the command that runs it alone.

mod actor;
mod outsider;
mod plan;
mod task_actor;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;

use ::shuttle::scheduler::RandomScheduler;
use ::shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// What CI has the time for.
const SHORT: u64 = 1000;
const LONG: u64 = 10_000;

/// Every so often a seed is run again.
const TWICE_EACH: u64 = 100;

/// Runs one seed; the hash of its history.
fn history_of(seed: u64) -> u64 {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.failure_persistence = FailurePersistence::None;
    // While the power is off, each call in want of a frame writes back in vain 64 times.
    config.max_steps = MaxSteps::FailAfter(20_000_000);
    // That it does not see orderings is said above.
    config.silence_warnings = true;
    let (told, hash) = mpsc::channel();
    let runner = Runner::new(RandomScheduler::new_from_seed(seed, 1), config);
    let run = AssertUnwindSafe(|| {
        runner.run(move || told.send(world::run(seed)).expect("the receiver is there"));
    });
    if let Err(panic) = catch_unwind(run) {
        eprintln!(
            "seed {seed:#x} failed; again: UNHERD_SEED={seed:#x} UNHERD_SEEDS=1 cargo x simulate"
        );
        resume_unwind(panic);
    }
    hash.recv().expect("the run has ended")
}

/// `UNHERD_SEED` is the first seed, if it is set, and `UNHERD_SEEDS` how many there are.
fn simulate(seeds: u64) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        let digits = text.strip_prefix("0x");
        let number = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
        Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a 64-bit number")))
    };
    let first = number("UNHERD_SEED").unwrap_or(0);
    let seeds = number("UNHERD_SEEDS").unwrap_or(seeds);
    let mut all = 0_u64;
    for at in 0..seeds {
        let seed = first.wrapping_add(at);
        let hash = history_of(seed);
        if at % TWICE_EACH == 0 {
            assert_eq!(hash, history_of(seed), "seed {seed:#x} had two histories");
            println!("seed {seed:#x}: history {hash:#018x}, twice");
        }
        all = all.rotate_left(1) ^ hash;
    }
    println!("{seeds} seeds from {first:#x} on: {all:#018x}");
}

#[test]
fn seeds() {
    simulate(SHORT);
}

#[test]
#[ignore = "long: minutes"]
fn many_seeds() {
    simulate(LONG);
}
