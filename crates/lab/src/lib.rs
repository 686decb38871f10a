//! Plan rounds, run them as processes, keep the records, compare, print.
pub mod catalogue;
pub mod claims;
mod date;
mod error;
mod interrupt;
mod launch;
mod plan;
mod random;
mod record;
mod result;
mod round;
mod size;
pub mod statistics;
mod tables;
mod waits;

pub use error::Error;
pub use interrupt::Interrupt;
pub use plan::{Cell, Contender, Judged, Plan, Request, Step};
pub use record::{Header, Kept, Record};
pub use result::{BenchResult, ComparisonLine, Point, RoundLine, SummaryLine};
pub use round::{Round, agree};
pub use size::{format_size, parse_share, parse_size};
pub use tables::{Profile, ProfileLine, Progress, profile_table, tables};
