//! What signals, fork(2) and the end of threads do to a table.
#![expect(unsafe_code, reason = "signals and fork")]

use std::cell::RefCell;
use std::io::Write;
use std::time::Duration;

use unherd_sync::{
    Deadline, FdError, Interest, Outcome, ReadyBatch, ReadySet, Reason, Timestamp, Token, WaitTable,
};
use unherd_sys::primitives::{Arc, AtomicUsize, Ordering, thread};

use crate::sleeping::Sleeper;

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_signal_handler_does_not_end_a_wait() {
    // SAFETY: all zeros is a valid `sigaction`: no flags, so system calls are interrupted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count_signal as *const () as usize;
    // SAFETY: the handler only adds to an atomic.
    let set = unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
    assert_eq!(set, 0);

    let table = Arc::new(WaitTable::<u64>::builder().build());
    let sleeper = Sleeper::start(&table, 1);
    for sent in 1..=10 {
        let process = std::process::id();
        // SAFETY: a signal to a thread of this process, which has a handler for it.
        let kill = unsafe { libc::syscall(libc::SYS_tgkill, process, sleeper.tid, libc::SIGUSR1) };
        assert_eq!(kill, 0);
        while HANDLED.load(Ordering::Relaxed) < sent {
            thread::yield_now();
        }
    }
    assert_eq!(table.wake_with(&1, 1, Token(3)), 1);
    assert_eq!(sleeper.join(), Outcome::Woken(Token(3)));
}

#[test]
fn a_forked_child_uses_idle_tables() {
    let inherited = Arc::new(WaitTable::<u64>::builder().build());
    let busy = Arc::new(WaitTable::<u64>::builder().build());
    let sleeper = Sleeper::start(&busy, 1);
    // SAFETY: the child calls nothing that another thread could have left locked but malloc, which
    // glibc makes usable after fork, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let own = WaitTable::<u64>::builder().build();
        let fine = [&own, &*inherited].into_iter().all(|table| {
            let soon = Deadline::after(Duration::from_millis(1));
            table.wait(&1, || true, soon) == Outcome::TimedOut
                && table.wait(&1, || false, Reason::OTHER) == Outcome::Invalid
                && table.wake_all(&1) == 0
        });
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child started above.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    assert_eq!(busy.wake_all(&1), 1);
    assert_eq!(sleeper.join(), Outcome::Woken(Token(0)));
}

#[test]
fn last_destructors_may_wait_and_wake() {
    struct WaitsAtTheEnd(Arc<WaitTable<u64>>);
    impl Drop for WaitsAtTheEnd {
        fn drop(&mut self) {
            let past = Deadline::at(Timestamp::from_ns(1));
            assert_eq!(self.0.wait(&1, || true, past), Outcome::TimedOut);
            self.0.wake_all(&2);
        }
    }
    thread_local!(static LAST: RefCell<Option<WaitsAtTheEnd>> = const { RefCell::new(None) });

    let table = Arc::new(WaitTable::<u64>::builder().build());
    let sleeper = Sleeper::start(&table, 2);
    let theirs = Arc::clone(&table);
    thread::spawn(move || LAST.set(Some(WaitsAtTheEnd(theirs)))).join().expect("no panic");
    assert_eq!(sleeper.join(), Outcome::Woken(Token(0)));
}

#[test]
fn a_forked_child_leaves_its_parents_set_alone() {
    let set = ReadySet::new(8);
    let (mut sender, receiver) = std::os::unix::net::UnixStream::pair().unwrap();
    receiver.set_nonblocking(true).unwrap();
    let source = set.fd(receiver, Interest::Readable).unwrap();
    // SAFETY: as above.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let added = set.fd(std::io::stdin(), Interest::Readable);
        let fine = added.is_err_and(|error| error == FdError::Forked);
        drop((source, set));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = 0;
    // SAFETY: the child is this test's own.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    sender.write_all(b"x").unwrap();
    let mut batch = ReadyBatch::with_capacity(8);
    set.wait(&mut batch, Deadline::after(Duration::from_secs(9)));
    assert_eq!(batch.tokens(), [source.token()]);
}
