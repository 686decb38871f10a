//! The state of open files: what all handles of one share, what a run carries, and the table of
//! them all.
//!
//! Stands on the frames, the pages and the transfers. What is done with a file, the layer above
//! says.

mod device_len;
pub(crate) mod dirty_limit;
pub(crate) mod durability;
mod file_state;
mod flush_behind;
pub(crate) mod holds;
mod open_options;
pub(crate) mod own_pages;
mod page_hook;
mod page_set;
mod preallocated;
pub(crate) mod readahead;
pub(crate) mod runs;
pub(crate) mod table;
mod unwritten;
pub(crate) mod write_behind;

pub(crate) use {
    device_len::DeviceLen, device_len::TRUNCATED, durability::CarriedOver, durability::Durability,
    durability::Failure, file_state::FileState, flush_behind::FLUSH_BEHIND_BYTES,
    flush_behind::Unflushed, page_hook::Hook, page_set::PageSet, readahead::ReadStreams,
    table::Files, unwritten::Unwritten,
};
pub use {open_options::Direct, open_options::OpenOptions, page_hook::PageHook, readahead::Advice};
