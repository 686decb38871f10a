//! How long a file is on the device, as far as this cache has made it so.
//!
//! Whole pages are written, so a write-back of the last page makes the file longer than its data:
//! by *padding*, which the next sync or close cuts off. Others may have made the file longer or
//! shorter meanwhile. What is not known to be our own padding is theirs, and stays.
//!
//! | the device has | it is |
//! |---|---|
//! | as many bytes as our last write-back left | data, and then padding, which is cut off |
//! | as many as a write at the end that failed has left | the same |
//! | any other number | as others have left it |
//!
//! A sync cuts to the length that the file had when its last page was written, not to that of the
//! moment: what was appended since is not on the device yet, and would be zeros there.

use std::ops::Range;

use unherd_sys::Errno;

/// What stands for [`Error::Truncated`](crate::Error::Truncated) where a read's failure is a
/// number. The kernel has no error of that number: it keeps numbers up to this one, and has used a
/// few hundred.
pub(crate) const TRUNCATED: Errno = Errno::from_raw_os_error(4095);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeviceLen {
    /// The length that the device had after our last write at the end.
    len: u64,
    /// Up to here the bytes are the file's; the rest is padding. At most `len`.
    data: u64,
}

impl DeviceLen {
    /// Of a file of which every byte is data.
    pub(crate) fn new(len: u64) -> Self {
        Self { len, data: len }
    }

    /// The bytes of the file that the device has had: a read must find them.
    pub(crate) fn data(self) -> u64 {
        self.data
    }

    /// Pages up to `end` were written when the file was `file_len` bytes long.
    pub(crate) fn written(&mut self, end: u64, file_len: u64) {
        self.len = self.len.max(end);
        self.data = self.data.max(file_len.min(end));
    }

    /// The write of these bytes has failed, and then the device had this length, if it said so. Of
    /// an end elsewhere, or one that it does not say, nothing is taken for ours.
    pub(crate) fn failed(&mut self, written: Range<u64>, on_device: Option<u64>) {
        if let Some(left) = on_device
            && written.start < left
            && left <= written.end
        {
            self.len = self.len.max(left);
        }
    }

    /// The file is about to be cut to `len` bytes: no read needs to find more.
    pub(crate) fn will_cut(&mut self, len: u64) {
        self.data = self.data.min(len);
    }

    /// What to cut the file to, if the device now says that it is `on_device` bytes long.
    pub(crate) fn cut(self, on_device: u64) -> Option<u64> {
        (on_device == self.len && on_device > self.data).then_some(self.data)
    }

    /// Whether the device is to be asked for its length at all.
    pub(crate) fn is_padded(self) -> bool {
        self.data < self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_cut_off_and_nothing_else() {
        let mut len = DeviceLen::new(1000);
        assert!(!len.is_padded());
        len.written(512, 1000);
        assert_eq!(len, DeviceLen::new(1000), "not at the end");
        len.written(1024, 1000);
        assert_eq!(len.cut(1024), Some(1000));
        assert_eq!((len.cut(1025), len.cut(1001), len.cut(0)), (None, None, None), "by others");
    }

    #[test]
    fn the_latest_write_of_the_last_page_says_what_is_data() {
        let mut len = DeviceLen::new(0);
        len.written(1024, 600);
        len.written(1024, 5000);
        assert!(!len.is_padded(), "the file reaches beyond the page");
        len.written(4096, 3500);
        len.written(2048, 5000);
        assert_eq!(len.cut(4096), Some(3500));
    }

    #[test]
    fn what_a_failed_write_left_is_cut_off() {
        let mut len = DeviceLen::new(100);
        len.failed(0..2048, Some(612));
        assert_eq!((len.cut(612), len.cut(611), len.cut(613)), (Some(100), None, None));
        len.failed(1024..2048, Some(2049));
        len.failed(1024..2048, Some(1024));
        assert_eq!((len.cut(612), len.cut(2049)), (Some(100), None), "by others");
        len.written(2048, 1500);
        assert_eq!((len.cut(612), len.cut(2048)), (None, Some(1500)));
    }

    #[test]
    fn a_failed_write_that_left_nothing_claims_nothing() {
        for on_device in [None, Some(100)] {
            let mut len = DeviceLen::new(100);
            len.failed(0..2048, on_device);
            assert!(!len.is_padded(), "what comes there is others'");
        }
    }
}
