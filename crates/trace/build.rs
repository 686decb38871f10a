//! Compiles the eBPF programs: one object, which is embedded in the library and relocated to the
//! running kernel when it is loaded.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCES: &str = "src/bpf";

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut builder = SkeletonBuilder::new();
    if let Some(clang) = env::var_os("CLANG") {
        builder.clang(clang);
    }
    let built = builder
        .source(format!("{SOURCES}/tracer.bpf.c"))
        .obj(object.join("tracer.bpf.o"))
        // Version 3 of the instruction set has the atomic exchange that the programs need.
        .clang_args(["-mcpu=v3", "-Wall", "-Werror"])
        .build();
    if let Err(error) = built {
        println!("cargo::error=the eBPF programs need clang 14 or later (apt install clang)");
        panic!("{error:?}");
    }
}
