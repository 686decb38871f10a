//! `growth` at a size that takes no time.

use unherd_load::Workload;

use unherd_sys::primitives::Mutex;

use super::*;

/// The ledger is the process's: one round at a time.
static ROUND: Mutex<()> = Mutex::new(());

fn small(with: &str) -> Value {
    let _one = ROUND.lock();
    let params = "--param buckets-max=512 --param waiters=65";
    run(&format!("growth --with {with} --threads 2 {params}")).unwrap()
}

#[test]
fn a_table_grows_and_shrinks_and_nobody_is_lost() {
    let [fixed, grown] = ["fixed", "unherd"].map(small);
    assert_eq!(fixed["check"], grown["check"]);
    for (moment, buckets) in [("before", 16.0), ("peak", 512.0), ("after", 16.0)] {
        assert_eq!(metric(&grown, &format!("{moment}_buckets")), buckets, "{grown}");
        assert_eq!(metric(&fixed, &format!("{moment}_buckets")), 512.0, "{fixed}");
    }
    let bytes = |moment| metric(&grown, &format!("{moment}_table_bytes"));
    assert!(bytes("peak") > bytes("before"), "{grown}");
    assert_eq!(bytes("after"), bytes("before"), "{grown}");
    let waits = grown["waits"]["reasons"].as_array().unwrap();
    let ours = waits.iter().find(|entry| entry["reason"] == "growth").unwrap();
    assert_eq!(ours["wakes"], 65, "{ours}");
}

#[test]
fn every_metric_of_the_catalogue_is_there() {
    let listed: Vec<_> = Growth.describe().metrics.into_iter().map(|metric| metric.name).collect();
    let given: Vec<_> = small("unherd")["metrics"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(given, listed);
}
