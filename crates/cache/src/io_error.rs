//! Errors of the cache as `std::io::Error`, for interfaces that know no other.

use std::io::{self, ErrorKind};

use unherd_sys::Errno;

use crate::{BuildError, Error};

/// The kind is that of the kernel's number, where there is one, or what std gives to the like. The
/// cache's error is inside: [`io::Error::get_ref`], and its text.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl Error {
    /// What the error is like among those of std: see the table at [`Error`].
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { errno, .. } | Self::Open { errno, .. } | Self::Memory { errno, .. } => {
                kind_of(*errno)
            }
            Self::LostWrites { errno, .. } => errno.map_or(ErrorKind::Other, kind_of),
            Self::NoFrames { write_error, .. } => {
                write_error.as_ref().map_or(ErrorKind::TimedOut, |error| error.kind())
            }
            Self::UnexpectedEof { .. } | Self::Truncated { .. } => ErrorKind::UnexpectedEof,
            Self::ShortTransfer { .. } => ErrorKind::WriteZero,
            Self::FileTooLarge { .. } => ErrorKind::FileTooLarge,
            Self::WouldDeadlock { .. } => ErrorKind::Deadlock,
            Self::TooManyPins { .. }
            | Self::HeldReadOnly { .. }
            | Self::OtherHook { .. }
            | Self::NotSynced { .. }
            | Self::Held { .. }
            | Self::TooManyHeld { .. }
            | Self::NoContiguousFrames { .. } => ErrorKind::ResourceBusy,
            // As std::fs::File::try_lock.
            Self::Locked { .. } => ErrorKind::WouldBlock,
            Self::ReadOnly { .. } => ErrorKind::PermissionDenied,
            Self::InsufficientMemory { .. } => ErrorKind::OutOfMemory,
            Self::CannotShrink { cause, .. } => cause.kind(),
            // As std::fs::OpenOptions::open.
            Self::CreateNeedsWrite { .. }
            | Self::OutOfRange { .. }
            | Self::BackwardRange { .. }
            | Self::CapacityOutOfRange { .. }
            | Self::ContiguousTooLarge { .. }
            | Self::NotAFile { .. }
            | Self::Misaligned { .. }
            | Self::TornElsewhere { .. } => ErrorKind::InvalidInput,
            Self::DirectRefused { .. } | Self::AsyncNeedsIoThread { .. } | Self::Forked => {
                ErrorKind::Unsupported
            }
            Self::Closed { .. } | Self::LostDurability { .. } | Self::TooManyFiles => {
                ErrorKind::Other
            }
        }
    }
}

/// The kind is that of the kernel's number, where there is one, or what std gives to the like. The
/// cache's error is inside: [`io::Error::get_ref`], and its text.
impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        let kind = match &error {
            BuildError::PageSize { .. }
            | BuildError::TooSmall { .. }
            | BuildError::TooLarge { .. } => ErrorKind::InvalidInput,
            BuildError::InsufficientMemory { .. } => ErrorKind::OutOfMemory,
            BuildError::Memory { errno, .. } => kind_of(*errno),
            BuildError::NoQueue => ErrorKind::Unsupported,
            BuildError::QueueTaken => ErrorKind::ResourceBusy,
            BuildError::Thread(_) => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

fn kind_of(errno: Errno) -> ErrorKind {
    io::Error::from(errno).kind()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use unherd_sys::primitives::Arc;

    use super::*;
    use crate::{Cache, Operation};

    #[test]
    fn build_error_converts_by_question_mark() {
        let build = |capacity| -> io::Result<usize> {
            Ok(Cache::builder().page_size(1 << 20).capacity(capacity).build()?.frames())
        };
        assert_eq!(build(4 << 20).unwrap(), 4);
        let refused = build(0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        let inner = refused.get_ref().and_then(|inner| inner.downcast_ref::<BuildError>());
        assert!(matches!(inner, Some(BuildError::TooSmall { .. })), "{refused}");
        let large = build(1 << 50).unwrap_err();
        assert_eq!(large.kind(), ErrorKind::OutOfMemory, "{large}");
    }

    #[test]
    fn kinds_are_those_of_std() {
        let file: Arc<Path> = Arc::from(Path::new("f"));
        let full = Error::Io {
            operation: Operation::Write,
            file: file.clone(),
            offset: 4096,
            errno: Errno::NOSPC,
        };
        let no_frames = |write_error: Option<&Error>| Error::NoFrames {
            pinned: 0,
            threads: 0,
            unwritten: 3,
            given_out: 0,
            capacity: 4,
            waited: Duration::ZERO,
            write_error: write_error.cloned().map(Arc::new),
        };
        let lost = |errno| Error::LostWrites { file: file.clone(), pages: 1, offset: 0, errno };
        for (error, kind) in [
            (full.clone(), ErrorKind::StorageFull),
            (no_frames(Some(&full)), ErrorKind::StorageFull),
            (no_frames(None), ErrorKind::TimedOut),
            (lost(Some(Errno::DQUOT)), ErrorKind::QuotaExceeded),
            (lost(None), ErrorKind::Other),
            (Error::Open { file: file.clone(), errno: Errno::NOENT }, ErrorKind::NotFound),
            (Error::Locked { file: file.clone() }, ErrorKind::WouldBlock),
        ] {
            let text = error.to_string();
            let converted = io::Error::from(error.clone());
            assert_eq!(converted.kind(), kind, "{text}");
            assert_eq!(converted.to_string(), text);
            let inner = converted.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
            assert_eq!(inner, Some(&error));
        }
    }
}
