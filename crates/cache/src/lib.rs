//! A page cache in user space, for programs that read and write files by direct I/O.
//!
//! ```no_run
//! # use unherd_cache as unherd;
//! use unherd::{Cache, OpenOptions, PageNo};
//!
//! let cache = Cache::builder().capacity(64 << 20).build()?; // bytes, all taken now
//! let file = cache.open("data", OpenOptions::new().write(true).create(true))?;
//! file.write_all_at(b"hello", 4096)?; // in the cache now, and nowhere else
//! file.sync_all()?; // on stable storage now
//! let page = file.page(PageNo(1))?; // pinned: these bytes stay, whatever others write
//! assert_eq!(&page[..5], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate promises:
//!
//! - **One read per missing page.** Of the threads that want it, one reads;
//!   the others wait for that page alone, and the end of the read wakes exactly them.
//! - **A pinned page never changes.** A [`PageGuard`] is a `&[u8]` of what the page was. A writer
//!   that meets one puts a copy in its place, so no writer waits for the guards of its page.
//! - **Honest durability.** What was not written stays dirty and is tried again; each handle learns
//!   once that writes have failed; [`File::sync_all`] succeeds only when the device has everything.
//!   Where writes were lost, the file says so: [`Error::LostDurability`], [`Error::LostWrites`].
//! - **No hang and no panic on bad input.** Each refusal is a typed [`Error`] with its values. A
//!   thread that finds no frame waits for one until a deadline, and says then what held them.
//! - **Every wait for a page, a frame or a file has a name** in `unherd_sync::Ledger`: `page-read`,
//!   `page-change`, `write-back`, `frame`, `file`, `file-lock`. Not in it are system calls of the
//!   device, short mutexes, and the cache's own threads while they have nothing to do. Two waits
//!   look again by a clock: for a file's lock, and for a frame, each 100 ms, while the only pages
//!   left to write are those of a file whose writes fail.
//! - **A file that fails leaves frames to the others.** Its pages that cannot be written take three
//!   quarters of the frames at most; the writer is told which write failed.
//! - **Tasks wait like threads.** [`File::page_async`] and [`File::read_at_async`] stand in the
//!   same queues, under the same names. A future may be dropped at any time.
//! - **Large transfers.** Neighbouring pages are read and written back in one transfer, from and to
//!   their frames. A file that is read in order is read ahead, one that is written in order is
//!   written behind; [`File::advise`] says what to expect.
//! - **A hit takes no lock.** [`File::page`] writes to one cache line of the page's own, and its
//!   guard's drop to the same; [`File::peek`] and [`File::read_at`] write nothing that others read,
//!   but the mark of the page's use where that is clear. Only the first use of a page that was read
//!   ahead, by whichever call, may take locks for a few steps: it may begin further reads.
//!
//! What it does not promise: atomic reads or writes of several pages, or that another
//! process sees a write before [`File::sync_all`]. It notices changes that others make to an open
//! file only as far as the lock keeps them out. A child made by fork(2) may not use its parent's
//! caches: there, all but a hit fails with [`Error::Forked`], nothing is written, and drops wait
//! for nobody.
//!
//! **A killed process loses what it has not synced, in any order**; what is older than 5 s was
//! written back, as far as the device had time ([`CacheBuilder::dirty_expire`]; not with
//! [`Io::Blocking`]). What follows for databases stands at [`File`].
//!
//! Where to read: five layers, each of which knows only those before it. `frames/`: the states of a
//! frame and the invariants (`frame.rs`), the waiters for one (`waiters.rs`). `pages/`: the way to
//! a page that is there (`hit.rs`, `peek.rs`), how a page comes into a frame and leaves it
//! (`resident.rs`), which one goes (`evict.rs`). `io/`: runs and the queue of transfers. `state/`:
//! what all handles of an open file share (`file_state.rs`) and what it is made of, such as what a
//! sync may promise (`durability.rs`) and the streams in which it is read (`readahead.rs`).
//! `file/`: the way to a page that is not there (`read.rs`, `async_read.rs` for tasks), the write
//! path (`overwrite.rs`, `change.rs`, `page_mut.rs`), what becomes of dirty pages (`writeback.rs`,
//! `flush.rs`, `expiry.rs`), the waits for a frame (`reclaim.rs`) and for room (`throttle.rs`),
//! holes and reservations (`space.rs`), contiguous memory (`contiguous.rs`), the I/O thread
//! (`io_thread.rs`), and what these share (`core.rs`).

#![cfg_attr(
    not(feature = "async"),
    allow(dead_code, unused_imports, reason = "what serves tasks alone stays where it is")
)]
#![cfg_attr(
    loom,
    allow(dead_code, unreachable_pub, unused_imports, reason = "the models use parts of modules")
)]

// Under a model checker only the protocols that are checked are built; see `docs/ordering.md`.
#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod file;
mod foreign_code;
mod frames;
mod group_commit;
#[cfg(not(loom))]
mod io;
#[cfg(not(loom))]
mod io_error;
mod latch;
mod page;
mod pages;
mod ranked;
#[cfg(not(loom))]
mod reasons;
#[cfg(all(test, shuttle))]
mod shuttle;
#[cfg(not(loom))]
mod state;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod stripe;

#[cfg(all(feature = "ablation", not(loom)))]
pub use frames::policy::replay;
#[cfg(not(loom))]
pub use {
    cache::{Cache, CacheBuilder},
    error::{BuildError, Error, Operation},
    file::{ContiguousFrames, File, OwnedPageGuard, PageMut, PageStream},
    frames::MIN_FRAMES,
    io::Io,
    page::PageNo,
    pages::{PageGuard, Peek, Torn},
    state::{Advice, Direct, OpenOptions, PageHook},
    stats::Stats,
    unherd_sys::{Device, Errno, QueueKind},
};
