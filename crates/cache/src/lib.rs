//! A page cache in user space, for programs that read and write files by direct I/O.
//!
//! The crate promises:
//!
//! - **One read per missing page.** Of the threads that want it, one reads (or queues the read);
//!   the others wait for that page alone, and the end of the read wakes exactly them.
//! - **A pinned page never changes.** A [`PageGuard`] is a `&[u8]` of what the page was. A writer
//!   that meets one puts a copy in its place, so nobody waits for guards.
//! - **Honest durability.** What was not written stays dirty and is tried again; each handle
//!   reports each error once; [`File::sync_all`] succeeds only when the device has everything. If
//!   writes were lost, the file says so for ever.
//! - **No hang and no panic on bad input.** Each refusal is a typed [`Error`] with its values. A
//!   thread that finds no frame waits for one until a deadline, and says then what held them.
//! - **Every sleep has a name** in `unherd_sync::Ledger`: `page-read`, `page-change`, `write-back`,
//!   `frame`, `file`. None polls.
//! - **Tasks wait like threads.** [`File::page_async`] and [`File::read_at_async`] stand in the
//!   same queues, under the same names. A future may be dropped at any time.
//! - **A hit takes no lock.** [`File::page`] writes one word, and its guard's drop the same word;
//!   [`File::peek`] and [`File::read_at`] write nothing that others read, but the mark of the
//!   page's use where that is clear.
//!
//! What it does not promise: readahead, atomic reads or writes of several pages, or that another
//! process sees a write before [`File::sync_all`]. It notices changes that others make to an open
//! file only as far as the lock keeps them out. After fork(2) the child must not use its parent's
//! caches. If the process is killed before a sync, the file may be longer than it was, by zeros, up
//! to a whole page.
//!
//! Where to read: `frame.rs` has the states of a frame and the invariants; `hit.rs` and `peek.rs`
//! have the way to a page that is there, `fill.rs` to one that is not, `async_read.rs` what differs
//! for tasks; `change.rs` and
//! `page_mut.rs` the write path, `writeback.rs` and `flush.rs` what becomes of dirty pages,
//! `reclaim.rs` where frames come from, `frame_waiters.rs` who waits for them, `core.rs` the order
//! of the locks.

#![cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "the models use parts of modules"))]

// Under a model checker only the protocols that are checked are built; see `docs/ordering.md`.
#[cfg(not(any(loom, shuttle)))]
mod async_read;
#[cfg(not(any(loom, shuttle)))]
mod cache;
#[cfg(not(any(loom, shuttle)))]
mod change;
#[cfg(not(any(loom, shuttle)))]
mod core;
#[cfg(not(any(loom, shuttle)))]
mod durability;
#[cfg(not(any(loom, shuttle)))]
mod engine;
#[cfg(not(any(loom, shuttle)))]
mod error;
#[cfg(not(any(loom, shuttle)))]
mod file;
#[cfg(not(any(loom, shuttle)))]
mod files;
#[cfg(not(any(loom, shuttle)))]
mod fill;
#[cfg(not(any(loom, shuttle)))]
mod flush;
#[cfg(any(not(any(loom, shuttle)), all(loom, test)))]
mod frame;
#[cfg(not(any(loom, shuttle)))]
mod frame_memory;
#[cfg(any(not(any(loom, shuttle)), all(loom, test)))]
mod frame_waiters;
#[cfg(not(any(loom, shuttle)))]
mod hit;
#[cfg(any(not(any(loom, shuttle)), all(loom, test)))]
mod index;
#[cfg(any(not(any(loom, shuttle)), all(loom, test)))]
mod latch;
#[cfg(any(not(any(loom, shuttle)), all(loom, test)))]
mod page;
#[cfg(not(any(loom, shuttle)))]
mod page_guard;
#[cfg(not(any(loom, shuttle)))]
mod page_mut;
#[cfg(not(any(loom, shuttle)))]
mod peek;
#[cfg(not(any(loom, shuttle)))]
pub mod policy;
#[cfg(not(any(loom, shuttle)))]
mod pools;
#[cfg(not(any(loom, shuttle)))]
mod reclaim;
#[cfg(not(any(loom, shuttle)))]
mod run;
#[cfg(any(not(any(loom, shuttle)), all(loom, test)))]
mod shield;
#[cfg(not(any(loom, shuttle)))]
mod stats;
#[cfg(not(any(loom, shuttle)))]
mod transfer;
#[cfg(any(not(any(loom, shuttle)), all(loom, test)))]
mod word;
#[cfg(not(any(loom, shuttle)))]
mod worker_queue;
#[cfg(not(any(loom, shuttle)))]
mod writeback;

#[cfg(not(any(loom, shuttle)))]
pub use cache::{Cache, CacheBuilder, Io, MIN_FRAMES};
#[cfg(not(any(loom, shuttle)))]
pub use error::{BuildError, Error, Operation};
#[cfg(not(any(loom, shuttle)))]
pub use file::{Direct, File, OpenOptions};
#[cfg(not(any(loom, shuttle)))]
pub use page::PageNo;
#[cfg(not(any(loom, shuttle)))]
pub use page_guard::PageGuard;
#[cfg(not(any(loom, shuttle)))]
pub use page_mut::PageMut;
#[cfg(not(any(loom, shuttle)))]
pub use peek::{Peek, Torn};
#[cfg(not(any(loom, shuttle)))]
pub use policy::PolicyKind;
#[cfg(not(any(loom, shuttle)))]
pub use stats::Stats;
