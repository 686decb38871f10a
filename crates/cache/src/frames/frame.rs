//! Frames: what may be done with the memory of the cache, and when.
//!
//! # States
//!
//! | state | the frame's memory | may be pinned | left by | to |
//! |---|---|---|---|---|
//! | empty | holds no page; its [`Claim`] lies with the free frames or with one thread | no | `install` | reading, changing |
//! | | | | `hand_over` to a thread that waits for a frame | handed |
//! | | | | `publish` (it must stay after all) | dirty |
//! | handed | holds no page, and is on its way to a waiter | no | `take_over` | empty |
//! | reading | is being filled by the device | no | `publish` | clean |
//! | | | | `clear` (the read failed) | empty |
//! | changing | is being written by the one thread that has its [`Claim`] | no | `publish` | dirty, failed or held; what it was, if it was not changed |
//! | clean | is what stable storage has | yes | `try_change`, unpinned | changing |
//! | | | | `evict`, unpinned | empty |
//! | dirty | is newer than the file | yes | `try_change` or `…_again`, unpinned | changing |
//! | | | | `fail` (writes of the file fail) | failed |
//! | | | | `lend`, unless it is *awaiting older write-back* (see below) | write-back |
//! | write-back | is being read by the device, or waits for that | yes | `give_back` | unstable, failed |
//! | | | | `replace` | superseded |
//! | unstable | was written, but no flush has succeeded since | yes | `try_change`, unpinned | changing |
//! | | | | `settle` after a flush | clean, or dirty if it failed |
//! | | | | `evict`, unpinned | empty |
//! | failed | as dirty; the last attempt to write it failed | yes | as dirty | as dirty |
//! | held | as dirty; must wait for its log (`holds.rs`) | yes | `try_change`, unpinned | changing |
//! | | | | `release` | dirty |
//! | detached | is a page that was dropped or replaced, for those who have it pinned | no more | `free_detached`, unpinned | empty |
//! | superseded | as in write-back, of a page that another frame has by now | no more | `give_back` | detached |
//!
//! `detach` and `replace` lead from clean, dirty, unstable, failed and held to detached. One who
//! finds a detached frame without pins then tries to free it: the one who detached it or gave it
//! back, and each who unpins it. One of them succeeds.
//!
//! # A newer version of a page in write-back
//!
//! A writer that changes a page in write-back puts a copy in its place, which is *awaiting older
//! write-back* until that has ended. While it is, it is not lent: of one page at most one transfer
//! is under way, so that the newer cannot be overtaken by the older. The mark is changed under the
//! shard lock alone:
//!
//! ```text
//!  replaces the page (lock)                  ends the write-back
//!  ------------------------                  -------------------
//!  old: write-back -> superseded             old: superseded -> detached       (no lock)
//!  copy: installed and marked, in the index  in the index: the mark goes       (lock)
//! ```
//!
//! If the loan ends before the first step, the old page is at rest, and nothing is marked; if after
//! it, one who ends it sees *superseded*, and its last step comes after the copy is in the index. A
//! page so marked is not dropped: who drops pages has waited for the file's write-backs.
//!
//! # Invariants
//!
//! 1. A [`Claim`] exists for a frame exactly while it is empty, reading or changing. There is one,
//!    it cannot be copied, and only its holder writes the frame's memory and key.
//! 2. The word counts the [`Pin`]s, and pins of threads that have not looked yet at what they
//!    pinned. Those may come in any state; who finds that it may not be pinned, or that it is
//!    another page, touches nothing and takes its pin back. So no change of state writes the pins,
//!    and a change that needs there to be none may be refused where nobody has a [`Pin`]: then the
//!    hand passes on, and a writer makes a copy.
//! 3. A [`Lent`] exists for a frame exactly while it is in write-back or superseded.
//! 4. So memory is written only under a claim, and while a pin or a loan exists there is none:
//!    a pinned page never changes in place. Who peeks has neither: it may see memory that is being
//!    written, and looks at the version afterwards.
//! 5. A frame is found through the index under its key only. It enters the index when it is
//!    installed, and leaves it before it can be had for another page. While it is there, its state
//!    changes under the lock of its shard, except for the end of a claim or a loan, and for the
//!    beginning of a further change of a dirty page. Pins rise without.
//! 6. Tokens are used with the frames that gave them, whose memory outlives them: a frame set is
//!    private to one cache, and is dropped last.
//!
//! # A pin without a lock
//!
//! ```text
//!  reader                                    one who takes the frame
//!  ------                                    -----------------------
//!  frame = what the index says     Relaxed   change the word to a claim
//!  word += PIN                     Acquire     if no pins are there    AcqRel
//!  may be pinned, and the key fits? Relaxed  write the memory and key  Relaxed
//!  use the memory                            publish the word          AcqRel
//!  word -= PIN                     Release
//! ```
//!
//! Excluded: the reader uses the memory *and* the other has it. All are changes of one word, so one
//! comes first: the claim, then the reader sees a state that may not be pinned, or what was
//! published after, with the key of then; or the pin, then the claim is refused. The key may be
//! Relaxed: one who has pinned a page that may be pinned has read the word at or after the publish
//! that follows the key's store, and no claim begins before its unpin.
//!
//! # A change without a lock
//!
//! ```text
//!  changes a dirty page again                 one who takes the frame for another page
//!  --------------------------                 ----------------------------------------
//!  frame = what the index says     Relaxed    change the word: lent, ..., a claim      AcqRel
//!  before = word: dirty, unpinned  Acquire    write the key                            Relaxed
//!  the key fits?                   Relaxed    publish the word                         AcqRel
//!  change the word, if it still is
//!    `before`, to a claim          Acquire
//! ```
//!
//! Excluded: the left side has the claim, and the frame is another page's. As its change succeeds,
//! none of the right side's lies between it and `before`; and the key of `before` was read, since
//! the next is written under a claim that begins after this one has ended. (To be deceived, the one
//! on the left must stand still for a multiple of 2^28 claims of the frame, no more and no fewer.)
//!
//! # A look without a pin
//!
//! ```text
//!  who peeks                                 one who writes the page
//!  ---------                                 -----------------------
//!  look = word                     Acquire   change the word: a claim, version + 1
//!  may be read, and the key fits?  Relaxed   fence                     Release
//!  read the memory, racily         Relaxed   write the key             Relaxed
//!  fence                           Acquire   fence                     Release
//!  same version in the word now?   Relaxed   write the memory, racily  Relaxed
//!                                            publish the word          AcqRel
//! ```
//!
//! Excluded: the one who peeks has read a key or byte that was written after `look`, *and* believes
//! it. The fences pair through that, so the second load sees the claim. A byte that was written
//! before `look` is there, by the Acquire.

use unherd_sys::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence, spin_loop};
use unherd_sys::{Errno, MapSlice, prefetch};

use crate::frames::word::{AHEAD, HIT, HITS_FOLDED, PIN};
pub(crate) use crate::frames::word::{State, Word};
use crate::page::{BusyGeneration, FileId, FrameId, PageKey, PageNo};

/// What a hit adds to the word.
const PIN_AND_HIT: u64 = if cfg!(feature = "uncounted") { PIN } else { PIN | HIT };

/// What is kept about a frame, on a cache line of its own.
///
/// The fields but `word` are Relaxed. The page, its file and the period are written under a claim
/// or a loan, and published by the word.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Frame {
    word: AtomicU64,
    page: AtomicU64,
    /// The flush period of its file (see `durability.rs`) in which it was last written back.
    period: AtomicU64,
    file: AtomicU32,
    /// The last time that the page was busy. Written and read under the page's shard lock; and
    /// written by who changes a dirty page again.
    generation: AtomicU32,
    /// The thread that had the page last when nobody else had it; see
    /// [`UnavailableFrames::threads`]. Relaxed, and for people only: nothing is decided by it.
    holder: AtomicUsize,
}

thread_local! {
    /// Its address names the thread.
    static THREAD: u8 = const { 0 };
}

/// What tells the calling thread from all others that live. It costs no call and no branch.
#[inline]
fn this_thread() -> usize {
    THREAD.with(|mine| std::ptr::from_ref(mine) as usize)
}

impl Frame {
    /// The calling thread has taken the page, which nobody else has.
    #[inline]
    fn note_holder(&self) {
        self.holder.store(this_thread(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn key(&self) -> PageKey {
        PageKey {
            file: FileId(self.file.load(Ordering::Relaxed)),
            page: PageNo(self.page.load(Ordering::Relaxed)),
        }
    }

    /// Whether the page in it is that of `key`: one who found the frame without a lock asks.
    #[inline(always)]
    fn is_of(&self, key: PageKey) -> bool {
        self.key() == key
    }

    fn load(&self) -> Word {
        // ORDER[FRAME1]: Acquire; pairs with the Release in `update`: one who sees a state sees the
        // memory and the key as they were when it was entered.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Changes the word as `to` says, unless that is `None`. Gives the word before.
    fn update(&self, to: impl Fn(Word) -> Option<Word>) -> Result<Word, Word> {
        // ORDER[FRAME1]: Release publishes the memory and the key to the Acquire of the one who
        // changes or loads the word next; so all use under a claim, pin or loan that ends here
        // happens before all use under one that begins later. Acquire pairs with the Release of
        // the last unpin as well.
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
pub(crate) struct Claim {
    frame: FrameId,
    /// The state of the page before; of a frame without a page, empty.
    before: State,
    /// Whether the page before was brought in ahead, and never asked for.
    was_unread: bool,
    /// Whether the page is used by its change.
    is_use: bool,
}

/// The right to read a frame's memory (invariant 2).
#[derive(Debug)]
#[must_use = "a pin that is forgotten keeps its frame for ever"]
pub(crate) struct Pin(FrameId);

/// The duty to write a frame's memory back (invariant 3).
#[derive(Debug)]
#[must_use = "a loan that is forgotten leaves its frame in write-back for ever"]
pub(crate) struct Lent(FrameId);

impl Claim {
    /// Of an empty frame whose claim the caller has ended by [`Claim::into_frame`].
    pub(crate) fn of_empty(frame: FrameId) -> Self {
        Self { frame, before: State::Empty, was_unread: false, is_use: false }
    }

    /// Ends the claim of an empty frame, which the caller keeps by its number.
    pub(crate) fn into_frame(self) -> FrameId {
        self.frame
    }

    pub(crate) fn id(&self) -> FrameId {
        self.frame
    }

    /// Whether the page was other than clean when it was claimed, or replaced by this frame.
    pub(crate) fn was_unclean(&self) -> bool {
        !matches!(self.before, State::Empty | State::Clean)
    }

    /// Whether the page was newer than the file when it was claimed, or replaced by this frame.
    pub(crate) fn was_unwritten(&self) -> bool {
        self.before.is_unwritten() || self.before == State::WriteBack
    }

    /// The state of the page when it was claimed, or replaced by this frame.
    pub(crate) fn before(&self) -> State {
        self.before
    }

    /// Whether the page that the frame was taken from was brought in ahead, and never asked for.
    pub(crate) fn was_unread(&self) -> bool {
        self.was_unread
    }

    /// What is changed goes on with the change before, and is no further use of the page.
    pub(crate) fn goes_on(&mut self) {
        self.is_use = false;
    }

    /// To be called by the thread that writes the memory, before it begins: keeps what is stored
    /// under the claim behind the word that began it.
    pub(crate) fn begin_write(&self) {
        // ORDER[PEEK1]: Release fence; pairs with the Acquire fence of the one who peeks: if that
        // sees any of what is written from here on, it also sees the word of this claim.
        fence(Ordering::Release);
    }
}

impl Pin {
    pub(crate) fn id(&self) -> FrameId {
        self.0
    }
}

impl Lent {
    pub(crate) fn id(&self) -> FrameId {
        self.0
    }
}

/// Frames that cannot be had, as a look at all of them has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UnavailableFrames {
    /// Those that are pinned or being changed.
    pub(crate) pinned: usize,
    /// Threads that took those: of each frame one is known, which took it when nobody else had it.
    /// It may have given it up since, while others have it; and a pin that went to another thread
    /// stays with the one that took it.
    pub(crate) threads: usize,
    /// Of the others, those that could not, or may not, be written back.
    pub(crate) unwritten: usize,
}

/// A page that was there.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) pin: Pin,
    /// It had been brought in ahead, and this was its first use.
    pub(crate) was_unread: bool,
}

/// All frames of a cache, without their memory.
#[derive(Debug)]
pub(crate) struct Frames {
    frames: MapSlice<Frame>,
    /// Hits that were moved out of the words, less failed ones that the words still count; wraps
    /// around. Relaxed: it publishes nothing.
    hits_elsewhere: AtomicU64,
    /// The most that were ever told.
    hits_told: AtomicU64,
    /// Pages that were brought in ahead, and then pinned. Relaxed: a count.
    ahead_pinned: AtomicU64,
}

/// A look at a page without a pin: the frame, and its word as the look began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptimisticRead<'a> {
    frame: &'a Frame,
    began: Word,
}

impl OptimisticRead<'_> {
    /// Whether what was read of the frame since is what the page holds: nobody has written it
    /// meanwhile.
    #[inline(always)]
    pub(crate) fn is_unchanged(self) -> bool {
        // ORDER[PEEK1]: Acquire fence; pairs with the Release fence in `Claim::begin_write`: if any
        // of the bytes was written after the look began, the load sees the claim.
        fence(Ordering::Acquire);
        Word(self.frame.word.load(Ordering::Relaxed)).is_unchanged_since(self.began)
    }

    /// Whether the page was brought in ahead, and nobody had asked for it when the look began.
    #[inline(always)]
    pub(crate) fn is_unread(self) -> bool {
        self.began.is_unread()
    }

    /// The page was used, unless that `goes_on` with the last use. Whether it had been brought in
    /// ahead, and this was its first use.
    #[inline(always)]
    pub(crate) fn note_use(self, goes_on: bool) -> bool {
        let marks = self.began.used().0 & !self.began.0;
        marks != 0
            && (!goes_on || self.began.is_unread())
            && Word(self.frame.word.fetch_or(marks, Ordering::Relaxed)).is_unread()
    }
}

/// Tries up to `looks` times, as long as the word in the way is one that `passes` soon.
#[inline]
pub(crate) fn spin_retry<T>(
    looks: usize,
    passes: impl Fn(Word) -> bool,
    attempt: impl Fn() -> Result<T, Word>,
) -> Result<T, Word> {
    let mut tried = attempt();
    for _ in 1..looks {
        if !tried.as_ref().is_err_and(|word| passes(*word)) {
            break;
        }
        spin_loop();
        tried = attempt();
    }
    tried
}

impl Frames {
    /// `count` empty frames, with their claims.
    pub(crate) fn new(count: usize) -> Result<(Self, Vec<Claim>), Errno> {
        let frames = MapSlice::new(count, |_| Frame::default())?;
        // Popped from the end: the first frame is used first.
        let claims = (0..count as u32).rev().map(|id| Claim::of_empty(FrameId(id))).collect();
        let hits = || AtomicU64::new(0);
        let this = Self { frames, hits_elsewhere: hits(), hits_told: hits(), ahead_pinned: hits() };
        Ok((this, claims))
    }

    /// Bytes that `count` frames take.
    #[cfg(not(loom))]
    pub(crate) fn bytes_for(count: usize) -> usize {
        count * size_of::<Frame>()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    #[inline(always)]
    fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    pub(crate) fn prefetch_word(&self, id: FrameId) {
        prefetch(self.frame(id));
    }

    pub(crate) fn word(&self, id: FrameId) -> Word {
        self.frame(id).load()
    }

    /// The key of the page in a frame; of an empty frame, that of its last page. A caller without
    /// a token of the frame must look it up in the index before it believes it.
    #[inline]
    pub(crate) fn key(&self, id: FrameId) -> PageKey {
        self.frame(id).key()
    }

    /// The flush period in which the page was last written back.
    pub(crate) fn period(&self, id: FrameId) -> u64 {
        self.frame(id).period.load(Ordering::Relaxed)
    }

    /// When the page became busy last. The caller holds its shard lock, or a claim or loan of it.
    pub(crate) fn generation(&self, id: FrameId) -> BusyGeneration {
        BusyGeneration(self.frame(id).generation.load(Ordering::Relaxed))
    }

    fn begin_busy(&self, id: FrameId, generation: BusyGeneration) {
        self.frame(id).generation.store(generation.0, Ordering::Relaxed);
    }

    /// Pages pinned by [`Frames::try_hit`] so far. Those that are being moved out of the words
    /// meanwhile may be missing; what was told once stays.
    pub(crate) fn hits(&self) -> u64 {
        // In this order no hit is counted twice: who moves some takes them from the word first.
        let elsewhere = self.hits_elsewhere.load(Ordering::Relaxed);
        let words = self.frames.iter().map(|frame| frame.load().hits()).sum::<u64>();
        // Below zero if some were taken back that the words do not have yet.
        let hits = elsewhere.wrapping_add(words).cast_signed().max(0).cast_unsigned();
        self.hits_told.fetch_max(hits, Ordering::Relaxed).max(hits)
    }

    /// Looks at all frames.
    pub(crate) fn held(&self) -> UnavailableFrames {
        let (mut holders, mut unwritten) = (Vec::new(), 0);
        for frame in self.frames.iter() {
            let word = frame.load();
            if word.pins() > 0 || word.state() == State::Changing {
                holders.push(frame.holder.load(Ordering::Relaxed));
            } else {
                unwritten += usize::from(matches!(word.state(), State::Failed | State::Held));
            }
        }
        let pinned = holders.len();
        holders.sort_unstable();
        holders.dedup();
        UnavailableFrames { pinned, threads: holders.len(), unwritten }
    }

    // Transitions of a frame's claim.

    fn set_state(&self, id: FrameId, state: State) {
        let _ = self.frame(id).update(|word| Some(word.with_state(state)));
    }

    /// Gives the frame a page. The caller holds the shard lock of `key` and puts the frame into the
    /// index (invariant 5).
    pub(crate) fn install(
        &self,
        claim: &Claim,
        key: PageKey,
        state: State,
        generation: BusyGeneration,
    ) {
        debug_assert!(matches!(state, State::Reading | State::Changing));
        let frame = self.frame(claim.frame);
        claim.begin_write();
        frame.file.store(key.file.0, Ordering::Relaxed);
        frame.page.store(key.page.0, Ordering::Relaxed);
        self.begin_busy(claim.frame, generation);
        frame.note_holder();
        let before = frame.update(|word| Some(word.with_state(state)));
        debug_assert!(before.is_ok_and(|word| word.state() == State::Empty));
    }

    /// Ends a claim with a page that others may see. Being brought in is no use.
    pub(crate) fn publish(&self, claim: Claim, state: State) {
        let published = |word: Word| {
            let word = word.with_state(state);
            if claim.is_use { word.used() } else { word }
        };
        let _ = self.frame(claim.frame).update(|word| Some(published(word)));
    }

    /// As [`Frames::publish`], with a pin for the caller.
    pub(crate) fn publish_pinned(&self, claim: Claim, state: State) -> Pin {
        let _ = self.frame(claim.frame).update(|word| Some(Word(word.with_state(state).0 + PIN)));
        Pin(claim.frame)
    }

    /// As [`Frames::publish`], of a clean page that nobody has asked for.
    pub(crate) fn publish_ahead(&self, claim: Claim) {
        let published = |word: Word| word.with_state(State::Clean).unused().ahead();
        let _ = self.frame(claim.frame).update(|word| Some(published(word)));
    }

    /// Takes the page from a claimed frame, which has left the index.
    pub(crate) fn clear(&self, claim: Claim) -> Claim {
        self.set_state(claim.frame, State::Empty);
        Claim::of_empty(claim.frame)
    }

    /// Sends an empty frame on its way to the one who will call [`Frames::take_over`].
    pub(crate) fn hand_over(&self, claim: Claim) -> FrameId {
        self.set_state(claim.frame, State::Handed);
        claim.frame
    }

    /// Receives a frame that was handed over, unless somebody has.
    pub(crate) fn take_over(&self, id: FrameId) -> Option<Claim> {
        let handed = |word: Word| word.state() == State::Handed;
        self.frame(id).update(|word| handed(word).then_some(word.with_state(State::Empty))).ok()?;
        Some(Claim::of_empty(id))
    }

    // Transitions of a frame in the index; the caller holds its shard lock.

    /// Pins the page. Gives the word if its state forbids it, or if it has too many pins.
    pub(crate) fn try_pin(&self, id: FrameId) -> Result<Pin, Word> {
        let before = self.frame(id).update(Word::pinned)?;
        if before.pins() == 0 {
            self.frame(id).note_holder();
        }
        self.note_first_use(before);
        Ok(Pin(id))
    }

    /// Claims the page for a change. Gives the word if it is pinned or not at rest.
    #[inline]
    pub(crate) fn try_change(
        &self,
        id: FrameId,
        generation: BusyGeneration,
    ) -> Result<Claim, Word> {
        let before = self.frame(id).update(Word::changed)?;
        self.begin_busy(id, generation);
        self.frame(id).note_holder();
        self.note_first_use(before);
        Ok(Claim { before: before.state(), is_use: true, ..Claim::of_empty(id) })
    }

    /// Drops the page, which must be at rest; the caller takes it out of the index. Gives the claim
    /// if nobody has it pinned; else the last unpin gets it. Gives the word if it is not at rest.
    /// The word is that of the page before.
    pub(crate) fn detach(&self, id: FrameId) -> Result<(Word, Option<Claim>), Word> {
        let before = self.frame(id).update(Word::detached)?;
        Ok((before, self.free_detached(id)))
    }

    /// Gives up a page at rest or in write-back, in whose place the caller puts the claimed frame
    /// `copy`. Gives a pin of the old page, to copy it; or the word, if it is not in such a state.
    pub(crate) fn replace(
        &self,
        id: FrameId,
        copy: &mut Claim,
        key: PageKey,
        generation: BusyGeneration,
    ) -> Result<Pin, Word> {
        let old = self.frame(id).update(|word| Some(Word(word.replaced()?.0 + PIN)))?;
        copy.before = old.state();
        self.note_first_use(old);
        // In case that the copy takes the old page's state as well.
        self.frame(copy.frame).period.store(self.period(id), Ordering::Relaxed);
        self.install(copy, key, State::Changing, generation);
        if old.state() == State::WriteBack || old.is_awaiting_older_writeback() {
            self.set_awaiting_older_writeback(copy.frame, true);
        }
        Ok(Pin(id))
    }

    /// Whether an older version of the page is in write-back.
    pub(crate) fn set_awaiting_older_writeback(&self, id: FrameId, awaiting: bool) {
        let _ = self.frame(id).update(|word| Some(word.with_awaiting_older_writeback(awaiting)));
    }

    /// Takes the frame from a page that can be read again; the caller takes it out of the index.
    pub(crate) fn evict(&self, id: FrameId) -> Result<Claim, Word> {
        let before = self.frame(id).update(Word::evicted)?;
        Ok(Claim { was_unread: before.is_unread(), ..Claim::of_empty(id) })
    }

    /// Begins the write-back of a dirty page.
    pub(crate) fn lend(&self, id: FrameId, generation: BusyGeneration) -> Result<Lent, Word> {
        self.frame(id).update(Word::lent)?;
        self.begin_busy(id, generation);
        Ok(Lent(id))
    }

    /// Says what became of the unstable page: clean or dirty. Nothing happens in another state.
    pub(crate) fn settle(&self, id: FrameId, state: State) {
        debug_assert!(matches!(state, State::Clean | State::Dirty));
        let _ = self.frame(id).update(|word| word.settled(state));
    }

    /// A held page may be written. Nothing happens in another state.
    pub(crate) fn release(&self, id: FrameId) {
        let _ = self.frame(id).update(Word::released);
    }

    /// The file's writes fail: a dirty page counts as one that was tried. Nothing happens in
    /// another state.
    pub(crate) fn fail(&self, id: FrameId) {
        let is_dirty = |word: Word| word.state() == State::Dirty;
        let _ =
            self.frame(id).update(|word| is_dirty(word).then_some(word.with_state(State::Failed)));
    }

    // Transitions that need no lock.

    /// Claims a dirty page for one more change, in a frame that the index has named, if it is that
    /// of `key`, nobody else has it, and `may_change` says so. `None` means nothing.
    #[inline(always)]
    pub(crate) fn try_change_again(
        &self,
        id: FrameId,
        key: PageKey,
        may_change: impl FnOnce() -> bool,
    ) -> Option<Claim> {
        let frame = self.frame(id);
        let before = frame.load();
        let changed = before.changed_again()?;
        if !frame.is_of(key) || !may_change() {
            return None;
        }
        // ORDER[FRAME1]: Acquire; pairs with the Release of the last unpin: the word may be
        // `before` once more, after a pin.
        let order = Ordering::Acquire;
        frame.word.compare_exchange(before.0, changed.0, order, Ordering::Relaxed).ok()?;
        self.begin_busy(id, self.generation(id).next_without_lock());
        frame.note_holder();
        Some(Claim { before: State::Dirty, is_use: true, ..Claim::of_empty(id) })
    }

    /// Pins the page in a frame that the index has named, if it is the page of `key` and may be
    /// pinned, and counts a hit. Else the pin is taken back; gives the word as [`Frames::unpin`].
    #[inline(always)]
    pub(crate) fn try_hit(&self, id: FrameId, key: PageKey) -> Result<Hit, Word> {
        let frame = self.frame(id);
        // ORDER[FRAME1]: Acquire; pairs with the Release in `update`: what was written under the
        // claim before is there. If the claim comes later, it is refused.
        let word = Word(frame.word.fetch_add(PIN_AND_HIT, Ordering::Acquire));
        if word.is_plain_hit() && frame.is_of(key) {
            if word.pins() == 0 {
                frame.note_holder();
            }
            return Ok(Hit { pin: Pin(id), was_unread: false });
        }
        self.try_hit_slow(id, key, word)
    }

    #[cold]
    fn try_hit_slow(&self, id: FrameId, key: PageKey, word: Word) -> Result<Hit, Word> {
        // Hits that are none count here as well, or they would overflow.
        if word.has_many_hits() && self.frame(id).update(Word::without_hits).is_ok() {
            self.hits_elsewhere.fetch_add(HITS_FOLDED, Ordering::Relaxed);
        }
        if !word.may_be_hit() || !self.frame(id).is_of(key) {
            // The word keeps the hit: who moves hits out of it may have taken this one along, and
            // to take it twice would take the version back.
            self.hits_elsewhere.fetch_sub(1, Ordering::Relaxed);
            return Err(self.unpin(Pin(id)));
        }
        let before = self.frame(id).word.fetch_or(word.used().0 & !word.0, Ordering::Relaxed);
        if word.pins() == 0 {
            self.frame(id).note_holder();
        }
        self.note_first_use(Word(before));
        Ok(Hit { pin: Pin(id), was_unread: Word(before).is_unread() })
    }

    /// A page was pinned or claimed, whose word was `before`.
    fn note_first_use(&self, before: Word) {
        if before.is_unread() {
            self.ahead_pinned.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many pages were pinned that had been brought in ahead.
    pub(crate) fn ahead_pinned(&self) -> u64 {
        self.ahead_pinned.load(Ordering::Relaxed)
    }

    /// Begins to look at the page in a frame that the index has named, without a pin; `None` if it
    /// is not that of `key`, or may not be read.
    #[inline(always)]
    pub(crate) fn begin_peek(&self, id: FrameId, key: PageKey) -> Option<OptimisticRead<'_>> {
        let frame = self.frame(id);
        // ORDER[FRAME1]: Acquire; pairs with the Release in `update`: who sees the page published
        // reads nothing that is older.
        let began = Word(frame.word.load(Ordering::Acquire));
        (began.is_readable() && frame.is_of(key)).then_some(OptimisticRead { frame, began })
    }

    /// The word of the page of `key` at some moment since the call began, if the frame has that
    /// page and it may be read. Takes no lock. `None` proves nothing.
    pub(crate) fn peek_word(&self, id: FrameId, key: PageKey) -> Option<Word> {
        let look = self.begin_peek(id, key)?;
        // The key, which was read after the word, changes under a claim alone: so it fits the word.
        look.is_unchanged().then_some(look.began)
    }

    /// Ends a write-back: unstable, with the flush period of its file, or failed; if the page was
    /// superseded, detached. Gives the word.
    pub(crate) fn give_back(&self, lent: Lent, written: Option<u64>) -> Word {
        let frame = self.frame(lent.0);
        let state = match written {
            Some(period) => {
                frame.period.store(period, Ordering::Relaxed);
                State::Unstable
            }
            None => State::Failed,
        };
        match frame.update(|word| Some(word.given_back(state))) {
            Ok(before) | Err(before) => before.given_back(state),
        }
    }

    /// Whether the page is still being read, as it was when it became busy.
    pub(crate) fn is_reading_since(&self, id: FrameId, since: BusyGeneration) -> bool {
        self.word(id).state() == State::Reading && self.generation(id) == since
    }

    /// The loan of a thread that has died with it, if it has not ended.
    pub(crate) fn lent_since(&self, id: FrameId, since: BusyGeneration) -> Option<Lent> {
        let is_lent = matches!(self.word(id).state(), State::WriteBack | State::Superseded);
        (is_lent && self.generation(id) == since).then_some(Lent(id))
    }

    /// Gives a pin back. Gives the word as it was before: if this was the last pin, the caller
    /// tells who wants the frame, or frees it, if it is detached.
    #[inline]
    pub(crate) fn unpin(&self, pin: Pin) -> Word {
        // ORDER[FRAME1]: Release; pairs with the Acquire in `update`: all reads under this pin come
        // before all writes under a claim that begins later. The pins of others in between keep
        // the order, as they are read-modify-writes.
        let before = Word(self.frame(pin.0).word.fetch_sub(PIN, Ordering::Release));
        debug_assert!(before.pins() > 0);
        before
    }

    /// Pins the frame of a loan, which may end before the device is done with the memory.
    pub(crate) fn pin_lent_for_ever(&self, lent: &Lent) {
        // Relaxed: the pin is never given back.
        self.frame(lent.0).word.fetch_add(PIN, Ordering::Relaxed);
    }

    /// Frees a detached frame that nobody has pinned, unless another does.
    pub(crate) fn free_detached(&self, id: FrameId) -> Option<Claim> {
        self.frame(id).update(Word::freed).ok()?;
        Some(Claim::of_empty(id))
    }

    /// Takes the marks of use away. The policy does.
    pub(crate) fn forget_uses(&self, id: FrameId) {
        let _ = self.frame(id).word.fetch_and(Word(u64::MAX).unused().0, Ordering::Relaxed);
    }

    /// Takes one mark of use away. The policy does.
    pub(crate) fn forget_latest_use(&self, id: FrameId) {
        // A page without marks must not pass for one that nobody has asked for yet.
        let marks = self.word(id).latest_use() | AHEAD;
        let _ = self.frame(id).word.fetch_and(!marks, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
