//! For tests: a process of their own, where the kernel may refuse something and nobody else maps
//! memory.
#![expect(unsafe_code, reason = "prctl(2) with a filter is raw by nature")]

use std::any::type_name;
use std::env;
use std::process::Command;

/// Set in the child, to the name of its test.
const CHILD: &str = "UNHERD_TEST_CHILD";

/// Runs `body`, which is the whole of the calling test, in a process that runs nothing else.
pub(crate) fn in_child<F: FnOnce()>(body: F) {
    // Such as `crate_name::module::tests::test_name::{{closure}}`.
    let closure = type_name::<F>();
    let test = closure
        .split_once("::")
        .and_then(|(_, path)| path.strip_suffix("::{{closure}}"))
        .expect("the body is a closure that the test itself has written");
    if env::var_os(CHILD).is_some_and(|name| name == test) {
        return body();
    }
    let output = Command::new(env::current_exe().expect("a running program has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .output()
        .expect("a test can be run again");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    // A test of another name would run nothing, and succeed.
    let passed = output.status.success() && out.contains("test result: ok. 1 passed");
    assert!(passed, "{test}: {}\n{out}\n{err}", output.status);
    print!("{out}");
}

/// From here on the kernel answers this thread's calls of that number with EPERM, as a container's
/// filter does. It stays so: only in a child.
pub(crate) fn refuse_call(number: libc::c_long) {
    let step = |code: u32, k: u32, otherwise: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: otherwise,
        k,
    };
    let mut steps = [
        // The first word of `seccomp_data` is the number of the call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: this option takes a number.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(done, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its steps live during the call, which copies them.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
