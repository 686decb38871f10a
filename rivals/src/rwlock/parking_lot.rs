//! parking_lot: a word, and queues in its own growing table.

use parking_lot::RwLock;
use unherd_load::rwlock::{Guarded, Shared};

#[derive(Default)]
pub(crate) struct ParkingLot(RwLock<Guarded>);

impl Shared for ParkingLot {
    #[inline]
    fn read(&self, section: impl FnOnce(&Guarded)) {
        section(&self.0.read());
    }

    #[inline]
    fn write(&self, section: impl FnOnce(&mut Guarded)) {
        section(&mut self.0.write());
    }
}
