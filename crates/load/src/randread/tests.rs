use std::io;
use std::path::Path;

use super::RandRead;
use super::plan::Plan;
use super::scene::{self, RandomFile};
use crate::files::{KernelFile, Way};
use crate::{Job, LoadError, Span, Workload};

fn job(dir: &Path) -> Job {
    let mut job = Job::new(&RandRead.describe(), "kernel", 2);
    job.memory_bytes = Some(1 << 20);
    job.params.set("file", "1M").unwrap();
    job.params.set("reads", "2000").unwrap();
    job.dir = Some(dir.to_path_buf());
    job
}

/// A file that gives the page after the one that is asked for, where there is one.
struct NextPage(KernelFile);

impl RandomFile for NextPage {
    fn read_at(&self, page: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(page, (offset + 4096).min((1 << 20) - 4096))
    }

    const COUNTS_WAKEUPS: bool = false;
}

#[test]
fn a_page_of_another_place_is_found() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let job = job(dir.path());
    let open = |path: &Path| {
        Ok((NextPage(KernelFile::open(path, Way::Buffered).unwrap()), Span::default()))
    };
    let error = scene::run(&job, &Plan::of(&job).unwrap(), open).unwrap_err();
    assert!(matches!(error, LoadError::Corrupt { .. }), "{error}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn sequences_are_repeatable_and_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::of(&job(dir.path())).unwrap();
    let sequence = |thread| plan.sequence(thread).collect::<Vec<_>>();
    assert_eq!(sequence(0).len(), 1000);
    assert_eq!(sequence(0), sequence(0));
    assert_ne!(sequence(0), sequence(1));
    assert!(sequence(0).iter().all(|page| *page < plan.pages));
}
