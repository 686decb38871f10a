//! Our locks for users of the crate `lock_api`.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use lock_api::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
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

/// A panic would leave two guards: these lock again what they have unlocked for a while.
#[cfg(debug_assertions)]
#[test]
fn what_a_thread_holds_already_aborts_in_debug_builds() {
    static MUTEX: Mutex<RawMutex, ()> = Mutex::new(());
    static LOCK: RwLock<RawRwLock, ()> = RwLock::new(());
    const CHILD: &str = "UNHERD_TEST_ABORT";
    // In processes of its own, which it ends.
    let Some(which) = std::env::var_os(CHILD) else {
        for which in ["mutex", "read", "write"] {
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("lock_api::what_a_thread_holds_already_aborts_in_debug_builds")
                .env(CHILD, which)
                .output()
                .unwrap();
            let why = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{which}: {why}");
            assert!(why.contains("this thread holds it already"), "{which}: {why}");
        }
        return;
    };
    match which.to_str().unwrap() {
        "mutex" => {
            MutexGuard::unlocked(&mut MUTEX.lock(), || std::mem::forget(MUTEX.lock()));
        }
        "read" => {
            RwLockReadGuard::unlocked(&mut LOCK.read(), || std::mem::forget(LOCK.write()));
        }
        _ => {
            RwLockWriteGuard::unlocked(&mut LOCK.write(), || std::mem::forget(LOCK.write()));
        }
    }
}
