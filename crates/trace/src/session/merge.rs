//! The sampler's chains become samples and stacks of the observation.

use std::collections::{BTreeSet, HashMap};

use unherd_host::Chains;

use crate::observation::{Observation, SampleRow, Samples, Stack, StackId};

/// Adds the samples of followed processes to `seen`, and their stacks under numbers that are free.
pub(crate) fn samples(seen: &mut Observation, chains: &Chains, hertz: u32) {
    let followed: BTreeSet<u32> = seen.processes.iter().map(|process| process.pid).collect();
    let mut free = seen.stacks.last_key_value().map_or(0, |(last, _)| last.0.saturating_add(1));
    let mut ids: HashMap<usize, StackId> = HashMap::new();
    let mut rows = Vec::new();
    for row in chains.rows.iter().filter(|row| followed.contains(&row.pid)) {
        let len = |chain: Option<usize>| chain.map_or(0, |chain| chains.chains[chain].len());
        let truncated = len(row.kernel) + len(row.user) >= usize::from(chains.frames_max);
        let mut stack = |chain: usize, truncated: bool| {
            let id = *ids.entry(chain).or_insert_with(|| {
                free = free.saturating_add(1);
                StackId(free - 1)
            });
            let stack = seen.stacks.entry(id).or_insert_with(|| Stack {
                frames: chains.chains[chain].to_vec(),
                truncated: false,
            });
            stack.truncated |= truncated;
            id
        };
        // The frames are taken from the inside: it is the outer side that was cut.
        let kernel = row.kernel.map(|chain| stack(chain, truncated && row.user.is_none()));
        let user = row.user.map(|chain| stack(chain, truncated));
        let (pid, in_kernel, count) = (row.pid, row.in_kernel, row.count);
        rows.push(SampleRow { pid, kernel, user, in_kernel, count });
    }
    rows.sort_by_key(|row| (row.pid, row.kernel, row.user, row.in_kernel));
    seen.samples = Some(Samples {
        rows,
        hertz,
        delivered: chains.delivered,
        expected: chains.expected,
        idle: chains.idle,
    });
}

#[cfg(test)]
mod tests {
    use unherd_host::ChainRow;

    use super::*;
    use crate::observation::Process;

    #[test]
    fn stacks_are_renumbered_and_strangers_dropped() {
        let mut seen = Observation::default();
        seen.processes.push(Process { pid: 7, ..Process::default() });
        seen.stacks.insert(StackId(40), Stack::default());
        let row =
            |pid, kernel, user, in_kernel, count| ChainRow { pid, kernel, user, in_kernel, count };
        let chains = Chains {
            rows: vec![
                row(7, Some(1), Some(0), true, 5),
                row(7, None, Some(2), false, 6),
                row(8, None, Some(0), false, 100),
            ],
            chains: vec![[0x10, 0x20].into(), [0xf0].into(), vec![1; 127].into()],
            delivered: 200,
            expected: 220,
            idle: 89,
            frames_max: 127,
            ..Chains::default()
        };
        samples(&mut seen, &chains, 99);
        let Some(samples) = &seen.samples else { panic!("no samples") };
        assert_eq!((samples.hertz, samples.delivered, samples.idle), (99, 200, 89));
        assert_eq!(samples.rows.iter().map(|row| row.count).sum::<u64>(), 11);
        assert_eq!(seen.stacks.len(), 4);
        let slept = samples.rows.iter().find(|row| row.in_kernel).unwrap();
        assert!(slept.user.unwrap() > StackId(40));
        assert_eq!(seen.stacks[&slept.user.unwrap()].frames, [0x10, 0x20]);
        assert_eq!(seen.stacks[&slept.kernel.unwrap()].frames, [0xf0]);
        let deep = samples.rows.iter().find(|row| !row.in_kernel).unwrap();
        assert!(seen.stacks[&deep.user.unwrap()].truncated);
        assert!(!seen.stacks[&slept.user.unwrap()].truncated);
    }
}
