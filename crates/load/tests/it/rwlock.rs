//! The workload of one reader-writer lock.

use unherd_load::rwlock::{Guarded, RwLocks, Shared, run_with};
use unherd_load::{Job, LoadError, Workload};

fn job(with: &str) -> Job {
    let mut job = Job::new(&RwLocks.describe(), with, 3);
    for (name, value) in [("budget-ms", "20"), ("writes", "300")] {
        job.params.set(name, value).unwrap();
    }
    job
}

#[test]
fn every_rwlock_excludes() {
    for with in RwLocks.describe().impls {
        let round = RwLocks.run(&job(with.name)).unwrap();
        assert!(round.metric("sections_per_s").unwrap() > 0.0, "{}: {round:?}", with.name);
    }
}

#[test]
fn a_rwlock_that_does_not_write_is_found() {
    struct Forgets;
    impl Shared for Forgets {
        fn read(&self, section: impl FnOnce(&Guarded)) {
            section(&Guarded::default());
        }
        fn write(&self, section: impl FnOnce(&mut Guarded)) {
            section(&mut Guarded::default());
        }
    }
    let error = run_with(&job("pthread"), &Forgets).unwrap_err();
    assert!(matches!(error, LoadError::NotExclusive { counted: 0, .. }), "{error}");
}
