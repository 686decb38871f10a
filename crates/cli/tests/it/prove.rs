//! `unherd prove`: programs of which it is known what each cure does to them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::{Place, Ran, send};
use crate::trace::{is_refused, ran};

/// The scenes, compiled.
fn scenes(place: &Place, flags: &[&str]) -> String {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/prove/scenes.c");
    let program = place.path().join("scenes");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).args(flags);
    assert!(compiler.status().unwrap().success());
    program.to_str().unwrap().to_owned()
}

fn prove(place: &Place, options: &str, words: &[&str]) -> Ran {
    let mut command = place.command("prove --out record");
    if !options.contains("--rounds") {
        command.args(["--rounds", "8"]);
    }
    command.args(options.split_whitespace()).arg("--").args(words);
    ran(command)
}

/// How many times fewer context switches a scene has with the cure, at least.
fn gain(cure: &str, scene: &str) -> f64 {
    let place = Place::new();
    let program = scenes(&place, &[]);
    let words: Vec<&str> = [&*program].into_iter().chain(scene.split(' ')).collect();
    let ran = prove(&place, &format!("--timeout 10 --cure {cure}"), &words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let verdict = ran.stdout.lines().next().unwrap();
    assert_eq!(ran.stdout.matches(verdict).count(), 1, "{ran:?}");
    let last = "Standard output and exit code were the same in all runs.\n";
    let (_, below) = ran.stdout.split_once(last).unwrap_or_else(|| panic!("{ran:?}"));
    let is_warned = below.starts_with("That shows no lost event, and is no proof that none can");
    assert_eq!((is_warned, below.lines().count()), (cure == "wake-one", below.len().min(1)));
    if cure != "timer-slack" {
        assert!(ran.stdout.contains(&format!("\n{cure} acted ")), "{ran:?}");
    }
    let report: Value =
        serde_json::from_str(&place.run("report record --format json").stdout).unwrap();
    let comparisons = report["comparisons"].as_array().unwrap();
    let metrics: Vec<_> = comparisons.iter().map(|it| it["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["wall_s", "cpu_s", "context_switches"]);
    comparisons[2]["low"].as_f64().unwrap()
}

#[test]
fn accept_herd_is_cured() {
    assert!(gain("epoll-exclusive", "accept 8 100") > 1.5);
}

#[test]
fn broadcast_of_one_token_is_cured() {
    assert!(gain("wake-one", "broadcast 8 60") > 1.5);
}

#[test]
fn timer_poll_is_cured() {
    assert!(gain("timer-slack", "poll 60 500") > 1.5);
}

#[test]
fn spinning_keeps_the_output() {
    // How much is gained depends on whether both threads have a processor.
    gain("spin-then-sleep", "hand-over 100 10");
}

#[test]
fn waking_in_turn_loses_no_event() {
    gain("wake-in-turn", "keyed 8 50");
    gain("wake-in-turn", "destroy 8 30");
}

/// Whether the scene prints the same with the cure.
fn is_the_same(flags: &[&str], cure: &str, scene: [&str; 3]) {
    let place = Place::new();
    let program = scenes(&place, flags);
    let words = [&[&*program], &scene[..]].concat();
    let ran = prove(&place, &format!("--rounds 7 --timeout 5 --cure {cure}"), &words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn signal_after_broadcast_reaches_fresh_waiter() {
    is_the_same(&[], "wake-in-turn", ["first", "8", "50"]);
}

#[test]
fn waiter_of_broadcast_is_not_late() {
    is_the_same(&[], "wake-in-turn", ["timed", "3", "1"]);
}

#[test]
fn condition_of_two_processes_is_left_alone() {
    is_the_same(&[], "wake-in-turn", ["share", "4", "10"]);
}

#[test]
fn allocator_below_mutex_works() {
    is_the_same(&["-DALLOCATOR"], "wake-one", ["broadcast", "4", "10"]);
}

#[test]
fn listener_changed_by_two_threads_stays() {
    is_the_same(&[], "epoll-exclusive", ["change", "50", "50"]);
}

/// A library whose pthread_cond_signal(3) is slow, to be linked.
#[cfg(target_arch = "x86_64")]
fn slow_signal(place: &Place) -> String {
    let of = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(of("versions"), "GLIBC_2.3.2 { pthread_cond_signal; };").unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/prove/slow.c");
    let script = format!("-Wl,--version-script={}", of("versions"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o", &of("libslow.so"), source, &script]);
    assert!(compiler.status().unwrap().success());
    of("libslow.so")
}

#[test]
#[cfg(target_arch = "x86_64")]
fn turn_outlasts_neither_condition_nor_process() {
    let place = Place::new();
    let slow = slow_signal(&place);
    for forks in ["0", "1"] {
        is_the_same(&[&slow], "wake-in-turn", ["pass", "4", forks]);
    }
}

#[test]
fn cancelled_waiter_is_owed_nothing() {
    is_the_same(&[], "wake-in-turn", ["cancel", "4", "50"]);
}

#[test]
fn long_wait_sleeps_after_spinning() {
    is_the_same(&[], "spin-then-sleep", ["long", "50", "2000"]);
}

#[test]
fn lost_events_are_an_error() {
    let place = Place::new();
    let ran =
        prove(&place, "--cure wake-one --timeout 1", &[&scenes(&place, &[]), "keyed", "8", "20"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(1), ""), "{ran:?}");
    assert_eq!(
        ran.stderr,
        "unherd: wake-one breaks the program or loses an event: it had not ended after 1 s \
         (--timeout) and was killed, in 1 of 1 runs, as it is in 0 of 2; wake-in-turn suits \
         waiters for different things\n"
    );
}

/// Its first run takes long, so the rounds are expected to.
#[test]
fn long_rounds_are_announced_once() {
    let place = Place::new();
    let script = "[ -e slow ] || { >slow; sleep 0.8; }";
    let ran = prove(&place, "--cure timer-slack", &["sh", "-c", script]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.starts_with("unherd: 8 rounds of 2 runs take about "), "{ran:?}");
    assert_eq!(ran.stderr.matches(" in all\n").count(), 1, "{ran:?}");
}

#[test]
fn wrong_command_line_has_its_code() {
    let place = Place::new();
    for (options, program) in [("--rounds 2", "true"), ("--nosuch", "true"), ("", "./absent")] {
        let ran = prove(&place, &format!("--cure timer-slack {options}"), &[program]);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(2), 1), "{ran:?}");
    }
}

#[test]
fn programs_that_change_are_an_error() {
    let place = Place::new();
    for (script, code, what) in [
        ("echo ${LD_PRELOAD:+cured}", 1, "epoll-exclusive breaks the program"),
        ("exit ${LD_PRELOAD:+3}", 1, "it ended with exit code 3, not 0 (--exit-code)"),
        ("echo $$", 125, "as it is, the program prints something else in each run"),
        ("exit 3", 125, "the program as it is: it ended with exit code 3"),
    ] {
        let ran = prove(&place, "--cure epoll-exclusive", &["sh", "-c", script]);
        assert!(ran.stderr.contains(what) && ran.stderr.lines().count() == 1, "{ran:?}");
        assert_eq!((ran.code, &*ran.stdout), (Some(code), ""), "{ran:?}");
    }
}

#[test]
fn programs_that_change_late_are_an_error() {
    for (fifth_run, what) in [
        ("exit 3", "it ended with exit code 3, not 0 (--exit-code)"),
        ("echo more", "it prints something else"),
    ] {
        let place = Place::new();
        let script = format!(
            "read slack </proc/self/timerslack_ns; [ $slack = 50000 ] && exit; echo >>runs; \
             [ $(wc -l <runs) -lt 5 ] || {fifth_run}"
        );
        let ran = prove(&place, "--cure timer-slack", &["sh", "-c", &script]);
        let line =
            format!("timer-slack breaks the program or loses an event: {what}, in 1 of 5 runs,");
        assert!(ran.stderr.contains(&line), "{ran:?}");
        assert_eq!((ran.code, &*ran.stdout), (Some(1), ""), "{ran:?}");
    }
}

#[test]
fn rare_fault_of_the_program_is_not_the_cures() {
    for (fault, what) in [
        ("exit 3", "the program as it is: it ended with exit code 3"),
        ("echo $$", "as it is, the program prints something else in each run"),
    ] {
        let place = Place::new();
        // It fails with the cure first, by chance, and from then on also without.
        let script = format!(
            "read slack </proc/self/timerslack_ns; echo >>runs; \
             [ $slack = 50000 ] && [ ! -e failed ] && exit; \
             [ $(wc -l <runs) -lt 8 ] || {{ touch failed; {fault}; }}"
        );
        let ran = prove(&place, "--cure timer-slack", &["sh", "-c", &script]);
        assert!(ran.stderr.contains(what), "{ran:?}");
        assert_eq!((ran.code, &*ran.stdout), (Some(125), ""), "{ran:?}");
    }
}

#[test]
fn cure_that_cannot_act_is_an_error() {
    let is_refused = |flags: &[&str], cure: &str, scene: [&str; 3], what: &str| {
        let place = Place::new();
        let program = scenes(&place, flags);
        let words = [&[&*program], &scene[..]].concat();
        let ran = prove(&place, &format!("--cure {cure}"), &words);
        assert!(ran.stderr.contains(what) && ran.stderr.lines().count() == 1, "{ran:?}");
        assert_eq!((ran.code, &*ran.stdout), (Some(4), ""), "{ran:?}");
    };
    let accept = ["accept", "2", "5"];
    is_refused(&["-static"], "epoll-exclusive", accept, "it is static, set-user-ID");
    is_refused(&[], "epoll-exclusive", ["oneshot", "2", "5"], "more than EPOLLIN (EPOLLONESHOT");
    is_refused(&[], "epoll-exclusive", ["poll", "5", "1000"], "epoll-exclusive never acted: no");
    is_refused(&[], "wake-one", accept, "wake-one never acted: no pthread_cond_broadcast");
    is_refused(&[], "spin-then-sleep", accept, "spin-then-sleep never acted: no pthread_cond_wait");
}

#[test]
fn other_preloaded_libraries_stay() {
    let place = Place::new();
    let mut command = place.command("prove --cure wake-one -- sh -c");
    command.arg("case $LD_PRELOAD in libm.so.6*) ;; *) exit 9 ;; esac");
    command.env("LD_PRELOAD", "libm.so.6");
    let ran = ran(command);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("wake-one never acted"), "{ran:?}");
}

/// A program that only sleeps looks like one that polls, and the cure makes each sleep longer.
#[test]
fn root_cure_that_harms_is_not_praised() {
    let place = Place::new();
    let program = scenes(&place, &["-g"]);
    let ran = prove(&place, "", &[&program, "pace", "50", "500"]);
    if is_refused(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("timer-slack is worse than before: wall time "), "{ran:?}");
    assert!(!ran.stdout.contains("is the cure for"), "{ran:?}");
    let last = ran.stdout.lines().rev().nth(1).unwrap();
    let meant = "timer-slack is meant for polling by timer: clock_nanosleep from pace (scenes.c:";
    assert!(last.starts_with(meant) && last.contains(" worse"), "{ran:?}");
}

#[test]
fn root_interrupted_trace_tells_what_it_saw() {
    let place = Place::new();
    if is_refused(&prove(&place, "", &["true"])) {
        return;
    }
    let sign = place.path().join("alive");
    let script = format!("{} pace 50 500; echo here >alive; sleep 1000", scenes(&place, &["-g"]));
    let mut command = place.command("prove -- sh -c");
    let command = command.arg(&script).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut prove = command.spawn().unwrap();
    while !sign.exists() && prove.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    assert!(send("-INT", &prove.id().to_string()));
    let output = prove.wait_with_output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert_eq!((output.status.code(), &*stdout, stderr.lines().count()), (Some(130), "", 1));
    let seen = stderr.strip_prefix("unherd: the traced run was interrupted; until then: ");
    assert!(seen.is_some_and(|seen| seen.contains(" from pace (scenes.c:")), "{stderr}");
}

#[test]
fn root_first_finding_names_the_cure() {
    let place = Place::new();
    let program = scenes(&place, &["-g"]);
    let ran = prove(&place, "", &[&program, "broadcast", "16", "100"]);
    if is_refused(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("\nunherd: cure: wake-one\n"), "{ran:?}");
    assert!(ran.stdout.starts_with("wake-one is better than before: "), "{ran:?}");
    let last: Vec<&str> = ran.stdout.lines().rev().skip(1).take(2).collect();
    let cured = "wake-one is the cure for needless wakeups: futex from take (scenes.c:";
    assert!(last[1].starts_with(cured) && last[1].ends_with("), scenes."), "{ran:?}");
    assert!(last[0].starts_with("wake-one acted "), "{ran:?}");
    // A static program shares no mapped file whose kernel locks others may hold.
    let alone = scenes(&place, &["-static"]);
    for [times, period] in [["0", "0"], ["1", "100000"]] {
        let ran = prove(&place, "", &[&alone, "pace", times, period]);
        assert_eq!((ran.code, &*ran.stdout), (Some(3), ""), "{ran:?}");
        let nothing = "unherd: the trace found nothing to cure; name one";
        assert!(ran.stderr.starts_with(nothing), "{ran:?}");
    }
    let absent = prove(&place, "", &["./absent"]);
    let line =
        "unherd: cannot run './absent': No such file or directory (os error 2); name a program";
    assert_eq!((absent.code, absent.stderr.trim_end()), (Some(2), line), "{absent:?}");
    let failed = prove(&place, "", &["sh", "-c", "exit 3"]);
    assert_eq!(failed.code, Some(125), "{failed:?}");
}
