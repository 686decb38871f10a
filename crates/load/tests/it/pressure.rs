//! The workload of writers, readers and askers on a slow device.

use unherd_load::pressure::Pressure;
use unherd_load::{Job, Workload};

fn job(with: &str, params: &[(&str, &str)]) -> Job {
    let mut job = Job::new(&Pressure.describe(), with, 2);
    let small = [("frames", "1024"), ("pages", "4000"), ("asks", "10"), ("askers", "1")];
    for (name, value) in small.iter().chain(params) {
        job.params.set(name, value).unwrap();
    }
    job
}

#[test]
fn every_mode_writes_all_pages() {
    let checks: Vec<_> = Pressure
        .describe()
        .impls
        .iter()
        .map(|with| {
            let round = Pressure.run(&job(with.name, &[])).unwrap();
            let metric = |name| round.metric(name).unwrap();
            assert_eq!(metric("written"), 4000.0, "{}: {round:?}", with.name);
            assert!(metric("writer_us_max") >= metric("writer_us_p50"), "{}", with.name);
            assert!(metric("direct_reclaims") > 0.0, "{}: {round:?}", with.name);
            if matches!(with.name, "event" | "paced") {
                assert_eq!(metric("needless_waits"), 0.0, "{}: {round:?}", with.name);
            }
            round.check
        })
        .collect();
    assert!(checks.windows(2).all(|two| two[0] == two[1]), "{checks:?}");
}

#[test]
fn real_device_takes_all_pages() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut job = job("paced", &[("device", "real")]);
    assert!(Pressure.run(&job).unwrap_err().to_string().contains("--dir"), "it needs a place");
    job.dir = Some(dir.path().into());
    let round = Pressure.run(&job).unwrap();
    assert_eq!(round.metric("written"), Some(4000.0), "{round:?}");
    assert_eq!(round.metric("needless_waits"), Some(0.0), "{round:?}");
    assert!(round.metric("reader_us_max").unwrap() > 0.0, "{round:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn pressure_refuses_what_it_cannot_run() {
    let refused = |name, value| Pressure.run(&job("paced", &[(name, value)])).unwrap_err();
    assert_eq!(refused("device", "tape").to_string(), "device=tape: give fast, steady or real");
    assert_eq!(refused("frames", "8").to_string(), "frames=8: give at least 1024");
}
