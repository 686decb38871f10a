//! `hit` by other people's caches: a page is a counted reference under its number, and a write puts
//! another in its place. Each has room for more than twice the set, so that nothing is given up.

mod foyer;
mod moka;
mod quick_cache;

use unherd_load::hit::{Page, Pages, Places, read, resident_pages, run_with, value};
use unherd_load::{Description, Impl, Job, LoadError, Round, Workload};

/// The workload `hit` with rival implementations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit;

const IMPLS: &[Impl] = &[
    Impl { name: "quick_cache", about: "quick_cache 0.7: sync::Cache, S3-FIFO in locked shards" },
    Impl { name: "moka", about: "moka 0.12: sync::Cache, TinyLFU" },
    Impl { name: "foyer", about: "foyer-memory 0.22: the in-memory cache of foyer, S3-FIFO" },
];

/// Room beside twice the set: these caches divide their room into shards by a hash of the key, and
/// in a small set it may favour one.
const SPARE_PAGES: usize = 256;

impl Workload for Hit {
    fn describe(&self) -> Description {
        unherd_load::hit::describe_with(IMPLS.to_vec(), Vec::new())
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let room = 2 * resident_pages(job)? as usize + SPARE_PAGES;
        match job.with.as_str() {
            "quick_cache" => run_with(job, &Filled::new(job, quick_cache::QuickCache::new(room))?),
            "moka" => run_with(job, &Filled::new(job, moka::Moka::new(room))?),
            "foyer" => run_with(job, &Filled::new(job, foyer::Foyer::new(room))?),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// The workload `hit-cost` with rival implementations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HitCost;

impl Workload for HitCost {
    fn describe(&self) -> Description {
        unherd_load::hit_cost::describe_with(&Hit, Vec::new())
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        unherd_load::hit_cost::run(job)
    }
}

/// A map of pages that may give some up.
trait PageMap: Sync {
    /// Looks a page up, and hands it to `with`.
    fn get<R>(&self, page: u64, with: impl FnOnce(&Page) -> R) -> Option<R>;

    /// Puts a page in, or in the place of the old one.
    fn insert(&self, page: u64, bytes: Page);
}

/// A map that has all pages of the set.
struct Filled<M>(M);

impl<M: PageMap> Filled<M> {
    fn new(job: &Job, map: M) -> Result<Self, LoadError> {
        for page in 0..resident_pages(job)? {
            map.insert(u64::from(page), value(job.seed, page));
        }
        Ok(Self(map))
    }
}

impl<M: PageMap> Pages for Filled<M> {
    #[inline(always)]
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let read = self.0.get(u64::from(page), |page| read(&page.0, places, block));
        read.ok_or(LoadError::Missed { misses: 1 })
    }

    fn write(&self, page: u32, bytes: &[u8; 64]) -> Result<(), LoadError> {
        let copy = self.0.get(u64::from(page), Page::clone);
        let mut copy = copy.ok_or(LoadError::Missed { misses: 1 })?;
        let begin = copy.0.len() - bytes.len();
        copy.0[begin..].copy_from_slice(bytes);
        self.0.insert(u64::from(page), copy);
        Ok(())
    }
}
