//! Bytes that one thread reads while another writes them.
//!
//! Rust has no such reads but atomic ones: a plain copy of memory that somebody writes is
//! undefined, whatever is done with the bytes. What this module does to racy memory is what relaxed
//! atomic accesses, byte by byte, would do: each byte is one that was written at some time, and
//! nothing is ordered; a reader must find out by itself whether the bytes belong together. *All*
//! accesses that may meet, reads and writes, must be these (or a device's).
//!
//! On x86-64 and aarch64 they are instructions that the compiler does not look into, so that a copy
//! is about as fast as any: plain loads and stores of up to 8 bytes, or of blocks of several
//! registers, and where x86-64 has it fast, `rep movsb`, which is a copy of bytes by definition.
//! Elsewhere they are loops of relaxed atomics, byte by byte: words would meet bytes there, and
//! Rust has no atomic accesses of two sizes that may meet.
//!
//! Stores past the processor's caches are not even ordered for their own thread's later ones: they
//! are ended by a fence ([`end_copies_past_caches`]).
#![expect(unsafe_code, reason = "raw memory that others write")]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use crate::primitives::{AtomicU8, Ordering};

/// Below this many bytes the start of `rep movsb`, or of a copy by wide registers, costs more than
/// it saves.
#[cfg(target_arch = "x86_64")]
const MANY_BYTES: usize = 256;

/// Whether a racy copy is about as fast as an ordinary one.
pub const IS_FAST: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Copies `len` bytes.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, which do not overlap. Others
/// access them meanwhile only through this module, or do not write what is read nor touch what is
/// written.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= MANY_BYTES {
        // SAFETY: the caller's.
        return unsafe { copy_many::<USUAL>(from, to, len) };
    }
    // SAFETY: the caller's.
    unsafe { copy_by_loads(from, to, len) }
}

/// As [`copy`], of bytes that are not likely to be read again soon: they need not stay in the
/// processor's caches, where they would drive out what is. Heeded from 256 bytes on, on x86-64
/// without a fast `rep movsb`.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_once(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= MANY_BYTES {
        // SAFETY: the caller's.
        return unsafe { copy_many::<ONCE>(from, to, len) };
    }
    // SAFETY: the caller's.
    unsafe { copy_by_loads(from, to, len) }
}

/// As [`copy`], to memory that is most likely not in the processor's caches, and need not come
/// there: its lines are written without being read before. Heeded where [`copy_once`] is, if `to`
/// is a multiple of 32. [`end_copies_past_caches`] is for many of them.
///
/// # Safety
/// As for [`copy`]; and the thread calls [`end_copies_past_caches`] before it, or anybody else,
/// may access what was written.
#[inline]
pub unsafe fn copy_past_caches(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= MANY_BYTES && to.addr().is_multiple_of(32) {
        // SAFETY: the caller's.
        return unsafe { copy_many::<PAST_CACHES>(from, to, len) };
    }
    // SAFETY: the caller's.
    unsafe { copy(from, to, len) }
}

/// What [`copy_past_caches`] has written comes before all that this thread writes from now on.
#[inline]
pub fn end_copies_past_caches() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: each x86-64 has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// How bytes are copied by wide registers; `rep movsb` cannot be told.
#[cfg(target_arch = "x86_64")]
const USUAL: u8 = 0;
/// As [`copy_once`].
#[cfg(target_arch = "x86_64")]
const ONCE: u8 = 1;
/// As [`copy_past_caches`].
#[cfg(target_arch = "x86_64")]
const PAST_CACHES: u8 = 2;

/// Copies at least [`MANY_BYTES`], as the processor does it best.
///
/// # Safety
/// As for [`copy`], or, if `HOW` says so, for [`copy_past_caches`]; then `to` is a multiple of 32.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_many<const HOW: u8>(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    if std::arch::is_x86_feature_detected!("ermsb") {
        // SAFETY: it moves the caller's bytes; the direction flag is clear on entry to any Rust
        // code, and stays so.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's; the processor has the registers, and many bytes are more than 128.
        done = unsafe { copy_wide_blocks::<HOW>(from, to, len) };
    }
    // SAFETY: in bounds, as no more than `len` bytes were copied.
    let from = unsafe { from.add(done) };
    // SAFETY: the same.
    let to = unsafe { to.add(done) };
    // SAFETY: the caller's.
    unsafe { copy_by_loads(from, to, len - done) }
}

/// # Safety
/// As for [`copy`].
#[inline]
unsafe fn copy_by_loads(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: the caller's.
    let blocks = unsafe { copy_blocks(from, to, len) };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let blocks = 0;
    let words = len / 8 * 8;
    for at in (blocks..words).step_by(8) {
        // SAFETY: in bounds, as `at + 8 <= len`.
        let from = unsafe { from.add(at) };
        // SAFETY: the same.
        let to = unsafe { to.add(at) };
        // SAFETY: the caller's.
        let word = unsafe { load_u64(from) };
        // SAFETY: the caller's.
        unsafe { store_u64(to, word) };
    }
    for at in words..len {
        // SAFETY: in bounds.
        let from = unsafe { from.add(at) };
        // SAFETY: the same.
        let to = unsafe { to.add(at) };
        // SAFETY: the caller's.
        let byte = unsafe { load_u8(from) };
        // SAFETY: the caller's.
        unsafe { store_u8(to, byte) };
    }
}

/// Copies as many blocks of 128 bytes as there are, and returns how many bytes that were. What is
/// read once is asked for 1,024 bytes ahead, also beyond the end: in a scan the next page mostly
/// begins there, which not all processors fetch ahead.
///
/// # Safety
/// As for [`copy_many`]; and there is a block.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_wide_blocks<const HOW: u8>(from: *const u8, to: *mut u8, len: usize) -> usize {
    let bytes = len / 128 * 128;
    // SAFETY: it moves the caller's bytes, up to `from + bytes`; any address may be prefetched.
    unsafe {
        std::arch::asm!(
            "2:",
            ".if {once}",
            "prefetchnta [{from} + {at} + 1024]",
            "prefetchnta [{from} + {at} + 1088]",
            ".endif",
            "vmovups {a}, [{from} + {at}]",
            "vmovups {b}, [{from} + {at} + 32]",
            "vmovups {c}, [{from} + {at} + 64]",
            "vmovups {d}, [{from} + {at} + 96]",
            ".if {past_caches}",
            "vmovntps [{to} + {at}], {a}",
            "vmovntps [{to} + {at} + 32], {b}",
            "vmovntps [{to} + {at} + 64], {c}",
            "vmovntps [{to} + {at} + 96], {d}",
            ".else",
            "vmovups [{to} + {at}], {a}",
            "vmovups [{to} + {at} + 32], {b}",
            "vmovups [{to} + {at} + 64], {c}",
            "vmovups [{to} + {at} + 96], {d}",
            ".endif",
            "add {at}, 128",
            "jnz 2b",
            // From the ends on, so that the sum ends the loop.
            from = in(reg) from.wrapping_add(bytes),
            to = in(reg) to.wrapping_add(bytes),
            at = inout(reg) bytes.wrapping_neg() => _,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            c = out(ymm_reg) _,
            d = out(ymm_reg) _,
            once = const (HOW == ONCE) as u8,
            past_caches = const (HOW == PAST_CACHES) as u8,
            options(nostack)
        );
    }
    // Later SSE instructions are slow while the upper halves of the registers are in use.
    std::arch::x86_64::_mm256_zeroupper();
    bytes
}

/// Copies as many blocks of 64 bytes as there are, and returns how many bytes that were.
///
/// # Safety
/// As for [`copy`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, len: usize) -> usize {
    let bytes = len / 64 * 64;
    if bytes > 0 {
        // SAFETY: it moves the caller's bytes, up to `from + bytes`.
        unsafe {
            std::arch::asm!(
                "2:",
                "movups {a}, [{from} + {at}]",
                "movups {b}, [{from} + {at} + 16]",
                "movups {c}, [{from} + {at} + 32]",
                "movups {d}, [{from} + {at} + 48]",
                "movups [{to} + {at}], {a}",
                "movups [{to} + {at} + 16], {b}",
                "movups [{to} + {at} + 32], {c}",
                "movups [{to} + {at} + 48], {d}",
                "add {at}, 64",
                "jnz 2b",
                // From the ends on, so that the sum ends the loop.
                from = in(reg) from.wrapping_add(bytes),
                to = in(reg) to.wrapping_add(bytes),
                at = inout(reg) bytes.wrapping_neg() => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack)
            );
        }
    }
    bytes
}

/// Copies as many blocks of 32 bytes as there are, and returns how many bytes that were.
///
/// # Safety
/// As for [`copy`].
#[cfg(target_arch = "aarch64")]
unsafe fn copy_blocks(from: *const u8, to: *mut u8, len: usize) -> usize {
    let bytes = len / 32 * 32;
    if bytes > 0 {
        // SAFETY: it moves the caller's bytes, up to `from + bytes`.
        unsafe {
            std::arch::asm!(
                "2:",
                "ldp {a}, {b}, [{from}]",
                "ldp {c}, {d}, [{from}, #16]",
                "add {from}, {from}, #32",
                "stp {a}, {b}, [{to}]",
                "stp {c}, {d}, [{to}, #16]",
                "add {to}, {to}, #32",
                "cmp {from}, {end}",
                "b.ne 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                end = in(reg) from.wrapping_add(bytes),
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                d = out(reg) _,
                options(nostack)
            );
        }
    }
    bytes
}

/// Writes `len` zeros.
///
/// # Safety
/// `to` is valid for writes of `len` bytes; others access them meanwhile only through this module.
pub unsafe fn zero(to: *mut u8, len: usize) {
    static ZEROS: [u8; 4096] = [0; 4096];
    let mut done = 0;
    while done < len {
        let part = (len - done).min(ZEROS.len());
        // SAFETY: in bounds, as `done < len`.
        let to = unsafe { to.add(done) };
        // SAFETY: the caller's; nobody writes the zeros.
        unsafe { copy(ZEROS.as_ptr(), to, part) };
        done += part;
    }
}

macro_rules! loads {
    ($type:ident, $load:ident, $x86_class:ident, $x86:literal, $arm:literal) => {
        /// Loads a number in the processor's byte order, from any address.
        ///
        /// # Safety
        /// `from` is valid for reads of it; others write there meanwhile only through this module.
        #[inline]
        pub unsafe fn $load(from: *const u8) -> $type {
            #[cfg(target_arch = "x86_64")]
            {
                let word: $type;
                // SAFETY: it loads what the caller may load.
                unsafe {
                    std::arch::asm!(
                        $x86,
                        from = in(reg) from,
                        word = out($x86_class) word,
                        options(nostack, preserves_flags, readonly)
                    );
                }
                word
            }
            #[cfg(target_arch = "aarch64")]
            {
                let word: $type;
                // SAFETY: the same.
                unsafe {
                    std::arch::asm!(
                        $arm,
                        from = in(reg) from,
                        word = out(reg) word,
                        options(nostack, preserves_flags, readonly)
                    );
                }
                word
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            {
                let mut bytes = [0; size_of::<$type>()];
                for (at, byte) in bytes.iter_mut().enumerate() {
                    // SAFETY: in bounds.
                    let from = unsafe { from.add(at) };
                    // SAFETY: valid, as the caller says, and all accesses are atomic.
                    let from = unsafe { AtomicU8::from_ptr(from.cast_mut()) };
                    *byte = from.load(Ordering::Relaxed);
                }
                $type::from_ne_bytes(bytes)
            }
        }
    };
}

macro_rules! stores {
    ($type:ident, $store:ident, $x86_class:ident, $x86:literal, $arm:literal) => {
        #[inline]
        unsafe fn $store(to: *mut u8, word: $type) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: it stores where the caller may store.
            unsafe {
                std::arch::asm!(
                    $x86,
                    to = in(reg) to,
                    word = in($x86_class) word,
                    options(nostack, preserves_flags)
                );
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the same.
            unsafe {
                std::arch::asm!(
                    $arm,
                    to = in(reg) to,
                    word = in(reg) word,
                    options(nostack, preserves_flags)
                );
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            for (at, byte) in word.to_ne_bytes().into_iter().enumerate() {
                // SAFETY: in bounds.
                let to = unsafe { to.add(at) };
                // SAFETY: valid, as the caller says, and all accesses are atomic.
                let to = unsafe { AtomicU8::from_ptr(to) };
                to.store(byte, Ordering::Relaxed);
            }
        }
    };
}

loads!(u8, load_u8, reg_byte, "mov {word}, [{from}]", "ldrb {word:w}, [{from}]");
loads!(u16, load_u16, reg, "mov {word:x}, [{from}]", "ldrh {word:w}, [{from}]");
loads!(u32, load_u32, reg, "mov {word:e}, [{from}]", "ldr {word:w}, [{from}]");
loads!(u64, load_u64, reg, "mov {word:r}, [{from}]", "ldr {word:x}, [{from}]");
stores!(u8, store_u8, reg_byte, "mov [{to}], {word}", "strb {word:w}, [{to}]");
stores!(u64, store_u64, reg, "mov [{to}], {word:r}", "str {word:x}, [{to}]");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_touch_nothing_else() {
        let source: Vec<u8> = (0..9000u32).map(|at| (at % 251) as u8 + 1).collect();
        type Copy = unsafe fn(*const u8, *mut u8, usize);
        for len in [0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 257, 4096, 8191] {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (5, 6)] {
                for copies in [copy as Copy, copy_once, copy_past_caches, copy_by_loads] {
                    let mut into = vec![0xff; len + 48];
                    // One of the places is such that `copy_past_caches` heeds its name.
                    let to = to + into.as_ptr().align_offset(32);
                    // SAFETY: both are in bounds, and this thread's own.
                    unsafe { copies(source[from..].as_ptr(), into[to..].as_mut_ptr(), len) };
                    end_copies_past_caches();
                    assert_eq!(into[to..to + len], source[from..from + len]);
                    assert!(into[..to].iter().chain(&into[to + len..]).all(|&byte| byte == 0xff));
                    // SAFETY: the same.
                    unsafe { zero(into[to..].as_mut_ptr(), len) };
                    assert!(into[to..to + len].iter().all(|&byte| byte == 0));
                    assert!(into[..to].iter().chain(&into[to + len..]).all(|&byte| byte == 0xff));
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn wide_copies_end_with_the_last_whole_block() {
        if !std::arch::is_x86_feature_detected!("avx") {
            return;
        }
        let source: Vec<u8> = (0..9000u32).map(|at| (at % 251) as u8 + 1).collect();
        type Copy = unsafe fn(*const u8, *mut u8, usize) -> usize;
        for (copies, align) in [
            (copy_wide_blocks::<USUAL> as Copy, 1),
            (copy_wide_blocks::<ONCE>, 1),
            (copy_wide_blocks::<PAST_CACHES>, 32),
        ] {
            for len in [128, 129, 255, 256, 4096, 4223] {
                let mut into = vec![0; len + 3 + 32];
                let to = 3 + into[3..].as_ptr().align_offset(align);
                // SAFETY: both are in bounds, and this thread's own; the processor has the
                // registers, and the place is aligned.
                let copied = unsafe { copies(source[1..].as_ptr(), into[to..].as_mut_ptr(), len) };
                end_copies_past_caches();
                assert_eq!(copied, len / 128 * 128);
                assert_eq!(into[to..to + copied], source[1..1 + copied]);
                assert!(into[..to].iter().chain(&into[to + copied..]).all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn numbers_are_loaded_from_any_address() {
        let bytes: Vec<u8> = (1..=16).collect();
        for at in 0..8 {
            let (place, from) = (&bytes[at..], bytes[at..].as_ptr());
            // SAFETY: in bounds.
            assert_eq!(unsafe { load_u8(from) }, place[0]);
            // SAFETY: in bounds.
            assert_eq!(unsafe { load_u16(from) }.to_ne_bytes(), place[..2]);
            // SAFETY: in bounds.
            assert_eq!(unsafe { load_u32(from) }.to_ne_bytes(), place[..4]);
            // SAFETY: in bounds.
            assert_eq!(unsafe { load_u64(from) }.to_ne_bytes(), place[..8]);
        }
    }
}
