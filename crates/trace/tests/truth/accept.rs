//! The herd at accept: each thread has an epoll of its own on one listener, so a connection wakes
//! all of them and serves one.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};
use unherd_sys::primitives::{Arc, thread};

use crate::count::{self, Between, Chores};

const STOP: u64 = 1;

#[derive(Default)]
struct Seen {
    accepted: u64,
    eagain: u64,
    sleeps: u64,
    needless: u64,
}

/// `threads` threads take `connects` connections, with EPOLLEXCLUSIVE or without, and do something
/// else before each wait.
pub(crate) fn herd(threads: usize, connects: usize, exclusive: bool, between: Between) -> Value {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    listener.set_nonblocking(true).expect("a socket can be non-blocking");
    let address = listener.local_addr().expect("it is bound");
    let listener = Arc::new(listener);
    let stop = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor is left"));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (listener, stop) = (Arc::clone(&listener), Arc::clone(&stop));
            thread::spawn(move || serve(&listener, &stop, exclusive, between))
        })
        .collect();
    count::pause(Duration::from_millis(20));
    for _ in 0..connects {
        drop(TcpStream::connect(address).expect("the listener listens"));
        count::pause(Duration::from_micros(200));
    }
    count::pause(Duration::from_millis(20));
    rustix::io::write(&*stop, &1u64.to_ne_bytes()).expect("the counter has room");
    let mut all = Seen::default();
    for worker in workers {
        let seen = worker.join().expect("a worker does not panic");
        all.accepted += seen.accepted;
        all.eagain += seen.eagain;
        all.sleeps += seen.sleeps;
        all.needless += seen.needless;
    }
    json!({
        "port": address.port(),
        "accepted": all.accepted,
        "eagain": all.eagain,
        "sleeps": all.sleeps,
        "needless": all.needless,
    })
}

/// Takes connections until told to stop. Every sleep inside epoll_wait(2) is needless but the last
/// one before a connection was got: a thread that found none, and gets the next without having
/// slept again, was up for that one.
fn serve(listener: &TcpListener, stop: &OwnedFd, exclusive: bool, between: Between) -> Seen {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor is left");
    let mut flags = EventFlags::IN;
    if exclusive {
        flags |= EventFlags::EXCLUSIVE;
    }
    epoll::add(&set, listener, EventData::new_u64(0), flags).expect("a socket can be watched");
    epoll::add(&set, stop, EventData::new_u64(STOP), EventFlags::IN).expect("an eventfd too");
    let mut events = Vec::with_capacity(2);
    let (mut seen, chores) = (Seen::default(), Chores::new(between));
    // Whether nothing was got since the last sleep.
    let mut in_vain = false;
    loop {
        chores.go();
        let before = count::sleeps();
        events.clear();
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None).expect("no signals");
        let slept = count::sleeps() - before;
        seen.sleeps += slept;
        if slept > 0 {
            seen.needless += slept - 1 + u64::from(in_vain);
        }
        if events.iter().any(|event| event.data.u64() == STOP) {
            return seen;
        }
        match listener.accept() {
            Ok(_) => {
                seen.accepted += 1;
                in_vain = false;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                seen.eagain += 1;
                in_vain |= slept > 0;
            }
            Err(error) => panic!("accept: {error}"),
        }
    }
}
