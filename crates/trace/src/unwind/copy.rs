//! Copies of stacks as they come from the programs.

use std::fmt;

/// The most bytes that copies may take until tracing is over. Later ones are lost.
const BYTES_MAX: usize = 64 << 20;

/// The copies of futex calls may take no more of that than this: each call has a stack, and where
/// they cannot be walked there are many.
const FUTEX_BYTES_MAX: usize = BYTES_MAX / 4;

/// `struct uh_copy` up to the stack.
const HEAD_BYTES: usize = 16 + 4 * 4 + 4 * 8;

/// `UH_COPY_FUTEX`.
const OF_FUTEX: u32 = 2;

/// The top of a user stack, and the registers.
#[derive(Clone)]
pub(crate) struct StackCopy {
    /// A futex call's, and not a row's sample.
    pub(crate) of_futex: bool,
    /// The row that was sampled; of a futex call, the word, and `kernel` is its kind.
    pub(crate) row: u64,
    /// The kernel's stack of the sample, below 0 if there is none.
    pub(crate) kernel: i32,
    /// The user's, as frame pointers have it.
    pub(crate) user: i32,
    pub(crate) pid: u32,
    /// This sample of the pair, and those up to the next copy.
    pub(crate) stands_for: u32,
    pub(crate) ip: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// The link register, where the architecture has one.
    pub(crate) lr: u64,
    /// What was at `sp` and above.
    pub(crate) stack: Box<[u8]>,
}

impl fmt::Debug for StackCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, pid, ip, sp, fp, lr, stack, .. } = self;
        write!(f, "row {row} of {pid}: ip {ip:#x}, sp {sp:#x}, fp {fp:#x}, lr {lr:#x}, ")?;
        write!(f, "{} bytes", stack.len())
    }
}

impl StackCopy {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, stack) = bytes.split_at_checked(HEAD_BYTES)?;
        let u32_at = |at: usize| Some(u32::from_ne_bytes(*head.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_ne_bytes(*head.get(at..)?.first_chunk()?));
        let copied = usize::try_from(u32_at(28)?).ok()?;
        Some(Self {
            of_futex: u32_at(20)? == OF_FUTEX,
            row: u64_at(0)?,
            kernel: u32_at(8)?.cast_signed(),
            user: u32_at(12)?.cast_signed(),
            pid: u32_at(16)?,
            stands_for: u32_at(24)?,
            ip: u64_at(32)?,
            sp: u64_at(40)?,
            fp: u64_at(48)?,
            lr: u64_at(56)?,
            stack: stack.get(..copied)?.into(),
        })
    }

    /// The word at an address, if it was copied.
    pub(super) fn word(&self, at: u64) -> Option<u64> {
        let offset = usize::try_from(at.checked_sub(self.sp)?).ok()?;
        self.stack.get(offset..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
    }
}

/// The copies of a session.
#[derive(Debug, Default)]
pub(crate) struct StackCopies {
    pub(crate) all: Vec<StackCopy>,
    /// Those that there was no room for, and the bytes of their stacks.
    pub(crate) lost: u64,
    pub(crate) lost_bytes: u64,
    bytes: usize,
    futex_bytes: usize,
}

impl StackCopies {
    /// Takes a record of the ring.
    pub(crate) fn take(&mut self, record: &[u8]) {
        let Some(copy) = StackCopy::parse(record) else { return };
        let bytes = size_of::<StackCopy>() + copy.stack.len();
        let futex_bytes = if copy.of_futex { bytes } else { 0 };
        if self.bytes + bytes > BYTES_MAX || self.futex_bytes + futex_bytes > FUTEX_BYTES_MAX {
            self.lost += 1;
            self.lost_bytes += copy.stack.len() as u64;
            return;
        }
        self.bytes += bytes;
        self.futex_bytes += futex_bytes;
        self.all.push(copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, copied: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(7u64.to_ne_bytes());
        bytes.extend([-1i32, 40].map(i32::to_ne_bytes).concat());
        bytes.extend([9, kind, 4, copied].map(u32::to_ne_bytes).concat());
        bytes.extend([0x10u64, 0x1000, 0x30, 0x40].map(u64::to_ne_bytes).concat());
        bytes.extend([0xaau8; 16384]);
        bytes
    }

    #[test]
    fn copy_is_read_within_its_bounds() {
        let copy = StackCopy::parse(&record(1, 1024)).unwrap();
        assert_eq!((copy.row, copy.kernel, copy.user), (7, -1, 40));
        assert_eq!((copy.pid, copy.stands_for, copy.of_futex), (9, 4, false));
        assert_eq!((copy.ip, copy.sp, copy.fp, copy.lr), (0x10, 0x1000, 0x30, 0x40));
        let word = u64::from_ne_bytes([0xaa; 8]);
        assert_eq!(copy.word(0x1000), Some(word));
        assert_eq!(copy.word(0x1000 + 1016), Some(word));
        assert_eq!(copy.word(0x1000 + 1017), None);
        assert_eq!(copy.word(0xfff), None);
        assert!(StackCopy::parse(&record(1, 16385)).is_none());
        assert!(StackCopy::parse(&[0; 63]).is_none());
    }

    #[test]
    fn futex_calls_leave_room_for_others() {
        let mut copies = StackCopies::default();
        for _ in 0..2000 {
            copies.take(&record(2, 16384));
        }
        assert!(copies.lost > 0 && !copies.all.is_empty(), "{}", copies.lost);
        let (kept, lost) = (copies.all.len(), copies.lost);
        assert_eq!(kept as u64 + lost, 2000);
        copies.take(&record(0, 16384));
        assert_eq!((copies.all.len(), copies.lost), (kept + 1, lost));
    }
}
