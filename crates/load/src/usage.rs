//! SHIM: replaced by unherd_sys.
#![expect(unsafe_code, reason = "shim")]
use std::io;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
}

fn usage(who: i32) -> io::Result<Usage> {
    // SAFETY: zeroes are a valid rusage.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a plain system call that fills the struct.
    if unsafe { libc::getrusage(who, &mut raw) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    Ok(Usage {
        user_ns: ns(raw.ru_utime),
        system_ns: ns(raw.ru_stime),
        voluntary_switches: raw.ru_nvcsw as u64,
        involuntary_switches: raw.ru_nivcsw as u64,
    })
}

pub(crate) fn own() -> io::Result<Usage> {
    usage(libc::RUSAGE_SELF)
}

pub(crate) fn thread() -> io::Result<Usage> {
    usage(libc::RUSAGE_THREAD)
}

pub(crate) fn machine_busy_ns() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or("");
    let n: Vec<u64> = line.split_whitespace().skip(1).filter_map(|w| w.parse().ok()).collect();
    Ok((n[0] + n[1] + n[2] + n[5] + n[6]) * 10_000_000)
}

pub(crate) fn free_bytes(dir: &std::path::Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).map_err(io::Error::other)?;
    // SAFETY: zeroes are valid.
    let mut raw: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: path is a C string.
    if unsafe { libc::statvfs(path.as_ptr(), &mut raw) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(raw.f_bavail * raw.f_frsize)
}
