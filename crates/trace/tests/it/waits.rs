//! Needless wakeups, herds and timer polls against the truth.

use std::ops::Range;

use serde_json::Value;
use unherd_trace::TraceOptions;
use unherd_trace::observation::{Object, Observation, WakeCause};

use crate::session::{assert_nothing_lost, number, proven, root, sum, trace, trace_with};

const RUNS: usize = 3;

#[test]
fn root_accept_herd_has_true_size() {
    let Some(_machine) = root("the herd at accept") else { return };
    for _ in 0..RUNS {
        let (seen, truth) = trace("accept 16 500 0 0");
        let needless = number(&truth, "needless");
        let proven = proven(&seen);
        println!("needless {needless}, proven {proven}");
        assert!(needless > 1000, "the scene makes a herd: {truth}");
        assert!(proven <= needless, "proven {proven} of {needless}");
        assert!(proven * 100 >= needless * 95, "proven {proven} of {needless}");
        assert_nothing_lost(&seen);
    }
}

#[test]
fn root_herd_is_named_by_listener() {
    let Some(_machine) = root("the herd's listener") else { return };
    let (seen, truth) = trace("accept 16 300 0 0");
    let port = number(&truth, "port") as u16;
    let listener = Object::Socket { port, listening: true };
    let rows: Vec<_> = seen.wakes.iter().filter(|row| row.object == listener).collect();
    let herds: u64 = rows.iter().map(|row| row.herds).sum();
    let needless: u64 = rows.iter().map(|row| row.herd_needless).sum();
    let largest = rows.iter().map(|row| row.largest).max().unwrap_or(0);
    println!("{herds} herds, largest {largest}, needless {needless} of {truth}");
    assert!((240..=310).contains(&herds), "one connect, one herd: {herds} {rows:#?}");
    assert!((8..=16).contains(&largest), "{largest} of 16 threads");
    assert!(needless * 100 >= number(&truth, "needless") * 90, "{needless} of {truth}");
    assert!(rows.iter().any(|row| !row.stacks.is_empty()), "no stack of any waker");
}

#[test]
fn root_an_exclusive_epoll_has_no_herd() {
    let Some(_machine) = root("exclusive epoll") else { return };
    // On a busy machine a thread that was already on its way may take the connection of the one
    // that was woken: that is needless in truth. So it is tried until the scene itself had none.
    for _ in 0..20 {
        let (seen, truth) = trace("accept 16 50 1 0");
        let (proven, needless) = (proven(&seen), number(&truth, "needless"));
        assert_nothing_lost(&seen);
        assert!(proven <= needless, "{proven} of {truth}");
        if needless == 0 {
            return;
        }
    }
    panic!("no run of the scene was without a needless wakeup");
}

fn interval(seen: &Observation) -> (u64, u64) {
    let proven = proven(seen);
    (proven, proven + sum(seen, |row| row.possibly_needless))
}

#[test]
fn root_broadcast_truth_lies_in_interval() {
    let Some(_machine) = root("broadcast") else { return };
    for _ in 0..RUNS {
        let (seen, truth) = trace("monitor 8 500 0 0");
        let needless = number(&truth, "needless");
        let (proven, possible) = interval(&seen);
        println!("needless {needless} in [{proven}, {possible}]");
        assert!(needless >= 3000, "the scene makes a herd: {truth}");
        assert!(proven <= needless && needless <= possible, "{needless} [{proven}, {possible}]");
        assert_nothing_lost(&seen);
    }
}

#[test]
fn root_broadcast_is_one_wake_event() {
    let Some(_machine) = root("the herd of a broadcast") else { return };
    let (seen, truth) = trace("monitor 8 200 0 0");
    let futex = WakeCause::Call(libc::SYS_futex as u32);
    let rows = seen.wakes.iter().filter(|row| row.cause == futex && row.herds > 0);
    let row = rows.max_by_key(|row| row.herds).expect("a broadcast is a herd");
    println!("{row:?}");
    assert_eq!(row.largest, 8);
    // One for each token and one at the end; more where the teller changes its processor midway.
    assert!((190..=210).contains(&row.herds), "{row:?}");
    // Those that found no token are possibly needless, and known to have come together.
    assert!(row.herd_possibly >= number(&truth, "needless") * 9 / 10, "{row:?} {truth}");
    assert!(sum(&seen, |row| row.possibly_needless_in_herds) >= row.herd_possibly);
}

/// The herds of a scene in which one thread wakes eight others one by one, 200 times.
fn herds_of_roll(scene: &str, object: impl Fn(Object) -> bool) {
    let (seen, truth) = trace(scene);
    let needless = number(&truth, "needless");
    let rows: Vec<_> = seen.wakes.iter().filter(|row| object(row.object)).collect();
    let row = rows.iter().max_by_key(|row| row.herds).expect("a roll call is a herd");
    println!("{needless} needless: {row:?}");
    assert_eq!(row.largest, 8, "{row:?}");
    // One woken thread may get in between two calls, and then a round makes two or none.
    assert!((150..=300).contains(&row.herds), "{row:?}");
    let (_, possible) = interval(&seen);
    let in_herds = sum(&seen, |row| row.possibly_needless_in_herds);
    assert!(needless > 1_000 && needless <= possible, "{needless} of at most {possible}");
    assert!(in_herds * 10 >= possible * 8, "{in_herds} of {possible}");
    assert!(row.herd_possibly * 10 >= needless * 7, "{row:?} {truth}");
    assert!(!row.stacks.is_empty(), "no stack of the caller");
    assert_nothing_lost(&seen);
}

#[test]
fn root_wakes_one_by_one_are_one_herd() {
    let Some(_machine) = root("a roll call") else { return };
    herds_of_roll("roll 8 200 1", |object| matches!(object, Object::Futex(word) if word != 0));
    herds_of_roll("roll 8 200 0", |object| object == Object::SEVERAL_FUTEXES);
}

#[test]
fn root_nothing_is_proven_against_a_signal() {
    let Some(_machine) = root("signal") else { return };
    let (seen, truth) = trace("monitor 8 500 500 0");
    let (proven, possible) = interval(&seen);
    println!("needless {} in [{proven}, {possible}]", number(&truth, "needless"));
    assert_eq!(proven, 0);
    assert!(number(&truth, "needless") <= possible);
}

/// A scene that looks now and then, and how many polls may be seen of it. After the last look it
/// does not sleep again. A machine on which half the looks are doubtful tells little of the tracer,
/// so it is tried again.
fn trace_looks(scene: &str, options: &TraceOptions) -> (Observation, Value, Range<u64>) {
    for _ in 0..20 {
        let (seen, truth) = trace_with(scene, options);
        let (looks, certain) = (number(&truth, "looks"), number(&truth, "certain"));
        if certain * 2 >= looks {
            // The kernel tells all but one switch in some thousands, and then a look is missing.
            return (seen, truth, certain - certain / 100..looks);
        }
    }
    panic!("in no run of {scene} half the looks were certain");
}

#[test]
fn root_poll_loop_has_its_period() {
    let Some(_machine) = root("poll loop") else { return };
    let (seen, truth, looks) = trace_looks("lookout 50 10", &TraceOptions::default());
    let row = seen.waits.iter().max_by_key(|row| row.timer_polls).expect("it waits");
    let period_ns = row.timer_poll_ns / row.timer_polls.max(1);
    println!("{} polls, every {period_ns} ns", row.timer_polls);
    assert!(looks.contains(&row.timer_polls), "{truth} {row:?}");
    assert!((row.timer_polls..=looks.end).contains(&row.timer_wakeups), "{row:?}");
    assert_eq!(row.syscall, Some(libc::SYS_nanosleep as u32));
    assert!((10_000_000..100_000_000).contains(&period_ns), "{period_ns}");
    assert_eq!(proven(&seen), 0);
    let mut timers = seen.wakes.iter().filter(|row| row.cause == WakeCause::Timer);
    assert!(timers.any(|row| row.events > looks.start / 2));
}

#[test]
fn root_an_eventfd_is_no_poll() {
    let Some(_machine) = root("eventfd") else { return };
    let (seen, truth) = trace("eventfd 50 5");
    assert_eq!(number(&truth, "told"), 50);
    assert_eq!(sum(&seen, |row| row.timer_polls), 0, "{:#?}", seen.waits);
    assert_eq!(interval(&seen), (0, 0), "{:#?}", seen.waits);
}

/// A needless wakeup is within the bound, whatever the thread has done before it waits again.
#[test]
fn root_unrelated_calls_hide_no_wakeup() {
    let Some(_machine) = root("unrelated calls") else { return };
    for scene in ["monitor 8 200 0 1", "monitor 4 100 0 2", "accept 8 200 0 1"] {
        let (seen, truth) = trace(scene);
        let needless = number(&truth, "needless");
        let (proven, possible) = interval(&seen);
        println!("{scene}: needless {needless} in [{proven}, {possible}]");
        assert!(needless > 200, "the scene makes a herd: {truth}");
        assert!(proven <= needless && needless <= possible, "{needless} [{proven}, {possible}]");
    }
}

/// Some kernels do not tell of all switches to a thread; what it does then is known all the same.
#[test]
fn root_untold_switches_hide_no_wakeup() {
    let Some(_machine) = root("switches that are not told") else { return };
    for untold in [1, 2, 3] {
        let mut options = TraceOptions::default();
        options.pretend_untold = untold;
        for scene in ["monitor 8 100 0 1", "accept 8 100 0 0"] {
            let (seen, truth) = trace_with(scene, &options);
            let needless = number(&truth, "needless");
            let (proven, possible) = interval(&seen);
            println!("{scene}, {untold}: needless {needless} in [{proven}, {possible}]");
            assert!(needless > 200, "the scene makes a herd: {truth}");
            assert!(
                proven <= needless && needless <= possible,
                "{needless} [{proven}, {possible}]"
            );
        }
        let (seen, truth) = trace_with("accept 8 100 1 1", &options);
        let (_, possible) = interval(&seen);
        assert!(possible <= number(&truth, "needless") + 20, "{untold}: {possible} {truth}");
        let (seen, truth, looks) = trace_looks("lookout 30 10", &options);
        let polls = sum(&seen, |row| row.timer_polls);
        assert!(looks.contains(&polls), "{untold}: {polls} of {truth}");
        let (seen, truth) = trace_with("produce 100", &options);
        let (polls, unheard) = (sum(&seen, |row| row.timer_polls), number(&truth, "unheard"));
        assert!(polls <= unheard + 10, "{untold}: {polls} of {truth}");
    }
}

#[test]
fn root_accepted_connections_are_not_possible() {
    let Some(_machine) = root("connections that were accepted") else { return };
    let (seen, truth) = trace("accept 8 200 1 1");
    let (_, possible) = interval(&seen);
    let accepted = number(&truth, "accepted");
    println!("{possible} possible, {accepted} accepted");
    // A thread that has taken one may take the next without having slept.
    assert!(accepted == 200 && possible <= number(&truth, "needless") + 20, "{possible} {truth}");
}

#[test]
fn root_ticks_with_work_are_no_polls() {
    let Some(_machine) = root("ticks with work") else { return };
    for scene in ["produce 200", "guard 200", "compute 200"] {
        let (seen, truth) = trace(scene);
        let polls = sum(&seen, |row| row.timer_polls);
        println!("{scene}: {polls} polls of {truth}");
        // A machine that gives the other thread no time leaves ticks that nobody heard, and some
        // that it is too late to tell of. A rule that is wrong takes all 200 for polls.
        assert!(polls <= number(&truth, "unheard") + 10, "{polls} of {truth}");
    }
}

/// A worker that sleeps for its next item between two pauses does not poll by them.
#[test]
fn root_pauses_of_workers_are_no_polls() {
    let Some(_machine) = root("pauses of workers") else { return };
    let (seen, truth) = trace("serve 4 400");
    let polls = sum(&seen, |row| row.timer_polls);
    println!("{polls} polls of {truth}");
    assert_eq!(number(&truth, "taken"), 400);
    // Where the machine is slow, workers find the next item without a sleep, which looks like a
    // poll.
    assert!(polls <= number(&truth, "unasked") + 10, "{polls} of {truth}");
    assert_nothing_lost(&seen);
}

#[test]
fn root_sleep_after_free_lock_is_counted() {
    let Some(_machine) = root("sleeps after a lock was free") else { return };
    let (seen, truth) = trace("ladder 50");
    let (times, ns) = (sum(&seen, |row| row.overslept), sum(&seen, |row| row.overslept_ns));
    let (true_times, true_ns) = (number(&truth, "overslept"), number(&truth, "over_ns"));
    println!("{times} of {true_times}, {ns} ns of {true_ns}");
    assert!(true_times >= 10, "{truth}");
    // The scene looks at the clock a moment before it gives the lock back.
    assert!((true_times * 9 / 10..=true_times).contains(&times), "{times} of {truth}");
    assert!(0 < ns && ns <= true_ns, "{ns} of {truth}");
    // The sleep that ended with the lock was followed by another, with the lock held.
    let polls = sum(&seen, |row| row.timer_polls);
    assert!(polls <= number(&truth, "polls") + 2, "{polls} polls of {truth}");
}

#[test]
fn root_looks_are_polls() {
    let Some(_machine) = root("looks at files and under a mutex") else { return };
    for scene in ["look 200 0", "look 200 1", "peek 200"] {
        let (seen, truth, looks) = trace_looks(scene, &TraceOptions::default());
        let polls = sum(&seen, |row| row.timer_polls);
        println!("{scene}: {polls} polls of {truth}");
        assert!(looks.contains(&polls), "{polls} of {truth}");
    }
}

/// The share of the time that threads wait for a lock in which its holders sleep, once or several
/// times while they have it.
#[test]
fn root_sleep_of_lock_holders_is_counted() {
    let Some(_machine) = root("holders that sleep") else { return };
    for scene in ["hold 2 150 1", "hold 6 50 1", "hold 6 30 2", "hold 6 50 0"] {
        let (seen, truth) = trace(scene);
        let row = seen.wakes.iter().filter(|row| matches!(row.object, Object::Futex(_)));
        let row = row.max_by_key(|row| row.waited_ns).expect("the lock is given back");
        let percent = row.holders_asleep_ns * 100 / row.waited_ns.max(1);
        let true_percent = number(&truth, "asleep_percent");
        println!("{scene}: {percent} of {true_percent} %");
        assert!(row.holders_asleep_ns <= row.waited_ns, "{row:?}");
        // Timers are late, and on a busy machine so is a thread that was given the lock.
        assert!(percent.abs_diff(true_percent) <= 25, "{scene}: {percent} of {true_percent} %");
        assert!(true_percent > 0 || percent <= 10, "{scene}: {percent} of {true_percent} %");
    }
}
