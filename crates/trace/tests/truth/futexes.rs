//! Futex calls, most of them with nobody there, counted by what each returned.
#![expect(unsafe_code, reason = "the calls are the point, so nothing may stand between")]

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use unherd_sys::primitives::{Arc, thread};
use unherd_sys::primitives::{AtomicU32, Ordering};

use crate::count;

/// The outcomes of the calls at one word.
#[derive(Default)]
struct Outcomes(BTreeMap<&'static str, u64>);

impl Outcomes {
    fn add(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    fn wake(&mut self, woken: i64) {
        self.add("calls");
        self.add(match woken {
            0 => "none",
            1 => "one",
            2.. => "many",
            _ => "failed",
        });
    }

    fn wait(&mut self, result: i64) {
        self.add("calls");
        self.add(match result {
            0 => "slept",
            r if r == -i64::from(libc::EAGAIN) => "refused",
            r if r == -i64::from(libc::ETIMEDOUT) => "timed_out",
            _ => "failed",
        });
    }
}

/// A word, on a cache line of its own so that no two share eight bytes.
#[repr(align(64))]
struct Word(AtomicU32);

impl Word {
    fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn address(&self) -> u64 {
        std::ptr::from_ref(&self.0) as u64
    }

    fn call(&self, op: i32, value: u32, timeout: Option<&libc::timespec>, bits: u32) -> i64 {
        let timeout = timeout.map_or(std::ptr::null(), std::ptr::from_ref);
        let (word, op) = (self.address(), op | libc::FUTEX_PRIVATE_FLAG);
        // SAFETY: the word and the timeout live for the call, and the kernel changes neither.
        let result = unsafe { libc::syscall(libc::SYS_futex, word, op, value, timeout, 0, bits) };
        if result >= 0 {
            return result;
        }
        -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    fn wait(&self, value: u32) -> i64 {
        self.call(libc::FUTEX_WAIT, value, None, 0)
    }

    fn wake(&self, count: u32) -> i64 {
        self.call(libc::FUTEX_WAKE, count, None, 0)
    }

    fn wake_bits(&self, count: u32, bits: u32) -> i64 {
        self.call(libc::FUTEX_WAKE_BITSET, count, None, bits)
    }
}

/// `empty` wakes at a word where nobody ever waits, `met` at one where a thread does, some for
/// several, some that are refused or time out.
pub(crate) fn wakes(empty: usize, met: usize) -> Value {
    let lonely = Word::new();
    let mut at_lonely = Outcomes::default();
    for round in 0..empty {
        let woken = if round % 2 == 0 { lonely.wake(1) } else { lonely.wake_bits(1, 2) };
        at_lonely.wake(woken);
    }
    let (woken_at, waited_at, meeting) = meet(met);
    let mut at_refused = Outcomes::default();
    let refused = Word::new();
    for _ in 0..30 {
        at_refused.wait(refused.wait(1));
    }
    let late = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    for _ in 0..10 {
        at_refused.wait(refused.call(libc::FUTEX_WAIT, 0, Some(&late), 0));
    }
    json!({
        "lonely": { "word": lonely.address(), "wakes": at_lonely.0 },
        "meeting": { "word": meeting.address(), "wakes": woken_at.0, "waits": waited_at.0 },
        "refused": { "word": refused.address(), "waits": at_refused.0 },
    })
}

/// A thread waits, another wakes it, `rounds` times.
fn meet(rounds: usize) -> (Outcomes, Outcomes, Arc<Word>) {
    let word = Arc::new(Word::new());
    let waiter = Arc::clone(&word);
    let waiting = thread::spawn(move || {
        let mut outcomes = Outcomes::default();
        for round in 0..rounds as u32 {
            while waiter.0.load(Ordering::Relaxed) == round {
                outcomes.wait(waiter.wait(round));
            }
        }
        outcomes
    });
    let mut outcomes = Outcomes::default();
    for _ in 0..rounds {
        count::pause(Duration::from_micros(200));
        word.0.fetch_add(1, Ordering::Relaxed);
        outcomes.wake(word.wake(i32::MAX as u32));
    }
    (outcomes, waiting.join().expect("the waiter does not panic"), word)
}
