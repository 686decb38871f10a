//! A page cache in user space, and the keyed wait table that it is made of, for storage engines and
//! servers on Linux.
//!
//! A first program: it opens a file, writes, makes that durable, and looks at a page.
//!
#![cfg_attr(feature = "cache", doc = "```")]
#![cfg_attr(not(feature = "cache"), doc = "```ignore")]
//! use unherd::{Cache, OpenOptions, PageNo};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     # let place = std::env::temp_dir().join(format!("unherd-{}", std::process::id()));
//!     # std::fs::create_dir(&place)?;
//!     # std::env::set_current_dir(&place)?;
//!     let cache = Cache::builder().capacity(64 << 20).build()?; // bytes, all taken now
//!     let file = cache.open("data", OpenOptions::new().write(true).create(true))?;
//!     file.write_at(b"hello", 4096)?; // in the cache now, and nowhere else
//!     file.sync_all()?; // on stable storage now
//!     let page = file.page(PageNo(1))?; // pinned: these bytes stay, whatever others write
//!     assert_eq!(&page[..5], b"hello");
//!     # std::fs::remove_dir_all(&place)?;
//!     Ok(())
//! }
//! ```
//!
//! The file is read and written by direct I/O, past the kernel's page cache; where a file system
//! refuses that, `direct(Direct::OrBuffered)` goes without. It is locked against other processes.
//! **What was not synced is lost if the process is killed.**
//!
//! # What is in it
//!
//! | for | there is |
//! |---|---|
//! | a cache | [`Cache`], by [`Cache::builder`]: capacity, page size, who does the I/O ([`Io`]) |
//! | files | [`File`], by [`Cache::open`] and [`OpenOptions`]: `read_at`, `write_at`, `sync_all`, `set_len` |
//! | a page to read | [`File::page`], which pins it ([`PageGuard`]); [`File::peek`], which does not |
//! | a page to change | [`File::page_mut`] ([`PageMut`]): others see all changes together |
//! | tasks | [`File::page_async`], [`File::read_at_async`], [`WaitTable::wait_async`], on any executor |
//! | waiting for a key | [`WaitTable`]: a wake of one key wakes that key's waiters and no others |
//! | what was waited for | [`Ledger`], always on: waits, wakeups and needless wakeups by [`Reason`] |
//! | counts of the cache | [`Cache::stats`] ([`Stats`]) |
//! | storage of your own | [`Device`], and what it names in [`device`] |
//! | NUMA nodes | [`Topology`] |
//! | errors | [`Error`] and [`BuildError`], whose variants carry the values; [`Errno`] is the kernel's |
//!
//! # Waiting without a cache
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
//! use unherd::{Reason, WaitTable};
//!
//! let table = WaitTable::<u64>::builder().build();
//! let is_done = AtomicBool::new(false);
//! std::thread::scope(|scope| {
//!     // Sleeps until the condition holds; of all keys, only a wake of this one wakes it.
//!     scope.spawn(|| table.wait_until(&42, || is_done.load(Acquire), Reason::OTHER));
//!     is_done.store(true, Release);
//!     table.wake_all(&42);
//! });
//! ```
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `cache` (default) | the page cache; without it the wait table, the ledger and devices remain |
//! | `async` (default) | waits and reads in tasks; needs no runtime |
//! | `ablation`, `uncounted` | switches for measuring what a mechanism is worth; not for programs |
//!
//! Everything is re-exported from `unherd-sync` and `unherd-cache`, which can be used alone.

#[cfg(feature = "cache")]
#[doc(inline)]
pub use unherd_cache::*;
#[doc(inline)]
pub use unherd_sync::*;
#[doc(inline)]
pub use unherd_sys::{Device, DirectDevice, Errno, NodeId, Topology, TopologyError};

/// What a [`Device`] of one's own names: files, buffers, transfers and their completions.
pub mod device {
    #[doc(inline)]
    pub use unherd_sys::{
        Alignment, Completion, DeviceFile, Direction, Identity, IoBuf, IoBufs, OpenError, OpenHow,
        Opened, Transfer, racy,
    };
}

/// The repository's first page, whose program must compile.
#[cfg(all(doctest, feature = "cache"))]
#[doc = include_str!("../../../README.md")]
struct FirstPage;
