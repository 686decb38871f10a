//! The set against real threads and tasks, and against the plainest model.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use unherd_sys::Timestamp;
use unherd_sys::primitives::thread;

use super::*;

fn past() -> Deadline {
    Deadline::at(Timestamp::from_ns(0))
}

pub(super) fn drain(set: &ReadySet, budget: usize) -> Vec<SourceToken> {
    let mut batch = ReadyBatch::with_capacity(budget);
    set.try_wait(&mut batch);
    batch.tokens().to_vec()
}

/// Sleepers in the set's queue.
pub(super) fn sleepers(set: &ReadySet) -> usize {
    let mut count = 0;
    let _nobody = set.0.waiters.wake_where(
        &(),
        |_| {
            count += 1;
            Verdict::Skip
        },
        Token(0),
    );
    count
}

pub(super) fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn posts_coalesce_until_the_event_is_taken() {
    let set = ReadySet::new(100);
    let source = set.source().unwrap();
    assert_eq!([source.post(), source.post()], [true, false]);
    assert_eq!(drain(&set, 8), [source.token()]);
    assert!(set.is_empty() && drain(&set, 8).is_empty());
    assert!(source.post());
}

/// Random posts, takes, drops and new sources, against a set of tokens.
#[test]
fn a_random_sequence_equals_the_model() {
    for seed in 0..20 {
        let mut random = unherd_testkit::Seed::new(seed);
        let sources = [1, 3, 64, 65, 130, 5000][random.below(6) as usize];
        let set = ReadySet::new(sources);
        let mut live: Vec<Source> = Vec::new();
        let mut ready = BTreeSet::new();
        let key = |token: SourceToken| (token.place(), token.generation());
        for _ in 0..2000 {
            match random.below(8) {
                0 | 1 if live.len() < sources => live.push(set.source().unwrap()),
                2 if !live.is_empty() => {
                    let gone = live.swap_remove(random.below(live.len() as u64) as usize);
                    ready.remove(&key(gone.token()));
                    let token = gone.token();
                    drop(gone);
                    assert!(!set.rearm(token));
                }
                3 => {
                    for token in drain(&set, 1 + random.below(6) as usize) {
                        assert!(ready.remove(&key(token)), "invented {token:?}");
                    }
                }
                4 if ready.len() < 6 => {
                    let taken: BTreeSet<_> = drain(&set, 6).into_iter().map(key).collect();
                    assert_eq!(std::mem::take(&mut ready), taken);
                }
                _ if !live.is_empty() => {
                    let source = &live[random.below(live.len() as u64) as usize];
                    let is_new = if random.below(2) == 0 {
                        source.post()
                    } else {
                        set.rearm(source.token())
                    };
                    assert_eq!(is_new, ready.insert(key(source.token())));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_full_set_says_so() {
    let set = ReadySet::new(2);
    let sources = [set.source().unwrap(), set.source().unwrap()];
    let error = set.source().unwrap_err();
    assert_eq!(error, SetFull { sources: 2 });
    assert!(error.to_string().contains("built for 2 sources"));
    drop(sources);
    assert!(set.source().is_ok());
}

#[test]
fn debug_output_does_not_grow_with_the_set() {
    let set = ReadySet::new(65_536);
    let source = set.source().unwrap();
    source.post();
    assert_eq!(
        format!("{set:?} {source:?}"),
        "ReadySet { sources: 65536, is_empty: false, reason: Reason(\"other\"), .. } \
         Source { token: SourceToken { place: 0, generation: 0 }, .. }"
    );
}

#[test]
fn a_reused_place_has_another_token() {
    let set = ReadySet::new(1);
    let old = set.source().unwrap();
    let token = old.token();
    old.post();
    drop(old);
    let new = set.source().unwrap();
    assert_eq!(new.token().place(), token.place());
    assert_ne!(new.token(), token);
    assert!(drain(&set, 1).is_empty() && !set.rearm(token));
    new.post();
    assert_eq!(drain(&set, 1), [new.token()]);
}

/// A flood in the first places and a budget of one: all others are reached in one round.
#[test]
fn a_flooding_source_starves_nobody() {
    let set = ReadySet::new(200);
    let sources: Vec<_> = (0..200).map(|_| set.source().unwrap()).collect();
    sources.iter().for_each(|source| _ = source.post());
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let [token] = drain(&set, 1)[..] else { panic!("nothing there") };
        seen.insert(token.place());
        // All that were reached flood.
        seen.iter().for_each(|place| _ = sources[*place].post());
    }
    assert_eq!(seen.len(), 200);
}

#[test]
fn rearm_while_gives_level_semantics() {
    let set = ReadySet::new(2);
    let sources = [set.source().unwrap(), set.source().unwrap()];
    sources.iter().for_each(|source| _ = source.post());
    let mut batch = ReadyBatch::with_capacity(2);
    assert_eq!(set.try_wait(&mut batch), 2);
    set.rearm_while(&batch, |token| token == sources[1].token());
    assert_eq!(drain(&set, 2), [sources[1].token()]);
}

#[test]
fn an_empty_wait_ends_at_its_deadline() {
    let mut batch = ReadyBatch::with_capacity(1);
    assert_eq!(ReadySet::new(1).wait(&mut batch, past()), 0);
}

#[test]
fn an_event_that_is_there_beats_the_deadline() {
    let set = ReadySet::new(1);
    let source = set.source().unwrap();
    source.post();
    assert_eq!(set.wait(&mut ReadyBatch::with_capacity(1), past()), 1);
}

/// Which of two sleepers an event wakes.
fn first_woken(set: &ReadySet) -> usize {
    let source = set.source().expect("there is room");
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for name in 0..3 {
            let send = send.clone();
            scope.spawn(move || {
                set.wait(&mut ReadyBatch::with_capacity(1), Deadline::NEVER);
                send.send(name).expect("the test receives");
            });
            until(|| sleepers(set) == name + 1);
        }
        source.post();
        let first = receive.recv().expect("a waiter was woken");
        assert_eq!(sleepers(set), 2, "one event has woken more than one");
        for _ in 0..2 {
            source.post();
            receive.recv().expect("a waiter was woken");
        }
        first
    })
}

#[test]
fn an_event_wakes_the_first_waiter() {
    assert_eq!(first_woken(&ReadySet::new(1)), 0);
}

#[test]
fn lifo_wakes_the_last_waiter() {
    assert_eq!(first_woken(&ReadySet::builder(1).lifo().build()), 2);
}

/// A poster that coalesces wakes nobody: its event has woken one already.
#[cfg(feature = "async")]
#[test]
fn posts_that_coalesce_wake_one_waiter() {
    let set = ReadySet::new(1);
    let source = set.source().unwrap();
    let mut batches = [0; 2].map(|_| ReadyBatch::with_capacity(1));
    let mut context = Context::from_waker(Waker::noop());
    let mut waits = batches.each_mut().map(|batch| Box::pin(set.wait_async(batch)));
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!([source.post(), source.post()], [true, false]);
    assert!(!set.rearm(source.token()));
    assert_eq!(sleepers(&set), 1);
}

#[cfg(feature = "async")]
#[test]
fn a_dropped_task_passes_its_wake_on() {
    let set = ReadySet::new(1);
    let source = set.source().unwrap();
    let (mut first, mut second) = (ReadyBatch::with_capacity(1), ReadyBatch::with_capacity(1));
    let mut context = Context::from_waker(Waker::noop());
    let mut chosen = Box::pin(set.wait_async(&mut first));
    assert!(chosen.as_mut().poll(&mut context).is_pending());
    {
        let mut next = pin!(set.wait_async(&mut second));
        assert!(next.as_mut().poll(&mut context).is_pending());
        source.post();
        assert_eq!(sleepers(&set), 1);
        drop(chosen);
        assert_eq!(sleepers(&set), 0, "the wake was not passed on");
        assert_eq!(next.as_mut().poll(&mut context), Poll::Ready(1));
    }
    assert_eq!(second.tokens(), [source.token()]);
}
