//! Rounds under loom: what callers want is a cell of their own, read in the round that serves it.
#![expect(unsafe_code, reason = "cells that the rounds order")]

use unherd_sys::primitives::{UnsafeCell, thread};

use super::*;

struct Scene {
    rounds: GroupCommit<usize, u32>,
    /// Written by a caller before it joins, read in the round that serves it.
    wanted: [UnsafeCell<u32>; 3],
    /// Written in rounds, read by those whom they served.
    done: UnsafeCell<u32>,
}

// SAFETY: the rounds order all uses of the cells; loom checks that they do.
unsafe impl Sync for Scene {}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rounds: GroupCommit::new(
                Arc::new(WaitTable::<WaitKey>::builder().buckets(1).seed(1).build()),
                Reason::OTHER,
            ),
            wanted: std::array::from_fn(|_| UnsafeCell::new(0)),
            done: UnsafeCell::new(0),
        })
    }

    fn write(&self, caller: usize) {
        // SAFETY: as above.
        self.wanted[caller].with_mut(|wanted| unsafe { *wanted = 1 });
    }

    /// A round: rounds come one at a time, and after what they serve.
    fn run(&self, callers: &[usize]) -> u32 {
        for &caller in callers {
            // SAFETY: as above.
            assert_eq!(self.wanted[caller].with(|wanted| unsafe { *wanted }), 1);
        }
        // SAFETY: as above.
        self.done.with_mut(|done| unsafe {
            *done |= callers.iter().fold(0, |all, caller| all | 1 << caller);
            *done
        })
    }

    fn call(&self, caller: usize) {
        self.write(caller);
        let run = |callers: Vec<usize>| self.run(&callers);
        let done = self.rounds.run(|| caller, run);
        assert!(done >> caller & 1 != 0, "the outcome is that of a round that served it");
    }
}

fn check(preemptions: usize, scene: impl Fn(&Arc<Scene>) + Send + Sync + 'static) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(move || scene(&Scene::new()));
}

fn calls(scene: &Arc<Scene>, caller: usize) -> thread::JoinHandle<()> {
    let scene = scene.clone();
    thread::spawn(move || scene.call(caller))
}

#[test]
fn each_caller_is_served_by_a_round_that_began_after_its_call() {
    check(2, |scene| {
        let others = [1, 2].map(|caller| calls(scene, caller));
        scene.call(0);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// A round that serves nobody comes at its own time, and takes nobody's.
#[test]
fn a_round_alone_runs_beside_no_other() {
    check(3, |scene| {
        let others = [1, 2].map(|caller| calls(scene, caller));
        scene.rounds.run_alone(|| {
            scene.run(&[]);
        });
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// A task joins as the runner finds that no task has: one of the two sees the other.
#[cfg(feature = "async")]
#[test]
fn a_task_that_joins_has_a_runner() {
    check(3, tasks_have_a_runner);
}

#[cfg(feature = "async")]
#[test]
fn a_task_that_joins_beside_a_round_alone_has_a_runner() {
    check(2, |scene| {
        let alone = scene.clone();
        let alone = thread::spawn(move || {
            alone.rounds.run_alone(|| {
                alone.run(&[]);
            });
        });
        tasks_have_a_runner(scene);
        alone.join().unwrap();
    });
}

#[cfg(feature = "async")]
fn tasks_have_a_runner(scene: &Arc<Scene>) {
    let join = |scene: &Arc<Scene>, caller| {
        scene.write(caller);
        let (round, starts) = scene.rounds.join(caller);
        let runner = starts.then(|| {
            let scene = scene.clone();
            thread::spawn(move || {
                let run = |callers: Vec<usize>| scene.run(&callers);
                scene.rounds.run_for_tasks(run);
            })
        });
        (round, runner)
    };
    let (first, runner) = join(scene, 0);
    let (second, another) = join(scene, 1);
    [runner, another].into_iter().flatten().for_each(|runner| runner.join().unwrap());
    for (caller, round) in [first, second].iter().enumerate() {
        let done = round.outcome.lock().expect("it was run");
        assert!(done >> caller & 1 != 0);
    }
}
