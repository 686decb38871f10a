//! Table 3, futexes: calls by outcome, call site and word.

use std::collections::BTreeMap;

use serde::Serialize;

use super::site::{Namer, Site};
use crate::advice::Primitive;
pub use crate::observation::Outcomes;
use crate::observation::{FutexKind, FutexRow};

impl Outcomes {
    fn add(&mut self, other: &Self) {
        let sum = |to: &mut u64, from: u64| *to = to.saturating_add(from);
        sum(&mut self.calls, other.calls);
        sum(&mut self.woke_none, other.woke_none);
        sum(&mut self.woke_one, other.woke_one);
        sum(&mut self.woke_many, other.woke_many);
        sum(&mut self.woken, other.woken);
        sum(&mut self.slept, other.slept);
        sum(&mut self.refused, other.refused);
        sum(&mut self.timed_out, other.timed_out);
        sum(&mut self.interrupted, other.interrupted);
        sum(&mut self.failed, other.failed);
    }
}

/// The calls of one kind from one site on one word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FutexLine {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// What the calls do: `wait`, `waitv`, `wake`, `requeue` or `lock-pi`.
    pub kind: &'static str,
    /// The word's address.
    pub word: u64,
    /// Where the call was made from.
    pub site: Site,
    /// By what the program waits or signals there, where a library does it for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<Primitive>,
    /// The outcomes.
    #[serde(flatten)]
    pub outcomes: Outcomes,
    /// The stack of most of the calls, by its index in the report's stacks.
    pub stack: Option<usize>,
}

/// All futex calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Futexes {
    /// The sums, by kind.
    pub totals: BTreeMap<&'static str, Outcomes>,
    /// By process, kind, word and call site, those with the most calls first.
    pub lines: Vec<FutexLine>,
}

/// The row's, but that a requeue and a lock that fail with EAGAIN are no waits that were refused.
fn outcomes(row: &FutexRow) -> Outcomes {
    let of = row.outcomes;
    match row.kind {
        FutexKind::Wait | FutexKind::WaitMany => of,
        _ => Outcomes { refused: 0, failed: of.failed.saturating_add(of.refused), ..of },
    }
}

pub(crate) fn kind_text(kind: FutexKind) -> &'static str {
    match kind {
        FutexKind::Wait => "wait",
        FutexKind::WaitMany => "waitv",
        FutexKind::Wake => "wake",
        FutexKind::Requeue => "requeue",
        FutexKind::LockPi => "lock-pi",
    }
}

/// By process, kind and word: the most calls with one stack that reaches beyond the call's
/// wrappers, and that stack.
type ToldStacks = BTreeMap<(u32, FutexKind, u64), (u64, usize)>;

/// Calls whose own stack ends before the program's code are counted there.
fn told_stacks(rows: &[FutexRow], namer: &mut Namer<'_>) -> ToldStacks {
    let mut told = ToldStacks::new();
    for row in rows {
        let stack = namer.user(row.pid, row.user_stack);
        if let Some(index) = stack.filter(|_| !namer.is_cut_at_call(stack)) {
            let most = told.entry((row.pid, row.kind, row.word)).or_insert((0, index));
            *most = (*most).max((row.outcomes.calls, index));
        }
    }
    told
}

impl Futexes {
    pub(crate) fn new(rows: &[FutexRow], namer: &mut Namer<'_>) -> Self {
        let mut totals: BTreeMap<&'static str, Outcomes> = BTreeMap::new();
        let mut lines: BTreeMap<_, (FutexLine, u64)> = BTreeMap::new();
        let told = told_stacks(rows, namer);
        for row in rows {
            let kind = kind_text(row.kind);
            let outcomes = outcomes(row);
            totals.entry(kind).or_default().add(&outcomes);
            let own = namer.user(row.pid, row.user_stack);
            let others =
                told.get(&(row.pid, row.kind, row.word)).filter(|_| namer.is_cut_at_call(own));
            let stack = others.map_or(own, |(_, stack)| Some(*stack));
            let (site, through) = (namer.site(stack), namer.primitive(stack));
            let key = (row.pid, kind, row.word, site.clone(), through);
            let (line, most) = lines.entry(key).or_insert_with(|| {
                let (pid, word) = (row.pid, row.word);
                let (comm, outcomes) = (namer.comm(pid), Outcomes::default());
                (FutexLine { pid, comm, kind, word, site, through, outcomes, stack }, 0)
            });
            line.outcomes.add(&outcomes);
            if outcomes.calls > *most {
                (line.stack, *most) = (stack, outcomes.calls);
            }
        }
        let mut lines: Vec<FutexLine> = lines.into_values().map(|(line, _)| line).collect();
        lines.sort_by_key(|line| std::cmp::Reverse((line.outcomes.calls, line.outcomes.woke_none)));
        Self { totals, lines }
    }

    /// The sum of one outcome over all kinds.
    pub(crate) fn sum(&self, outcome: impl Fn(&Outcomes) -> u64) -> u64 {
        self.totals.values().fold(0, |sum, of| sum.saturating_add(outcome(of)))
    }
}
