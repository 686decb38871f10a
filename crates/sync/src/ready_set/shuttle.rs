//! A larger scene under shuttle: each event is taken once, while waiters sleep, leave and come.

use std::collections::HashMap;

use unherd_sys::Timestamp;
use unherd_sys::primitives::thread;

use super::*;

const SCHEDULES: usize = 1000;
const WAITERS: usize = 3;
const POSTS: usize = 4;

/// Posters of sources that they share, waiters with a budget of one, one that gives up, and sources
/// that come and go. The posters end when all events were taken, the waiters by a last event each.
fn scene(lifo: bool) {
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
    let waiter = |gives_up: bool| {
        let set = set.clone();
        thread::spawn(move || {
            let mut taken = Vec::new();
            let mut batch = ReadyBatch::with_capacity(1);
            let past = Deadline::at(Timestamp::from_ns(0));
            loop {
                set.wait(&mut batch, if gives_up { past } else { Deadline::NEVER });
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
    let waiters: Vec<_> = (0..WAITERS).map(|_| waiter(false)).chain([waiter(true)]).collect();
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

#[test]
fn waiters_take_each_event_once() {
    ::shuttle::check_random(|| scene(false), SCHEDULES);
}

#[test]
fn lifo_waiters_take_each_event_once() {
    ::shuttle::check_random(|| scene(true), SCHEDULES);
}
