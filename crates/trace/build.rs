//! Compiles the eBPF programs.

fn main() {}
