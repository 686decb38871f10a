//! Files: what is read, written, synced and given up, on all other layers.

#[cfg(feature = "async")]
mod async_read;
pub(crate) mod capacity;
mod change;
mod contiguous;
mod core;
mod drop_pages;
mod expiry;
mod fill;
mod flush;
mod handle;
mod invalidate;
mod io_thread;
mod open;
mod overwrite;
mod owned_page_guard;
mod owner;
mod page_mut;
mod page_stream;
mod pieces;
mod queued_read;
mod read;
mod read_on;
mod read_uncached;
mod reclaim;
mod set_len;
mod space;
#[cfg(test)]
pub(crate) mod steps;
mod sync;
#[cfg(feature = "async")]
mod sync_async;
mod throttle;
mod whole_pages;
mod writeback;

pub use {
    contiguous::ContiguousFrames, handle::File, owned_page_guard::OwnedPageGuard,
    page_mut::PageMut, page_stream::PageStream,
};
pub(crate) use {
    core::Core, expiry::Expired, open::Source, owner::Owner, writeback::ChangingPages,
};
