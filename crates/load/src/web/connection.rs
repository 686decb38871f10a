//! One connection: what was received and not yet answered, and what is being sent.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use unherd::{PageNo, Timestamp};

use super::request::{HEAD_BYTES_MAX, Parsed, Request, Status, parse};
use super::site::{PAGE_BYTES, Site, head};

/// So long a request may take to come, and a response to go.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits for more to read, or for room to write.
    Wait { to_write: bool },
    /// It is over.
    Close,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: Arc<TcpStream>,
    input: Vec<u8>,
    output: Option<Output>,
    /// Since when a request, or the response to it, is under way.
    since: Option<Timestamp>,
    /// Responses that were sent whole.
    pub(super) transactions: u64,
}

#[derive(Debug)]
struct Output {
    head: Vec<u8>,
    head_sent: usize,
    /// The path of the file, and the part of it that is yet to go.
    body: Option<(String, u64, u64)>,
    keep_alive: bool,
}

impl Connection {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream, input: Vec::new(), output: None, since: None, transactions: 0 }
    }

    /// Reads, answers and writes until the kernel has no more to give or to take.
    pub(super) fn advance(&mut self, site: &Site) -> Next {
        loop {
            if let Some(output) = &mut self.output {
                match output.send(&self.stream, site) {
                    Ok(()) => {}
                    Err(ErrorKind::Interrupted) => continue,
                    Err(ErrorKind::WouldBlock) => return self.wait(true),
                    Err(_) => return Next::Close,
                }
                self.transactions += 1;
                let keep_alive = output.keep_alive;
                self.output = None;
                if !keep_alive {
                    // The client reads the response before it learns that it sent too much.
                    let _ = self.stream.shutdown(std::net::Shutdown::Write);
                    return Next::Close;
                }
                self.since = None;
            }
            if !self.input.is_empty() && self.answer(site) {
                continue;
            }
            match self.receive() {
                Ok(0) => return Next::Close,
                Ok(_) => {}
                Err(ErrorKind::Interrupted) => {}
                Err(ErrorKind::WouldBlock) => return self.wait(false),
                Err(_) => return Next::Close,
            }
        }
    }

    fn receive(&mut self) -> Result<usize, ErrorKind> {
        let mut buffer = [0; HEAD_BYTES_MAX];
        let bytes = (&*self.stream).read(&mut buffer).map_err(|error| error.kind())?;
        self.input.extend_from_slice(&buffer[..bytes]);
        Ok(bytes)
    }

    fn wait(&mut self, to_write: bool) -> Next {
        if to_write || !self.input.is_empty() {
            self.since.get_or_insert_with(Timestamp::now);
        }
        Next::Wait { to_write }
    }

    /// Begins to answer the first request of the input; false if it is not all there.
    fn answer(&mut self, site: &Site) -> bool {
        if site.is_canned() {
            let Some((bytes, response)) = site.canned(&self.input) else { return false };
            let head = response.to_vec();
            self.input.drain(..bytes);
            self.output = Some(Output { head, head_sent: 0, body: None, keep_alive: true });
            return true;
        }
        self.output = Some(match parse(&self.input) {
            Parsed::Partial => return false,
            Parsed::Request { bytes, request } => {
                self.input.drain(..bytes);
                Output::of(request, site)
            }
            Parsed::Refused(status) => Output::error(status, false),
        });
        true
    }

    /// Ends it if it has been too slow, so that the thread that polls it finds its end.
    pub(super) fn expire(&mut self, now: Timestamp) {
        if self.since.is_some_and(|since| now.since(since) > PATIENCE) {
            if self.output.is_none() {
                let _ = (&*self.stream).write(&Output::error(Status::Timeout, false).head);
            }
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Makes it look so much older.
    #[cfg(test)]
    pub(super) fn age(&mut self, by: Duration) {
        self.since = self.since.map(|since| {
            let age_ns = since.as_ns().saturating_sub(by.as_nanos() as u64);
            Timestamp::from_ns(age_ns)
        });
    }
}

/// Tells a client that there is no room for it.
pub(super) fn turn_away(stream: &TcpStream) {
    let _ = (&*stream).write(&Output::error(Status::Unavailable, false).head);
}

impl Output {
    fn of(request: Request, site: &Site) -> Self {
        let Some(file) = site.file(&request.path) else {
            return Self::error(Status::NotFound, request.keep_alive);
        };
        let head = head(Status::Ok.line(), file.len(), request.keep_alive);
        let body = (!request.head).then(|| (request.path, 0, file.len()));
        Self { head, head_sent: 0, body, keep_alive: request.keep_alive }
    }

    fn error(status: Status, keep_alive: bool) -> Self {
        Self { head: head(status.line(), 0, keep_alive), head_sent: 0, body: None, keep_alive }
    }

    /// Writes what is left.
    fn send(&mut self, stream: &TcpStream, site: &Site) -> Result<(), ErrorKind> {
        loop {
            let head = &self.head[self.head_sent..];
            let (page, within, bytes) = match &self.body {
                Some((path, at, end)) if at < end => {
                    let within = (at % PAGE_BYTES as u64) as usize;
                    let bytes = (end - at).min((PAGE_BYTES - within) as u64) as usize;
                    let page = at / PAGE_BYTES as u64;
                    let file = site.file(path).ok_or(ErrorKind::NotFound)?;
                    (Some(file.page(PageNo(page)).map_err(|_| ErrorKind::Other)?), within, bytes)
                }
                _ if head.is_empty() => return Ok(()),
                _ => (None, 0, 0),
            };
            let body = page.as_deref().map_or(&[][..], |page| &page[within..within + bytes]);
            let slices = [IoSlice::new(head), IoSlice::new(body)];
            let sent = (&*stream).write_vectored(&slices).map_err(|error| error.kind())?;
            if sent == 0 {
                return Err(ErrorKind::WriteZero);
            }
            let of_head = sent.min(head.len());
            self.head_sent += of_head;
            if let Some((_, at, _)) = &mut self.body {
                *at += (sent - of_head) as u64;
            }
        }
    }
}
