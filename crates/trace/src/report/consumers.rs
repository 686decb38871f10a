//! Table 5, the functions that the processors were in.

use std::collections::BTreeMap;

use serde::Serialize;

use super::share::percent;
use super::site::Namer;
use crate::observation::Samples;
use crate::symbols::{Frame, Side};

/// One function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Consumer {
    /// The function.
    pub function: String,
    /// Where it is: a file, the kernel or one of its modules.
    pub module: String,
    /// Its side.
    pub side: Side,
    /// Samples in it.
    pub ticks: u64,
    /// Its share of the user and kernel ticks.
    pub percent: f64,
    /// The share of it and all above it.
    pub cumulative_percent: f64,
    /// Samples per byte of its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticks_per_byte: Option<f64>,
}

/// The profile.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Consumers {
    /// Samples in the followed programs.
    pub user_ticks: u64,
    /// Samples in the kernel on their behalf; `None` where only the programs' side was looked at.
    pub kernel_ticks: Option<u64>,
    /// Samples of idle processors, of the whole machine; `None` where only programs were.
    pub idle_ticks: Option<u64>,
    /// The functions, those with the most ticks first.
    pub functions: Vec<Consumer>,
}

impl Consumers {
    /// `whole` says that the kernel's side and idle processors were looked at too.
    pub(crate) fn new(samples: &Samples, whole: bool, namer: &mut Namer<'_>) -> Self {
        let mut found: BTreeMap<(Side, String, String), (u64, Option<u64>)> = BTreeMap::new();
        let (mut user_ticks, mut kernel_ticks) = (0u64, 0u64);
        for row in &samples.rows {
            let (side, frame) = if row.in_kernel {
                kernel_ticks = kernel_ticks.saturating_add(row.count);
                (Side::Kernel, namer.function(None, row.kernel))
            } else {
                user_ticks = user_ticks.saturating_add(row.count);
                (Side::User, namer.function(Some(row.pid), row.user))
            };
            let (key, size) = key(side, frame);
            let sum = found.entry(key).or_insert((0, size));
            sum.0 = sum.0.saturating_add(row.count);
        }
        let all = user_ticks.saturating_add(kernel_ticks);
        let functions = functions(found, all);
        let kernel_ticks = whole.then_some(kernel_ticks);
        Self { user_ticks, kernel_ticks, idle_ticks: whole.then_some(samples.idle), functions }
    }
}

fn key(side: Side, frame: Option<Frame>) -> ((Side, String, String), Option<u64>) {
    let Some(frame) = frame else { return ((side, "?".into(), String::new()), None) };
    // One line for all that has no name in a file: its offsets say nothing.
    let name = match (&frame.module, frame.known) {
        (Some(module), false) => format!("[{module}]"),
        _ => frame.name,
    };
    ((side, name, frame.module.unwrap_or_default()), frame.size_bytes)
}

fn functions(
    found: BTreeMap<(Side, String, String), (u64, Option<u64>)>,
    all: u64,
) -> Vec<Consumer> {
    let mut found: Vec<_> = found.into_iter().filter(|(_, (ticks, _))| *ticks > 0).collect();
    found.sort_by_key(|(_, (ticks, _))| std::cmp::Reverse(*ticks));
    let mut above = 0u64;
    let consumer = |((side, function, module), (ticks, size)): (_, (u64, Option<u64>))| {
        above = above.saturating_add(ticks);
        Consumer {
            function,
            module,
            side,
            ticks,
            percent: percent(ticks, all).unwrap_or_default(),
            cumulative_percent: percent(above, all).unwrap_or_default(),
            ticks_per_byte: size.filter(|size| *size > 0).map(|size| ticks as f64 / size as f64),
        }
    };
    found.into_iter().map(consumer).collect()
}
