//! Temporary: the shape of part A.
#![allow(missing_docs, reason = "removed at the merge")]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::observation::Observation;

#[derive(Debug, Clone, Default)]
pub struct TraceOptions {}
#[derive(Debug)]
pub enum Follow {
    NextChild,
    Processes(Vec<u32>),
}
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("tracing is not permitted")]
    NotPermitted,
}
#[derive(Debug, Clone)]
pub enum Notice {
    Began { pid: u32, parent: u32 },
    Exec { pid: u32, comm: String },
    Ended { pid: u32 },
}
#[derive(Debug)]
pub struct Tracer(OwnedFd);
impl Tracer {
    pub fn start(_follow: Follow, _options: &TraceOptions) -> Result<Tracer, TraceError> {
        let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        fd.map(Tracer).map_err(|_| TraceError::NotPermitted)
    }
    pub fn follow_process(&mut self, _pid: u32) -> Result<(), TraceError> {
        Ok(())
    }
    pub fn notices(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
    pub fn poll(&mut self, _timeout: Duration) -> Result<Vec<Notice>, TraceError> {
        Ok(Vec::new())
    }
    pub fn finish(self) -> Result<Observation, TraceError> {
        Ok(Observation::default())
    }
}
