//! Advisory locks, and handles that ask for them and do not.

use unherd_cache::{Direct, Error, OpenOptions};

use crate::scene::{real_dir, sim, small, turn, writable};
use unherd_testkit::FaultPlan;

#[test]
fn a_lock_asked_for_by_the_second_handle_is_held() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    let options = writable().direct(Direct::OrBuffered);
    let one = small(8, 4096).build().unwrap();
    let two = small(8, 4096).build().unwrap();
    let unlocked = one.open(&path, options.clone().lock(false)).unwrap();
    let locked = one.open(&path, options.clone()).unwrap();
    assert!(matches!(two.open(&path, options.clone()), Err(Error::Locked { .. })));
    // The lock is the file's: it goes with its last handle.
    drop(locked);
    assert!(matches!(two.open(&path, options.clone()), Err(Error::Locked { .. })));
    drop(unlocked);
    two.open(&path, options).unwrap();
}

#[test]
fn a_lock_that_another_cache_holds_is_not_taken_for_ours() {
    let _turn = turn();
    let device = sim(16, FaultPlan::default());
    let one = small(8, 512).device(device.clone()).build().unwrap();
    let two = small(8, 512).device(device).build().unwrap();
    let _unlocked = one.open("f", writable().lock(false)).unwrap();
    let locked = two.open("f", writable()).unwrap();
    assert!(matches!(one.open("f", writable()), Err(Error::Locked { .. })));
    drop(locked);
    let _locked = one.open("f", writable()).unwrap();
    one.open("f", writable()).unwrap();
    assert!(matches!(two.open("f", writable()), Err(Error::Locked { .. })));
}

/// The reader asks first, of a file that is open for writing.
#[test]
fn a_lock_that_a_reader_has_taken_keeps_no_writer_of_its_cache_out() {
    let _turn = turn();
    let dir = real_dir();
    let path = dir.path().join("f");
    let [one, two] = [(); 2].map(|()| small(8, 4096).build().unwrap());
    let options = writable().direct(Direct::OrBuffered);
    let reads = OpenOptions::new().direct(Direct::OrBuffered);
    let _unlocked = one.open(&path, options.clone().lock(false)).unwrap();
    let _reader = one.open(&path, reads.clone()).unwrap();
    let _writer = one.open(&path, options).unwrap();
    assert!(matches!(two.open(&path, reads), Err(Error::Locked { .. })), "the file is written");
}
