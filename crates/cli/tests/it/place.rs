//! A directory with a runner in it, and the command run there.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// Where one test happens.
pub(crate) struct Place {
    directory: TempDir,
}

/// What the command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The lines, without the one that says that the machine was not quiet.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let is_remark = |line: &&str| line.starts_with("Other programs used the processors");
        self.stdout.lines().filter(|line| !is_remark(line)).collect()
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("runner.sh", include_str!("runner.sh"));
        write("catalogue.json", include_str!("catalogue.json"));
        let runner = directory.path().join("runner.sh");
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unherd"));
        command
            .args(line.split_whitespace())
            .current_dir(self.path())
            .env("UNHERD_RUNNERS", self.path().join("runner.sh"))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ran {
        let output = self.command(line).output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a bench of `stuck` until that is under way.
    pub(crate) fn run_until_stuck(&self, line: &str) -> Stuck {
        let pipe = self.path().join("alive");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let bench =
            self.command(line).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Opening blocks until the runner opens the other end; reading to the end, until it is
        // dead.
        let mut alive = BufReader::new(fs::File::open(&pipe).unwrap());
        alive.read_line(&mut String::new()).unwrap();
        Stuck { bench, alive }
    }

    /// The names of what a bench makes below `--dir`.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_string_lossy().contains("/unherd-")).collect()
    }

    /// How many processes a record holds, without those that were run again for a neighbour.
    pub(crate) fn kept_lines(&self, record: &str) -> usize {
        let rounds = fs::read_dir(self.path().join(record).join("rounds")).unwrap();
        let texts = rounds.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        texts.map(|text| text.matches("\"attempt\":1,").count()).sum()
    }
}

/// Sends a signal to a process, or with a minus to a group, as kill(1) does, which is not
/// everywhere. Whether somebody was there to get it.
pub(crate) fn send(signal: &str, to: &str) -> bool {
    let signal = match signal {
        "-INT" => Signal::INT,
        "-TERM" => Signal::TERM,
        "-HUP" => Signal::HUP,
        "-QUIT" => Signal::QUIT,
        "-KILL" => Signal::KILL,
        other => panic!("no signal {other}"),
    };
    let number = |text: &str| Pid::from_raw(text.parse().unwrap()).unwrap();
    match to.strip_prefix('-') {
        Some(group) => kill_process_group(number(group), signal).is_ok(),
        None => kill_process(number(to), signal).is_ok(),
    }
}

/// A bench whose runner hangs.
pub(crate) struct Stuck {
    bench: Child,
    alive: BufReader<fs::File>,
}

impl Stuck {
    pub(crate) fn pid(&self) -> u32 {
        self.bench.id()
    }

    /// Sends `signal`, and returns once the bench has ended and no child of it is left.
    pub(crate) fn end_by(mut self, signal: &str) -> Ran {
        let pid = self.bench.id().to_string();
        assert!(send(signal, &pid));
        let output = self.bench.wait_with_output().unwrap();
        self.alive.read_to_end(&mut Vec::new()).unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
