//! Compiles what `unherd prove` preloads, which is embedded in the command.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/prove/preload.c";

fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets it")
}

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // The machine's own compiler: what is preloaded must be of the C library that programs use.
    let (host, target) = (variable("HOST"), variable("CARGO_CFG_TARGET_ARCH"));
    let of_target = format!("CC_{}", variable("TARGET").replace('-', "_"));
    println!("cargo::rerun-if-env-changed={of_target}");
    let compiler = match (env::var_os(&of_target), host.split('-').next() == Some(&*target)) {
        (Some(compiler), _) => compiler,
        (None, true) => env::var_os("CC").unwrap_or_else(|| "cc".into()),
        (None, false) => {
            println!("cargo::error=name a C compiler for {target} in {of_target}");
            return;
        }
    };
    let mut command = Command::new(&compiler);
    command.args(["-O2", "-fPIC", "-shared", "-Wall", "-Wextra"]);
    // With exceptions, as pthread_cleanup_push(3) is a function call without. First, as other
    // libraries' constructors may start threads that wait.
    command.args(["-fexceptions", "-Wl,-z,initfirst", "-o"]);
    let status = command.arg(object.join("preload.so")).arg(SOURCE).status();
    if !status.is_ok_and(|status| status.success()) {
        println!("cargo::error=what `unherd prove` preloads needs a C compiler (apt install gcc)");
    }
}
