use std::process::Command;

use unherd_sys::Deadline;

use super::*;
use crate::{ChildProcess, SpawnHow};

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
    assert_eq!(maker_of("unherd-12-34-56-0").unwrap().pid(), 12);
    let others = ["unherd-12-34-56", "unherd-x-34-56-0", "user.slice", "unherd-12-34-56-x"];
    for other in others {
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
fn root_only_child_over_limit_is_killed() {
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
    assert!(cgroup.has_run_out().unwrap_or(true));
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

fn sleeper() -> ChildProcess {
    let mut command = Command::new("sleep");
    command.arg("1000");
    ChildProcess::spawn(command, SpawnHow::default()).unwrap()
}

/// The number of a listed process became another's before it was opened.
#[test]
fn a_process_that_is_not_listed_any_more_is_left_alone() {
    let sleepers = [sleeper(), sleeper()];
    let pids = sleepers.each_ref().map(|child| Pid::from_raw(child.pid() as i32).unwrap());
    let pinned = pinned(&pids, || Ok(vec![pids[1]])).unwrap();
    assert_eq!(pinned.len(), 1);
    pidfd_send_signal(&pinned[0], Signal::KILL).unwrap();
    let [mut left_alone, mut killed] = sleepers;
    assert!(killed.wait(Deadline::NEVER).unwrap().is_some());
    assert_eq!(left_alone.wait(Deadline::after(Duration::from_millis(1))), Ok(None));
}

/// No process has this number: it is above the kernel's limit of 2^22.
const NO_PROCESS: i32 = 4_194_305;

#[test]
fn a_listed_process_that_has_ended_is_no_error() {
    let gone = Pid::from_raw(NO_PROCESS).unwrap();
    assert!(pinned(&[gone], || Ok(vec![gone])).unwrap().is_empty());
}

/// A name of a cgroup that a process made which has ended.
fn left_behind(number: u32) -> String {
    let me = ProcessMark::current().to_string();
    let (_, namespace) = me.rsplit_once('-').unwrap();
    format!("unherd-{NO_PROCESS}-{}-{namespace}-{number}", std::process::id())
}

#[test]
fn one_remaining_cgroup_blocks_no_other() {
    // Ordinary directories stand in: one with a file in it cannot be removed.
    let parent = tempfile::tempdir().unwrap();
    let make = |number| {
        let dir = parent.path().join(left_behind(number));
        fs::create_dir(&dir).unwrap();
        dir
    };
    let stay: Vec<_> = (0..8).map(make).collect();
    stay.iter().for_each(|dir| fs::write(dir.join("file"), "").unwrap());
    let go: Vec<_> = (8..16).map(make).collect();
    let parents = [parent.path().to_path_buf()];
    let error = sweep_below(&parents, CgroupVersion::V2).unwrap_err();
    assert!(matches!(&error, CgroupError::File { path, .. } if stay.contains(path)), "{error}");
    assert!(go.iter().all(|dir| !dir.exists()));
}

#[test]
fn root_leftovers_of_dead_maker_are_swept() {
    let Some(cgroup) = cgroup(32 << 20) else { return };
    let left = cgroup.dir().with_file_name(left_behind(0));
    let nested = left.join("nested");
    fs::create_dir_all(&nested).unwrap();
    let mut sleeper = sleeper();
    fs::write(nested.join("cgroup.procs"), sleeper.pid().to_string()).unwrap();
    // Another test's sweep may be the one to remove it.
    Cgroup::sweep().unwrap();
    assert!(!left.exists());
    assert!(sleeper.wait(Deadline::NEVER).unwrap().is_some());
    assert!(cgroup.dir().exists(), "a living maker's stays");
}
