//! A disk with a volatile write cache, as the one file of a FUSE file system.
//!
//! A flush makes durable what was written before it. When the power fails, each other write is
//! there, or is not, or is there with some of its sectors.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fuser::consts::FOPEN_DIRECT_IO;
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
};
use unherd_sys::primitives::{Arc, Mutex};
use unherd_testkit::Seed;

use crate::power::writers::{SECTOR_BYTES, is_data};

/// Attributes never change.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

const ROOT: u64 = 1;
const DISK: u64 = 2;

/// How many ends of writes are remembered.
const ENDS: usize = 64;

#[derive(Debug)]
struct State {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Since the last flush.
    unflushed: Vec<(usize, Vec<u8>)>,
    seed: Seed,
    refused_per_mille: u32,
    /// Where the latest writes ended.
    ends: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// Its name in the file system.
    pub(super) const FILE: &str = "disk";

    pub(super) fn new(bytes: usize, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            live: vec![0; bytes],
            durable: vec![0; bytes],
            unflushed: Vec::new(),
            seed: Seed::new(seed),
            refused_per_mille: 0,
            ends: vec![usize::MAX; ENDS],
        })))
    }

    /// Serves it at a directory until the session is dropped.
    pub(super) fn serve(&self, at: &Path) -> io::Result<BackgroundSession> {
        fuser::spawn_mount2(self.clone(), at, &[MountOption::FSName("unherd-test".to_owned())])
    }

    /// From now on refuses writes that hold data of a writer, n in a thousand.
    pub(super) fn refuse_data(&self, per_mille: u32) {
        self.0.lock().refused_per_mille = per_mille;
    }

    /// What it would hold if the power failed now.
    pub(super) fn after_power_cut(&self, seed: &mut Seed) -> Vec<u8> {
        let state = self.0.lock();
        let mut left = state.durable.clone();
        // All, none, whole writes, or sectors.
        let how = seed.below(4);
        for (at, bytes) in &state.unflushed {
            let piece = if how == 3 { SECTOR_BYTES } else { bytes.len() };
            for (nth, sectors) in bytes.chunks(piece).enumerate() {
                if how == 0 || how > 1 && seed.coin() {
                    let at = at + nth * piece;
                    left[at..at + sectors.len()].copy_from_slice(sectors);
                }
            }
        }
        left
    }

    fn attributes(&self, inode: u64) -> FileAttr {
        let size = self.0.lock().live.len() as u64;
        FileAttr {
            ino: inode,
            size: if inode == DISK { size } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if inode == ROOT { FileType::Directory } else { FileType::RegularFile },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl State {
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), i32> {
        // KERNEL: 6.18, a loop device takes a write for complete of which FUSE has refused all but
        // the first piece. So what goes on where another write has ended is not refused.
        let goes_on = self.ends.contains(&at);
        let is_data = || bytes.chunks_exact(SECTOR_BYTES).any(is_data);
        if !goes_on && is_data() && self.seed.chance_per_mille(self.refused_per_mille) {
            return Err(libc::EIO);
        }
        self.live[at..at + bytes.len()].copy_from_slice(bytes);
        self.unflushed.push((at, bytes.to_vec()));
        self.ends.rotate_right(1);
        self.ends[0] = at + bytes.len();
        Ok(())
    }

    fn flush(&mut self) {
        for (at, bytes) in self.unflushed.drain(..) {
            self.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        if parent == ROOT && name == Self::FILE {
            reply.entry(&FOR_EVER, &self.attributes(DISK), 0);
        } else {
            reply.error(libc::ENOENT);
        }
    }

    fn getattr(&mut self, _: &Request<'_>, inode: u64, _: Option<u64>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(inode));
    }

    fn open(&mut self, _: &Request<'_>, _inode: u64, _flags: i32, reply: ReplyOpen) {
        reply.opened(0, FOPEN_DIRECT_IO);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _inode: u64,
        _handle: u64,
        offset: i64,
        size: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyData,
    ) {
        let state = self.0.lock();
        let start = (offset as usize).min(state.live.len());
        let end = (start + size as usize).min(state.live.len());
        reply.data(&state.live[start..end]);
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        _inode: u64,
        _handle: u64,
        offset: i64,
        bytes: &[u8],
        _write_flags: u32,
        _flags: i32,
        _lock_owner: Option<u64>,
        reply: ReplyWrite,
    ) {
        match self.0.lock().write(offset as usize, bytes) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&mut self, _: &Request<'_>, _inode: u64, _: u64, _: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&mut self, _: &Request<'_>, _inode: u64, _: u64, _: bool, reply: ReplyEmpty) {
        self.0.lock().flush();
        reply.ok();
    }
}
