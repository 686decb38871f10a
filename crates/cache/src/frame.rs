//! Frames: the memory of the cache, and what may be done with it when.
//!
//! # States
//!
//! | state | the frame's memory | may be pinned | left by | to |
//! |---|---|---|---|---|
//! | empty | holds no page; its [`Claim`] lies with the free frames or with one thread | no | `install` | reading, changing |
//! | | | | `hand_over` to a thread that waits for a frame | handed |
//! | handed | holds no page, and is on its way to a waiter | no | `take_over` | empty |
//! | reading | is being filled by the device | no | `publish` | clean |
//! | | | | `clear` (the read failed) | empty |
//! | changing | is being written by the one thread that has its [`Claim`] | no | `publish` | dirty |
//! | | | | `clear` (the change was given up) | empty |
//! | clean | is what stable storage has | yes | `try_change`, unpinned | changing |
//! | | | | `evict`, unpinned | empty |
//! | dirty | is newer than the file | yes | `try_change`, unpinned | changing |
//! | | | | `lend` | write-back |
//! | write-back | is being read by the device, or waits for that | yes | `give_back` | unstable, failed |
//! | unstable | was written, but no flush has succeeded since | yes | `try_change`, unpinned | changing |
//! | | | | `settle` after a flush | clean, or dirty if it failed |
//! | | | | `evict`, unpinned | empty |
//! | failed | as dirty; the last attempt to write it failed | yes | as dirty | as dirty |
//! | detached | is a page that was dropped or replaced while pinned | no more | the last `unpin` | empty |
//!
//! `detach` leads from clean, dirty, unstable and failed to detached if pinned, else to empty.
//!
//! # The word
//!
//! | bits | meaning |
//! |---|---|
//! | 0..4 | state |
//! | 4 | referenced: used since the hand of the clock last came by |
//! | 5..32 | pins |
//!
//! # Invariants
//!
//! 1. A [`Claim`] exists for a frame exactly while it is empty, reading or changing. There is one,
//!    it cannot be copied, and only its holder touches the frame's memory and key.
//! 2. A [`Pin`] exists for each pin counted in the word. Pins rise only in states that may be
//!    pinned, and no state with a claim is entered while there is a pin.
//! 3. A [`Lent`] exists for a frame exactly while it is in write-back.
//! 4. So memory is written only under a claim, and while a pin or a loan exists there is none:
//!    a pinned page never changes in place.
//! 5. A frame is found through the index under its key only. It enters the index when it is
//!    installed, and leaves it before it is empty or detached, both under the lock of its shard;
//!    pins rise under that lock too.
//! 6. Tokens are used with the frames that gave them, whose memory outlives them: a frame set is
//!    private to one cache, and is dropped last.
#![expect(unsafe_code, reason = "the frames' memory is shared under the invariants above")]

use std::ops::Range;
use std::ptr::NonNull;

use unherd_sys::primitives::{AtomicU32, AtomicU64, Ordering};
use unherd_sys::{Errno, HugePages, IoBuf, Map};

use crate::page::{FileId, FrameId, PageKey, PageNo, Spell};

/// See the table at the top of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub(crate) enum State {
    Empty,
    Handed,
    Reading,
    Changing,
    Clean,
    Dirty,
    WriteBack,
    Unstable,
    Failed,
    Detached,
}

impl State {
    const ALL: [Self; 10] = [
        Self::Empty,
        Self::Handed,
        Self::Reading,
        Self::Changing,
        Self::Clean,
        Self::Dirty,
        Self::WriteBack,
        Self::Unstable,
        Self::Failed,
        Self::Detached,
    ];

    pub(crate) fn may_be_pinned(self) -> bool {
        matches!(self, Self::Clean | Self::Dirty | Self::WriteBack | Self::Unstable | Self::Failed)
    }

    /// States that a page rests in: nobody works on it.
    pub(crate) fn is_at_rest(self) -> bool {
        matches!(self, Self::Clean | Self::Dirty | Self::Unstable | Self::Failed)
    }
}

const STATE_MASK: u32 = 0xf;
const REFERENCED: u32 = 1 << 4;
const ONE_PIN: u32 = 1 << 5;
/// One less than fit into the word: the last is for the one who copies the page.
const PINS_MAX: u32 = u32::MAX / ONE_PIN - 1;

/// The word of a frame, as it was when it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u32);

impl Word {
    fn new(state: State, pins: u32, referenced: bool) -> Self {
        Self(state as u32 | (pins * ONE_PIN) | if referenced { REFERENCED } else { 0 })
    }

    pub(crate) fn state(self) -> State {
        State::ALL[(self.0 & STATE_MASK) as usize]
    }

    pub(crate) fn pins(self) -> u32 {
        self.0 / ONE_PIN
    }

    pub(crate) fn is_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    fn with_state(self, state: State) -> Self {
        Self((self.0 & !STATE_MASK) | state as u32)
    }

    /// Whether the frame could be had without writing anything.
    pub(crate) fn is_evictable(self) -> bool {
        matches!(self.state(), State::Clean | State::Unstable) && self.pins() == 0
    }
}

/// What is kept about a frame, on a cache line of its own.
///
/// The fields but `word` are Relaxed: they are written under a claim or a loan, and published by
/// the word.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Frame {
    word: AtomicU32,
    file: AtomicU32,
    page: AtomicU64,
    /// The flush period of its file (see `durability.rs`) in which it was last written back.
    period: AtomicU64,
    /// The last time that the page was busy. Written and read under the page's shard lock.
    spell: AtomicU32,
}

impl Frame {
    fn load(&self) -> Word {
        // ORDER[FRAME1]: Acquire; pairs with the Release in `update`: whoever sees a state sees the
        // memory and the key as they were when it was entered.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Changes the word as `to` says, unless that is `None`. Gives the word before.
    fn update(&self, mut to: impl FnMut(Word) -> Option<Word>) -> Result<Word, Word> {
        // ORDER[FRAME1]: Release publishes the memory and the key to the Acquire of the one who
        // changes or loads the word next; so all use under a claim, pin or loan that ends here
        // happens before all use under one that begins later.
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                to(Word(word)).map(|word| word.0)
            })
            .map(Word)
            .map_err(Word)
    }
}

/// The right to write a frame's memory (invariant 1).
#[derive(Debug)]
#[must_use = "a claim that is forgotten is a frame that is lost"]
pub(crate) struct Claim(FrameId);

/// The right to read a frame's memory (invariant 2).
#[derive(Debug)]
#[must_use = "a pin that is forgotten keeps its frame for ever"]
pub(crate) struct Pin(FrameId);

/// The duty to write a frame's memory back (invariant 3).
#[derive(Debug)]
#[must_use = "a loan that is forgotten leaves its frame in write-back for ever"]
pub(crate) struct Lent(FrameId);

impl Claim {
    pub(crate) fn id(&self) -> FrameId {
        self.0
    }
}

impl Lent {
    pub(crate) fn id(&self) -> FrameId {
        self.0
    }
}

/// What is left of a frame after an unpin.
#[derive(Debug)]
pub(crate) enum Unpinned {
    /// Pins are left, or it is in write-back.
    Held,
    /// Nobody uses it: the frame could be had, perhaps after a write-back.
    Idle,
    /// It was detached, and this was the last pin.
    Freed(Claim),
}

/// All frames of a cache.
#[derive(Debug)]
pub(crate) struct Frames {
    frames: Box<[Frame]>,
    memory: Map,
    page_bytes: usize,
}

impl Frames {
    /// `count` empty frames, with their claims.
    pub(crate) fn new(count: usize, page_bytes: usize) -> Result<(Self, Vec<Claim>), Errno> {
        let bytes = count.checked_mul(page_bytes).ok_or(Errno::NOMEM)?;
        let memory = Map::new(bytes, HugePages::Advised)?;
        memory.populate()?;
        let frames = (0..count).map(|_| Frame::default()).collect();
        // Popped from the end: the first frame is used first.
        let claims = (0..count as u32).rev().map(|id| Claim(FrameId(id))).collect();
        Ok((Self { frames, memory, page_bytes }, claims))
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Bytes of what is kept about the frames.
    pub(crate) fn overhead_bytes(&self) -> usize {
        size_of_val(&*self.frames)
    }

    fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    fn start(&self, id: FrameId) -> NonNull<u8> {
        assert!(id.index() < self.frames.len(), "a frame of another cache");
        // SAFETY: the map holds a page for each frame, and `id` is one of them.
        unsafe { self.memory.start().add(id.index() * self.page_bytes) }
    }

    pub(crate) fn word(&self, id: FrameId) -> Word {
        self.frame(id).load()
    }

    /// The key of the page in a frame; of an empty frame, that of its last page. A caller without
    /// a token of the frame must look it up in the index before it believes it.
    pub(crate) fn key(&self, id: FrameId) -> PageKey {
        let frame = self.frame(id);
        PageKey {
            file: FileId(frame.file.load(Ordering::Relaxed)),
            page: PageNo(frame.page.load(Ordering::Relaxed)),
        }
    }

    /// The flush period in which the page was last written back.
    pub(crate) fn period(&self, id: FrameId) -> u64 {
        self.frame(id).period.load(Ordering::Relaxed)
    }

    /// When the page became busy last. The caller holds its shard lock.
    pub(crate) fn spell(&self, id: FrameId) -> Spell {
        Spell(self.frame(id).spell.load(Ordering::Relaxed))
    }

    fn begin_spell(&self, id: FrameId, spell: Spell) {
        self.frame(id).spell.store(spell.0, Ordering::Relaxed);
    }

    // Memory.

    pub(crate) fn bytes<'a>(&'a self, pin: &'a Pin) -> &'a [u8] {
        // SAFETY: invariant 4: nobody writes the memory while `pin` exists.
        unsafe { std::slice::from_raw_parts(self.start(pin.0).as_ptr(), self.page_bytes) }
    }

    pub(crate) fn bytes_mut<'a>(&'a self, claim: &'a mut Claim) -> &'a mut [u8] {
        // SAFETY: invariant 1: nobody else touches the memory while `claim` exists.
        unsafe { std::slice::from_raw_parts_mut(self.start(claim.0).as_ptr(), self.page_bytes) }
    }

    pub(crate) fn lent_bytes<'a>(&'a self, lent: &'a Lent) -> &'a [u8] {
        // SAFETY: invariant 4: nobody writes the memory while `lent` exists.
        unsafe { std::slice::from_raw_parts(self.start(lent.0).as_ptr(), self.page_bytes) }
    }

    /// The memory for a device to write. The claim must be kept until the transfer is complete.
    pub(crate) fn buf_to_fill(&self, claim: &mut Claim, range: Range<usize>) -> IoBuf {
        self.buf(claim.0, range)
    }

    /// The memory for a device to read. The loan must be kept until the transfer is complete.
    pub(crate) fn buf_to_write(&self, lent: &Lent, range: Range<usize>) -> IoBuf {
        self.buf(lent.0, range)
    }

    fn buf(&self, id: FrameId, range: Range<usize>) -> IoBuf {
        assert!(range.start <= range.end && range.end <= self.page_bytes, "beyond the page");
        // SAFETY: in the page, as just checked.
        let start = unsafe { self.start(id).add(range.start) };
        IoBuf { start, len: range.len() }
    }

    // Transitions of a frame's claim.

    /// Gives the frame a page. The caller holds the shard lock of `key` and puts the frame into the
    /// index (invariant 5).
    pub(crate) fn install(&self, claim: &Claim, key: PageKey, state: State, spell: Spell) {
        debug_assert!(matches!(state, State::Reading | State::Changing));
        let frame = self.frame(claim.0);
        frame.file.store(key.file.0, Ordering::Relaxed);
        frame.page.store(key.page.0, Ordering::Relaxed);
        self.begin_spell(claim.0, spell);
        let before = frame.update(|_| Some(Word::new(state, 0, true)));
        debug_assert!(before.is_ok_and(|word| word.state() == State::Empty && word.pins() == 0));
    }

    /// Ends reading or changing with a page that others may see.
    pub(crate) fn publish(&self, claim: Claim, state: State) {
        let _ = self.frame(claim.0).update(|_| Some(Word::new(state, 0, true)));
    }

    /// As [`Frames::publish`], with a pin for the caller.
    pub(crate) fn publish_pinned(&self, claim: Claim, state: State) -> Pin {
        let _ = self.frame(claim.0).update(|_| Some(Word::new(state, 1, true)));
        Pin(claim.0)
    }

    /// Takes the page from a claimed frame, which has left the index.
    pub(crate) fn clear(&self, claim: &Claim) {
        let _ = self.frame(claim.0).update(|_| Some(Word::new(State::Empty, 0, false)));
    }

    /// Sends an empty frame on its way to the one who will call [`Frames::take_over`].
    pub(crate) fn hand_over(&self, claim: Claim) -> FrameId {
        let _ = self.frame(claim.0).update(|_| Some(Word::new(State::Handed, 0, false)));
        claim.0
    }

    /// Receives a frame that was handed over, unless somebody has.
    pub(crate) fn take_over(&self, id: FrameId) -> Option<Claim> {
        let handed = |word: Word| word.state() == State::Handed;
        let empty = Word::new(State::Empty, 0, false);
        self.frame(id).update(|word| handed(word).then_some(empty)).ok()?;
        Some(Claim(id))
    }

    // Transitions of a frame in the index; the caller holds its shard lock.

    /// Pins the page. Gives the word if its state forbids it, or if it has too many pins.
    pub(crate) fn try_pin(&self, id: FrameId) -> Result<Pin, Word> {
        self.frame(id).update(|word| {
            (word.state().may_be_pinned() && word.pins() < PINS_MAX)
                .then(|| Word((word.0 + ONE_PIN) | REFERENCED))
        })?;
        Ok(Pin(id))
    }

    /// Claims the page for a change. Gives the word if it is pinned or not at rest.
    pub(crate) fn try_change(&self, id: FrameId, spell: Spell) -> Result<Claim, Word> {
        self.frame(id).update(|word| {
            (word.state().is_at_rest() && word.pins() == 0).then_some(Word::new(
                State::Changing,
                0,
                true,
            ))
        })?;
        self.begin_spell(id, spell);
        Ok(Claim(id))
    }

    /// Drops the page, which must be at rest; the caller takes it out of the index. Gives the claim
    /// if nobody has it pinned; else the last unpin gets it. Gives the word if it is not at rest.
    pub(crate) fn detach(&self, id: FrameId) -> Result<Option<Claim>, Word> {
        let before = self.frame(id).update(|word| {
            word.state().is_at_rest().then_some(if word.pins() == 0 {
                Word::new(State::Empty, 0, false)
            } else {
                word.with_state(State::Detached)
            })
        })?;
        Ok((before.pins() == 0).then_some(Claim(id)))
    }

    /// As [`Frames::detach`], with a pin for the caller, who copies the page.
    pub(crate) fn detach_pinned(&self, id: FrameId) -> Result<Pin, Word> {
        self.frame(id).update(|word| {
            word.state().is_at_rest().then(|| Word(word.with_state(State::Detached).0 + ONE_PIN))
        })?;
        Ok(Pin(id))
    }

    /// Takes the frame from a page that can be read again; the caller takes it out of the index.
    pub(crate) fn evict(&self, id: FrameId) -> Result<Claim, Word> {
        self.frame(id)
            .update(|word| word.is_evictable().then_some(Word::new(State::Empty, 0, false)))?;
        Ok(Claim(id))
    }

    /// Begins the write-back of a dirty page.
    pub(crate) fn lend(&self, id: FrameId, spell: Spell) -> Result<Lent, Word> {
        self.frame(id).update(|word| {
            matches!(word.state(), State::Dirty | State::Failed)
                .then_some(word.with_state(State::WriteBack))
        })?;
        self.begin_spell(id, spell);
        Ok(Lent(id))
    }

    /// Says what became of the unstable page: clean or dirty. Nothing happens in another state.
    pub(crate) fn settle(&self, id: FrameId, state: State) {
        debug_assert!(matches!(state, State::Clean | State::Dirty));
        let _ = self
            .frame(id)
            .update(|word| (word.state() == State::Unstable).then_some(word.with_state(state)));
    }

    // Transitions that need no lock.

    /// Ends a write-back: unstable, with the flush period of its file, or failed. Gives the word.
    pub(crate) fn give_back(&self, lent: Lent, written: Option<u64>) -> Word {
        let frame = self.frame(lent.0);
        let state = match written {
            Some(period) => {
                frame.period.store(period, Ordering::Relaxed);
                State::Unstable
            }
            None => State::Failed,
        };
        match frame.update(|word| Some(word.with_state(state))) {
            Ok(before) | Err(before) => before.with_state(state),
        }
    }

    /// Gives a pin back.
    pub(crate) fn unpin(&self, pin: Pin) -> Unpinned {
        let updated = self.frame(pin.0).update(|word| {
            debug_assert!(word.pins() > 0);
            Some(if word.state() == State::Detached && word.pins() == 1 {
                Word::new(State::Empty, 0, false)
            } else {
                Word(word.0 - ONE_PIN)
            })
        });
        let (Ok(before) | Err(before)) = updated;
        match before.state() {
            _ if before.pins() > 1 => Unpinned::Held,
            State::Detached => Unpinned::Freed(Claim(pin.0)),
            State::WriteBack => Unpinned::Held,
            _ => Unpinned::Idle,
        }
    }

    /// Takes the mark of use away. The hand of the clock does.
    pub(crate) fn forget_use(&self, id: FrameId) {
        self.frame(id).word.fetch_and(!REFERENCED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPELL: Spell = Spell(0);
    const KEY: PageKey = PageKey { file: FileId(3), page: PageNo(5) };

    fn one_frame() -> (Frames, Claim) {
        let (frames, mut claims) = Frames::new(1, 4096).unwrap();
        (frames, claims.pop().unwrap())
    }

    #[test]
    fn the_word_keeps_its_parts_apart() {
        for state in State::ALL {
            for (pins, referenced) in [(0, false), (1, true), (PINS_MAX, false), (PINS_MAX, true)] {
                let word = Word::new(state, pins, referenced);
                assert_eq!((word.state(), word.pins()), (state, pins));
                assert_eq!(word.is_referenced(), referenced);
                assert_eq!(word.with_state(State::Failed).pins(), pins);
            }
        }
    }

    #[test]
    fn pinned_pages_are_neither_changed_nor_evicted() {
        let (frames, claim) = one_frame();
        frames.install(&claim, KEY, State::Reading, SPELL);
        let id = claim.id();
        assert_eq!(frames.try_pin(id).unwrap_err().state(), State::Reading);
        let pin = frames.publish_pinned(claim, State::Clean);
        assert!(frames.try_change(id, SPELL).is_err());
        assert!(frames.evict(id).is_err());
        assert!(matches!(frames.unpin(pin), Unpinned::Idle));
        let claim = frames.try_change(id, SPELL).unwrap();
        frames.publish(claim, State::Dirty);
        assert!(frames.evict(id).is_err(), "dirty");
        let lent = frames.lend(id, SPELL).unwrap();
        assert!(frames.try_change(id, SPELL).is_err(), "in write-back");
        assert!(frames.detach(id).is_err(), "in write-back");
        assert!(frames.give_back(lent, Some(7)).is_evictable());
        assert_eq!((frames.key(id), frames.period(id)), (KEY, 7));
        frames.settle(id, State::Dirty);
        assert!(frames.evict(id).is_err(), "dirty again");
        frames.settle(id, State::Clean);
        assert_eq!(frames.word(id).state(), State::Dirty, "only unstable pages are settled");
    }

    #[test]
    fn the_last_unpin_frees_a_detached_frame() {
        let (frames, claim) = one_frame();
        frames.install(&claim, KEY, State::Reading, SPELL);
        let first = frames.publish_pinned(claim, State::Clean);
        let second = frames.try_pin(FrameId(0)).unwrap();
        assert!(frames.detach(FrameId(0)).unwrap().is_none());
        assert!(frames.try_pin(FrameId(0)).is_err());
        assert!(matches!(frames.unpin(first), Unpinned::Held));
        assert!(matches!(frames.unpin(second), Unpinned::Freed(_)));
        assert_eq!(frames.word(FrameId(0)).state(), State::Empty);
    }

    #[test]
    fn pins_cannot_overflow() {
        let (frames, claim) = one_frame();
        frames.install(&claim, KEY, State::Reading, SPELL);
        frames.publish(claim, State::Clean);
        let full = Word::new(State::Clean, PINS_MAX, false);
        frames.frames[0].word.store(full.0, Ordering::Relaxed);
        assert_eq!(frames.try_pin(FrameId(0)).unwrap_err().pins(), PINS_MAX);
    }
}
