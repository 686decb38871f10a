use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::mpsc;

use super::*;
use crate::{DeviceFile, HugePages, IoBuf, Map};

const LEN: usize = 4096;

/// A queue with one file of `LEN` bytes, or `None` where io_uring is not allowed.
fn queue() -> Option<(Arc<TransferQueue>, DeviceFile, Map)> {
    let queue = TransferQueue::new();
    if !queue.available() {
        println!("skipped: io_uring is not allowed here");
        return None;
    }
    // On a disk, past the page cache where that is possible: a read that the page cache serves is
    // complete when it is submitted.
    let dir = std::env::current_exe().unwrap();
    let file: File = tempfile::tempfile_in(dir.parent().unwrap()).unwrap();
    rustix::io::write(&file, &[9; LEN]).unwrap();
    rustix::fs::fsync(&file).unwrap();
    let _ = rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::DIRECT);
    let file = queue.files.insert(file.into()).unwrap();
    Some((queue, file, Map::new(LEN, HugePages::AsConfigured).unwrap()))
}

fn read(file: DeviceFile, map: &Map, tag: u64) -> Transfer {
    let bufs = IoBuf { start: map.start(), len: LEN }.into();
    Transfer { direction: Direction::Read, file, offset: 0, bufs, tag }
}

/// Who polls, with deadlines that have passed or interrupted each time, gets its completions.
#[test]
fn a_poller_gets_its_completions() {
    let Some((queue, file, map)) = queue() else { return };
    for interrupted in [false, true] {
        queue.submit(read(file, &map, 1));
        let mut out = Vec::new();
        for _poll in 0..1_000_000 {
            if interrupted {
                queue.interrupt();
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
            // The ring still has the memory.
            std::mem::forget(map);
            panic!("interrupted: {interrupted}: {out:?}");
        }
    }
}

/// A thread that reaped once ends although the ring's next owner sleeps.
#[test]
fn former_owner_ends_while_next_sleeps() {
    let Some((queue, ..)) = queue() else { return };
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
    while !queue.pending.lock().asleep {
        thread::yield_now();
    }
    asleep.send(()).unwrap();
    let joiner = thread::spawn(move || {
        former.join().unwrap();
        ended.send(()).unwrap();
    });
    let heard = hear_ended.recv_timeout(Duration::from_secs(10));
    queue.interrupt();
    next.join().unwrap();
    joiner.join().unwrap();
    assert_eq!(heard, Ok(()), "the former owner waited for the sleeper");
}

/// What the kernel refuses to take for good completes with its error, and a new ring takes over.
#[test]
fn refused_entries_complete_with_the_error() {
    let Some((queue, file, map)) = queue() else { return };
    let mut out = Vec::new();
    queue.reap(&mut out, Deadline::after(Duration::ZERO));
    {
        let reaper = queue.reaper.lock();
        let ring = reaper.ring.as_ref().unwrap().ring.as_raw_fd();
        // SAFETY: the ring owns the number, which stays open; dup2 puts another file behind it.
        let mut place = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(ring) });
        rustix::io::dup2(queue.bell.as_ref().unwrap(), &mut place).unwrap();
    }
    queue.submit(read(file, &map, 1));
    queue.submit(read(file, &map, 2));
    queue.reap(&mut out, Deadline::after(Duration::from_secs(10)));
    let refused: Vec<_> = out.drain(..).map(|done| (done.tag, done.result)).collect();
    assert!(matches!(refused[..], [(1, Err(_)), (2, Err(_))]), "{refused:?}");
    queue.submit(read(file, &map, 3));
    queue.reap(&mut out, Deadline::NEVER);
    assert_eq!(out, [Completion { tag: 3, result: Ok(LEN) }]);
}
