//! Compiles what `unherd prove` preloads, which is embedded in the command.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/prove/preload.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // The machine's own compiler: what is preloaded must be of the C library that programs use.
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    // With exceptions, as pthread_cleanup_push(3) is a function call without.
    let flags = ["-O2", "-fPIC", "-shared", "-fexceptions", "-Wall", "-Wextra", "-o"];
    let status =
        Command::new(&compiler).args(flags).arg(object.join("preload.so")).arg(SOURCE).status();
    if !status.is_ok_and(|status| status.success()) {
        println!("cargo::error=what `unherd prove` preloads needs a C compiler (apt install gcc)");
    }
}
