use std::io;
use std::path::Path;

use unherd_sys::primitives::{AtomicUsize, Ordering};

use super::TioTest;
use super::phases::{self, TestFile};
use super::plan::Plan;
use crate::files::{Content, KernelFile, Way};
use crate::{Job, LoadError, Round, Span, Workload};

const THREADS: usize = 4;

/// A job of 4 files of 40 KiB.
fn job(dir: &Path) -> Job {
    let mut job = Job::new(&TioTest.describe(), "kernel", THREADS);
    job.memory_bytes = Some(64 << 10);
    job.params.set("total", "160K").unwrap();
    job.dir = Some(dir.to_path_buf());
    job
}

fn run<F: TestFile>(create: impl Fn(&Path) -> io::Result<F>) -> Result<Round, LoadError> {
    run_after(Span::default(), create)
}

fn run_after<F: TestFile>(
    setup: Span,
    create: impl Fn(&Path) -> io::Result<F>,
) -> Result<Round, LoadError> {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let round = phases::run(&job, &Plan::of(&job).unwrap(), setup, create);
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
    round
}

fn create(path: &Path) -> io::Result<KernelFile> {
    KernelFile::create(path, Way::Buffered)
}

/// A file that goes wrong at one of its calls.
struct Faulty {
    file: KernelFile,
    fault: Fault,
    reads: AtomicUsize,
    writes: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    FlippedBit { read: usize, byte: usize },
    StaleBlock,
    Write,
    Sync,
    Panic,
}

impl Faulty {
    fn create(path: &Path, fault: Fault) -> io::Result<Self> {
        Ok(Self {
            file: create(path)?,
            fault,
            reads: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
        })
    }
}

impl TestFile for Faulty {
    fn read_at(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        TestFile::read_at(&self.file, block, offset)?;
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::FlippedBit { read: at, byte } if at == read => block[byte] ^= 1,
            Fault::Panic if read == 3 => panic!("the test's own panic"),
            _ => {}
        }
        Ok(())
    }

    fn write_at(&self, block: &[u8], offset: u64) -> io::Result<()> {
        match self.fault {
            Fault::Write if offset > 0 => Err(io::ErrorKind::StorageFull.into()),
            // The first version of all 10 blocks stays in place of the second.
            Fault::StaleBlock if self.writes.fetch_add(1, Ordering::Relaxed) >= 10 => Ok(()),
            _ => TestFile::write_at(&self.file, block, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        if self.fault == Fault::Sync { Err(io::Error::other("EIO")) } else { self.file.sync() }
    }

    const COUNTS_WAKEUPS: bool = false;
}

#[test]
fn one_wrong_bit_is_found_and_named() {
    for (read, byte) in [(0, 0), (7, 4095), (9, 2049)] {
        let wrong = run(|path| Faulty::create(path, Fault::FlippedBit { read, byte }));
        let Err(LoadError::Corrupt { offset, expected, found, .. }) = wrong else {
            panic!("{wrong:?}")
        };
        // The sequential reads come first, so the read's number is the block's.
        assert_eq!(offset as usize, (read * 4096 + byte) / 8 * 8);
        assert_eq!((expected ^ found).count_ones(), 1);
    }
}

#[test]
fn a_random_write_that_was_lost_is_found() {
    let wrong = run(|path| Faulty::create(path, Fault::StaleBlock));
    assert!(matches!(wrong, Err(LoadError::Corrupt { .. })), "{wrong:?}");
}

#[test]
fn failing_file_ends_run_without_hang() {
    for (fault, doing) in [(Fault::Write, "writing"), (Fault::Sync, "syncing")] {
        let error = run(|path| Faulty::create(path, fault)).unwrap_err();
        assert!(error.to_string().starts_with(doing), "{error}");
        assert_eq!(error.exit_code(), 1);
    }
    let error = run(|path| Faulty::create(path, Fault::Panic)).unwrap_err();
    assert!(matches!(error, LoadError::Panicked { .. }), "{error}");
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let error = run(|_| Err::<KernelFile, _>(io::ErrorKind::PermissionDenied.into())).unwrap_err();
    assert!(error.to_string().contains("file-0"), "{error}");
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn contents_differ_in_every_part_of_their_name() {
    let names = [(1, 0, 0, 1), (2, 0, 0, 1), (1, 1, 0, 1), (1, 0, 1, 1), (1, 0, 0, 2)];
    let contents = names.map(|(seed, file, block, version)| {
        let mut bytes = vec![0; 4096];
        Content::new(seed, file, block, version).fill(&mut bytes);
        bytes
    });
    for (at, one) in contents.iter().enumerate() {
        let (seed, file, block, version) = names[at];
        let content = Content::new(seed, file, block, version);
        for (other_at, other) in contents.iter().enumerate() {
            assert_eq!(content.verify(other).is_ok(), at == other_at);
        }
        assert_ne!(one, &vec![0; 4096]);
    }
}

#[test]
fn contents_use_all_bits_alike() {
    let mut bytes = vec![0; 1 << 16];
    Content::new(3, 1, 4, 1).fill(&mut bytes);
    for bit in 0..64 {
        let words = bytes.chunks_exact(8);
        let ones = words.filter(|word| word[bit / 8] >> (bit % 8) & 1 == 1).count();
        // 8192 words; six standard deviations are 272.
        assert!((4096_usize).abs_diff(ones) < 272, "bit {bit}: {ones}");
    }
}

#[test]
fn random_sequences_are_repeatable_and_their_own() {
    use super::plan::Sequence::{Read, Write};
    let dir = tempfile::tempdir().unwrap();
    let mut job = job(dir.path());
    job.params.set("total", "16M").unwrap();
    job.params.set("random", "8M").unwrap();
    let plan = Plan::of(&job).unwrap();
    let sequence = |file, kind| plan.random_sequence(file, kind).collect::<Vec<_>>();
    assert_eq!(sequence(0, Write).len(), 512);
    assert_eq!(sequence(0, Write), sequence(0, Write));
    assert_ne!(sequence(0, Write), sequence(1, Write));
    assert_ne!(sequence(0, Write), sequence(0, Read));
    let rewritten = plan.rewritten(0);
    let written = sequence(0, Write);
    for block in 0..plan.blocks {
        assert_eq!(rewritten.version(block) == 2, written.contains(&block), "{block}");
    }
}

#[test]
fn the_setup_is_told_by_itself() {
    let setup = Span { elapsed_s: 1e4, cpu_s: 4e4, ..Span::default() };
    let round = run_after(setup, create).unwrap();
    assert_eq!(round.metric("setup_s"), Some(1e4));
    assert_eq!(round.metric("setup_cpu_s"), Some(4e4));
    for phase in phases::NAMES {
        for name in ["s", "cpu_s"] {
            let figure = round.metric(&format!("{phase}_{name}")).unwrap();
            assert!(figure < 1e4, "{phase}_{name} is {figure}");
        }
    }
}

#[test]
fn blocks_without_room_for_cache_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut job = job(dir.path());
    job.params.set("total", "16M").unwrap();
    assert_eq!(Plan::of(&job).unwrap().block_bytes, 4096);
    job.params.set("block", "8192").unwrap();
    let error = Plan::of(&job).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let said = "4 blocks of 8192 bytes, one for each thread, are more than 1/4 of --memory 64K; ";
    assert!(error.to_string().starts_with(said), "{error}");
}
