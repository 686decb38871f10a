//! Who may read and write a database: the locks of its connections in this process.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rusqlite::ffi::{
    SQLITE_BUSY, SQLITE_LOCK_EXCLUSIVE, SQLITE_LOCK_NONE, SQLITE_LOCK_PENDING,
    SQLITE_LOCK_RESERVED, SQLITE_LOCK_SHARED, SQLITE_OK,
};

/// A file's device and inode.
pub(crate) type Identity = (u64, u64);

/// The databases of all VFSs of the process that are open: two of them may have one cache, whose
/// flock(2) does not keep them apart.
static OPEN: Mutex<Vec<(Identity, Weak<Shared>)>> = Mutex::new(Vec::new());

/// What the connections of one database share.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Connections at SHARED or above.
    readers: u32,
    /// The level of the one connection above SHARED, or `SQLITE_LOCK_NONE`.
    writer: c_int,
}

/// The lock of one connection. It is given up with it.
#[derive(Debug)]
pub(crate) struct Lock {
    shared: Arc<Shared>,
    level: c_int,
}

impl Shared {
    pub(crate) fn of(database: Identity) -> Arc<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, shared)| shared.strong_count() > 0);
        let known = open.iter().find(|(known, _)| *known == database);
        known.and_then(|(_, shared)| shared.upgrade()).unwrap_or_else(|| {
            let shared = Arc::default();
            open.push((database, Arc::downgrade(&shared)));
            shared
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, level: SQLITE_LOCK_NONE }
    }

    /// Raises the lock to `want`, or says `SQLITE_BUSY`.
    pub(crate) fn raise(&mut self, want: c_int) -> c_int {
        if self.level >= want {
            return SQLITE_OK;
        }
        let mut state = self.shared.state();
        let others_write = state.writer != SQLITE_LOCK_NONE && self.level < SQLITE_LOCK_RESERVED;
        match want {
            SQLITE_LOCK_SHARED if state.writer < SQLITE_LOCK_PENDING => state.readers += 1,
            SQLITE_LOCK_RESERVED if !others_write => state.writer = want,
            SQLITE_LOCK_EXCLUSIVE if !others_write => {
                if state.readers > 1 {
                    // PENDING lets the readers that are there end, and no new ones in.
                    state.writer = SQLITE_LOCK_PENDING;
                    self.level = SQLITE_LOCK_PENDING;
                    return SQLITE_BUSY;
                }
                state.writer = want;
            }
            _ => return SQLITE_BUSY,
        }
        self.level = want;
        SQLITE_OK
    }

    /// Lowers the lock to `to`: `SQLITE_LOCK_SHARED` or `SQLITE_LOCK_NONE`.
    pub(crate) fn lower(&mut self, to: c_int) {
        let mut state = self.shared.state();
        if self.level >= SQLITE_LOCK_RESERVED && to < SQLITE_LOCK_RESERVED {
            state.writer = SQLITE_LOCK_NONE;
        }
        if self.level >= SQLITE_LOCK_SHARED && to == SQLITE_LOCK_NONE {
            state.readers -= 1;
        }
        self.level = self.level.min(to);
    }

    /// Whether a connection writes, or is about to.
    pub(crate) fn is_reserved(&self) -> bool {
        self.shared.state().writer != SQLITE_LOCK_NONE
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.lower(SQLITE_LOCK_NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_lets_readers_end_and_none_in() {
        let shared = Arc::new(Shared::default());
        let [mut writer, mut reader, mut late] = [(); 3].map(|()| Lock::new(shared.clone()));
        assert_eq!(writer.raise(SQLITE_LOCK_SHARED), SQLITE_OK);
        assert_eq!(reader.raise(SQLITE_LOCK_SHARED), SQLITE_OK);
        assert_eq!(writer.raise(SQLITE_LOCK_RESERVED), SQLITE_OK);
        assert!(reader.is_reserved());
        assert_eq!(reader.raise(SQLITE_LOCK_RESERVED), SQLITE_BUSY);
        assert_eq!(writer.raise(SQLITE_LOCK_EXCLUSIVE), SQLITE_BUSY);
        assert_eq!(late.raise(SQLITE_LOCK_SHARED), SQLITE_BUSY);
        reader.lower(SQLITE_LOCK_NONE);
        assert_eq!(writer.raise(SQLITE_LOCK_EXCLUSIVE), SQLITE_OK);
        writer.lower(SQLITE_LOCK_SHARED);
        assert_eq!(late.raise(SQLITE_LOCK_SHARED), SQLITE_OK);
        assert!(!late.is_reserved());
    }

    #[test]
    fn dropped_connection_gives_its_lock_up() {
        let shared = Arc::new(Shared::default());
        let mut gone = Lock::new(shared.clone());
        assert_eq!(gone.raise(SQLITE_LOCK_SHARED), SQLITE_OK);
        assert_eq!(gone.raise(SQLITE_LOCK_EXCLUSIVE), SQLITE_OK);
        drop(gone);
        let mut next = Lock::new(shared);
        assert_eq!(next.raise(SQLITE_LOCK_SHARED), SQLITE_OK);
        assert_eq!(next.raise(SQLITE_LOCK_EXCLUSIVE), SQLITE_OK);
    }
}
