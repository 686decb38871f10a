//! How much memory is left: on the machine, and in the memory cgroups of this process.

use std::fs;
use std::path::{Path, PathBuf};

/// How much memory this process can take, and what bounds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailableMemory {
    /// Without swapping, or killing, what others have.
    pub bytes: u64,
    /// The file that says so: `/proc/meminfo`, or a cgroup's limit.
    pub limit: PathBuf,
}

/// The files of a memory cgroup.
struct Interface {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat`: the kernel's page cache, which it gives up when memory is wanted.
    reclaimable: [&'static str; 2],
}

const V1: Interface = Interface {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_active_file", "total_inactive_file"],
};

const V2: Interface = Interface {
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: ["active_file", "inactive_file"],
};

impl AvailableMemory {
    /// By `/proc` and what is mounted there; `None` where nothing tells. See
    /// [`AvailableMemory::read`].
    pub fn of_this_process() -> Option<Self> {
        Self::read(Path::new("/"))
    }

    /// What is available, if that is less than `bytes`: to take them all, the kernel's OOM killer
    /// would end somebody.
    pub fn lacks(bytes: usize) -> Option<Self> {
        Self::of_this_process().filter(|available| bytes as u64 > available.bytes)
    }

    /// The least of `MemAvailable` in `proc/meminfo` below `root` and, for each memory cgroup from
    /// this process's own upwards (v1 and v2), its limit less what is used and cannot be reclaimed.
    /// What cannot be read bounds nothing.
    pub fn read(root: &Path) -> Option<Self> {
        let limit = root.join("proc/meminfo");
        let machine = number_after("MemAvailable:", &read(&limit));
        let machine = machine.map(|kib| Self { bytes: kib.saturating_mul(1024), limit });
        machine.into_iter().chain(of_cgroups(root)).min_by_key(|available| available.bytes)
    }
}

fn of_cgroups(root: &Path) -> Vec<AvailableMemory> {
    let mounts = read(&root.join("proc/self/mountinfo"));
    let cgroups = read(&root.join("proc/self/cgroup"));
    let hierarchies = mounts.lines().filter_map(|line| hierarchy(line, &cgroups));
    let mut all = Vec::new();
    for (interface, mount, own) in hierarchies {
        let mount = root.join(mount.trim_start_matches('/'));
        let own = mount.join(own.trim_start_matches('/'));
        let dirs = own.ancestors().take_while(|dir| dir.starts_with(&mount));
        all.extend(dirs.filter_map(|dir| of_cgroup(dir, &interface)));
    }
    all
}

/// The interface, the mount, and this process's cgroup below it, of a line of `mountinfo`.
fn hierarchy<'a>(line: &'a str, cgroups: &'a str) -> Option<(Interface, &'a str, &'a str)> {
    let has_memory = |names: &str| names.split(',').any(|name| name == "memory");
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, mount) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    let is_v2 = match kind.next()? {
        "cgroup" if has_memory(kind.nth(1)?) => false,
        "cgroup2" => true,
        _ => return None,
    };
    let own = cgroups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_it = if is_v2 { controllers.is_empty() } else { has_memory(controllers) };
        is_it.then_some(path)
    })?;
    // In a container the mount may show a part of the hierarchy.
    Some((if is_v2 { V2 } else { V1 }, mount, own.strip_prefix(root).unwrap_or(own)))
}

/// `None` where there is no limit, as in a root.
fn of_cgroup(dir: &Path, interface: &Interface) -> Option<AvailableMemory> {
    let number = |name| read(&dir.join(name)).trim().parse::<u64>().ok();
    let limit_bytes = number(interface.limit)?;
    let used = number(interface.usage)?;
    let stat = read(&dir.join("memory.stat"));
    let reclaimable = interface.reclaimable.iter().filter_map(|name| number_after(name, &stat));
    let used = used.saturating_sub(reclaimable.sum());
    let bytes = limit_bytes.saturating_sub(used);
    Some(AvailableMemory { bytes, limit: dir.join(interface.limit) })
}

/// Empty where it cannot be read.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number in the line that begins with that word.
fn number_after(word: &str, text: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut line = lines.find_map(|mut words| (words.next()? == word).then_some(words))?;
    line.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n");
    const V2_MOUNT: &str = "30 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    /// What files with these texts say: how much, and by which of them.
    fn available(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let available = AvailableMemory::read(root.path())?;
        let limit = available.limit.strip_prefix(root.path()).unwrap();
        Some((available.bytes, limit.to_str().unwrap().to_owned()))
    }

    #[test]
    fn machine_bounds_where_no_cgroup_does() {
        let machine = Some((1000 << 10, "proc/meminfo".to_owned()));
        assert_eq!(available(&[MEMINFO]), machine);
        let unlimited = [
            MEMINFO,
            ("proc/self/mountinfo", V2_MOUNT),
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "500\n"),
        ];
        assert_eq!(available(&unlimited), machine);
        assert_eq!(available(&[]), None);
        assert_eq!(available(&[("proc/meminfo", "MemAvailable: many\n")]), None);
    }

    #[test]
    fn parent_cgroup_of_v2_bounds_without_its_page_cache() {
        let files = [
            MEMINFO,
            ("proc/self/mountinfo", V2_MOUNT),
            ("proc/self/cgroup", "4:cpu:/elsewhere\n0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "900000\n"),
            ("sys/fs/cgroup/a/b/memory.current", "100\n"),
            ("sys/fs/cgroup/a/memory.max", "5000\n"),
            ("sys/fs/cgroup/a/memory.current", "4000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 2900\nactive_file 100\ninactive_file 1000\n"),
        ];
        assert_eq!(available(&files), Some((2100, "sys/fs/cgroup/a/memory.max".to_owned())));
    }

    #[test]
    fn v1_counts_cgroups_below_and_a_containers_mount() {
        let files = [
            MEMINFO,
            (
                "proc/self/mountinfo",
                "31 23 0:28 / /sys rw - sysfs sysfs rw\n\
                 32 31 0:31 /docker/1 /cg/cpu rw - cgroup cgroup rw,cpu\n\
                 33 31 0:32 /docker/1 /cg/memory rw - cgroup cgroup rw,memory\n",
            ),
            ("proc/self/cgroup", "5:cpu:/docker/1\n4:memory:/docker/1/c\n0::/\n"),
            ("cg/memory/c/memory.limit_in_bytes", "3000\n"),
            ("cg/memory/c/memory.usage_in_bytes", "3500\n"),
            (
                "cg/memory/c/memory.stat",
                "inactive_file 9\ntotal_inactive_file 600\ntotal_active_file 400\n",
            ),
        ];
        let limit = "cg/memory/c/memory.limit_in_bytes".to_owned();
        assert_eq!(available(&files), Some((500, limit)));
    }

    #[test]
    fn this_machine_has_memory_available() {
        let available = AvailableMemory::of_this_process().unwrap();
        assert!(available.bytes > 0, "{available:?}");
    }
}
