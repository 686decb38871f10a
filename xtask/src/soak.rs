//! The checks that are too long for CI.

use std::path::Path;

use crate::failure::Failure;
use crate::mutants;
use crate::step::Step;
use crate::suite;

/// Simulations and property tests run once with each of these seeds.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=32;

/// How many cases a property test tries; proptest's own default is 256.
const PROPERTY_CASES: &str = "4096";

/// How often the power fails on each file system.
const POWER_CUTS: &str = "20";

/// Runs every test under optimisation, those marked `#[ignore]` (which are the long ones) too, then
/// the whole cache simulated, the simulated ones under many seeds, then the mutants.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let every = ["test", "--release", "--workspace", "--no-fail-fast"];
    let mut outcomes = vec![
        Step::cargo("all tests, the long ones too", &every)
            .arguments(&["--", "--include-ignored"])
            .environment("PROPTEST_CASES", PROPERTY_CASES)
            .environment("UNHERD_POWER_CUTS", POWER_CUTS)
            .run_tests(root)?,
        suite::simulate(root)?,
    ];
    for seed in SEEDS {
        let step = Step::cargo(format!("simulation, seed {seed}"), &every)
            .arguments(&["--lib", "--tests", "--quiet"])
            .environment("UNHERD_SEED", seed.to_string());
        outcomes.push(step.run_tests(root)?);
    }
    suite::conclude(&outcomes)?;
    mutants::run(root, &[])
}
