//! A token under a mutex, and waiters at a condition variable; a signal is for all or one.
#![expect(unsafe_code, reason = "std's condition variable is not the C library's")]

use std::cell::UnsafeCell;
use std::time::Duration;

use serde_json::{Value, json};
use unherd_sys::primitives::{Arc, thread};

use crate::count::{self, Between, Chores};

/// What the mutex protects.
#[derive(Default)]
struct State {
    tokens: usize,
    waiting: usize,
    closed: bool,
}

pub(crate) struct Monitor {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    changed: UnsafeCell<libc::pthread_cond_t>,
    state: UnsafeCell<State>,
}

// SAFETY: the C objects are made for several threads, and `state` is touched under the mutex only.
unsafe impl Send for Monitor {}
// SAFETY: as above.
unsafe impl Sync for Monitor {}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            changed: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            state: UnsafeCell::new(State::default()),
        }
    }

    /// Runs `body` under the mutex, with the state and a way to wait for it to change.
    fn with<R>(&self, body: impl FnOnce(*mut State) -> R) -> R {
        // SAFETY: the mutex is initialized and not held by this thread.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        let result = body(self.state.get());
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
        result
    }

    /// Waits for a change; the caller holds the mutex.
    fn wait(&self) {
        // SAFETY: both are initialized, and the caller holds the mutex.
        unsafe { libc::pthread_cond_wait(self.changed.get(), self.mutex.get()) };
    }

    /// Hands over one token; whether somebody waited for it, who has had the last one.
    pub(crate) fn give(&self) -> bool {
        self.with(|state| {
            // SAFETY: under the mutex; the reference ends before it is given up.
            let now = unsafe { &mut *state };
            now.tokens += 1;
            self.tell(false);
            now.waiting > 0 && now.tokens == 1
        })
    }

    /// There will be no more tokens.
    pub(crate) fn close(&self) {
        // SAFETY: under the mutex.
        self.with(|state| unsafe { (*state).closed = true });
        self.tell(true);
    }

    /// Takes each token until closed; how many there were.
    pub(crate) fn take_all(&self) -> u64 {
        take_tokens(self, Between::Nothing).0
    }

    /// Takes tokens until closed, one at a time, and works for each; how many there were.
    pub(crate) fn take_each(&self, mut work: impl FnMut()) -> u64 {
        let mut taken = 0;
        while self.take() {
            work();
            taken += 1;
        }
        taken
    }

    /// Waits for a token and takes it; whether there was one before the end.
    fn take(&self) -> bool {
        self.with(|state| {
            loop {
                // SAFETY: under the mutex, which waiting gives up and takes again; the reference
                // ends before.
                let now = unsafe { &mut *state };
                if now.tokens > 0 {
                    now.tokens -= 1;
                    return true;
                }
                if now.closed {
                    return false;
                }
                self.wait();
            }
        })
    }

    fn tell(&self, all: bool) {
        let tell = if all { libc::pthread_cond_broadcast } else { libc::pthread_cond_signal };
        // SAFETY: the condition variable is initialized.
        unsafe { tell(self.changed.get()) };
    }
}

/// Hands `rounds` tokens to `waiters` threads, telling one of the first `signals` and all of the
/// others; each does something else before it waits.
pub(crate) fn tokens(waiters: usize, rounds: usize, signals: usize, between: Between) -> Value {
    let monitor = Arc::new(Monitor::new());
    let threads: Vec<_> = (0..waiters)
        .map(|_| {
            let monitor = Arc::clone(&monitor);
            thread::spawn(move || take_tokens(&monitor, between))
        })
        .collect();
    for round in 0..rounds {
        // All wait, and have had the time to fall asleep.
        loop {
            let all_wait = monitor.with(|state| {
                // SAFETY: under the mutex; the reference ends before it is given up.
                let now = unsafe { &*state };
                now.waiting == waiters && now.tokens == 0
            });
            count::pause(Duration::from_micros(150));
            if all_wait {
                break;
            }
        }
        // SAFETY: under the mutex.
        monitor.with(|state| unsafe { (*state).tokens += 1 });
        monitor.tell(round >= signals);
    }
    count::pause(Duration::from_millis(5));
    monitor.close();
    let (mut taken, mut needless) = (0, 0);
    for thread in threads {
        let (took, in_vain) = thread.join().expect("a waiter does not panic");
        taken += took;
        needless += in_vain;
    }
    json!({ "taken": taken, "needless": needless })
}

/// Takes tokens until closed; counts them, and the times it was woken for none.
fn take_tokens(monitor: &Monitor, between: Between) -> (u64, u64) {
    let chores = Chores::new(between);
    let (mut taken, mut needless) = (0, 0);
    monitor.with(|state| {
        loop {
            // SAFETY: under the mutex, which waiting gives up and takes again; the reference ends
            // before.
            let now = unsafe { &mut *state };
            if now.tokens > 0 {
                now.tokens -= 1;
                taken += 1;
                continue;
            }
            if now.closed {
                return;
            }
            chores.go();
            now.waiting += 1;
            let before = count::sleeps();
            monitor.wait();
            let slept = count::sleeps() > before;
            // SAFETY: as above.
            let now = unsafe { &mut *state };
            now.waiting -= 1;
            if slept && now.tokens == 0 && !now.closed {
                needless += 1;
            }
        }
    });
    (taken, needless)
}
