//! `unherd trace`: what it prints and how it exits.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::place::Ran;

/// `unherd trace` with these arguments.
pub(crate) fn trace(args: &[&str]) -> Command {
    let mut command = with_default_signals(env!("CARGO_BIN_EXE_unherd"));
    command.arg("trace").args(args).stdin(Stdio::null());
    command
}

/// A command that does not ignore SIGINT and SIGQUIT, even where the tests do, as the background
/// job of a script does.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,QUIT").arg(program);
    command
}

pub(crate) fn ran(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Whether this machine lets nobody trace, which is printed.
pub(crate) fn is_refused(ran: &Ran) -> bool {
    let refused = ran.code == Some(125)
        && ["not permitted", "has no BTF", "locked down"]
            .iter()
            .any(|why| ran.stderr.contains(why));
    if refused {
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        println!("skipped: {}", ran.stderr);
    }
    refused
}

fn file(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn root_exit_code_and_output_are_the_commands() {
    for (script, code) in [("echo out", 0), ("echo out; exit 7", 7), ("echo out; kill -9 $$", 137)]
    {
        let ran = ran(trace(&["--", "sh", "-c", script]));
        if is_refused(&ran) {
            return;
        }
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert_eq!(ran.stdout, "out\n");
        assert!(ran.stderr.contains("\nSummary\n"), "{ran:?}");
        let told = ran.stderr.contains("unherd: the command was killed by signal 9 (SIGKILL)\n");
        assert_eq!(told, code == 137, "{ran:?}");
    }
    let ran = ran(trace(&["-o", "/dev/null", "--", "sh", "-c", "kill -SEGV $$"]));
    let told = ran.stderr.starts_with("unherd: the command was killed by signal 11 (SIGSEGV)");
    assert!(ran.code == Some(139) && told && ran.stderr.lines().count() == 1, "{ran:?}");
}

#[test]
fn unrunnable_commands_exit_like_env() {
    let directory = tempfile::tempdir().unwrap();
    let [text, orphan] = ["text", "orphan"].map(|name| file(&directory, name));
    fs::write(&text, "no program").unwrap();
    fs::write(&orphan, "#!/nonexistent/interpreter\n").unwrap();
    fs::set_permissions(&orphan, fs::Permissions::from_mode(0o755)).unwrap();
    let advice = "name a program";
    let commands = [
        ("/nonexistent/program", 127, advice),
        ("nosuchcommand", 127, advice),
        (&text, 126, advice),
        (&orphan, 127, "it is there, and the interpreter that it names is not"),
        ("orphan", 127, "it is there, and the interpreter that it names is not"),
    ];
    let mut places = vec![directory.path().to_owned()];
    places.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let places = std::env::join_paths(places).unwrap();
    for how in [&["--"][..], &["--unprivileged", "--"]] {
        for (command, code, advice) in commands {
            let mut traced = trace(&[how, &[command]].concat());
            traced.env("PATH", &places);
            let ran = ran(traced);
            if is_refused(&ran) {
                continue;
            }
            assert_eq!(ran.code, Some(code), "{ran:?}");
            assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
            let begin = format!("unherd: cannot run '{command}': ");
            let is_told = ran.stderr.starts_with(&begin);
            assert!(is_told && ran.stderr.ends_with(&format!("; {advice}\n")), "{ran:?}");
        }
    }
}

#[test]
fn root_reports_go_where_they_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["text", "json", "folded", "pprof", "html", "perfetto", "firefox"];
    let files = names.map(|name| file(&directory, name));
    let [text, json, folded, pprof, html, perfetto, firefox] = files;
    let args = ["--full", "-o", &text, "--json", &json, "--folded", &folded];
    let args = [&args[..], &["--perfetto", &perfetto, "--firefox", &firefox]].concat();
    let args = [&args[..], &["--pprof", &pprof, "--html", &html, "--"]].concat();
    let script = "for i in 1 2 3; do sleep 0.01; done";
    let ran = ran(trace(&[&args[..], &["sh", "-c", script]].concat()));
    if is_refused(&ran) {
        return;
    }
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (Some(0), "", ""));
    let text = fs::read_to_string(text).unwrap();
    assert!(text.contains("Top 10 callers of scheduling functions") && !text.contains('\x1b'));
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["schema"], "unherd.trace/1");
    assert_eq!(report["summary"]["processes"], 4, "{report:#}");
    assert!(report["summary"]["sleeps"].as_u64().unwrap() >= 6);
    assert!(report["summary"]["needless_wakeups"]["proven"].is_u64());
    let folded = fs::read_to_string(folded).unwrap();
    for line in folded.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        assert!(stack.contains(';') && weight.parse::<u64>().is_ok(), "{line}");
    }
    assert!(fs::read(&pprof).unwrap().starts_with(&[0x1f, 0x8b]), "it is gzip");
    let firefox: Value = serde_json::from_str(&fs::read_to_string(firefox).unwrap()).unwrap();
    let markers = |of: &Value| of["markers"]["length"].as_u64().unwrap();
    let waits: u64 = firefox["threads"].as_array().unwrap().iter().map(markers).sum();
    assert!(waits >= 6, "{firefox:#}");
    let perfetto = fs::read(perfetto).unwrap();
    assert!(perfetto.windows(5).any(|of| of == b"woken"), "the waits are there, one by one");
    let html = fs::read_to_string(html).unwrap();
    assert!(html.contains(&format!("<h1>{}", text.split([' ', '<']).next().unwrap())), "{html}");
}

#[test]
fn root_stall_at_gate_is_told() {
    let runner = [env!("CARGO_BIN_EXE_unherd"), "load", "stall", "--with", "paced"];
    let scene = ["--threads", "3", "--seed", "1", "--param", "scene=stuck"];
    let sizes = ["--param", "stall-ms=900", "--param", "fills=3", "--param", "tables=2"];
    let args = ["--format", "json", "--duration", "0.6", "--"];
    let ran = ran(trace(&[&args[..], &runner, &scene, &sizes].concat()));
    if is_refused(&ran) {
        return;
    }
    let report: Value = serde_json::from_str(&ran.stderr).unwrap();
    let gate = &report["ledgers"][0]["gates"][0];
    // The ledger is read a little after the traced time.
    let has_begun = |of: &Value| of.as_u64().unwrap() > 0;
    assert!(has_begun(&gate["stalled_ns"]), "{gate:#}");
    assert_eq!((&gate["waiting"], &gate["progress_ago_ns"]), (&3.into(), &Value::Null), "{gate:#}");
    let waiters = gate["waiters"].as_array().unwrap();
    assert_eq!(waiters.len(), 3, "{gate:#}");
    for waiter in waiters {
        assert!(waiter["thread"].is_u64() && has_begun(&waiter["waited_ns"]), "{gate:#}");
    }
}

#[test]
fn root_json_alone_is_one_object() {
    let ran = ran(trace(&["--format", "json", "--", "sleep", "0.01"]));
    if is_refused(&ran) {
        return;
    }
    let report: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert!(report["waits"]["schema"] == "unherd.waits/1", "{report:#}");
}

#[test]
fn root_exceeded_budget_names_worst_site() {
    let script = "for i in 1 2 3; do sleep 0.01; done; exit";
    let run = |budgets: &[&str], code: &str| {
        let script = format!("{script} {code}");
        let command = ["-o", "/dev/null", "--", "sh", "-c", &script];
        ran(trace(&[budgets, &command].concat()))
    };
    let kept = run(&["--max", "sleeps=1000000", "--max", "needless_wakeups.proven=1000"], "0");
    if is_refused(&kept) {
        return;
    }
    assert_eq!((kept.code, &*kept.stderr), (Some(0), ""));
    let exceeded = run(&["--max", "sleeps=1", "--max", "herds=1000"], "0");
    assert_eq!(exceeded.code, Some(1), "{exceeded:?}");
    assert_eq!(exceeded.stderr.lines().count(), 1, "{exceeded:?}");
    assert!(exceeded.stderr.starts_with("unherd: budget exceeded: sleeps is "), "{exceeded:?}");
    assert!(exceeded.stderr.contains("the worst: "), "{exceeded:?}");
    // The command's own failure says more.
    assert_eq!(run(&["--max", "sleeps=1"], "9").code, Some(9));
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let me = std::process::id();
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
    let thread = threads.filter(|tid| *tid != me).max().unwrap().to_string();
    for (args, what) in [
        ("", "nothing to trace is given; write unherd trace -- CMD…, or give --pid PID or"),
        ("--full", "nothing to trace is given; write unherd trace -- CMD"),
        ("-p 4000000000", "there is no process 4000000000"),
        ("-p 0", "there is no process 0"),
        ("-p x", "give a process's number, which pgrep 'x' may tell"),
        (&format!("-p {thread}"), &format!("is a thread of process {me}; give -p {me}")),
        ("-p 1 -- true", "cannot be used with"),
        ("--cgroup /nonexistent", "'/nonexistent' is no control group"),
        ("--cgroup /proc", "'/proc' is no control group"),
        ("--duration 0 -- true", "give seconds, more than 0, or 'forever'"),
        ("--hertz 20000 -- true", "invalid value '20000'"),
        ("--max needless_wakeups.provn=0 -- true", "`needless_wakeups.proven`"),
        ("--max herd=0 -- true", "'unherd trace --help'"),
        ("--max foo=0 -- true", "no count is called `foo`; see 'unherd trace --help'"),
        ("--max timer_polls -- true", "NAME=N"),
        ("--max timer_polls=few -- true", "`few`"),
        (
            "--no-calls --max sleeps=1 --max needless_wakeups.proven=0 -- true",
            "--max needless_wake",
        ),
        ("--no-calls --max herds=1 -- true", "not counted; leave out --no-calls, or the budget"),
        ("--unprivileged --max stalls=1 -- true", "leave out --unprivileged, or the budget"),
        ("--ful -- true", "'--full'"),
        ("--episodes 10 -- true", "<--perfetto <FILE>|--firefox <FILE>>"),
        ("--perfetto /dev/null --episodes 0 -- true", "1..=1000000"),
        ("--firefox /dev/null --episodes 1000001 -- true", "1..=1000000"),
        ("-o /nonexistent/file -- true", "cannot write '/nonexistent/file'"),
        ("-o /nonexistent/file -- true", "; name a file that can be written"),
        ("--folded / -- true", "cannot write '/'"),
        ("diff /nonexistent /nonexistent", "name two reports that 'unherd trace --json FILE'"),
        ("diff one", "name two: unherd trace diff BEFORE AFTER"),
    ] {
        let args: Vec<&str> = args.split_whitespace().collect();
        let ran = ran(trace(&args));
        assert_eq!(ran.code, Some(125), "{args:?}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {ran:?}");
        assert!(
            ran.stderr.starts_with("unherd: ") && ran.stderr.contains(what),
            "{args:?}: {ran:?}"
        );
    }
}

#[test]
fn diff_exits_with_1_if_worse() {
    let recorded =
        |name: &str| format!("{}/../trace/tests/recorded/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let diff =
        |before: &str, after: &str| ran(trace(&["diff", &recorded(before), &recorded(after)]));
    let same = diff("broadcast", "broadcast");
    assert_eq!((same.code, same.stdout.lines().count()), (Some(0), 1), "{same:?}");
    let worse = diff("idle", "broadcast");
    assert_eq!(worse.code, Some(1), "{worse:?}");
    assert!(worse.stdout.contains("came    needless_wakeups, futex"), "{worse:?}");
    assert!(worse.stdout.contains("worse   in all: changes take 0 % → "), "{worse:?}");
    let directory = tempfile::tempdir().unwrap();
    let lossy = file(&directory, "lossy.json");
    let text = fs::read_to_string(recorded("broadcast")).unwrap();
    let mut report: Value = serde_json::from_str(&text).unwrap();
    report["trust"]["lost_events"] = 1_000_000.into();
    fs::write(&lossy, report.to_string()).unwrap();
    let unknown = ran(trace(&["diff", &recorded("broadcast"), &lossy]));
    assert_eq!((unknown.code, unknown.stderr.lines().count()), (Some(125), 1), "{unknown:?}");
    assert!(unknown.stdout.contains("note    lost events, 0 before and 1,000,000"), "{unknown:?}");
}

#[test]
fn full_disk_asks_for_room() {
    let ran =
        ran(trace(&["--unprivileged", "--json", "/dev/full", "-o", "/dev/null", "--", "true"]));
    if is_refused(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(125), "{ran:?}");
    let advice = "(os error 28); make room there, or name another file\n";
    assert!(ran.stderr.ends_with(advice) && ran.stderr.lines().count() == 1, "{ran:?}");
}

#[test]
fn standard_output_by_a_dash_is_refused() {
    for option in ["-o", "--json", "--html"] {
        let ran = ran(trace(&[option, "-", "--", "true"]));
        assert_eq!(ran.code, Some(125), "{ran:?}");
        let line = format!("unherd: {option} -: standard output is the command's; name a file");
        assert!(ran.stderr.starts_with(&line) && ran.stderr.lines().count() == 1, "{ran:?}");
        assert!(!fs::exists("-").unwrap());
    }
}

#[test]
fn two_outputs_in_one_file_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let [one, other, ran_at_all] = ["one", "other", "ran"].map(|name| file(&directory, name));
    fs::write(&one, "precious").unwrap();
    std::os::unix::fs::symlink(&one, &other).unwrap();
    for (args, what) in [
        (["-o", &one, "--json", &one], "-o and --json are one file"),
        (["-o", &one, "--folded", &other], "-o and --folded are one file"),
        (["--folded", &one, "--json", &other], "--json and --folded are one file"),
    ] {
        let ran = ran(trace(&[&args[..], &["--", "touch", &ran_at_all]].concat()));
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(125), 1), "{ran:?}");
        assert!(ran.stderr.contains(what), "{ran:?}");
        assert_eq!(fs::read_to_string(&one).unwrap(), "precious");
    }
    let mut command = trace(&["--json", &one, "--", "touch", &ran_at_all]);
    command.stderr(fs::File::options().append(true).open(&one).unwrap());
    assert_eq!(command.status().unwrap().code(), Some(125));
    assert!(fs::read_to_string(&one).unwrap().contains("standard error and --json are one file"));
    assert!(!fs::exists(&ran_at_all).unwrap());
    // What is no file takes all.
    let args = ["--unprivileged", "-o", "/dev/null", "--json", "/dev/null", "--", "true"];
    let ran = ran(trace(&args));
    assert!(ran.code == Some(0) || is_refused(&ran), "{ran:?}");
}

#[test]
fn a_longer_output_of_before_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let report = file(&directory, "report");
    fs::write(&report, "x".repeat(1 << 20)).unwrap();
    let args = ["--unprivileged", "--format", "json", "-o", &report, "--", "true"];
    let ran = ran(trace(&args));
    if ran.code == Some(0) {
        let text = fs::read_to_string(&report).unwrap();
        serde_json::from_str::<Value>(&text).unwrap();
    } else {
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn slow_reader_gets_whole_report() {
    let (mut reader, mut stderr) = std::os::unix::net::UnixStream::pair().unwrap();
    // The tracer shares this with its standard error, and finds no room at first.
    stderr.set_nonblocking(true).unwrap();
    let filled = std::iter::from_fn(|| stderr.write(&[b'x'; 4096]).ok()).sum::<usize>();
    let args = ["--unprivileged", "--format", "json", "--max", "sleeps=0", "--"];
    let mut command = trace(&[&args[..], &["sh", "-c", "echo $$; sleep 0.01"]].concat());
    command.stdout(Stdio::piped()).stderr(std::os::fd::OwnedFd::from(stderr));
    let mut tracer = command.spawn().unwrap();
    drop(command);
    let mut pid = String::new();
    BufReader::new(tracer.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    // Its command has been waited for, and it ends, or waits for the reader.
    let wchan = format!("/proc/{}/wchan", tracer.id());
    let call = || fs::read_to_string(&wchan).unwrap_or_default();
    while fs::exists(format!("/proc/{}", pid.trim())).unwrap() {
        std::thread::yield_now();
    }
    while !call().contains("poll") && tracer.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let mut all = String::new();
    reader.read_to_string(&mut all).unwrap();
    let stderr = all.split_off(filled);
    let ran = Ran { code: tracer.wait().unwrap().code(), stdout: String::new(), stderr };
    if is_refused(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let (report, budget) = ran.stderr.trim_end().rsplit_once('\n').unwrap();
    assert!(budget.starts_with("unherd: budget exceeded: sleeps is "), "{budget}");
    serde_json::from_str::<Value>(report).unwrap();
}

#[test]
fn root_a_tracepoint_that_is_missing_is_named() {
    let args = ["--full", "--pretend-missing", "contention_begin", "--", "true"];
    let ran = ran(trace(&args));
    if is_refused(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("contention_begin"), "{ran:?}");
}

#[test]
fn root_somebody_without_privilege_is_told_what_to_grant() {
    let Some(nobody) = as_nobody(trace(&["--", "true"])) else { return };
    let ran = ran(nobody);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    for what in ["CAP_BPF", "CAP_PERFMON", "--unprivileged"] {
        assert!(ran.stderr.contains(what), "{ran:?}");
    }
}

#[test]
fn root_unprivileged_knows_sleeps_not_wakeups() {
    let script = "for i in 1 2 3; do sleep 0.03; done; exit 3";
    let args =
        ["--unprivileged", "--format", "json", "--max", "sleeps=1", "--", "sh", "-c", script];
    let Some(nobody) = as_nobody(trace(&args)) else { return };
    let ran = ran(nobody);
    if is_refused(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let (report, budget) = ran.stderr.trim_end().rsplit_once('\n').unwrap();
    assert!(budget.starts_with("unherd: budget exceeded: sleeps is "), "{budget}");
    let report: Value = serde_json::from_str(report).unwrap();
    let summary = &report["summary"];
    assert!(summary["sleeps"].as_u64().unwrap() >= 6, "{summary}");
    assert_eq!(summary["threads"], 4, "{summary}");
    for ticks in ["kernel_ticks", "idle_ticks"] {
        assert!(report["consumers"].get(ticks).is_some_and(Value::is_null), "{ticks}: {report:#}");
    }
    for unknown in ["needless_wakeups", "wakeups", "herds", "empty_wakes", "timer_polls", "stalls"]
    {
        assert!(summary.get(unknown).is_some_and(Value::is_null), "{unknown}: {summary}");
    }
}

#[test]
fn root_a_process_of_another_user_is_foreign() {
    let Some(nobody) = as_nobody(trace(&["--unprivileged", "-p", "1"])) else { return };
    let ran = ran(nobody);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("process 1 is another user's"), "{ran:?}");
}

/// The command as a user who may do nothing; `None` with the reason printed if that cannot be.
fn as_nobody(mut command: Command) -> Option<Command> {
    const NOBODY: u32 = 65534;
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    let mut probe = Command::new(env!("CARGO_BIN_EXE_unherd"));
    probe.arg("--version").uid(NOBODY).gid(NOBODY).current_dir("/").stdout(Stdio::null());
    match probe.status() {
        Ok(status) if status.success() => Some(command),
        result => {
            println!("skipped: needs root, and the executable where all may read it: {result:?}");
            None
        }
    }
}
