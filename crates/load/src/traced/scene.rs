//! The programs of `traced`, and the clients that drive them.

use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use unherd_host::{BusyTime, ChildProcess, SpawnHow};
use unherd_sys::{Deadline, Timestamp};

use super::{Tracer, command_of};
use crate::{Job, LoadError};

#[derive(Debug, Clone, Copy)]
pub(super) enum Scene {
    Pipe,
    Nginx,
    Postgres,
}

/// A program that takes longer than this to begin, or to end, is given up.
const PATIENCE: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(20);

/// How fast the program was, and what the machine did for each operation meanwhile.
pub(super) struct Speed {
    pub(super) per_s: f64,
    pub(super) cpu_us: f64,
    pub(super) system_us: f64,
}

/// Runs the clients and reads how many operations there were in a second.
fn timed(clients: impl FnOnce() -> Result<f64, LoadError>) -> Result<Speed, LoadError> {
    let (begin, busy_before) = (Timestamp::now(), BusyTime::now().map_err(LoadError::BusyTime)?);
    let per_s = clients()?;
    let busy = BusyTime::now().map_err(LoadError::BusyTime)?.since(busy_before);
    let operations = per_s * Timestamp::now().since(begin).as_secs_f64();
    let us = |ns: u64| ns as f64 / 1e3 / operations;
    Ok(Speed { per_s, cpu_us: us(busy.busy_ns()), system_us: us(busy.system_ns) })
}

impl Scene {
    pub(super) fn named(name: &str) -> Result<Self, LoadError> {
        match name {
            "pipe" => Ok(Self::Pipe),
            "nginx" => Ok(Self::Nginx),
            "postgres" => Ok(Self::Postgres),
            other => {
                Err(LoadError::usage(format!("scene={other}: there are pipe, nginx and postgres")))
            }
        }
    }

    /// Runs it, under the tracer if that is to watch it.
    pub(super) fn run(self, job: &Job, tracer: &Tracer) -> Result<Speed, LoadError> {
        let dir = job.dir()?;
        let seconds = job.params.at_least_one("seconds")?;
        match self {
            Self::Pipe => pipe(tracer, dir, job.params.at_least_one("loops")?),
            Self::Nginx => nginx(tracer, dir, job.threads, seconds),
            Self::Postgres => postgres(tracer, dir, job.threads, seconds),
        }
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Two processes that pass a byte to and fro. `perf` times the loop itself, without its start.
fn pipe(tracer: &Tracer, dir: &Path, loops: usize) -> Result<Speed, LoadError> {
    let output = dir.join("pipe");
    let loops_word = loops.to_string();
    // Written by a shell, since the tracers pass the standard output through in different ways.
    let line = format!("exec perf bench -f simple sched pipe -l {loops_word} > \"$0\"");
    let mut program = words(&["sh", "-c", &line]);
    program.push(output.clone().into_os_string());
    timed(|| {
        let mut child = spawn(tracer.command(&program))?;
        wait(&mut child, "perf bench", Deadline::after(6 * PATIENCE))?;
        let text = std::fs::read_to_string(&output)
            .map_err(|source| LoadError::Open { path: output, source })?;
        let seconds = number(text.trim(), "perf bench")?;
        Ok(loops as f64 / seconds)
    })
}

/// A web server with two workers, a page in memory, and wrk.
fn nginx(tracer: &Tracer, dir: &Path, clients: usize, seconds: usize) -> Result<Speed, LoadError> {
    let port = free_port()?;
    let config = dir.join("nginx.conf");
    let place = dir.display();
    let text = format!(
        "daemon off; worker_processes 2; pid {place}/nginx.pid; error_log {place}/error.log;\n\
         events {{ worker_connections 1024; accept_mutex off; }}\n\
         http {{ access_log off;\n\
         client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;\n\
         fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi;\n\
         scgi_temp_path {place}/scgi; server {{ listen 127.0.0.1:{port};\n\
         location / {{ return 200 \"{}\"; }} }} }}\n",
        "x".repeat(512)
    );
    write(&config, &text)?;
    let nginx = |more: &[&str]| {
        let mut line = words(&["nginx", "-p"]);
        line.extend([dir.into(), "-e".into(), dir.join("error.log").into(), "-c".into()]);
        line.push(config.clone().into_os_string());
        line.extend(words(more));
        line
    };
    let mut server = spawn(tracer.command(&nginx(&[])))?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    until(&mut server, "nginx", || TcpStream::connect(address).is_ok())?;
    let (clients, seconds) = (clients.to_string(), format!("{seconds}s"));
    let speed = timed(|| {
        let mut wrk = Command::new("wrk");
        wrk.args(["-t", "1", "-c", &clients, "-d", &seconds]).arg(format!("http://{address}/"));
        number_after(&output(&mut wrk, "wrk")?, "Requests/sec:", "wrk")
    })?;
    output(&mut command_of(&nginx(&["-s", "quit"])), "nginx -s quit")?;
    wait(&mut server, "nginx", Deadline::after(PATIENCE))?;
    Ok(speed)
}

/// A database with small tables in memory, and pgbench's reads.
fn postgres(
    tracer: &Tracer,
    dir: &Path,
    clients: usize,
    seconds: usize,
) -> Result<Speed, LoadError> {
    let programs = postgres_programs()?;
    let program = |name: &str| programs.join(name).into_os_string();
    let data = dir.join("postgres");
    // It refuses to run as root: it becomes the user that its package has made.
    let user = words(&["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    let as_user =
        |line: Vec<OsString>| if is_root() { [user.clone(), line].concat() } else { line };
    let place: &[OsString] = &["-h".into(), data.clone().into(), "-p".into(), "5999".into()];
    let client = |name: &str, more: &[&str]| {
        let line = [vec![program(name)], place.to_vec(), words(more)].concat();
        command_of(&as_user(line))
    };
    let fresh = !data.exists();
    if fresh {
        std::fs::create_dir(&data)
            .map_err(|source| LoadError::Directory { dir: data.clone(), source })?;
        if is_root() {
            output(Command::new("chown").arg("postgres:postgres").arg(&data), "chown")?;
        }
        let line = [
            vec![program("initdb")],
            words(&["-N", "-A", "trust", "-D"]),
            vec![data.clone().into()],
        ];
        output(&mut command_of(&as_user(line.concat())), "initdb")?;
    }
    let server = [
        vec![
            program("postgres"),
            "-D".into(),
            data.clone().into(),
            "-k".into(),
            data.clone().into(),
        ],
        words(&["-h", "", "-p", "5999", "-c", "shared_buffers=64MB", "-c", "fsync=off"]),
    ];
    let mut server = spawn(tracer.command(&as_user(server.concat())))?;
    let socket = data.join(".s.PGSQL.5999");
    until(&mut server, "postgres", || {
        socket.exists() && client("pg_isready", &[]).output().is_ok_and(|out| out.status.success())
    })?;
    if fresh {
        output(&mut client("pgbench", &["-i", "-q", "-s", "2", "postgres"]), "pgbench -i")?;
    }
    let (clients, seconds) = (clients.to_string(), seconds.to_string());
    let bench = ["-S", "-n", "-c", &clients, "-j", "1", "-T", &seconds, "postgres"];
    let speed = timed(|| {
        number_after(&output(&mut client("pgbench", &bench), "pgbench")?, "tps =", "pgbench")
    })?;
    let stop = [vec![program("pg_ctl")], words(&["stop", "-m", "fast", "-D"]), vec![data.into()]];
    output(&mut command_of(&as_user(stop.concat())), "pg_ctl stop")?;
    wait(&mut server, "postgres", Deadline::after(PATIENCE))?;
    Ok(speed)
}

/// Debian keeps them out of PATH, by version.
fn postgres_programs() -> Result<PathBuf, LoadError> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path().join("bin")).max();
    newest.ok_or_else(|| not_installed("postgres"))
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn not_installed(program: &str) -> LoadError {
    let package = match program {
        "perf" | "perf bench" => "linux-perf",
        "nginx" => "nginx-light",
        "postgres" | "pgbench" => "postgresql",
        "offcputime" => "libbpf-tools",
        other => other,
    };
    LoadError::usage(format!("{program} is not here: install the package {package}"))
}

/// Starts the program, whose descendants end with it.
pub(super) fn spawn(command: Command) -> Result<ChildProcess, LoadError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let how = SpawnHow { die_with_parent: true, own_group: true, ..SpawnHow::default() };
    ChildProcess::spawn(command, how).map_err(|source| program_error(&program, source))
}

fn program_error(program: &str, source: std::io::Error) -> LoadError {
    if source.kind() == std::io::ErrorKind::NotFound {
        return not_installed(program);
    }
    LoadError::Program { program: program.to_owned(), message: source.to_string() }
}

/// Waits until it is ready, or has failed.
pub(super) fn until(
    child: &mut ChildProcess,
    program: &str,
    mut ready: impl FnMut() -> bool,
) -> Result<(), LoadError> {
    let end = Deadline::after(PATIENCE);
    while !ready() {
        let ended =
            child.wait(Deadline::after(GLANCE)).map_err(|errno| failed(child, program, errno))?;
        if ended.is_some() {
            return Err(failed(child, program, "ended before it was ready"));
        }
        if end.has_passed(Timestamp::now()) {
            return Err(failed(child, program, "was not ready in time"));
        }
    }
    Ok(())
}

/// Waits for its end, which has to be a success.
fn wait(child: &mut ChildProcess, program: &str, deadline: Deadline) -> Result<(), LoadError> {
    match child.wait(deadline) {
        Ok(Some(end)) if end.status.success() => Ok(()),
        Ok(Some(end)) => Err(failed(child, program, format!("ended with {}", end.status))),
        Ok(None) => Err(failed(child, program, "did not end in time")),
        Err(errno) => Err(failed(child, program, errno)),
    }
}

/// With the last line that the program, or its tracer, had to say.
fn failed(child: &mut ChildProcess, program: &str, what: impl ToString) -> LoadError {
    // A child that still runs would keep the pipe open.
    let _ = child.kill();
    let mut text = String::new();
    if let Some(mut stderr) = child.take_stderr() {
        let _ = stderr.read_to_string(&mut text);
    }
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let message = format!("{}: {last}", what.to_string());
    LoadError::Program { program: program.to_owned(), message }
}

/// Runs a client, which has to succeed, for its output.
fn output(command: &mut Command, program: &str) -> Result<String, LoadError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = command.output().map_err(|source| program_error(&name, source))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        let message = format!("{}: {}", out.status, text.lines().last().unwrap_or_default());
        return Err(LoadError::Program { program: program.to_owned(), message });
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn write(path: &Path, text: &str) -> Result<(), LoadError> {
    std::fs::write(path, text).map_err(|source| LoadError::Open { path: path.to_owned(), source })
}

fn free_port() -> Result<u16, LoadError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|source| program_error("a free port", source))
}

fn number(text: &str, program: &str) -> Result<f64, LoadError> {
    text.parse().ok().filter(|number| *number > 0.0).ok_or_else(|| LoadError::Program {
        program: program.to_owned(),
        message: format!("printed {text:?} where a number was expected"),
    })
}

/// The number that follows `label`.
fn number_after(text: &str, label: &str, program: &str) -> Result<f64, LoadError> {
    let rest = text.split(label).nth(1).unwrap_or_default();
    number(rest.split_whitespace().next().unwrap_or_default(), program)
}
