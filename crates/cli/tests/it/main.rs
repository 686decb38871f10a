//! The `unherd` command from outside, with runners that do nothing but behave: well, or badly.

mod bad_input;
mod bench;
mod claims;
mod endings;
mod place;
