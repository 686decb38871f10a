//! Finding a program, and why one that is there did not start.

use std::io;
use std::path::{Path, PathBuf};

/// Whether it is a file that may be run.
pub(crate) fn is_program(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
}

/// The first program of this name in the directories of `PATH`.
pub(crate) fn program_in_path(name: &str) -> Option<PathBuf> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&places).map(|place| place.join(name)).find(|path| is_program(path))
}

/// What to do about a program that did not start, where the kernel names no file and means another
/// one: a script's interpreter, or the directory in which it should run. `None` for other errors,
/// and where there is no such program.
pub fn absence_advice(
    program: &str,
    directory: Option<&Path>,
    error: &io::Error,
) -> Option<&'static str> {
    let is_there = || match program.contains('/') {
        true => Path::new(program).exists(),
        false => program_in_path(program).is_some(),
    };
    match error.kind() {
        io::ErrorKind::NotFound if !directory.is_none_or(Path::is_dir) => {
            Some("the directory that it runs in is not there any more; see what removes it")
        }
        io::ErrorKind::NotFound if is_there() => {
            Some("it is there, and the interpreter that it names is not")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_is_looked_up_before_it_is_told() {
        let absent = io::Error::from(io::ErrorKind::NotFound);
        let advice = absence_advice("/bin/sh", None, &absent).unwrap();
        assert!(advice.contains("interpreter"), "{advice}");
        assert_eq!(absence_advice("sh", Some(Path::new("/")), &absent), Some(advice));
        let gone = absence_advice("/bin/sh", Some(Path::new("/nonexistent")), &absent);
        assert!(gone.is_some_and(|advice| advice.starts_with("the directory")), "{gone:?}");
        for name in ["/nonexistent/program", "no-such-program"] {
            assert_eq!(absence_advice(name, None, &absent), None);
        }
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(absence_advice("/bin/sh", None, &denied), None);
    }
}
