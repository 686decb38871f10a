use std::path::Path;

use super::Order;
use super::plan::Plan;
use super::scene::{self, OrderedFile, Reader};
use crate::files::{AlignedBytes, KernelFile, Way};
use crate::{Job, LoadError, Span, Workload};

const PATTERNS: [&str; 5] = ["tree", "strided", "backward", "interleaved", "alternating"];

fn job(dir: &Path, pattern: &str, threads: usize) -> Job {
    let mut job = Job::new(&Order.describe(), "kernel", threads);
    job.memory_bytes = Some(4 << 20);
    job.params.set("file", "16M").unwrap();
    job.params.set("pattern", pattern).unwrap();
    job.dir = Some(dir.to_path_buf());
    job
}

#[test]
fn orders_have_each_page_once() {
    let dir = tempfile::tempdir().unwrap();
    for pattern in PATTERNS {
        let mut parts = Vec::new();
        for threads in [1, 4] {
            let plan = Plan::of(&job(dir.path(), pattern, threads)).unwrap();
            let all: Vec<u64> = (0..threads).flat_map(|thread| plan.sequence(thread)).collect();
            let mut sorted = all.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), all.len(), "{pattern}");
            let expected = match pattern {
                "strided" => 1024,
                "alternating" => 256,
                _ => 4096,
            };
            assert_eq!(all.len(), expected, "{pattern}");
            parts.push(all);
        }
        assert_eq!(parts[0], parts[1], "{pattern}: threads share one order");
        assert_ne!(parts[0], (0..4096).collect::<Vec<u64>>(), "{pattern}");
    }
}

#[test]
fn a_tree_has_rows_of_neighbours_within_windows() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::of(&job(dir.path(), "tree", 1)).unwrap();
    let order = plan.sequence(0);
    let neighbours = order.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
    // Rows of 1 to 8, 4.5 on average: of 4.5 steps 3.5 go to a neighbour.
    assert!((2800..3600).contains(&neighbours), "{neighbours}");
    for (at, page) in order.iter().enumerate() {
        assert_eq!(at / 2048, *page as usize / 2048);
    }
    let mut other = job(dir.path(), "tree", 1);
    other.seed += 1;
    assert_ne!(order, Plan::of(&other).unwrap().sequence(0));
}

#[test]
fn half_of_alternating_is_cached_before() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::of(&job(dir.path(), "alternating", 1)).unwrap();
    let mut cached = plan.cached_before(0);
    let in_order: Vec<u64> = (0..256).skip(1).step_by(2).collect();
    assert_ne!(cached, in_order, "readahead must not see a stream");
    cached.sort_unstable();
    assert_eq!(cached, in_order);
    let plan = Plan::of(&job(dir.path(), "tree", 1)).unwrap();
    assert!(plan.cached_before(0).is_empty());
}

/// A reader that gives two pages in the other order.
struct Swapped(KernelFile);

struct SwappedReader<'a>(&'a KernelFile);

impl OrderedFile for Swapped {
    type Reader<'a> = SwappedReader<'a>;

    fn reader(&self) -> Result<SwappedReader<'_>, LoadError> {
        Ok(SwappedReader(&self.0))
    }
}

impl Reader for SwappedReader<'_> {
    fn read(
        &mut self,
        pages: &[u64],
        mut see: impl FnMut(u64, &[u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let mut bytes = AlignedBytes::new(4096)?;
        for (at, page) in pages.iter().enumerate() {
            let given = if at < 2 { pages[1 - at] } else { *page };
            self.0.read_at(&mut bytes, given * 4096).unwrap();
            see(*page, &bytes)?;
        }
        Ok(())
    }

    const WAITS_FOR_EACH: bool = true;
}

#[test]
fn pages_in_the_wrong_order_are_found() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let job = job(dir.path(), "backward", 1);
    let open = |path: &Path| {
        Ok((Swapped(KernelFile::open(path, Way::Buffered).unwrap()), Span::default()))
    };
    let error = scene::run(&job, &Plan::of(&job).unwrap(), open).unwrap_err();
    assert!(matches!(error, LoadError::Corrupt { .. }), "{error}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "files were left behind");
}

#[test]
fn values_that_fit_nowhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (name, value) in [("pattern", "zigzag"), ("depth", "0"), ("depth", "5000"), ("file", "4K")]
    {
        let mut job = job(dir.path(), "tree", 1);
        job.params.set(name, value).unwrap();
        let error = Plan::of(&job).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().starts_with(name), "{error}");
    }
}
