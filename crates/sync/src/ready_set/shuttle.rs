//! Larger scenes under shuttle: each event is taken once, while waiters sleep, leave and come, and
//! no wake is lost.

use std::collections::HashMap;

use ::shuttle::sync::Barrier;
use unherd_sys::Timestamp;
use unherd_sys::primitives::thread;

use super::*;

const SCHEDULES: usize = 1000;
const WAITERS: usize = 3;
const POSTS: usize = 4;

/// Posters of sources that they share, waiters with a budget of one, one that gives up, and sources
/// that come and go. The posters end when all events were taken, the waiters by a last event each.
/// With `tasks` one waiter is a task, which comes at any time.
fn scene(lifo: bool, tasks: bool) {
    let builder = ReadySet::builder(8);
    let set = if lifo { builder.lifo() } else { builder }.build();
    let shared = Arc::new([set.source().unwrap(), set.source().unwrap()]);
    let last = set.source().unwrap();
    let end = last.token();
    let poster = |own: bool| {
        let (set, shared) = (set.clone(), Arc::clone(&shared));
        thread::spawn(move || {
            let mut new = Vec::new();
            for post in 0..POSTS {
                let source = &shared[post % 2];
                if source.post() {
                    new.push(source.token());
                }
                if own {
                    let brief = set.source().unwrap();
                    brief.post();
                }
            }
            new
        })
    };
    let waiter = |gives_up: bool, is_task: bool| {
        let set = set.clone();
        thread::spawn(move || {
            let mut taken = Vec::new();
            let mut batch = ReadyBatch::with_capacity(1);
            let past = Deadline::at(Timestamp::from_ns(0));
            loop {
                wait(&set, &mut batch, is_task, if gives_up { past } else { Deadline::NEVER });
                if batch.tokens() == [end] {
                    // For the next waiter.
                    set.rearm(end);
                    return taken;
                }
                taken.extend(&batch);
                if gives_up {
                    return taken;
                }
            }
        })
    };
    let posters = [poster(false), poster(true)];
    let waiters: Vec<_> = (0..WAITERS)
        .map(|index| waiter(false, tasks && index == WAITERS - 1))
        .chain([waiter(true, false)])
        .collect();
    let posted: Vec<_> = posters.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    last.post();
    let mut taken: Vec<_> = waiters.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let mut rest = ReadyBatch::with_capacity(8);
    set.try_wait(&mut rest);
    taken.extend(&rest);
    let mut counts = HashMap::<SourceToken, i64>::new();
    posted.iter().for_each(|token| *counts.entry(*token).or_default() += 1);
    taken.iter().for_each(|token| *counts.entry(*token).or_default() -= 1);
    for source in shared.iter() {
        assert_eq!(counts.get(&source.token()).copied().unwrap_or(0), 0, "lost or invented");
    }
}

/// In each round as many events as waiters, each with room for one, and whose handlers end with the
/// round: each must be woken.
fn rounds(lifo: bool, tasks: bool) {
    let builder = ReadySet::builder(WAITERS);
    let set = if lifo { builder.lifo() } else { builder }.build();
    let round = Arc::new(Barrier::new(2 * WAITERS));
    let threads = (0..WAITERS).flat_map(|index| {
        let source = set.source().unwrap();
        let (set, round, end) = (set.clone(), Arc::clone(&round), Arc::clone(&round));
        let poster = thread::spawn(move || {
            for _ in 0..POSTS {
                source.post();
                round.wait();
            }
        });
        let waiter = thread::spawn(move || {
            let mut batch = ReadyBatch::with_capacity(1);
            for _ in 0..POSTS {
                wait(&set, &mut batch, tasks && index == 0, Deadline::NEVER);
                end.wait();
            }
        });
        [poster, waiter]
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

fn wait(set: &ReadySet, batch: &mut ReadyBatch, is_task: bool, deadline: Deadline) {
    if is_task {
        ::shuttle::future::block_on(set.wait_async(batch));
    } else {
        set.wait(batch, deadline);
    }
}

/// All four kinds of a scene.
fn check(scene: fn(bool, bool)) {
    for (lifo, tasks) in [(false, false), (true, false), (false, true), (true, true)] {
        ::shuttle::check_random(move || scene(lifo, tasks), SCHEDULES);
    }
}

#[test]
fn waiters_take_each_event_once() {
    check(scene);
}

#[test]
fn as_many_events_as_waiters_wake_all() {
    check(rounds);
}
