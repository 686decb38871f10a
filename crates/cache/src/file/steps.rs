//! For tests: what shall happen when a thread gets to a step with a page.

use unherd_sys::primitives::Mutex;

use crate::file::Core;
use crate::page::PageNo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The page is lent to the device next.
    Lend,
    /// It is looked for next, to be changed without a lock.
    Overwrite,
    /// A copy takes its place next.
    Replace,
    /// It is the first of missing ones that are put into the index next, to be written.
    InstallPages,
    /// It is the first of those that are in the index by now, and are written next.
    WritePages,
}

type Action = Box<dyn FnOnce() + Send>;

static ACTIONS: Mutex<Vec<(u64, Step, PageNo, Action)>> = Mutex::new(Vec::new());

/// Has `action` happen once, when a thread gets there in this cache.
pub(crate) fn at(core: &Core, step: Step, page: PageNo, action: impl FnOnce() + Send + 'static) {
    ACTIONS.lock().push((core.files.number, step, page, Box::new(action)));
}

pub(crate) fn reach(core: &Core, step: Step, page: PageNo) {
    let action = {
        let mut actions = ACTIONS.lock();
        let is_here = |action: &(u64, Step, PageNo, Action)| {
            (action.0, action.1, action.2) == (core.files.number, step, page)
        };
        let at = actions.iter().position(is_here);
        at.map(|at| actions.swap_remove(at).3)
    };
    if let Some(action) = action {
        action();
    }
}
