//! The lock of Rust's standard library.

use std::sync::{PoisonError, RwLock};

use unherd_load::rwlock::{Guarded, Shared};

#[derive(Default)]
pub(crate) struct Std(RwLock<Guarded>);

impl Shared for Std {
    #[inline]
    fn read(&self, section: impl FnOnce(&Guarded)) {
        section(&self.0.read().unwrap_or_else(PoisonError::into_inner));
    }

    #[inline]
    fn write(&self, section: impl FnOnce(&mut Guarded)) {
        section(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}
