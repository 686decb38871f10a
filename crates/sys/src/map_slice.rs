//! A slice in a map of its own: what a boxed slice is, but on huge pages if it is large.
#![expect(unsafe_code, reason = "elements are placed in raw memory")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use rustix::io::Errno;

use crate::map::{HUGE_PAGE_BYTES, HugePages, Map};

/// A slice of fixed length in memory of its own, aligned to pages at least.
///
/// The allocator's memory lies on ordinary pages unless the whole system is set up otherwise, and a
/// table that is read at random then costs a miss of the TLB on top of that of the cache.
///
/// ```
/// let squares = unherd_sys::MapSlice::new(10, |at| at * at)?;
/// assert_eq!(squares[3], 9);
/// # Ok::<(), unherd_sys::Errno>(())
/// ```
pub struct MapSlice<T> {
    start: NonNull<T>,
    len: usize,
    /// Holds the elements; `None` if they take no bytes.
    _map: Option<Map>,
    elements: PhantomData<T>,
}

// SAFETY: it owns its elements and nothing else, as a boxed slice does.
unsafe impl<T: Send> Send for MapSlice<T> {}
// SAFETY: as above; shared, it gives out `&[T]` alone.
unsafe impl<T: Sync> Sync for MapSlice<T> {}

impl<T> MapSlice<T> {
    /// A slice of `len` elements, of which each is made by `element` from its place.
    ///
    /// # Errors
    /// `ENOMEM` where the address space or the limit on memory does not have them.
    pub fn new(len: usize, mut element: impl FnMut(usize) -> T) -> Result<Self, Errno> {
        const { assert!(align_of::<T>() <= 4096, "a map is aligned to pages") };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Errno::NOMEM)?;
        let map = match bytes {
            0 => None,
            1..HUGE_PAGE_BYTES => Some(Map::new(bytes, HugePages::AsConfigured)?),
            _ => Some(Map::new(bytes, HugePages::Advised)?),
        };
        if let Some(map) = &map {
            map.populate()?;
        }
        let start = map.as_ref().map_or(NonNull::dangling(), |map| map.start().cast());
        // As it grows, so that those that were made are dropped if the next one panics.
        let mut slice = Self { start, len: 0, _map: map, elements: PhantomData };
        for at in 0..len {
            // SAFETY: the map has room for `len` elements.
            let place = unsafe { start.add(at) };
            // SAFETY: in the map, aligned, and nobody else's.
            unsafe { place.write(element(at)) };
            slice.len = at + 1;
        }
        Ok(slice)
    }
}

impl<T> Deref for MapSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were written there, and live as long as the slice.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }
}

impl<T> Drop for MapSlice<T> {
    fn drop(&mut self) {
        // SAFETY: the elements are there, nobody uses them after this, and the map goes later.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).drop_in_place() };
    }
}

impl<T: fmt::Debug> fmt::Debug for MapSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    use super::*;

    #[test]
    fn elements_stay_and_drop_once() {
        let shared = Rc::new(());
        let slice = MapSlice::new(1000, |at| (at, shared.clone())).unwrap();
        assert!(slice.iter().enumerate().all(|(at, (number, _))| at == *number));
        assert_eq!((slice.len(), Rc::strong_count(&shared)), (1000, 1001));
        drop(slice);
        assert_eq!(Rc::strong_count(&shared), 1);
    }

    #[test]
    fn those_made_before_a_panic_are_dropped() {
        let shared = Rc::new(());
        let made = catch_unwind(AssertUnwindSafe(|| {
            MapSlice::new(10, |at| {
                assert!(at < 7, "on purpose");
                shared.clone()
            })
        }));
        assert!(made.is_err());
        assert_eq!(Rc::strong_count(&shared), 1);
    }

    #[test]
    fn large_slice_begins_at_huge_page() {
        let slice = MapSlice::new(HUGE_PAGE_BYTES / 8, |at| at as u64).unwrap();
        assert!(slice.as_ptr().cast::<u8>().align_offset(HUGE_PAGE_BYTES) == 0);
        assert_eq!(slice.last(), Some(&(HUGE_PAGE_BYTES as u64 / 8 - 1)));
    }

    #[test]
    fn nothing_and_too_much() {
        assert!(MapSlice::new(0, |at| at).unwrap().is_empty());
        assert_eq!(MapSlice::new(5, |_| ()).unwrap().len(), 5);
        assert_eq!(MapSlice::<u64>::new(usize::MAX / 2, |_| 0).map(drop), Err(Errno::NOMEM));
    }
}
