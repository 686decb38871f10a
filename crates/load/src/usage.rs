//! SHIM until unherd_sys tells free space.
#![expect(unsafe_code, reason = "shim")]

pub(crate) fn free_bytes(dir: &std::path::Path) -> std::io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).map_err(std::io::Error::other)?;
    // SAFETY: zeroes are valid.
    let mut raw: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: path is a C string.
    if unsafe { libc::statvfs(path.as_ptr(), &mut raw) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(raw.f_bavail * raw.f_frsize)
}
