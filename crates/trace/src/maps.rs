//! What code each followed process has mapped, so that addresses can be named after its end.
//!
//! Mappings come from three places: the kernel's records of each mapping made (which miss nothing,
//! however short the process lives), `/proc/PID/maps` for a process that ran before, and from the
//! parent for what a forked process began with. Where there are no records, `/proc` is read again
//! and again, and a process that lives only shortly is lost.
//!
//! A process in another mount namespace (a container) names its files as it sees them. Its root is
//! held open from the time when it is first met, so that the files can be opened after its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use unherd_host::{Chains, CodeMapping};

use crate::observation::{Mapping, Process};

/// What is known of the code of all processes.
#[derive(Debug)]
pub(crate) struct CodeMaps {
    /// What processes had mapped when they were attached to, or looked at.
    read: HashMap<u32, Vec<CodeMapping>>,
    parents: HashMap<u32, u32>,
    alive: BTreeSet<u32>,
    own_root: Option<Root>,
    /// Whose root is another than ours.
    rooted: HashMap<u32, Root>,
    /// Other roots, held open.
    held: BTreeMap<Root, OwnedFd>,
}

/// A mount namespace and a directory in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Root {
    namespace: PathBuf,
    device: u64,
    inode: u64,
}

impl Root {
    fn of(process: &str) -> io::Result<Self> {
        let namespace = fs::read_link(format!("/proc/{process}/ns/mnt"))?;
        let root = fs::metadata(format!("/proc/{process}/root"))?;
        Ok(Self { namespace, device: root.dev(), inode: root.ino() })
    }
}

impl CodeMaps {
    pub(crate) fn new() -> Self {
        Self {
            read: HashMap::new(),
            parents: HashMap::new(),
            alive: BTreeSet::new(),
            own_root: Root::of("self").ok(),
            rooted: HashMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// A process that runs already is followed from now on.
    pub(crate) fn attach(&mut self, pid: u32) {
        self.alive.insert(pid);
        self.look_at(pid);
        self.look_at_root(pid);
    }

    /// A followed process has a child.
    pub(crate) fn began(&mut self, pid: u32, parent: u32) {
        self.alive.insert(pid);
        self.parents.insert(pid, parent);
    }

    /// A process runs another program, perhaps in another place.
    pub(crate) fn executed(&mut self, pid: u32) {
        self.alive.insert(pid);
        self.look_at_root(pid);
    }

    pub(crate) fn ended(&mut self, pid: u32) {
        self.alive.remove(&pid);
    }

    /// Reads the mappings of all who live, for want of records.
    pub(crate) fn read_again(&mut self) {
        for pid in self.alive.clone() {
            self.look_at(pid);
        }
    }

    fn look_at(&mut self, pid: u32) {
        match CodeMapping::of_process(pid) {
            // A process that ends has none any more; what it had is worth more.
            Ok(mappings) if !mappings.is_empty() => {
                self.read.insert(pid, mappings);
            }
            _ => {}
        }
    }

    fn look_at_root(&mut self, pid: u32) {
        let Ok(root) = Root::of(&pid.to_string()) else { return };
        if Some(&root) == self.own_root.as_ref() {
            self.rooted.remove(&pid);
            return;
        }
        if !self.held.contains_key(&root) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let held = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty());
            let Ok(held) = held else { return };
            self.held.insert(root.clone(), held);
        }
        self.rooted.insert(pid, root);
    }

    /// Fills in the mappings of `processes`. The paths to open are good while this value lives.
    pub(crate) fn give(&self, processes: &mut [Process], recorded: Option<&Chains>) {
        let parents: HashMap<u32, u32> = processes.iter().map(|p| (p.pid, p.parent)).collect();
        for process in processes {
            let (pid, parent) = (process.pid, |pid: u32| self.parent_of(pid, recorded, &parents));
            let recorded = recorded.and_then(|chains| chains.mappings.get(&pid));
            let read = first_of_ancestors(pid, &parent, |pid| self.read.get(&pid));
            let root = first_of_ancestors(pid, &parent, |pid| {
                self.rooted.get(&pid).and_then(|root| self.held.get(root))
            });
            let all = read.into_iter().flatten().chain(recorded.into_iter().flatten());
            process.maps.clear();
            for mapping in all {
                let mapping = shown(mapping, root);
                if process.maps.last() != Some(&mapping) {
                    process.maps.push(mapping);
                }
            }
            process.maps_lost = process.maps.is_empty();
        }
    }

    fn parent_of(
        &self,
        pid: u32,
        recorded: Option<&Chains>,
        seen: &HashMap<u32, u32>,
    ) -> Option<u32> {
        let recorded = recorded.and_then(|chains| chains.parents.get(&pid));
        recorded.or_else(|| self.parents.get(&pid)).or_else(|| seen.get(&pid)).copied()
    }
}

/// What the process itself has, or the nearest of its ancestors.
fn first_of_ancestors<T>(
    pid: u32,
    parent: &impl Fn(u32) -> Option<u32>,
    of: impl Fn(u32) -> Option<T>,
) -> Option<T> {
    let mut pid = pid;
    // A bound instead of a check for circles, which reused numbers could make.
    for _generation in 0..64 {
        if let Some(found) = of(pid) {
            return Some(found);
        }
        pid = parent(pid)?;
    }
    None
}

/// The mapping as observations have it, with a path that opens it from here.
fn shown(mapping: &CodeMapping, root: Option<&OwnedFd>) -> Mapping {
    let CodeMapping { start, end, file_offset, ref path } = *mapping;
    let path = if path.starts_with("//") { "" } else { path };
    let rooted = root
        .filter(|_| path.starts_with('/'))
        .map(|root| format!("/proc/{}/fd/{}{path}", std::process::id(), root.as_raw_fd()));
    // `/proc/PID/maps` of a process that has only changed its root has names as we see them.
    let open_path = match rooted.filter(|rooted| Path::new(rooted).exists()) {
        Some(rooted) => rooted,
        None if path.starts_with('/') => path.to_owned(),
        None => String::new(),
    };
    Mapping { start, end, offset: file_offset, path: path.to_owned(), open_path }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(start: u64, path: &str) -> CodeMapping {
        CodeMapping { start, end: start + 0x1000, file_offset: 0, path: path.into() }
    }

    fn process(pid: u32, parent: u32) -> Process {
        Process { pid, parent, ..Process::default() }
    }

    #[test]
    fn records_follow_reads_and_children_inherit() {
        let mut maps = CodeMaps::new();
        maps.read.insert(7, vec![code(0x1000, "/bin/old")]);
        maps.began(9, 8);
        let mut chains = Chains::default();
        chains.mappings.insert(7, vec![code(0x1000, "/bin/new"), code(0x9000, "//anon")]);
        chains.parents.insert(8, 7);
        let mut processes = [process(7, 1), process(8, 0), process(9, 0), process(10, 1)];
        maps.give(&mut processes, Some(&chains));
        let paths = |index: usize| -> Vec<&str> {
            processes[index].maps.iter().map(|map| map.path.as_str()).collect()
        };
        assert_eq!(paths(0), ["/bin/old", "/bin/new", ""]);
        assert_eq!(processes[0].maps[1].open_path, "/bin/new");
        assert_eq!(paths(1), ["/bin/old"]);
        assert_eq!(paths(2), ["/bin/old"]);
        assert!(processes[3].maps_lost && !processes[2].maps_lost);
    }

    #[test]
    fn same_root_process_uses_its_own_names() {
        let mut maps = CodeMaps::new();
        let me = std::process::id();
        maps.attach(me);
        assert!(maps.held.is_empty());
        let mut processes = [process(me, 1)];
        maps.give(&mut processes, None);
        let own = std::env::current_exe().unwrap();
        let mine = processes[0].maps.iter().find(|map| Path::new(&map.path) == own).unwrap();
        assert_eq!(mine.path, mine.open_path);
        assert!(
            processes[0].maps.iter().any(|map| map.path == "[vdso]" && map.open_path.is_empty())
        );
    }

    #[test]
    fn root_foreign_root_is_opened_after_end() {
        use std::process::{Command, Stdio};

        use unherd_host::{ChildProcess, SpawnHow};
        use unherd_sys::Deadline;

        if !rustix::process::geteuid().is_root() {
            println!("skipped: chroot(1) needs root");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let copy = "cp -L --parents /bin/sleep $(ldd /bin/sleep | grep -o '/[^ ]*') \"$1\"";
        let copied = Command::new("sh").args(["-c", copy, "sh"]).arg(place.path()).status();
        assert!(copied.unwrap().success());
        let mut command = Command::new("chroot");
        command.arg(place.path()).args(["/bin/sleep", "1000"]).stdin(Stdio::null());
        let mut child = ChildProcess::spawn(command, SpawnHow::default()).unwrap();
        let pid = child.pid();
        let is_sleep = || {
            let code = CodeMapping::of_process(pid).unwrap();
            code.iter()
                .any(|mapping| &*mapping.path == place.path().join("bin/sleep").to_str().unwrap())
        };
        // chroot(1) itself runs first.
        while !is_sleep() {
            unherd_sys::primitives::thread::yield_now();
        }
        let mut maps = CodeMaps::new();
        maps.attach(pid);
        child.kill().unwrap();
        child.wait(Deadline::NEVER).unwrap().unwrap();
        // As the kernel's records have it: by the process's own name.
        let mut chains = Chains::default();
        chains.mappings.insert(pid, vec![code(0, "/bin/sleep")]);
        let mut processes = [process(pid, 1)];
        maps.give(&mut processes, Some(&chains));
        let opened = fs::metadata(&processes[0].maps.last().unwrap().open_path).unwrap();
        let file = fs::metadata(place.path().join("bin/sleep")).unwrap();
        assert_eq!((opened.dev(), opened.ino()), (file.dev(), file.ino()));
    }
}
