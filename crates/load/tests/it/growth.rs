//! `growth` at a size that takes no time.

use unherd_load::Workload;

use unherd_sys::primitives::Mutex;

use super::*;

/// The ledger is the process's: one round at a time.
static ROUND: Mutex<()> = Mutex::new(());

fn small(with: &str, threads: usize) -> Value {
    let _one = ROUND.lock();
    // 65 would need 512 buckets. But each guesses their number by those who are counted in one
    // place with it, which depends on addresses, so it may take a few more until one sees it.
    let params = "--param buckets-max=512 --param waiters=80";
    run(&format!("growth --with {with} --threads {threads} {params}")).unwrap()
}

#[test]
fn a_table_grows_and_shrinks_and_nobody_is_lost() {
    // Beside a thread that comes and goes, the last size is not exact: it may aim at a size by what
    // it counted before the table was told to settle, and twice the least is kept once it is there.
    for (threads, after_max) in [(1, 16.0), (2, 32.0)] {
        let [fixed, grown] = ["fixed", "unherd"].map(|with| small(with, threads));
        assert_eq!(fixed["check"], grown["check"]);
        for moment in ["before", "peak", "after"] {
            assert_eq!(metric(&fixed, &format!("{moment}_buckets")), 512.0, "{fixed}");
        }
        let buckets = |moment| metric(&grown, &format!("{moment}_buckets"));
        assert_eq!((buckets("before"), buckets("peak")), (16.0, 512.0), "{grown}");
        assert!((16.0..=after_max).contains(&buckets("after")), "{grown}");
        let bytes = |moment| metric(&grown, &format!("{moment}_table_bytes"));
        assert!(bytes("peak") > bytes("before"), "{grown}");
        assert_eq!(bytes("after"), bytes("before"), "{grown}");
        let waits = grown["waits"]["reasons"].as_array().unwrap();
        let ours = waits.iter().find(|entry| entry["reason"] == "growth").unwrap();
        assert_eq!(ours["wakes"], 80, "{ours}");
    }
}

#[test]
fn every_metric_of_the_catalogue_is_there() {
    let listed: Vec<_> = Growth.describe().metrics.into_iter().map(|metric| metric.name).collect();
    let given: Vec<_> =
        small("unherd", 2)["metrics"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(given, listed);
}
