//! The face of the library: everything a user of unherd needs, re-exported.
pub use unherd_cache as cache;
pub use unherd_sync as sync;
