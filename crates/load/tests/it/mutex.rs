//! The workload of one mutex.

use unherd_load::mutex::{Exclusive, Guarded, Mutexes, run_with};
use unherd_load::{Job, LoadError, Round, Workload};

fn job(with: &str, params: &[(&str, &str)]) -> Job {
    let mut job = Job::new(&Mutexes.describe(), with, 3);
    for (name, value) in [("budget-ms", "20")].iter().chain(params) {
        job.params.set(name, value).unwrap();
    }
    job
}

#[test]
fn every_mutex_excludes() {
    let impls = Mutexes.describe().impls;
    let checks = impls.iter().map(|with| {
        let round: Round = Mutexes.run(&job(with.name, &[("hog", "3")])).unwrap();
        assert!(round.metric("sections_per_s").unwrap() > 0.0, "{}: {round:?}", with.name);
        assert!(round.metric("share_ratio").unwrap() <= 1.0, "{}: {round:?}", with.name);
        round.check
    });
    let checks: Vec<_> = checks.collect();
    assert!(checks.windows(2).all(|two| two[0] == two[1]));
}

#[test]
fn a_mutex_that_does_not_count_is_found() {
    struct Forgets;
    impl Exclusive for Forgets {
        fn run(&self, section: impl FnOnce(&mut Guarded)) {
            section(&mut Guarded::default());
        }
    }
    let error = run_with(&job("std", &[]), &Forgets).unwrap_err();
    assert!(matches!(error, LoadError::NotExclusive { counted: 0, .. }), "{error}");
}

#[test]
fn sections_without_work_are_refused() {
    let error = Mutexes.run(&job("std", &[("section", "0")])).unwrap_err();
    assert_eq!(error.to_string(), "section=0: give at least 1");
}
