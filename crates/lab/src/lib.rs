//! lab
pub mod random;
pub mod statistics;
