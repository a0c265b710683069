#![doc = include_str!("about.md")]
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod image;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("This is an image for the RP2040. Build it with: cargo firmware-blocking");
    std::process::exit(2);
}
