//! Bytes that one thread reads while another writes them.
//!
//! Rust has no such reads but atomic ones: a plain copy of memory that somebody writes is
//! undefined, whatever is done with the bytes. What this module does to racy memory is what relaxed
//! atomic accesses, byte by byte, would do: each byte is one that was written at some time, and
//! nothing is ordered; a reader must find out by itself whether the bytes belong together. *All*
//! accesses that may meet, reads and writes, must be these (or a device's).
//!
//! On x86-64 they are instructions that the compiler does not look into, so that a copy is as fast
//! as any: `rep movsb`, which is a copy of bytes by definition, and plain loads and stores of up to
//! 8 bytes. Elsewhere they are loops of relaxed atomics, byte by byte.
#![expect(unsafe_code, reason = "raw memory that others write")]

#[cfg(not(target_arch = "x86_64"))]
use crate::primitives::{AtomicU8, Ordering};

/// Below this many bytes the start of `rep movsb` costs more than it saves.
#[cfg(target_arch = "x86_64")]
const STRING_BYTES_MIN: usize = 256;

/// Whether a racy copy is about as fast as an ordinary one.
#[inline]
pub fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("ermsb");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Copies `len` bytes.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` bytes, which do not overlap. Others
/// access them meanwhile only through this module, or do not write what is read nor touch what is
/// written.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STRING_BYTES_MIN && is_fast() {
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
    let words = len / 8 * 8;
    for at in (0..words).step_by(8) {
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
    ($type:ident, $load:ident, $class:ident, $word:literal) => {
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
                        concat!("mov ", $word, ", [{from}]"),
                        from = in(reg) from,
                        word = out($class) word,
                        options(nostack, preserves_flags, readonly)
                    );
                }
                word
            }
            #[cfg(not(target_arch = "x86_64"))]
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
    ($type:ident, $store:ident, $class:ident, $word:literal) => {
        #[inline]
        unsafe fn $store(to: *mut u8, word: $type) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: it stores where the caller may store.
            unsafe {
                std::arch::asm!(
                    concat!("mov [{to}], ", $word),
                    to = in(reg) to,
                    word = in($class) word,
                    options(nostack, preserves_flags)
                );
            }
            #[cfg(not(target_arch = "x86_64"))]
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

loads!(u8, load_u8, reg_byte, "{word}");
loads!(u16, load_u16, reg, "{word:x}");
loads!(u32, load_u32, reg, "{word:e}");
loads!(u64, load_u64, reg, "{word:r}");
stores!(u8, store_u8, reg_byte, "{word}");
stores!(u64, store_u64, reg, "{word:r}");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_any_length_and_place_touch_nothing_else() {
        let source: Vec<u8> = (0..9000u32).map(|at| (at % 251) as u8 + 1).collect();
        for len in [0, 1, 7, 8, 9, 255, 256, 257, 4096, 8191] {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (5, 6)] {
                let mut into = vec![0xff; len + 16];
                // SAFETY: both are in bounds, and this thread's own.
                unsafe { copy(source[from..].as_ptr(), into[to..].as_mut_ptr(), len) };
                assert_eq!(into[to..to + len], source[from..from + len]);
                assert!(into[..to].iter().chain(&into[to + len..]).all(|&byte| byte == 0xff));
                // SAFETY: the same.
                unsafe { zero(into[to..].as_mut_ptr(), len) };
                assert!(into[to..to + len].iter().all(|&byte| byte == 0));
                assert!(into[..to].iter().chain(&into[to + len..]).all(|&byte| byte == 0xff));
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
