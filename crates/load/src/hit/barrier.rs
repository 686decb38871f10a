//! Where all threads of a round meet.

use unherd_sys::primitives::{Condvar, Mutex};

/// A barrier for a fixed number of threads, which can be used again.
pub(super) struct Barrier {
    threads: usize,
    meeting: Mutex<Meeting>,
    over: Condvar,
}

#[derive(Default)]
struct Meeting {
    number: u64,
    arrived: usize,
}

impl Barrier {
    pub(super) fn new(threads: usize) -> Self {
        Self { threads, meeting: Mutex::new(Meeting::default()), over: Condvar::new() }
    }

    /// Blocks until all threads are here.
    pub(super) fn wait(&self) {
        let mut meeting = self.meeting.lock();
        meeting.arrived += 1;
        if meeting.arrived == self.threads {
            *meeting = Meeting { number: meeting.number + 1, arrived: 0 };
            self.over.notify_all();
            return;
        }
        let number = meeting.number;
        while meeting.number == number {
            meeting = self.over.wait(meeting);
        }
    }
}
