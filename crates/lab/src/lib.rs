//! Plan rounds, run them as processes, keep the records, compare, print.
//!
//! It promises that a figure it calls different is different as often as it says: rounds are fresh
//! processes, implementations alternate in random order from a printed seed, ratios are judged pair
//! by pair with exact intervals, and a sweep pays for its many cells ([`statistics`]). Whatever
//! ends a bench, no child, cgroup, changed setting or temporary file of it outlives the next start.
//!
//! It links nothing that it measures: what there is to run it learns from the runners
//! ([`catalogue`]), and what they found from the line of JSON that each prints. It does not tell
//! whether a difference would be the same on another machine.

pub mod catalogue;
pub mod claims;
pub mod statistics;

mod bench;
mod blocks;
mod compare;
mod csv;
mod date;
mod drift;
mod error;
mod fingerprint;
mod html;
mod interrupt;
mod launch;
mod leftovers;
mod otava;
mod plan;
mod prepared_machine;
mod printable;
mod profile;
mod program;
mod random;
mod record;
mod result;
mod round;
mod scaling;
mod series;
mod size;
mod surroundings;
mod tables;
mod tracing;
mod trials;
mod waits;

pub use bench::{BenchObserver, Conditions, Outcome, bench, describe};
pub use blocks::{BLOCKS_SCHEMA, Block, BlockPlan, MachineLine, MeasuredBlock, merge};
pub use compare::{
    Adapter, CompareRequest, ComparedRecords, Format, Read, Side, Source, Sweep, WorkTrees, build,
    compare, compare_records, plan_comparison, to_confirm,
};
pub use csv::csv;
pub use date::today;
pub use error::Error;
pub use html::{gallery, html};
pub use interrupt::Interrupt;
pub use otava::add_to_history;
pub use plan::{Cell, Contender, Judged, PLAN_SCHEMA, Plan, ROUNDS_MAX, Request, Step, Until};
pub use prepared_machine::{DEFAULT_MEMORY_BYTES, Dirty, MEMORY_MIN_BYTES, MachineOptions};
pub use printable::printable;
pub use program::absence_advice;
pub use record::{CONFIRM, Header, StoredRecord, check_place, holds_record, make_place};
pub use result::{
    BenchResult, ComparisonLine, MetricLine, Point, ProfileLine, Profiled, RESULT_SCHEMA,
    RoundLine, SummaryLine, TraceLine, Traced,
};
pub use round::Round;
pub use scaling::{LoadLine, PartLine, ScalingLine};
pub use size::{parse_share, parse_size};
pub use surroundings::{FOREIGN_MAX, Surroundings};
pub use tables::{markdown, summary};
pub use trials::{POWER, Trials, compare_trials, trials};
pub use waits::WaitCountLine;
