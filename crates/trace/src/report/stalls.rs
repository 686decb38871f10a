//! Table 8, stalls in reclaim and write-back.

use serde::Serialize;

use super::site::Namer;
use crate::observation::{StallKind, StallRow};

/// Stalls of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// What held threads up: `direct reclaim`, `throttled in reclaim` or
    /// `write-back of dirty pages`.
    pub kind: &'static str,
    /// Why, where the kernel says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Times.
    pub count: u64,
    /// Time.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Where the first came from, by its index in the report's stacks.
    pub stack: Option<usize>,
}

/// KERNEL: 5.17, `enum vmscan_throttle_state`.
const THROTTLE_REASONS: [&str; 4] = ["writeback", "isolated", "no progress", "congested"];

pub(crate) fn stalls(rows: &[StallRow], namer: &mut Namer<'_>) -> Vec<Stall> {
    let stall = |row: &StallRow| {
        let (kind, reason) = match row.kind {
            StallKind::DirectReclaim => ("direct reclaim", None),
            StallKind::DirtyPages => ("write-back of dirty pages", None),
            StallKind::Throttled(number) => ("throttled in reclaim", Some(reason(number))),
        };
        Stall {
            kind,
            reason,
            count: row.count,
            total_ns: row.total_ns,
            longest_ns: row.longest_ns,
            stack: namer.kernel(row.kernel_stack),
        }
    };
    let mut stalls: Vec<Stall> = rows.iter().filter(|row| row.count > 0).map(stall).collect();
    stalls.sort_by(|a, b| {
        let time = |stall: &Stall| (stall.total_ns, stall.count);
        time(b).cmp(&time(a)).then_with(|| (a.kind, &a.reason).cmp(&(b.kind, &b.reason)))
    });
    stalls
}

fn reason(number: u32) -> String {
    let known = usize::try_from(number).ok().and_then(|index| THROTTLE_REASONS.get(index));
    known.map_or_else(|| format!("reason {number}"), |name| (*name).into())
}
