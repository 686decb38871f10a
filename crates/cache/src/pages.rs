//! Pages: which page lies in which frame, and how threads come to it.
//!
//! Stands on the frames. It knows no file but by its number, and nothing of the device: what is
//! missing, the rooms above bring in.

#[cfg(not(loom))]
pub(crate) mod evict;
#[cfg(not(loom))]
pub(crate) mod guard;
#[cfg(not(loom))]
pub(crate) mod hit;
pub(crate) mod index;
#[cfg(not(loom))]
pub(crate) mod peek;
pub(crate) mod resident;
#[cfg(not(loom))]
pub(crate) mod table;
#[cfg(not(loom))]
pub(crate) mod wait;
