//! Plan rounds, run them as processes, keep the records, compare, print.
pub mod catalogue;
mod error;
mod plan;
mod random;
mod size;
pub mod statistics;

pub use error::Error;
pub use plan::{Cell, Contender, Judged, Plan, Request, Step};
pub use size::{format_size, parse_share, parse_size};
