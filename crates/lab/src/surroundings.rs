//! What else the machine did while a process ran.
//!
//! Neighbours take processors, caches and storage from the process that runs at the time. Pairs
//! that stand side by side share most of it, but a neighbour that comes between the two sides of a
//! pair is a difference that nobody made. So each process keeps what went on around it, and a group
//! of processes in which others used more than [`FOREIGN_MAX`] is run again. Which side of the
//! group was disturbed has no part in that, so it favours none.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use unherd_host::{BusyTime, ForeignCpu, Pressure, load_1min, processors};
use unherd_sys::Timestamp;

use crate::plan::Plan;
use crate::round::{Round, counting};

/// Other programs may use this share of the processors before a group of processes is run again.
pub const FOREIGN_MAX: f64 = 0.05;

/// The share of the processors' time that the host took from a contender's processes in the mean,
/// above which a reader must know it.
const STOLEN_MAX: f64 = 0.01;

/// The kernel's account of processes is in ticks of 10 ms: below two, it is nobody's.
const TICKS: Duration = Duration::from_millis(20);

/// A group of processes is run at most so often.
const ATTEMPTS_MAX: usize = 3;

/// What went on around one process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// The share of the processors' time that programs other than the bench used; `None` where they
    /// cannot be seen.
    pub foreign_cpu_share: Option<f64>,
    /// The share of the processors' time in which the host let them run nothing (*steal*): for a
    /// quota, or for other machines. It may be the process's own doing: where a host polls while a
    /// processor sleeps for a moment, short sleeps use up the quota.
    pub stolen_cpu_share: Option<f64>,
    /// Threads that ran or wanted to, in the mean of the minute before it began.
    pub load_1min: Option<f64>,
    /// The share of the time in which some thread of the machine waited for a processor (PSI); the
    /// process's own threads are among them.
    pub cpu_pressure: Option<f64>,
    /// The same for storage.
    pub io_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
}

impl Surroundings {
    /// Whether others used so much that the process should be run again.
    pub fn is_disturbed(&self) -> bool {
        self.foreign_cpu_share.is_some_and(|share| share > FOREIGN_MAX)
    }
}

/// Surroundings that are being watched.
#[derive(Debug)]
pub(crate) struct SurroundingsProbe {
    began: Timestamp,
    foreign: Option<ForeignCpu>,
    busy: Option<BusyTime>,
    pressure: Option<Pressure>,
    load_1min: Option<f64>,
}

impl SurroundingsProbe {
    pub(crate) fn begin() -> Self {
        Self {
            foreign: ForeignCpu::now(),
            busy: BusyTime::now().ok(),
            pressure: Pressure::now(),
            load_1min: load_1min(),
            began: Timestamp::now(),
        }
    }

    /// What went on since the beginning, and a probe of what comes next: one look serves both.
    pub(crate) fn end(self) -> (Surroundings, Self) {
        let next = Self::begin();
        let elapsed_s = next.began.since(self.began).as_secs_f64();
        let share = |part: Duration, of: f64| part.as_secs_f64() / of.max(1e-9);
        let pressure = self.pressure.zip(next.pressure).map(|(from, to)| to.since(from));
        let foreign = self.foreign.zip(next.foreign).map(|(from, to)| to.since(from));
        let foreign = foreign.map(|time| if time > TICKS { time } else { Duration::ZERO });
        let busy = self.busy.zip(next.busy).map(|(from, to)| to.since(from));
        let stolen = busy.map(|time| Duration::from_nanos(time.steal_ns));
        let of_all = |time| share(time, elapsed_s * processors() as f64);
        let surroundings = Surroundings {
            foreign_cpu_share: foreign.map(of_all),
            stolen_cpu_share: stolen.map(of_all),
            load_1min: self.load_1min,
            cpu_pressure: pressure.map(|it| share(it.cpu, elapsed_s)),
            io_pressure: pressure.map(|it| share(it.io, elapsed_s)),
            memory_pressure: pressure.map(|it| share(it.memory, elapsed_s)),
        };
        (surroundings, next)
    }
}

/// Whether the group that has just been run, as one of `rounds`, is to be run again: it was
/// disturbed, and neither it nor the bench has been repeated too often. On a machine that is never
/// quiet, repeating gains nothing, so no more than half of the groups are.
pub(crate) fn is_to_be_repeated(plan: &Plan, rounds: &[Round], group: &[Round]) -> bool {
    let Some(last) = group.last() else { return false };
    let is_disturbed = group.iter().any(|round| round.surroundings.is_disturbed());
    let groups = (plan.rounds * plan.cells.len()).max(4);
    is_disturbed && last.attempt < ATTEMPTS_MAX && 2 * repeated(plan, rounds) < groups
}

/// How many groups of `rounds` were run again.
fn repeated(plan: &Plan, rounds: &[Round]) -> usize {
    rounds.iter().filter(|round| round.attempt > 1).count() / plan.contenders.len().max(1)
}

/// What a reader must know of the surroundings of `rounds`, all attempts among them.
pub(crate) fn marks(plan: &Plan, rounds: &[Round]) -> Vec<String> {
    let mut marks = Vec::new();
    let counted = counting(plan, rounds);
    let shares = || counted.iter().filter_map(|round| round.surroundings.foreign_cpu_share);
    let disturbed = counted.iter().filter(|round| round.surroundings.is_disturbed()).count();
    let percent = 100.0 * FOREIGN_MAX;
    let repeated = repeated(plan, rounds);
    let again = match repeated {
        0 => String::new(),
        1 => "; 1 group of processes was run again for it".to_owned(),
        n => format!("; {n} groups of processes were run again for it"),
    };
    if disturbed > 0 {
        marks.push(format!(
            "other programs used more than {percent} % of the processors during {disturbed} of {} \
             processes, {:.0} % at most{again}",
            counted.len(),
            100.0 * shares().fold(0.0, f64::max)
        ));
    } else if repeated > 0 {
        marks.push(format!("other programs used more than {percent} % of the processors{again}"));
    }
    let is_of_today = counted.iter().any(|round| round.surroundings != Surroundings::default());
    if is_of_today && shares().next().is_none() {
        marks.push("other programs cannot be seen from here, so what they used is unknown".into());
    }
    marks.extend(stolen(plan, &counted));
    marks
}

/// Says from whom the host took processors, if that is worth a word.
fn stolen(plan: &Plan, counted: &[Round]) -> Option<String> {
    let mean = |label: &str| {
        let of_label = counted.iter().filter(|round| round.label == label);
        let shares: Vec<_> = of_label.filter_map(|it| it.surroundings.stolen_cpu_share).collect();
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    };
    let labels = plan.contenders.iter().map(|contender| &*contender.label);
    let means: Vec<_> = labels.map(|label| (label, mean(label))).collect();
    means.iter().any(|(_, share)| *share > STOLEN_MAX).then(|| {
        let of = |(label, share): &(&str, f64)| format!("{:.1} % of {label}'s", 100.0 * share);
        let each: Vec<_> = means.iter().map(of).collect();
        format!(
            "the host stopped this machine's processors (steal: a quota, or other machines) for {} \
             time; what took longest may be that",
            each.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tests::registry;
    use crate::plan::Request;
    use crate::round::tests::round;

    fn group(attempt: usize, shares: [f64; 2]) -> Vec<Round> {
        let sides = ["before", "unherd"].into_iter().zip(shares);
        let of = |(label, share)| Round {
            attempt,
            surroundings: Surroundings {
                foreign_cpu_share: Some(share),
                ..Surroundings::default()
            },
            ..round(1, label, 1.0)
        };
        sides.map(of).collect()
    }

    fn plan() -> Plan {
        let request = Request { seed: 3, delta: 0.02, ..Request::default() };
        Plan::new(&request, registry().workload("wait").unwrap()).unwrap()
    }

    #[test]
    fn a_disturbed_group_is_run_again_some_times() {
        let is_repeated = |group: &[Round]| is_to_be_repeated(&plan(), group, group);
        assert!(!is_repeated(&group(1, [0.05, 0.0])));
        assert!(is_repeated(&group(1, [0.06, 0.0])) && is_repeated(&group(1, [0.0, 0.06])));
        assert!(is_repeated(&group(2, [0.06, 0.0])) && !is_repeated(&group(3, [0.06, 0.0])));
        let half: Vec<Round> = (0..6).flat_map(|_| group(2, [0.9, 0.9])).collect();
        assert!(!is_to_be_repeated(&plan(), &half, &group(1, [0.9, 0.9])), "never quiet");
        assert!(is_to_be_repeated(&plan(), &half[2..], &group(1, [0.9, 0.9])));
    }

    #[test]
    fn what_was_disturbed_is_marked() {
        let plan = plan();
        assert_eq!(marks(&plan, &group(1, [0.01, 0.02])), Vec::<String>::new());
        let kept = marks(&plan, &group(1, [0.37, 0.02]));
        let expected = "other programs used more than 5 % of the processors during 1 of 2 \
                        processes, 37 % at most";
        assert_eq!(kept, [expected]);
        let again = [group(1, [0.37, 0.02]), group(2, [0.01, 0.02])].concat();
        let expected = "other programs used more than 5 % of the processors; 1 group of processes \
                        was run again for it";
        assert_eq!(marks(&plan, &again), [expected]);
        let mut hidden = group(1, [0.0, 0.0]);
        for round in &mut hidden {
            round.surroundings = Surroundings { load_1min: Some(0.1), ..Surroundings::default() };
        }
        assert!(marks(&plan, &hidden)[0].contains("cannot be seen"));
    }

    #[test]
    fn what_the_host_took_is_marked() {
        let of = |shares: [f64; 2]| {
            let mut rounds = group(1, [0.0, 0.0]);
            for (round, share) in rounds.iter_mut().zip(shares) {
                round.surroundings.stolen_cpu_share = Some(share);
            }
            marks(&plan(), &rounds)
        };
        assert_eq!(of([0.01, 0.0]), Vec::<String>::new());
        let expected = "the host stopped this machine's processors (steal: a quota, or other \
                        machines) for 0.2 % of before's, 8.1 % of unherd's time; what took longest \
                        may be that";
        assert_eq!(of([0.002, 0.081]), [expected]);
    }
}
