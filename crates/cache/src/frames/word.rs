//! The word of a frame: its layout, and every change that may be made to it.
//!
//! Pure: what is atomic about it stands in `frame.rs`, where the table of states is.
//!
//! | bits | meaning |
//! |---|---|
//! | 0..4 | state; bit 3 is set in those whose page may be read |
//! | 4..6 | use: how often the page was used since its marks of use were taken away, as 00, 01, 11 |
//! | 6 | awaiting older write-back: an older version of the page is in write-back, in a superseded frame |
//! | 7 | ahead: the page was brought in before anybody asked for it |
//! | 8..26 | pins; from bit 25 on, too many |
//! | 26..36 | hits: pins taken without a lock, since they were last counted elsewhere |
//! | 36..64 | version |
//!
//! Use is unary so that it can be raised by setting a bit, which cannot overflow. A use while a
//! mark is being taken away may leave 10, which is one as well.
//!
//! The version rises with each beginning of a claim, so two words with one version and a state that
//! may be read say that nobody has written the memory between them. It wraps around: to be
//! deceived, one that peeks must sleep for a multiple of 2^28 changes of that one frame, no more
//! and no fewer. An overflow of the hits raises it too, which makes somebody peek again, and
//! nothing else.

/// See the table at the top of `frame.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub(crate) enum State {
    Empty = 0,
    Handed = 1,
    Reading = 2,
    Changing = 3,
    Detached = 4,
    Superseded = 5,
    Clean = 8,
    Dirty = 9,
    WriteBack = 10,
    Unstable = 11,
    Failed = 12,
    Held = 13,
}

impl State {
    /// States of a page that is newer than the file, and that nobody works on.
    pub(crate) fn is_unwritten(self) -> bool {
        matches!(self, Self::Dirty | Self::Failed | Self::Held)
    }

    /// States that a page rests in: nobody works on it.
    pub(crate) fn is_at_rest(self) -> bool {
        matches!(self, Self::Clean | Self::Unstable) || self.is_unwritten()
    }
}

const STATE: u64 = 0xf;
const READABLE: u64 = 1 << 3;
const USE: u64 = 0b11 << 4;
const USED_ONCE: u64 = 0b01 << 4;
const AWAITING_OLDER_WRITEBACK: u64 = 1 << 6;
pub(crate) const AHEAD: u64 = 1 << 7;

/// One pin.
pub(crate) const PIN: u64 = 1 << 8;
const PINS: u64 = HIT - PIN;
/// One who pins without a lock and finds this many pins takes its own back.
const TOO_MANY: u64 = 1 << 25;
/// Pins that a page may have, however they were taken. The field has room for as many again, less
/// one: for those who take theirs back, and for the one who copies the page.
pub(crate) const PINS_MAX: u64 = TOO_MANY / PIN;

/// One hit.
pub(crate) const HIT: u64 = 1 << 26;
/// From this many hits on, one who pins moves this many out of the word.
const HITS_MANY: u64 = 1 << 35;
pub(crate) const HITS_FOLDED: u64 = HITS_MANY / HIT;

const VERSION: u64 = !(ONE_VERSION - 1);
const ONE_VERSION: u64 = 1 << 36;

/// The word of a frame, as it was when it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    pub(crate) fn state(self) -> State {
        match self.0 & STATE {
            1 => State::Handed,
            2 => State::Reading,
            3 => State::Changing,
            4 => State::Detached,
            5 => State::Superseded,
            8 => State::Clean,
            9 => State::Dirty,
            10 => State::WriteBack,
            11 => State::Unstable,
            12 => State::Failed,
            13 => State::Held,
            _ => State::Empty,
        }
    }

    /// Whether the page is there, and may be pinned.
    #[inline]
    pub(crate) fn is_readable(self) -> bool {
        self.0 & READABLE != 0
    }

    #[inline]
    pub(crate) fn pins(self) -> u64 {
        (self.0 & PINS) / PIN
    }

    /// Hits that were not yet counted elsewhere.
    pub(crate) fn hits(self) -> u64 {
        (self.0 & (ONE_VERSION - HIT)) / HIT
    }

    /// Whether the page was used since its marks of use were taken away.
    pub(crate) fn is_referenced(self) -> bool {
        self.0 & USE != 0
    }

    /// How often the page was used since marks of use were last taken away: 0, 1 or 2.
    pub(crate) fn uses(self) -> u32 {
        (self.0 & USE).count_ones()
    }

    /// The mark to take away for one use less: the upper one, if it is set.
    pub(crate) fn latest_use(self) -> u64 {
        let upper = USE & !USED_ONCE;
        if self.0 & upper != 0 { upper } else { USED_ONCE }
    }

    /// Whether the frame could be had without writing anything.
    pub(crate) fn is_evictable(self) -> bool {
        matches!(self.state(), State::Clean | State::Unstable) && self.pins() == 0
    }

    /// Whether one who has added its pin and hit to this word has nothing else to do but to look at
    /// the key.
    #[inline]
    pub(crate) fn is_plain_hit(self) -> bool {
        self.0 & (READABLE | USE | TOO_MANY | HITS_MANY) == READABLE | USE
    }

    /// Whether one who has added its pin to this word may keep it.
    pub(crate) fn may_be_hit(self) -> bool {
        self.0 & (READABLE | TOO_MANY) == READABLE
    }

    pub(crate) fn has_many_hits(self) -> bool {
        self.0 & HITS_MANY != 0
    }

    /// With fewer hits, which the caller counts elsewhere, if it has many.
    pub(crate) fn without_hits(self) -> Option<Self> {
        self.has_many_hits().then_some(Self(self.0 & !HITS_MANY))
    }

    /// Whether nobody has written the memory since `earlier`, and the page may be read.
    #[inline]
    pub(crate) fn is_unchanged_since(self, earlier: Self) -> bool {
        (self.0 ^ earlier.0) & (VERSION | READABLE) == 0 && self.0 & READABLE != 0
    }

    /// Whether an older version of the page is still in write-back.
    pub(crate) fn is_awaiting_older_writeback(self) -> bool {
        self.0 & AWAITING_OLDER_WRITEBACK != 0
    }

    pub(crate) fn with_awaiting_older_writeback(self, awaiting: bool) -> Self {
        let mark = if awaiting { AWAITING_OLDER_WRITEBACK } else { 0 };
        Self(self.0 & !AWAITING_OLDER_WRITEBACK | mark)
    }

    /// Another state; pins, hits, use and version stay. No change of state may write the pins, as
    /// they come and go without a lock.
    pub(crate) fn with_state(self, state: State) -> Self {
        Self(self.0 & !STATE | state as u64)
    }

    /// One use more.
    #[inline]
    pub(crate) fn used(self) -> Self {
        Self(self.0 | USED_ONCE | (self.0 & USED_ONCE) << 1)
    }

    /// No use, and no memory of how the page came in.
    pub(crate) fn unused(self) -> Self {
        Self(self.0 & !(USE | AHEAD))
    }

    /// Not brought in before anybody asked for it, or asked for since.
    pub(crate) fn asked_for(self) -> Self {
        Self(self.0 & !AHEAD)
    }

    /// Brought in before anybody asked for it.
    pub(crate) fn ahead(self) -> Self {
        Self(self.0 | AHEAD)
    }

    /// Whether the page was brought in ahead, and nobody has asked for it yet.
    #[inline]
    pub(crate) fn is_unread(self) -> bool {
        self.0 & (AHEAD | USE) == AHEAD
    }

    /// A claim begins: the memory may be written from now on.
    fn claimed(self, state: State) -> Self {
        Self(self.with_state(state).0.wrapping_add(ONE_VERSION))
    }

    /// A pin more, by who holds the shard lock.
    pub(crate) fn pinned(self) -> Option<Self> {
        let fits = self.is_readable() && self.pins() < PINS_MAX;
        fits.then(|| Self(self.0 + PIN).used())
    }

    /// For a change in place, by who alone uses the page then. Whether that is a use is seen when
    /// it ends; but from now on the page is none that nobody has asked for.
    pub(crate) fn changed(self) -> Option<Self> {
        let idle = self.state().is_at_rest() && self.pins() == 0;
        idle.then(|| self.claimed(State::Changing).asked_for())
    }

    /// For one more change in place of a page that is dirty, as [`Word::changed`].
    pub(crate) fn changed_again(self) -> Option<Self> {
        self.changed().filter(|_| self.state() == State::Dirty)
    }

    /// The page is given up, and can be read again.
    pub(crate) fn evicted(self) -> Option<Self> {
        self.is_evictable().then(|| self.claimed(State::Empty).unused())
    }

    /// The page is dropped.
    pub(crate) fn detached(self) -> Option<Self> {
        self.state()
            .is_at_rest()
            .then_some(self.with_state(State::Detached).with_awaiting_older_writeback(false))
    }

    /// Another frame takes its place. What was behind an older version leaves that to the other.
    pub(crate) fn replaced(self) -> Option<Self> {
        if self.state() == State::WriteBack {
            Some(self.with_state(State::Superseded))
        } else {
            self.detached()
        }
    }

    /// Nobody reads a detached page any more.
    pub(crate) fn freed(self) -> Option<Self> {
        let idle = self.state() == State::Detached && self.pins() == 0;
        idle.then(|| self.claimed(State::Empty).unused())
    }

    /// For a write-back. Not of a page of which one is under way, which it could overtake.
    pub(crate) fn lent(self) -> Option<Self> {
        (matches!(self.state(), State::Dirty | State::Failed)
            && !self.is_awaiting_older_writeback())
        .then_some(self.with_state(State::WriteBack))
    }

    /// After a write-back that leaves the page in `state`, if it is still the page.
    pub(crate) fn given_back(self, state: State) -> Self {
        let superseded = self.state() == State::Superseded;
        self.with_state(if superseded { State::Detached } else { state })
    }

    /// After a release.
    pub(crate) fn released(self) -> Option<Self> {
        (self.state() == State::Held).then_some(self.with_state(State::Dirty))
    }

    /// After a flush.
    pub(crate) fn settled(self, state: State) -> Option<Self> {
        (self.state() == State::Unstable).then_some(self.with_state(state))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const STATES: [State; 12] = [
        State::Empty,
        State::Handed,
        State::Reading,
        State::Changing,
        State::Detached,
        State::Superseded,
        State::Clean,
        State::Dirty,
        State::WriteBack,
        State::Unstable,
        State::Failed,
        State::Held,
    ];

    /// A word in which every other field is full.
    fn full(state: State) -> Word {
        Word(!STATE | state as u64)
    }

    #[test]
    fn the_word_keeps_its_parts_apart() {
        for state in STATES {
            let word = Word(3 * PIN + 5 * HIT + 7 * ONE_VERSION).with_state(state);
            assert_eq!((word.state(), word.pins(), word.hits()), (state, 3, 5));
            assert!(!word.is_referenced());
            assert_eq!(word.used().unused(), word);
            assert_eq!(full(state).with_state(State::Failed).with_state(state), full(state));
            assert_eq!((full(state).pins(), full(state).hits()), ((1 << 18) - 1, (1 << 10) - 1));
        }
    }

    #[test]
    fn no_change_but_a_pin_writes_the_pins_or_the_hits() {
        let changes =
            [Word::changed, Word::evicted, Word::detached, Word::freed, Word::lent, Word::replaced];
        for state in STATES {
            for pins in [0, 1, PINS_MAX + 1] {
                let word = Word(pins * PIN + HIT + VERSION).with_state(state);
                for after in changes.iter().filter_map(|change| change(word)) {
                    assert_eq!((after.pins(), after.hits()), (pins, 1), "{state:?}");
                }
            }
        }
    }

    #[test]
    fn a_claim_begins_only_where_nobody_has_a_pin_and_raises_the_version() {
        for state in STATES {
            let idle = Word(VERSION).with_state(state);
            for claim in [Word::changed, Word::evicted, Word::freed] {
                assert_eq!(claim(Word(idle.0 + PIN)), None, "{state:?}");
                if let Some(after) = claim(idle) {
                    assert_eq!(after.0 & VERSION, 0, "it wraps around");
                    assert!(!after.with_state(State::Clean).is_unchanged_since(idle));
                }
            }
        }
    }

    #[test]
    fn what_is_behind_is_not_lent_and_what_is_lent_is_not_behind() {
        for state in STATES {
            let behind = Word(0).with_state(state).with_awaiting_older_writeback(true);
            assert!(behind.is_awaiting_older_writeback() && behind.state() == state);
            assert_eq!(behind.lent(), None, "{state:?}");
            assert!(behind.replaced().is_none_or(
                |after| !after.is_awaiting_older_writeback() || state == State::WriteBack
            ));
        }
        let lent = Word(0).with_state(State::Failed).lent().unwrap();
        assert_eq!(lent.given_back(State::Unstable).state(), State::Unstable);
        let superseded = lent.replaced().unwrap();
        assert_eq!(superseded.given_back(State::Unstable).state(), State::Detached);
    }

    #[test]
    fn use_is_counted_up_to_two() {
        let once = Word(0).used();
        let twice = once.used();
        assert!(once.is_referenced() && once != twice);
        assert_eq!((twice.0, twice.used()), (USE, twice));
    }

    /// One who takes a mark away has looked at the word before; it may have got a use since.
    #[test]
    fn each_mark_that_is_taken_away_leaves_one_use_less() {
        for uses in 0..=2 {
            let seen = (0..uses).fold(Word(0), |word, _| word.used());
            for mut word in [seen, seen.used()] {
                word.0 &= !seen.latest_use();
                while word.is_referenced() {
                    let before = word.uses();
                    word.0 &= !word.latest_use();
                    assert_eq!(word.uses(), before - 1, "{word:?}, of {uses} uses");
                }
            }
        }
    }

    /// With the shard lock or without.
    #[test]
    fn pins_cannot_overflow() {
        let full = Word(PINS_MAX * PIN).used().used().with_state(State::Clean);
        assert!(full.pinned().is_none() && !full.may_be_hit() && !full.is_plain_hit());
        let last = Word(full.0 - PIN);
        assert_eq!(last.pinned().map(Word::pins), Some(PINS_MAX));
        assert!(last.may_be_hit() && last.is_plain_hit());
    }
}
