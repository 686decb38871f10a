use std::time::Duration;

use unherd_sys::Timestamp;
use unherd_sys::primitives::{Arc, Mutex, thread};
#[cfg(feature = "async")]
use unherd_testkit::block_on;
use unherd_testkit::{Seed, SimDevice};

use crate::file::Core;
use crate::file::runs::Engine;
use crate::io::{OWN_READS_MAX, READS_MAX};
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
    let panics = PANICS.lock().contains(&(core.number, step));
    assert!(!panics, "the I/O thread panics at {step:?}, as the test wants it");
}

fn scene() -> (Arc<SimDevice>, Cache, File) {
    scene_of(128)
}

fn scene_of(frames: usize) -> (Arc<SimDevice>, Cache, File) {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    device.put("f", &[7; 256 * PAGE]);
    let builder = Cache::builder().capacity(frames * PAGE).page_size(PAGE).io(Io::Ring);
    let builder = builder.frame_wait(Duration::from_secs(20)).device(device.clone());
    let cache = builder.build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true)).unwrap();
    (device, cache, file)
}

fn let_panic(cache: &Cache, step: Step) {
    PANICS.lock().push((cache.owner.core.number, step));
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
    const READERS: usize = OWN_READS_MAX as usize + 1;
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

fn eventually(holds: impl Fn(&Engine) -> bool, cache: &Cache) -> bool {
    let engine = cache.owner.core.io.engine.as_ref().unwrap();
    let end = Timestamp::now().after(Duration::from_secs(10));
    while !holds(engine) && Timestamp::now() < end {
        thread::yield_now();
    }
    holds(engine)
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
        device.wait_for_held_reads(READS_MAX as usize);
        let are_kept_back = eventually(|engine| engine.kept_back() == REST, &cache);
        device.release_reads();
        readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), Ok(7)));
        are_kept_back
    });
    assert!(are_kept_back);
}

#[cfg(feature = "async")]
#[test]
fn reads_of_tasks_go_to_the_device_until_it_has_enough() {
    use std::future::Future;
    use std::task::{Context, Waker};

    let (device, cache, file) = scene_of(512);
    file.advise(Advice::Random);
    device.block_reads();
    let mut tasks: Vec<_> = (0..READS_MAX as usize + REST)
        .map(|page| Box::pin(file.page_async(PageNo(page as u64))))
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    for task in &mut tasks {
        assert!(task.as_mut().poll(&mut context).is_pending());
    }
    device.wait_for_held_reads(READS_MAX as usize);
    let are_kept_back = eventually(|engine| engine.kept_back() == REST, &cache);
    // One that is kept back is dropped: it is read all the same, and its slot is free after that.
    drop(tasks.pop());
    device.release_reads();
    let are_begun = eventually(|engine| engine.kept_back() == 0, &cache);
    if !are_begun {
        // They would be waited for.
        std::mem::forget(tasks);
        std::mem::forget((file, cache));
        panic!("nobody begins what was kept back");
    }
    assert!(are_kept_back);
    for task in tasks {
        assert_eq!(block_on(task).map(|guard| guard[0]), Ok(7));
    }
    let dropped = PageNo((READS_MAX as usize + REST) as u64 - 1);
    assert_eq!(file.page(dropped).unwrap()[0], 7);
    // A page can be had a moment before its slot is free.
    assert!(eventually(|engine| engine.used_slots() == 0, &cache));
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
    let used = cache.owner.core.io.engine.as_ref().unwrap().used_slots();
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
        while waiters.count() == 0 || Timestamp::now() < asleep {
            thread::yield_now();
        }
        device.release_reads();
        // Untold, it sleeps for 20 s, and then finds one.
        assert_eq!(received.recv_timeout(Duration::from_secs(10)), Ok(Ok(7)));
    });
    drop(pinned);
}
