use std::process::Command;

use super::*;
use crate::{ChildProcess, Deadline, SpawnHow};

/// A sampler, or the reason why there can be none here printed.
fn start(kind: SampleKind, scope: SampleScope) -> Option<Sampler> {
    match Sampler::start(kind, scope) {
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
fn root_a_hungry_child_is_seen_in_user_mode() {
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
fn root_a_child_that_copies_is_seen_in_the_kernel() {
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
fn root_sleepers_are_told_by_who_called_the_scheduler() {
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
fn senseless_rates_are_refused() {
    for kind in [
        SampleKind::CpuClock { hertz: 0 },
        SampleKind::CpuClock { hertz: 1_000_000 },
        SampleKind::ContextSwitches { every: 0 },
    ] {
        let error = Sampler::start(kind, SampleScope::WholeMachine).unwrap_err();
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
