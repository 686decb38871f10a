//! Pages that are there, in every implementation.

use unherd_load::hit::{Hit, Page, Pages, Places, run_with, value};
use unherd_load::{Job, LoadError, Round, Workload};

const IMPLS: [&str; 8] =
    ["floor", "floor-copy", "kernel", "mmap", "before", "unherd-copy", "unherd-pin", "unherd-peek"];

fn job(with: &str, threads: usize, params: &[(&str, &str)]) -> (Job, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut job = Job::new(&Hit.describe(), with, threads);
    job.dir = Some(dir.path().to_owned());
    for (name, value) in [("set", "64K"), ("ops", "5000")].iter().chain(params) {
        job.params.set(name, value).unwrap();
    }
    (job, dir)
}

fn run(with: &str, threads: usize, params: &[(&str, &str)]) -> Result<Round, LoadError> {
    let (job, _dir) = job(with, threads, params);
    Hit.run(&job)
}

#[test]
fn all_see_the_same_words() {
    for (pattern, words, chain) in [("uniform", "8", "true"), ("zipf", "0", "false")] {
        let params = [("pattern", pattern), ("words", words), ("chain", chain)];
        let rounds = IMPLS.map(|with| run(with, 2, &params).unwrap());
        for (round, with) in rounds.iter().zip(IMPLS) {
            assert_eq!(round.check, rounds[0].check, "{with}");
            assert_eq!(round.metric("hits"), Some(10_000.0), "{with}");
            assert!(round.metric("ns_per_hit").unwrap() > 0.0, "{with}");
        }
    }
}

#[test]
fn writes_change_nothing_that_is_loaded() {
    let check = run("unherd-pin", 2, &[]).unwrap().check;
    for with in ["kernel", "before", "unherd-copy", "unherd-pin", "unherd-peek"] {
        for pattern in ["uniform", "one"] {
            let round = run(with, 2, &[("writes", "10"), ("pattern", pattern)]).unwrap();
            assert!(pattern == "one" || round.check == check, "{with}");
        }
    }
    for with in ["floor", "floor-copy", "mmap"] {
        assert!(matches!(run(with, 1, &[("writes", "1")]), Err(LoadError::Usage(_))), "{with}");
    }
}

#[test]
fn its_files_are_gone_afterwards() {
    for with in ["kernel", "unherd-pin", "unherd-copy-beside-reclaim"] {
        let (job, dir) = job(with, 1, &[]);
        Hit.run(&job).unwrap();
        Hit.run(&job).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{with}");
    }
}

#[test]
fn bad_options_are_named() {
    for (name, value) in
        [("set", "1"), ("set", "l3"), ("pattern", "two"), ("words", "3"), ("writes", "101")]
    {
        let error = run("kernel", 1, &[(name, value)]).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(name), "{error}");
    }
}

/// Pages that are right until the n-th load.
struct Spoiled(std::sync::atomic::AtomicUsize, &'static str);

impl Pages for Spoiled {
    fn load<const N: usize>(
        &self,
        page: u32,
        places: Places<N>,
        block: &mut Page,
    ) -> Result<u64, LoadError> {
        let left = self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        let right = unherd_load::hit::read(&value(1, page).0, places, block);
        match self.1 {
            _ if left > 0 && left < usize::MAX / 2 => Ok(right),
            "wrong" => Ok(right ^ 1),
            "panic" => panic!("spoiled"),
            _ => Err(LoadError::Missed { misses: 1 }),
        }
    }

    fn write(&self, _page: u32, _bytes: &[u8; 64]) -> Result<(), LoadError> {
        Ok(())
    }
}

#[test]
fn wrong_words_errors_and_panics_end_the_round() {
    // In the pages brought in, in the first sequence, among the timed, in the last sequence.
    for after in [3, 100, 20_000, 27_000] {
        for (how, what) in [("wrong", "lost or damaged"), ("panic", "spoiled"), ("", "1 misses")] {
            if (how, after) == ("wrong", 20_000) || (how, after) == ("panic", 3) {
                // What is timed is not compared; and the first has no thread of its own.
                continue;
            }
            let (job, _dir) = job("floor", 2, &[]);
            let error = run_with(&job, &Spoiled(after.into(), how)).unwrap_err();
            assert!(error.to_string().contains(what), "{after} {how}: {error}");
            assert_eq!(error.exit_code(), 1);
        }
    }
}
