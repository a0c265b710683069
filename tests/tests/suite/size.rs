//! The cost of the macros on a microcontroller, against the same extension by hand.

use std::path::PathBuf;
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

const TARGET: &str = "thumbv6m-none-eabi";

struct Image {
    flash: u64,
    ram: u64,
    panics: Vec<String>,
}

/// Builds the twins; none where the target is not installed.
fn images() -> Option<[Image; 2]> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).unwrap().trim());
    if !sysroot.join("lib/rustlib").join(TARGET).exists() {
        let remedy = format!("rustup target add {TARGET}");
        rigline_test_support::skipped("what the macros cost on a board", "the compiler has no target for it", &remedy);
        return None;
    }
    // This test lies in the same target directory: TARGET/debug/deps/size-….
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join(TARGET).join("firmware");
    if !target.join("rig").exists() && std::env::var_os("RIGLINE_REQUIRE_EMULATOR").is_none() {
        let why = "its dependencies take a minute to build";
        rigline_test_support::skipped("what the macros cost on a board", why, "cargo firmware-bench");
        return None;
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "rigline-size", "--profile", "firmware", "--target", TARGET])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.unwrap().success());
    Some(["by-hand", "by-macro"].map(|name| {
        let bytes = std::fs::read(target.join(name)).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let size = |kinds: &[SectionKind]| {
            file.sections().filter(|section| kinds.contains(&section.kind())).map(|section| section.size()).sum()
        };
        let panics = file.symbols().filter_map(|symbol| symbol.name().ok()).filter(|name| name.contains("panic"));
        Image {
            flash: size(&[SectionKind::Text, SectionKind::ReadOnlyData, SectionKind::ReadOnlyString]),
            ram: size(&[SectionKind::Data, SectionKind::UninitializedData]),
            panics: panics.map(str::to_owned).collect(),
        }
    }))
}

#[test]
fn the_macros_cost_at_most_a_kilobyte_of_flash_and_no_memory() {
    let Some([hand, by_macro]) = images() else { return };
    println!("by hand {} bytes, by macro {} bytes", hand.flash, by_macro.flash);
    assert!(hand.flash > 20_000, "the optimiser has seen through the program");
    assert!(by_macro.flash <= hand.flash + 1024, "{} > {} + 1024", by_macro.flash, hand.flash);
    assert_eq!((hand.ram, by_macro.ram), (0, 0));
    assert_eq!(by_macro.panics, [""; 0]);
}
