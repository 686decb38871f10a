//! The demonstration: tiotest in alternating rounds, from an empty checkout to a verdict. Its last
//! five lines say what was shown against the kernel's page cache, and against a table that does not
//! filter.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::step::Step;
use crate::tidy::json::Value;

/// The file system work of the first report, as the published figures have it. The first table is
/// there within half a minute, and the verdict after seven to ten on an idle machine.
const DEMO: &str = "bench tiotest --with kernel,unherd-nofilter,unherd \
                    --base kernel,unherd-nofilter --threads 512 --memory 256M --timeout 60 \
                    --dir target/demo";

/// Builds the command, and runs the demonstration.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        let what = format!("`demo` takes no arguments, not `{argument}`");
        return Err(Failure::Usage(format!("{what}; use `unherd bench`")));
    }
    let program = build(root)?;
    let directory = root.join("target/demo");
    std::fs::create_dir_all(&directory).map_err(|error| {
        Failure::Usage(format!("cannot make the directory {}: {error}", directory.display()))
    })?;
    let mut arguments: Vec<&str> = DEMO.split_whitespace().collect();
    if !is_root() {
        println!(
            "\nWithout root the kernel's page cache has all of the machine's memory, and ours 256 \
             MiB: that is no comparison of the two. With equal memory:\n  sudo {} {DEMO}",
            program.display()
        );
        arguments.push("--without-cgroup");
    }
    println!("\n== {} {} ==", program.display(), arguments.join(" "));
    Step::program("unherd", &program).arguments(&arguments).run_last(root)
}

/// Whether memory cgroups can be made: root may, and others most often may not.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uid.is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

/// Builds the `unherd` command for measuring where cargo builds, and says where that is.
pub(crate) fn build(root: &Path) -> Result<PathBuf, Failure> {
    let (outcome, messages) = Step::cargo("build", &["build", "--release", "-p", "unherd-cli"])
        .arguments(&["--message-format", "json-render-diagnostics"])
        .run_reading(root)?;
    if !outcome.succeeded {
        return Err(Failure::Failed("the build of `unherd` failed".to_owned()));
    }
    println!("built in {:.1} s", outcome.elapsed.as_secs_f64());
    executable(&messages).ok_or_else(|| {
        Failure::Failed("cargo has built `unherd` and does not say where".to_owned())
    })
}

/// The path of `unherd` in the messages that cargo prints, one JSON object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter(|line| line.contains("\"executable\":\""));
    let paths =
        artifacts.filter_map(|line| Value::parse(line).ok()?.text("executable").map(PathBuf::from));
    paths.into_iter().find(|path| path.file_name().is_some_and(|name| name == "unherd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_says_where_unherd_is() {
        let messages = [
            r#"{"reason":"build-script-executed","package_id":"p","out_dir":"/elsewhere/out"}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"lab"},"executable":null}"#,
            r#"{"reason":"compiler-artifact","executable":"/elsewhere/release/other"}"#,
            r#"{"reason":"compiler-artifact","executable":"/elsewhere/release/unherd"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ];
        let found = executable(&messages.join("\n"));
        assert_eq!(found, Some(PathBuf::from("/elsewhere/release/unherd")));
        assert_eq!(executable(messages[0]), None);
    }
}
