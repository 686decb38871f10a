//! Files: what is read, written, synced and given up, on frames, pages and transfers.

#[cfg(feature = "async")]
mod async_read;
pub(crate) mod capacity;
mod change;
mod contiguous;
mod core;
mod device_len;
mod durability;
mod expiry;
mod fill;
mod flush;
mod flush_behind;
mod handle;
mod holds;
mod invalidate;
mod io_thread;
mod open;
mod open_options;
mod overwrite;
mod own_pages;
mod owned_page_guard;
mod owner;
mod page_hook;
mod page_mut;
mod page_set;
mod page_stream;
mod pieces;
mod preallocated;
mod read;
mod read_on;
mod readahead;
mod reclaim;
mod room;
mod runs;
mod space;
mod state;
#[cfg(test)]
pub(crate) mod steps;
mod sync;
#[cfg(feature = "async")]
mod sync_async;
mod table;
mod throttle;
mod ticket;
mod unwritten;
mod write_behind;
mod writeback;

pub use {
    contiguous::ContiguousFrames, handle::File, open_options::Direct, open_options::OpenOptions,
    owned_page_guard::OwnedPageGuard, page_hook::PageHook, page_mut::PageMut,
    page_stream::PageStream, readahead::Advice,
};
pub(crate) use {
    core::Core, device_len::DeviceLen, device_len::TRUNCATED, durability::Durability,
    durability::Failure, durability::Remains, expiry::Expired, flush_behind::FLUSH_BEHIND_BYTES,
    flush_behind::Unflushed, open::Source, owner::Owner, page_hook::Hook, page_set::PageSet,
    readahead::Streams, state::FileState, table::Files, unwritten::Unwritten,
    writeback::ChangingPages,
};
