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
use std::process::{Child, Command};
use std::sync::LazyLock;

use unherd_sys::primitives::thread;
use unherd_testkit::Seed;

use crate::power::disk::Disk;
use crate::power::expected::Expected;
use crate::power::writers::{PROGRAM, Record, Setup};
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

/// Runs a command of several words. The error is what it says.
fn run(command: &str, arguments: &[&Path]) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).args(arguments).output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Why there are no such disks here, if so.
fn missing(file_system: &FileSystem) -> Option<String> {
    let program = file_system.make.split_whitespace().next().unwrap();
    let needed =
        ["/dev/fuse", "/dev/loop-control"].into_iter().find(|path| !Path::new(path).exists());
    let exists = Command::new(program).arg("-V").output().is_ok();
    needed.or((!exists).then_some(program)).map(|name| format!("there is no {name}"))
}

/// A mounted file system.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(options: &str, what: &Path, at: &'a Path) -> Result<Self, String> {
        std::fs::create_dir_all(at).unwrap();
        run(&format!("mount -o {options}"), &[what, at]).map(|()| Self(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // A killed process may still have transfers under way.
        while run("umount", &[self.0]).is_err() && !thread::panicking() {
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

/// Writes, lets the power fail once, and checks what is left. Gives what is wrong with it, and
/// `None` if such a file system cannot be mounted here.
fn cut_power(
    file_system: &FileSystem,
    seed: &mut Seed,
    setup: Setup,
    refuses: bool,
) -> Option<Result<(), String>> {
    let _turn = turn();
    let dir = real_dir();
    let at = |name: &str| dir.path().join(name);
    let (log, image, files, left) = (at("log"), at("image"), at("files"), at("left"));
    std::fs::create_dir(at("disk")).unwrap();
    let disk = Disk::new(file_system.bytes, seed.next_u64());
    let session = disk.serve(&at("disk")).unwrap();
    let device = at("disk").join(Disk::FILE);
    run(file_system.make, &[&device]).unwrap();
    let mounted = Mounted::new(file_system.options, &device, &files);
    let mounted = mounted.inspect_err(|error| eprintln!("skipped: {error}")).ok()?;
    File::create(&log).unwrap();
    let mut writers = setup.command(&files, &log, seed.next_u64());
    let mut writers = Writers(writers.spawn().unwrap());
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
    let after = disk.after_power_cut(seed);
    let begun = Record::all(&std::fs::read(&log).unwrap());
    disk.refuse_data(0);
    drop(writers);
    drop(mounted);
    drop(session);
    write_sparse(&image, &after);
    let expected = Expected::new(&begun, ended, setup.page_bytes, refuses);
    let compared = Mounted::new(file_system.options, &image, &left)
        .and_then(|mounted| expected.check(mounted.0));
    Some(compared.and_then(|synced| {
        if synced > 0 { Ok(()) } else { Err("nothing was there to compare".to_owned()) }
    }))
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
    let cuts = std::env::var("UNHERD_POWER_CUTS").map_or(3, |cuts| cuts.parse().unwrap());
    let mut seed = Seed::of_test(0x9017);
    let on_one = |file_system: &FileSystem, seed: &mut Seed| {
        let fits = |setup: &Setup| setup.page_bytes >= file_system.page_bytes_min;
        let first = seed.below(Setup::ALL.len() as u64) as usize;
        for setup in Setup::ALL.into_iter().filter(fits).cycle().skip(first).take(cuts) {
            let Some(outcome) = cut_power(file_system, seed, setup, refuses) else { return };
            if let Err(difference) = outcome {
                panic!("{}, {setup:?}: {difference}", file_system.make);
            }
        }
    };
    let on_all = || {
        if !own_mounts() {
            return eprintln!("skipped: it takes root to mount a disk");
        }
        for file_system in FILE_SYSTEMS {
            match missing(&file_system) {
                Some(why) => eprintln!("skipped: {why}"),
                None => on_one(&file_system, &mut seed),
            }
        }
    };
    LazyLock::force(&PROGRAM);
    thread::scope(|scope| scope.spawn(on_all).join().unwrap());
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
