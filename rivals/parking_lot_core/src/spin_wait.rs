//! Pauses that grow, before a thread parks.

use std::hint::spin_loop;
use std::thread::yield_now;

/// Pauses that double: 1, 2 and 4 turns of a spin loop.
const PAUSES: u32 = 3;
/// Pauses and yields together.
const TURNS: u32 = 10;

/// How often a thread has waited for a lock without parking.
#[derive(Default)]
pub struct SpinWait {
    turns: u32,
}

impl SpinWait {
    /// No turn was taken yet.
    #[inline]
    pub const fn new() -> Self {
        Self { turns: 0 }
    }

    /// Begins again.
    #[inline]
    pub const fn reset(&mut self) {
        self.turns = 0;
    }

    /// Takes a turn: a pause, or a yield of the processor; false if there were enough, and the
    /// thread is to park.
    #[inline]
    pub fn spin(&mut self) -> bool {
        if self.turns == TURNS {
            return false;
        }
        self.turns += 1;
        if self.turns <= PAUSES {
            pause(self.turns);
        } else {
            yield_now();
        }
        true
    }

    /// Pauses twice as long as the turn before, up to 512 turns of a spin loop.
    #[inline]
    pub fn spin_no_yield(&mut self) {
        self.turns = (self.turns + 1).min(TURNS);
        pause(self.turns);
    }
}

fn pause(turn: u32) {
    (0..1 << (turn - 1)).for_each(|_| spin_loop());
}
