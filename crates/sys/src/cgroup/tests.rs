use std::process::Command;

use super::*;
use crate::{ChildProcess, Deadline, SpawnHow};

const V1_MOUNT: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
const V2_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 none rw\n";

#[test]
fn the_hierarchy_with_the_controller_is_found() {
    let mounts = format!("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n{V2_MOUNT}{V1_MOUNT}");
    let cgroups = "4:memory:/a/b\n1:cpu:/c\n0::/d\n";
    let hybrid = Hierarchy::find(&mounts, cgroups, |_| false).unwrap();
    assert_eq!(hybrid.version, CgroupVersion::V1);
    assert_eq!(hybrid.own, Path::new("/sys/fs/cgroup/memory/a/b"));
    let parents: Vec<_> = hybrid.parents();
    assert_eq!(parents.len(), 3);
    assert_eq!(parents[0], Path::new("/sys/fs/cgroup/memory"));

    let unified = Hierarchy::find(V2_MOUNT, cgroups, |_| true).unwrap();
    assert_eq!(unified.version, CgroupVersion::V2);
    assert_eq!(unified.own, Path::new("/sys/fs/cgroup/unified/d"));
    assert_eq!(Hierarchy::find(V2_MOUNT, cgroups, |_| false), None);

    let contained = "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let inside = Hierarchy::find(contained, "4:memory:/docker/x/y\n", |_| false).unwrap();
    assert_eq!(inside.own, Path::new("/sys/fs/cgroup/memory/y"));
}

#[test]
fn only_our_names_are_ours() {
    assert_eq!(maker_of("unherd-12-34-0").unwrap().pid(), 12);
    for other in ["unherd-12-34", "unherd-x-34-0", "user.slice", "unherd-12-34-x"] {
        assert_eq!(maker_of(other), None, "{other}");
    }
}

#[test]
fn errors_say_what_to_do() {
    assert!(CgroupError::NoController.to_string().contains("mount"));
    assert!(CgroupError::PermissionDenied("/sys".into()).to_string().contains("run as root"));
}

/// The cgroup, or the reason why there can be none here printed.
fn cgroup(limit_bytes: u64) -> Option<Cgroup> {
    match Cgroup::create(limit_bytes) {
        Ok(cgroup) => Some(cgroup),
        Err(error @ (CgroupError::NoController | CgroupError::PermissionDenied(_))) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn root_a_child_over_the_limit_is_killed_and_one_below_is_not() {
    let Some(cgroup) = cgroup(32 << 20) else { return };
    let run = |bytes: u64| {
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "of=/dev/null", "count=1"]).arg(format!("bs={bytes}"));
        command.stderr(std::process::Stdio::null());
        let how = SpawnHow { cgroup: Some(cgroup.procs()), ..SpawnHow::default() };
        let mut child = ChildProcess::spawn(command, how).unwrap();
        child.wait(Deadline::NEVER).unwrap().unwrap().status
    };
    assert!(run(8 << 20).success());
    assert!(!run(64 << 20).success());
    let peak = cgroup.peak_bytes().unwrap();
    assert!(peak.is_none_or(|peak| peak > 8 << 20 && peak <= 32 << 20), "{peak:?}");
    let dir = cgroup.dir().to_path_buf();
    cgroup.remove().unwrap();
    assert!(!dir.exists());
}

#[test]
fn root_drop_kills_what_is_inside() {
    let Some(cgroup) = cgroup(32 << 20) else { return };
    let mut command = Command::new("sleep");
    command.arg("1000");
    let how = SpawnHow { cgroup: Some(cgroup.procs()), ..SpawnHow::default() };
    let mut child = ChildProcess::spawn(command, how).unwrap();
    let dir = cgroup.dir().to_path_buf();
    drop(cgroup);
    assert!(!dir.exists());
    assert!(!child.wait(Deadline::NEVER).unwrap().unwrap().status.success());
}

#[test]
fn root_what_a_dead_maker_left_is_swept() {
    let Some(cgroup) = cgroup(32 << 20) else { return };
    let mut maker = Command::new("true").spawn().unwrap();
    maker.wait().unwrap();
    let left = cgroup.dir().with_file_name(format!("unherd-{}-1-0", maker.id()));
    fs::create_dir(&left).unwrap();
    // Another test's sweep may be the one to remove it.
    Cgroup::sweep().unwrap();
    assert!(!left.exists());
    assert!(cgroup.dir().exists(), "a living maker's stays");
}
