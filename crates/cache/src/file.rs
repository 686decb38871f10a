//! Files: what is read, written, synced and given up, on frames, pages and transfers.

#[cfg(feature = "async")]
mod async_read;
mod capacity;
mod change;
pub(crate) mod contiguous;
pub(crate) mod core;
pub(crate) mod device_len;
pub(crate) mod durability;
pub(crate) mod expiry;
mod fill;
mod flush;
pub(crate) mod flush_behind;
pub(crate) mod handle;
pub(crate) mod holds;
mod invalidate;
pub(crate) mod open;
pub(crate) mod open_options;
pub(crate) mod owned_page_guard;
pub(crate) mod owner;
pub(crate) mod page_hook;
pub(crate) mod page_mut;
pub(crate) mod page_set;
pub(crate) mod page_stream;
mod peek_slow;
pub(crate) mod read_on;
pub(crate) mod readahead;
pub(crate) mod reclaim;
pub(crate) mod room;
mod space;
pub(crate) mod state;
mod sync;
#[cfg(feature = "async")]
mod sync_async;
pub(crate) mod table;
pub(crate) mod unwritten;
pub(crate) mod write_behind;
pub(crate) mod writeback;
