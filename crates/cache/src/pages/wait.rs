//! Waits for a page, and what the waiters are told.

use unherd_sync::{Outcome, Reason, Tag, Token, Verdict, Wait, WaitKey};
use unherd_sys::Errno;

use crate::foreign_code::run_foreign;
use crate::page::{BusyGeneration, PageKey, PageNo};
use crate::pages::{Busy, FillReservation, Pages, Work};

/// Waiters for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Threads that can all go on together.
    Read,
    /// Threads that can go on one at a time.
    Change,
}

impl Want {
    pub(crate) fn tag(self) -> Tag {
        Tag(self as u64)
    }
}

/// What the waiters for a page are told.
///
/// | token | meaning |
/// |---|---|
/// | 0 | nothing: look again (so are those of other keys woken in a cache without filtering) |
/// | 1 | no frame could be had for it |
/// | 2^16 and up | the read failed; the lowest 16 bits are the kernel's number |
///
/// The upper 32 bits of the last two are the generation that they are about: the page may have been
/// announced again meanwhile, and then a thread that waits for that has nothing to do with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeMessage {
    Look,
    NoFrames(BusyGeneration),
    ReadFailed(BusyGeneration, Errno),
}

const READ_FAILED: u64 = 1 << 16;

impl WakeMessage {
    fn token(self) -> Token {
        Token(match self {
            Self::Look => 0,
            Self::NoFrames(generation) => u64::from(generation.0) << 32 | 1,
            Self::ReadFailed(generation, errno) => {
                u64::from(generation.0) << 32 | READ_FAILED | u64::from(errno.raw_os_error() as u16)
            }
        })
    }

    fn from_token(token: Token) -> Self {
        let generation = BusyGeneration((token.0 >> 32) as u32);
        match token.0 as u32 {
            0 => Self::Look,
            1 => Self::NoFrames(generation),
            raw => Self::ReadFailed(generation, Errno::from_raw_os_error(i32::from(raw as u16))),
        }
    }
}

impl Pages {
    /// Why the page cannot be had now.
    pub(crate) fn busy(&self, key: PageKey) -> Option<Busy> {
        self.shard(key).busy(self.frames())
    }

    /// What one waits for that would write the page back, if it is awaiting an older write-back.
    pub(crate) fn busy_awaiting_older_writeback(&self, key: PageKey) -> Option<Busy> {
        let shard = self.shard(key);
        let frame = shard.frame()?;
        // The page itself may be changed again and again meanwhile: that ends no such wait.
        let busy = Busy { work: Work::OlderWriteBack, generation: BusyGeneration(0) };
        self.frames().word(frame).is_awaiting_older_writeback().then_some(busy)
    }

    pub(crate) fn is_still(&self, key: PageKey, busy: Busy) -> bool {
        let now = match busy.work {
            Work::OlderWriteBack => self.busy_awaiting_older_writeback(key),
            Work::Reading | Work::Changing | Work::WriteBack => self.busy(key),
        };
        now == Some(busy)
    }

    /// Blocks until this busy period ends. What it was told about that; of what follows, nothing.
    pub(crate) fn wait(&self, key: PageKey, busy: Busy, want: Want) -> WakeMessage {
        let how = self.how_to_wait(busy, want);
        let outcome = self.waits.wait(&key.into(), || self.is_still(key, busy), how);
        self.told(key, busy, outcome)
    }

    /// What one that has waited for the end of a busy period was told about it.
    pub(crate) fn told(&self, key: PageKey, busy: Busy, outcome: Outcome) -> WakeMessage {
        let Outcome::Woken(token) = outcome else {
            return WakeMessage::Look;
        };
        match WakeMessage::from_token(token) {
            message @ (WakeMessage::NoFrames(about) | WakeMessage::ReadFailed(about, _))
                if busy.work == Work::Reading && about == busy.generation =>
            {
                message
            }
            _ => {
                if self.is_still(key, busy) {
                    self.waits.note_needless(self.reason_of(busy.work));
                }
                WakeMessage::Look
            }
        }
    }

    fn reason_of(&self, work: Work) -> Reason {
        match work {
            Work::Reading => self.reasons.page_read,
            Work::Changing => self.reasons.page_change,
            Work::WriteBack | Work::OlderWriteBack => self.reasons.write_back,
        }
    }

    pub(crate) fn how_to_wait(&self, busy: Busy, want: Want) -> Wait {
        Wait::new(self.reason_of(busy.work)).tag(want.tag())
    }

    /// The page has come to rest by the caller's update of its frame's word just before: wakes all
    /// that want to read it, and the first that wants to change it. That one wakes the next when it
    /// is done with the page, or gives up.
    pub(crate) fn wake_page_after_rmw(&self, key: PageKey) {
        let key = key.into();
        if self.waits.is_waited_for_after_rmw(&key) {
            self.wake_waiters(&key);
        }
    }

    /// As [`Pages::wake_page_after_rmw`], of several pages that have come to rest before. Gives the
    /// first that somebody may have waited for.
    pub(crate) fn wake_pages(&self, keys: impl IntoIterator<Item = PageKey>) -> Option<PageNo> {
        let keys = keys.into_iter().map(WaitKey::from);
        let mut first = None;
        for key in self.waits.waited_for(keys) {
            self.wake_waiters(&key);
            if let WaitKey::Page { page, .. } = key {
                first.get_or_insert(PageNo(page));
            }
        }
        first
    }

    fn wake_waiters(&self, key: &WaitKey) {
        let mut changer_woken = false;
        let choose = |tag: Tag| {
            if tag == Want::Change.tag() {
                if changer_woken {
                    return Verdict::Skip;
                }
                changer_woken = true;
            }
            Verdict::Wake
        };
        run_foreign(|| self.waits.wake_where(key, choose, WakeMessage::Look.token()));
    }

    /// Passes on a wake that was meant for one that changes the page.
    pub(crate) fn wake_next_changer(&self, key: PageKey) {
        let choose = |tag: Tag| {
            if tag == Want::Change.tag() { Verdict::WakeAndStop } else { Verdict::Skip }
        };
        run_foreign(|| self.waits.wake_where(&key.into(), choose, WakeMessage::Look.token()));
    }

    /// Takes an announcement back, with a message for those that wait for the page.
    pub(crate) fn take_back(&self, announced: FillReservation, message: WakeMessage) {
        self.shard(announced.key).remove();
        self.wake_failed(announced.key, message);
    }

    /// The page could not be brought in: wakes all that wait for it.
    pub(crate) fn wake_failed(&self, key: PageKey, message: WakeMessage) {
        run_foreign(|| self.waits.wake_with(&key.into(), usize::MAX, message.token()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: BusyGeneration = BusyGeneration(u32::MAX);

    #[test]
    fn messages_survive_their_token() {
        for message in [
            WakeMessage::Look,
            WakeMessage::NoFrames(GENERATION),
            WakeMessage::ReadFailed(GENERATION, Errno::IO),
        ] {
            assert_eq!(WakeMessage::from_token(message.token()), message);
        }
    }
}
