use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::Stdio;

use unherd_host::Cgroup;

use super::*;
use crate::UnprivilegedSession;
use crate::observation::Object;

/// Long enough for anything here; a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

fn deadline() -> Deadline {
    Deadline::after(PATIENCE)
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

/// A session, or the reason why there can be none here printed.
fn start(target: Target) -> Option<Session> {
    match Session::start(target, &SessionOptions { hertz: 997, ..SessionOptions::default() }) {
        Ok(session) => Some(session),
        Err(SessionError::Trace(error @ (TraceError::NotPermitted | TraceError::NoBtf))) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const HUNGRY: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

#[test]
fn root_command_is_followed_with_children() {
    // The first child executes nothing, the second another program.
    let script = format!("({HUNGRY}); sleep 0.01; {HUNGRY}; exit 7");
    let Some(mut session) = start(Target::Command(shell(&script))) else { return };
    let pid = session.command_pid().unwrap();
    let Pause::Ended(Some(status)) = session.run(deadline(), None).unwrap() else {
        panic!("not ended")
    };
    assert_eq!(status.code(), Some(7));
    let seen = session.finish().unwrap();
    let processes: Vec<&str> = seen.processes.iter().map(|p| p.comm.as_str()).collect();
    assert_eq!(seen.processes.len(), 3, "{processes:?}");
    assert!(processes.contains(&"sleep"), "{processes:?}");
    let samples = seen.samples.as_ref().unwrap();
    assert!(samples.rows.iter().all(|row| seen.processes.iter().any(|p| p.pid == row.pid)));
    let ids = samples.rows.iter().flat_map(|row| [row.user, row.kernel]).flatten();
    assert!(ids.into_iter().all(|id| seen.stacks.contains_key(&id)));
    for process in &seen.processes {
        assert!(!process.maps_lost, "{process:?}");
        assert!(process.maps.iter().any(|map| map.path.contains("libc")), "{process:?}");
        if process.comm == "sleep" {
            assert!(process.maps.iter().any(|map| map.path.ends_with("/sleep")), "{process:?}");
        } else {
            let ticks = samples.rows.iter().filter(|row| row.pid == process.pid);
            assert!(ticks.map(|row| row.count).sum::<u64>() > 10, "{samples:?}");
        }
    }
    assert!(seen.processes.iter().any(|process| process.pid == pid));
    assert!(samples.delivered <= samples.expected + samples.expected / 10 + 2 * 997);
    assert!(matches!(session.finish(), Err(SessionError::System(Errno::CANCELED))));
}

#[test]
fn root_reused_process_number_is_noticed() {
    const REFUSED: i32 = 99;
    // The next process gets the number after the last that is free. Others may have the first one
    // by then, and then another number comes again.
    let script = r#"first=; seen=; again=0
        for i in 1 2 3 4 5 6 7 8 9; do
            [ -z "$first" ] || echo $((first - 1)) > /proc/sys/kernel/ns_last_pid || exit 99
            /bin/true &
            first=${first:-$!}
            case "$seen " in *" $! "*) again=$((again + 1)) ;; esac
            seen="$seen $!"
            wait
        done 2>/dev/null
        exit $again"#;
    let Some(mut session) = start(Target::Command(shell(script))) else { return };
    let Pause::Ended(Some(status)) = session.run(deadline(), None).unwrap() else {
        panic!("not ended")
    };
    let seen = session.finish().unwrap();
    match status.code() {
        Some(0 | REFUSED) => println!("skipped: no number could be had again: {status}"),
        code => assert_eq!(code, i32::try_from(seen.losses.reused_pids).ok(), "{seen:?}"),
    }
}

#[test]
fn root_attached_process_goes_on() {
    let mut command = shell("while read line; do echo \"$line\"; done");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
    let (mut to, mut from) = (child.take_stdin().unwrap(), child.take_stdout().unwrap());
    let stat = format!("/proc/{}/stat", child.pid());
    let mut ask = || {
        // Else it may find the next line before it has gone to sleep for it.
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            std::thread::yield_now();
        }
        to.write_all(b"a\n").unwrap();
        from.read_exact(&mut [0; 2]).unwrap();
    };
    ask();
    let Some(mut session) = start(Target::Processes(vec![child.pid()])) else { return };
    (0..50).for_each(|_| ask());
    let soon = Deadline::after(Duration::from_millis(20));
    assert_eq!(session.run(soon, None).unwrap(), Pause::Deadline);
    let (stop, mut stopping) = std::os::unix::net::UnixStream::pair().unwrap();
    stopping.write_all(b"x").unwrap();
    assert_eq!(session.run(deadline(), Some(stop.as_fd())).unwrap(), Pause::Ready);
    let seen = session.finish().unwrap();
    let process = seen.processes.iter().find(|process| process.pid == child.pid()).unwrap();
    assert!(process.maps.iter().any(|map| map.path.contains("libc")), "{process:?}");
    let sleeps: u64 = seen.waits.iter().map(|row| row.sleeps).sum();
    assert!(sleeps >= 49, "{:?}", seen.waits);
    let input = seen.waits.iter().find(|row| row.object == Object::Descriptor(0));
    assert!(input.is_some_and(|row| row.object_name.as_deref() == Some("pipe")), "{input:?}");
    ask();
    drop(to);
    assert!(child.wait(deadline()).unwrap().unwrap().status.success());
}

#[test]
fn root_last_process_ends_the_session() {
    let mut child = ChildProcess::spawn(shell("read line"), SpawnHow::default()).unwrap();
    let mut command = shell("read line");
    command.stdin(Stdio::piped());
    let mut waiting = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
    let Some(mut session) = start(Target::Processes(vec![waiting.pid()])) else { return };
    drop(waiting.take_stdin());
    assert_eq!(session.run(deadline(), None).unwrap(), Pause::Ended(None));
    child.wait(deadline()).unwrap();
}

#[test]
fn root_processes_entering_cgroup_are_followed() {
    let group = match Cgroup::create(1 << 30) {
        Ok(group) => group,
        Err(error) => return println!("skipped: {error}"),
    };
    let procs = group.dir().join("cgroup.procs");
    let Some(mut session) = start(Target::Cgroup(group.dir().to_owned())) else { return };
    let mut command = shell("while read line; do sleep 0.01; done");
    command.stdin(Stdio::piped());
    let mut child = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
    let mut to = child.take_stdin().unwrap();
    std::fs::write(&procs, format!("{}\n", child.pid())).unwrap();
    // It is found within this time, or the next round finds it.
    let mut rounds = 0;
    let seen = loop {
        let soon = Deadline::after(Duration::from_millis(150));
        assert_eq!(session.run(soon, None).unwrap(), Pause::Deadline);
        to.write_all(b"go\n").unwrap();
        rounds += 1;
        if rounds == 10 {
            break session.finish().unwrap();
        }
    };
    let process = seen.processes.iter().find(|process| process.pid == child.pid());
    assert!(process.is_some_and(|process| !process.maps.is_empty()), "{:?}", seen.processes);
    assert!(seen.processes.iter().any(|process| process.comm == "sleep"), "{:?}", seen.processes);
    drop(to);
    child.wait(deadline()).unwrap();
}

#[test]
fn root_a_dropped_session_kills_its_command() {
    let Some(session) = start(Target::Command(shell("exec sleep 1000"))) else { return };
    let pid = session.command_pid().unwrap();
    drop(session);
    assert!(matches!(
        Running::find(&Target::Processes(vec![pid])),
        Err(SessionError::NoProcess { .. })
    ));
}

#[test]
fn absent_command_is_named_without_privilege() {
    let target = Target::Command(Command::new("/nonexistent/program"));
    match UnprivilegedSession::start(target, 99) {
        Err(SessionError::Spawn { program, source }) => {
            assert_eq!(program, "/nonexistent/program");
            assert_eq!(source.kind(), io::ErrorKind::NotFound);
        }
        result => panic!("{result:?}"),
    }
}

#[test]
fn without_privilege_sleeps_are_counted() {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; exit 3";
    let target = Target::Command(shell(script));
    let mut session = UnprivilegedSession::start(target, 997).unwrap();
    let Pause::Ended(Some(status)) = session.run(deadline(), None).unwrap() else {
        panic!("not ended")
    };
    assert_eq!(status.code(), Some(3));
    let seen = session.finish().unwrap();
    if seen.samples.is_none() {
        println!("skipped: {:?}", seen.missing);
        return;
    }
    assert_eq!(seen.processes.len(), 11, "{:?}, {:?}", seen.losses, seen.processes);
    // When a sleep is to end is set before the thread leaves its processor, and others may run in
    // between: one of 100 ms may be tens of milliseconds shorter.
    let sleepers = seen.waits.iter().filter(|row| row.asleep_ns >= 15_000_000);
    // Each of the ten, and the shell that waits for them.
    assert_eq!(sleepers.count(), 11, "{:?}", seen.waits);
    assert_eq!(seen.totals.sleeps, seen.waits.iter().map(|row| row.sleeps).sum::<u64>());
    assert!(seen.totals.sleeps >= 20 && seen.totals.threads == 11);
    assert!(seen.waits.iter().any(|row| !row.stacks.is_empty()), "{:?}", seen.waits);
    assert!(seen.processes.iter().all(|process| !process.maps_lost), "{:?}", seen.processes);
}
