use std::time::Duration;

use unherd_sys::Timestamp;
use unherd_sys::primitives::{Arc, Mutex, thread};
#[cfg(feature = "async")]
use unherd_testkit::block_on;
use unherd_testkit::{Seed, SimDevice};

use crate::file::Core;
use crate::io::{BLOCKING_READS_MAX, READS_MAX};
use crate::state::runs::Engine;
use crate::{Advice, Cache, File, Io, OpenOptions, PageNo};

const PAGE: usize = 512;

/// Where the I/O thread is in a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing is done yet.
    Begun,
    /// The pages are published, and nobody is woken.
    Filled,
    /// All is done, except that nobody is woken for a write-back.
    Ended,
}

/// The caches whose I/O threads shall panic, and where.
static PANICS: Mutex<Vec<(u64, Step)>> = Mutex::new(Vec::new());

pub(super) fn reach(core: &Core, step: Step) {
    let panics = PANICS.lock().contains(&(core.files.number, step));
    assert!(!panics, "the I/O thread panics at {step:?}, as the test wants it");
}

fn scene() -> (Arc<SimDevice>, Cache, File) {
    scene_of(128)
}

fn scene_of(frames: usize) -> (Arc<SimDevice>, Cache, File) {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    device.put("f", &[7; 256 * PAGE]);
    let builder = Cache::builder().capacity(frames * PAGE).page_size(PAGE).io(Io::Queued);
    let builder = builder.frame_wait(Duration::from_secs(20)).device(device.clone());
    let cache = builder.build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true)).unwrap();
    (device, cache, file)
}

fn let_panic(cache: &Cache, step: Step) {
    PANICS.lock().push((cache.owner.core.files.number, step));
}

#[cfg(feature = "async")]
#[test]
fn a_panic_in_a_fill_fails_its_readers() {
    for step in [Step::Begun, Step::Filled, Step::Ended] {
        let (device, cache, file) = scene();
        let_panic(&cache, step);
        device.block_reads();
        thread::scope(|scope| {
            let run = scope.spawn(|| block_on(file.read_at_async(&mut [0; 8 * PAGE], 0)));
            device.wait_for_held_reads(1);
            let pages = [0, 2, 3].map(|page| {
                let file = &file;
                scope.spawn(move || file.page(PageNo(page)).map(|guard| guard[0]))
            });
            while cache.stats().deduplicated_misses < 3 {
                thread::yield_now();
            }
            device.release_reads();
            let read = run.join().unwrap();
            assert!(step != Step::Begun || read.is_err(), "{read:?}");
            for page in pages {
                let told = page.join().unwrap();
                assert!(told.is_err() == (step == Step::Begun) || told == Ok(7), "{told:?}");
            }
        });
        // The thread may be dying yet.
        while !cache.owner.core.io.engine.as_ref().unwrap().is_over() {
            thread::yield_now();
        }
        let later = block_on(file.page_async(PageNo(50))).map(|_| ());
        assert!(later.is_err(), "{step:?}: {later:?}");
    }
}

#[test]
fn a_panic_in_a_fill_fails_the_thread_that_queued_it() {
    const READERS: usize = BLOCKING_READS_MAX as usize + 1;
    for step in [Step::Begun, Step::Filled, Step::Ended] {
        let (device, cache, file) = scene_of(256);
        file.advise(Advice::Random);
        let_panic(&cache, step);
        device.block_reads();
        let read_first = |page| file.page(PageNo(page)).map(|guard| guard[0]);
        let read: Vec<_> = thread::scope(|scope| {
            let read_first = &read_first;
            let readers: Vec<_> =
                (0..READERS as u64).map(|page| scope.spawn(move || read_first(page))).collect();
            device.wait_for_held_reads(READERS);
            device.release_reads();
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        let failed = read.iter().filter(|read| read.is_err()).count();
        assert_eq!(failed, usize::from(step == Step::Begun), "{step:?}");
        assert!(read.iter().flatten().all(|byte| *byte == 7));
        // The others still read by themselves.
        assert_eq!(file.page(PageNo(READERS as u64)).unwrap()[0], 7);
    }
}

/// Readers beyond those that the device has.
const REST: usize = 30;

fn engine(cache: &Cache) -> &Engine {
    cache.owner.core.io.engine.as_ref().unwrap()
}

fn eventually(holds: impl Fn() -> bool) -> bool {
    let end = Timestamp::now().after(Duration::from_secs(10));
    while !holds() && Timestamp::now() < end {
        thread::yield_now();
    }
    holds()
}

#[test]
fn reads_of_threads_beyond_a_number_are_kept_back() {
    let (device, cache, file) = scene_of(512);
    file.advise(Advice::Random);
    device.block_reads();
    let read_first = |page| file.page(PageNo(page)).map(|guard| guard[0]);
    let are_kept_back = thread::scope(|scope| {
        let read_first = &read_first;
        let readers: Vec<_> = (0..u64::from(READS_MAX) + REST as u64)
            .map(|page| scope.spawn(move || read_first(page)))
            .collect();
        let are_kept_back = eventually(|| {
            device.held_reads() == READS_MAX as usize && engine(&cache).deferred() == REST
        });
        device.release_reads();
        readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), Ok(7)));
        are_kept_back
    });
    assert!(are_kept_back);
}

/// How many of `tasks` reads by tasks are at the device, beside as many own reads as `begin` says
/// there are then, and as `end` says after that. All end in the end.
#[cfg(feature = "async")]
fn held_beside_own_reads(tasks: usize, [begin, end]: [u32; 2]) -> [usize; 2] {
    use std::future::Future;
    use std::task::{Context, Waker};

    let (device, cache, file) = scene_of(512);
    file.advise(Advice::Random);
    device.block_reads();
    let engine = engine(&cache);
    let memory = cache.owner.core.memory();
    // They are no more than counted.
    let mut own: Vec<_> =
        (0..begin).map(|_| engine.try_begin_blocking_read(memory, false).unwrap()).collect();
    let mut reads: Vec<_> =
        (0..tasks).map(|page| Box::pin(file.page_async(PageNo(page as u64)))).collect();
    let mut context = Context::from_waker(Waker::noop());
    let are_pending = reads.iter_mut().all(|read| read.as_mut().poll(&mut context).is_pending());
    let all_come = || eventually(|| device.held_reads() + engine.deferred() == tasks);
    let mut held = [begin, end].map(|count| {
        own.truncate(count as usize);
        if all_come() { device.held_reads() } else { usize::MAX }
    });
    drop(own);
    // One that is kept back is dropped: it is read all the same, and its slot is free after that.
    drop(reads.pop());
    device.release_reads();
    if !are_pending || !eventually(|| engine.deferred() == 0) {
        held = [usize::MAX; 2];
    }
    if held != [usize::MAX; 2] {
        for read in reads {
            assert_eq!(block_on(read).map(|guard| guard[0]), Ok(7));
        }
        assert_eq!(file.page(PageNo(tasks as u64 - 1)).unwrap()[0], 7);
        // A page can be had a moment before its slot is free.
        assert!(eventually(|| engine.used_slots() == 0));
        return held;
    }
    // They would be waited for.
    std::mem::forget(reads);
    std::mem::forget((file, cache));
    held
}

#[cfg(feature = "async")]
#[test]
fn reads_of_tasks_go_to_the_device_until_it_has_enough() {
    let most = READS_MAX as usize;
    assert_eq!(held_beside_own_reads(most + REST, [0, 0]), [most, most]);
}

#[cfg(feature = "async")]
#[test]
fn some_queued_reads_go_to_the_device_however_many_threads_read() {
    let least = (READS_MAX - BLOCKING_READS_MAX) as usize;
    assert_eq!(held_beside_own_reads(least + REST, [2 * READS_MAX; 2]), [least, least]);
}

#[cfg(feature = "async")]
#[test]
fn the_end_of_a_threads_own_read_begins_what_is_kept_back() {
    let least = (READS_MAX - BLOCKING_READS_MAX) as usize;
    let tasks = least + REST;
    assert_eq!(held_beside_own_reads(tasks, [READS_MAX, 0]), [least, tasks]);
}

#[test]
fn a_panic_in_a_write_back_fails_the_sync() {
    for step in [Step::Begun, Step::Ended] {
        let (_device, cache, file) = scene();
        // Nothing is written behind: the sync has all of it to write.
        file.advise(Advice::Random);
        file.write_at(&[1; 20 * PAGE], 0).unwrap();
        let_panic(&cache, step);
        thread::scope(|scope| {
            // Some of the pages are replaced by newer ones.
            let writer = scope.spawn(|| file.write_at(&[2; 20 * PAGE], 0));
            let synced = file.sync_all();
            assert!(synced.is_err(), "{step:?}");
            let _ = writer.join().unwrap();
        });
        // Those who exclude write-backs get in.
        let _ = (file.set_len(0), file.close());
    }
}

#[test]
fn what_is_read_ahead_gives_its_slot_back() {
    let (_device, cache, file) = scene();
    for page in (0..64).map(PageNo) {
        assert_eq!(file.prefetch(&[page]), 1);
        file.page(page).unwrap();
    }
    let used = engine(&cache).used_slots();
    // A page can be had a moment before its slot is free.
    assert!(used <= 4, "{used}");
}

#[test]
fn the_end_of_a_read_ahead_is_told_to_who_waits_for_a_frame() {
    let (device, cache, file) = scene();
    // All frames but four are pinned, and these four are read into.
    let pinned: Vec<_> = (0..124).map(|page| file.page(PageNo(page)).unwrap()).collect();
    device.block_reads();
    assert_eq!(file.prefetch(&[200, 201, 202, 203].map(PageNo)), 4);
    let (sent, received) = std::sync::mpsc::channel();
    let asleep = Timestamp::now().after(Duration::from_millis(50));
    thread::scope(|scope| {
        scope.spawn(|| sent.send(file.page(PageNo(210)).map(|guard| guard[0])));
        let waiters = &cache.owner.core.supply().waiters;
        // It is asleep a moment after it has entered.
        while waiters.events.count() == 0 || Timestamp::now() < asleep {
            thread::yield_now();
        }
        device.release_reads();
        // Untold, it sleeps for 20 s, and then finds one.
        assert_eq!(received.recv_timeout(Duration::from_secs(10)), Ok(Ok(7)));
    });
    drop(pinned);
}
