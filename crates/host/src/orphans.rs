//! Descendants that a child leaves behind, such as those with a session of their own.
//!
//! A process whose parent ends becomes the child of its nearest ancestor that has asked for it
//! (prctl(2), `PR_SET_CHILD_SUBREAPER`). With that, whatever a child has started can be found and
//! ended, also what has left its group.

use std::collections::BTreeSet;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, getpid, kill_process, set_child_subreaper, waitid,
};
use unherd_sys::primitives::{Mutex, MutexGuard};

use crate::owners::Process;
use crate::usage::wait4;

/// The children that a [`ChildProcess`](crate::ChildProcess) waits for.
static CHILDREN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Held while a child is started, so that it is never taken for an orphan.
pub(crate) fn children() -> MutexGuard<'static, BTreeSet<u32>> {
    CHILDREN.lock()
}

/// From now on, orphaned descendants become children of this process.
pub fn adopt_orphans() -> Result<(), Errno> {
    set_child_subreaper(Some(getpid()))
}

/// Whether this process has any child at all, ended ones too. Asking is far cheaper than
/// looking through `/proc`.
fn has_children() -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, how), Err(Errno::CHILD))
}

/// Kills all adopted orphans, and those that they leave in turn, and waits for their end. An orphan
/// is a child of this process that no [`ChildProcess`](crate::ChildProcess) stands for and that is
/// not of this process's group: what [`std::process::Command`] starts is none. Where none of them
/// may be killed, as they are another user's (sudo(8)), they are left alone.
pub fn end_orphans() {
    if !has_children() {
        return;
    }
    let (own, group) = (getpid().as_raw_pid() as u32, getpgrp().as_raw_pid() as u32);
    loop {
        let known = children();
        let orphans = Process::all().into_iter().filter(|process| {
            process.parent == own && process.group != group && !known.contains(&process.pid)
        });
        let pids: Vec<Pid> =
            orphans.filter_map(|process| Pid::from_raw(process.pid as i32)).collect();
        // Until it is waited for, its number is its own. Another thread may have waited for it.
        let is_ended = |pid: &Pid| kill_process(*pid, Signal::KILL).is_ok() && wait4(*pid).is_ok();
        if pids.iter().filter(|pid| is_ended(pid)).count() == 0 {
            return;
        }
    }
}
