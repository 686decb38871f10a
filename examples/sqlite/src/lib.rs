//! A SQLite VFS whose database files lie in an [`unherd::Cache`]. Journals, WAL and temporary files
//! are the unix VFS's.
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
//! Locks hold among the connections of this process. Others that open the database by this VFS are
//! refused by the cache's flock(2), with `SQLITE_BUSY`; the unix VFS of another process does not
//! see it. There is no shared memory, so WAL needs `PRAGMA locking_mode=EXCLUSIVE`.

mod database;
mod locks;
mod vfs;

pub use vfs::register;
