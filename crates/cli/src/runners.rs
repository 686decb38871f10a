//! Who can be asked to run a round: this executable, the rivals where they are built, and those
//! that `UNHERD_RUNNERS` names.

use std::env;
use std::path::PathBuf;

use unherd_lab::catalogue::Registry;
use unherd_lab::{Error, Interrupt, describe};
use unherd_load::RIVALS;

use crate::output::{Failure, note};

/// Further runners, separated as in `PATH`.
const VARIABLE: &str = "UNHERD_RUNNERS";

/// What `rivals/` builds.
const RIVALS_PROGRAM: &str = "unherd-rivals";

/// The catalogues of all runners, merged. Rivals that do not answer are left out with a word: they
/// may be of an older build. Runners that were named must answer.
pub(crate) fn registry() -> Result<Registry, Failure> {
    let interrupt = Interrupt::new()
        .map_err(|e| Failure::usage(&format!("no descriptor is left: {e}"), "raise ulimit -n"))?;
    let mut registry = Registry::default();
    let own = own_executable()?;
    registry.add(&own, &describe(&own, &interrupt)?)?;
    if let Some(rivals) = rivals(&own) {
        let added = describe(&rivals, &interrupt).and_then(|text| registry.add(&rivals, &text));
        if let Err(error) = added {
            note(&format!("leaving out the rivals: {error}"));
        }
    }
    for runner in env::split_paths(&env::var_os(VARIABLE).unwrap_or_default()) {
        if !runner.as_os_str().is_empty() {
            registry.add(&runner, &describe(&runner, &interrupt)?)?;
        }
    }
    Ok(registry)
}

/// This executable.
pub(crate) fn own_executable() -> Result<PathBuf, Failure> {
    env::current_exe()
        .map_err(|e| Failure::usage(&format!("cannot find itself: {e}"), "mount /proc"))
}

/// The error with the way to get the implementation, if it is one of the rivals, which are not
/// built.
pub(crate) fn with_way_to_rivals(error: Error, workload: &str) -> Error {
    let is_rival = |name: &str| {
        RIVALS.iter().any(|(known, impls)| *known == workload && impls.contains(&name))
    };
    match error {
        Error::UnknownName { kind: "implementation", name, .. } if is_rival(&name) => {
            let advice = format!(
                "the program in rivals/ has it: run `cargo build --release --manifest-path \
                 rivals/Cargo.toml` in unherd's repository, and set \
                 {VARIABLE}=rivals/target/release/{RIVALS_PROGRAM}"
            );
            Error::UnknownName { kind: "implementation", name, advice }
        }
        error => error,
    }
}

/// Beside this executable, or where `rivals/` of this workspace builds it.
fn rivals(own: &std::path::Path) -> Option<PathBuf> {
    const BUILT: &str = "rivals/target/release";
    let beside = own.parent()?;
    let workspace = beside.parent().and_then(|target| target.parent());
    [Some(beside.join(RIVALS_PROGRAM)), workspace.map(|root| root.join(BUILT).join(RIVALS_PROGRAM))]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_that_are_not_built_are_explained() {
        let said = |name: &str, workload| {
            let (name, advice) = (name.to_owned(), "there are: floor, unherd".to_owned());
            let error = Error::UnknownName { kind: "implementation", name, advice };
            with_way_to_rivals(error, workload).to_string()
        };
        let rival = said("parking_lot_core", "wake");
        assert!(rival.contains("--manifest-path rivals/Cargo.toml"), "{rival}");
        assert!(rival.contains("UNHERD_RUNNERS=rivals/target/release/unherd-rivals"), "{rival}");
        // The rivals do not have it for this workload.
        assert!(said("parking_lot_core", "tiotest").ends_with("there are: floor, unherd"));
        assert!(said("nosuch", "wake").ends_with("there are: floor, unherd"));
    }
}
