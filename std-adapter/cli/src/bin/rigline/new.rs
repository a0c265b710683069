//! `rigline new`: a starter extension that builds and passes its tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::connect;
use crate::protocols::STARTER_FILES;

/// Write a starter extension into a new folder: it builds, and its tests pass
///
/// The extension depends on the published crates of this command's version. With --path, and by a command that was built from a
/// checkout of rigline that is still there, it depends on the crates of the checkout instead.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The extension's name, and the folder's: lower-case letters, digits and dashes
    name: String,
    /// Also write a firmware from the same extension: a workspace with the desktop program and the board's image
    #[arg(long, value_name = "BOARD")]
    firmware: Option<Board>,
    /// The checkout of rigline to depend on, in place of the published crates
    #[arg(long, value_name = "CHECKOUT")]
    path: Option<PathBuf>,
}

/// A board that a firmware can be written for.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Board {
    /// Raspberry Pi Pico, with embassy
    Rp2040,
    /// Raspberry Pi Pico 2, with embassy; linked, not run
    Rp2350,
    /// STM32F072 (128 KB of flash, 16 KB of RAM), with embassy; linked, not run
    Stm32f072,
    /// STM32F411 "Black Pill", with embassy; linked, not run
    Stm32f411,
    /// nRF52840-DK, with embassy; linked, not run
    Nrf52840,
    /// ESP32-C3 by its built-in USB serial port, with esp-hal and blocking I/O; linked, not run
    Esp32c3,
}

/// The parts of the files of [`chip_files`] that differ from chip to chip.
struct Chip {
    board: &'static str,
    target: &'static str,
    /// probe-rs's name.
    probe: &'static str,
    /// The line in the firmware's `Cargo.toml`.
    hal: &'static str,
    /// Whether the HAL leaves critical sections to `cortex-m`.
    critical_section: bool,
}

impl Board {
    /// None for the board that has files of its own.
    fn chip(self) -> Option<Chip> {
        Some(match self {
            Self::Rp2040 => return None,
            Self::Esp32c3 => Chip {
                board: "ESP32-C3",
                target: "riscv32imc-unknown-none-elf",
                probe: "esp32c3",
                hal: r#"esp-hal = { version = "1", features = ["esp32c3", "unstable"] }"#,
                critical_section: false,
            },
            Self::Rp2350 => Chip {
                board: "Raspberry Pi Pico 2 (RP2350)",
                target: "thumbv8m.main-none-eabi",
                probe: "RP235x",
                hal: r#"embassy-rp = { version = "0.10", features = ["rp235xa", "time-driver", "critical-section-impl"] }"#,
                critical_section: false,
            },
            Self::Stm32f072 => Chip {
                board: "STM32F072RB",
                target: "thumbv6m-none-eabi",
                probe: "STM32F072RB",
                hal: r#"embassy-stm32 = { version = "0.6", features = ["stm32f072rb", "time-driver-any"] }"#,
                critical_section: true,
            },
            Self::Stm32f411 => Chip {
                board: "STM32F411CE (Black Pill)",
                target: "thumbv7em-none-eabi",
                probe: "STM32F411CE",
                hal: r#"embassy-stm32 = { version = "0.6", features = ["stm32f411ce", "time-driver-any"] }"#,
                critical_section: true,
            },
            Self::Nrf52840 => Chip {
                board: "nRF52840-DK",
                target: "thumbv7em-none-eabi",
                probe: "nRF52840_xxAA",
                hal: r#"embassy-nrf = { version = "0.11", features = ["nrf52840", "time-driver-rtc1", "unstable-pac"] }"#,
                critical_section: true,
            },
        })
    }

    fn files(self) -> Files {
        match self {
            Self::Rp2040 => RP2040,
            Self::Rp2350 => chip_files!("rp2350"),
            Self::Stm32f072 => chip_files!("stm32f072"),
            Self::Stm32f411 => chip_files!("stm32f411"),
            Self::Nrf52840 => chip_files!("nrf52840"),
            Self::Esp32c3 => ESP32C3,
        }
    }
}

impl Chip {
    fn fill(&self, text: &str) -> String {
        // In a table's name, a dot separates.
        let key = format!("\"{}\"", self.target);
        let key = if self.target.contains('.') { &key } else { self.target };
        let section = if self.critical_section { r#", features = ["critical-section-single-core"]"# } else { "" };
        // The firmware is that of `firmware-example/boards`, with this extension in the place of its own.
        text.replace("//! hello on", "//! {{NAME}} on")
            .replace("rigline_boards::{Hello, Lamp}", "extension::{Lamp, {{TYPE}}}")
            .replace("&mut Hello {", "&mut {{TYPE}} {")
            .replace("(\"hello\"", "(\"{{NAME}}\"")
            .replace("{{BOARD}}", self.board)
            .replace("{{TARGET}}", self.target)
            .replace("{{TARGET_KEY}}", key)
            .replace("{{PROBE}}", self.probe)
            .replace("{{HAL}}", self.hal)
            .replace("{{CRITICAL_SECTION}}", section)
    }
}

/// A desktop program and the firmware of a chip. The file with `main` and the memory layout are links to those of
/// `firmware-example/boards`, which are linked in the gate.
macro_rules! chip_files {
    ($chip:literal) => {
        &[
            ("Cargo.toml", include_str!("new/rp2040/Cargo.toml.in")),
            ("src/lib.rs", include_str!("new/rp2040/lib.rs.in")),
            ("src/main.rs", include_str!("new/rp2040/main.rs.in")),
            ("firmware/Cargo.toml", include_str!("new/chip/firmware.toml.in")),
            ("firmware/build.rs", include_str!("new/chip/build.rs.in")),
            ("firmware/memory.x", include_str!(concat!("new/chip/", $chip, ".x"))),
            ("firmware/src/main.rs", include_str!(concat!("new/chip/", $chip, ".rs"))),
            (".cargo/config.toml", include_str!("new/chip/config.toml.in")),
            ("udev/60-rigline.rules", include_str!("new/rp2040/udev.rules")),
            ("README.md", include_str!("new/chip/README.md.in")),
        ]
    };
}
use chip_files;

/// Files: where they go, and their text with `NAME`, `CRATE`, `TYPE`, `OPERATIONS` and `CHECKOUT` to be filled in.
type Files = &'static [(&'static str, &'static str)];

/// The files of every project, on every platform.
const COMMON: Files = &[
    ("tests/one_shot.rs", include_str!("new/one_shot.rs.in")),
    ("evals/eval.yaml", include_str!("new/eval.yaml.in")),
    ("evals/tasks/greet.yaml", include_str!("new/task.yaml.in")),
    (".gitignore", "/target\n"),
];

/// A desktop program.
const DESKTOP: Files = &[
    ("Cargo.toml", include_str!("new/Cargo.toml.in")),
    ("src/main.rs", include_str!("new/main.rs.in")),
    ("README.md", include_str!("new/README.md.in")),
];

/// A desktop program and an RP2040's firmware.
const RP2040: Files = &[
    ("Cargo.toml", include_str!("new/rp2040/Cargo.toml.in")),
    ("src/lib.rs", include_str!("new/rp2040/lib.rs.in")),
    ("src/main.rs", include_str!("new/rp2040/main.rs.in")),
    ("firmware/Cargo.toml", include_str!("new/rp2040/firmware.toml.in")),
    ("firmware/build.rs", include_str!("new/rp2040/build.rs.in")),
    ("firmware/memory.x", include_str!("new/rp2040/memory.x")),
    ("firmware/src/main.rs", include_str!("new/rp2040/firmware.rs.in")),
    (".cargo/config.toml", include_str!("new/rp2040/config.toml.in")),
    ("udev/60-rigline.rules", include_str!("new/rp2040/udev.rules")),
    ("README.md", include_str!("new/rp2040/README.md.in")),
];

/// A desktop program and the firmware of an ESP32-C3, whose HAL has the linker's script. The file with `main` is a link to that of
/// `firmware-example/esp32c3`, which is linked in the gate.
const ESP32C3: Files = &[
    ("Cargo.toml", include_str!("new/rp2040/Cargo.toml.in")),
    ("src/lib.rs", include_str!("new/rp2040/lib.rs.in")),
    ("src/main.rs", include_str!("new/rp2040/main.rs.in")),
    ("firmware/Cargo.toml", include_str!("new/esp32c3/firmware.toml.in")),
    ("firmware/build.rs", include_str!("new/esp32c3/build.rs")),
    ("firmware/src/main.rs", include_str!("new/esp32c3/main.rs")),
    (".cargo/config.toml", include_str!("new/chip/config.toml.in")),
    ("README.md", include_str!("new/esp32c3/README.md.in")),
];

impl Arguments {
    pub(crate) fn run(&self) -> ExitCode {
        match create(self) {
            Ok(folder) => {
                let firmware = if self.firmware.is_some() { " && cargo firmware" } else { "" };
                let folder = folder.display();
                connect::print(&format!("wrote {folder}\nnext: cd {folder} && cargo test{firmware}\n"));
                ExitCode::SUCCESS
            }
            Err(error) => {
                connect::complain(format_args!("rigline new: {error}"));
                ExitCode::from(2)
            }
        }
    }
}

fn create(arguments: &Arguments) -> Result<PathBuf, String> {
    let name = &arguments.name;
    let (files, operations) = match arguments.firmware {
        None => (DESKTOP, r#""greet", "count-lines""#),
        Some(board) => (board.files(), r#""greet", "light""#),
    };
    if !is_package_name(name) {
        return Err(format!(
            "`{name}` cannot be a package's name: use lower-case letters, digits and dashes, beginning with a letter"
        ));
    }
    if TAKEN.contains(&name.as_str()) || KEYWORDS.contains(&name.as_str()) {
        return Err(format!("`{name}` cannot be a package's name: Rust, Cargo or rigline uses it; choose another"));
    }
    let checkout = match &arguments.path {
        Some(path) => {
            let wrong = || format!("{} is not a checkout of rigline, and --path names one", path.display());
            Some(checkout(path).ok_or_else(wrong)?)
        }
        None => BUILT_FROM.and_then(|package| checkout(&Path::new(package).join("../.."))),
    };
    let folder = PathBuf::from(name);
    fs::create_dir(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{} exists already; nothing was changed", folder.display()),
        _ => format!("{}: {error}", folder.display()),
    })?;
    let type_name = type_name(name, files);
    // The name of its USB port is the chip's own, which does not say what runs on it.
    let port = if matches!(arguments.firmware, Some(Board::Esp32c3)) { "serial:/dev/ttyACM0" } else { "serial:auto" };
    let mut sources = Vec::new();
    for (file, text) in files.iter().chain(COMMON).chain(STARTER_FILES.iter().copied().flatten()) {
        let path = folder.join(file);
        let text = match arguments.firmware.and_then(Board::chip) {
            Some(chip) => chip.fill(text),
            None => (*text).to_owned(),
        };
        let text = text
            .replace("{{NAME}}", name)
            .replace("{{CRATE}}", &name.replace('-', "_"))
            .replace("{{TYPE}}", &type_name)
            .replace("{{PORT}}", port)
            .replace("{{OPERATIONS}}", operations);
        let text = depend_on(checkout.as_deref(), &text);
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    format(&sources);
    Ok(folder)
}

/// The package that this command was built from. A released command has none, since its folder is on another computer:
/// `.ci/release.sh` sets the variable.
const BUILT_FROM: Option<&str> =
    if option_env!("RIGLINE_RELEASE").is_some() { None } else { Some(env!("CARGO_MANIFEST_DIR")) };

/// The folder's full path, if the folder is a checkout of rigline.
fn checkout(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    (folder.join("core/Cargo.toml").is_file() && folder.join("std-adapter/Cargo.toml").is_file()).then_some(folder)
}

/// A file whose dependencies on `{{CHECKOUT}}` are those on a checkout, or on the published crates of this version.
fn depend_on(checkout: Option<&Path>, text: &str) -> String {
    if let Some(checkout) = checkout {
        return text.replace("{{CHECKOUT}}", &checkout.display().to_string().replace('\\', "/"));
    }
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("path = \"{{CHECKOUT}}") {
        let (_, after) = after.split_once('"').unwrap_or((after, ""));
        filled.push_str(before);
        filled.push_str(concat!("version = \"", env!("CARGO_PKG_VERSION"), "\""));
        rest = after;
    }
    filled.push_str(rest);
    filled.replace(
        concat!("{ version = \"", env!("CARGO_PKG_VERSION"), "\" }"),
        concat!("\"", env!("CARGO_PKG_VERSION"), "\""),
    )
}

/// Formats the files by rustfmt, if it is installed: line breaks and the order of imports depend on the extension's
/// name.
fn format(sources: &[PathBuf]) {
    let rustfmt = std::env::var_os("RUSTFMT").unwrap_or_else(|| "rustfmt".into());
    let mut command = Command::new(rustfmt);
    command.args(["--edition", "2024"]).args(sources);
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

fn is_package_name(name: &str) -> bool {
    name.starts_with(|char: char| char.is_ascii_lowercase())
        && name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-')
        && !name.ends_with('-')
}

/// Names that cargo refuses: those of its own folders, of the standard library, and of packages that the project
/// depends on.
const TAKEN: &[&str] = &[
    "alloc",
    "build",
    "core",
    "deps",
    "examples",
    "incremental",
    "proc-macro",
    "rigline",
    "rigline-embassy",
    "rigline-host",
    "rigline-macros",
    "rigline-std",
    "serde-json",
    "std",
    "test",
    "tokio",
];

/// Of all editions, as `cargo new` has them.
#[rustfmt::skip]
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// `power-meter` as `PowerMeter`; with `Extension` behind it where a program uses that name already, as it does `Context`.
fn type_name(name: &str, files: Files) -> String {
    let mut camel_case: String = name
        .split('-')
        .flat_map(|word| {
            let mut chars = word.chars();
            chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars)
        })
        .collect();
    let mut programs = files.iter().filter(|(file, _)| file.contains("src/")).map(|(_, text)| text);
    let uses = |text: &&str| text.split(|char: char| !char.is_ascii_alphanumeric()).any(|word| word == camel_case);
    if programs.any(uses) {
        camel_case.push_str("Extension");
    }
    camel_case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_checkout_a_new_project_depends_on_the_published_crates() {
        let boards = <Board as clap::ValueEnum>::value_variants().iter().map(|board| board.files());
        for (file, text) in boards.chain([DESKTOP]).flatten().filter(|(file, _)| file.ends_with("Cargo.toml")) {
            let text = depend_on(None, text);
            assert!(!text.contains("CHECKOUT"), "{file}: {text}");
            for line in text.lines().filter(|line| line.starts_with("rigline")) {
                let (name, source) = line.split_once(" = ").unwrap();
                let version = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");
                assert!(
                    source == version || source.starts_with(&format!("{{ version = {version}, ")),
                    "{file}: {name}: {source}"
                );
            }
        }
        assert_eq!(
            depend_on(Some(Path::new("/x")), "a = { path = \"{{CHECKOUT}}/core\" }"),
            "a = { path = \"/x/core\" }"
        );
    }
}
