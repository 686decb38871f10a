//! A cache and its I/O thread, for as long as somebody has the cache or a file of it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use unherd_sys::primitives::{Arc, Mutex, thread};

use crate::error::BuildError;
use crate::file::Core;
use crate::file::io_thread::IoThread;
use crate::foreign_code::is_in_foreign_code;

/// What ends the I/O thread when nobody has the cache any more.
pub(crate) struct Owner {
    pub(crate) core: Arc<Core>,
    io_thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let (Some(engine), Some(io_thread)) = (&self.core.io.engine, self.io_thread.lock().take())
        else {
            return;
        };
        if self.core.fork().is_forked() {
            // The thread is the parent's, and its handle means nothing here.
            return std::mem::forget(io_thread);
        }
        engine.stop();
        if is_in_foreign_code() {
            // Of this very thread, perhaps. It ends by itself, and has a share of the core.
            return;
        }
        // It does not panic; if it did, there is nothing more to do about it here.
        let _ = io_thread.join();
    }
}

impl Owner {
    /// Starts the I/O thread, if the cache has one.
    pub(crate) fn new(core: Arc<Core>) -> Result<Arc<Self>, BuildError> {
        let io_thread = if core.io.engine.is_some() { Some(start_io_thread(&core)?) } else { None };
        Ok(Arc::new(Self { core, io_thread: Mutex::new(io_thread) }))
    }
}

fn start_io_thread(core: &Arc<Core>) -> Result<thread::JoinHandle<()>, BuildError> {
    let core = core.clone();
    thread::Builder::new()
        .name("unherd-cache-io".into())
        .spawn(move || {
            let Some(engine) = &core.io.engine else { return };
            let mut io_thread = IoThread::new(&core, engine);
            let run = catch_unwind(AssertUnwindSafe(|| io_thread.run()));
            if let Err(payload) = run {
                // A device may still use the memory of what it was given.
                std::mem::forget(core.clone());
                io_thread.give_up();
                resume_unwind(payload);
            }
        })
        .map_err(|error| BuildError::Thread(error.to_string()))
}
