//! `rwlock`: threads that lock one reader-writer lock again and again, most of them to read.
//!
//! As `mutex`, but of 1,000 sections `writes` lock for writing, which ones a random number of the
//! thread decides. A reader checks that it sees no half of a write, and the writes are counted
//! under the lock.

mod impls;

use unherd::{Ledger, Timestamp};

use crate::mutex::{self, Share, metrics_of, steps};
use crate::random::{Random, mix_all};
use crate::timed_threads::{Region, work_for};
use crate::{Description, Impl, Job, Kind, LoadError, Param, Round, Workload};

/// The workload `rwlock` with the implementations of this crate.
#[derive(Debug, Clone, Copy)]
pub struct RwLocks;

/// An implementation under test: a reader-writer lock and what it guards.
pub trait Shared: Sync {
    /// Runs `section` while no other thread is in [`Shared::write`].
    fn read(&self, section: impl FnOnce(&Guarded));

    /// Runs `section` while no other thread is in one.
    fn write(&self, section: impl FnOnce(&mut Guarded));
}

/// What the lock guards.
#[derive(Debug, Default)]
pub struct Guarded {
    /// Counted as a write begins, and as it ends.
    begun: u64,
    value: f64,
    ended: u64,
}

const IMPLS: &[Impl] = &[
    Impl { name: "unherd", about: "RwLock: four bytes, readers that wait are let in once in 1 ms" },
    Impl { name: "pthread", about: "pthread_rwlock_t of the C library, as it is by default" },
];

const PARAMS: &[Param] = &[
    Param {
        name: "writes",
        about: "of 1,000 sections, how many write",
        default: "50",
        kind: Kind::Count,
    },
    Param {
        name: "section",
        about: "steps of work with the lock held, of two dependent floating-point operations",
        default: "5",
        kind: Kind::Count,
    },
    Param {
        name: "gap",
        about: "steps of work between two sections of a thread",
        default: "5",
        kind: Kind::Count,
    },
    Param {
        name: "budget-ms",
        about: "how long the timed region lasts",
        default: "500",
        kind: Kind::Count,
    },
];

impl Workload for RwLocks {
    fn describe(&self) -> Description {
        describe_with(IMPLS.to_vec(), vec!["pthread", "unherd"])
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        match job.with.as_str() {
            "unherd" => run_with(job, &unherd::RwLock::new(Guarded::default())),
            "pthread" => run_with(job, &impls::Pthread::new()),
            _ => Err(job.unknown_impl(&self.describe())),
        }
    }
}

/// The description of `rwlock` in a runner that has these implementations.
pub fn describe_with(impls: Vec<Impl>, default_impls: Vec<&'static str>) -> Description {
    Description {
        name: "rwlock",
        about: "T threads lock one reader-writer lock, most of them to read",
        primary: vec!["sections_per_s".to_owned()],
        impls,
        default_impls,
        params: PARAMS.to_vec(),
        ..mutex::describe_with(Vec::new(), Vec::new())
    }
}

/// How much work there is.
struct Scene {
    seed: u64,
    writes: usize,
    section: usize,
    gap: usize,
}

/// Runs a round.
pub fn run_with(job: &Job, lock: &impl Shared) -> Result<Round, LoadError> {
    let scene = Scene {
        seed: job.seed,
        writes: job.params.number("writes")?.unwrap_or(0) as usize,
        section: job.params.at_least_one("section")?,
        gap: job.params.at_least_one("gap")?,
    };
    let budget_ms = job.params.at_least_one("budget-ms")? as u64;
    let waits_before = Ledger::snapshot();
    let (done, span) = work_for(job, budget_ms, |index, region| scene.work(lock, index, region))?;
    let waits = Ledger::snapshot().since(&waits_before);

    let (shares, writes): (Vec<_>, Vec<u64>) = done.into_iter().unzip();
    let (done, mut counted) = (writes.iter().sum(), 0);
    lock.read(|guarded| counted = guarded.ended);
    if counted != done {
        return Err(LoadError::NotExclusive { done, counted });
    }
    let check = [job.seed, scene.writes as u64, scene.section as u64, scene.gap as u64];
    Ok(Round { check: mix_all(&check), metrics: metrics_of(shares, &span), waits })
}

impl Scene {
    /// What thread `index` has done, and how many of its sections have written.
    fn work(&self, lock: &impl Shared, index: usize, region: &Region) -> (Share, u64) {
        let mut random = Random::new(mix_all(&[self.seed, index as u64]));
        let (mut share, mut writes, mut own) = (Share::new(), 0, 1.0);
        region.begin();
        while !region.is_over() {
            let is_write = random.below(1000) < self.writes;
            writes += u64::from(is_write);
            share.count(|timed| {
                if is_write {
                    lock.write(|guarded| {
                        *timed = timed.map(|_| Timestamp::now());
                        guarded.begun += 1;
                        own = steps(self.section, &mut guarded.value, own);
                        guarded.ended += 1;
                    });
                } else {
                    lock.read(|guarded| {
                        *timed = timed.map(|_| Timestamp::now());
                        let (begun, mut value) = (guarded.begun, guarded.value);
                        own = steps(self.section, &mut value, own);
                        assert_eq!(begun, guarded.ended, "a reader saw a half of a write");
                    });
                }
            });
            let mut between = own;
            own = steps(self.gap, &mut between, own);
        }
        (share, writes)
    }
}
