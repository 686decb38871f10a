//! The power fails, on real file systems: what was synced is there when the disk is mounted again.
//!
//! A disk with a volatile write cache (`disk.rs`) is served by FUSE and mounted as a loop device. A
//! process of its own (`writers.rs`) writes, cuts, punches and syncs files on it through a cache,
//! and notes each step in a log that lies elsewhere, before and after it. At a random moment the
//! power fails: of the writes that no flush has covered, a random part is on the disk. What is left
//! is mounted, and each file compared with what it may hold by the log (`expected.rs`).
//!
//! The disk may refuse writes of data as well. Then nothing is promised about what was not synced;
//! a sync that succeeds promises as much as ever.
//!
//! `UNHERD_POWER_CUTS` is the number of cuts on each file system, 3 unless told otherwise.

mod disk;
mod expected;
mod writers;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use unherd_sys::primitives::thread;
use unherd_testkit::Seed;

use crate::power::disk::Disk;
use crate::power::expected::Expected;
use crate::power::writers::{Record, Setup};
use crate::scene::{real_dir, turn};
use crate::space::own_mounts;

/// How it is made, how large it is, what its mounts need, and the least that it writes directly.
struct FileSystem {
    make: &'static str,
    bytes: usize,
    options: &'static str,
    page_bytes_min: usize,
}

const EXT4: FileSystem =
    FileSystem { make: "mkfs.ext4 -q -F", bytes: 128 << 20, options: "loop", page_bytes_min: 512 };
const FILE_SYSTEMS: [FileSystem; 4] = [
    EXT4,
    FileSystem { make: "mkfs.ext4 -q -F -b 1024", ..EXT4 },
    FileSystem { make: "mkfs.xfs -q -f", bytes: 320 << 20, options: "loop,nouuid", ..EXT4 },
    FileSystem { make: "mkfs.btrfs -q -f", bytes: 256 << 20, page_bytes_min: 4096, ..EXT4 },
];

/// The writes of data that a disk refuses, in a thousand.
const REFUSED_PER_MILLE: u32 = 20;

/// Runs a command of several words; whether it succeeds.
fn succeeds(command: &str, arguments: &[&Path]) -> bool {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// A mounted file system.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(options: &str, what: &Path, at: &'a Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        assert!(succeeds(&format!("mount -o {options}"), &[what, at]), "{}", what.display());
        Self(at)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // A killed process may still have transfers under way.
        while !succeeds("umount", &[self.0]) && !thread::panicking() {
            thread::yield_now();
        }
    }
}

/// A process that is killed when it is dropped.
struct Writers(Child);

impl Drop for Writers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn records(log: &Path) -> usize {
    std::fs::metadata(log).unwrap().len() as usize / Record::BYTES
}

/// Writes, lets the power fail once, and checks what is left. False if it takes more than there is.
fn cut_power(file_system: &FileSystem, seed: &mut Seed, setup: Setup, refuses: bool) -> bool {
    let dir = real_dir();
    let at = |name: &str| dir.path().join(name);
    let (log, image) = (at("log"), at("image"));
    std::fs::create_dir(at("disk")).unwrap();
    let disk = Disk::new(file_system.bytes, seed.next_u64());
    let Ok(session) = disk.serve(&at("disk")) else { return false };
    let device = at("disk").join(Disk::FILE);
    if !succeeds(file_system.make, &[&device]) {
        return false;
    }
    let files = at("files");
    let mounted = Mounted::new(file_system.options, &device, &files);
    File::create(&log).unwrap();
    let mut writers = setup.command(&files, &log, seed.next_u64());
    let mut writers = Writers(writers.stdout(Stdio::null()).spawn().unwrap());
    let target = 1000 + seed.below(15_000) as usize;
    let mut run_to = |target| {
        while records(&log) < target {
            assert!(writers.0.try_wait().unwrap().is_none(), "the writers have ended");
            thread::yield_now();
        }
    };
    run_to(target / 2);
    if refuses {
        disk.refuse_data(REFUSED_PER_MILLE);
    }
    run_to(target);
    let ended = records(&log);
    let left = disk.after_power_cut(seed);
    let begun = Record::all(&std::fs::read(&log).unwrap());
    disk.refuse_data(0);
    drop(writers);
    drop(mounted);
    drop(session);
    write_sparse(&image, &left);
    let left = at("left");
    let mounted = Mounted::new(file_system.options, &image, &left);
    let expected = Expected::new(&begun, ended, setup.page_bytes, refuses);
    let checked = expected.check(mounted.0);
    drop(mounted);
    let what = || format!("{}, {setup:?}, UNHERD_SEED={}", file_system.make, seed.origin());
    let synced = checked.unwrap_or_else(|difference| panic!("{}: {difference}", what()));
    assert!(synced > 0, "{}: nothing was synced", what());
    true
}

/// As much of it as is not zero.
fn write_sparse(path: &Path, bytes: &[u8]) {
    const PIECE: usize = 64 << 10;
    let file = File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (nth, piece) in bytes.chunks(PIECE).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, (nth * PIECE) as u64).unwrap();
        }
    }
}

fn cut_power_on_each(refuses: bool) {
    let _turn = turn();
    let cuts = std::env::var("UNHERD_POWER_CUTS").map_or(3, |cuts| cuts.parse().unwrap());
    let mut seed = Seed::of_test(0x9017);
    let run = || {
        if !own_mounts() {
            return eprintln!("skipped: it takes root to mount a disk");
        }
        for file_system in FILE_SYSTEMS {
            let fits = |setup: &Setup| setup.page_bytes >= file_system.page_bytes_min;
            let setups = Setup::ALL.into_iter().filter(fits).cycle().take(cuts);
            for (nth, setup) in setups.enumerate() {
                if !cut_power(&file_system, &mut seed, setup, refuses) {
                    assert_eq!(nth, 0);
                    eprintln!("skipped: no FUSE, or no `{}`", file_system.make);
                    break;
                }
            }
        }
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
}

#[test]
fn root_what_was_synced_survives_power_cuts() {
    cut_power_on_each(false);
}

#[test]
fn root_what_was_synced_survives_on_a_disk_that_refuses_writes() {
    cut_power_on_each(true);
}

/// The process that the tests above start and kill. Elsewhere it does nothing.
#[test]
fn child_that_writes_until_it_is_killed() {
    writers::run_if_asked();
}
