//! Descriptors of the real kernel, and who leads. Waits have a deadline, which ends a test that
//! hangs.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use unherd_sys::primitives::{AtomicBool, Ordering, thread};
use unherd_sys::{Deadline, Timestamp};

use super::*;
use crate::ReadyBatch;
use crate::ready_set::tests::{drain, sleepers, until};

fn wait(set: &ReadySet) -> Vec<SourceToken> {
    let mut batch = ReadyBatch::with_capacity(8);
    set.wait(&mut batch, Deadline::after(Duration::from_secs(20)));
    batch.tokens().to_vec()
}

/// What is there now.
fn look(set: &ReadySet) -> Vec<SourceToken> {
    let mut batch = ReadyBatch::with_capacity(8);
    set.wait(&mut batch, Deadline::at(Timestamp::from_ns(0)));
    batch.tokens().to_vec()
}

fn pair(set: &ReadySet) -> (UnixStream, FdSource<UnixStream>) {
    let (writer, reader) = UnixStream::pair().unwrap();
    (writer, set.fd(reader, Interest::Readable).unwrap())
}

fn is_asleep_in_kernel(set: &ReadySet) -> bool {
    set.0.lead.is_asleep()
}

#[test]
fn each_edge_posts_once() {
    let set = ReadySet::new(4);
    let (mut writer, source) = pair(&set);
    assert_eq!(look(&set), []);
    for _ in 0..2 {
        writer.write_all(b"x").unwrap();
        assert_eq!(wait(&set), [source.token()]);
        assert_eq!(look(&set), []);
    }
    drop(writer);
    assert_eq!(wait(&set), [source.token()], "the end is an event");
}

#[test]
fn a_regular_file_is_always_ready() {
    let set = ReadySet::new(4);
    let file = set.fd(File::open("Cargo.toml").unwrap(), Interest::Both).unwrap();
    assert!(file.is_always_ready());
    assert_eq!(wait(&set), [file.token()]);
    set.rearm(file.token());
    assert_eq!(drain(&set, 8), [file.token()]);
}

#[test]
#[expect(unsafe_code, reason = "a number under which nothing is open")]
fn what_cannot_be_polled_says_why() {
    let set = ReadySet::new(2);
    // SAFETY: no process has that many; nothing is done to what it does not name.
    let closed = unsafe { BorrowedFd::borrow_raw(1 << 29) };
    let error = set.fd(closed, Interest::Both).unwrap_err();
    assert_eq!(error, FdError::Closed { fd: 1 << 29 });
    assert_eq!(error.to_string(), "descriptor 536870912 is not open");
    let (_writer, source) = pair(&set);
    let again = set.fd(source.get_ref(), Interest::Readable).unwrap_err();
    assert!(matches!(again, FdError::Registered { .. }), "{again}");
    let _other = set.source().unwrap();
    let full = set.fd(UnixStream::pair().unwrap().0, Interest::Both).unwrap_err();
    assert_eq!(full, FdError::Full(SetFull { sources: 2 }));
    // The places of those that failed were given back.
    drop(source);
    assert!(set.source().is_ok());
}

#[test]
fn a_number_that_is_used_again_is_another_source() {
    let set = ReadySet::new(4);
    let (mut writer, reader) = UnixStream::pair().unwrap();
    let source = set.fd(&reader, Interest::Readable).unwrap();
    let token = source.token();
    writer.write_all(b"x").unwrap();
    // A duplicate keeps what the kernel knows of the old one.
    let _duplicate = reader.try_clone().unwrap();
    drop(source);
    let (mut writer, successor) = UnixStream::pair().unwrap();
    replace(reader.as_raw_fd(), &successor);
    let source = set.fd(&reader, Interest::Readable).unwrap();
    assert_ne!(source.token(), token);
    assert_eq!(look(&set), []);
    writer.write_all(b"y").unwrap();
    assert_eq!(wait(&set), [source.token()]);
}

/// Closes `number` and makes it a duplicate of `successor`, in one step: other tests open files.
#[expect(unsafe_code, reason = "what safe code cannot do")]
fn replace(number: RawFd, successor: &UnixStream) {
    // SAFETY: two integers; whose number it is knows that it changes.
    assert_eq!(unsafe { libc::dup2(successor.as_raw_fd(), number) }, number);
}

/// The number is closed behind the back of its source, and registered again before that is gone.
#[test]
fn a_number_closed_by_other_means_is_another_source() {
    let set = ReadySet::new(4);
    let (_old_writer, reader) = UnixStream::pair().unwrap();
    let old = set.fd(&reader, Interest::Readable).unwrap();
    let (mut writer, successor) = UnixStream::pair().unwrap();
    replace(reader.as_raw_fd(), &successor);
    let new = set.fd(&reader, Interest::Readable).unwrap();
    drop(old);
    writer.write_all(b"x").unwrap();
    assert_eq!(wait(&set), [new.token()]);
}

#[test]
fn a_post_reaches_the_leader() {
    let set = ReadySet::new(4);
    let (_writer, _fd) = pair(&set);
    let source = set.source().unwrap();
    thread::scope(|scope| {
        let leader = scope.spawn(|| wait(&set));
        until(|| is_asleep_in_kernel(&set));
        source.post();
        assert_eq!(leader.join().unwrap(), [source.token()]);
    });
}

#[test]
fn sleepers_follow_the_first_descriptor() {
    let set = ReadySet::new(4);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait(&set));
        until(|| sleepers(&set) == 1);
        let (mut writer, source) = pair(&set);
        writer.write_all(b"x").unwrap();
        assert_eq!(sleeper.join().unwrap(), [source.token()]);
    });
}

/// A leader, and a thread in the table, with a task before it that is never polled again. When the
/// leader has left its wait, given an event or not, which `leave` says by `left`, the other thread
/// finds the next one, though `leave` may not return before `is_over`.
fn lead_is_handed_on(
    has_event: bool,
    leave: impl FnOnce(&ReadySet, &AtomicBool, &AtomicBool) + Send,
) {
    let set = ReadySet::new(4);
    let (mut writer, source) = pair(&set);
    let (mut first_writer, _first) = pair(&set);
    let (left, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let leader = scope.spawn(|| leave(&set, &left, &is_over));
        until(|| is_asleep_in_kernel(&set) || is_set(&left));
        let mut batch = ReadyBatch::with_capacity(1);
        let mut task = pin!(set.wait_async(&mut batch));
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let other = scope.spawn(|| wait(&set));
        until(|| sleepers(&set) == 2 || is_set(&left));
        if has_event {
            first_writer.write_all(b"x").unwrap();
        }
        until(|| is_set(&left));
        writer.write_all(b"x").unwrap();
        let found = other.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
        leader.join().unwrap();
        assert_eq!(found, [source.token()]);
    });
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

#[test]
fn a_handler_that_lasts_hands_the_lead_on() {
    lead_is_handed_on(true, |set, left, is_over| {
        assert_eq!(wait(set).len(), 1);
        left.store(true, Ordering::Relaxed);
        until(|| is_set(is_over));
    });
}

#[test]
fn a_handler_that_panics_hands_the_lead_on() {
    lead_is_handed_on(true, |set, left, _| {
        let handler = || {
            assert_eq!(wait(set).len(), 1);
            left.store(true, Ordering::Relaxed);
            panic!("as the test wants it");
        };
        assert!(catch_unwind(AssertUnwindSafe(handler)).is_err());
    });
}

#[test]
fn a_leader_that_gives_up_hands_the_lead_on() {
    lead_is_handed_on(false, |set, left, _| {
        let soon = Deadline::after(Duration::from_millis(20));
        assert_eq!(set.wait(&mut ReadyBatch::with_capacity(1), soon), 0);
        left.store(true, Ordering::Relaxed);
    });
}

/// What a leader finds and has no room for is others' to take, at once.
#[test]
fn a_full_batch_wakes_another_waiter() {
    let set = ReadySet::new(4);
    let (mut writer, _source) = pair(&set);
    let (mut other_writer, _other) = pair(&set);
    let mut batch = ReadyBatch::with_capacity(1);
    let mut task = Box::pin(set.wait_async(&mut batch));
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    writer.write_all(b"x").unwrap();
    other_writer.write_all(b"x").unwrap();
    assert_eq!(sleepers(&set), 1);
    assert_eq!(set.wait(&mut ReadyBatch::with_capacity(1), Deadline::NEVER), 1);
    assert_eq!(sleepers(&set), 0, "an event is left, and nobody was woken for it");
}

#[test]
fn a_dropped_task_wakes_the_leader() {
    let set = ReadySet::new(4);
    let (_writer, _fd) = pair(&set);
    let source = set.source().unwrap();
    let mut batch = ReadyBatch::with_capacity(1);
    let mut task = Box::pin(set.wait_async(&mut batch));
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    thread::scope(|scope| {
        let leader = scope.spawn(|| wait(&set));
        until(|| is_asleep_in_kernel(&set));
        source.post();
        assert_eq!(sleepers(&set), 0, "the task was chosen");
        drop(task);
        assert_eq!(leader.join().unwrap(), [source.token()]);
    });
}

#[test]
fn a_flood_of_posts_hides_no_descriptor() {
    let set = ReadySet::new(4);
    let (mut writer, fd) = pair(&set);
    let source = set.source().unwrap();
    writer.write_all(b"x").unwrap();
    let is_found = (0..100).any(|_| {
        source.post();
        wait(&set).contains(&fd.token())
    });
    assert!(is_found, "the kernel was not asked");
}

/// Also where the kernel is looked at beside a check that has found events.
#[test]
fn a_batch_has_each_source_once() {
    let set = ReadySet::new(8);
    let (mut writer, source) = pair(&set);
    for _ in 0..100 {
        writer.write_all(b"x").unwrap();
        source.post();
        assert_eq!(wait(&set), [source.token()]);
    }
}

/// It is the caller's code, and may give another descriptor each time.
#[test]
fn a_descriptor_is_asked_for_once_and_without_a_lock() {
    struct Asked<'a>(&'a ReadySet, Cell<BorrowedFd<'a>>, Cell<u32>);
    impl AsFd for Asked<'_> {
        fn as_fd(&self) -> BorrowedFd<'_> {
            drop(self.0.source());
            self.2.set(self.2.get() + 1);
            self.1.get()
        }
    }
    let set = ReadySet::new(8);
    let (first, second) = UnixStream::pair().unwrap();
    let asked = Asked(&set, Cell::new(first.as_fd()), Cell::new(0));
    let source = set.fd(&asked, Interest::Readable).unwrap();
    assert_eq!(asked.2.get(), 1);
    asked.1.set(second.as_fd());
    drop(source);
    assert!(set.0.places.lock().numbers.is_empty());
}
