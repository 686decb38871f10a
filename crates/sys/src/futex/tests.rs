use std::time::Duration;

use super::*;
use crate::primitives::{Arc, Ordering, thread};

#[test]
fn mismatch_beats_a_past_deadline() {
    let futex = Futex::new(1);
    assert_eq!(futex.wait_until(0, Deadline::after(Duration::ZERO)), FutexWait::Mismatch);
    assert_eq!(futex.wait_until(1, Deadline::after(Duration::ZERO)), FutexWait::TimedOut);
}

#[test]
fn waking_nobody_wakes_nobody() {
    let futex = Futex::new(0);
    assert_eq!(futex.wake(0), 0);
    assert_eq!(futex.wake(u32::MAX), 0);
}

#[test]
fn a_sleeper_is_woken() {
    let futex = Arc::new(Futex::new(0));
    let sleeper = {
        let futex = Arc::clone(&futex);
        thread::spawn(move || {
            while futex.word().load(Ordering::Relaxed) == 0 {
                futex.wait(0);
            }
        })
    };
    futex.word().store(1, Ordering::Relaxed);
    futex.wake(1);
    sleeper.join().unwrap();
}
