//! Stacks for flame graphs, one in a line: `comm;outermost;…;innermost weight`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::Report;
use super::share::apportion;
use super::site::StackPair;
use super::waits::WaitLine;
use crate::symbols::{Frame, Side};

/// What the weights of a folded report are; both in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldedWeight {
    /// CPU time of wakeups that are needless or possibly so.
    NeedlessCpu,
    /// Time asleep, where no needless CPU time was found.
    Asleep,
}

impl Report {
    /// Writes the stacks of waits in the form that flame-graph tools read, and tells what the
    /// weights are: the CPU time of wakeups that are or may be needless, or the time asleep if no
    /// such CPU time was found. Weights are in microseconds, rounded up. The time of a wait site
    /// is shared out over the stacks that were taken there. Kernel frames end in `_[k]`.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_folded(&self, to: &mut impl Write) -> io::Result<FoldedWeight> {
        let cpu = |line: &WaitLine| line.needless_cpu_ns.possible;
        let asleep = |line: &WaitLine| line.asleep_ns.saturating_add(line.uninterruptible_ns);
        let found = self.judged && self.waits.lines.iter().any(|line| cpu(line) > 0);
        let weight = if found { FoldedWeight::NeedlessCpu } else { FoldedWeight::Asleep };
        let mut folded: BTreeMap<String, u64> = BTreeMap::new();
        for line in &self.waits.lines {
            let total = if found { cpu(line) } else { asleep(line) };
            for (pair, [share]) in shares(line, [total]) {
                let text = match pair {
                    Some(pair) => self.folded_stack(&line.comm, pair.user, pair.kernel),
                    None => format!("{};{NO_STACK}", semicolons(&line.comm)),
                };
                let sum = folded.entry(text).or_default();
                *sum = sum.saturating_add(share);
            }
        }
        for (stack, ns) in folded {
            writeln!(to, "{stack} {}", ns.div_ceil(1_000))?;
        }
        Ok(weight)
    }

    fn folded_stack(&self, comm: &str, user: Option<usize>, kernel: Option<usize>) -> String {
        let frames = |index: Option<usize>| {
            let stack = index.and_then(|index| self.stacks.get(index));
            stack.into_iter().flat_map(|stack| stack.frames.iter().rev())
        };
        let mut text = semicolons(comm);
        for frame in frames(user).chain(frames(kernel)) {
            text.push(';');
            text.push_str(&folded_frame(frame));
        }
        text
    }
}

/// In place of a stack where none was taken.
pub(super) const NO_STACK: &str = "[no stack]";

/// What of a line's totals each of its stacks stands for; stacks that stand for nothing are left
/// out, and `None` is in their place where there are none.
pub(super) fn shares<const N: usize>(
    line: &WaitLine,
    totals: [u64; N],
) -> Vec<(Option<&StackPair>, [u64; N])> {
    let weights: Vec<u64> = line.stacks.iter().map(|pair| pair.count).collect();
    let mut shares = vec![(None, totals)];
    if weights.iter().any(|weight| *weight > 0) {
        let parts = totals.map(|total| apportion(total, &weights));
        let of = |index: usize| parts.each_ref().map(|parts| parts[index]);
        let stacks = line.stacks.iter().enumerate();
        shares = stacks.map(|(index, pair)| (Some(pair), of(index))).collect();
    }
    shares.retain(|(_, of)| *of != [0; N]);
    shares
}

fn folded_frame(frame: &Frame) -> String {
    let name = semicolons(&frame.name);
    if frame.side == Side::Kernel { format!("{name}_[k]") } else { name }
}

/// A semicolon would be taken for the end of a frame.
fn semicolons(name: &str) -> String {
    name.replace(';', ":")
}
