//! Pages that tell by themselves whether they are whole: what a stamped page holds.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | the checksum of everything else |
//! | 8..16 | the file and the page |
//! | 16..24 | the *sequence*: which write to this page it was |
//! | 24.. | words that follow from the two before |
//!
//! So bytes of another page, of another write, or of nothing at all spoil the checksum.

/// A page that is cut within its first bytes does not tell what the rest of it was.
const HEADER_BYTES: usize = 32;

/// One page of one file, and what its stamp looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// A number of the file.
    pub file: usize,
    /// The page's number in it.
    pub page: u64,
}

/// What a stamped page was found to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Zeros,
    /// The page of this sequence.
    Whole(u64),
    /// The beginning of it, and then zeros. As some of its own bytes are zeros, too, where it ends
    /// is known within bounds only.
    Cut {
        /// Of which it is the beginning.
        sequence: u64,
        /// The bytes up to the last that is not zero.
        least: usize,
        /// The bytes up to the first that is another than it was.
        most: usize,
    },
}

impl Stamp {
    /// No page may be cut before this many bytes.
    pub const HEADER_BYTES: usize = HEADER_BYTES;

    fn identity(self) -> u64 {
        (self.file as u64 + 1) << 32 | self.page
    }

    /// Fills `bytes` with the page of this sequence. Its size is a multiple of 32 bytes.
    pub fn fill(self, sequence: u64, bytes: &mut [u8]) {
        let first = mix(self.identity() ^ sequence.rotate_left(32));
        for (word, at) in bytes.chunks_exact_mut(8).zip(0_u64..) {
            let body = first.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            word.copy_from_slice(&body.to_le_bytes());
        }
        bytes[8..16].copy_from_slice(&self.identity().to_le_bytes());
        bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        let checksum = checksum(|at| word(bytes, at), bytes.len());
        bytes[..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// What the page holds.
    ///
    /// # Errors
    /// If it is neither a page that was written here, nor the beginning of one, nor zeros.
    pub fn examine(self, bytes: &[u8]) -> Result<Found, String> {
        let load = |at| word(bytes, at);
        if let Some(sequence) = self.sequence_if_whole(load, bytes.len()) {
            return Ok(Found::Whole(sequence));
        }
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(Found::Zeros);
        }
        let sequence = word(bytes, 16);
        let mut whole = vec![0; bytes.len()];
        self.fill(sequence, &mut whole);
        let alike = bytes.iter().zip(&whole).take_while(|(is, was)| is == was).count();
        let last = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
        if (HEADER_BYTES..bytes.len()).contains(&alike) && last <= alike {
            return Ok(Found::Cut { sequence, least: last, most: alike });
        }
        Err(format!(
            "torn: page {} of file {} begins as it was in sequence {sequence}, up to byte {alike}; \
             there it has {:x?}; its header is {:x?}",
            self.page,
            self.file,
            &bytes[alike..bytes.len().min(alike + 8)],
            [word(bytes, 0), word(bytes, 8), sequence],
        ))
    }

    /// The sequence of a page of `len` bytes whose words are loaded by `load`, if the checksum is
    /// right and it is this page.
    pub fn sequence_if_whole(self, load: impl Fn(usize) -> u64, len: usize) -> Option<u64> {
        (load(8) == self.identity() && load(0) == checksum(&load, len)).then(|| load(16))
    }
}

/// The finalizer of SplitMix64.
fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Of all words but the first, which holds it. Four sums side by side, as one would take four times
/// as long.
fn checksum(load: impl Fn(usize) -> u64, len: usize) -> u64 {
    let mut sums = [0, load(8), load(16), load(24)];
    for at in (HEADER_BYTES..len).step_by(32) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            let product = (*sum ^ load(at + lane * 8)).wrapping_mul(0x9fb2_1c65_1e98_df25);
            *sum = product ^ (product >> 32);
        }
    }
    sums.into_iter().fold(0, |all, sum| mix(all ^ sum))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
#[test]
fn each_wrong_byte_is_seen() {
    let stamp = Stamp { file: 3, page: 9 };
    let (mut old, mut new) = (vec![0; 512], vec![0; 512]);
    stamp.fill(7, &mut old);
    stamp.fill(8, &mut new);
    assert_eq!(stamp.examine(&new), Ok(Found::Whole(8)));
    assert_eq!(stamp.examine(&[0; 512]), Ok(Found::Zeros));
    assert!(Stamp { page: 8, ..stamp }.examine(&new).is_err(), "another page");
    assert!(Stamp { file: 2, ..stamp }.examine(&new).is_err(), "another file");
    for at in 1..512 {
        let torn = [&new[..at], &old[at..]].concat();
        assert_eq!(torn == new, stamp.examine(&torn) == Ok(Found::Whole(8)), "torn at {at}");
        let late_zeros = [vec![0; at], new[at..].to_vec()].concat();
        assert!(stamp.examine(&late_zeros).is_err() || at < 8, "zeros up to {at}");
    }
    for at in HEADER_BYTES..512 {
        let cut = [&new[..at], &vec![0; 512 - at]].concat();
        let found = stamp.examine(&cut);
        let is_it = |least, most| (least..=most).contains(&at) && most - least < 8;
        assert!(
            matches!(found, Ok(Found::Cut { sequence: 8, least, most }) if is_it(least, most)),
            "cut at {at}: {found:?}"
        );
    }
    let mut wrong = new.clone();
    for at in 0..512 {
        wrong[at] ^= 1;
        assert!(stamp.examine(&wrong).is_err(), "a wrong bit at {at}");
        wrong[at] = new[at];
    }
}
