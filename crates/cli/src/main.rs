//! The `unherd` command.
fn main() {}
