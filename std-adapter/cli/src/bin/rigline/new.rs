//! `rigline new`: a starter extension that builds and passes its tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::connect;
use crate::protocols::STARTER_FILES;

/// Write a starter extension into a new folder: it builds, and its tests pass
///
/// Until the crates are published, the extension depends on them by path: on the checkout that built this command, or on --path.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The extension's name, and the folder's: lower-case letters, digits and dashes
    name: String,
    /// Also write a firmware from the same extension: a workspace with the desktop program and the board's image
    #[arg(long, value_name = "BOARD")]
    firmware: Option<Board>,
    /// The checkout of rigline to depend on
    #[arg(long, value_name = "CHECKOUT")]
    path: Option<PathBuf>,
}

/// A board that a firmware can be written for.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Board {
    /// Raspberry Pi Pico, with embassy
    Rp2040,
}

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
        Some(Board::Rp2040) => (RP2040, r#""greet", "light""#),
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
        Some(path) => path.clone(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    };
    let checkout = checkout
        .canonicalize()
        .ok()
        .filter(|path| path.join("core/Cargo.toml").is_file() && path.join("std-adapter/Cargo.toml").is_file())
        .ok_or_else(|| format!("{} is not a checkout of rigline; name one with --path", checkout.display()))?;
    let folder = PathBuf::from(name);
    fs::create_dir(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{} exists already; nothing was changed", folder.display()),
        _ => format!("{}: {error}", folder.display()),
    })?;
    let type_name = type_name(name, files);
    let mut sources = Vec::new();
    for (file, text) in files.iter().chain(COMMON).chain(STARTER_FILES.iter().copied().flatten()) {
        let path = folder.join(file);
        let text = text
            .replace("{{NAME}}", name)
            .replace("{{CRATE}}", &name.replace('-', "_"))
            .replace("{{TYPE}}", &type_name)
            .replace("{{OPERATIONS}}", operations)
            .replace("{{CHECKOUT}}", &checkout.display().to_string().replace('\\', "/"));
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
