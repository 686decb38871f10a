//! Which page to give up when a frame is needed: S3-FIFO (`s3fifo.rs`), and what it sees and says.
//!
//! Pure: no I/O, no time, no threads, and no allocation once a policy is made. It sees frames as
//! numbers below a count, and no pages. It is told in which frames pages come and go, asks what it
//! needs to know about frames that it looks at ([`Frames`]), and *proposes*: whether a page can
//! really be given up is decided by its owner, who says so by [`S3Fifo::evicted`].
//!
//! Which pages were given up last is remembered by the owner (`ghost.rs`), as 64-bit hashes.
//!
//! Marks of use spare a page only while there are others. Those who peek may mark pages faster than
//! a search takes the marks away, and as they tell nobody, who then waited for a page without marks
//! might wait for ever. So a search that has taken all its looks, and has met no available page
//! even by writing, looks at each frame once more and ignores the marks.
//!
//! Dirty pages are not proposed but remembered in the [`Search`], so that the owner can have them
//! written back: a policy looks at a *window* of idle frames for a clean one, once it has met a
//! dirty one, before it settles for writing.

mod ghost;
mod queue;
#[cfg(feature = "ablation")]
pub mod replay;
mod s3fifo;

pub(crate) use ghost::Ghost;
pub(crate) use s3fifo::S3Fifo;

/// The name of a page of a file. Where two have the same, one may be taken for one that came back,
/// which harms nobody. Those of eight neighbouring pages differ in the lowest bits alone.
pub(crate) fn hash(file: u32, page: u64) -> u64 {
    page ^ u64::from(file).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a policy sees in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// In use, or no page: pass over it.
    Busy,
    /// Nobody uses it now.
    Idle {
        /// How often it was used since marks of use were last taken away, as far as that is
        /// counted.
        uses: u32,
        /// What stands between the frame and another page.
        page: Idle,
    },
}

/// What stands between an idle frame and another page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Nothing: the page can be read again.
    Clean,
    /// It must be written first.
    Dirty,
    /// It must be written first, and the last attempt failed.
    Failed,
}

/// Marks of use to take away: a frame has up to two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uses {
    /// The latest of them.
    One,
    /// All.
    All,
}

/// The frames, as a policy may see them.
pub(crate) trait Frames {
    /// What is in `frame` now. It may be another thing a moment later.
    fn look(&mut self, frame: u32) -> Look;

    /// Takes marks of use away from `frame`.
    fn forget(&mut self, frame: u32, uses: Uses);
}

/// The progress of one search for a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search {
    frames: usize,
    looks_left: usize,
    /// Whether marks of use still count.
    spares: bool,
    window_left: usize,
    dirty: Option<u32>,
    failed: Option<u32>,
}

impl Search {
    /// A search over `frames` frames: three looks at each, so that one used twice is seen again
    /// without its marks, and a fourth that ignores them if there was nothing else; and `window`
    /// looks at idle frames once it has met a dirty one.
    pub(crate) fn new(frames: usize, window: usize) -> Self {
        Self {
            frames,
            looks_left: 3 * frames,
            spares: true,
            window_left: window,
            dirty: None,
            failed: None,
        }
    }

    /// The first idle frame to be written back; one whose write failed only if there is no other.
    pub(crate) fn candidate(&self) -> Option<u32> {
        self.dirty.or(self.failed)
    }

    /// The first idle dirty frame that was passed, whose last write did not fail.
    pub(crate) fn dirty(&self) -> Option<u32> {
        self.dirty
    }

    /// Another look, at `frame`, if there may be one.
    fn look(&mut self, frame: u32, frames: &mut impl Frames) -> Option<Look> {
        if self.looks_left == 0 && self.spares && self.dirty.is_none() {
            self.spares = false;
            self.looks_left = self.frames;
        }
        if self.looks_left == 0 || self.dirty.is_some() && self.window_left == 0 {
            return None;
        }
        self.looks_left -= 1;
        Some(match frames.look(frame) {
            Look::Idle { page, .. } if !self.spares => Look::Idle { uses: 0, page },
            look => look,
        })
    }

    /// Takes note of an idle frame without marks of use; gives whether it can be had.
    fn can_have(&mut self, frame: u32, page: Idle) -> bool {
        match page {
            Idle::Clean => return true,
            Idle::Dirty => {
                self.dirty = self.dirty.or(Some(frame));
                self.window_left = self.window_left.saturating_sub(1);
            }
            Idle::Failed => self.failed = self.failed.or(Some(frame)),
        }
        false
    }
}

#[cfg(test)]
mod tests;
