//! The load and the passes, the same for all implementations.

use std::collections::VecDeque;
use std::path::Path;

use unherd::Timestamp;
use unherd_sys::primitives::{AtomicBool, Ordering};

use crate::congestion::Latencies;
use crate::crew::{self, Timed};
use crate::files::{
    AlignedBytes, Content, KernelFile, MixedFile, PAGE_BYTES, ScratchDir, Way, write_pages,
};
use crate::highalloc::pieces::{Memory, Piece};
use crate::random::{Random, mix_all};
use crate::{Job, LoadError, Round};

/// The passes, in their order. The last comes when the load has ended.
pub(super) const PASSES: [&str; 3] = ["pass1", "pass2", "rest"];

/// One page in twenty is hot, and is read in eight cases of ten.
const HOT_PART: u64 = 20;
const HOT_TENTHS: usize = 8;
pub(super) const PAGES_MIN: u64 = 2 * HOT_PART;

/// The threads that ask for pieces, and that write. The others read.
const ASKER: usize = 0;
const WRITER: usize = 1;

/// Of the pages one in 16 is read from the file system in the end, and its neighbour.
const VERIFIED_PART: usize = 16;

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// Of the file. Odd ones are written, even ones are read.
    pub(super) pages: u64,
    /// Pages that all readers read before the passes.
    pub(super) warm_up: u64,
    pub(super) piece_bytes: usize,
    /// Pieces that are kept at a time.
    pub(super) kept: usize,
    /// Of each pass.
    pub(super) attempts: usize,
}

impl Plan {
    /// A page of the file, after this number of writes.
    fn content(&self, page: u64, writes: u8) -> Content {
        Content::new(self.seed, 0, page, u64::from(writes))
    }
}

/// What a thread has done under load.
enum Done {
    Asked(Vec<Pass>),
    Wrote(Writer),
    /// How many pages.
    Read(u64),
}

/// Runs a round on a file that is made for it and removed at the end.
pub(super) fn run<F: MixedFile>(
    job: &Job,
    plan: &Plan,
    memory: &impl Memory,
    open: impl FnOnce(&Path) -> Result<F, LoadError>,
) -> Result<Round, LoadError> {
    let scratch = ScratchDir::create(job.dir()?, "highalloc")?;
    let path = scratch.file(0);
    write_pages(&path, plan.pages * PAGE_BYTES, |page, bytes| plan.content(page, 0).fill(bytes))?;
    let file = open(&path)?;
    // Relaxed: it ends the load, or all after an error, and publishes nothing.
    let is_over = AtomicBool::new(false);
    let goes_on = || !is_over.load(Ordering::Relaxed);
    let prepare = |thread| if thread > WRITER { warm_up(job, plan, &file, thread) } else { Ok(()) };
    let moved_before = memory.pages_moved();
    let timed = crew::run(job, prepare, |thread, prepared| {
        let done = prepared.and_then(|()| match thread {
            ASKER => {
                let passes = [0, 1].map(|pass| ask(plan, memory, pass, goes_on));
                Ok(Done::Asked(passes.into_iter().collect::<Result<_, _>>()?))
            }
            WRITER => write(plan, &file, goes_on).map(Done::Wrote),
            _ => read(plan, &file, thread, goes_on).map(Done::Read),
        });
        if thread == ASKER || done.is_err() {
            is_over.store(true, Ordering::Relaxed);
        }
        done
    })?;
    let Timed { span, waits, done } = timed;
    let (mut passes, mut writer, mut reads) = (Vec::new(), None, 0);
    for done in done {
        match done {
            Done::Asked(asked) => passes = asked,
            Done::Wrote(wrote) => writer = Some(wrote),
            Done::Read(pages) => reads += pages,
        }
    }
    passes.push(ask(plan, memory, 2, || true)?);
    let moved = memory.pages_moved();
    file.sync().map_err(|error| LoadError::file("syncing", 0, &error))?;
    drop(file);
    let writer = writer.unwrap_or_default();
    let check = verify(plan, &path, &writer)?;

    let mut metrics = Vec::new();
    let pieces = passes.iter().map(|pass| pass.pieces).sum::<usize>().max(1) as f64;
    for (name, pass) in PASSES.into_iter().zip(passes) {
        let success_pct = 100.0 * pass.pieces as f64 / plan.attempts as f64;
        metrics.push((format!("{name}_success_pct"), success_pct));
        metrics.extend(pass.latencies.metrics(name));
    }
    let per_piece = |nth: usize| (moved[nth] - moved_before[nth]) as f64 / pieces;
    let others = [
        ("evictions_per_piece", per_piece(0)),
        ("write_backs_per_piece", per_piece(1)),
        ("reads_per_s", reads as f64 / span.elapsed_s),
        ("writes_per_s", writer.writes as f64 / span.elapsed_s),
        ("cpu_s", span.cpu_s),
        ("s", span.elapsed_s),
        ("planted_s", span.planted_s),
    ];
    metrics.extend(others.map(|(name, value)| (name.to_owned(), value)));
    Ok(Round { check, metrics, waits })
}

/// What a pass has given.
#[derive(Default)]
struct Pass {
    pieces: usize,
    /// Of all attempts.
    latencies: Latencies,
}

/// Makes the attempts of a pass. Pieces are filled when they come, and compared when they go.
fn ask<M: Memory>(
    plan: &Plan,
    memory: &M,
    number: usize,
    goes_on: impl Fn() -> bool,
) -> Result<Pass, LoadError> {
    let (mut pass, mut kept) = (Pass::default(), VecDeque::new());
    let mut bytes = AlignedBytes::new(plan.piece_bytes)?;
    let compare = |(content, piece): (Content, M::Piece)| {
        content.verify(piece.bytes()).map_err(|wrong| wrong.in_file(number, 0))
    };
    for attempt in 0..plan.attempts {
        if !goes_on() {
            break;
        }
        if kept.len() == plan.kept
            && let Some(oldest) = kept.pop_front()
        {
            compare(oldest)?;
        }
        let whole_before = memory.whole_bytes()?;
        let began = Timestamp::now();
        let piece = memory.allocate(plan.piece_bytes)?;
        pass.latencies.end(began);
        let is_whole = match whole_before.zip(memory.whole_bytes()?) {
            Some((before, after)) => after >= before + plan.piece_bytes,
            None => true,
        };
        if let Some(mut piece) = piece.filter(|_| is_whole) {
            let content = Content::new(plan.seed, number + 1, attempt as u64, 0);
            content.fill(&mut bytes);
            piece.fill(&bytes);
            kept.push_back((content, piece));
            pass.pieces += 1;
        }
    }
    kept.into_iter().try_for_each(|piece| compare(piece).map(drop))?;
    Ok(pass)
}

/// Reads pages in their order, each by one of the readers, until the memory is full.
fn warm_up(job: &Job, plan: &Plan, file: &impl MixedFile, thread: usize) -> Result<(), LoadError> {
    let mut bytes = AlignedBytes::new(PAGE_BYTES as usize)?;
    let (reader, readers) = (thread - WRITER - 1, job.threads - WRITER - 1);
    for nth in (reader as u64..plan.warm_up / 2).step_by(readers) {
        read_page(plan, file, nth * 2, &mut bytes)?;
    }
    Ok(())
}

/// Reads pages until the load is over. Gives how many.
fn read(
    plan: &Plan,
    file: &impl MixedFile,
    thread: usize,
    goes_on: impl Fn() -> bool,
) -> Result<u64, LoadError> {
    let mut bytes = AlignedBytes::new(PAGE_BYTES as usize)?;
    let mut random = Random::new(mix_all(&[plan.seed, thread as u64]));
    let mut reads = 0;
    while goes_on() {
        let is_hot = random.below(10) < HOT_TENTHS;
        let part = if is_hot { HOT_PART } else { 2 };
        let page = random.below((plan.pages / part) as usize) as u64 * part;
        read_page(plan, file, page, &mut bytes)?;
        reads += 1;
    }
    Ok(reads)
}

fn read_page(
    plan: &Plan,
    file: &impl MixedFile,
    page: u64,
    bytes: &mut [u8],
) -> Result<(), LoadError> {
    let offset = page * PAGE_BYTES;
    file.read(bytes, offset).map_err(|error| LoadError::file("reading", 0, &error))?;
    plan.content(page, 0).verify_stamp(bytes).map_err(|wrong| wrong.in_file(0, offset))?;
    Ok(())
}

#[derive(Default)]
struct Writer {
    /// How often each odd page was written, modulo 256.
    versions: Vec<u8>,
    writes: u64,
}

/// Writes pages until the load is over.
fn write(
    plan: &Plan,
    file: &impl MixedFile,
    goes_on: impl Fn() -> bool,
) -> Result<Writer, LoadError> {
    let mut bytes = AlignedBytes::new(PAGE_BYTES as usize)?;
    let mut random = Random::new(mix_all(&[plan.seed, WRITER as u64]));
    let mut writer = Writer { versions: vec![0; (plan.pages / 2) as usize], writes: 0 };
    while goes_on() {
        let at = random.below(writer.versions.len());
        let version = writer.versions[at].wrapping_add(1);
        writer.versions[at] = version;
        let page = at as u64 * 2 + 1;
        plan.content(page, version).fill(&mut bytes);
        let written = file.write(&bytes, page * PAGE_BYTES);
        written.map_err(|error| LoadError::file("writing to", 0, &error))?;
        writer.writes += 1;
    }
    Ok(writer)
}

/// Whether the file has what was written, and nothing else. Gives a hash of what was not.
fn verify(plan: &Plan, path: &Path, writer: &Writer) -> Result<u64, LoadError> {
    let opened = KernelFile::open(path, Way::Buffered);
    let file = opened.map_err(|source| LoadError::Open { path: path.into(), source })?;
    let mut bytes = AlignedBytes::new(PAGE_BYTES as usize)?;
    let mut sum = plan.seed;
    for (at, version) in writer.versions.iter().enumerate().step_by(VERIFIED_PART) {
        for (page, version) in [(at as u64 * 2, 0), (at as u64 * 2 + 1, *version)] {
            let offset = page * PAGE_BYTES;
            let read = file.read_at(&mut bytes, offset);
            read.map_err(|error| LoadError::file("reading", 0, &error))?;
            let hash = plan.content(page, version).verify(&bytes);
            let hash = hash.map_err(|wrong| wrong.in_file(0, offset))?;
            if page.is_multiple_of(2) {
                sum = sum.wrapping_add(mix_all(&[page, hash]));
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use unherd_sys::primitives::{AtomicUsize, Ordering};

    use super::*;

    const PLAN: Plan =
        Plan { seed: 1, pages: PAGES_MIN, warm_up: 0, piece_bytes: 8192, kept: 3, attempts: 20 };

    /// Gives a piece at each second attempt, which may forget what it holds.
    struct HalfThere {
        forgets: bool,
        attempts: AtomicUsize,
    }

    struct Forgetful(Vec<u8>, bool);

    impl Memory for HalfThere {
        type Piece = Forgetful;

        fn allocate(&self, bytes: usize) -> Result<Option<Forgetful>, LoadError> {
            let is_second = self.attempts.fetch_add(1, Ordering::Relaxed) % 2 == 1;
            Ok(is_second.then(|| Forgetful(vec![0; bytes], self.forgets)))
        }

        fn whole_bytes(&self) -> Result<Option<usize>, LoadError> {
            Ok(None)
        }

        fn pages_moved(&self) -> [u64; 2] {
            [0; 2]
        }
    }

    impl Piece for Forgetful {
        fn fill(&mut self, bytes: &[u8]) {
            self.0.copy_from_slice(bytes);
            self.0[4096] ^= u8::from(self.1);
        }

        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    #[test]
    fn success_counts_pieces_that_keep_what_they_hold() {
        let memory = |forgets| HalfThere { forgets, attempts: AtomicUsize::new(0) };
        assert_eq!(ask(&PLAN, &memory(false), 0, || true).unwrap().pieces, 10);
        assert_eq!(ask(&PLAN, &memory(false), 0, || false).unwrap().pieces, 0);
        let error = ask(&PLAN, &memory(true), 0, || true).map(|pass| pass.pieces).unwrap_err();
        assert!(matches!(error, LoadError::Corrupt { .. }), "{error}");
    }

    #[test]
    fn lost_write_is_found() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        let fill = |page, bytes: &mut [u8]| PLAN.content(page, 0).fill(bytes);
        write_pages(&path, PLAN.pages * PAGE_BYTES, fill).unwrap();
        let writer = |version| Writer { versions: vec![version; 20], writes: 20 };
        verify(&PLAN, &path, &writer(0)).unwrap();
        let error = verify(&PLAN, &path, &writer(1)).unwrap_err();
        assert!(matches!(error, LoadError::Corrupt { .. }), "{error}");
    }
}
