//! Pages: which page lies in which frame, and how threads come to it.
//!
//! Stands on the frames. It knows no file but by its number, and nothing of the device: what is
//! missing, the layers above bring in.

#[cfg(not(loom))]
mod announced;
#[cfg(not(loom))]
mod evict;
#[cfg(not(loom))]
mod guard;
#[cfg(not(loom))]
mod hit;
mod index;
#[cfg(not(loom))]
mod peek;
mod resident;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod wait;

pub(crate) use index::{Entry, FillReservation, Index, ShardGuard};
pub(crate) use resident::{Busy, Lookup, TooManyPins, Work};
#[cfg(not(loom))]
pub(crate) use {
    evict::Found,
    peek::{Copied, Seen},
    table::{FlushState, Pages},
    wait::{WakeMessage, Want},
};
#[cfg(not(loom))]
pub use {
    guard::PageGuard,
    peek::{Peek, Torn},
};
