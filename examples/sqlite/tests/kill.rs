//! kill -9 in the middle of transactions: what was committed is there, and nothing is damaged.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rusqlite::Connection;

const PROGRAM: &str = env!("CARGO_BIN_EXE_unherd-example-sqlite");
const KILLS: u64 = 20;

/// Killed when it is dropped.
struct Committing(Child);

impl Drop for Committing {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Lets the program go on until it has told `lines` times how far it is, and kills it. Gives the
/// records that it has committed, if it came to a commit.
fn kill_after(lines: usize, journal: &str, dir: &Path) -> Option<i64> {
    let mut command = Command::new(PROGRAM);
    command.args(["commit", journal]).arg(dir).stdout(Stdio::piped());
    let mut child = Committing(command.spawn().unwrap());
    let mut told = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut committed = None;
    for _ in 0..lines {
        let line = told.next().expect("the program ended by itself").unwrap();
        committed = line.parse().ok().or(committed);
    }
    drop(child);
    // What it told before it died.
    told.map_while(Result::ok).filter_map(|line| line.parse().ok()).last().or(committed)
}

fn nothing_is_lost(journal: &str) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (mut committed, mut in_the_middle) = (0, 0);
    for kill in 0..KILLS {
        // A commit comes after 20 lines in the mean.
        let lines = 1 + (kill * 37 % 101) as usize;
        committed = kill_after(lines, journal, dir.path()).unwrap_or(committed);
        // What a copy says: a reader of the file itself would roll back for the next round, which
        // is to do that by the cache.
        let copy = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut files = 0;
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let from = entry.unwrap();
            files += std::fs::copy(from.path(), copy.path().join(from.file_name())).unwrap().min(1);
        }
        in_the_middle += u64::from(files > 1);
        let database = Connection::open(copy.path().join("data.db")).unwrap();
        let check: String =
            database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok", "after kill {kill}");
        let (found, last): (i64, Option<i64>) = database
            .query_row("SELECT count(*), max(key) FROM t", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert!(found >= committed, "kill {kill}: {committed} were committed, {found} are there");
        assert_eq!(found, last.map_or(0, |last| last + 1), "kill {kill}: records are missing");
    }
    // It had a journal with something in it, most times at least.
    assert!(committed > 0 && in_the_middle > KILLS / 2, "{committed} {in_the_middle}");
}

#[test]
fn delete_mode_loses_nothing_by_kill() {
    nothing_is_lost("delete");
}

#[test]
fn wal_loses_nothing_by_kill() {
    nothing_is_lost("wal");
}
