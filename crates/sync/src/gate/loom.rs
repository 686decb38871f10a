//! The gate under loom: no lost release, no sleep beside a clear gate or a unit, and what a release
//! publishes. Deadlines that nobody sets never come, so a release that is lost is a deadlock.
#![expect(unsafe_code, reason = "cells whose accesses loom checks")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use unherd_sys::primitives::{Arc, UnsafeCell};

use super::*;
use crate::wait_table::loom::check;

struct Scene {
    gate: Gate,
    value: UnsafeCell<u32>,
}

// SAFETY: the value is written before what lets its reader go, as loom checks.
unsafe impl Send for Scene {}
// SAFETY: as above.
unsafe impl Sync for Scene {}

impl Scene {
    fn new() -> Arc<Self> {
        let gate = Gate::builder().max_wait(Duration::MAX).build();
        Arc::new(Self { gate, value: UnsafeCell::new(0) })
    }

    fn set(&self) {
        // SAFETY: nobody was let go yet.
        self.value.with_mut(|value| unsafe { *value = 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: the caller was let go.
        self.value.with(|value| unsafe { *value })
    }

    fn wait(&self) -> WaitEnd {
        self.gate.wait_iff(Reason::OTHER, Deadline::NEVER).why
    }

    /// Congested, with nobody to clear it until [`Scene::clear`].
    fn congest(&self) {
        std::mem::forget(self.gate.congest().into_shared());
    }

    fn clear(&self) {
        self.gate.clear();
    }
}

fn spawn<R: 'static>(
    scene: &Arc<Scene>,
    what: impl FnOnce(&Scene) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let scene = Arc::clone(scene);
    thread::spawn(move || what(&scene))
}

fn past() -> Deadline {
    Deadline::at(Timestamp::from_ns(0))
}

#[test]
fn clear_reaches_a_waiter() {
    check(None, || {
        let scene = Scene::new();
        scene.congest();
        let waiter = spawn(&scene, |scene| {
            let why = scene.wait();
            assert!(matches!(why, WaitEnd::Clear | WaitEnd::Cleared), "{why:?}");
            assert_eq!(scene.get(), 1);
        });
        scene.set();
        scene.clear();
        waiter.join().unwrap();
    });
}

#[test]
fn progress_reaches_a_waiter() {
    check(None, || {
        let scene = Scene::new();
        scene.congest();
        let waiter = spawn(&scene, |scene| {
            assert_eq!(scene.wait(), WaitEnd::Progress);
            assert_eq!(scene.get(), 1);
        });
        scene.set();
        scene.gate.progress(1);
        waiter.join().unwrap();
        assert_eq!(scene.gate.state().units(), 0);
    });
}

/// What is there is taken without a sleep, and a clear gate keeps nobody.
#[test]
fn nobody_sleeps_for_nothing() {
    check(None, || {
        let scene = Scene::new();
        scene.congest();
        scene.gate.progress(1);
        let taker = spawn(&scene, |scene| scene.gate.wait_iff(Reason::OTHER, past()).why);
        let own = scene.gate.wait_iff(Reason::OTHER, past()).why;
        let other = taker.join().unwrap();
        let takers = [own, other].into_iter().filter(|why| *why == WaitEnd::Progress);
        assert_eq!(takers.count(), 1, "{own:?} {other:?}");
        scene.clear();
        assert_eq!(scene.wait(), WaitEnd::Clear);
    });
}

#[cfg(not(model_yield))] // Two sleepers that yield to each other go on for ever in loom.
#[test]
fn progress_of_two_reaches_both() {
    check(Some(2), || {
        let scene = Scene::new();
        scene.congest();
        let waiters = [(); 2].map(|()| {
            spawn(&scene, |scene| {
                assert_eq!(scene.wait(), WaitEnd::Progress);
                assert_eq!(scene.get(), 1);
            })
        });
        scene.set();
        scene.gate.progress(2);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[cfg(not(model_yield))] // As above.
#[test]
fn two_of_progress_reach_both() {
    check(Some(2), || {
        let scene = Scene::new();
        scene.congest();
        let waiters = [(); 2].map(|()| spawn(&scene, Scene::wait));
        scene.gate.progress(1);
        scene.gate.progress(1);
        waiters.into_iter().for_each(|waiter| assert!(waiter.join().is_ok()));
    });
}

#[cfg(not(model_yield))] // As above.
#[test]
fn clear_reaches_both() {
    check(Some(2), || {
        let scene = Scene::new();
        scene.congest();
        let waiters = [(); 2].map(|()| {
            spawn(&scene, |scene| {
                scene.wait();
                assert_eq!(scene.get(), 1);
            })
        });
        scene.set();
        scene.clear();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// A chain that new congestion has stopped goes on when that clears.
#[cfg(not(model_yield))] // As above.
#[test]
fn second_clear_reaches_the_rest() {
    check(Some(1), || {
        let scene = Scene::new();
        scene.congest();
        let waiters = [(); 2].map(|()| spawn(&scene, Scene::wait));
        scene.clear();
        scene.congest();
        scene.clear();
        waiters.into_iter().for_each(|waiter| assert!(waiter.join().is_ok()));
    });
}

/// A waiter that gives up takes no unit with it.
#[test]
fn timeout_meets_progress() {
    check(Some(1), || {
        let scene = Scene::new();
        scene.congest();
        let waiter = spawn(&scene, Scene::wait);
        let progress = spawn(&scene, |scene| scene.gate.progress(1));
        let own = scene.gate.wait_iff(Reason::OTHER, past()).why;
        progress.join().unwrap();
        if own == WaitEnd::Progress {
            scene.gate.progress(1);
        }
        assert_eq!(waiter.join().unwrap(), WaitEnd::Progress);
    });
}

/// A waiter whose time is over as the gate clears goes as one that was let go.
#[test]
fn timeout_meets_clear() {
    check(Some(3), || {
        let scene = Scene::new();
        scene.congest();
        let waiter = spawn(&scene, |scene| {
            if scene.gate.wait_iff(Reason::OTHER, past()).why != WaitEnd::Timeout {
                assert_eq!(scene.get(), 1);
            }
        });
        scene.set();
        scene.clear();
        waiter.join().unwrap();
    });
}

/// The release of the thread that cleared finds the progress of another, in new congestion.
#[test]
fn release_of_another() {
    check(Some(2), || {
        let scene = Scene::new();
        scene.congest();
        let waiter = spawn(&scene, |scene| {
            if scene.wait() == WaitEnd::Progress {
                assert_eq!(scene.get(), 1);
            }
        });
        let progress = spawn(&scene, |scene| {
            scene.set();
            scene.congest();
            scene.gate.progress(1);
        });
        scene.clear();
        waiter.join().unwrap();
        progress.join().unwrap();
    });
}

#[test]
fn close_meets_a_waiter() {
    check(None, || {
        let scene = Scene::new();
        scene.congest();
        let waiter = spawn(&scene, |scene| {
            assert_eq!(scene.wait(), WaitEnd::Cancelled);
            assert_eq!(scene.get(), 1);
        });
        scene.set();
        scene.gate.close();
        waiter.join().unwrap();
    });
}

#[test]
fn panic_drops_the_token() {
    check(None, || {
        let scene = Scene::new();
        let token = scene.gate.congest().into_shared();
        let waiter = spawn(&scene, Scene::wait);
        let panics = AssertUnwindSafe(|| {
            let _congested = token;
            resume_unwind(Box::new(()));
        });
        assert!(catch_unwind(panics).is_err());
        let why = waiter.join().unwrap();
        assert!(matches!(why, WaitEnd::Clear | WaitEnd::Cleared), "{why:?}");
    });
}

#[cfg(feature = "async")]
mod task {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll(task: &mut std::pin::Pin<Box<impl Future<Output = Waited>>>) -> Poll<Waited> {
        task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The unit of a task that is dropped goes to the next.
    #[test]
    fn dropped_task_passes_its_unit_on() {
        check(Some(3), || {
            let scene = Scene::new();
            scene.congest();
            let mut task = Box::pin(scene.gate.wait_iff_async(Reason::OTHER));
            assert!(poll(&mut task).is_pending());
            let progress = spawn(&scene, |scene| {
                scene.set();
                scene.gate.progress(1);
            });
            drop(task);
            assert_eq!(scene.wait(), WaitEnd::Progress);
            assert_eq!(scene.get(), 1);
            progress.join().unwrap();
        });
    }

    /// A task that is let go and never polled keeps nobody behind it.
    #[test]
    fn task_that_is_let_go_keeps_nobody() {
        check(Some(3), || {
            let scene = Scene::new();
            scene.congest();
            let mut task = Box::pin(scene.gate.wait_iff_async(Reason::OTHER));
            assert!(poll(&mut task).is_pending());
            let waiter = spawn(&scene, Scene::wait);
            scene.gate.progress(2);
            assert_eq!(waiter.join().unwrap(), WaitEnd::Progress);
            assert!(poll(&mut task).is_ready());
        });
    }

    /// A task that comes finds the unit, or the unit finds the task.
    #[test]
    fn poll_meets_progress() {
        check(None, || {
            let scene = Scene::new();
            scene.congest();
            let progress = spawn(&scene, |scene| {
                scene.set();
                scene.gate.progress(1);
            });
            let mut task = Box::pin(scene.gate.wait_iff_async(Reason::OTHER));
            if poll(&mut task).is_ready() {
                assert_eq!(scene.get(), 1);
            } else {
                progress.join().unwrap();
                assert!(poll(&mut task).is_ready());
            }
        });
    }
}
