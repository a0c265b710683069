//! `rigline new`: a starter extension that builds and passes its tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a starter extension into a new folder: it builds, and its tests pass
///
/// Until the crates are published it depends on them by path: on the checkout that built this command, or on --path.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The extension's name, and the folder's: lower-case letters, digits and dashes
    name: String,
    /// The checkout of rigline to depend on
    #[arg(long, value_name = "CHECKOUT")]
    path: Option<PathBuf>,
}

/// The files of a desktop extension: where they go, and their text with `NAME`, `TYPE` and `CHECKOUT` to be filled in.
const DESKTOP: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("new/Cargo.toml.in")),
    ("src/main.rs", include_str!("new/main.rs.in")),
    ("tests/one_shot.rs", include_str!("new/one_shot.rs.in")),
    ("evals/eval.yaml", include_str!("new/eval.yaml.in")),
    ("evals/tasks/greet.yaml", include_str!("new/task.yaml.in")),
    ("hosts/module.json", include_str!("new/module.json.in")),
    ("hosts/tools.yaml", include_str!("new/tools.yaml.in")),
    ("README.md", include_str!("new/README.md.in")),
    (".gitignore", "/target\n"),
];

impl Arguments {
    pub(crate) fn run(&self) -> ExitCode {
        match create(self) {
            Ok(folder) => {
                println!("wrote {}", folder.display());
                println!("next: cd {} && cargo test", folder.display());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("rigline new: {error}");
                ExitCode::from(2)
            }
        }
    }
}

fn create(arguments: &Arguments) -> Result<PathBuf, String> {
    let name = &arguments.name;
    if !is_package_name(name) {
        return Err(format!(
            "`{name}` cannot be a package's name: take lower-case letters, digits and dashes, a letter first"
        ));
    }
    let checkout = match &arguments.path {
        Some(path) => path.clone(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
    };
    let checkout = checkout
        .canonicalize()
        .ok()
        .filter(|path| path.join("core/Cargo.toml").is_file() && path.join("std-adapter/Cargo.toml").is_file())
        .ok_or_else(|| format!("{} is no checkout of rigline; name one with --path", checkout.display()))?;
    let folder = PathBuf::from(name);
    fs::create_dir(&folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{} exists already; nothing was changed", folder.display()),
        _ => format!("{}: {error}", folder.display()),
    })?;
    for (file, text) in DESKTOP {
        let path = folder.join(file);
        let text = text
            .replace("{{NAME}}", name)
            .replace("{{TYPE}}", &type_name(name))
            .replace("{{CHECKOUT}}", &checkout.display().to_string().replace('\\', "/"));
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(folder)
}

fn is_package_name(name: &str) -> bool {
    // What cargo refuses: keywords, the names of its own folders, and those of packages that it depends on by path.
    const TAKEN: &[&str] = &[
        "test",
        "core",
        "std",
        "alloc",
        "build",
        "deps",
        "examples",
        "incremental",
        "self",
        "crate",
        "rigline",
        "rigline-macros",
        "rigline-std",
    ];
    name.starts_with(|char: char| char.is_ascii_lowercase())
        && name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-')
        && !name.ends_with('-')
        && !TAKEN.contains(&name)
}

/// `power-meter` as `PowerMeter`; with `Extension` behind it where the program uses that name already, as it does `Context`.
fn type_name(name: &str) -> String {
    let mut camel_case: String = name
        .split('-')
        .flat_map(|word| {
            let mut chars = word.chars();
            chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars)
        })
        .collect();
    let program = include_str!("new/main.rs.in");
    if program.split(|char: char| !char.is_ascii_alphanumeric()).any(|word| word == camel_case) {
        camel_case.push_str("Extension");
    }
    camel_case
}
