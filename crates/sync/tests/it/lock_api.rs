//! Our mutex for users of the crate `lock_api`.

use std::time::Duration;

use lock_api::{Mutex, MutexGuard};
use unherd_sync::RawMutex;
use unherd_sys::primitives::thread;

#[test]
fn lock_api_users_can_switch() {
    static COUNT: Mutex<RawMutex, u32> = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| *COUNT.lock() += 1));
        }
    });
    let guard = COUNT.lock();
    assert_eq!(*guard, 4000);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let late = COUNT.try_lock_for(Duration::ZERO).is_none();
            COUNT.try_lock().is_none() && COUNT.is_locked() && late
        });
        assert!(other.join().unwrap());
    });
    MutexGuard::unlock_fair(guard);
    assert!(!COUNT.is_locked());
}
