//! Files that are not kept.

use std::time::Duration;

use unherd_cache::{Advice, Io, PageNo};
use unherd_sys::primitives::thread;
use unherd_sys::{Errno, Timestamp};
use unherd_testkit::FaultPlan;

use crate::scene::{close, sim, small, turn, writable};

#[test]
fn what_is_dirty_goes_with_the_last_handle() {
    let _turn = turn();
    for io in [Io::Blocking, Io::Ring, Io::Threads(2)] {
        for refusal in [None, Some(Errno::NOSPC)] {
            let device = sim(73, FaultPlan::default());
            let cache = small(32, 512)
                .device(device.clone())
                .io(io)
                .dirty_expire(Duration::from_millis(5))
                .build()
                .unwrap();
            let temporary = cache.open("f", writable().discard_on_close(true)).unwrap();
            let other = cache.open("f", writable()).unwrap();
            temporary.advise(Advice::Random);
            device.refuse_writes("f", refusal);
            other.write_all_at(&[1; 5000], 0).unwrap();
            let mut held = temporary.page_mut(PageNo(3)).unwrap();
            held.hold_until(7).unwrap();
            held.write(0, &[2]);
            drop(held);
            let end = Timestamp::now().after(Duration::from_millis(30));
            while Timestamp::now() < end {
                thread::yield_now();
            }
            assert_eq!(close(temporary), Ok(()), "{io:?}");
            drop(other);
            assert_eq!(device.counts("f").writes, 0, "{io:?}");
            // Nor is anything missed, and the frames are free again.
            device.refuse_writes("f", None);
            let again = cache.open("f", writable()).unwrap();
            assert_eq!((again.len(), again.sync_all()), (0, Ok(())), "{io:?}");
            again.write_all_at(&[3; 31 * 512], 0).unwrap();
            close(again).unwrap();
            assert!(device.bytes("f").unwrap() == [3; 31 * 512], "{io:?}");
        }
    }
}
