//! The set's protocols under loom: two or three threads each.

use std::task::{Context, Poll, Waker};

use unherd_sys::primitives::{AtomicU32, thread};

use super::*;
use crate::wait_table::loom::check;

const ALL: Option<usize> = None;
/// Scenes with three threads, or with sleeps.
const FEW: Option<usize> = Some(if cfg!(model_yield) { 2 } else { 3 });

fn set(sources: usize) -> (ReadySet, Vec<Source>) {
    let set = ReadySet::new(sources);
    let sources = (0..sources).map(|_| set.source().unwrap()).collect();
    (set, sources)
}

/// Takes up to `budget` events.
fn take(set: &ReadySet, budget: usize) -> Vec<SourceToken> {
    let mut batch = ReadyBatch::with_capacity(budget);
    set.try_wait(&mut batch);
    batch.tokens().to_vec()
}

fn sleep(set: &ReadySet) -> Vec<SourceToken> {
    let mut batch = ReadyBatch::with_capacity(1);
    set.wait(&mut batch, Deadline::NEVER);
    batch.tokens().to_vec()
}

/// A thread that posts for the source at `at`, and keeps them all alive.
fn start_post(sources: Vec<Source>, at: usize) -> thread::JoinHandle<Vec<Source>> {
    thread::spawn(move || {
        sources[at].post();
        sources
    })
}

fn start_take(set: &ReadySet, budget: usize) -> thread::JoinHandle<Vec<SourceToken>> {
    let set = set.clone();
    thread::spawn(move || take(&set, budget))
}

fn start_sleep(set: &ReadySet) -> thread::JoinHandle<Vec<SourceToken>> {
    let set = set.clone();
    thread::spawn(move || sleep(&set))
}

/// Whatever a check meets, the last post is seen by it or by the next one, with what was written
/// before the post. (There is an event at first, or loom would not see that they meet.)
fn last_post_is_seen(post: impl Fn(&ReadySet, &Source) + Copy + Send + Sync + 'static) {
    check(ALL, move || {
        let (set, mut sources) = set(1);
        let source = sources.remove(0);
        let token = source.token();
        source.post();
        let written = Arc::new(AtomicU32::new(0));
        let poster = {
            let (set, written) = (set.clone(), Arc::clone(&written));
            thread::spawn(move || {
                for value in 1..3 {
                    written.store(value, Ordering::Relaxed);
                    post(&set, &source);
                }
                source
            })
        };
        take(&set, 1);
        let mut seen = written.load(Ordering::Relaxed);
        let source = poster.join().unwrap();
        if let [found] = take(&set, 1)[..] {
            assert_eq!(found, token);
            seen = written.load(Ordering::Relaxed);
        }
        assert_eq!(seen, 2, "an event was lost");
        drop(source);
    });
}

#[test]
fn post_meets_check() {
    last_post_is_seen(|_, source| _ = source.post());
}

#[test]
fn rearm_meets_check() {
    last_post_is_seen(|set, source| _ = set.rearm(source.token()));
}

/// What a poster wrote is visible to the one who takes the event.
#[test]
fn check_sees_what_the_poster_wrote() {
    check(ALL, || {
        let (set, sources) = set(2);
        let token = sources[1].token();
        sources[0].post();
        let written = Arc::new(AtomicU32::new(0));
        let poster = {
            let written = Arc::clone(&written);
            thread::spawn(move || {
                written.store(1, Ordering::Relaxed);
                sources[1].post();
                sources
            })
        };
        if take(&set, 2).contains(&token) {
            assert_eq!(written.load(Ordering::Relaxed), 1);
        }
        poster.join().unwrap();
    });
}

/// A check takes one source of a leaf while another one posts: that is found by the next check.
#[test]
fn leaf_meets_check_of_another_source() {
    check(ALL, || {
        let (set, sources) = set(2);
        sources[0].post();
        let poster = start_post(sources, 1);
        let mut all = take(&set, 1);
        let sources = poster.join().unwrap();
        all.extend(take(&set, 2));
        assert!(sources.iter().all(|source| all.contains(&source.token())), "an event was lost");
    });
}

/// Two checks and a poster of two sources: each event is taken once.
#[test]
fn each_event_is_taken_once() {
    check(FEW, || {
        let (set, sources) = set(2);
        sources[0].post();
        let poster = start_post(sources, 1);
        let other = start_take(&set, 1);
        let mut all = take(&set, 1);
        all.extend(other.join().unwrap());
        let sources = poster.join().unwrap();
        all.extend(take(&set, 2));
        assert_eq!(all.len(), 2);
        assert!(sources.iter().all(|source| all.contains(&source.token())));
    });
}

/// A poster that stopped halfway hides nobody's event from the next check.
#[test]
fn second_poster_is_not_hidden() {
    check(ALL, || {
        let (set, sources) = set(1);
        let sources = Arc::new(sources);
        let first = {
            let sources = Arc::clone(&sources);
            thread::spawn(move || sources[0].post())
        };
        sources[0].post();
        assert_eq!(take(&set, 1), [sources[0].token()]);
        first.join().unwrap();
    });
}

/// The same, when a check of another source comes between.
#[test]
fn second_poster_meets_check_and_first() {
    check(FEW, || {
        let (set, sources) = set(2);
        let sources = Arc::new(sources);
        sources[1].post();
        let first = {
            let sources = Arc::clone(&sources);
            thread::spawn(move || sources[0].post())
        };
        let other = start_take(&set, 2);
        sources[0].post();
        let mut all = take(&set, 2);
        all.extend(other.join().unwrap());
        assert!(all.contains(&sources[0].token()), "an event was hidden");
        first.join().unwrap();
    });
}

/// Between the last look and the sleep.
#[test]
fn post_meets_sleep() {
    check(FEW, || {
        let (set, sources) = set(1);
        let token = sources[0].token();
        let poster = start_post(sources, 0);
        assert_eq!(sleep(&set), [token]);
        poster.join().unwrap();
    });
}

/// A check with a budget of one meets a post and a sleeper, who must get what it leaves.
#[test]
fn check_that_leaves_events_wakes() {
    check(FEW, || {
        let (set, sources) = set(2);
        sources[0].post();
        let poster = start_post(sources, 1);
        let other = start_take(&set, 1);
        if !take(&set, 1).is_empty() {
            other.join().unwrap();
            poster.join().unwrap();
            return;
        }
        // The other one has the first event, and no room for the second.
        assert_eq!(sleep(&set).len(), 1);
        other.join().unwrap();
        poster.join().unwrap();
    });
}

/// A check with room for one hides the event of a poster from the last look of a sleeper, who is
/// woken by it.
#[test]
fn hidden_event_wakes_a_sleeper() {
    check(Some(2), || {
        let (set, sources) = set(2);
        sources[0].post();
        let poster = start_post(sources, 1);
        let sleeper = start_sleep(&set);
        let mine = take(&set, 1);
        assert_eq!(sleeper.join().unwrap().len(), 1);
        let _sources = poster.join().unwrap();
        assert_eq!(mine.len() + take(&set, 2).len(), 1);
    });
}

/// A set with descriptors, as many as sources.
fn set_with_descriptors(sources: usize) -> (ReadySet, Vec<Source>) {
    let (set, sources) = set(sources);
    set.0.lead.descriptors().unwrap();
    (set, sources)
}

/// The descriptor of that source becomes ready.
fn raise(set: &ReadySet, token: SourceToken) {
    set.0.lead.descriptors().unwrap().raise(token.to_kernel());
}

/// Between the leader's last look and its sleep in the kernel.
#[test]
fn post_meets_the_leaders_sleep() {
    check(FEW, || {
        let (set, sources) = set_with_descriptors(1);
        let token = sources[0].token();
        let poster = start_post(sources, 0);
        assert_eq!(sleep(&set), [token]);
        poster.join().unwrap();
    });
}

/// A leader that leaves for good, against a thread that comes to sleep: that finds the next event.
#[test]
fn leader_that_leaves_meets_a_sleeper() {
    check(Some(2), || {
        let (set, sources) = set_with_descriptors(1);
        let token = sources[0].token();
        let lead = set.0.lead.try_take().unwrap();
        let other = start_sleep(&set);
        drop(lead);
        drop(Leaving { set: &set, call: WATCH });
        raise(&set, token);
        assert_eq!(other.join().unwrap(), [token]);
        drop(sources);
    });
}

/// A leader whose deadline passes, against a post that has chosen it, and one that comes to sleep.
#[test]
fn leader_that_gives_up_meets_a_sleeper() {
    check(Some(2), || {
        let (set, sources) = set_with_descriptors(1);
        let token = sources[0].token();
        let other = start_sleep(&set);
        let mut batch = ReadyBatch::with_capacity(1);
        let past = Deadline::at(unherd_sys::Timestamp::from_ns(0));
        assert_eq!(set.wait(&mut batch, past), 0);
        raise(&set, token);
        assert_eq!(other.join().unwrap(), [token]);
        drop(sources);
    });
}

/// A task that was chosen, and is dropped, leaves its event to the leader.
#[cfg(feature = "async")]
#[test]
fn cancel_of_the_chosen_meets_the_leader() {
    check(Some(2), || {
        let (set, sources) = set_with_descriptors(1);
        let token = sources[0].token();
        let mut batch = ReadyBatch::with_capacity(1);
        let mut task = Box::pin(set.wait_async(&mut batch));
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let leader = start_sleep(&set);
        sources[0].post();
        drop(task);
        assert_eq!(leader.join().unwrap(), [token]);
    });
}

/// A source that is dropped, and another in its place, while a check goes on.
#[test]
fn reused_slot_keeps_its_events() {
    check(ALL, || {
        let (set, mut sources) = set(1);
        let old = sources.remove(0);
        let old_token = old.token();
        old.post();
        let other = start_take(&set, 1);
        drop(old);
        let new = set.source().unwrap();
        assert_ne!(new.token(), old_token);
        assert!(new.post());
        let mine = take(&set, 1);
        let others = other.join().unwrap();
        let last = take(&set, 1);
        let all = [mine, others, last].concat();
        assert_eq!(all.iter().filter(|token| **token == new.token()).count(), 1);
        assert!(all.len() <= 2);
    });
}

/// A task that was chosen, and is dropped, does not keep the wake.
#[cfg(feature = "async")]
#[test]
fn cancel_of_the_chosen_meets_post() {
    check(FEW, || {
        let (set, sources) = set(1);
        let token = sources[0].token();
        let mut context = Context::from_waker(Waker::noop());
        let (mut mine, mut others) = (ReadyBatch::with_capacity(1), ReadyBatch::with_capacity(1));
        let mut task = Box::pin(set.wait_async(&mut mine));
        assert!(task.as_mut().poll(&mut context).is_pending());
        let mut next = Box::pin(set.wait_async(&mut others));
        assert!(next.as_mut().poll(&mut context).is_pending());
        let poster = start_post(sources, 0);
        drop(task);
        let _sources = poster.join().unwrap();
        assert_eq!(next.as_mut().poll(&mut context), Poll::Ready(1));
        drop(next);
        assert_eq!(others.tokens(), [token]);
    });
}

/// A deadline that passes while a post chooses the waiter loses no event.
#[test]
fn deadline_of_the_chosen_meets_post() {
    check(FEW, || {
        let (set, sources) = set(1);
        let token = sources[0].token();
        let poster = start_post(sources, 0);
        let mut batch = ReadyBatch::with_capacity(1);
        let past = Deadline::at(unherd_sys::Timestamp::from_ns(0));
        let first = set.wait(&mut batch, past);
        let sources = poster.join().unwrap();
        let rest = take(&set, 1);
        assert_eq!(first + rest.len(), 1);
        assert!(first == 1 || rest == [token]);
        drop(sources);
    });
}
