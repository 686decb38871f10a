//! A roll call: one thread wakes all waiters one by one, as Python's `Condition.notify_all` does.
#![expect(unsafe_code, reason = "the calls are the point, so nothing may stand between")]

use std::time::Duration;

use serde_json::{Value, json};
use unherd_sys::primitives::{Arc, thread};
use unherd_sys::primitives::{AtomicU32, AtomicU64, Ordering};

use crate::count;

/// A waiter's word, on a cache line of its own so that no two share eight bytes.
#[derive(Default)]
#[repr(align(64))]
struct Word(AtomicU32);

impl Word {
    fn call(&self, op: i32, value: u32) {
        let word = std::ptr::from_ref(&self.0);
        // SAFETY: the word lives for the call, and the kernel does not change it.
        unsafe { libc::syscall(libc::SYS_futex, word, op | libc::FUTEX_PRIVATE_FLAG, value, 0) };
    }
}

/// What the waiters share.
struct Roll {
    words: Vec<Word>,
    waiting: AtomicU64,
    tokens: AtomicU64,
    closed: AtomicU32,
}

impl Roll {
    /// Asleep at the waiter's word until its value changes; whether it slept.
    fn wait(&self, index: usize, seen: u32) -> bool {
        let before = count::sleeps();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while self.words[index].0.load(Ordering::Acquire) == seen {
            self.words[index].call(libc::FUTEX_WAIT, seen);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        count::sleeps() > before
    }

    /// Wakes the waiters one by one, each at its word.
    fn call_each(&self, waiters: usize) {
        let word = |index: usize| &self.words[index % self.words.len()];
        // All changes first: a waiter at a shared word must not miss one.
        self.words.iter().for_each(|word| _ = word.0.fetch_add(1, Ordering::Release));
        (0..waiters).for_each(|index| word(index).call(libc::FUTEX_WAKE, 1));
    }
}

/// Hands `rounds` tokens to `waiters` threads, each time calling all, at one word or at one each.
pub(crate) fn tokens(waiters: usize, rounds: usize, one_word: bool) -> Value {
    let words = if one_word { 1 } else { waiters };
    let roll = Arc::new(Roll {
        words: (0..words).map(|_| Word::default()).collect(),
        waiting: AtomicU64::new(0),
        tokens: AtomicU64::new(0),
        closed: AtomicU32::new(0),
    });
    let threads: Vec<_> = (0..waiters)
        .map(|index| {
            let roll = Arc::clone(&roll);
            thread::spawn(move || answer(&roll, index % words))
        })
        .collect();
    for _ in 0..rounds {
        while roll.waiting.load(Ordering::Relaxed) < waiters as u64
            || roll.tokens.load(Ordering::Relaxed) > 0
        {
            count::pause(Duration::from_micros(100));
        }
        // Those that said that they wait have had the time to fall asleep.
        count::pause(Duration::from_micros(300));
        roll.tokens.store(1, Ordering::Release);
        roll.call_each(waiters);
    }
    count::pause(Duration::from_millis(5));
    roll.closed.store(1, Ordering::Release);
    roll.call_each(waiters);
    let needless: u64 = threads.into_iter().map(|t| t.join().expect("no panic")).sum();
    json!({ "needless": needless })
}

/// Takes tokens until closed; counts the times it was woken for none.
fn answer(roll: &Roll, index: usize) -> u64 {
    let mut needless = 0;
    let mut seen = 0;
    loop {
        let slept = roll.wait(index, seen);
        seen = roll.words[index].0.load(Ordering::Acquire);
        if roll.closed.load(Ordering::Acquire) != 0 {
            return needless;
        }
        let take = |tokens: u64| tokens.checked_sub(1);
        let taken = roll.tokens.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        needless += u64::from(taken.is_err() && slept);
    }
}
