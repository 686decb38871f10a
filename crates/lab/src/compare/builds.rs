//! Building what is compared: by a command for each side, or from two commits, each in a work tree
//! of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sides::Side;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::launch::{Ending, Finished, Launch};
use crate::leftovers::WorkDirectory;

/// How long one build may take.
const BUILD_MAX: Duration = Duration::from_secs(3600);

/// Runs a script of sh(1) to its end. `what` is what an error calls it.
///
/// # Errors
///
/// [`Error::Step`] where it fails, [`Error::InterruptedStep`] where it was interrupted.
pub(crate) fn shell(
    what: String,
    script: &str,
    directory: Option<&Path>,
    environment: Vec<(&str, &str)>,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let launch = Launch {
        directory,
        environment,
        ..Launch::new(Path::new("sh"), vec!["-c".into(), script.into()], BUILD_MAX)
    };
    ran(what, launch, interrupt).map(drop)
}

fn ran(what: String, launch: Launch<'_>, interrupt: &Interrupt) -> Result<Finished, Error> {
    let finished = launch
        .run(interrupt)
        .map_err(|source| Error::machine(format!("cannot run {what}"), "install it", source))?;
    if finished.ending == Ending::Interrupted {
        return Err(Error::InterruptedStep { what });
    }
    let how = match finished.exit_code((BUILD_MAX, ""), "") {
        Ok(0) => return Ok(finished),
        Ok(code) => format!("it ended with exit code {code}"),
        Err(how) => how,
    };
    let output = format!("{}{}", finished.stdout, finished.stderr);
    Err(Error::Step { what, how, output })
}

/// Work trees of some commits; removed on drop.
#[derive(Debug)]
pub struct WorkTrees {
    repository: PathBuf,
    /// Each with its commit.
    trees: Vec<(PathBuf, String)>,
    _work: WorkDirectory,
}

impl WorkTrees {
    /// Checks each of `revisions` of the repository around `repository` out, below `parent`.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where a revision or the repository is none, [`Error::Step`] with what else
    /// git(1) says.
    pub fn check_out(
        repository: &Path,
        revisions: &[String],
        parent: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self, Error> {
        let work = WorkDirectory::create(parent)?;
        let refused = |what: String, advice: &'static str| {
            move |error| match error {
                Error::Step { .. } => Error::usage(what, advice),
                error => error,
            }
        };
        git(repository, &["rev-parse", "--git-dir"], interrupt).map_err(refused(
            format!("--git: {} is in no repository of git(1)", repository.display()),
            "go to the one that holds the commits",
        ))?;
        // Those that killed comparisons have left are gone by now, and git still knows of them.
        git(repository, &["worktree", "prune"], interrupt)?;
        let mut trees = Self { repository: repository.to_owned(), trees: Vec::new(), _work: work };
        for (index, revision) in revisions.iter().enumerate() {
            let commit = format!("{revision}^{{commit}}");
            let words = ["rev-parse", "--verify", "--short=12", "--end-of-options", &commit];
            let found = git(repository, &words, interrupt).map_err(refused(
                format!("--git: no commit is called {revision}"),
                "see git log, and git fetch",
            ))?;
            let commit = found.stdout.trim().to_owned();
            let path = trees._work.path().join(format!("tree-{index}"));
            let shown = path.to_string_lossy().into_owned();
            let add = ["worktree", "add", "--detach", "--force", &shown, &commit];
            git(repository, &add, interrupt)?;
            trees.trees.push((path, commit));
        }
        Ok(trees)
    }

    /// Lets each side run in its work tree, in the order of the revisions. What is shown of it has
    /// the commit: a name like HEAD is another one tomorrow.
    pub fn enter(&self, sides: &mut [Side]) {
        for (side, (path, commit)) in sides.iter_mut().zip(&self.trees) {
            side.shown_as = Some(format!("{} (at {commit})", side.shown()));
            side.directory = Some(path.clone());
        }
    }
}

impl Drop for WorkTrees {
    fn drop(&mut self) {
        for (tree, _) in &self.trees {
            // What is left is removed with the directory, and forgotten by the next prune.
            let tree = tree.to_string_lossy();
            let remove = ["worktree", "remove", "--force", &tree];
            let interrupt = Interrupt::new();
            let _ = interrupt.map(|interrupt| git(&self.repository, &remove, &interrupt));
        }
    }
}

fn git(repository: &Path, words: &[&str], interrupt: &Interrupt) -> Result<Finished, Error> {
    let args = words.iter().map(Into::into).collect();
    let launch =
        Launch { directory: Some(repository), ..Launch::new(Path::new("git"), args, BUILD_MAX) };
    ran(format!("git {}", words.join(" ")), launch, interrupt)
}
