//! The server against clients that behave, and against those that do not.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use unherd_sys::primitives::thread;

use super::*;
use crate::web::descriptors::{Poll, SharedEpoll};
use crate::web::set::Set;

/// A directory beside one that must not be served, by whichever way.
fn directory() -> (tempfile::TempDir, std::path::PathBuf) {
    let around = tempfile::tempdir().unwrap();
    let root = around.path().join("root");
    std::fs::create_dir_all(root.join("below")).unwrap();
    std::fs::write(around.path().join("secret"), "secret").unwrap();
    std::fs::write(root.join("below/inner"), "inner").unwrap();
    std::fs::write(root.join("a b"), "hello").unwrap();
    std::fs::write(root.join("empty"), "").unwrap();
    std::fs::write(root.join("large"), vec![7; 3 << 20]).unwrap();
    for (target, link) in [("../secret", "out"), ("a b", "in"), ("/etc/passwd", "far")] {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    (around, root)
}

fn with_server<R: Readiness>(
    root: &Path,
    readiness: impl FnOnce(&TcpListener) -> io::Result<R>,
    test: impl FnOnce(&Server<'_, R>, &dyn Fn() -> TcpStream),
) {
    let site = Site::open(root).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let readiness = readiness(&listener).unwrap();
    let server = Server::new(&site, listener, readiness, 2);
    thread::scope(|scope| {
        for thread in 0..2 {
            let server = &server;
            scope.spawn(move || server.run(thread));
        }
        struct Stop<'a, 'b, R: Readiness>(&'a Server<'b, R>);
        impl<R: Readiness> Drop for Stop<'_, '_, R> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let _stop = Stop(&server);
        test(&server, &|| {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        });
    });
}

/// Runs a test with each implementation.
fn with_each(root: &Path, test: impl Fn(&dyn Fn() -> TcpStream, &dyn Fn() -> usize, &dyn Fn())) {
    fn run<R: Readiness>(
        root: &Path,
        readiness: impl FnOnce(&TcpListener) -> io::Result<R>,
        test: impl Fn(&dyn Fn() -> TcpStream, &dyn Fn() -> usize, &dyn Fn()),
    ) {
        with_server(root, readiness, |server, connect| {
            test(connect, &|| server.connections(), &|| server.age_all());
        });
    }
    run(root, Poll::new, &test);
    run(root, |listener| SharedEpoll::new(listener, 4), &test);
    run(root, |listener| Set::new(listener, 4), &test);
}

/// All that comes for `request` until the server closes.
fn ask(mut stream: &TcpStream, request: &[u8]) -> Vec<u8> {
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

fn is_answered(answer: &[u8], status: &str, body: &[u8]) -> bool {
    answer.starts_with(format!("HTTP/1.1 {status} ").as_bytes())
        && answer.ends_with(&[b"\r\n\r\n", body].concat())
}

#[test]
fn files_are_served_whole() {
    let (_around, root) = directory();
    with_each(&root, |connect, _, _| {
        for (path, body) in [
            ("/a%20b", &b"hello"[..]),
            ("/in", b"hello"),
            ("/empty", b""),
            ("/large", &[7; 3 << 20]),
        ] {
            assert!(is_answered(&ask(&connect(), get(path).as_bytes()), "200", body), "{path}");
        }
        let head = get("/a%20b").replace("GET", "HEAD");
        let answer = String::from_utf8(ask(&connect(), head.as_bytes())).unwrap();
        assert!(answer.contains("Content-Length: 5\r\n") && answer.ends_with("\r\n\r\n"));
        // Two at a time, the first on a connection that is kept.
        let two = get("/a%20b").replace("Connection: close\r\n", "") + &get("/in");
        let answer = String::from_utf8(ask(&connect(), two.as_bytes())).unwrap();
        assert_eq!(answer.matches("hello").count(), 2, "{answer}");
    });
}

#[test]
fn no_path_leaves_the_directory() {
    let (_around, root) = directory();
    with_each(&root, |connect, _, _| {
        for path in ["/out", "/far", "/below", "/below/inner", "/", "/none", "/./a%20b"] {
            assert!(is_answered(&ask(&connect(), get(path).as_bytes()), "404", b""), "{path}");
        }
        for path in ["/../secret", "/%2e%2e/secret", "/..%2fsecret", "/below/../../secret"] {
            assert!(is_answered(&ask(&connect(), get(path).as_bytes()), "400", b""), "{path}");
        }
    });
}

#[test]
fn bad_clients_leave_nothing_behind() {
    let (_around, root) = directory();
    with_each(&root, |connect, connections, age_all| {
        assert!(is_answered(&ask(&connect(), b"nonsense\r\n\r\n"), "400", b""));
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000));
        let answer = ask(&connect(), long.as_bytes());
        assert!(answer.is_empty() || is_answered(&answer, "431", b""));
        // One vanishes before it has read, one in the middle of its request, one says nothing.
        let (vanishing, idle) = (connect(), connect());
        (&vanishing).write_all(get("/large").as_bytes()).unwrap();
        (&connect()).write_all(b"GET /").unwrap();
        drop(vanishing);
        until(|| connections() == 1);
        // A slow one is told so, and an idle one is not disturbed.
        let slow = connect();
        (&slow).write_all(b"GET /a").unwrap();
        until(|| connections() == 2);
        let mut answer = Vec::new();
        slow.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        while !answer.ends_with(b"\r\n\r\n") {
            // Its bytes may not have been read yet.
            age_all();
            let _ = ask_again(&slow, &mut answer);
        }
        assert!(is_answered(&answer, "408", b""));
        until(|| connections() == 1);
        assert!(is_answered(&ask(&idle, get("/in").as_bytes()), "200", b"hello"));
        until(|| connections() == 0);
    });
}

fn ask_again(mut stream: &TcpStream, answer: &mut Vec<u8>) -> io::Result<usize> {
    let mut bytes = [0; 1024];
    let count = stream.read(&mut bytes)?;
    answer.extend(&bytes[..count]);
    Ok(count)
}
