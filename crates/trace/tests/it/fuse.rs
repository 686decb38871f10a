//! A file system of FUSE whose daemon is a thread of the test: one file, nothing of it cached, so
//! that a look sleeps until the daemon has answered.
#![expect(unsafe_code, reason = "mount(2) is not in std, nor in what is built of rustix")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tempfile::TempDir;
use unherd_sys::primitives::thread::{self, JoinHandle};

const ROOT: u64 = 1;
const FILE: u64 = 2;
const CONTENT: &[u8] = b"nothing new";

// Of <linux/fuse.h>: what is asked for, in headers of 40 bytes.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const HEADER_BYTES: usize = 40;
const DIRECT_IO: u32 = 1;

/// Mounted until it is dropped.
pub(crate) struct FileSystem {
    place: TempDir,
    daemon: Option<JoinHandle<()>>,
}

impl FileSystem {
    /// Mounts it and starts its daemon; an error where that is not allowed.
    pub(crate) fn mount() -> io::Result<Self> {
        let place = tempfile::tempdir()?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let (data, target) = (CString::new(data)?, target(&place)?);
        let name: &CStr = c"fuse";
        // SAFETY: the strings end with a zero and outlive the call, which writes nothing here.
        let mounted = unsafe {
            libc::mount(name.as_ptr(), target.as_ptr(), name.as_ptr(), 0, data.as_ptr().cast())
        };
        if mounted != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { place, daemon: Some(thread::spawn(move || serve(&device))) })
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if let Ok(target) = target(&self.place) {
            // SAFETY: the string ends with a zero and outlives the call.
            unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        }
        // Its device has no file system any more.
        self.daemon.take().map(JoinHandle::join);
    }
}

fn target(place: &TempDir) -> io::Result<CString> {
    Ok(CString::new(place.path().as_os_str().as_bytes())?)
}

fn serve(mut device: &File) {
    let mut request = vec![0; 1 << 17];
    while let Ok(length) = device.read(&mut request) {
        let request = &request[..length];
        let (asked, node) = (u32_at(request, 4), u64_at(request, 16));
        let answer = match asked {
            FORGET | BATCH_FORGET => continue,
            _ => answer(asked, node, &request[HEADER_BYTES..]),
        };
        let (errno, body) = answer.map_or_else(|errno| (errno, Vec::new()), |body| (0, body));
        let bytes = (16 + body.len()) as u32;
        let unique = &request[8..16];
        let reply = [&bytes.to_ne_bytes()[..], &(-errno).to_ne_bytes(), unique, &body].concat();
        // A request that was interrupted is gone.
        _ = device.write(&reply);
        if asked == DESTROY {
            return;
        }
    }
}

/// The body of the answer, or the number of an error.
fn answer(asked: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
    match asked {
        // Version 7.31, and no more than what each version has.
        INIT => Ok(words(&[7, 31, 0, 0, 0, 4096]).into_iter().chain([0; 40]).collect()),
        LOOKUP if body.starts_with(b"file\0") => {
            Ok([&longs(&[FILE, 0, 0, 0, 0])[..], &attributes(FILE)].concat())
        }
        LOOKUP => Err(libc::ENOENT),
        GETATTR => Ok([&longs(&[0, 0])[..], &attributes(node)].concat()),
        OPEN => Ok([&longs(&[1])[..], &words(&[DIRECT_IO, 0])].concat()),
        READ => {
            let rest = CONTENT.iter().skip(u64_at(body, 8) as usize);
            Ok(rest.take(u32_at(body, 16) as usize).copied().collect())
        }
        DESTROY => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    }
}

/// A `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, bytes) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 0),
        _ => (libc::S_IFREG | 0o644, CONTENT.len() as u64),
    };
    let times = words(&[0, 0, 0]);
    let rest = words(&[mode, 1, 0, 0, 0, 4096, 0]);
    [longs(&[node, bytes, 1, 0, 0, 0]), times, rest].concat()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
