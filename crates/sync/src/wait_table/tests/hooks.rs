//! What locks are called back for: the choice of a wake, before a sleep, at a timeout.

use std::pin::pin;

use super::*;

fn past() -> Deadline {
    Deadline::at(unherd_sys::Timestamp::from_ns(1))
}

#[test]
fn a_wake_of_one_says_whom_and_whether_there_are_more() {
    let table = table::<u32>(1);
    let mut context = Context::from_waker(Waker::noop());
    let how = |tag| Wait::new(Reason::OTHER).tag(Tag(tag));
    let mut first = pin!(table.wait_async(&7, || true, how(1)));
    let mut second = pin!(table.wait_async(&7, || true, how(2).shared()));
    let mut other = pin!(table.wait_async(&8, || true, how(3)));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    let wake = |expected: Option<(u64, bool)>| {
        let expected = expected.map(|(tag, more)| Chosen { tag: Tag(tag), more });
        table.wake_one(&7, |chosen| {
            assert_eq!(chosen, expected);
            Token(40 + chosen.map_or(0, |chosen| chosen.tag.0))
        })
    };
    assert!(wake(Some((1, true))));
    assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(Outcome::Woken(Token(41))));
    assert!(wake(Some((2, false))));
    assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(Outcome::Woken(Token(42))));
    assert!(!wake(None));
    assert!(other.as_mut().poll(&mut context).is_pending());
}

#[test]
fn a_panic_of_the_choice_wakes_the_chosen() {
    let table = table::<u32>(1);
    let mut context = Context::from_waker(Waker::noop());
    let mut waits = pin!(table.wait_async(&7, || true, Reason::OTHER));
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let wake = || table.wake_one(&7, |_| std::panic::resume_unwind(Box::new(())));
    assert!(catch_unwind(AssertUnwindSafe(wake)).is_err());
    assert_eq!(waits.as_mut().poll(&mut context), Poll::Ready(Outcome::Woken(Token(0))));
    assert_eq!(queued(&table), 0);
}

#[test]
fn a_wait_is_told_whether_it_is_first_and_last() {
    let table = table::<u32>(1);
    let mut context = Context::from_waker(Waker::noop());
    let mut told = Vec::new();
    let wait = |told: &mut Vec<_>| {
        let (mut first, mut last) = (None, None);
        let outcome = table.wait_with(
            &7,
            |is_first| {
                first = Some(is_first);
                true
            },
            || (),
            |key, was_last| last = Some((*key, was_last)),
            past(),
        );
        assert_eq!(outcome, Outcome::TimedOut);
        told.push((first, last));
    };
    wait(&mut told);
    let mut other = pin!(table.wait_async(&7, || true, Reason::OTHER));
    assert!(other.as_mut().poll(&mut context).is_pending());
    wait(&mut told);
    assert_eq!(told, [(Some(true), Some((7, true))), (Some(false), Some((7, false)))]);
}

/// A waiter that was moved learns for which key it has waited in the end.
#[test]
fn before_it_sleeps_a_waiter_can_be_found() {
    let table = table::<u32>(1);
    let mut left = None;
    let outcome = table.wait_with(
        &7,
        |_| true,
        || assert_eq!(table.requeue(&7, &8, 0, 1).moved, 1),
        |key, was_last| left = Some((*key, was_last)),
        past(),
    );
    assert_eq!((outcome, left), (Outcome::TimedOut, Some((8, true))));
    let wakes_itself = || assert!(table.wake_one(&7, |_| Token(3)));
    let outcome = table.wait_with(&7, |_| true, wakes_itself, |_, _| (), Reason::OTHER);
    assert_eq!(outcome, Outcome::Woken(Token(3)));
    let never = || panic!("it does not sleep");
    assert_eq!(table.wait_with(&7, |_| false, never, |_, _| (), past()), Outcome::Invalid);
}

#[test]
fn a_panic_before_the_sleep_leaves_the_queue() {
    for chosen in [false, true] {
        let table = table::<u32>(1);
        let mut context = Context::from_waker(Waker::noop());
        let mut behind = pin!(table.wait_async(&7, || true, Reason::OTHER));
        let before_sleep = || {
            assert!(behind.as_mut().poll(&mut context).is_pending());
            assert!(!chosen || table.wake_one(&7, |_| Token(3)));
            std::panic::resume_unwind(Box::new(()));
        };
        let wait = || table.wait_with(&7, |_| true, before_sleep, |_, _| (), Reason::OTHER);
        assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
        // What had chosen it goes to the next.
        let polled = behind.as_mut().poll(&mut context);
        let woken = Poll::Ready(Outcome::Woken(Token(3)));
        assert_eq!(polled, if chosen { woken } else { Poll::Pending });
        assert_eq!(queued(&table), usize::from(!chosen));
    }
}

/// To those that a drop of a task passes it on to: none where all were woken.
#[test]
fn a_panic_before_the_sleep_passes_the_wake_on() {
    let how = |shared| match shared {
        true => Wait::new(Reason::OTHER).shared(),
        false => Wait::new(Reason::OTHER),
    };
    for [own, next] in [[false, true], [true, false], [true, true]] {
        for of_all in [false, true] {
            let table = table::<u32>(1);
            let mut context = Context::from_waker(Waker::noop());
            let mut behind = pin!(table.wait_async(&7, || true, how(next)));
            let before_sleep = || {
                if of_all {
                    assert_eq!(table.wake_all(&7).total(), 1);
                }
                assert!(behind.as_mut().poll(&mut context).is_pending());
                assert!(of_all || table.wake_one(&7, |_| Token(3)));
                std::panic::resume_unwind(Box::new(()));
            };
            let wait = || table.wait_with(&7, |_| true, before_sleep, |_, _| (), how(own));
            assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
            let woken = Poll::Ready(Outcome::Woken(Token(3)));
            let polled = behind.as_mut().poll(&mut context);
            assert_eq!(polled, if of_all { Poll::Pending } else { woken }, "{own} {next}");
        }
    }
}

/// Others in the bucket may hide that nobody waits.
#[test]
fn a_requeue_of_nobody_does_not_validate() {
    let table = WaitTable::<u32>::builder().buckets(1).signature(false).build();
    let mut context = Context::from_waker(Waker::noop());
    let mut other = pin!(table.wait_async(&1, || true, Reason::OTHER));
    assert!(other.as_mut().poll(&mut context).is_pending());
    let validate = || panic!("nobody waits");
    assert_eq!(table.requeue_if(&7, &8, 1, 1, validate), Some(Requeued::default()));
}
