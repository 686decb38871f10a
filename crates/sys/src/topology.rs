//! NUMA: which nodes there are, and which processors are near each.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::thread::CpuSet;

#[cfg(not(shuttle))]
use crate::primitives::available_parallelism;
#[cfg(shuttle)]
use crate::primitives::thread_number;

/// The kernel's number of a NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u16);

impl NodeId {
    /// How many nodes a kernel can be built for; numbers are below it.
    pub const COUNT_MAX: usize = 1024;

    /// The node of that number; `None` from [`NodeId::COUNT_MAX`] on.
    pub fn new(number: u32) -> Option<Self> {
        let number = u16::try_from(number).ok()?;
        (usize::from(number) < Self::COUNT_MAX).then_some(Self(number))
    }

    /// Its number.
    pub fn number(self) -> u32 {
        u32::from(self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// Why a machine's nodes are not known.
#[derive(Debug)]
#[non_exhaustive]
pub enum TopologyError {
    /// A file could not be read.
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A file does not hold a list of numbers.
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it holds.
        text: String,
        /// What the numbers must stay below.
        limit: u32,
    },
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Malformed { path, text, limit } => {
                write!(f, "{} is no list such as 0-3,8 below {limit}: {text:?}", path.display())
            }
        }
    }
}

impl Error for TopologyError {}

/// The online nodes, in ascending order, at least one; and the processors of each.
///
/// ```
/// # use unherd_sys as unherd;
/// use unherd::Topology;
///
/// let topology = Topology::of_this_machine()?;
/// println!("{} nodes", topology.nodes().len());
/// # Ok::<(), unherd::TopologyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<NodeId>,
    /// As long as `nodes`.
    cpus: Vec<Vec<u32>>,
}

/// More processors than any kernel can be built for.
const CPUS_MAX: u32 = 1 << 16;

/// Processors of an invented machine in a simulation, which is the same on every real one. Each
/// thread keeps to one.
#[cfg(shuttle)]
const SIMULATED_CPUS: u32 = 8;

impl Topology {
    /// This machine's, by `/sys`. See [`Topology::read`].
    pub fn of_this_machine() -> Result<Self, TopologyError> {
        Self::read(Path::new("/sys"))
    }

    /// What a sysfs at `root` tells in `devices/system/node`. Where it does not have that (a kernel
    /// without NUMA, a sandbox), there is one node with every processor.
    ///
    /// A node may have no processors (memory alone), and one may have no memory, which this does
    /// not tell: a wish for its memory is refused when it is made.
    pub fn read(root: &Path) -> Result<Self, TopologyError> {
        const LIMIT: u32 = NodeId::COUNT_MAX as u32;
        let dir = root.join("devices/system/node");
        let online = dir.join("online");
        let nodes: Vec<NodeId> = match list(&online, LIMIT) {
            Err(TopologyError::File { error, .. }) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self::of(1));
            }
            numbers => numbers?.into_iter().filter_map(NodeId::new).collect(),
        };
        if nodes.is_empty() {
            let text = String::new();
            return Err(TopologyError::Malformed { path: online, text, limit: LIMIT });
        }
        let cpus = nodes
            .iter()
            .map(|node| list(&dir.join(format!("node{}/cpulist", node.number())), CPUS_MAX))
            .collect::<Result<_, _>>()?;
        Ok(Self { nodes, cpus })
    }

    /// An invented machine of `nodes` nodes, for tests of what is made for several where there is
    /// one: from 1 to [`NodeId::COUNT_MAX`], and the nearest of these for any other number. As many
    /// processors as this process may use, numbered from 0, are dealt to the nodes in turn.
    pub fn of(nodes: u32) -> Self {
        let count = nodes.clamp(1, NodeId::COUNT_MAX as u32);
        #[cfg(not(shuttle))]
        let cpus = available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        #[cfg(shuttle)]
        let cpus = SIMULATED_CPUS;
        Self {
            nodes: (0..count).filter_map(NodeId::new).collect(),
            cpus: (0..count).map(|node| (node..cpus).step_by(count as usize).collect()).collect(),
        }
    }

    /// Without the nodes that are near none of the processors on which the calling thread may run
    /// (a cpuset, sched_setaffinity(2)), or have none. The same if none would be left, or if that
    /// is not known.
    pub fn near_this_thread(self) -> Self {
        match rustix::thread::sched_getaffinity(None) {
            Ok(allowed) => {
                self.near(|cpu| (cpu as usize) < CpuSet::MAX_CPU && allowed.is_set(cpu as usize))
            }
            Err(_) => self,
        }
    }

    fn near(self, may_run_on: impl Fn(u32) -> bool) -> Self {
        let nodes = self.nodes.iter().copied().zip(self.cpus.iter().cloned());
        let (nodes, cpus): (Vec<_>, Vec<_>) =
            nodes.filter(|(_, cpus)| cpus.iter().any(|cpu| may_run_on(*cpu))).unzip();
        if nodes.is_empty() { self } else { Self { nodes, cpus } }
    }

    /// The nodes, in ascending order; never none.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The processors near a node, ascending; none for a node that only has memory, or is unknown.
    pub fn cpus_of(&self, node: NodeId) -> &[u32] {
        self.nodes.binary_search(&node).map_or(&[], |at| &self.cpus[at])
    }
}

/// The processor that the calling thread runs on, or ran on a moment ago. No system call where the
/// kernel offers that (x86-64 and AArch64 do).
pub fn current_cpu() -> usize {
    #[cfg(not(shuttle))]
    return rustix::thread::sched_getcpu();
    #[cfg(shuttle)]
    return thread_number() % SIMULATED_CPUS as usize;
}

/// The numbers in a file such as `0-3,8`, ascending and below `limit`; a blank file has none.
fn list(path: &Path, limit: u32) -> Result<Vec<u32>, TopologyError> {
    let text = fs::read_to_string(path)
        .map_err(|error| TopologyError::File { path: path.to_owned(), error })?;
    let text = text.trim();
    parse_list(text, limit).ok_or_else(|| TopologyError::Malformed {
        path: path.to_owned(),
        text: text.to_owned(),
        limit,
    })
}

fn parse_list(text: &str, limit: u32) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    if text.is_empty() {
        return Some(numbers);
    }
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        let ascends = numbers.last().is_none_or(|before| *before < first);
        if !ascends || first > last || last >= limit {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs with the given files in `devices/system/node`.
    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join("devices/system/node").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn read(files: &[(&str, &str)]) -> Result<Topology, TopologyError> {
        Topology::read(sysfs(files).path())
    }

    fn numbers(topology: &Topology) -> Vec<u32> {
        topology.nodes().iter().map(|node| node.number()).collect()
    }

    #[test]
    fn nodes_and_their_processors_are_read() {
        let topology = read(&[
            ("online", "0-1,4\n"),
            ("node0/cpulist", "0-2,8-9\n"),
            ("node1/cpulist", "3\n"),
            ("node4/cpulist", "\n"),
            ("node5/cpulist", "7\n"),
        ])
        .unwrap();
        assert_eq!(numbers(&topology), [0, 1, 4]);
        let [first, second, third] = topology.nodes() else { panic!("three nodes") };
        assert_eq!(topology.cpus_of(*first), [0, 1, 2, 8, 9]);
        assert_eq!(topology.cpus_of(*second), [3]);
        assert!(topology.cpus_of(*third).is_empty());
        assert!(topology.cpus_of(NodeId::new(5).unwrap()).is_empty(), "not online");
    }

    #[test]
    fn without_nodes_in_sysfs_there_is_one() {
        let topology = read(&[]).unwrap();
        assert_eq!(topology, Topology::of(1));
        assert_eq!(numbers(&topology), [0]);
        assert!(!topology.cpus_of(topology.nodes()[0]).is_empty());
    }

    #[test]
    fn a_malformed_list_is_named() {
        let online = ["", "x", "0-", "-1", "1-0", "0,,1", "1,0", "0,0", "0-2:2", "1024"];
        for text in online.into_iter().chain(["0-4294967295"]) {
            let error = read(&[("online", text)]).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, TopologyError::Malformed { .. }), "{text:?}: {message}");
            assert!(message.contains("node/online") && message.contains(&format!("{text:?}")));
        }
        let error = read(&[("online", "0"), ("node0/cpulist", "0-99999999")]).unwrap_err();
        assert!(error.to_string().contains("node0/cpulist"), "{error}");
        let error = read(&[("online", "0-1"), ("node0/cpulist", "0")]).unwrap_err();
        assert!(matches!(error, TopologyError::File { .. }));
        assert!(error.to_string().contains("node1/cpulist"), "{error}");
    }

    #[test]
    fn forbidden_nodes_are_left_out() {
        let topology = read(&[
            ("online", "0-2"),
            ("node0/cpulist", "0-1"),
            ("node1/cpulist", "2-3"),
            ("node2/cpulist", ""),
        ])
        .unwrap();
        let near = topology.clone().near(|cpu| cpu == 3);
        assert_eq!(numbers(&near), [1]);
        assert_eq!(near.cpus_of(near.nodes()[0]), [2, 3]);
        assert_eq!(numbers(&topology.clone().near(|_| true)), [0, 1]);
        assert_eq!(topology.clone().near(|_| false), topology, "none would be left");
        assert!(!Topology::of(1).near_this_thread().nodes().is_empty());
    }

    #[test]
    fn this_machine_has_a_node() {
        let topology = Topology::of_this_machine().unwrap();
        assert!(topology.nodes().is_sorted());
        assert!(topology.nodes().iter().any(|node| !topology.cpus_of(*node).is_empty()));
    }

    #[test]
    fn invented_nodes_share_the_processors() {
        let all = Topology::of(1).cpus.concat();
        for count in [2, 4] {
            let topology = Topology::of(count);
            assert_eq!(numbers(&topology), Vec::from_iter(0..count));
            let mut cpus = topology.cpus.concat();
            cpus.sort_unstable();
            assert_eq!(cpus, all);
        }
        assert_eq!(Topology::of(0), Topology::of(1));
        assert_eq!(Topology::of(u32::MAX).nodes().len(), NodeId::COUNT_MAX);
        assert_eq!(NodeId::new(1023).unwrap().to_string(), "node 1023");
        assert_eq!(NodeId::new(1024).or(NodeId::new(u32::MAX)), None);
    }
}
