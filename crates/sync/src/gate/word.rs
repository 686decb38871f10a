//! The word of a gate, and the changes that it goes through.

/// The tokens that say that the resource is congested.
const TOKENS: u64 = (1 << 20) - 1;
/// One unit of progress that nobody has taken.
const UNIT: u64 = 1 << 20;
const UNITS: u64 = TOKENS * UNIT;
/// One silent timeout.
const SILENT: u64 = 1 << 40;
/// As many silent timeouts in a row as make a signal untrusted.
const UNTRUSTED: u64 = 3 * SILENT;
const QUEUED: u64 = 1 << 42;
const CLOSED: u64 = 1 << 43;
/// Waits sleep although the gate is clear.
const BLUNT: u64 = 1 << 44;

/// What the word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

impl State {
    /// The word of a new gate.
    pub(super) const fn new(is_blunt: bool) -> Self {
        Self(if is_blunt { BLUNT } else { 0 })
    }

    /// Whether a wait has nothing to look at any further: the gate is clear and not closed.
    #[inline]
    pub(super) fn is_open(self) -> bool {
        self.0 & (TOKENS | CLOSED | BLUNT) == 0
    }

    pub(super) fn is_clear(self) -> bool {
        self.tokens() == 0
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    pub(super) fn is_queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    pub(super) fn is_untrusted(self) -> bool {
        self.0 & UNTRUSTED == UNTRUSTED
    }

    pub(super) fn tokens(self) -> u32 {
        (self.0 & TOKENS) as u32
    }

    pub(super) fn units(self) -> u32 {
        ((self.0 & UNITS) / UNIT) as u32
    }

    /// Whether the first waiter may go.
    pub(super) fn lets_go(self) -> bool {
        self.is_clear() || self.units() > 0 || self.is_closed()
    }

    /// One token more; `None` if there are too many.
    pub(super) fn congest(self) -> Option<Self> {
        (self.tokens() < TOKENS as u32).then_some(Self(self.0 + 1))
    }

    /// One token fewer. After the last one no unit is left, and a signal that moves is trusted.
    pub(super) fn clear(self) -> Self {
        let fewer = Self(self.0 - 1);
        if fewer.is_clear() { Self(fewer.0 & !(UNITS | UNTRUSTED)) } else { fewer }
    }

    /// `n` units more, as many as there is room for; while the gate is clear they are nobody's.
    pub(super) fn progress(self, n: u64) -> Self {
        if self.is_clear() {
            return self;
        }
        let trusted = Self(self.0 & !UNTRUSTED);
        let room = u64::from(TOKENS as u32 - trusted.units());
        Self(trusted.0 + n.min(room) * UNIT)
    }

    /// One unit fewer, if there is one.
    pub(super) fn take_unit(self) -> Option<Self> {
        (self.units() > 0).then(|| Self(self.0 - UNIT))
    }

    /// One silent timeout more, if the gate is congested.
    pub(super) fn silent(self) -> Option<Self> {
        (!self.is_clear() && !self.is_untrusted()).then(|| Self(self.0 + SILENT))
    }

    pub(super) fn queue(self) -> Self {
        Self(self.0 | QUEUED)
    }

    pub(super) fn close(self) -> Self {
        Self(self.0 | CLOSED)
    }

    /// The bits that [`State::queue`] sets.
    pub(super) const QUEUED: u64 = QUEUED;
}
