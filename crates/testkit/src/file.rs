//! The plainest model of a file.

use std::ops::Range;

/// A file as a vector of bytes: what every other file must agree with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileModel {
    bytes: Vec<u8>,
}

impl FileModel {
    /// A file with these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Copies what there is from `offset` on into `into`, and says how many bytes that were.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> usize {
        let start = self.bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let n = into.len().min(self.bytes.len() - start);
        into[..n].copy_from_slice(&self.bytes[start..start + n]);
        n
    }

    /// Puts `bytes` at `offset`; a gap before it reads as zeros. No bytes change nothing.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = offset as usize;
        let end = start + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
    }

    /// Zeros in `range`, as far as the file reaches.
    pub fn punch_hole(&mut self, range: Range<u64>) {
        let end = range.end.min(self.len());
        self.bytes[range.start.min(end) as usize..end as usize].fill(0);
    }

    /// Lengthens the file with zeros, if it does not reach to the end of `range`.
    pub fn allocate(&mut self, range: Range<u64>) {
        self.set_len(range.end.max(self.len()));
    }

    /// Cuts the file, or lengthens it with zeros.
    pub fn set_len(&mut self, len_bytes: u64) {
        self.bytes.resize(len_bytes as usize, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_growth_and_truncation_give_zeros() {
        let mut file = FileModel::default();
        file.write_at(3, b"ab");
        assert_eq!(file.bytes(), b"\0\0\0ab");
        file.set_len(4);
        file.set_len(6);
        assert_eq!(file.bytes(), b"\0\0\0a\0\0");
        let mut into = [9; 4];
        assert_eq!(file.read_at(4, &mut into), 2);
        assert_eq!(into, [0, 0, 9, 9]);
        assert_eq!(file.read_at(u64::MAX, &mut into), 0);
        file.write_at(100, b"");
        assert_eq!(file.len(), 6);
    }
}
