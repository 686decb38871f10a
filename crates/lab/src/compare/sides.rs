//! The commands that are compared.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::adapter::Adapter;
use crate::error::Error;
use crate::program::{is_program, program_in_path};

/// One command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// What tables call it.
    pub label: String,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// What tables show instead of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_as: Option<String>,
    /// Where it runs, if not where the lab does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Added to its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<(String, String)>,
    /// How late its timers may be, in nanoseconds, if not as Linux has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_slack_ns: Option<NonZeroU64>,
}

impl Side {
    /// A program with its arguments, and nothing special.
    pub fn new(label: String, words: Vec<String>) -> Self {
        let (shown_as, directory, environment, timer_slack_ns) = (None, None, Vec::new(), None);
        Self { label, words, shown_as, directory, environment, timer_slack_ns }
    }

    /// The commands in `words`, which are divided by `between`; named A, B, C … unless told. With
    /// `shell`, each is one word for sh(1).
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for an empty command where no adapter has one, or names that do not fit.
    pub fn parse(
        words: &[String],
        between: &str,
        names: &[String],
        shell: bool,
        adapter: Option<&Adapter>,
    ) -> Result<Vec<Self>, Error> {
        let commands: Vec<&[String]> = words.split(|word| word == between).collect();
        if adapter.is_none() && commands.iter().any(|command| command.is_empty()) {
            return Err(Error::usage(
                "a command is empty",
                format!("write them as: -- A… {between} B…"),
            ));
        }
        if !names.is_empty() && names.len() != commands.len() {
            return Err(Error::usage(
                format!("there are {} names for {} commands", names.len(), commands.len()),
                "give --names one for each, with commas between them",
            ));
        }
        let mut sides = Vec::new();
        for (index, command) in commands.iter().enumerate() {
            let letter = || char::from(b'A' + (index % 26) as u8).to_string();
            let label = names.get(index).cloned().unwrap_or_else(letter);
            if sides.iter().any(|side: &Self| side.label == label) {
                return Err(Error::usage(
                    format!("two commands are called {label}"),
                    "name each by --names",
                ));
            }
            let (words, shown_as) = match (adapter, shell, *command) {
                (Some(adapter), false, command) => adapter.command(command),
                (None, false, command) => (command.to_vec(), None),
                (_, true, [script]) => (["sh", "-c", script].map(str::to_owned).to_vec(), None),
                (_, true, _) => {
                    return Err(Error::usage(
                        format!("with --shell {label} has {} words", command.len()),
                        "quote each command, so that it is one",
                    ));
                }
            };
            sides.push(Self { shown_as, ..Self::new(label, words) });
        }
        Ok(sides)
    }

    /// Whether it is the same command, in the same place and surroundings.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.words == other.words
            && self.directory == other.directory
            && self.has_surroundings_of(other)
    }

    fn has_surroundings_of(&self, other: &Self) -> bool {
        self.environment == other.environment && self.timer_slack_ns == other.timer_slack_ns
    }

    /// The command, for people.
    pub(crate) fn shown(&self) -> String {
        self.shown_as.clone().unwrap_or_else(|| self.words.join(" "))
    }

    /// The program's file.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where there is none that can be run.
    pub(crate) fn program(&self) -> Result<PathBuf, Error> {
        let name = &self.words[0];
        let missing = |what: &str| {
            Error::usage(
                format!("{}: {name}: {what}", self.label),
                "see how the command is written",
            )
        };
        if name.contains('/') {
            let path = self.directory.as_deref().unwrap_or(Path::new(".")).join(name);
            let absolute =
                fs::canonicalize(&path).map_err(|_| missing("there is no such program"))?;
            return if is_program(&absolute) {
                Ok(absolute)
            } else if absolute.is_dir() {
                Err(missing("that is a directory"))
            } else {
                let label = &self.label;
                Err(Error::usage(
                    format!("{label}: {name}: it is no program that may be run"),
                    format!("chmod +x it, or write its interpreter: python3 {name}"),
                ))
            };
        }
        if name.contains('=') {
            return Err(Error::usage(
                format!("{}: {name} sets a variable, which is the shell's way", self.label),
                format!("write env {name} …, or give --shell"),
            ));
        }
        program_in_path(name).ok_or_else(|| {
            missing("there is no such program in PATH (the shell's own need sh -c '…')")
        })
    }
}

/// What is to be said where commands are the same, or their programs are.
pub(crate) fn sameness(sides: &[Side], programs: &[PathBuf]) -> Vec<String> {
    let mut marks = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        for (other, program) in sides[..index].iter().zip(programs) {
            let labels = format!("{} and {}", other.label, side.label);
            let arguments_agree = side.words[1..] == other.words[1..];
            // One file in two work trees is an interpreter's: what it runs there may differ.
            let is_one_file = side.directory != other.directory && *program == programs[index];
            if side.is_same(other) {
                marks.push(format!("{labels} are the same command: any difference is chance"));
            } else if arguments_agree
                && !is_one_file
                && side.has_surroundings_of(other)
                && have_same_bytes(program, &programs[index])
            {
                marks.push(format!("the programs of {labels} are the same, byte by byte"));
            }
        }
    }
    marks
}

fn have_same_bytes(a: &Path, b: &Path) -> bool {
    const COMPARED_MAX_BYTES: u64 = 256 << 20;
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    if size(a) != size(b) || size(a) > COMPARED_MAX_BYTES {
        return false;
    }
    a == b || fs::read(a).is_ok_and(|bytes| fs::read(b).is_ok_and(|others| bytes == others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str, names: &[&str], shell: bool) -> Result<Vec<Side>, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Side::parse(&words, "--", &names, shell, None).map_err(|error| error.to_string())
    }

    #[test]
    fn commands_are_divided_and_named() {
        let sides = parse("a -x -- b -- c", &[], false).unwrap();
        let shown: Vec<_> = sides.iter().map(|side| (&*side.label, side.words.join(" "))).collect();
        assert_eq!(shown, [("A", "a -x".into()), ("B", "b".into()), ("C", "c".into())]);
        let named = parse("a -- b", &["old", "new"], true).unwrap();
        assert_eq!((&*named[1].label, named[1].words.join(" ")), ("new", "sh -c b".to_owned()));
    }

    #[test]
    fn what_is_no_list_of_commands_is_refused() {
        let refused = |line, names: &[&str], shell| parse(line, names, shell).unwrap_err();
        assert!(refused("a --", &[], false).contains("a command is empty"), "an end without B");
        assert!(refused("a -- b", &["x"], false).contains("1 names for 2 commands"));
        assert!(refused("a -- b", &["x", "x"], false).contains("two commands are called x"));
        assert!(refused("a b -- c", &[], true).contains("A has 2 words"));
    }

    #[test]
    fn programs_are_found_or_refused() {
        let program = |name: &str| {
            let side = &parse(name, &[], false).unwrap()[0];
            side.program().map_err(|error| (error.to_string(), error.exit_code()))
        };
        assert!(program("sh").unwrap().is_absolute());
        let (said, code) = program("no-such-program").unwrap_err();
        assert!(said.contains("A: no-such-program: there is no such program in PATH"), "{said}");
        assert_eq!(code, 2);
        assert!(program("./no-such").unwrap_err().0.contains("no such program"));
        assert!(program("/dev/null").unwrap_err().0.contains("chmod +x it, or write its interp"));
        assert!(
            program("LC_ALL=C").unwrap_err().0.contains("write env LC_ALL=C …, or give --shell")
        );
    }

    #[test]
    fn same_programs_are_named() {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (one, copy, other) = (file("one", "x"), file("copy", "x"), file("other", "y"));
        let said = |line: &str, programs: &[PathBuf]| {
            sameness(&parse(line, &[], false).unwrap(), programs).join(";")
        };
        assert!(said("one -- one", &[one.clone(), one.clone()]).contains("are the same command"));
        assert!(said("one -- copy", &[one.clone(), copy.clone()]).contains("byte by byte"));
        assert_eq!(said("one -- copy 1", &[one.clone(), copy.clone()]), "");
        let in_trees = |programs: [&PathBuf; 2]| {
            let mut sides = parse("python3 t.py -- python3 t.py", &[], false).unwrap();
            sides[1].directory = Some(PathBuf::from("tree"));
            sameness(&sides, &programs.map(Clone::clone)).join(";")
        };
        assert_eq!(in_trees([&one, &one]), "", "what it runs may differ");
        assert!(in_trees([&one, &copy]).contains("byte by byte"));
        assert_eq!(said("one -- other", &[one, other]), "");
    }
}
