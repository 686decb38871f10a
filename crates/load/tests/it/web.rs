//! The workload of the web server.

use unherd_load::web::Web;
use unherd_load::{Job, Workload};

fn job(with: &str, threads: usize, dir: &std::path::Path) -> Job {
    let mut job = Job::new(&Web.describe(), with, threads);
    for (name, value) in [("budget-ms", "100"), ("files", "5"), ("clients", "3")] {
        job.params.set(name, value).unwrap();
    }
    job.dir = Some(dir.into());
    job
}

#[test]
fn clients_get_every_byte_from_each_implementation() {
    let dir = tempfile::tempdir().unwrap();
    let mut checks = Vec::new();
    for with in ["before", "epoll", "unherd", "floor"] {
        for threads in [1, 2] {
            let round = Web.run(&job(with, threads, dir.path())).unwrap();
            let metric = |name| round.metric(name).unwrap();
            assert!(metric("transactions_per_s") > 0.0, "{with}: {round:?}");
            assert!(metric("user_pct") + metric("os_pct") > 0.0, "{with}: {round:?}");
            checks.push(round.check);
        }
    }
    assert!(checks.windows(2).all(|two| two[0] == two[1]), "{checks:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files are left");
}
