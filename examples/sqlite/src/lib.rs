//! A SQLite VFS whose databases and WALs lie in an [`unherd::Cache`]. Rollback journals and
//! temporary files are the unix VFS's.
//!
//! ```no_run
//! use rusqlite::{Connection, OpenFlags};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cache = unherd::Cache::builder().capacity(256 << 20).build()?;
//! unherd_example_sqlite::register("cached", cache)?;
//! let flags = OpenFlags::default();
//! let connection = Connection::open_with_flags_and_vfs("data.db", flags, "cached")?;
//! // Pages are read in the cache's memory, without a copy.
//! connection.pragma_update(None, "mmap_size", i64::MAX)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Locks
//!
//! Locks hold among the connections of this process, also if two names are registered for one
//! cache. Others that open the database by this VFS are refused by the cache's flock(2), with
//! `SQLITE_BUSY`; the unix VFS of another process does not see it. There is no shared memory, so
//! WAL needs `PRAGMA locking_mode=EXCLUSIVE`.
//!
//! While all connections to a database are read-only, one for writing gets `SQLITE_BUSY` when it
//! is opened: the cache holds the file read-only. No busy handler runs at that point. Open it again
//! when they are closed, or open a connection for writing first: read-only ones may join it.
//!
//! A database whose file was renamed or removed while it was open is not written any more:
//! `SQLITE_READONLY_DBMOVED`, as with the unix VFS. A rename while a connection is being opened may
//! be overlooked.
//!
//! # Fetched pages
//!
//! With `PRAGMA mmap_size` the cursors' pages cannot be evicted. At most a quarter of the cache's
//! frames is fetched so by each VFS; beyond that SQLite copies pages as without it.
//!
//! # Killed processes and power cuts
//!
//! What a commit changed in the cache is written to the file before the commit ends, whatever
//! `synchronous` is: pages of the database, or with a WAL its frames. A checkpoint writes the pages
//! before it ends. So `kill -9` loses no commit and damages nothing, also with `synchronous=OFF`,
//! unless the journal is no file (`journal_mode` `MEMORY` and `OFF`). With `NORMAL` and a WAL each
//! small commit costs a write of the device, which it does not by the unix VFS.
//! With `OFF` a power cut may damage the database, as with the unix VFS. `NORMAL` with a WAL is as
//! there too: a power cut may lose the last commits, and damages nothing.
//!
//! If a flush fails after changed pages have left the cache, it is not known what the device holds.
//! Then connections get `SQLITE_IOERR`, also for reads, until all connections to the database are
//! closed: see [`LostDurability`](unherd::Error::LostDurability). That is by design.

mod database;
mod locks;
mod vfs;

pub use vfs::register;
