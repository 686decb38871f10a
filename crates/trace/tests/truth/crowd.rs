//! Many that come and go: threads, processes.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use unherd_sys::primitives::thread;

use crate::count;

/// Starts `total` threads, some at a time; each sleeps once by a timer.
pub(crate) fn threads(total: usize) -> Value {
    let mut naps = 0u64;
    let mut begun = 0;
    while begun < total {
        let batch: Vec<_> = (begun..total.min(begun + 50))
            .map(|_| {
                thread::spawn(|| {
                    let before = count::sleeps();
                    count::pause(Duration::from_micros(200));
                    count::sleeps() - before
                })
            })
            .collect();
        begun += batch.len();
        naps += batch.into_iter().map(|t| t.join().expect("no panic")).sum::<u64>();
    }
    json!({ "threads": begun, "naps": naps })
}

/// Executes another program, which waits for a child, from a thread that is not the first.
pub(crate) fn exec_by_another() -> Value {
    let exec = || Command::new("/bin/sh").args(["-c", "sleep 0.01; echo '{}'"]).exec();
    let error = thread::spawn(exec).join().expect("no panic");
    json!({ "error": error.to_string() })
}

/// Starts `total` processes, each of which executes another program at once and dies.
pub(crate) fn forks(total: usize) -> Value {
    let mut done = 0;
    for _ in 0..total {
        let status = Command::new("/bin/true").status().expect("every system has it");
        done += usize::from(status.success());
    }
    json!({ "forks": done })
}
