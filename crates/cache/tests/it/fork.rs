//! A child made by fork(2) while a cache is open: it may not use it, does not hang, and leaves the
//! files as they are.
#![expect(unsafe_code, reason = "fork")]

use std::fs;
use std::path::Path;
use std::task::Poll;

use unherd_cache::{BuildError, Cache, Error, File, Io, PageNo};
use unherd_sys::primitives::{AtomicBool, Ordering, thread};
use unherd_testkit::{Content, Outcome, PageHistory, Seed, Stamp};

use crate::async_reads::executor::Task;
use crate::scene::{close, real_devices, real_dir, small, turn, writable};

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 64;
const FRAMES: usize = 16;

/// Runs `child` in a child, and gives what it has returned: 0, or what was wrong there. A child
/// that hangs is killed, and that is wrong too.
fn in_child(child: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child takes no lock that another thread may have had but those of malloc, which
    // glibc makes usable after a fork, and ends by `_exit`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        // SAFETY: a signal that is not handled ends the child.
        unsafe { libc::alarm(30) };
        let code = child();
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(code)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child started above.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

fn page_of(stamp: Stamp, sequence: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_BYTES];
    stamp.fill(sequence, &mut bytes);
    bytes
}

/// From the last page to the first: what is written in order is written behind.
fn write_all(file: &File) {
    for page in (0..PAGES).rev() {
        let bytes = page_of(Stamp { file: 0, page }, 1);
        assert_eq!(file.write_at(&bytes, page * PAGE_BYTES as u64).unwrap(), PAGE_BYTES);
    }
}

/// Everything that the child may try; which of it went wrong, or 0.
fn try_everything(cache: &Cache, file: &File, path: &Path) -> u8 {
    let is_forked = |error: Error| error == Error::Forked;
    let (mut hits, mut misses) = (0, 0);
    for page in 0..PAGES {
        let stamp = Stamp { file: 0, page };
        let looks = [
            file.page(PageNo(page)).map(|guard| guard.to_vec()),
            file.peek(PageNo(page), |peek| {
                let mut bytes = vec![0; PAGE_BYTES];
                peek.copy_to(0, &mut bytes).map(|()| bytes)
            }),
            {
                let mut bytes = vec![0; PAGE_BYTES];
                file.read_at(&mut bytes, page * PAGE_BYTES as u64).map(|_| bytes)
            },
            match Task::new(file.page_async(PageNo(page))).poll() {
                Poll::Ready(read) => read.map(|guard| guard.to_vec()),
                Poll::Pending => return 1,
            },
        ];
        for look in looks {
            match look {
                Ok(bytes) if stamp.examine(&bytes).is_ok() => hits += 1,
                Err(Error::Forked) => misses += 1,
                _ => return 1,
            }
        }
    }
    // There is not room for all.
    if hits + misses != 4 * PAGES || misses == 0 {
        return 2;
    }
    let refused = [
        file.write_at(&[0xff; PAGE_BYTES], 0).is_err_and(is_forked),
        file.write_at(&[0xff; 7], PAGES * PAGE_BYTES as u64).is_err_and(is_forked),
        file.page_mut(PageNo(0)).is_err_and(is_forked),
        file.set_len(0).is_err_and(is_forked),
        file.punch_hole(0..u64::MAX).is_err_and(is_forked),
        file.allocate(0..1 << 20).is_err_and(is_forked),
        file.sync_all().is_err_and(is_forked),
        cache.alloc_contiguous(0).is_err_and(is_forked),
        cache.open(path, writable()).is_err_and(is_forked),
        cache.open("/dev/null/no", writable()).is_err_and(is_forked),
    ];
    refused.iter().position(|&refused| !refused).map_or(0, |at| at as u8 + 10)
}

/// Threads of the parent are inside all the time, with whatever locked.
#[test]
fn a_child_among_busy_threads_is_refused_and_changes_nothing() {
    let _turn = turn();
    for (io, device) in real_devices() {
        let dir = real_dir();
        let cache = small(FRAMES, PAGE_BYTES).io(io).device(device).build().unwrap();
        let path = dir.path().join(format!("{io:?}"));
        let file = cache.open(&path, writable()).unwrap();
        write_all(&file);
        let histories: Vec<_> = (0..PAGES).map(|_| PageHistory::new(Content::Stamped)).collect();
        let enough = AtomicBool::new(false);
        let codes: Vec<i32> = thread::scope(|scope| {
            for number in 0..3 {
                let (file, histories, enough) = (&file, &histories, &enough);
                scope.spawn(move || {
                    let mut seed = Seed::new(number);
                    while !enough.load(Ordering::Relaxed) {
                        let page = seed.below(PAGES);
                        let history = &histories[page as usize];
                        let sequence = history.begin_write(Content::Stamped);
                        let bytes = page_of(Stamp { file: 0, page }, sequence);
                        file.write_at(&bytes, page * PAGE_BYTES as u64).unwrap();
                        history.end_write(sequence, Outcome::Done);
                        if seed.below(16) == 0 {
                            file.sync_all().unwrap();
                        }
                    }
                });
            }
            let codes = (0..20).map(|_| in_child(|| try_everything(&cache, &file, &path)));
            let codes = codes.collect();
            enough.store(true, Ordering::Relaxed);
            codes
        });
        assert!(codes.iter().all(|&code| code == 0), "{codes:?}");
        close(file).unwrap();
        for (bytes, page) in fs::read(&path).unwrap().chunks(PAGE_BYTES).zip(0..) {
            let found = Stamp { file: 0, page }.examine(bytes).unwrap();
            histories[page as usize]
                .end_read(histories[page as usize].begin_read(), found)
                .unwrap();
        }
    }
}

/// How many descriptors of this process are open on the file.
fn open_descriptors(path: &Path) -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    entries
        .filter(|entry| fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|at| at == path))
        .count()
}

/// The child drops all that it has of the cache, with pages that were never written back.
#[test]
fn what_a_child_drops_is_not_written() {
    let _turn = turn();
    for (io, device) in real_devices() {
        let dir = real_dir();
        let cache = small(2 * PAGES as usize, PAGE_BYTES).io(io).device(device).build().unwrap();
        let path = fs::canonicalize(dir.path()).unwrap().join(format!("{io:?}"));
        let file = cache.open(&path, writable()).unwrap();
        write_all(&file);
        let other = cache.open(&path, writable()).unwrap();
        let mut mine = Some((cache, file, other));
        let code = in_child(|| {
            let (cache, file, other) = mine.take().expect("the child's copy");
            drop(file.page_mut(PageNo(1)));
            if close(other) != Err(Error::Forked) {
                return 1;
            }
            drop(file);
            drop(cache);
            // The I/O thread, which is not here, would have had the last share of the cache.
            if io == Io::Blocking && open_descriptors(&path) > 0 { 2 } else { 0 }
        });
        assert_eq!(code, 0);
        assert_eq!(fs::read(&path).unwrap(), [], "somebody has written something back");
        let (cache, file, other) = mine.take().expect("the parent's own");
        close(other).unwrap();
        close(file).unwrap();
        drop(cache);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, PAGES * PAGE_BYTES as u64);
        for (bytes, page) in bytes.chunks(PAGE_BYTES).zip(0..) {
            assert!(bytes == page_of(Stamp { file: 0, page }, 1), "page {page}");
        }
    }
}

/// A page that the forking thread holds belongs to the parent's thread alone.
#[test]
fn guards_held_over_a_fork_end_in_both() {
    let _turn = turn();
    let dir = real_dir();
    let cache = small(8, PAGE_BYTES).build().unwrap();
    let file = cache.open(dir.path().join("f"), writable()).unwrap();
    let first = page_of(Stamp { file: 0, page: 0 }, 1);
    file.write_at(&first, 0).unwrap();
    let pinned = file.page(PageNo(0)).unwrap();
    let held = file.page_mut(PageNo(1)).unwrap();
    let mut guards = Some((pinned, held));
    let code = in_child(|| {
        let (pinned, mut held) = guards.take().expect("the child's copy");
        let was_right = pinned[..] == first[..] && held[..] == [0; PAGE_BYTES];
        held.write(0, &[0xee; 100]);
        drop(held);
        drop(pinned);
        u8::from(!was_right)
    });
    assert_eq!(code, 0);
    let (pinned, mut held) = guards.take().expect("the parent's own");
    assert!(held[..] == [0; PAGE_BYTES], "what the child wrote is the child's");
    held.write(0, &first);
    drop(held);
    assert!(pinned[..] == first[..]);
    drop((pinned, guards));
    close(file).unwrap();
    assert_eq!(fs::read(dir.path().join("f")).unwrap(), [&first[..], &first[..]].concat());
}

fn may_map_no_more_than(more: usize) {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let mapped = pages.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096;
    let most = (mapped + more) as libc::rlim_t;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: it bounds the calling process, a child.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

/// In a child that may not map it either, so that a cache that does not look takes nothing.
#[test]
fn capacity_beyond_the_machine_is_refused() {
    const CAPACITY: usize = 1 << 42;
    let _turn = turn();
    let code = in_child(|| {
        may_map_no_more_than(1 << 30);
        match Cache::builder().io(Io::Blocking).capacity(CAPACITY).build() {
            Err(BuildError::InsufficientMemory { bytes, available_bytes, .. }) => {
                u8::from(bytes < CAPACITY || available_bytes as usize >= bytes)
            }
            _ => 2,
        }
    });
    assert_eq!(code, 0);
}

/// In a child that may map only so much more, as the parent shall not lack memory.
#[test]
fn a_builder_that_gets_no_memory_says_for_what_and_how_much() {
    const MANY: usize = 1 << 18;
    const PAGES_BYTES: usize = MANY * 512;
    const FRAMES_BYTES: usize = MANY * 64;
    const INDEX_BYTES: usize = MANY * 16;
    let _turn = turn();
    for (more, what, bytes) in [
        (PAGES_BYTES / 2, "the pages", PAGES_BYTES),
        (PAGES_BYTES + FRAMES_BYTES / 2, "what is kept about frames", FRAMES_BYTES),
        // The heap is in need of some as well.
        (PAGES_BYTES + FRAMES_BYTES + INDEX_BYTES * 3 / 4, "the index", INDEX_BYTES),
    ] {
        let code = in_child(|| {
            may_map_no_more_than(more);
            match small(MANY, 512).huge_pages(false).build() {
                Err(BuildError::Memory { what: told, bytes: of, .. }) => {
                    u8::from((told, of) != (what, bytes))
                }
                _ => 2,
            }
        });
        assert_eq!(code, 0, "{what}");
    }
}
