//! Memory for what is written in place of the frames of a run.
#![expect(unsafe_code, reason = "the device reads from raw memory")]

use std::ops::Range;
use std::ptr::NonNull;

use unherd_sys::{Errno, HugePages, IoBuf, Map};

/// Aligned memory of its own.
#[derive(Debug)]
pub(crate) struct PageCopies {
    map: Map,
}

impl PageCopies {
    /// For this many bytes.
    pub(crate) fn new(bytes: usize) -> Result<Self, Errno> {
        Ok(Self { map: Map::new(bytes, HugePages::AsConfigured)? })
    }

    /// No transfer may be under way.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = NonNull::slice_from_raw_parts(self.map.start(), self.map.len());
        // SAFETY: the map is this one's own, reads as zeros at first, and is borrowed here; a
        // device uses it only while the run of which it is a part is under way.
        unsafe { &mut *bytes.as_ptr() }
    }

    /// The memory for a device to read.
    pub(crate) fn piece(&mut self, range: Range<usize>) -> IoBuf {
        let bytes = &mut self.bytes_mut()[range];
        IoBuf { start: NonNull::from(&mut *bytes).cast(), len: bytes.len() }
    }
}
