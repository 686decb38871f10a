//! What a wake and a wait cost, counted: steps, lock holds, shared writes, and transfers of cache
//! lines on a [`Machine`], for three ways to keep the waiters of many keys in a few queues.
//!
//! Each file of the ways says in which order the code reads and writes which lines. What holds of
//! all of them:
//!
//! - N waiters, each with a key of its own, are queued. A processor wakes a key, chosen at random.
//!   The waiter runs, on its own processor, and waits again. This repeats.
//! - Each processor has at most one operation under way; as many are as there are processors, or
//!   waiters. Which of them makes the next access is drawn from the seed.
//! - One that finds a queue's lock held writes the lock's line once, to be woken, and sleeps. An
//!   unlock wakes the one that has slept longest, which tries again.
//! - A shared write is one to a line that another processor may use: of a queue, or of a waiter.
//!   The line of the condition belongs to the caller; its transfers count, its writes do not.
//! - A step is a waiter that a search looks at.
//!
//! Not modelled: the kernel (its queues, and the stack of a thread that wakes up), time, distance,
//! caches that are full, lines fetched ahead, threads that move to other processors, and lines that
//! nobody else writes (the table's fields, a thread's own counts).

mod chain;
mod herd;
mod tree;

use std::collections::VecDeque;

use crate::Seed;
use crate::mesi::{LineId, Machine};

/// A way to keep waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    /// A condition variable for each queue, whose wake wakes all in it.
    Herd,
    /// A list for each queue, whose wake looks for the key: parking_lot_core's.
    Chain,
    /// A tree by hash for each queue: unherd's wait table.
    Tree,
}

/// What is to be counted.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// How waiters are kept.
    pub queues: Queues,
    /// How many wait, each for a key of its own.
    pub waiters: usize,
    /// How many queues the keys are spread over.
    pub buckets: usize,
    /// How many processors there are.
    pub processors: usize,
    /// How many wakes are counted; as many more come before, and are not.
    pub wakes: usize,
    /// Of the hashes, the processors and the interleaving.
    pub seed: u64,
}

/// What it costs, for each wake with the waits that follow from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Waiters looked at.
    pub steps: f64,
    /// Locks taken.
    pub lock_holds: f64,
    /// Writes to lines of queues and of waiters.
    pub shared_writes: f64,
    /// Misses and upgrades.
    pub transfers: f64,
}

impl Scenario {
    /// Runs it.
    pub fn cost(self) -> Cost {
        let mut run = Run::new(self);
        run.wake_until(self.wakes);
        let before = run.counts();
        run.wake_until(2 * self.wakes);
        let after = run.counts();
        let mean = |count: usize| (after[count] - before[count]) as f64 / self.wakes as f64;
        Cost { steps: mean(0), lock_holds: mean(1), shared_writes: mean(2), transfers: mean(3) }
    }
}

/// Lines of a waiter: of its node's two, and of its condition.
const LINES_OF_WAITER: usize = 3;

/// Where things lie.
#[derive(Debug, Clone, Copy)]
struct Layout {
    buckets: usize,
}

impl Layout {
    fn bucket(self, bucket: usize) -> LineId {
        LineId(bucket)
    }

    /// What a search reads of each waiter that it looks at.
    fn first(self, waiter: usize) -> LineId {
        LineId(self.buckets + LINES_OF_WAITER * waiter)
    }

    /// The key and the word on which the waiter sleeps, if they have a line of their own.
    fn second(self, waiter: usize) -> LineId {
        LineId(self.first(waiter).0 + 1)
    }

    fn condition(self, waiter: usize) -> LineId {
        LineId(self.first(waiter).0 + 2)
    }

    fn is_shared(self, LineId(line): LineId) -> bool {
        line < self.buckets || !(line - self.buckets + 1).is_multiple_of(LINES_OF_WAITER)
    }
}

/// What an operation does next.
#[derive(Debug, Clone, Copy)]
enum Action {
    Read(LineId),
    Write(LineId),
    /// Takes the lock of a bucket; what happens under it is known then.
    Lock(usize),
    Unlock(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wake,
    /// A waiter that has run waits again.
    Wait,
    /// One that was woken needlessly looks, and sleeps again.
    Look,
}

/// One way to keep waiters: what it does before, under and after the lock.
trait Way {
    /// Up to the lock, which is the last.
    fn before(&self, kind: Kind, waiter: usize, layout: Layout) -> Vec<Action>;

    /// Under the lock; the queue changes. Counts its steps.
    fn locked(&mut self, kind: Kind, waiter: usize, layout: Layout, steps: &mut u64)
    -> Vec<Action>;

    /// After the unlock.
    fn after(&self, _kind: Kind, _waiter: usize, _layout: Layout) -> Vec<Action> {
        Vec::new()
    }

    /// Those that a wake of `waiter` wakes needlessly.
    fn needless(&self, _waiter: usize) -> Vec<usize> {
        Vec::new()
    }
}

/// An operation under way.
struct Operation {
    kind: Kind,
    waiter: usize,
    processor: usize,
    actions: VecDeque<Action>,
}

struct Run {
    scenario: Scenario,
    layout: Layout,
    way: Box<dyn Way>,
    machine: Machine,
    seed: Seed,
    /// The processor of each waiter.
    home_of: Vec<usize>,
    /// Waiters that no wake has chosen; the others run, or are about to.
    waiting: Vec<usize>,
    /// For each processor, the waiters that are to run there, and what for.
    runnable: Vec<VecDeque<(Kind, usize)>>,
    idle: Vec<usize>,
    active: Vec<Operation>,
    /// For each bucket, whether it is locked, and who sleeps until it is not.
    locks: Vec<(bool, VecDeque<Operation>)>,
    steps: u64,
    lock_holds: u64,
    shared_writes: u64,
    wakes: usize,
}

impl Run {
    fn new(scenario: Scenario) -> Self {
        let Scenario { waiters, buckets, processors, .. } = scenario;
        let mut seed = Seed::new(scenario.seed);
        let mut draw = |bound| (0..waiters).map(|_| seed.below(bound as u64) as usize).collect();
        let (bucket_of, home_of): (Vec<_>, Vec<_>) = (draw(buckets), draw(processors));
        let way: Box<dyn Way> = match scenario.queues {
            Queues::Herd => Box::new(herd::Herd::new(&bucket_of)),
            Queues::Chain => Box::new(chain::Chain::new(&bucket_of, buckets)),
            Queues::Tree => Box::new(tree::Tree::new(&bucket_of, buckets, &mut seed)),
        };
        let mut run = Self {
            scenario,
            layout: Layout { buckets },
            way,
            machine: Machine::new(processors, buckets + LINES_OF_WAITER * waiters),
            seed,
            home_of,
            waiting: Vec::new(),
            runnable: vec![VecDeque::new(); processors],
            idle: (0..processors).collect(),
            active: Vec::new(),
            locks: (0..buckets).map(|_| (false, VecDeque::new())).collect(),
            steps: 0,
            lock_holds: 0,
            shared_writes: 0,
            wakes: 0,
        };
        (0..waiters).for_each(|waiter| run.resume(Kind::Wait, waiter));
        run
    }

    fn counts(&self) -> [u64; 4] {
        [self.steps, self.lock_holds, self.shared_writes, self.machine.transfers()]
    }

    /// Goes on until `wakes` were begun, and all that is under way has ended.
    fn wake_until(&mut self, wakes: usize) {
        loop {
            self.begin(wakes);
            if self.active.is_empty() {
                return;
            }
            let next = self.seed.below(self.active.len() as u64) as usize;
            let operation = self.active.swap_remove(next);
            self.advance(operation);
        }
    }

    /// Gives idle processors something to do: first the waiters that are to run, then wakes.
    fn begin(&mut self, wakes: usize) {
        let mut place = 0;
        while let Some(&processor) = self.idle.get(place) {
            let begun = if let Some(next) = self.runnable[processor].pop_front() {
                Some(next)
            } else if self.wakes < wakes && self.all_have_waited() {
                let chosen = self.seed.below(self.waiting.len() as u64) as usize;
                self.wakes += 1;
                Some((Kind::Wake, self.waiting.swap_remove(chosen)))
            } else {
                None
            };
            match begun {
                None => place += 1,
                Some((kind, waiter)) => {
                    self.idle.swap_remove(place);
                    let actions = self.way.before(kind, waiter, self.layout).into();
                    self.active.push(Operation { kind, waiter, processor, actions });
                }
            }
        }
    }

    /// Whether enough wait: all did once, before the first wake.
    fn all_have_waited(&self) -> bool {
        let wanted = if self.wakes == 0 { self.scenario.waiters } else { 1 };
        self.waiting.len() >= wanted
    }

    fn advance(&mut self, mut operation: Operation) {
        let processor = operation.processor;
        match operation.actions.pop_front() {
            None => return self.end(operation),
            Some(Action::Read(line)) => self.machine.read(processor, line),
            Some(Action::Write(line)) => self.write(processor, line),
            Some(Action::Lock(bucket)) => {
                self.write(processor, self.layout.bucket(bucket));
                if self.locks[bucket].0 {
                    operation.actions.push_front(Action::Lock(bucket));
                    return self.locks[bucket].1.push_back(operation);
                }
                self.locks[bucket].0 = true;
                self.lock_holds += 1;
                let Operation { kind, waiter, .. } = operation;
                let steps = &mut self.steps;
                operation.actions.extend(self.way.locked(kind, waiter, self.layout, steps));
                operation.actions.push_back(Action::Unlock(bucket));
                operation.actions.extend(self.way.after(kind, waiter, self.layout));
            }
            Some(Action::Unlock(bucket)) => {
                self.write(processor, self.layout.bucket(bucket));
                self.locks[bucket].0 = false;
                self.active.extend(self.locks[bucket].1.pop_front());
            }
        }
        self.active.push(operation);
    }

    fn write(&mut self, processor: usize, line: LineId) {
        self.shared_writes += u64::from(self.layout.is_shared(line));
        self.machine.write(processor, line);
    }

    fn end(&mut self, operation: Operation) {
        self.idle.push(operation.processor);
        match operation.kind {
            Kind::Wait => self.waiting.push(operation.waiter),
            Kind::Look => {}
            Kind::Wake => {
                for waiter in self.way.needless(operation.waiter) {
                    self.resume(Kind::Look, waiter);
                }
                self.resume(Kind::Wait, operation.waiter);
            }
        }
    }

    fn resume(&mut self, kind: Kind, waiter: usize) {
        self.runnable[self.home_of[waiter]].push_back((kind, waiter));
    }
}

/// What a wake costs that finds nobody in its queue, whose processors take turns at random.
pub fn empty_wake(queues: Queues, processors: usize, wakes: usize, seed: u64) -> Cost {
    let (mut machine, mut seed) = (Machine::new(processors, 1), Seed::new(seed));
    let line = LineId(0);
    for _ in 0..wakes {
        let processor = seed.below(processors as u64) as usize;
        match queues {
            // The mutex twice, and the count of wakes.
            Queues::Herd => (0..3).for_each(|_| machine.write(processor, line)),
            Queues::Chain => (0..2).for_each(|_| machine.write(processor, line)),
            Queues::Tree => machine.read(processor, line),
        }
    }
    let [lock_holds, shared_writes] = match queues {
        Queues::Herd => [1.0, 3.0],
        Queues::Chain => [1.0, 2.0],
        Queues::Tree => [0.0, 0.0],
    };
    let transfers = machine.transfers() as f64 / wakes as f64;
    Cost { steps: 0.0, lock_holds, shared_writes, transfers }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(queues: Queues, waiters: usize, buckets: usize, processors: usize) -> Cost {
        Scenario { queues, waiters, buckets, processors, wakes: 200, seed: 1 }.cost()
    }

    #[test]
    fn one_processor_asks_nobody() {
        for queues in [Queues::Herd, Queues::Chain, Queues::Tree] {
            assert_eq!(cost(queues, 20, 1, 1).transfers, 0.0);
        }
    }

    #[test]
    fn wake_and_wait_take_two_locks_or_one_a_waiter() {
        for processors in [1, 8] {
            assert_eq!(cost(Queues::Tree, 50, 1, processors).lock_holds, 2.0);
            assert_eq!(cost(Queues::Chain, 50, 1, processors).lock_holds, 2.0);
            // The waker, the waiter, and all others.
            assert_eq!(cost(Queues::Herd, 50, 1, processors).lock_holds, 51.0);
        }
    }

    #[test]
    fn chain_looks_at_all_and_a_tree_at_a_path() {
        let steps = |queues, waiters| cost(queues, waiters, 1, 1).steps;
        assert_eq!(steps(Queues::Chain, 1_000), 1_000.0);
        let growth = steps(Queues::Tree, 4_096) - steps(Queues::Tree, 256);
        // Two levels more, which a wake and a wait go down twice each, and a leaf is looked for.
        assert!((4.0..14.0).contains(&growth), "{growth}");
    }

    #[test]
    fn waiters_of_other_queues_cost_nothing() {
        let far = cost(Queues::Chain, 1_000, 1_000_000, 8);
        assert!(far.steps < 1.1, "{far:?}");
        assert!(far.transfers < 16.0, "{far:?}");
    }

    #[test]
    fn equal_seeds_count_the_same() {
        assert_eq!(cost(Queues::Tree, 100, 4, 16), cost(Queues::Tree, 100, 4, 16));
    }

    #[test]
    fn wake_of_nobody_only_reads_in_a_tree() {
        let transfers = |queues| empty_wake(queues, 8, 10_000, 1).transfers;
        assert_eq!(transfers(Queues::Tree), 8.0 / 10_000.0);
        assert!((0.8..0.95).contains(&transfers(Queues::Chain)));
    }
}
