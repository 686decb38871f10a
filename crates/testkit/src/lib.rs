//! What unherd's tests stand on: seeds, a simulated clock and device, the plainest models, and the
//! plainest executor and counting allocator, and a model of what waiting costs.
//!
//! It promises that a run of one thread is decided by one printed `u64`: every random choice here
//! comes from a [`Seed`], none from the time or the machine. Threads that race still race; the
//! choices that they meet are the same, who meets which is not.
//!
//! It is not fast, keeps whole files in memory, and panics on a broken contract, because a test is
//! better off with a panic than with an error that the code under test might swallow. Only tests
//! depend on it (`cargo x tidy` checks that).

mod allocation;
mod clock;
mod device;
mod executor;
mod file;
mod history;
mod mesi;
mod queue;
mod seed;
mod stamp;
mod wait_cost;

pub use allocation::CountingAllocator;
pub use clock::SimClock;
pub use device::{Counts, Failure, FaultPlan, SimDevice, When};
pub use executor::{Tasks, block_on};
pub use file::FileModel;
pub use history::{Content, Outcome, PageHistory, PageRead, ReadGuard};
pub use mesi::{LineId, Machine};
pub use queue::QueueModel;
pub use seed::Seed;
pub use stamp::{Found, Stamp};
pub use wait_cost::{Cost, Queues, Scenario, empty_wake};
