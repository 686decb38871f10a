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
fn a_shard_passes_to_the_next_thread() {
    let reason = Reason::register("test-shard-passes");
    let shards = || shard::all().count();
    let in_thread = || thread::spawn(move || Ledger::add(reason, Field::Waits, 1)).join().unwrap();
    in_thread();
    let before = shards();
    (0..100).for_each(|_| in_thread());
    // Other tests run at the same time and may add some of their own, but not one per thread here.
    assert!(shards() - before < 50, "{} new shards", shards() - before);
    assert_eq!(Ledger::snapshot().reason(reason).waits, 101);
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
fn a_snapshot_is_text_and_json() {
    let reason = Reason::register("test-json");
    let before = Ledger::snapshot();
    Ledger::add(reason, Field::NeedlessWakeups, 3);
    let difference = Ledger::snapshot().since(&before);
    let json = serde_json::to_value(&difference).unwrap();
    assert_eq!(json["schema"], "unherd.waits/1");
    let rows = json["reasons"].as_array().unwrap();
    let row = rows.iter().find(|row| row["reason"] == "test-json").unwrap();
    assert_eq!(row["needless_wakeups"], 3);
    assert_eq!(row["waits"], 0);
    assert!(difference.to_string().contains("test-json"));
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
