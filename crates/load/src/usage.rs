//! SHIM: replaced by unherd_sys.
#![expect(unsafe_code, reason = "shim")]
use std::io;
use std::time::Duration;
use unherd_sys::Errno;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) voluntary_switches: u64,
}

impl Usage {
    pub(crate) fn of_this_process() -> Self {
        // SAFETY: zeroes are a valid rusage.
        let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a plain system call that fills the struct.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut raw) };
        let t = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        Self {
            user: t(raw.ru_utime),
            system: t(raw.ru_stime),
            voluntary_switches: raw.ru_nvcsw as u64,
        }
    }
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
        }
    }
    pub(crate) fn cpu(self) -> Duration {
        self.user + self.system
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BusyTime {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
}

impl BusyTime {
    pub(crate) fn now() -> Result<Self, Errno> {
        let text = std::fs::read_to_string("/proc/stat").map_err(|_| Errno::IO)?;
        let line = text.lines().next().unwrap_or("");
        let n: Vec<u64> = line.split_whitespace().skip(1).filter_map(|w| w.parse().ok()).collect();
        Ok(Self {
            user_ns: (n[0] + n[1]) * 10_000_000,
            system_ns: (n[2] + n[5] + n[6]) * 10_000_000,
        })
    }
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }
    pub(crate) fn busy_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }
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
