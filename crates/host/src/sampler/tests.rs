use std::process::Command;

use unherd_sys::Deadline;

use super::collector::cpus_in;
use super::functions::is_scheduling;
use super::*;
use crate::{ChildProcess, Side, SpawnHow};

/// A sampler, or the reason why there can be none here printed.
fn start(kind: SampleKind, scope: SampleScope) -> Option<Sampler> {
    match Sampler::start(kind, &scope) {
        Ok(sampler) => Some(sampler),
        Err(error @ (SamplerError::NotPermitted | SamplerError::NotSupported(_))) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn run(program: &str, args: &[&str]) {
    let mut command = Command::new(program);
    command.args(args).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
    child.wait(Deadline::NEVER).unwrap().unwrap();
}

fn sum(profile: &Profile, side: Side) -> u64 {
    profile.rows.iter().filter(|row| row.side == side).map(|row| row.count).sum()
}

const HUNGRY: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

#[test]
fn root_busy_child_is_seen_in_user_mode() {
    let kind = SampleKind::CpuClock { hertz: 1000 };
    let Some(sampler) = start(kind, SampleScope::NextChild) else { return };
    run("sh", &["-c", HUNGRY]);
    let profile = sampler.finish().unwrap();
    assert!(profile.user_ticks > 10, "{profile:?}");
    assert_eq!(profile.user_ticks, sum(&profile, Side::User));
    assert_eq!(profile.kernel_ticks, sum(&profile, Side::Kernel));
    assert_eq!(profile.idle_ticks, 0);
    assert_eq!(profile.delivered, profile.user_ticks + profile.kernel_ticks);
    // The shell is gone, but its mappings were noted.
    let unknown = profile.rows.iter().filter(|row| row.name == "[unknown]");
    assert!(unknown.map(|row| row.count).sum::<u64>() * 10 < profile.user_ticks, "{profile:?}");
    assert!(profile.expected > 0);
}

#[test]
fn root_copying_child_is_seen_in_kernel() {
    let kind = SampleKind::CpuClock { hertz: 1000 };
    let Some(sampler) = start(kind, SampleScope::NextChild) else { return };
    run("dd", &["if=/dev/zero", "of=/dev/null", "bs=1M", "count=2000"]);
    let profile = sampler.finish().unwrap();
    assert!(profile.kernel_ticks > 10, "{profile:?}");
    let top = &profile.rows[0];
    assert_eq!(top.side, Side::Kernel);
    if top.name == "[kernel]" {
        println!("the kernel hides its addresses (kernel.kptr_restrict)");
    } else {
        assert!(top.size_bytes.is_some_and(|size| size > 0), "{top:?}");
        assert!(top.count_per_byte.is_some_and(|count| count > 0.0));
    }
}

#[test]
fn root_sleepers_are_named_by_scheduler_caller() {
    let kind = SampleKind::ContextSwitches { every: 1 };
    let Some(sampler) = start(kind, SampleScope::NextChild) else { return };
    run("sh", &["-c", "for i in 1 2 3 4 5; do sleep 0.001; done"]);
    let profile = sampler.finish().unwrap();
    assert!(profile.delivered >= 5, "{profile:?}");
    let scheduling = profile.rows.iter().find(|row| is_scheduling(&row.name));
    assert_eq!(scheduling, None);
    let sleeps = profile.rows.iter().find(|row| row.name.contains("nanosleep"));
    assert!(
        sleeps.is_some_and(|row| row.count >= 5)
            || profile.rows.iter().any(|row| row.name == "[kernel]"),
        "{profile:?}"
    );
    assert!(sum(&profile, Side::User) > 0);
}

#[test]
fn root_the_whole_machine_has_idle_time() {
    let kind = SampleKind::CpuClock { hertz: 1000 };
    let Some(sampler) = start(kind, SampleScope::WholeMachine) else { return };
    run("sleep", &["0.2"]);
    let profile = sampler.finish().unwrap();
    assert!(profile.delivered > 0);
    let ticks = profile.user_ticks + profile.kernel_ticks + profile.idle_ticks;
    assert_eq!(ticks, profile.delivered);
    assert!(profile.expected >= 200, "{}", profile.expected);
}

#[test]
fn root_foreign_programs_are_in_no_row() {
    // Started before the sampler, so it is nobody's that the sampler has seen begin.
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    let neighbour = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
    let kind = SampleKind::CpuClock { hertz: 1000 };
    let Some(sampler) = start(kind, SampleScope::WholeMachine) else { return };
    run("sh", &["-c", HUNGRY]);
    let profile = sampler.finish_without_foreign().unwrap();
    drop(neighbour);
    assert!(profile.foreign_ticks > 10, "{profile:?}");
    assert!(profile.user_ticks > 10, "the child is not foreign: {profile:?}");
    assert_eq!(profile.user_ticks, sum(&profile, Side::User));
    assert_eq!(profile.kernel_ticks, sum(&profile, Side::Kernel));
    let Profile { user_ticks, kernel_ticks, idle_ticks, foreign_ticks, .. } = profile;
    assert_eq!(user_ticks + kernel_ticks + idle_ticks + foreign_ticks, profile.delivered);
}

#[test]
fn root_children_of_a_child_are_in_no_row() {
    let kind = SampleKind::CpuClock { hertz: 1000 };
    let Some(sampler) = start(kind, SampleScope::NextChild) else { return };
    run("sh", &["-c", &format!("({HUNGRY}) & wait")]);
    let profile = sampler.finish_without_descendants().unwrap();
    assert!(profile.foreign_ticks > 10, "{profile:?}");
    assert!(sum(&profile, Side::User) < 10, "the shell only waits: {profile:?}");
}

/// As [`start`], with chains.
fn start_chains(options: &ChainOptions) -> Option<ChainSampler> {
    match ChainSampler::start(options) {
        Ok(sampler) => Some(sampler),
        Err(error @ (SamplerError::NotPermitted | SamplerError::NotSupported(_))) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn sum_of(chains: &Chains, pid: u32) -> u64 {
    chains.rows.iter().filter(|row| row.pid == pid).map(|row| row.count).sum()
}

#[test]
fn root_chains_and_mappings_outlive_child() {
    let kind = SampleKind::CpuClock { hertz: 1000 };
    let Some(sampler) = start_chains(&ChainOptions::new(kind, SampleScope::WholeMachine)) else {
        return;
    };
    let mut command = Command::new("sh");
    // The second shell is forked and executes nothing: its mappings are its parent's.
    command.args(["-c", &format!("({HUNGRY}); {HUNGRY}")]);
    let mut child = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
    let pid = child.pid();
    child.wait(Deadline::NEVER).unwrap().unwrap();
    let chains = sampler.finish().unwrap();
    let forked = chains.parents.iter().find(|(_, parent)| **parent == pid).map(|(child, _)| *child);
    for pid in [pid, forked.unwrap()] {
        assert!(sum_of(&chains, pid) > 10, "{pid}: {:?}", chains.rows);
        let mappings = &chains.mappings[&pid];
        assert!(mappings.iter().any(|mapping| mapping.path.contains("libc")), "{mappings:?}");
        let user = chains.rows.iter().filter(|row| row.pid == pid && !row.in_kernel);
        let tops: Vec<u64> = user.map(|row| chains.chains[row.user.unwrap()][0]).collect();
        let mapped = |ip: &u64| mappings.iter().any(|m| (m.start..m.end).contains(ip));
        assert!(!tops.is_empty() && tops.iter().all(mapped), "{tops:x?} {mappings:x?}");
    }
    assert!(chains.delivered > chains.idle && chains.expected > 0);
    assert_eq!((chains.overflowed, chains.lost), (0, 0));
}

#[test]
fn root_chains_beyond_the_bound_are_counted() {
    let kind = SampleKind::CpuClock { hertz: 1000 };
    let options = ChainOptions { chains_max: 0, ..ChainOptions::new(kind, SampleScope::NextChild) };
    let Some(sampler) = start_chains(&options) else { return };
    run("sh", &["-c", HUNGRY]);
    let chains = sampler.finish().unwrap();
    assert!(chains.rows.is_empty() && chains.delivered > 10);
    assert_eq!(chains.overflowed, chains.delivered);
}

#[test]
fn running_process_is_sampled_with_its_sleeps() {
    const ROUNDS: u64 = 20;
    let mut command = Command::new("sh");
    // Reads a line before each step, so that nothing happens unseen.
    command.args(["-c", "while read line; do sleep 0.001; done"]);
    command.stdin(std::process::Stdio::piped());
    let mut child = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
    let pid = child.pid();
    let kind = SampleKind::CpuClock { hertz: 1000 };
    let options = ChainOptions {
        user_only: true,
        switches: true,
        ..ChainOptions::new(kind, SampleScope::Processes(vec![pid]))
    };
    let Some(sampler) = start_chains(&options) else { return };
    let mut stdin = child.take_stdin().unwrap();
    for _ in 0..ROUNDS {
        std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
    }
    drop(stdin);
    child.wait(Deadline::NEVER).unwrap().unwrap();
    let chains = sampler.finish().unwrap();
    let sleepers: Vec<_> = chains.threads.iter().filter(|thread| thread.pid != pid).collect();
    assert_eq!(sleepers.len() as u64, ROUNDS, "{:?}", chains.threads);
    assert!(sleepers.iter().all(|thread| thread.sleeps >= 1 && thread.asleep_ns >= 1_000_000));
    assert!(chains.threads.iter().any(|thread| thread.pid == pid && thread.sleeps >= ROUNDS));
    assert_eq!(chains.idle, 0);
}

#[test]
fn absent_process_is_named() {
    let scope = SampleScope::Processes(vec![u32::MAX / 2]);
    let options = ChainOptions::new(SampleKind::CpuClock { hertz: 100 }, scope);
    let error = ChainSampler::start(&options).unwrap_err();
    assert_eq!(error, SamplerError::NoProcess(u32::MAX / 2));
}

#[test]
fn senseless_rates_are_refused() {
    for kind in [
        SampleKind::CpuClock { hertz: 0 },
        SampleKind::CpuClock { hertz: 1_000_000 },
        SampleKind::ContextSwitches { every: 0 },
    ] {
        let error = Sampler::start(kind, &SampleScope::WholeMachine).unwrap_err();
        assert_eq!(error, SamplerError::BadRate);
    }
}

#[test]
fn the_scheduler_is_known_by_name() {
    for name in ["schedule", "__schedule", "io_schedule_timeout", "schedule_hrtimeout_range.part.0"]
    {
        assert!(is_scheduling(name), "{name}");
    }
    for name in ["", "futex_wait_queue", "folio_wait_bit_common", "schedule_work", "do_wait"] {
        assert!(!is_scheduling(name), "{name}");
    }
    assert_eq!(cpus_in("0-2,5"), Some(vec![0, 1, 2, 5]));
}
