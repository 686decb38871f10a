//! Which ways through the program a frame-pointer stack stands for.
//!
//! A walk that ends early gives many paths one stack, and what is true of the copy of one sample
//! need not be true of the next. So:
//!
//! - The samples of a pair of stacks are shared out over the paths that its copies show. Each copy
//!   stands for the samples up to the next: all of the first eight are copied, later a fraction
//!   that gets smaller (`bpf/stack.h`). Where copies were lost, one stands for twice as many at
//!   most, and the remaining samples count as those of a pair without a copy.
//! - Rows of futex calls are exact, and stay so: a row gets just those frames, from the inside,
//!   that all its copies show. Of a row's calls the first is copied, the second, the fourth and so
//!   on.
//! - A pair or a row without a copy of its own gets what all copies show that were taken at the
//!   same frame-pointer stack of the process: a copy that could not be unwound shows nothing.

use std::collections::{BTreeMap, HashMap};

use super::{StackCopy, Unwinder};
use crate::observation::{Process, Stack, StackId};
use crate::report::apportion;

/// Numbers of stacks from here on are none of the kernel's.
const FIRST: u32 = 1 << 31;

/// A sampled pair of stacks, as the kernel numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    pub(crate) row: u64,
    pub(crate) kernel: i32,
    pub(crate) user: i32,
}

/// Where copies were taken that have frames in common: a frame-pointer stack of a process, and
/// which futex calls there, or whatever was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    pid: u32,
    user: i32,
    futex: Option<FutexPlace>,
}

/// Futex calls that count as one: the word, and what was done with it, as the kernel side numbers
/// that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FutexPlace {
    pub(crate) word: u64,
    pub(crate) kind: u32,
}

/// What was learnt from copies.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// By pair: paths, and the samples that they stand for.
    of_pairs: HashMap<Pair, Vec<(Option<StackId>, u64)>>,
    /// What all copies of a place have in common.
    in_common: HashMap<Place, StackId>,
    numbers: HashMap<Stack, StackId>,
    /// Copies that told more than the frame pointers.
    pub(crate) unwound: u64,
}

/// Where the kernel could not walk or keep a stack it gave an error in place of a number.
pub(crate) fn kernel_stack_id(number: i32) -> Option<StackId> {
    u32::try_from(number).ok().map(StackId)
}

impl Paths {
    /// Unwinds the copies. `walked` has the frame-pointer stacks.
    pub(crate) fn find(
        mut copies: Vec<StackCopy>,
        processes: &[Process],
        walked: &BTreeMap<StackId, Stack>,
    ) -> Self {
        let mut paths = Self::default();
        let mut unwinder = Unwinder::new();
        let mut by_place: HashMap<Place, Vec<Stack>> = HashMap::new();
        let processes: HashMap<u32, &Process> = processes.iter().map(|of| (of.pid, of)).collect();
        copies.sort_by_key(|copy| copy.pid);
        for copy in copies {
            let process = processes.get(&copy.pid);
            let stack = process.map(|process| unwinder.unwind(process, &copy)).unwrap_or_default();
            let by_pointers = kernel_stack_id(copy.user);
            let tells_more = tells_more(&stack, by_pointers.and_then(|id| walked.get(&id)));
            paths.unwound += u64::from(tells_more);
            // Those that say little too: what they do not show is not common to all.
            let at = |futex| Place { pid: copy.pid, user: copy.user, futex };
            by_place.entry(at(None)).or_default().push(stack.clone());
            if copy.of_futex {
                let futex = FutexPlace { word: copy.row, kind: copy.kernel as u32 };
                by_place.entry(at(Some(futex))).or_default().push(stack.clone());
            }
            if !copy.of_futex {
                let path = if tells_more { Some(paths.number(stack)) } else { by_pointers };
                let pair = Pair { row: copy.row, kernel: copy.kernel, user: copy.user };
                let of_pair = paths.of_pairs.entry(pair).or_default();
                let stands_for = u64::from(copy.stands_for);
                match of_pair.iter_mut().find(|(known, _)| *known == path) {
                    Some((_, samples)) => *samples += stands_for,
                    None => of_pair.push((path, stands_for)),
                }
            }
        }
        for (place, stacks) in by_place {
            let stack = in_common(&stacks);
            let by_pointers = kernel_stack_id(place.user).and_then(|id| walked.get(&id));
            if tells_more(&stack, by_pointers) {
                let number = paths.number(stack);
                paths.in_common.insert(place, number);
            }
        }
        paths
    }

    fn number(&mut self, stack: Stack) -> StackId {
        let next = StackId(FIRST + self.numbers.len() as u32);
        *self.numbers.entry(stack).or_insert(next)
    }

    /// The user stacks of `count` samples of a pair, and how many have which.
    pub(crate) fn share_out(
        &self,
        pair: Pair,
        pid: Option<u32>,
        count: u64,
    ) -> Vec<(Option<StackId>, u64)> {
        let others = self.of_stack(pid, pair.user);
        let Some(paths) = self.of_pairs.get(&pair) else { return vec![(others, count)] };
        let weights: Vec<u64> = paths.iter().map(|(_, samples)| *samples).collect();
        let known = count.min(weights.iter().sum::<u64>().saturating_mul(2));
        let parts = apportion(known, &weights);
        let mut shares: Vec<_> = paths.iter().map(|(path, _)| *path).zip(parts).collect();
        shares.push((others, count - known));
        shares.retain(|(_, samples)| *samples > 0);
        shares
    }

    /// The stack of these futex calls of the process.
    pub(crate) fn of_futex(&self, pid: u32, futex: FutexPlace, user: i32) -> Option<StackId> {
        let of_these = self.in_common.get(&Place { pid, user, futex: Some(futex) });
        of_these.copied().or_else(|| self.of_stack(Some(pid), user))
    }

    /// The stack to show for a frame-pointer stack of this process.
    fn of_stack(&self, pid: Option<u32>, user: i32) -> Option<StackId> {
        let by_pointers = kernel_stack_id(user)?;
        let place = pid.map(|pid| Place { pid, user, futex: None });
        let common = place.and_then(|place| self.in_common.get(&place));
        Some(common.copied().unwrap_or(by_pointers))
    }

    /// The stacks that no map of the kernel has.
    pub(crate) fn stacks(&self) -> HashMap<StackId, &Stack> {
        self.numbers.iter().map(|(stack, id)| (*id, stack)).collect()
    }
}

/// Whether an unwound stack is worth more than the walked one: it is longer, or goes to the end.
fn tells_more(unwound: &Stack, walked: Option<&Stack>) -> bool {
    let goes_to_the_end = !unwound.truncated && unwound.frames.len() > 1;
    goes_to_the_end || unwound.frames.len() > walked.map_or(0, |walked| walked.frames.len())
}

/// The frames that all have, from the inside.
fn in_common(stacks: &[Stack]) -> Stack {
    let Some((first, others)) = stacks.split_first() else { return Stack::default() };
    let mut common = first.clone();
    for other in others {
        let pairs = common.frames.iter().zip(&other.frames);
        let same = pairs.take_while(|(one, two)| one == two).count();
        common.truncated |= same < common.frames.len().max(other.frames.len());
        common.frames.truncate(same);
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[u64], truncated: bool) -> Stack {
        Stack { frames: frames.to_vec(), truncated }
    }

    fn paths(of_pair: &[(u32, u64)]) -> Paths {
        let of_pair = of_pair.iter().map(|(id, samples)| (Some(StackId(*id)), *samples)).collect();
        let of_pairs = HashMap::from([(PAIR, of_pair)]);
        Paths { of_pairs, ..Paths::default() }
    }

    const PAIR: Pair = Pair { row: 1, kernel: 2, user: 3 };

    #[test]
    fn samples_are_shared_by_copies() {
        let share = |count| paths(&[(70, 6), (71, 2)]).share_out(PAIR, Some(9), count);
        let (often, seldom, walked) = (Some(StackId(70)), Some(StackId(71)), Some(StackId(3)));
        assert_eq!(share(8), [(often, 6), (seldom, 2)]);
        assert_eq!(share(16), [(often, 12), (seldom, 4)]);
        assert_eq!(share(100), [(often, 12), (seldom, 4), (walked, 84)], "lost copies");
        let other = Pair { row: 4, ..PAIR };
        assert_eq!(paths(&[(70, 1)]).share_out(other, Some(9), 5), [(walked, 5)]);
        let none = Pair { user: -1, ..PAIR };
        assert_eq!(Paths::default().share_out(none, None, 5), [(None, 5)]);
    }

    #[test]
    fn failed_copy_leaves_nothing_in_common() {
        let one = stack(&[1, 2, 3, 4], false);
        assert_eq!(in_common(&[one, Stack::default()]), stack(&[], true));
    }

    #[test]
    fn stack_stands_for_what_copies_share() {
        let one = stack(&[1, 2, 3, 4], false);
        assert_eq!(in_common(&[one.clone(), one.clone()]), one);
        assert_eq!(in_common(&[one.clone(), stack(&[1, 2, 5], false)]), stack(&[1, 2], true));
        assert_eq!(in_common(&[one, stack(&[1, 2], true)]), stack(&[1, 2], true));
    }

    #[test]
    fn futex_call_is_matched_by_word_first() {
        let at = |futex| Place { pid: 9, user: 3, futex };
        let wait = |word| FutexPlace { word, kind: 1 };
        let in_common = [(at(Some(wait(0x10))), StackId(70)), (at(None), StackId(71))].into();
        let paths = Paths { in_common, ..Paths::default() };
        assert_eq!(paths.of_futex(9, wait(0x10), 3), Some(StackId(70)));
        assert_eq!(paths.of_futex(9, wait(0x18), 3), Some(StackId(71)));
        let wake = FutexPlace { kind: 3, ..wait(0x10) };
        assert_eq!(paths.of_futex(9, wake, 3), Some(StackId(71)));
        assert_eq!(paths.of_futex(8, wait(0x10), 3), Some(StackId(3)), "another process");
        assert_eq!(paths.of_futex(9, wait(0x18), -1), None);
    }

    #[test]
    fn longer_or_whole_unwound_stack_wins() {
        let walked = stack(&[1, 2, 3], false);
        assert!(tells_more(&stack(&[1, 7, 8, 9], true), Some(&walked)));
        assert!(!tells_more(&stack(&[1, 7], true), Some(&walked)));
        assert!(tells_more(&stack(&[1, 7], false), Some(&walked)));
        assert!(!tells_more(&stack(&[1], false), Some(&walked)));
        assert!(!tells_more(&Stack::default(), None));
    }
}
