#![expect(unsafe_code, reason = "a test takes the ring's descriptor away")]

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::mpsc;

use super::*;
use crate::{DeviceFile, Direction, HugePages, IoBuf, Map};

const LEN: usize = 4096;

const KINDS: [QueueKind; 3] = [QueueKind::IoUring, QueueKind::Aio, QueueKind::Threads];

/// A queue with one file of `LEN` bytes, or `None` where there are none of this kind.
fn queue(kind: QueueKind) -> Option<(Arc<TransferQueue>, DeviceFile, Map)> {
    let queue = TransferQueue::new(kind);
    if queue.kind() != Some(kind) {
        println!("skipped: {kind:?} is not allowed here");
        return None;
    }
    // On a disk, past the page cache where that is possible: a read that the page cache serves is
    // complete when it is submitted.
    let dir = std::env::current_exe().unwrap();
    let file: File = tempfile::tempfile_in(dir.parent().unwrap()).unwrap();
    rustix::io::write(&file, &[9; LEN]).unwrap();
    rustix::fs::fsync(&file).unwrap();
    let _ = rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::DIRECT);
    let file = queue.inbox.files.insert(file.into()).unwrap();
    Some((queue, file, Map::new(LEN, HugePages::AsConfigured).unwrap()))
}

fn read(file: DeviceFile, map: &Map, tag: u64) -> Transfer {
    let bufs = IoBuf { start: map.start(), len: LEN }.into();
    Transfer { direction: Direction::Read, file, offset: 0, bufs, tag }
}

/// Who polls, with deadlines that have passed or interrupted each time, gets its completions.
#[test]
fn a_poller_gets_its_completions() {
    for (kind, interrupted) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let Some((queue, file, map)) = queue(kind) else { continue };
        queue.inbox.submit(read(file, &map, 1));
        let mut out = Vec::new();
        for _poll in 0..1_000_000 {
            if interrupted {
                queue.inbox.interrupt();
                queue.reap(&mut out, Deadline::NEVER);
            } else {
                queue.reap(&mut out, Deadline::after(Duration::ZERO));
            }
            if !out.is_empty() {
                break;
            }
        }
        let expected = [Completion { tag: 1, result: Ok(LEN) }];
        if out != expected {
            // The device still has the memory.
            std::mem::forget(map);
            panic!("{kind:?}, interrupted: {interrupted}: {out:?}");
        }
        queue.shut_down();
    }
}

/// A thread that reaped once ends although the ring's next owner sleeps.
#[test]
fn former_owner_ends_while_next_sleeps() {
    let Some((queue, ..)) = queue(QueueKind::IoUring) else { return };
    let (reaped, hear_reaped) = mpsc::channel();
    let (asleep, hear_asleep) = mpsc::channel::<()>();
    let (ended, hear_ended) = mpsc::channel();
    let former = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            queue.reap(&mut Vec::new(), Deadline::after(Duration::ZERO));
            reaped.send(()).unwrap();
            hear_asleep.recv().unwrap();
        }
    });
    hear_reaped.recv().unwrap();
    let next = thread::spawn({
        let queue = Arc::clone(&queue);
        move || queue.reap(&mut Vec::new(), Deadline::NEVER)
    });
    while !queue.inbox.pending.lock().asleep {
        thread::yield_now();
    }
    asleep.send(()).unwrap();
    let joiner = thread::spawn(move || {
        former.join().unwrap();
        ended.send(()).unwrap();
    });
    let heard = hear_ended.recv_timeout(Duration::from_secs(10));
    queue.inbox.interrupt();
    next.join().unwrap();
    joiner.join().unwrap();
    assert_eq!(heard, Ok(()), "the former owner waited for the sleeper");
}

/// What the kernel refuses to take for good completes with its error, and workers take over.
#[test]
fn refused_entries_complete_with_the_error() {
    let Some((queue, file, map)) = queue(QueueKind::IoUring) else { return };
    let mut out = Vec::new();
    queue.reap(&mut out, Deadline::after(Duration::ZERO));
    {
        let reaper = queue.reaper.lock();
        let ring = reaper.driver.as_ref().unwrap().ring_fd().unwrap();
        // SAFETY: the ring owns the number, which stays open; dup2 puts another file behind it.
        let mut place = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(ring) });
        rustix::io::dup2(queue.inbox.bell.as_ref().unwrap(), &mut place).unwrap();
    }
    queue.inbox.submit(read(file, &map, 1));
    queue.inbox.submit(read(file, &map, 2));
    queue.reap(&mut out, Deadline::after(Duration::from_secs(10)));
    let refused: Vec<_> = out.drain(..).map(|done| (done.tag, done.result)).collect();
    assert!(matches!(refused[..], [(1, Err(_)), (2, Err(_))]), "{refused:?}");
    assert!(queue.reaper.lock().is_broken());
    queue.inbox.submit(read(file, &map, 3));
    queue.reap(&mut out, Deadline::NEVER);
    assert_eq!(out, [Completion { tag: 3, result: Ok(LEN) }]);
    assert!(queue.reaper.lock().is_driverless);
    queue.shut_down();
}

/// A thread that has reaped keeps nothing of a device that another has dropped.
#[test]
fn a_queue_that_another_thread_ends_is_forgotten() {
    for kind in KINDS {
        let Some((ended, file, map)) = queue(kind) else { continue };
        ended.inbox.submit(read(file, &map, 1));
        let mut out = Vec::new();
        ended.reap(&mut out, Deadline::NEVER);
        assert_eq!(out, [Completion { tag: 1, result: Ok(LEN) }]);
        thread::scope(|scope| scope.spawn(|| ended.shut_down()).join().unwrap());
        // The thread looks through what it drives when it drives another.
        let Some((next, ..)) = queue(kind) else { continue };
        next.reap(&mut out, Deadline::after(Duration::ZERO));
        assert_eq!(Arc::strong_count(&ended), 1, "{kind:?}");
        next.shut_down();
    }
}

/// As a container's filter does it.
#[test]
fn what_is_forbidden_is_not_used() {
    crate::refusal::in_child(|| {
        let kind = || TransferQueue::new(QueueKind::IoUring).kind().unwrap();
        if kind() != QueueKind::IoUring {
            return println!("skipped: io_uring is not allowed here");
        }
        crate::refusal::refuse_call(libc::SYS_io_uring_setup);
        if kind() != QueueKind::Aio {
            return println!("skipped: AIO is not allowed here");
        }
        crate::refusal::refuse_call(libc::SYS_io_submit);
        assert_eq!(kind(), QueueKind::Threads);
        let (queue, file, map) = queue(QueueKind::Threads).unwrap();
        queue.inbox.submit(read(file, &map, 1));
        let mut out = Vec::new();
        queue.reap(&mut out, Deadline::NEVER);
        assert_eq!(out, [Completion { tag: 1, result: Ok(LEN) }]);
        queue.shut_down();
    });
}

/// AIO that is forbidden while it is used: what is under way ends, and workers make the rest.
#[test]
fn what_is_forbidden_later_is_not_used_any_more() {
    crate::refusal::in_child(|| {
        let Some((queue, file, map)) = queue(QueueKind::Aio) else { return };
        let mut out = Vec::new();
        for tag in 1..4 {
            queue.inbox.submit(read(file, &map, tag));
            queue.reap(&mut out, Deadline::NEVER);
            assert_eq!(out.pop(), Some(Completion { tag, result: Ok(LEN) }));
            crate::refusal::refuse_call(libc::SYS_io_submit);
        }
        queue.reap(&mut out, Deadline::after(Duration::from_millis(20)));
        assert!(out.is_empty() && queue.reaper.lock().is_driverless);
        queue.shut_down();
    });
}

/// Another thread may sleep on a bell that rang in the owner's last wait.
#[test]
fn an_owner_that_ends_rings_the_bell() {
    for kind in [QueueKind::IoUring, QueueKind::Aio] {
        let Some((queue, file, map)) = queue(kind) else { continue };
        queue.inbox.submit(read(file, &map, 1));
        let mut out = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let mut out = Vec::new();
                queue.reap(&mut out, Deadline::after(Duration::ZERO));
                out
            }
        })
        .join()
        .unwrap();
        let bell = queue.inbox.bell.as_ref().unwrap();
        assert!(rustix::io::read(bell, &mut [0; 8]).is_ok(), "{kind:?}");
        if out.is_empty() {
            queue.reap(&mut out, Deadline::NEVER);
        }
        assert_eq!(out, [Completion { tag: 1, result: Ok(LEN) }]);
        queue.shut_down();
    }
}

/// A driver that has broken with something in flight.
#[derive(Debug)]
struct Broken;

impl Driver for Broken {
    fn push(&mut self, _mark: u64, _fd: std::os::fd::BorrowedFd<'_>, _transfer: &Transfer) {
        panic!("it takes nothing");
    }

    fn push_bell(&mut self, _bell: std::os::fd::BorrowedFd<'_>) {
        panic!("it takes nothing");
    }

    fn has_pushed(&self) -> bool {
        false
    }

    fn enter(&mut self, _wait: Option<Wait>) -> Settled {
        Settled::Short
    }

    fn next_done(&mut self) -> Option<(u64, Outcome)> {
        None
    }

    fn is_broken(&self) -> bool {
        true
    }

    fn is_of_one_thread(&self) -> bool {
        true
    }
}

/// What waits for a broken driver's last transfer does not hold up others.
#[test]
fn workers_go_on_beside_a_broken_driver() {
    let (queue, file, map) = queue(QueueKind::Threads).unwrap();
    {
        let mut reaper = queue.reaper.lock();
        reaper.driver = Some(Box::new(Broken));
        reaper.in_flight.push(None);
        queue.owner.store(this_thread(), Ordering::Relaxed);
    }
    queue.inbox.submit(read(file, &map, 1));
    let mut out = Vec::new();
    queue.reap(&mut out, Deadline::NEVER);
    assert_eq!(out, [Completion { tag: 1, result: Ok(LEN) }]);
    queue.reaper.lock().in_flight.clear();
    queue.shut_down();
}
