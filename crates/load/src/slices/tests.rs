use std::io;

use super::Slices;
use super::kernel::Large;
use super::plan::Plan;
use super::scene::{self, Reader, SlicedFile};
use crate::files::{AlignedBytes, KernelFile, Way};
use crate::{Job, LoadError, Span, Workload};

const BLOCK_BYTES: usize = 64 << 10;

/// A job of 2 threads with a file of 1 MiB.
fn job(dir: &std::path::Path) -> Job {
    let mut job = Job::new(&Slices.describe(), "kernel", 2);
    job.memory_bytes = Some(1 << 20);
    job.params.set("file", "1M").unwrap();
    job.params.set("block", "64K").unwrap();
    job.dir = Some(dir.to_path_buf());
    job
}

/// A file that damages a byte of one block, or leaves pages out.
struct Faulty {
    file: KernelFile,
    fault: Fault,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Flip { offset: u64, byte: usize },
    OtherPage { offset: u64 },
    Short,
}

impl SlicedFile for Faulty {
    type Reader<'a> = FaultyReader<'a>;

    fn reader(&self) -> Result<FaultyReader<'_>, LoadError> {
        Ok(FaultyReader(self, AlignedBytes::new(BLOCK_BYTES)?))
    }
}

struct FaultyReader<'a>(&'a Faulty, AlignedBytes);

impl Reader for FaultyReader<'_> {
    fn read(&mut self, offset: u64, see: &mut impl FnMut(&[u8])) -> io::Result<()> {
        self.0.file.read_at(&mut self.1, offset)?;
        match self.0.fault {
            Fault::Flip { offset: at, byte } if at == offset => self.1[byte] ^= 1,
            Fault::OtherPage { offset: at } if at == offset => {
                self.1.copy_within(4096..8192, 0);
            }
            Fault::Short => {
                see(&self.1[4096..]);
                return Ok(());
            }
            _ => {}
        }
        see(&self.1);
        Ok(())
    }
}

fn run(verify: &str, fault: Fault) -> LoadError {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let mut job = job(dir.path());
    job.params.set("verify", verify).unwrap();
    let open = |path: &std::path::Path| {
        let file = KernelFile::open(path, Way::Buffered).unwrap();
        Ok((Faulty { file, fault }, Span::default()))
    };
    let error = scene::run(&job, &Plan::of(&job).unwrap(), open).unwrap_err();
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
    error
}

#[test]
fn wrong_bytes_are_found_and_named() {
    let offset = 3 * BLOCK_BYTES as u64;
    for (verify, byte) in [("stamp", 4096), ("stamp", 8191), ("full", 4096 + 200)] {
        let error = run(verify, Fault::Flip { offset, byte });
        let LoadError::Corrupt { offset: at, expected, found, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(at, offset + byte as u64 / 8 * 8);
        assert_eq!((expected ^ found).count_ones(), 1);
    }
}

#[test]
fn a_page_of_another_place_is_found() {
    let error = run("stamp", Fault::OtherPage { offset: 0 });
    assert!(matches!(error, LoadError::Corrupt { offset: 0, .. }), "{error}");
}

#[test]
fn a_block_that_lacks_pages_is_refused() {
    let error = run("stamp", Fault::Short);
    // The pages that came are taken for those before them, by whichever thread is first.
    let LoadError::Corrupt { offset, .. } = error else { panic!("{error}") };
    assert_eq!(offset % BLOCK_BYTES as u64, 0);
}

#[test]
fn slices_cover_the_file_once() {
    let dir = tempfile::tempdir().unwrap();
    for threads in [1, 2, 3, 7] {
        let mut job = job(dir.path());
        job.threads = threads;
        job.memory_bytes = Some(4 << 20);
        let plan = Plan::of(&job).unwrap();
        let blocks: Vec<u64> = (0..threads).flat_map(|one| plan.slice(one, plan.blocks)).collect();
        assert!(blocks.iter().copied().eq(0..plan.blocks), "{threads}: {blocks:?}");
        assert!(plan.hot_blocks <= plan.blocks);
        assert!(plan.hot_blocks * plan.hot_turns >= plan.blocks);
    }
}

#[test]
fn values_that_fit_nowhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (name, value) in [("block", "2048"), ("block", "96K"), ("block", "1M"), ("verify", "some")]
    {
        let mut job = job(dir.path());
        job.params.set(name, value).unwrap();
        let error = Plan::of(&job).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().starts_with(name), "{error}");
    }
    let mut job = job(dir.path());
    job.params.set("file", "64K").unwrap();
    assert_eq!(Plan::of(&job).unwrap_err().exit_code(), 2);
}

#[test]
fn large_reads_go_round_through_their_buffers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, (0..5 * 4096_u32).map(|at| (at / 4096) as u8).collect::<Vec<_>>())
        .unwrap();
    let file = KernelFile::open(&path, Way::Buffered).unwrap();
    let mut large = Large::new(4096, 3).unwrap();
    let places: Vec<_> = (0..5)
        .map(|page| {
            large.read(&file, page * 4096, (5 - page) * 4096).unwrap();
            let at = large.position(page * 4096).unwrap();
            assert_eq!(large.bytes[at..at + 4096], [page as u8; 4096]);
            at / 4096
        })
        .collect();
    assert_eq!(places, [1, 2, 0, 1, 2]);
}
