//! What CI builds with another compiler, or for another processor.

use std::path::Path;

use crate::failure::Failure;
use crate::step::Step;
use crate::suite::target_directory;

/// The library is built and linted for it besides this machine's own target.
const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";

/// The packages of the library.
pub(crate) const LIBRARY: [&str; 8] =
    ["-p", "unherd-sys", "-p", "unherd-sync", "-p", "unherd-cache", "-p", "unherd"];

/// The steps that this machine allows; a line for each that it does not.
pub(crate) fn steps(root: &Path) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    if has_target(root) || rustup(root, &["target", "add", OTHER_TARGET]) {
        steps.push(
            Step::cargo(format!("build for {OTHER_TARGET}"), &["build", "--locked"])
                .arguments(&["--target", OTHER_TARGET])
                .arguments(&LIBRARY)
                // Nothing of it is run.
                .environment("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
        );
        steps.push(
            Step::cargo(format!("lints for {OTHER_TARGET}"), &["clippy", "--locked"])
                .arguments(&["--target", OTHER_TARGET])
                .arguments(&LIBRARY)
                .arguments(&["--all-targets", "--", "-D", "warnings"]),
        );
    } else {
        println!("not built for {OTHER_TARGET}: rustup cannot install its standard library");
    }
    let version = rust_version(root)?;
    let install = ["toolchain", "install", &version, "--profile", "minimal", "--no-self-update"];
    if rustup(root, &["run", &version, "cargo", "--version"]) || rustup(root, &install) {
        // The library is what others build by it. That the rest calls no newer function of std, a
        // lint tells.
        steps.push(
            Step::program(format!("check by Rust {version}"), Path::new("rustup"))
                .arguments(&["run", &version, "cargo", "check", "--locked"])
                .arguments(&LIBRARY)
                .environment("CARGO_TARGET_DIR", format!("{}/rust-version", target_directory())),
        );
    } else {
        println!("not checked by Rust {version}: rustup cannot install it");
    }
    Ok(steps)
}

/// Whether the standard library for [`OTHER_TARGET`] is installed.
fn has_target(root: &Path) -> bool {
    let rustc = Step::program("target", Path::new("rustc"));
    let asked = rustc.arguments(&["--print", "target-libdir", "--target", OTHER_TARGET]);
    asked.run_quietly(root).is_ok_and(|(_, place)| Path::new(place.trim()).exists())
}

/// Whether rustup is here and does this.
fn rustup(root: &Path, arguments: &[&str]) -> bool {
    let step = Step::program("rustup", Path::new("rustup")).arguments(arguments);
    step.run_quietly(root).is_ok_and(|(succeeded, _)| succeeded)
}

/// The oldest compiler that the packages say they need.
fn rust_version(root: &Path) -> Result<String, Failure> {
    let manifest = root.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap_or_default();
    stated_version(&text)
        .ok_or_else(|| Failure::Failed(format!("{} has no rust-version", manifest.display())))
}

fn stated_version(manifest: &str) -> Option<String> {
    let value = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "))?;
    Some(value.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_version_is_read() {
        let manifest = "[workspace.package]\nedition = \"2024\"\nrust-version = \"1.88\"\n";
        assert_eq!(stated_version(manifest).as_deref(), Some("1.88"));
        assert_eq!(stated_version("[package]\n"), None);
    }
}
