//! Kernels on which nothing can be traced, as far as another view of `/sys` can play them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::Ran;
use crate::trace::{is_refused, ran};

/// How the script tells that this machine does not let it mount.
const CANNOT_MOUNT: i32 = 99;

/// Runs `unherd trace ARGS` where `mounts`, a shell script whose `$0` is an empty directory, has
/// changed what is below `/sys`; nobody else sees that. `None`, with the reason printed, where that
/// is not allowed.
fn trace_below(mounts: &str, as_user: &str, args: &[&str]) -> Option<Ran> {
    let place = tempfile::tempdir().unwrap();
    let script = format!("({mounts}) >&2 || exit {CANNOT_MOUNT}; exec {as_user} \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(place.path());
    command.args([env!("CARGO_BIN_EXE_unherd"), "trace"]).args(args);
    command.stdin(Stdio::null()).current_dir("/");
    let ran = ran(command);
    // 1 is what unshare(1) has for itself, and 126 setpriv(1) where others may not read the file.
    if matches!(ran.code, Some(CANNOT_MOUNT | 1 | 126)) {
        println!("skipped: {}", ran.stderr);
        return None;
    }
    Some(ran)
}

const WITHOUT_BTF: &str = "mount --bind \"$0\" /sys/kernel/btf";

const LOCKED_DOWN: &str = "mount -t tmpfs none /sys/kernel/security &&
    echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown";

#[test]
fn root_missing_btf_is_reported_first() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("ran");
    let touch = ["--", "touch", file.to_str().unwrap()];
    let Some(ran) = trace_below(WITHOUT_BTF, "", &touch) else { return };
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    for what in ["has no BTF (/sys/kernel/btf/vmlinux)", "CONFIG_DEBUG_INFO_BTF", "--unprivileged"]
    {
        assert!(ran.stderr.contains(what), "{ran:?}");
    }
    assert!(!Path::new(&file).exists());
    // What that advises does not need it.
    let args = [&["--unprivileged"][..], &touch].concat();
    let Some(ran) = trace_below(WITHOUT_BTF, "", &args) else { return };
    assert!(ran.code == Some(0) || is_refused(&ran), "{ran:?}");
    assert!(is_refused(&ran) || fs::exists(&file).unwrap());
}

#[test]
fn root_lockdown_is_told_from_missing_privilege() {
    // Who may load nothing at all gets the same number from the kernel, locked down or not.
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --";
    for (mounts, what) in [(LOCKED_DOWN, "the kernel is locked down"), (":", "CAP_BPF")] {
        let Some(ran) = trace_below(mounts, nobody, &["--", "true"]) else { return };
        assert_eq!(ran.code, Some(125), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        assert!(ran.stderr.contains(what), "{ran:?}");
    }
}
