//! A page that is newer than the device, and is written to again: without a lock.
//!
//! Such a page is counted, in the set of unclean ones and dated already, and where the file reaches
//! beyond what is written, neither its length nor the bound on unwritten pages changes. So nothing
//! but the page's word does: dirty, changing, dirty. All else takes the way of `change.rs`.
//!
//! The caller does not hold `file.writers`. One who has it exclusively, and drops or replaces
//! pages, excludes this by the page's word:
//!
//! ```text
//!  writes to a dirty page                     cuts the file, or punches a hole
//!  ----------------------                     --------------------------------
//!  before = word: dirty, unpinned    Acquire  the file's new length             Release
//!  the key fits; so does the length  Acquire  word: detached, if it is at rest  AcqRel
//!  word: changing, if still `before` Acquire    else wait until it is
//!  write
//!  word: dirty                       AcqRel
//! ```
//!
//! If the left side's change of the word comes first, the right side waits, and the write came
//! before the cut. If the right side's does, either `before` is older, and the left side's fails;
//! or it is the word of a frame that was published later, and then the new length is seen.

use crate::file::Core;
#[cfg(test)]
use crate::file::steps;
use crate::state::FileState;

/// Writes `bytes` at `offset`, if they lie in one page, and that is dirty; whether it did. What
/// `follows` the last write is no further use of the page.
#[inline]
pub(crate) fn try_overwrite(
    core: &Core,
    file: &FileState,
    offset: u64,
    bytes: &[u8],
    follows: bool,
) -> bool {
    let (page, at) = core.memory().locate(offset);
    let left = core.memory().page_bytes() - at;
    // A stream comes to pages that are missing, and what it has filled is written behind.
    let is_stream = follows && (at == 0 || bytes.len() == left);
    if is_stream || bytes.is_empty() || bytes.len() > left {
        return false;
    }
    let key = file.key(page);
    let is_inside = || offset + bytes.len() as u64 <= file.len();
    #[cfg(test)]
    steps::reach(core, steps::Step::Overwrite, page);
    let found = core.pages.index.lookup(key);
    let claim = found.and_then(|frame| core.frames().try_change_again(frame, key, is_inside));
    let Some(mut claim) = claim else { return false };
    if follows {
        claim.goes_on();
    }
    core.memory().write(&mut claim, at, bytes);
    core.end_change(file, key, claim);
    true
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;
