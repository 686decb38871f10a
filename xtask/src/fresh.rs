//! Tests as they run on a machine where nothing was prepared.

use std::path::Path;

use crate::failure::Failure;
use crate::step::Step;

/// Starts a program without tracefs and debugfs, and with SIGINT and SIGQUIT ignored, as the
/// background job of a script has them.
const SCRIPT: &str = ".ci/fresh";

/// Makes a bare Debian, and runs the commands of the README in it.
const BARE_DEBIAN: &str = ".ci/bare-debian";

/// Runs [`BARE_DEBIAN`] as the last word of a command.
pub(crate) fn bare_debian(root: &Path) -> Result<(), Failure> {
    Step::program("bare Debian", &root.join(BARE_DEBIAN)).run_last(root)
}

/// What cargo is configured with to start each test by [`SCRIPT`]. Where there can be no mount
/// namespace, the mounts stay as they are, and a line says so.
pub(crate) fn runner(root: &Path) -> Result<String, Failure> {
    let script = root.join(SCRIPT);
    let trial = Step::program("trial of a mount namespace", &script);
    let (succeeded, said) = trial.arguments(&["--unmounted", "true"]).run_quietly(root)?;
    let mode = if succeeded { "--unmounted" } else { "--as-mounted" };
    if !succeeded {
        println!("tests run with this machine's mounts: {}", said.trim());
    }
    Ok(format!("target.'cfg(unix)'.runner = [{:?}, {mode:?}]", script.display().to_string()))
}
