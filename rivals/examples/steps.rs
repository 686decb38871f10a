//! Waiters of one bucket, of which some are woken: for a count of the instructions that this takes,
//! which anchors the model of `docs/cost.md`.
//!
//! ```sh
//! cargo build --release --example steps
//! count() { valgrind --tool=callgrind --toggle-collect="*$1*" --toggle-collect='*wait_tree*' $2; }
//! count wake_tree 'target/release/examples/steps tree 1000'
//! count wake_chain 'target/release/examples/steps chain 100'
//! ```
//!
//! `tree` is unherd's table, whose waiters are tasks; `chain` is parking_lot_core, whose waiters
//! are threads, with keys that its hash puts into one bucket.
#![expect(unsafe_code, reason = "parking by address is unsafe to call")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, park, unpark_all};
use unherd_sync::{Reason, WaitFuture, WaitTable};

const WAKES: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let way = arguments.next().unwrap_or_default();
    let waiters = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(WAKES);
    match way.as_str() {
        "tree" => tree(waiters),
        "chain" => chain(waiters),
        _ => eprintln!("steps tree|chain WAITERS"),
    }
}

/// The keys that are woken, spread over all.
fn chosen(waiters: usize) -> impl Iterator<Item = usize> {
    (0..WAKES).map(move |wake| (wake * 7_919 + 3) % waiters)
}

type Waiting<'a> = Pin<Box<WaitFuture<'a, usize, fn() -> bool>>>;

fn tree(waiters: usize) {
    let table = WaitTable::builder().buckets(1).seed(18).build();
    let mut waiting: Vec<Waiting<'_>> = (0..waiters).map(|key| future(&table, key)).collect();
    assert!(waiting.iter_mut().all(is_pending));
    for key in chosen(waiters) {
        wake_tree(&table, key);
        waiting[key] = future(&table, key);
        wait_tree(&mut waiting[key]);
    }
}

fn future(table: &WaitTable<usize>, key: usize) -> Waiting<'_> {
    Box::pin(table.wait_async(&key, (|| true) as fn() -> bool, Reason::OTHER))
}

/// Queues it.
#[inline(always)]
fn is_pending(waiting: &mut Waiting<'_>) -> bool {
    waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[inline(never)]
fn wait_tree(waiting: &mut Waiting<'_>) {
    assert!(is_pending(waiting), "nobody has woken it");
}

#[inline(never)]
fn wake_tree(table: &WaitTable<usize>, key: usize) {
    assert_eq!(table.wake(&key, 1), 1);
}

/// The key of a waiter. The hash is the upper bits of a product with an odd constant, here divided
/// by it modulo 2⁶⁴; so all keys have zeros there.
fn key(waiter: usize) -> usize {
    const FACTOR: usize = 0x9e37_79b9_7f4a_7c15;
    // Newton's iteration: each turn doubles the number of bits that are right.
    let inverse = (0..6).fold(FACTOR, |inverse, _| {
        inverse.wrapping_mul(2_usize.wrapping_sub(FACTOR.wrapping_mul(inverse)))
    });
    (waiter + 1).wrapping_mul(inverse)
}

fn chain(waiters: usize) {
    let (queued, is_queued) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for waiter in 0..waiters {
            let queued = queued.clone();
            scope.spawn(move || {
                // SAFETY: no callback panics or parks, and nobody else uses these keys.
                unsafe {
                    let before_sleep = || queued.send(()).unwrap_or(());
                    park(key(waiter), || true, before_sleep, |_, _| (), DEFAULT_PARK_TOKEN, None)
                }
            });
        }
        is_queued.iter().take(waiters).for_each(drop);
        let mut woken: Vec<usize> = chosen(waiters).collect();
        woken.sort_unstable();
        woken.dedup();
        println!("{} wakes", woken.len());
        woken.iter().for_each(|waiter| wake_chain(key(*waiter)));
        for waiter in (0..waiters).filter(|waiter| woken.binary_search(waiter).is_err()) {
            // SAFETY: as above.
            unsafe { unpark_all(key(waiter), DEFAULT_UNPARK_TOKEN) };
        }
    });
}

#[inline(never)]
fn wake_chain(key: usize) {
    // SAFETY: as above.
    assert_eq!(unsafe { unpark_all(key, DEFAULT_UNPARK_TOKEN) }, 1);
}
