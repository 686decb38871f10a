//! What this cache's runs carry: pages of one file, with their frames.
//!
//! | a run is a | its frames are | when its transfer has ended |
//! |---|---|---|
//! | fill | claimed, and in the index as *reading* | published |
//! | write-back | lent | given back |

use unherd_sync::{Reason, WaitKey, WaitTable};
use unherd_sys::primitives::{Arc, AtomicUsize, Ordering};
use unherd_sys::{DeviceFile, Errno};

use crate::frames::{Claim, FrameMemory, Lent};
use crate::io::{self, Payload, RunBuffer, RunFrames, TransferError};
use crate::page::{PageKey, PageNo};
use crate::state::FileState;

pub(crate) type Run = io::Run<RunPages>;
pub(crate) type Engine = io::Engine<RunPages>;

/// Frames that are being filled.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) file: Arc<FileState>,
    pub(crate) first: PageNo,
    /// Of `first` and the pages that follow it; in the index from [`Fill::install`] on.
    pub(crate) claims: Vec<Claim>,
    /// Bytes of the file that the device had before the read began, if that was asked.
    pub(crate) on_device: Option<u64>,
    /// Nobody has asked for any of the pages. Else a caller waits for the first, and gets it
    /// pinned.
    pub(crate) is_ahead: bool,
}

impl Fill {
    pub(crate) fn new(file: Arc<FileState>, first: PageNo, claims: Vec<Claim>) -> Self {
        Self { file, first, claims, on_device: None, is_ahead: false }
    }

    /// The page of a claim.
    pub(crate) fn key(&self, at: usize) -> PageKey {
        self.file.key(PageNo(self.first.0 + at as u64))
    }

    /// How many of the pages nobody has asked for.
    pub(crate) fn ahead(&self) -> usize {
        self.claims.len() - usize::from(!self.is_ahead)
    }

    /// Gives the pages, of which `bytes` bytes were read, to the file's hook, if it has one. On
    /// failure, which page it was.
    pub(crate) fn hook_after_read(
        &mut self,
        memory: &FrameMemory,
        bytes: usize,
    ) -> Result<(), (usize, Errno)> {
        let Self { file, first, claims, .. } = self;
        let Some(hook) = &file.hook else { return Ok(()) };
        let page_bytes = memory.page_bytes();
        let mut copy = vec![0; page_bytes];
        for (at, claim) in claims.iter_mut().enumerate().take(bytes.div_ceil(page_bytes)) {
            let read = (bytes - at * page_bytes).min(page_bytes);
            copy[..read].copy_from_slice(&memory.claimed_bytes(claim)[..read]);
            copy[read..].fill(0);
            let page = PageNo(first.0 + at as u64);
            hook.run(|hook| hook.after_read(page, &mut copy)).map_err(|errno| (at, errno))?;
            memory.write(claim, 0, &copy);
        }
        Ok(())
    }
}

/// The runs of one sync that are under way, which it waits for together: so it does not sleep for
/// each that ends after the one that it waited for.
#[derive(Debug)]
pub(crate) struct SyncRuns {
    /// Relaxed: what a run has made of its pages, their words say.
    under_way: AtomicUsize,
    waits: Arc<WaitTable<WaitKey>>,
}

/// One of them, until dropped.
#[derive(Debug)]
pub(crate) struct SyncRun(Arc<SyncRuns>);

impl SyncRuns {
    pub(crate) fn new(waits: Arc<WaitTable<WaitKey>>) -> Arc<Self> {
        Arc::new(Self { under_way: AtomicUsize::new(0), waits })
    }

    pub(crate) fn begin(self: &Arc<Self>) -> SyncRun {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        SyncRun(self.clone())
    }

    /// Waits until none is under way.
    pub(crate) fn wait(&self, reason: Reason) {
        let are_over = || self.under_way.load(Ordering::Relaxed) == 0;
        // Without a deadline it cannot time out.
        let _ = self.waits.wait_until(&WaitKey::of(self), are_over, reason);
    }
}

impl Drop for SyncRun {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.waits.wake_all(&WaitKey::of(&*self.0));
        }
    }
}

/// Frames that are being written back.
#[derive(Debug)]
pub(crate) struct WriteBack {
    pub(crate) file: Arc<FileState>,
    pub(crate) first: PageNo,
    /// With the loans of `first` and the pages that follow it.
    pub(crate) buffer: RunBuffer,
    /// How many pages were given back.
    pub(crate) pages: usize,
    /// The flush period in which it began.
    pub(crate) period: u64,
    /// The length of the file, as it was when its pages were lent.
    pub(crate) file_len: u64,
    /// Of the sync that waits for it, if one does.
    pub(crate) sync: Option<SyncRun>,
}

impl WriteBack {
    /// Of no page yet.
    pub(crate) fn new(file: Arc<FileState>, first: PageNo, period: u64, buffer: RunBuffer) -> Self {
        Self { file, first, buffer, pages: 0, period, file_len: 0, sync: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.frames.len()
    }

    /// Puts pages behind those that are there.
    pub(crate) fn append(&mut self, after: impl IntoIterator<Item = Lent>) {
        self.buffer.frames.extend(after);
    }

    /// Puts pages, the last of them first, before those that are there.
    pub(crate) fn prepend(&mut self, before: impl Iterator<Item = Lent>) {
        let len = self.len();
        self.buffer.frames.extend(before);
        let added = self.len() - len;
        self.buffer.frames[len..].reverse();
        self.buffer.frames.rotate_right(added);
        self.first.0 -= added as u64;
    }

    /// Makes what the device is to get of the pages, if their file has a hook.
    pub(crate) fn hook_before_write(
        &mut self,
        memory: &FrameMemory,
        copied_pages_max: usize,
    ) -> Result<(), TransferError> {
        let Some(hook) = self.file.hook.clone() else { return Ok(()) };
        let first = self.first;
        self.buffer.copy_pages(memory, copied_pages_max, |at, bytes| {
            hook.run(|hook| hook.before_write(PageNo(first.0 + at as u64), bytes))
        })
    }
}

/// What a run moves.
#[derive(Debug)]
pub(crate) enum RunPages {
    Fill(Fill),
    WriteBack(WriteBack),
}

impl Payload for RunPages {
    fn place(&self) -> (DeviceFile, u32, PageNo) {
        let (file, first) = match self {
            Self::Fill(fill) => (&fill.file, fill.first),
            Self::WriteBack(pages) => (&pages.file, pages.first),
        };
        (file.device_file, file.alignment, first)
    }

    fn frames(&mut self) -> RunFrames<'_> {
        match self {
            Self::Fill(fill) => RunFrames::ToRead(&mut fill.claims),
            Self::WriteBack(pages) => RunFrames::ToWrite(&mut pages.buffer),
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use unherd_sync::Ledger;
    use unherd_sys::primitives::thread;

    use super::*;

    #[test]
    fn a_sync_sleeps_once_for_all_its_runs() {
        let reason = Reason::register("test-sync-runs");
        let runs = SyncRuns::new(Arc::new(WaitTable::<WaitKey>::builder().build()));
        let [first, second] = [runs.begin(), runs.begin()];
        thread::scope(|scope| {
            scope.spawn(|| runs.wait(reason));
            while Ledger::snapshot().reason(reason).waits == 0 {
                thread::yield_now();
            }
            drop(first);
            drop(second);
        });
        let counts = Ledger::snapshot().reason(reason);
        assert_eq!((counts.waits, counts.wakeups, counts.needless_wakeups), (1, 1, 0));
        runs.wait(reason);
        assert_eq!(Ledger::snapshot().reason(reason).waits, 1, "none is under way");
    }
}
