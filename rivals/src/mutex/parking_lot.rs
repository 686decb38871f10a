//! parking_lot: a byte, and a queue in its own growing table.

use parking_lot::Mutex;
use unherd_load::mutex::{Exclusive, Guarded};

#[derive(Default)]
pub(crate) struct ParkingLot(Mutex<Guarded>);

impl Exclusive for ParkingLot {
    #[inline]
    fn run(&self, section: impl FnOnce(&mut Guarded)) {
        section(&mut self.0.lock());
    }
}
