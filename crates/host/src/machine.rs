//! The machine a measurement was taken on, as a record keeps it.
//!
//! Everything is read from `/proc` and `/sys` once; what a machine does not tell is `None`, never
//! an error: a record with a gap is worth more than none.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use rustix::io::Errno;
use unherd_sys::primitives::thread;

/// Processors, memory and kernel.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Machine {
    /// The processor's name for itself.
    pub cpu_model: Option<String>,
    /// Processors that this process may run on.
    pub cpus: u32,
    /// NUMA nodes that are online.
    pub numa_nodes: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel's name and release.
    pub kernel: String,
    /// The frequency governor of the first processor; virtual machines most often have none.
    pub cpu_governor: Option<String>,
    /// Whether a hypervisor says that it is there.
    pub hypervisor: bool,
}

/// A directory on a file system on a device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Directory {
    /// The directory, absolute.
    pub path: PathBuf,
    /// The file system's type, such as `ext4`.
    pub file_system: Option<String>,
    /// What is mounted, such as `/dev/vda`.
    pub source: Option<String>,
    /// The device's name for the kernel, such as `vda`; of a partition, that of the whole disk.
    pub device: Option<String>,
    /// How far the kernel reads ahead, in KiB.
    pub read_ahead_kib: Option<u64>,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Space left for this user, in bytes.
    pub free_bytes: u64,
    /// Whether the permissions let this user make files in it.
    pub writable: bool,
}

impl Machine {
    /// This machine.
    pub fn describe() -> Self {
        let cpu_info = read("/proc/cpuinfo").unwrap_or_default();
        let name = rustix::system::uname();
        let [system, release] = [name.sysname(), name.release()].map(|text| text.to_string_lossy());
        Self {
            cpu_model: ["model name", "Model", "cpu"]
                .iter()
                .find_map(|field| cpu_info_field(&cpu_info, field)),
            cpus: thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            numa_nodes: numa_nodes(),
            memory_bytes: memory_bytes(&read("/proc/meminfo").unwrap_or_default()).unwrap_or(0),
            kernel: format!("{system} {release}"),
            cpu_governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            hypervisor: cpu_info_field(&cpu_info, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
                || Path::new("/sys/hypervisor/type").exists(),
        }
    }
}

/// As many as the kernel shows; one where it shows none.
fn numa_nodes() -> u32 {
    let is_node = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<u32>().ok()).is_some()
    };
    let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    (entries.filter(is_node).count() as u32).max(1)
}

impl Directory {
    /// The directory at `path`. `ENOENT` if there is none, `ENOTDIR` if it is something else.
    pub fn describe(path: &Path) -> Result<Self, Errno> {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let path = path.canonicalize().map_err(errno)?;
        let metadata = path.metadata().map_err(errno)?;
        if !metadata.is_dir() {
            return Err(Errno::NOTDIR);
        }
        let mounts = read("/proc/self/mountinfo").unwrap_or_default();
        let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        let device = format!("{major}:{minor}");
        let (file_system, source) = mount_of(&mounts, &path, &device).unzip();
        let disk = fs::canonicalize(format!("/sys/dev/block/{device}")).ok().map(|device| {
            match device.parent() {
                Some(disk) if device.join("partition").exists() => disk.to_path_buf(),
                _ => device,
            }
        });
        let queue = |name: &str| read(disk.as_ref()?.join("queue").join(name));
        let space = statvfs(&path)?;
        Ok(Self {
            file_system,
            source,
            read_ahead_kib: queue("read_ahead_kb").and_then(|text| text.parse().ok()),
            scheduler: queue("scheduler").map(|list| chosen(&list)),
            device: disk
                .as_ref()
                .and_then(|disk| Some(disk.file_name()?.to_string_lossy().into_owned())),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            writable: accessat(CWD, &path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
                .is_ok(),
            path,
        })
    }
}

/// A file's text without the blanks around it.
fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The first value of a field of `/proc/cpuinfo`.
fn cpu_info_field(text: &str, field: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == field).then(|| value.trim().to_owned())
    })
}

fn memory_bytes(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The word in brackets of a list such as `none [mq-deadline] bfq`.
fn chosen(list: &str) -> String {
    list.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(list, |(chosen, _)| chosen)
        .to_owned()
}

/// Type and source of the mount that holds `path`: the longest mount point above it, and of equal
/// ones the last, which covers the others. In a chroot there may be none; then any mount of the
/// same device, such as `8:1`.
fn mount_of(mounts: &str, path: &Path, device: &str) -> Option<(String, String)> {
    let mounts = mounts.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let is_same_device = place.next()? == device;
        let point = unescape(place.nth(1)?);
        let mut kind = kind.split(' ');
        let kind = (kind.next()?.to_owned(), unescape(kind.next()?));
        let rank = if path.starts_with(&point) { 1 + point.len() } else { 0 };
        (rank > 0 || is_same_device).then_some((rank, kind))
    });
    mounts.max_by_key(|(rank, _)| *rank).map(|(_, kind)| kind)
}

/// Blanks and the like stand in mountinfo as `\040`.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_described_and_recorded() {
        let machine = Machine::describe();
        assert!(machine.cpus >= 1 && machine.numa_nodes >= 1);
        assert!(machine.memory_bytes > 1 << 20);
        assert!(machine.kernel.starts_with("Linux "));
        let json = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
    }

    #[test]
    fn directory_has_file_system_and_space() {
        let dir = tempfile::tempdir().unwrap();
        let described = Directory::describe(dir.path()).unwrap();
        assert!(described.file_system.is_some());
        assert!(described.free_bytes > 0 && described.writable);
        assert_eq!(Directory::describe(&dir.path().join("absent")).unwrap_err(), Errno::NOENT);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(Directory::describe(&file).unwrap_err(), Errno::NOTDIR);
    }

    #[test]
    fn the_chosen_of_a_list_is_read() {
        assert_eq!(chosen("none [mq-deadline] bfq"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn the_nearest_mount_holds_the_path() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n\
                      2 1 8:2 / /a\\040b rw shared:1 - xfs /dev/b rw\n\
                      3 1 8:3 / /a\\040b rw - btrfs /dev/c rw";
        let of = |path: &str| mount_of(mounts, Path::new(path), "8:2").unwrap().0;
        assert_eq!(of("/x"), "ext4");
        assert_eq!(of("/a b/c"), "btrfs");
        assert_eq!(of("/a bc"), "ext4");
    }

    #[test]
    fn a_chroot_is_found_by_its_device() {
        let mounts = "1 0 0:5 / /proc rw - proc proc rw\n\
                      2 0 8:1 /opt /opt ro - ext4 /dev/a rw";
        let of = |device: &str| mount_of(mounts, Path::new("/x"), device);
        assert_eq!(of("8:1"), Some(("ext4".to_owned(), "/dev/a".to_owned())));
        assert_eq!(of("8:2"), None);
    }
}
