//! Why a thread waits: a small number that stands for a name.

use std::fmt;

use unherd_sys::primitives::Mutex;

/// How many reasons a process can have, [`Reason::OTHER`] included.
#[cfg(not(any(loom, shuttle)))]
pub(crate) use unherd_sys::ledger_layout::REASONS;

/// Why a thread waits. The [`Ledger`](crate::Ledger) keeps its counts by reason.
///
/// A reason is a name such as `block-read`, registered once per process. It is one byte wide and
/// `Copy`.
///
/// ```
/// # use unherd_sync as unherd;
/// use unherd::Reason;
/// let reading = Reason::register("block-read");
/// assert_eq!(reading, Reason::register("block-read"));
/// assert_eq!(reading.name(), "block-read");
/// assert_eq!(format!("{reading} {reading:?}"), "block-read Reason(\"block-read\")");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reason(u8);

#[cfg(not(any(loom, shuttle)))]
static NAMES: Mutex<Names> = Mutex::new(Names { names: [""; REASONS - 1], len: 0 });

/// Without memory of its own: a lock's reason may be registered inside an allocator.
#[cfg(not(any(loom, shuttle)))]
struct Names {
    names: [&'static str; REASONS - 1],
    len: usize,
}

#[cfg(not(any(loom, shuttle)))]
impl Names {
    fn known(&self) -> &[&'static str] {
        &self.names[..self.len]
    }
}

/// Its name.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reason").field(&self.name()).finish()
    }
}

impl Reason {
    /// For waits where neither the wait nor the table names one, for those that name this one, and
    /// for all names after the 63rd.
    pub const OTHER: Self = Self(0);

    /// The reason with this name; the same name gives the same reason.
    ///
    /// A process has room for 63 names; beyond that the answer is [`Reason::OTHER`], so that the
    /// counts still add up. The library's own are among them (`page-read`, `mutex`, … : some
    /// dozen), and who registers one of these names counts with it. Takes a process-wide lock:
    /// register at construction, not per wait.
    pub fn register(name: &'static str) -> Self {
        #[cfg(any(loom, shuttle))]
        {
            // The ledger is off under the checkers; see `ledger`.
            let _: (&str, Option<&Mutex<()>>) = (name, None);
            Self::OTHER
        }
        #[cfg(not(any(loom, shuttle)))]
        {
            let mut names = NAMES.lock();
            if let Some(index) = names.known().iter().position(|known| *known == name) {
                return Self(index as u8 + 1);
            }
            let len = names.len;
            let Some(free) = names.names.get_mut(len) else { return Self::OTHER };
            *free = name;
            names.len += 1;
            let reason = Self(names.len as u8);
            crate::ledger::shard::publish_name(reason, name);
            reason
        }
    }

    /// The name that it was registered with; `other` for [`Reason::OTHER`].
    pub fn name(self) -> &'static str {
        #[cfg(not(any(loom, shuttle)))]
        if let Some(index) = self.index().checked_sub(1) {
            return NAMES.lock().known().get(index).copied().unwrap_or("other");
        }
        "other"
    }

    /// The reason with this [`Reason::index`].
    pub(crate) const fn from_index(index: usize) -> Self {
        Self(index as u8)
    }

    /// Its place in the ledger's arrays, below `REASONS`.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// All reasons registered so far, [`Reason::OTHER`] first.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let registered = NAMES.lock().len;
        (0..=registered).map(|index| Self(index as u8))
    }
}
