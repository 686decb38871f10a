//! The text of `./x help`. The script `x` prints this file, which needs no compiler, and takes the
//! commands from it: lines of two spaces and a name.

/// What `help` prints.
pub(crate) const TEXT: &str = include_str!("help.txt");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output};

    use super::*;

    /// A directory that is removed at the end, with all programs that `x` finds: neither a compiler
    /// nor libraries are there, apt-get says what it does, and this user is root.
    struct BareMachine(PathBuf);

    impl BareMachine {
        fn new(name: &str) -> Self {
            let programs = std::env::temp_dir().join(format!("x-{name}-{}", std::process::id()));
            fs::create_dir_all(&programs).unwrap();
            for tool in ["sh", "dirname", "sed", "grep", "cat", "mktemp", "rm"] {
                let places = std::env::var_os("PATH").unwrap();
                let found = std::env::split_paths(&places).map(|place| place.join(tool));
                symlink(found.into_iter().find(|it| it.exists()).unwrap(), programs.join(tool))
                    .unwrap();
            }
            for (name, script) in [
                ("id", "echo 0"),
                ("apt-get", "echo \"apt-get runs: $*\""),
                ("cargo", "echo \"cargo runs: $*\""),
                ("rustc", "exit 1"),
            ] {
                let program = programs.join(name);
                fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
                fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            }
            Self(programs)
        }

        fn x(&self, arguments: &[&str], install: Option<&str>) -> (Output, String) {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let mut command = Command::new("/bin/sh");
            command.arg(root.join("x")).args(arguments).env_clear().env("PATH", &self.0);
            command.envs(install.map(|word| ("UNHERD_INSTALL", word)));
            let output = command.output().unwrap();
            let said = [output.stdout.clone(), output.stderr.clone()].concat();
            (output, String::from_utf8(said).unwrap())
        }
    }

    impl Drop for BareMachine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn help_and_slips_install_nothing() {
        let machine = BareMachine::new("help");
        for arguments in [&[][..], &["help"], &["--help"], &["-h"], &["demo", "--help"]] {
            let (output, said) = machine.x(arguments, None);
            assert!(output.status.success(), "{arguments:?}: {said}");
            assert_eq!(said, TEXT, "{arguments:?}");
        }
        for slip in ["nosuch", "-x", "de", "demo.*"] {
            let (output, said) = machine.x(&[slip], None);
            assert_eq!(output.status.code(), Some(2), "{slip}: {said}");
            assert_eq!(said, format!("x: no command `{slip}`; ./x help lists them\n"));
        }
    }

    #[test]
    fn packages_are_named_then_installed() {
        let machine = BareMachine::new("install");
        let line = "apt-get update && apt-get install -y gcc libc6-dev clang make pkg-config \
                    libelf-dev zlib1g-dev";
        let (output, said) = machine.x(&["test"], None);
        assert!(output.status.success(), "{said}");
        let installed = format!("x: {line}\napt-get runs: update\napt-get runs: install -y gcc");
        assert!(said.contains(&installed), "{said}");
        assert!(said.contains("cargo runs: x test\n"), "{said}");
        let (output, said) = machine.x(&["test"], Some("no"));
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.ends_with(&format!("install them with: sh -c '{line}'\n")), "{said}");
        assert!(!said.contains(" runs: "), "{said}");
    }

    /// The commands that the arms of `run` know, options aside.
    fn commands_of_run() -> BTreeSet<&'static str> {
        let main = include_str!("main.rs");
        let (_, arms) = main.split_once("    match command {\n").unwrap();
        let (arms, _) = arms.split_once("        other =>").unwrap();
        // An arm may begin a line above its arrow.
        let patterns = arms.lines().filter(|line| line.starts_with("        \""));
        let quoted = patterns.flat_map(|line| {
            line.split("=>").next().into_iter().flat_map(|arm| arm.split('"').skip(1).step_by(2))
        });
        quoted.filter(|name| !name.starts_with('-')).collect()
    }

    #[test]
    fn listed_commands_are_those_of_xtask() {
        let listed = TEXT.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let listed: Vec<&str> = listed.filter(|name| !name.is_empty()).collect();
        assert!(listed.len() > 10, "{listed:?}");
        let names: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(names.len(), listed.len(), "one stands there twice: {listed:?}");
        assert_eq!(names, commands_of_run());
    }
}
