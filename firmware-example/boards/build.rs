//! Puts the chosen board's memory layout where the linker finds it, and passes the linker scripts.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The boards' features, and the linker scripts that each wants.
const BOARDS: &[(&str, &[&str])] = &[
    ("qemu-stm32f405", &["-Tlink.x"]),
    ("qemu-an505", &["-Tlink.x"]),
    ("qemu-riscv32", &["-Tmemory.x", "-Tlink.x"]),
    ("hello-rp2040", &["-Tlink.x", "-Tlink-rp.x"]),
    ("hello-rp2350", &["-Tlink.x"]),
    ("hello-stm32f072", &["-Tlink.x"]),
    ("hello-stm32f411", &["-Tlink.x"]),
    ("hello-nrf52840", &["-Tlink.x"]),
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=memory");
    let variable = |board: &str| format!("CARGO_FEATURE_{}", board.to_uppercase().replace('-', "_"));
    let chosen: Vec<_> = BOARDS.iter().filter(|(board, _)| env::var_os(variable(board)).is_some()).collect();
    let (board, scripts) = match chosen[..] {
        [] => return,
        [board] => board,
        _ => panic!("{chosen:?}: one board at a time"),
    };
    assert_eq!(
        env::var("CARGO_CFG_TARGET_OS").as_deref(),
        Ok("none"),
        "{board} is an image for a board: .ci/boards.sh build {board} builds it for its target"
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let layout = Path::new("memory").join(format!("{board}.x"));
    fs::copy(&layout, out.join("memory.x")).unwrap_or_else(|error| panic!("{}: {error}", layout.display()));
    println!("cargo:rustc-link-search={}", out.display());
    // Functions that are the same code are there once.
    for argument in ["--nmagic", "--icf=all"].iter().chain(*scripts) {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
