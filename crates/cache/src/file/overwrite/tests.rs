use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::{Seed, SimDevice};

use crate::page::PageNo;
use crate::{Cache, Io, OpenOptions};

const PAGE: usize = 512;

/// Else the device could get the page as it was before the hole, and keep it.
#[test]
fn a_hole_waits_for_overwrites_with_write_backs_kept_out() {
    let device = Arc::new(SimDevice::new(Seed::new(1)));
    let builder = Cache::builder().io(Io::Blocking).page_size(PAGE).capacity(64 * PAGE);
    let cache = builder.device(device.clone()).build().unwrap();
    let file = cache.open("f", OpenOptions::new().write(true).create(true)).unwrap();
    file.write_all_at(&[1; 2 * PAGE], 0).unwrap();

    let (core, key) = (file.core(), file.file.key(PageNo(1)));
    let frame = core.pages.index.lookup(key).unwrap();
    let claim = core.frames().try_change_again(frame, key, || true).unwrap();
    let are_kept_out = thread::scope(|scope| {
        let punching = scope.spawn(|| file.punch_hole(0..2 * PAGE as u64));
        while core.pages.waits.waited_for([key.into()]).next().is_none() {
            thread::yield_now();
        }
        let are_kept_out = file.file.write_backs.is_shut();
        core.end_change(&file.file, key, claim);
        punching.join().unwrap().unwrap();
        are_kept_out
    });
    assert!(are_kept_out);
    let mut bytes = [9; 2 * PAGE];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 2 * PAGE]);
}
