//! What the tests have in common: devices, caches, and one test at a time.

use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use proptest::test_runner::Config;
use unherd_cache::{Cache, CacheBuilder, Error, File, Io, OpenOptions};
use unherd_sys::primitives::{Arc, Mutex, MutexGuard, thread};
use unherd_sys::{Device, DirectDevice};
use unherd_testkit::{FaultPlan, Seed, SimDevice};

pub(crate) const BOTH: [Io; 2] = [Io::Blocking, Io::Queued];

/// The ways to a real device.
pub(crate) fn real_devices() -> [(Io, Arc<dyn Device>); 3] {
    [
        (Io::Blocking, Arc::new(DirectDevice::new())),
        (Io::Queued, Arc::new(DirectDevice::new())),
        (Io::Queued, Arc::new(DirectDevice::without_io_uring())),
    ]
}

/// How long one turn may last. A test that takes so long hangs.
const TURN_MAX: Duration = Duration::from_secs(240);

/// One test's turn, until dropped.
pub(crate) struct WriteAccess {
    _alone: MutexGuard<'static, ()>,
    /// Dropped with the turn, which ends the thread that watches it.
    _over: mpsc::Sender<()>,
}

/// The ledger counts for the whole process, so tests that may wait take turns. A turn that does not
/// end aborts the process, which leaves the stacks for a debugger.
pub(crate) fn turn() -> WriteAccess {
    static TURN: Mutex<()> = Mutex::new(());
    let alone = TURN.lock();
    let test = thread::current().name().unwrap_or_default().to_owned();
    let (over, watched) = mpsc::channel();
    thread::spawn(move || {
        if watched.recv_timeout(TURN_MAX) == Err(RecvTimeoutError::Timeout) {
            // Not by `eprintln`, whose output the test harness would keep.
            let _ = writeln!(std::io::stderr(), "{test} hangs");
            std::process::abort();
        }
    });
    WriteAccess { _alone: alone, _over: over }
}

pub(crate) fn sim(seed: u64, plan: FaultPlan) -> Arc<SimDevice> {
    Arc::new(SimDevice::with_faults(Seed::new(seed), plan))
}

/// A cache of this many pages; one that runs out of frames says so soon.
pub(crate) fn small(frames: usize, page_bytes: usize) -> CacheBuilder {
    Cache::builder()
        .capacity(frames * page_bytes)
        .page_size(page_bytes)
        .io(Io::Blocking)
        .frame_wait(Duration::from_secs(5))
        // Tests that count transfers may take longer than pages may be dirty.
        .dirty_expire(Duration::MAX)
}

pub(crate) fn writable() -> OpenOptions {
    OpenOptions::new().write(true).create(true)
}

/// Closes the handle, and lets it go.
pub(crate) fn close(file: File) -> Result<(), Error> {
    file.close()
}

/// A directory on a real disk, gone at the end of the test.
pub(crate) fn real_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

/// This many random cases, or `PROPTEST_CASES`. A failing case is printed, not kept in a file.
pub(crate) fn cases(cases: u32) -> Config {
    let told = std::env::var_os("PROPTEST_CASES").is_some();
    let default = Config { failure_persistence: None, ..Config::default() };
    if told { default } else { Config { cases, ..default } }
}
