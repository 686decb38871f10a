//! How long a file is on the device, as far as this cache has made it so.
//!
//! Whole pages are written, so a write-back of the last page makes the file longer than its data:
//! by *padding*, which the next sync or close cuts off. Others may have made the file longer or
//! shorter meanwhile. What is not known to be our own padding is theirs, and stays.
//!
//! | the device has | it is |
//! |---|---|
//! | as many bytes as our last write-back left | data, and then padding, which is cut off |
//! | fewer, after a write at the end failed | what that left, which is cut off |
//! | more, or fewer otherwise | as others have left it |
//!
//! A sync cuts to the length that the file had when its last page was written, not to that of the
//! moment: what was appended since is not on the device yet, and would be zeros there.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceLen {
    /// The length that the device had, or at most has, if the last write at the end failed.
    len: u64,
    /// Up to here the bytes are the file's; the rest is padding. At most `len`.
    data: u64,
    /// A write that failed may have made the file longer, up to `len`.
    is_uncertain: bool,
}

impl DeviceLen {
    /// Of a file of which every byte is data.
    pub(crate) fn new(len: u64) -> Self {
        Self { len, data: len, is_uncertain: false }
    }

    /// The bytes of the file that the device has had: a read must find them.
    pub(crate) fn data(self) -> u64 {
        self.data
    }

    /// Pages up to `end` were written when the file was `file_len` bytes long.
    pub(crate) fn written(&mut self, end: u64, file_len: u64) {
        if end > self.len || (end == self.len && self.is_uncertain) {
            *self = Self { len: end, data: self.data, is_uncertain: false };
        }
        self.data = self.data.max(file_len.min(end));
    }

    /// The write of pages up to `end` has failed.
    pub(crate) fn failed(&mut self, end: u64) {
        if end > self.len {
            *self = Self { len: end, data: self.data, is_uncertain: true };
        }
    }

    /// The file is about to be cut to `len` bytes: no read needs to find more.
    pub(crate) fn will_cut(&mut self, len: u64) {
        self.data = self.data.min(len);
    }

    /// What to cut the file to, if the device now says that it is `on_device` bytes long.
    pub(crate) fn cut(self, on_device: u64) -> Option<u64> {
        let is_ours = on_device == self.len || (self.is_uncertain && on_device < self.len);
        (is_ours && on_device > self.data).then_some(self.data)
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
        len.failed(2048);
        assert_eq!((len.cut(612), len.cut(2048), len.cut(2049)), (Some(100), Some(100), None));
        len.written(1024, 1500);
        assert_eq!((len.cut(1024), len.cut(2048)), (None, Some(1024)), "a page before it");
        len.written(2048, 1500);
        assert_eq!((len.cut(1600), len.cut(2048)), (None, Some(1500)));
    }
}
