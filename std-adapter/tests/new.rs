//! `rigline new`: what it writes builds and passes its own tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn new(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rigline")).arg("new").args(arguments).current_dir(folder).output().unwrap()
}

fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_new_extension_builds_and_passes_its_tests() {
    let folder = empty_folder("new");
    let made = new(&folder, &["power-meter"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // Offline: all that it needs was needed here too.
    let tested = Command::new(env!("CARGO"))
        .args(["test", "--offline"])
        .current_dir(folder.join("power-meter"))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&tested.stdout);
    assert!(tested.status.success(), "{text}{}", String::from_utf8_lossy(&tested.stderr));
    assert!(text.contains("2 passed"), "{text}");
}

#[test]
fn names_that_the_program_or_yaml_use_otherwise_will_do() {
    let folder = empty_folder("new-names");
    for (name, expected) in [
        ("meter", "struct Meter;"),
        ("context", "struct ContextExtension;"),
        ("exit-code", "struct ExitCodeExtension;"),
        ("greet", "struct GreetExtension;"),
        ("null", "struct Null;"),
    ] {
        assert!(new(&folder, &[name]).status.success(), "{name}");
        let program = std::fs::read_to_string(folder.join(name).join("src/main.rs")).unwrap();
        assert!(program.contains(expected), "{name}: {program}");
        let eval = std::fs::read_to_string(folder.join(name).join("evals/eval.yaml")).unwrap();
        assert!(eval.contains(&format!("  name: \"{name}\"\n")), "{name}: {eval}");
    }
}

#[test]
fn a_name_that_cannot_be_and_a_folder_that_is_there_are_refused() {
    let folder = empty_folder("new-refused");
    for name in ["Power", "1st", "a b", "test", "../x", "", "rigline-std"] {
        let refused = new(&folder, &[name]);
        assert_eq!(refused.status.code(), Some(2), "{name}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be a package's name"), "{name}");
    }
    std::fs::create_dir(folder.join("there")).unwrap();
    let refused = new(&folder, &["there"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there exists already; nothing was changed"));
    let refused = new(&folder, &["fine", "--path", "/"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is no checkout of rigline"));
    assert!(!folder.join("fine").exists());
}
