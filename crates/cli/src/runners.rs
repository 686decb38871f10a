//! Who can be asked to run a round: this executable, the rivals where they are built, and those
//! that `UNHERD_RUNNERS` names.

use std::env;
use std::path::PathBuf;

use unherd_lab::catalogue::Registry;
use unherd_lab::{Interrupt, describe};

use crate::output::{Failure, note};

/// Further runners, separated as in `PATH`.
const VARIABLE: &str = "UNHERD_RUNNERS";

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

/// Beside this executable, or where `rivals/` of this workspace builds it.
fn rivals(own: &std::path::Path) -> Option<PathBuf> {
    const NAME: &str = "unherd-rivals";
    const BUILT: &str = "rivals/target/release";
    let beside = own.parent()?;
    let workspace = beside.parent().and_then(|target| target.parent());
    [Some(beside.join(NAME)), workspace.map(|root| root.join(BUILT).join(NAME))]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
}
