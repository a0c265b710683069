//! Builds firmware images without paths of the computer: what `cargo firmware` and `cargo image` run.
//!
//! The text of a panic has the path of a source file, and the debugger's tables have all of them. Those of dependencies begin with cargo's
//! home, those of generated files with the target folder. The compiler is told to leave that out: `embassy-rp-0.10.0/src/lib.rs`,
//! `./firmware-example/src/lib.rs`. No key of a stable `.cargo/config.toml` can name these folders for everybody.
//!
//! The arguments are those of `cargo build`; `--target` is required. `--print-flags --target TARGET` prints the compiler's flags, a line
//! each, and builds nothing: who builds in the same target folder with the same flags need not build the dependencies once more.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    match build(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("rigline-images: {error}");
            ExitCode::from(2)
        }
    }
}

fn build(arguments: &[OsString]) -> Result<ExitCode, String> {
    let target = target(arguments).ok_or("which target? Add --target TARGET")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut prefixes = folders(&output(&cargo, &["metadata", "--no-deps", "--format-version", "1"])?);
    prefixes.extend(package_caches(&cargo, &target)?);
    prefixes.push(library(&env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))?);
    let flags = flags(prefixes);
    if arguments.first().is_some_and(|word| word == "--print-flags") {
        println!("{}", flags.join("\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = Command::new(&cargo);
    command.arg("build").args(arguments);
    // What is compiled in parts is not the same code.
    command.env("CARGO_INCREMENTAL", "0");
    // The environment's flags are in the place of a configuration's, so that whichever there are stay.
    if let Some(given) =
        env::var("CARGO_ENCODED_RUSTFLAGS").ok().or_else(|| Some(given_flags(&env::var("RUSTFLAGS").ok()?)))
    {
        let all: Vec<&str> =
            given.split('\u{1f}').filter(|flag| !flag.is_empty()).chain(flags.iter().map(String::as_str)).collect();
        command.env("CARGO_ENCODED_RUSTFLAGS", all.join("\u{1f}"));
    } else {
        let list: Vec<String> = flags.iter().map(|flag| quoted(flag)).collect();
        command.arg("--config").arg(format!("target.{}.rustflags=[{}]", quoted(&target), list.join(", ")));
    }
    let status = command.status().map_err(|error| format!("{}: {error}", cargo.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn target(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().map(|word| word.to_str().unwrap_or_default());
    let word = words.find(|word| *word == "--target" || word.starts_with("--target="))?;
    word.strip_prefix("--target=").or_else(|| words.next()).map(str::to_owned)
}

/// `RUSTFLAGS` as `CARGO_ENCODED_RUSTFLAGS` has them.
fn given_flags(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join("\u{1f}")
}

/// A beginning of paths, and what stands there instead.
type Prefix = (PathBuf, String);

/// The options that leave out these beginnings. Of several that fit, the compiler takes the last: the longest.
fn flags(mut prefixes: Vec<Prefix>) -> Vec<String> {
    prefixes.sort_by_key(|(from, _)| from.as_os_str().len());
    prefixes.dedup();
    prefixes.into_iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect()
}

/// The workspace's, from what `cargo metadata` says.
fn folders(metadata: &str) -> Vec<Prefix> {
    [("workspace_root", "."), ("target_directory", "target"), ("build_directory", "target")]
        .into_iter()
        .filter_map(|(name, to)| Some((member(metadata, name)?, to.to_owned())))
        .collect()
}

/// A path among the members of a JSON text: the last member of that name, as a package may have one of that name too.
fn member(json: &str, name: &str) -> Option<PathBuf> {
    let (_, value) = json.rsplit_once(&format!("\"{name}\":\""))?;
    let (value, _) = value.split_once('"')?;
    Some(PathBuf::from(value.replace("\\\\", "\\")))
}

/// Where cargo unpacks packages: a folder for each registry, in which each package has one. It is named after the registry's address.
fn package_caches(cargo: &OsString, target: &str) -> Result<Vec<Prefix>, String> {
    let home = match env::var_os("CARGO_HOME") {
        Some(home) => std::path::absolute(&home).map_err(|error| format!("{}: {error}", home.display()))?,
        None => env::home_dir().ok_or("there is neither CARGO_HOME nor a home folder")?.join(".cargo"),
    };
    let sources = home.join("registry/src");
    if subfolders(&sources).is_empty() {
        output(cargo, &["fetch", "--target", target])?;
    }
    let registries = subfolders(&sources).into_iter().map(|folder| (folder, String::new()));
    Ok(registries.chain([(home.join("git/checkouts"), "git".to_owned())]).collect())
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The standard library's sources, where rust-src is installed, under the name that they have without it.
fn library(rustc: &OsString) -> Result<Prefix, String> {
    let sysroot = output(rustc, &["--print", "sysroot"])?;
    let version = output(rustc, &["--version", "--verbose"])?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    Ok((Path::new(sysroot.trim()).join("lib/rustlib/src/rust"), format!("/rustc/{commit}")))
}

fn output(program: &OsString, arguments: &[&str]) -> Result<String, String> {
    let said = |why: &str| format!("{} {}: {why}", program.display(), arguments.join(" "));
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| said(&error.to_string()))?;
    if !output.status.success() {
        return Err(said(&output.status.to_string()));
    }
    String::from_utf8(output.stdout).map_err(|error| said(&error.to_string()))
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_is_named_last() {
        let prefixes = [("/a/b/target", "target"), ("/a/b", "."), ("/a/b/target", "target")];
        let flags = flags(prefixes.map(|(from, to)| (PathBuf::from(from), to.to_owned())).to_vec());
        assert_eq!(flags, ["--remap-path-prefix=/a/b=.", "--remap-path-prefix=/a/b/target=target"]);
    }

    #[test]
    fn the_folders_are_those_that_cargo_names() {
        let metadata = r#"{"packages":[{"name":"x"}],"target_directory":"C:\\x\\target","workspace_root":"C:\\x"}"#;
        let expected = [("C:\\x", "."), ("C:\\x\\target", "target")];
        assert_eq!(folders(metadata), expected.map(|(from, to)| (PathBuf::from(from), to.to_owned())));
    }

    #[test]
    fn the_target_is_found_in_both_spellings() {
        let target = |words: &[&str]| target(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(target(&["-q", "--target", "a-b"]).as_deref(), Some("a-b"));
        assert_eq!(target(&["--target=a-b", "-q"]).as_deref(), Some("a-b"));
        assert_eq!(target(&["-p", "x"]), None);
    }

    #[test]
    fn a_path_is_a_string_of_toml() {
        assert_eq!(quoted(r#"C:\a "b""#), r#""C:\\a \"b\"""#);
    }
}
