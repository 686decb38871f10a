//! A page cache in your process, for storage engines and servers on Linux; and the wait table that
//! it is built on: threads sleep on a key, and a wake of that key wakes no others.
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
//!     let cache = Cache::builder().capacity(64 << 20).build()?; // bytes, all allocated now
//!     let file = cache.open("data", OpenOptions::new().write(true).create(true))?;
//!     file.write_all_at(b"hello", 4096)?; // page 1: pages have 4 KiB by default
//!     file.page_mut(PageNo(1))?.write(0, b"J"); // changes a part; readers see all or nothing
//!     file.sync_all()?; // on stable storage now
//!     let page = file.page(PageNo(1))?; // pinned: these bytes stay, whatever others write
//!     assert_eq!(&page[..5], b"Jello");
//!     # std::fs::remove_dir_all(&place)?;
//!     Ok(())
//! }
//! ```
//!
//! The file is read and written by direct I/O, which bypasses the kernel's page cache. Where a file
//! system refuses that, and on tmpfs, where there is nothing to bypass, [`OpenOptions::direct`]
//! lets the cache use the kernel's page cache. While a file is open it is locked: exclusively for
//! writing, shared for reading ([`OpenOptions::lock`]).
//!
//! **What was not synced may be lost if the process is killed**, and a later write may survive
//! where an earlier one is lost; what follows for databases stands at [`File`].
//!
//! # What is in it
//!
//! | for | there is |
//! |---|---|
//! | a cache | [`Cache`], by [`Cache::builder`]: capacity, page size, who does the I/O ([`Io`]); [`Cache::resize`] |
//! | files | [`File`], by [`Cache::open`] and [`OpenOptions`]: `read_at`, `write_at`, `sync_all`, `set_len` |
//! | a log, several files | [`File::sync_range`], [`Cache::sync_many`], [`PageMut::hold_until`] |
//! | checksums, encryption | [`PageHook`], by [`OpenOptions::page_hook`] |
//! | space on the disk | [`File::punch_hole`], [`File::allocate`] |
//! | a page to read | [`File::page`], which pins it ([`PageGuard`]); [`File::peek`], which does not |
//! | pages in a known order | [`File::stream`] ([`PageStream`]), which reads ahead; [`File::prefetch`] |
//! | a page to change | [`File::page_mut`] ([`PageMut`]): others see all changes together |
//! | memory in one piece | [`Cache::alloc_contiguous`] ([`ContiguousFrames`]): up to 2 MiB out of the cache, for large transfers |
//! | the end | [`File::sync_all`], then drop; [`File::close`] reports what a drop cannot |
//! | async tasks | [`File::page_async`], [`File::read_at_async`], [`File::sync_all_async`], [`WaitTable::wait_async`], [`Mutex::lock_async`], [`Semaphore::acquire_async`], [`EventCount::wait_async`], [`Latch::wait_async`], [`ReadySet::wait_async`], [`Gate::wait_iff_async`], on any executor. Its threads must not block on the same things by the forms without `async`: a task that was woken would wait for its poll |
//! | waiting for a key | [`WaitTable`]: a wake of one key wakes that key's waiters and no others |
//! | locks | [`Mutex`], [`RwLock`], [`Condvar`], [`EventCount`], [`Semaphore`], [`Once`], [`OnceLock`], [`Latch`], [`Barrier`]: of a few bytes (more in debug builds), without allocation; an unlock gives a busy mutex to the longest sleeper once in about 1 ms |
//! | many sources of events | [`ReadySet`]: checked without a lock, and one waiter is woken for each event; with descriptors by [`ReadySet::fd`] |
//! | congestion | [`Gate`]: waits that sleep only while a resource is congested, and are let go one after another |
//! | futexes | [`FutexTable`]: futex(2)'s operations for the words of this process |
//! | what was waited for | [`Ledger`], always on: the library's waits, wakeups and needless wakeups by [`Reason`] |
//! | counts of the cache | [`Cache::stats`] ([`Stats`]) |
//! | storage of your own | [`Device`], by [`CacheBuilder::device`], and what it names in [`device`] |
//! | errors | [`Error`], [`BuildError`]: their fields say what was wrong, `Error` also after which to try again; `?` makes [`std::io::Error`] of them |
//! | the kernel's errors | [`Errno`] |
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
//!     // Sleeps until the condition holds; only a wake of key 42 wakes it.
//!     scope.spawn(|| table.wait_until(&42, || is_done.load(Acquire), Reason::OTHER));
//!     is_done.store(true, Release);
//!     table.wake_all(&42);
//! });
//! ```
//!
//! None of this is for signal handlers, nor for waits between processes. A child of fork(2) may use
//! what it makes itself; what it has from its parent, only if no other thread was inside a call
//! then. That goes for all locks together: where they must sleep, they share one table. Of a cache
//! it may always read the pages that are in memory, and nothing else ([`Error::Forked`]).
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `cache` (default) | the page cache; without it all that waits remains (the wait table, locks, the ready set, the gate, futexes, the ledger), and devices |
//! | `async` (default) | waits and reads in async tasks; needs no runtime |
//! | `lock_api` | `RawMutex` and `RawRwLock` implement the traits of the crate `lock_api` |
//! | `ablation`, `uncounted` | turn parts of the library off for benchmarks; not for programs |
//!
//! Everything is re-exported from `unherd-cache`, `unherd-sync` and `unherd-sys`, which can be used
//! alone.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | page | a part of a file; all pages of a cache have one size ([`CacheBuilder::page_size`]) |
//! | frame | memory for one page; a cache takes its frames when it is built, and by [`Cache::resize`] |
//! | pool | the frames that the cache has for pages, with those that are free |
//! | handle | a [`File`]; several may be open for one file, and share its pages |
//! | hit, miss | the page that is asked for is in a frame, or must be read |
//! | evict | remove a page from its frame, for another page; it can be read again from the device |
//! | readahead | reading pages before they are asked for; a *run* is a row of pages in one transfer |
//! | transfer | one read or write by the device; the *I/O thread* of a cache takes the completions of queued ones |
//! | index | the table that says which frame holds a page |
//! | bucket | one of the wait queues of a table, with its lock; keys are hashed to buckets |
//! | waiter, wake | who sleeps for a key, and what ends that; needless if the waiter must sleep again |
//! | pin | keeps a page in its frame and its bytes as they are; a [`PageGuard`] has one |
//! | torn | read while it was changed: some bytes old, some new |
//! | dirty | changed in the cache, and not yet written to the device |
//! | write-back | the writing of dirty pages to the device; it may still keep them in a volatile cache |
//! | flush | makes the device put what was written on stable storage; [`File::sync_all`] writes back and flushes |
//! | device | the storage under the cache: the kernel's files, or a [`Device`] of your own |
//! | policy | chooses the page that gives its frame up: S3-FIFO |
//! | mark of use | what a hit leaves in a frame for the policy; a frame has up to two |
//! | shared, exclusive | a wake of a key wakes all its shared waiters, and as many exclusive ones as it asks for |
//! | ledger | counts of all waits in this library, by [`Reason`]; [`File`] lists the cache's reasons |

#[cfg(feature = "cache")]
#[doc(inline)]
pub use unherd_cache::*;
#[doc(inline)]
pub use unherd_sync::*;
#[doc(inline)]
pub use unherd_sys::{Device, DirectDevice, Errno};

/// Types that you need to write a [`Device`] of your own: files, buffers, transfers and their
/// completions.
pub mod device {
    #[doc(inline)]
    pub use unherd_sys::{
        Alignment, Completion, DeviceFile, Direction, Identity, IoBuf, IoBufs, OpenError, OpenHow,
        Opened, QueueKind, Transfer, racy,
    };
}

/// The repository's first page, whose program must compile.
#[cfg(all(doctest, feature = "cache"))]
#[doc = include_str!("../../../README.md")]
struct FirstPage;
