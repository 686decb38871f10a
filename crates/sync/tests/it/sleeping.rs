//! Threads that sleep in a table, watched from outside through /proc.
#![expect(unsafe_code, reason = "gettid")]

use std::fs;
use std::hash::Hash;
use std::time::Duration;

use unherd_sync::{Deadline, Outcome, Reason, Timestamp, Token, WaitTable};
use unherd_sys::primitives::{Arc, thread};

/// A thread that waits, and the number by which the kernel knows it.
pub(crate) struct Sleeper {
    pub(crate) tid: i32,
    thread: thread::JoinHandle<Outcome>,
}

impl Sleeper {
    /// Starts a thread that waits for `key`, and returns when the kernel says that it sleeps.
    pub(crate) fn start<K>(table: &Arc<WaitTable<K>>, key: K) -> Self
    where
        K: Copy + Eq + Hash + Send + Sync + 'static,
    {
        let table = Arc::clone(table);
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            // SAFETY: it takes nothing and cannot fail.
            tell.send(unsafe { libc::gettid() }).expect("the starter listens");
            table.wait(&key, || true, Reason::OTHER)
        });
        let sleeper = Self { tid: told.recv().expect("the thread tells"), thread };
        while !sleeper.sleeps_on_a_futex() {
            thread::yield_now();
        }
        sleeper
    }

    pub(crate) fn join(self) -> Outcome {
        self.thread.join().expect("no panic")
    }

    fn sleeps_on_a_futex(&self) -> bool {
        // The number of the system call that the thread is in, first in the line.
        let call = fs::read_to_string(format!("/proc/self/task/{}/syscall", self.tid));
        call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_futex)))
    }

    /// How often it went to sleep, by the kernel's count.
    pub(crate) fn voluntary_switches(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/self/task/{}/status", self.tid))
            .expect("the thread lives");
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        let number = line.and_then(|line| line.split_whitespace().last()).expect("a count");
        number.parse().expect("a number")
    }
}

#[test]
fn foreign_waiters_sleep_through_a_thousand_wakes() {
    // One bucket, so that every key collides with every other.
    let table = Arc::new(WaitTable::<u64>::builder().buckets(1).build());
    let foreign: Vec<_> = (1..=16).map(|key| Sleeper::start(&table, key)).collect();
    let before: Vec<_> = foreign.iter().map(Sleeper::voluntary_switches).collect();
    for _ in 0..1000 {
        assert_eq!(table.wake_all(&0), 0);
    }
    for round in 0..20 {
        let own = Sleeper::start(&table, 0);
        assert_eq!(table.wake_with(&0, 2, Token(round)), 1);
        assert_eq!(own.join(), Outcome::Woken(Token(round)));
    }
    let after: Vec<_> = foreign.iter().map(Sleeper::voluntary_switches).collect();
    assert_eq!(before, after);
    for (sleeper, key) in foreign.into_iter().zip(1..) {
        assert_eq!(table.wake(&key, 1), 1);
        assert_eq!(sleeper.join(), Outcome::Woken(Token(0)));
    }
}

#[test]
fn a_deadline_ends_a_sleep_and_not_before() {
    let table = WaitTable::<u64>::builder().build();
    let deadline = Timestamp::now().after(Duration::from_millis(20));
    let outcome = table.wait(&1, || true, Deadline::at(deadline));
    assert_eq!(outcome, Outcome::TimedOut);
    assert!(Timestamp::now() >= deadline);
}
