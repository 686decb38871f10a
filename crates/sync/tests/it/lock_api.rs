//! Our locks for users of the crate `lock_api`.

use std::time::Duration;

use lock_api::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use unherd_sync::{RawMutex, RawRwLock};
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

#[test]
fn lock_api_users_can_switch_rwlocks() {
    static PAIR: RwLock<RawRwLock, (u32, u32)> = RwLock::new((0, 0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let mut pair = PAIR.write();
                    *pair = (pair.0 + 1, pair.1 + 1);
                }
            });
            scope.spawn(|| {
                for _ in 0..1000 {
                    let pair = PAIR.read();
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    let guard = RwLockWriteGuard::downgrade(PAIR.write());
    assert_eq!(*guard, (2000, 2000));
    assert!(PAIR.try_read_for(Duration::ZERO).is_some() && PAIR.is_locked());
    assert!(PAIR.try_write_for(Duration::ZERO).is_none() && PAIR.try_write().is_none());
    drop(guard);
    assert!(!PAIR.is_locked());
}
