//! Passes esp-hal's linker script, which has the chip's memory.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Tlinkall.x");
}
