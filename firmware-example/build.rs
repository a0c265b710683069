//! Tells the crate the commit it is built from. On bare metal also puts `memory.x` where the linker
//! finds it and passes the linker scripts.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    tell_commit();
    println!("cargo:rerun-if-changed=memory.x");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::copy("memory.x", out.join("memory.x")).expect("memory.x is copied");
    println!("cargo:rustc-link-search={}", out.display());
    // embassy-rp brings the script that places boot2; rp2040-hal leaves it to the program.
    let is_blocking = env::var_os("CARGO_FEATURE_BLOCKING").is_some();
    if is_blocking {
        fs::write(out.join("boot2.x"), BOOT2).expect("boot2.x is written");
    }
    // Functions that are the same code are there once.
    for argument in ["--nmagic", "--icf=all", "-Tlink.x", if is_blocking { "-Tboot2.x" } else { "-Tlink-rp.x" }] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    // The library's defmt strings are in every image that links it, whether it logs or not.
    if env::var_os("CARGO_FEATURE_FIRMWARE").is_some() {
        println!("cargo:rustc-link-arg-bins=-Tdefmt.x");
    }
}

const BOOT2: &str = "SECTIONS { .boot2 ORIGIN(BOOT2) : { KEEP(*(.boot2)); } > BOOT2 } INSERT BEFORE .text;\n";

/// Sets `RIGLINE_GIT_HASH`, unless this is not a checkout, or is a copy inside somebody else's.
fn tell_commit() {
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return;
    }
    // Not `--short`: how many digits that has, depends on what else the repository holds.
    if let Some(commit) = git(&["rev-parse", "HEAD"]) {
        println!("cargo:rustc-env=RIGLINE_GIT_HASH={commit:.12}");
    }
    // It grows with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| fs::exists(log).unwrap_or(false)) {
        println!("cargo:rerun-if-changed={log}");
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
