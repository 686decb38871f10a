//! The futex word under loom and shuttle.
#![expect(unsafe_code, reason = "the same unsafe signature as the kernel's")]
