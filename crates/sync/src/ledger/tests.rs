//! Each test has reasons of its own, since the ledger is the process's.

use super::*;
use unherd_sys::primitives::thread;

#[test]
fn counts_of_ended_threads_stay() {
    let reason = Reason::register("test-ended-threads");
    let before = Ledger::snapshot();
    let count = move || (0..1000).for_each(|_| Ledger::add(reason, Field::Waits, 1));
    let threads: Vec<_> = (0..8).map(|_| thread::spawn(count)).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(Ledger::snapshot().since(&before).reason(reason).waits, 8000);
}

#[test]
fn a_slot_passes_to_the_next_thread() {
    let reason = Reason::register("test-slot-passes");
    let slabs = || shard::all().count();
    let in_thread = || thread::spawn(move || Ledger::add(reason, Field::Waits, 1)).join().unwrap();
    in_thread();
    let before = slabs();
    (0..2000).for_each(|_| in_thread());
    // 62 slabs if no slot passed on. Tests at the same time add slabs for their own threads, which
    // are a few hundred in all.
    assert!(slabs() - before < 30, "{} new slabs", slabs() - before);
    assert_eq!(Ledger::snapshot().reason(reason).waits, 2001);
}

#[test]
fn more_threads_than_slots_count_apart() {
    let reason = Reason::register("test-many-threads");
    let barrier = std::sync::Barrier::new(100);
    std::thread::scope(|scope| {
        for n in 0..100 {
            let barrier = &barrier;
            scope.spawn(move || {
                Ledger::add(reason, Field::AsleepNs, n);
                barrier.wait();
                (0..1000).for_each(|_| Ledger::add(reason, Field::Waits, 1));
            });
        }
    });
    let counts = Ledger::snapshot().reason(reason);
    assert_eq!((counts.waits, counts.asleep_ns), (100_000, 4950));
}

/// Reads the ledger as a tracer does: by the signpost and addresses alone.
#[test]
fn the_ledger_is_found_from_outside() {
    use std::os::unix::fs::FileExt;
    use unherd_sys::ledger_layout as layout;
    let reason = Reason::register("test-from-outside");
    Ledger::add(reason, Field::Timeouts, 7);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/memfd:unherd-ledger")).unwrap();
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let bytes = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        memory.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    let number = |at: u64| u64::from_ne_bytes(bytes(at, 8).try_into().unwrap());
    let signpost = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    assert_eq!(bytes(signpost, 16), layout::MAGIC);
    let root = number(signpost + 16);
    assert_eq!(bytes(root, 16), layout::MAGIC);
    let name = bytes(root + 32 + (reason.index() * layout::NAME_BYTES) as u64, layout::NAME_BYTES);
    assert_eq!(name.split(|byte| *byte == 0).next().unwrap(), b"test-from-outside");
    let field = layout::FIELDS.iter().position(|field| *field == "timeouts").unwrap();
    let (mut slab, mut sum) = (number(root + 16), 0);
    while slab != 0 {
        for slot in 0..layout::SLOTS {
            let row = (reason.index() * layout::SLOTS + slot) * layout::ROW_BYTES;
            sum += number(slab + row as u64 + 8 * field as u64);
        }
        slab = number(slab + layout::SLAB_NEXT as u64);
    }
    assert_eq!(sum, 7);
}

#[test]
fn counting_works_while_thread_locals_are_torn_down() {
    struct CountsAtTheEnd(Reason);
    impl Drop for CountsAtTheEnd {
        fn drop(&mut self) {
            Ledger::add(self.0, Field::Timeouts, 1);
        }
    }
    thread_local!(static LAST: std::cell::RefCell<Option<CountsAtTheEnd>> = const {
        std::cell::RefCell::new(None)
    });
    let reason = Reason::register("test-teardown");
    let run = |count_first: bool| {
        thread::spawn(move || {
            // Destructors run in the reverse order of first use, so this gives both orders.
            if count_first {
                Ledger::add(reason, Field::Timeouts, 1);
            }
            LAST.set(Some(CountsAtTheEnd(reason)));
            Ledger::add(reason, Field::Timeouts, 1);
        })
        .join()
        .unwrap();
    };
    run(true);
    run(false);
    assert_eq!(Ledger::snapshot().reason(reason).timeouts, 5);
}

#[test]
fn a_snapshot_is_text() {
    let reason = Reason::register("test-text");
    let before = Ledger::snapshot();
    Ledger::add(reason, Field::NeedlessWakeups, 3);
    let difference = Ledger::snapshot().since(&before);
    let text = difference.to_string();
    let row = text.lines().find(|line| line.starts_with("test-text")).unwrap();
    let numbers: Vec<&str> = row.split_whitespace().skip(1).collect();
    assert_eq!(numbers, ["0", "0.000", "0", "3", "0", "0", "0", "0", "0", "0"]);
}

#[test]
fn reasons_beyond_the_room_are_other() {
    // Run in a process of its own, since the names stay.
    if std::env::var_os("UNHERD_TEST_REASONS").is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ledger::tests::reasons_beyond_the_room_are_other"])
            .env("UNHERD_TEST_REASONS", "1")
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let names: Vec<&'static str> =
        (0..70).map(|n| &*Box::leak(format!("reason-{n}").into_boxed_str())).collect();
    let reasons: Vec<Reason> = names.iter().map(|name| Reason::register(name)).collect();
    assert!(reasons[..63].iter().zip(&names).all(|(reason, name)| reason.name() == *name));
    assert!(reasons[63..].iter().all(|reason| *reason == Reason::OTHER));
    Ledger::add(reasons[69], Field::Waits, 1);
    assert_eq!(Ledger::snapshot().reason(Reason::OTHER).waits, 1);
}

/// Threads, tasks, timeouts and dropped futures: each wait that has begun ends once.
#[test]
fn the_ledger_counts_those_that_wait() {
    use crate::WaitTable;
    let reason = Reason::register("test-waiting");
    let table = WaitTable::<u32>::builder().buckets(1).build();
    let before = Ledger::snapshot();
    let waiting = || Ledger::snapshot().since(&before).reason(reason).waiting;
    std::thread::scope(|scope| {
        for key in 0..2 {
            let table = &table;
            scope.spawn(move || table.wait(&key, || true, reason));
        }
        while waiting() < 2 {
            thread::yield_now();
        }
        #[cfg(feature = "async")]
        {
            use std::task::{Context, Waker};
            let mut wait = Box::pin(table.wait_async(&2, || true, reason));
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(waiting(), 3);
            drop(wait);
        }
        assert_eq!(waiting(), 2);
        let past = crate::Deadline::at(Timestamp::from_ns(0));
        let _timed_out = table.wait(&2, || true, crate::Wait::new(reason).deadline(past));
        assert_eq!(waiting(), 2);
        (0..2).for_each(|key| _ = table.wake_all(&key));
    });
    assert_eq!(waiting(), 0);
}

/// The gate with this reason, of which there is one.
fn gate_account(reason: Reason) -> Option<GateAccount> {
    Ledger::gates().into_iter().find(|gate| gate.reason == reason)
}

#[test]
fn gates_and_stalls_stand_in_the_ledger() {
    use crate::{Deadline, Gate, WaitEnd};
    let [own, throttled] = ["test-gate", "test-throttled"].map(Reason::register);
    let gate = Gate::builder().reason(own).max_wait(std::time::Duration::MAX).build();
    let congested = gate.congest().into_shared();
    let calm = gate_account(own).unwrap();
    assert_eq!((calm.waiting, calm.last_progress, calm.stalled_for().as_nanos()), (0, None, 0));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let thread = std::fs::read_link("/proc/thread-self").unwrap();
            let why = gate.wait_iff(throttled, Deadline::NEVER).why;
            (thread.file_name().unwrap().to_str().unwrap().parse().ok(), why)
        });
        while gate.status().waiters.is_empty() {
            thread::yield_now();
        }
        let (status, stalled) = (gate.status(), gate_account(own).unwrap());
        assert_eq!(stalled.waiters.len(), 1, "{stalled:?}");
        let (here, there) = (stalled.waiters[0], status.waiters[0]);
        assert_eq!((here.reason, here.thread), (throttled, there.thread));
        assert!(here.since >= there.since && here.since <= status.now, "{here:?} {there:?}");
        assert_eq!((stalled.waiting, stalled.last_change), (1, status.last_change));
        assert!(stalled.stalled_for().as_nanos() > 0, "{stalled:?}");
        let text = stalled.to_string();
        assert!(text.starts_with("gate test-gate: progress: never; trusted"), "{text}");
        assert!(text.contains("waiting: 1; stalled for ") && text.ends_with("test-throttled"));
        gate.progress(1);
        let (thread, why) = waiter.join().unwrap();
        assert_eq!((why, here.thread), (WaitEnd::Progress, thread));
    });
    let moved = gate_account(own).unwrap();
    assert!(moved.waiters.is_empty() && moved.last_progress > Some(calm.now), "{moved:?}");
    // It waits until the signal is not trusted any more.
    let gate = Gate::builder().reason(throttled).max_wait(std::time::Duration::ZERO).build();
    let silent = gate.congest().into_shared();
    let past = Deadline::at(Timestamp::from_ns(0));
    assert!((0..3).all(|_| gate.wait_iff(own, past).why == WaitEnd::Timeout));
    let lost = gate_account(throttled).unwrap();
    assert!(!lost.is_trusted && lost.untrusted == 1, "{lost:?}");
    assert!(lost.stalled_for().as_nanos() > 0, "nobody sleeps, and nothing moves");
    drop(silent);
    drop(gate);
    assert_eq!(gate_account(throttled), None, "it is gone");
    // There is no room for all of these, and they work all the same.
    let many: Vec<Gate> = (0..70).map(|_| Gate::builder().reason(throttled).build()).collect();
    for gate in &many {
        let _congested = gate.congest().into_shared();
        assert_eq!(gate.wait_iff(own, past).why, WaitEnd::Timeout);
    }
    let shown = Ledger::gates().iter().filter(|gate| gate.reason == throttled).count();
    assert!((1..64).contains(&shown), "{shown}");
    // Gates of other tests may be hidden too.
    assert!(Ledger::gates_hidden() >= (many.len() - shown) as u64);
    drop((many, congested));
}
