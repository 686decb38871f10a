//! The clients: a process of its own, in which one thread drives N connections in a closed loop.
//!
//! Made by fork(2), so that it has the files to compare with. It is one thread with memory of its
//! own, and never returns to the code above it.
#![expect(unsafe_code, reason = "fork(2), and the end of the child")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unherd::Timestamp;

use super::idle;
use super::site::{Contents, response, target};
use crate::LoadError;
use crate::random::Random;

/// The process, if there is one.
pub(super) struct Clients {
    child: Option<Child>,
}

struct Child {
    pid: libc::pid_t,
    /// Closed to stop it.
    stop: OwnedFd,
    result: OwnedFd,
}

/// What it has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Of one CPU.
    pub(super) cpu_share: f64,
}

impl Clients {
    /// Starts `count` clients of the server at `address`. It may start to accept later.
    pub(super) fn start(
        count: usize,
        address: SocketAddr,
        contents: &Contents,
        cpus: &[usize],
    ) -> Result<Self, LoadError> {
        if count == 0 {
            return Ok(Self { child: None });
        }
        let failed = |errno| LoadError::Web { doing: "starting the clients", source: errno };
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (stopped, stop) = pipe().map_err(|errno| failed(errno.into()))?;
        let (result, mut result_writer) = {
            let (result, writer) = pipe().map_err(|errno| failed(errno.into()))?;
            (result, std::fs::File::from(writer))
        };
        // SAFETY: the child uses what this thread has, memory that malloc's own handlers keep
        // whole, and system calls; it ends by _exit.
        match unsafe { libc::fork() } {
            -1 => Err(failed(std::io::Error::last_os_error())),
            0 => {
                drop(stop);
                idle::pin(cpus);
                let text = std::panic::catch_unwind(|| drive(count, address, contents, &stopped))
                    .unwrap_or_else(|_| Err("panicked".to_owned()))
                    .map_or_else(|error| error, |cpu_share| format!("ok {cpu_share}"));
                let _ = result_writer.write_all(text.as_bytes());
                // SAFETY: nothing of the parent's is to be run at the end.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self { child: Some(Child { pid, stop, result }) }),
        }
    }

    /// Has them end their last transactions, and fails if one saw a byte too many, too few, or a
    /// wrong one.
    pub(super) fn stop(mut self) -> Result<Seen, LoadError> {
        let Some(child) = self.child.take() else { return Ok(Seen::default()) };
        let Child { pid, stop, result } = child;
        drop(stop);
        let mut text = String::new();
        let read = std::fs::File::from(result).read_to_string(&mut text);
        reap(pid);
        let share = text.strip_prefix("ok ").and_then(|share| share.parse().ok());
        match (read, share) {
            (Ok(_), Some(cpu_share)) => Ok(Seen { cpu_share }),
            _ => {
                Err(LoadError::Program { program: "the clients of web".to_owned(), message: text })
            }
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            drop(child.stop);
            // SAFETY: it was not waited for, so the number is still its own.
            unsafe { libc::kill(child.pid, libc::SIGKILL) };
            reap(child.pid);
        }
    }
}

fn reap(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    while unsafe { libc::waitpid(pid, &mut status, 0) } == -1
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

/// A server that answers nothing for this long has lost a request.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

struct Client {
    stream: TcpStream,
    file: usize,
    /// Bytes of the response that have come.
    received: usize,
}

/// Runs the clients until `stopped` is at its end; gives the share of a CPU that they took.
fn drive(
    count: usize,
    address: SocketAddr,
    contents: &Contents,
    stopped: &OwnedFd,
) -> Result<f64, String> {
    let requests: Vec<_> = (0..contents.files().len())
        .map(|number| format!("GET {} HTTP/1.1\r\nHost: unherd\r\n\r\n", target(number)))
        .collect();
    let responses: Vec<_> = contents.files().iter().map(|body| response(body)).collect();
    let mut random = Random::new(count as u64);
    let said = |doing: &'static str| move |error: std::io::Error| format!("{doing}: {error}");
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let stream = TcpStream::connect(address).map_err(said("connecting"))?;
        stream.set_nodelay(true).map_err(said("connecting"))?;
        let mut client = Client { stream, file: 0, received: 0 };
        client.ask(&requests, &mut random).map_err(said("sending"))?;
        clients.push(client);
    }
    let mut buffer = vec![0; 64 << 10];
    let begin = (Timestamp::now(), unherd_host::Usage::of_this_process());
    let mut is_stopping = false;
    let mut waiting = count;
    while waiting > 0 {
        let busy = |(_, client): &(usize, &Client)| client.received != usize::MAX;
        let polled: Vec<_> = clients.iter().enumerate().filter(busy).map(|(at, _)| at).collect();
        // At its end it is ready for good.
        let stop = (!is_stopping).then(|| PollFd::new(stopped, PollFlags::IN));
        let mut asked: Vec<_> = polled
            .iter()
            .map(|at| PollFd::new(&clients[*at].stream, PollFlags::IN))
            .chain(stop)
            .collect();
        match poll(&mut asked, Some(&PATIENCE)) {
            Ok(0) => return Err(format!("{waiting} clients got nothing for {PATIENCE:?}")),
            Ok(_) => {}
            Err(errno) => return Err(format!("poll: {errno}")),
        }
        is_stopping |= asked[polled.len()..].iter().any(|stop| !stop.revents().is_empty());
        let ready: Vec<_> = polled
            .into_iter()
            .zip(&asked)
            .filter_map(|(at, asked)| (!asked.revents().is_empty()).then_some(at))
            .collect();
        for at in ready {
            let client = &mut clients[at];
            if client.receive(&responses, &mut buffer)? {
                if is_stopping {
                    client.received = usize::MAX;
                    waiting -= 1;
                } else {
                    client.ask(&requests, &mut random).map_err(said("sending"))?;
                }
            }
        }
    }
    let elapsed_s = Timestamp::now().since(begin.0).as_secs_f64();
    let cpu_s = unherd_host::Usage::of_this_process().since(begin.1).cpu().as_secs_f64();
    Ok(cpu_s / elapsed_s)
}

impl Client {
    fn ask(&mut self, requests: &[String], random: &mut Random) -> std::io::Result<()> {
        self.file = random.below(requests.len());
        self.received = 0;
        self.stream.write_all(requests[self.file].as_bytes())
    }

    /// Takes what there is, and compares it; true if that is all of the response.
    fn receive(&mut self, responses: &[Vec<u8>], buffer: &mut [u8]) -> Result<bool, String> {
        let bytes = self.stream.read(buffer).map_err(|error| format!("receiving: {error}"))?;
        let expected = &responses[self.file][self.received..];
        if bytes == 0 || expected.get(..bytes) != Some(&buffer[..bytes]) {
            let (file, at) = (self.file, self.received);
            return Err(format!(
                "received {bytes} bytes of file {file} from {at} on, and not those"
            ));
        }
        self.received += bytes;
        Ok(bytes == expected.len())
    }
}
