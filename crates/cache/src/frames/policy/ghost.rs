//! The pages that were given up last, by their hashes.
//!
//! A ring of hashes in the order in which they came, and an open-addressed table of places in the
//! ring (linear probing, at most half full, deletion by shifting back). Two pages with one hash are
//! taken for one: with 64 bits that is a page admitted to the wrong queue every few centuries.

/// No hash in this place, or no place in this slot.
const NONE: u32 = 0;

#[derive(Debug)]
pub(crate) struct Ghost {
    /// The hashes. Whether one is still remembered, the table says.
    ring: Box<[u64]>,
    /// Where the next hash goes; the oldest is there.
    next: u32,
    /// A place in the ring plus one, or [`NONE`].
    slots: Box<[u32]>,
    /// Shifts a mixed hash to a slot.
    shift: u32,
}

impl Ghost {
    /// Remembers this many pages, at least one.
    pub(crate) fn new(pages: u32) -> Self {
        let pages = pages.max(1);
        let slots = (2 * pages as usize).next_power_of_two();
        Self {
            ring: vec![0; pages as usize].into_boxed_slice(),
            next: 0,
            slots: vec![NONE; slots].into_boxed_slice(),
            shift: u64::BITS - slots.trailing_zeros(),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ring) + size_of_val(&*self.slots)
    }

    /// Remembers a page, in place of the one that came first of those remembered.
    pub(crate) fn insert(&mut self, page: u64) {
        self.take(page);
        let place = self.next;
        self.next = if place as usize + 1 < self.ring.len() { place + 1 } else { 0 };
        let oldest = self.ring[place as usize];
        if let Some(slot) = self.slot_of(oldest)
            && self.slots[slot] == place + 1
        {
            self.clear(slot);
        }
        self.ring[place as usize] = page;
        let mut slot = self.home(page);
        while self.slots[slot] != NONE {
            slot = self.after(slot);
        }
        self.slots[slot] = place + 1;
    }

    /// Forgets a page; gives whether it was remembered.
    pub(crate) fn take(&mut self, page: u64) -> bool {
        let slot = self.slot_of(page);
        if let Some(slot) = slot {
            self.clear(slot);
        }
        slot.is_some()
    }

    /// The slot in which a page is remembered.
    fn slot_of(&self, page: u64) -> Option<usize> {
        let mut slot = self.home(page);
        loop {
            match self.slots[slot] {
                NONE => return None,
                place if self.ring[place as usize - 1] == page => return Some(slot),
                _ => slot = self.after(slot),
            }
        }
    }

    fn home(&self, page: u64) -> usize {
        // Fibonacci hashing: the hashes may be poor in their upper bits.
        (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// Empties a slot, and shifts back those behind it that it kept from their homes.
    fn clear(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut slot = self.after(hole);
        while self.slots[slot] != NONE {
            let home = self.home(self.ring[self.slots[slot] as usize - 1]);
            // How far it is from home, and how far the hole is from it, going round.
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[slot];
                hole = slot;
            }
            slot = self.after(slot);
        }
        self.slots[hole] = NONE;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Few hashes, small tables: chains meet, wrap around and are shifted.
        #[test]
        fn it_is_a_bounded_queue(
            size in 1..9_u32,
            steps in prop::collection::vec((any::<bool>(), 0..24_u64), 0..200),
        ) {
            let mut ghost = Ghost::new(size);
            // A page that was taken keeps its place until it would have been the oldest.
            let mut model: VecDeque<Option<u64>> = VecDeque::new();
            for (is_insert, page) in steps {
                let at = model.iter().position(|known| *known == Some(page));
                if is_insert {
                    if let Some(at) = at {
                        model[at] = None;
                    }
                    if model.len() == size as usize {
                        model.pop_front();
                    }
                    model.push_back(Some(page));
                    ghost.insert(page);
                } else {
                    prop_assert_eq!(ghost.take(page), at.is_some());
                    if let Some(at) = at {
                        model[at] = None;
                    }
                }
                for page in 0..24 {
                    let known = model.contains(&Some(page));
                    prop_assert_eq!(ghost.slot_of(page).is_some(), known, "{}", page);
                }
            }
        }
    }
}
