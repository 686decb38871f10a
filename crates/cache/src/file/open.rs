//! Opening and closing files.
//!
//! A file passes a *gate* when it is opened, and when its last handle goes. There is one for each
//! file, so who opens or closes one file waits for nobody who does so with another:
//!
//! ```text
//!  opens the file                           closes its last handle
//!  --------------                           ----------------------
//!  open it on the device, with no lock;     no handle left
//!    flush its directory if it is new       write back
//!  pass the gate                            pass the gate
//!  it is open here: lock it, if that is     it has a handle again: done
//!    asked for; one handle more
//!  else lock it, look at its length,        write back what is left, drop its pages,
//!    put it into the table                    take it from the table, unlock it
//! ```
//!
//! Excluded: a file is opened a second time while it is still being written back, or is refused
//! because this cache has not given its lock back yet.
//!
//! Behind the gate nobody waits for anything but the device. Above all not for a page that is being
//! changed or was announced: calls, guards and futures borrow a handle, and there is none. So what
//! has such a page was forgotten, and nobody will ever give it back.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use unherd_sync::{Wait, WaitKey};
use unherd_sys::primitives::{Arc, Ordering};
use unherd_sys::{Deadline, Errno, OpenError, OpenHow, Opened, Timestamp};

use crate::error::Error;
use crate::file::{ChangingPages, Core};
use crate::frames::State;
use crate::io::Engine;
use crate::page::{ALL_PAGES, FileId, PageNo};
use crate::state::{CarriedOver, Direct, FileState, OpenOptions};

/// Between two looks at a lock that somebody else holds.
const LOCK_PAUSE_MIN: Duration = Duration::from_millis(1);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(16);

/// What is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    Path(&'a Path),
    /// Open already, by others.
    Open(BorrowedFd<'a>),
}

impl Source<'_> {
    /// What it is called in errors.
    pub(crate) fn name(self) -> Arc<Path> {
        match self {
            Self::Path(path) => Arc::from(path),
            Self::Open(fd) => {
                let link = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
                Arc::from(std::fs::read_link(&link).unwrap_or(link))
            }
        }
    }
}

/// Another descriptor of the same opening.
fn dup(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    fd.try_clone_to_owned().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

impl Core {
    /// Opens a file, or finds it open. While it is locked by others, tries again until the caller's
    /// patience ends.
    pub(crate) fn open_file(
        &self,
        source: Source<'_>,
        options: &OpenOptions,
    ) -> Result<Arc<FileState>, Error> {
        self.check_not_forked()?;
        let name = source.name();
        let end = Timestamp::now().after(options.lock_wait);
        let mut pause = LOCK_PAUSE_MIN;
        loop {
            // By name each time: who held the lock may have put another file in its place.
            let opened = self.try_open_file(source, &name, options);
            let now = Timestamp::now();
            if !matches!(opened, Err(Error::Locked { .. })) || now >= end {
                return opened;
            }
            // The kernel wakes nobody who does not sleep in flock(2), and that has no deadline.
            let until = Deadline::at(now.after(pause).min(end));
            let wait = Wait::new(self.reasons().file_lock).deadline(until);
            let nobody = WaitKey::of(&name);
            let _ = self.waits().wait(&nobody, || true, wait);
            pause = (pause * 2).min(LOCK_PAUSE_MAX);
        }
    }

    fn try_open_file(
        &self,
        source: Source<'_>,
        name: &Arc<Path>,
        options: &OpenOptions,
    ) -> Result<Arc<FileState>, Error> {
        let how = OpenHow {
            write: options.write,
            create: options.create,
            create_new: options.create_new,
            buffered_fallback: options.direct == Direct::OrBuffered,
            alignment_max: self.memory().page_bytes() as u32,
        };
        let known = self.files.latest();
        let opened = match source {
            Source::Path(path) => self.io.device.open(path, how),
            Source::Open(fd) => {
                dup(fd).map_err(OpenError::from).and_then(|fd| self.io.device.adopt(fd, how))
            }
        };
        let opened = opened.map_err(|error| self.open_error(error, name))?;
        let _gate = self.files.pass_gate(opened.identity, self.waits(), self.reasons().file);
        let found = self.enter_file(name, opened, options, known);
        if !matches!(found, Ok((_, true))) {
            self.io.device.close(opened.file);
        }
        found.map(|(file, _)| file)
    }

    /// Has the table know the file that was opened, when `known` was the latest file; whether it is
    /// the first to open it, and its opening is the file's. The caller is behind the file's gate.
    fn enter_file(
        &self,
        name: &Arc<Path>,
        opened: Opened,
        options: &OpenOptions,
        known: FileId,
    ) -> Result<(Arc<FileState>, bool), Error> {
        let failed = |errno| Error::Open { file: name.clone(), errno };
        let lock = |device_file, is_exclusive| {
            let is_taken = self.io.device.try_lock(device_file, is_exclusive).map_err(failed)?;
            if is_taken { Ok(()) } else { Err(Error::Locked { file: name.clone() }) }
        };
        if let Some((file, is_locked)) = self.files.find(opened.identity, options)? {
            // On the file's own opening, so for all that its handles may do.
            if options.lock && !is_locked {
                lock(file.device_file, file.writable)?;
            }
            self.files.attach(&file, options.lock);
            return Ok((file, false));
        }
        if options.lock {
            lock(opened.file, options.write)?;
        }
        // The one who had it until now may have changed it since it was opened.
        let len_bytes = self.io.device.len(opened.file).map_err(failed)?;
        let opened = Opened { len_bytes, ..opened };
        let registered = self.files.register(name.clone(), opened, options, known, &self.pages);
        registered.map(|file| (file, true)).ok_or(Error::TooManyFiles)
    }

    fn open_error(&self, error: OpenError, file: &Arc<Path>) -> Error {
        let file = file.clone();
        match error {
            OpenError::DirectRefused => Error::DirectRefused { file },
            OpenError::NotAFile => Error::NotAFile { file },
            OpenError::Misaligned(alignment_bytes) => {
                Error::Misaligned { file, alignment_bytes, page_bytes: self.memory().page_bytes() }
            }
            OpenError::System(errno) => Error::Open { file, errno },
            // The enum may grow; a new reason is a failed open all the same.
            _ => Error::Open { file, errno: Errno::IO },
        }
    }

    /// A handle goes; whether it was the last, and the file is to be closed. Waits for nothing.
    pub(crate) fn detach_file(&self, file: &FileState) -> bool {
        // The parent has the file open still, and will write back what is dirty.
        !self.fork().is_forked() && self.files.detach(file)
    }

    /// Writes the file back and closes it, unless it has got a handle since the last one went.
    pub(crate) fn close_abandoned(&self, file: &Arc<FileState>) -> Result<(), Error> {
        if file.writable {
            // The bulk of the work, without keeping others from opening the file.
            self.write_back(file, &[ALL_PAGES], ChangingPages::Skipped);
        }
        let _gate = self.files.pass_gate(file.identity, self.waits(), self.reasons().file);
        if !self.files.is_abandoned(file) {
            return Ok(());
        }
        let written = if file.writable { self.write_back_for_good(file) } else { Ok(()) };
        // Unclean pages were written back by now, or given up with an error.
        let (mut carried_over, lost) = self.carried_over_of(file);
        // Padding that could not be cut off, too.
        carried_over.lost = carried_over.lost.or(written.as_ref().err().cloned());
        // Those beyond the end will be given up for others, as all that nobody wants; but one that
        // a forgotten guard has counts as unwritten.
        let pages = file.len().div_ceil(self.memory().page_bytes() as u64);
        let end = if file.unwritten.pages.load(Ordering::Relaxed) > 0 { u64::MAX } else { pages };
        self.drop_pages(file, 0..end, ChangingPages::Skipped);
        self.files.forget(file, carried_over);
        // A device may go on for ever with what an I/O thread that died has left under way.
        if !self.io.engine.as_ref().is_some_and(Engine::is_over) {
            self.io.device.close(file.device_file);
        }
        written.and(lost)
    }

    /// What a file that is being closed leaves to its next opening, and the error if that is pages
    /// that could not be written. Of one that a forgotten guard has, nobody knows whether it had
    /// been.
    fn carried_over_of(&self, file: &FileState) -> (CarriedOver, Result<(), Error>) {
        let unclean: Vec<PageNo> = file.unclean.lock().iter().collect();
        let is_lost = |page: &PageNo| {
            let word = self.pages.word_of(file.key(*page));
            word.is_some_and(|word| word.state().is_unwritten() || word.state() == State::Changing)
        };
        let mut lost = unclean.iter().copied().filter(is_lost);
        let first = lost.next();
        let pages = lost.count() + 1;
        let durability = file.durability.lock();
        let lost = first.map(|first| Error::LostWrites {
            file: file.path.clone(),
            pages,
            offset: self.memory().offset(first),
            errno: durability.last_errno(),
        });
        let outcome = lost.clone().map_or(Ok(()), Err);
        let is_unflushed = !unclean.is_empty() || durability.is_unflushed();
        let unknown = || Error::LostDurability { file: file.path.clone() };
        let earlier = durability.unreported_loss().map(|(loss, _)| loss);
        let losses = [lost, earlier, durability.has_unreported_loss().then(unknown)];
        let mut losses = losses.into_iter().flatten();
        // One error cannot name what two have lost.
        let lost =
            losses.next().map(|first| if losses.next().is_some() { unknown() } else { first });
        (CarriedOver { is_unflushed, lost }, outcome)
    }
}
