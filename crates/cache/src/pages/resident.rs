//! How a page comes into a frame, and leaves it: what is done to the index and to the frame's word
//! together, by who holds the lock of the page's shard. (Pins, and further changes of a dirty page,
//! need no lock: `frame.rs`.)
//!
//! | step | the index says | the frame's word |
//! |---|---|---|
//! | `look_up` of a page that nobody knows | announced | |
//! | `AnnouncedRun` of those that nobody knows, then its end | announced, then nothing | |
//! | `install`; `install_missing` of what nobody knows | the frame | empty, then reading or changing |
//! | `evict`; the caller takes the entry out | the frame, then nothing | clean or unstable, then empty |
//! | `detach` | the frame, then nothing | at rest, then detached |
//! | `Core::replace`, in `change.rs` | the frame, then that of the copy | at rest or in write-back, then detached or superseded |
//!
//! # Two threads miss one page
//!
//! ```text
//!  A                                         B
//!  -                                         -
//!  lock: nothing; announce; unlock
//!  have a frame                              lock: announced, so wait for that generation; unlock
//!  lock: install, entry; unlock
//!  read; publish the word (no lock)          wait: lock; still that generation? unlock
//!  wake the waiters for the page
//! ```
//!
//! Excluded: both bring it in. Nothing is decided about a missing page but under the lock, and who
//! finds nothing leaves the announcement there, or its frame, before it unlocks.
//!
//! # A page leaves a frame, and the frame gets another
//!
//! ```text
//!  has looked at the index (no lock)         takes the page from the frame (lock)
//!  ---------------------------------         ------------------------------------
//!  frame = what the index says               word: detached, or empty
//!  pin; then state and key fit?              take the entry out; unlock
//!                                            (with or without the lock of another page:)
//!                                            another key; word: that page
//! ```
//!
//! Excluded: the one who looked has another page, or one that was dropped and brought in again
//! since. The first is refused by the key, the second by the word: that of the old frame has
//! changed before the page may come in again.
//!
//! # Invariants
//!
//! 1. A page can be pinned in one frame at most, whatever somebody remembers of the index: before
//!    the lock is given up, its old frame's word has changed, or is one that may not be pinned (a
//!    read that failed, a change given up), and a new frame comes in under the lock.
//! 2. Who has found a frame elsewhere than under the lock may have found another page's: it looks
//!    whether the entry under the lock names the frame.
//! 3. From the change of the word on the frame is not the lock holder's: the last unpin may have
//!    freed it, and it may hold a page of another shard. So the entry is taken out by its place.

use crate::frames::{Claim, Frames, Pin, State, Word};
use crate::page::{BusyGeneration, FrameId};
use crate::pages::{Entry, FillReservation, ShardGuard};

/// What is done with a page that cannot be had at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Reading,
    Changing,
    WriteBack,
    /// An older version is in write-back. This keeps nobody from the page but who writes it back.
    OlderWriteBack,
}

/// Why a page cannot be had at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy {
    pub(crate) work: Work,
    pub(crate) generation: BusyGeneration,
}

impl Busy {
    fn announced(generation: BusyGeneration) -> Self {
        Self { work: Work::Reading, generation }
    }

    /// Of a page in a frame whose word says that it is not at rest. The caller holds the shard
    /// lock.
    pub(crate) fn in_frame(frames: &Frames, frame: FrameId, word: Word) -> Self {
        let work = match word.state() {
            State::Reading => Work::Reading,
            State::WriteBack => Work::WriteBack,
            state => {
                debug_assert_eq!(state, State::Changing, "frames of other states hold no page");
                Work::Changing
            }
        };
        Self { work, generation: frames.generation(frame) }
    }
}

/// What a lookup has found.
#[derive(Debug)]
pub(crate) enum Lookup {
    Here(Pin),
    Busy(Busy),
    /// Not there. The caller has announced that it brings the page in.
    Miss(FillReservation),
}

/// The page is there, and has as many pins as it may have.
#[derive(Debug)]
pub(crate) struct TooManyPins;

impl ShardGuard<'_> {
    /// Pins the page if it is there, and announces it if nobody knows it.
    pub(crate) fn look_up(&mut self, frames: &Frames) -> Result<Lookup, TooManyPins> {
        Ok(match self.get() {
            Some(Entry::Announced(generation)) => Lookup::Busy(Busy::announced(generation)),
            Some(Entry::Frame(frame)) => match frames.try_pin(frame) {
                Ok(pin) => Lookup::Here(pin),
                Err(word) if word.is_readable() => return Err(TooManyPins),
                Err(word) => Lookup::Busy(Busy::in_frame(frames, frame, word)),
            },
            None => Lookup::Miss(self.announce()),
        })
    }

    /// Puts a claimed frame in the place of the page's announcement.
    pub(crate) fn install(
        &mut self,
        frames: &Frames,
        of: FillReservation,
        claim: &Claim,
        state: State,
    ) {
        frames.install(claim, of.key, state, of.generation);
        self.set_frame(claim.id());
    }

    /// Puts a claimed frame in the index for the page, to be read into or changed, unless the index
    /// knows the page. Whether it did.
    pub(crate) fn install_missing(&mut self, frames: &Frames, claim: &Claim, state: State) -> bool {
        if self.get().is_some() {
            return false;
        }
        let generation = self.begin_busy();
        frames.install(claim, self.key(), state, generation);
        self.set_frame(claim.id());
        true
    }

    /// Why the page cannot be had now.
    pub(crate) fn busy(&self, frames: &Frames) -> Option<Busy> {
        match self.get()? {
            Entry::Announced(generation) => Some(Busy::announced(generation)),
            Entry::Frame(frame) => {
                let word = frames.word(frame);
                (!word.state().is_at_rest()).then(|| Busy::in_frame(frames, frame, word))
            }
        }
    }

    /// Takes the frame from the page, if that is in it, can be read again and is not in use. The
    /// caller takes the entry out.
    pub(crate) fn evict(&self, frames: &Frames, frame: FrameId) -> Option<Claim> {
        // Invariant 2: `frame` may have another page by now.
        if self.frame() != Some(frame) {
            return None;
        }
        frames.evict(frame).ok()
    }

    /// Drops the page, whatever it holds, if it is there. Gives the claim if nobody has it pinned;
    /// else the last unpin gets it. The word is that of the page before. Not of a page that is not
    /// at rest.
    pub(crate) fn detach(mut self, frames: &Frames) -> Result<(Word, Option<Claim>), Busy> {
        let frame = match self.get() {
            None => return Ok((Word::default(), None)),
            Some(Entry::Announced(generation)) => return Err(Busy::announced(generation)),
            Some(Entry::Frame(frame)) => frame,
        };
        let detached = frames.detach(frame).map_err(|word| Busy::in_frame(frames, frame, word))?;
        self.remove();
        Ok(detached)
    }
}

#[cfg(all(test, loom))]
mod loom;
