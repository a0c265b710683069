//! `rigline new`: what it writes builds and passes its own tests.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
    let tested = cargo(&folder.join("power-meter"), &["test", "--offline"]);
    let text = String::from_utf8_lossy(&tested.stdout);
    assert!(tested.status.success(), "{text}{}", String::from_utf8_lossy(&tested.stderr));
    // The unit tests, and those that start the program.
    assert_eq!(text.matches("2 passed").count(), 2, "{text}");
    #[cfg(unix)]
    let project = folder.join("power-meter");
    #[cfg(unix)]
    its_evals_pass(&project);
    #[cfg(unix)]
    its_gevals_package_starts_without_arguments(&project);
}

/// As its README has it, `rigline eval run evals` in the project's folder.
#[cfg(unix)]
fn its_evals_pass(project: &Path) {
    // What was built is not in its own folder here.
    std::os::unix::fs::symlink(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap(), project.join("target"))
        .unwrap();
    let built = cargo(project, &["build", "--offline"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let rigline = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rigline"));
        let output = command.args(arguments).current_dir(project).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    };
    let (code, text) = rigline(&["eval", "run", "evals", "--runs", "runs"]);
    assert!(code == Some(0) && text.contains("1/1"), "{text}");
    // N 8: `?` on an io::Error, as the template has it.
    let call = |path: &str| rigline(&["call", "target/debug/power-meter", "count-lines", &format!("path={path}")]);
    let (code, text) = call("evals/eval.yaml");
    assert!(code == Some(0) && text.contains("lines"), "{text}");
    let (code, text) = call("/no/such/file");
    assert!(code == Some(1) && text.contains("count-lines failed: No such file or directory"), "{text}");
    let (code, text) = rigline(&["eval", "validate", "evals"]);
    assert_eq!(code, Some(0), "{text}");
    // A failure is seen.
    let task = project.join("evals/tasks/greet.yaml");
    let wrong = std::fs::read_to_string(&task).unwrap().replace("Hello, Ada!", "Hello, Eve!");
    std::fs::write(&task, wrong).unwrap();
    let (code, text) = rigline(&["eval", "run", "evals", "--runs", "runs"]);
    assert_eq!(code, Some(1), "{text}");
}

#[cfg(unix)]
fn its_gevals_package_starts_without_arguments(project: &Path) {
    let eval = std::fs::read_to_string(project.join("hosts/gevals.yaml")).unwrap();
    assert!(eval.contains("package: ./power-meter-extension"), "{eval}");
    let shim = ["install", "gevals", "target/debug/power-meter", "-o", "hosts/power-meter-extension"];
    assert!(eval.contains(&format!("rigline {}", shim.join(" "))), "{eval}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rigline"));
    assert!(command.args(shim).current_dir(project).status().unwrap().success());
    let mut package = Command::new("./power-meter-extension")
        .current_dir(project.join("hosts"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    writeln!(package.stdin.take().unwrap(), "{request}").unwrap();
    let output = package.wait_with_output().unwrap();
    let reply: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reply["result"]["name"], "power-meter");
}

/// All that a program has printed.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs cargo in a project, with this checkout's versions of what it depends on, and where they are built already. All that it
/// needs was needed here too.
fn cargo(project: &Path, arguments: &[&str]) -> Output {
    cargo_command(project, arguments).output().unwrap()
}

fn cargo_command(project: &Path, arguments: &[&str]) -> Command {
    let lock = project.join("Cargo.lock");
    if !lock.exists() {
        std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock"), lock).unwrap();
    }
    let mut command = Command::new(env!("CARGO"));
    command
        .args(arguments)
        .current_dir(project)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap())
        // As in the profile of this checkout: cargo builds dependencies again for a profile that differs.
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env("CARGO_PROFILE_DEV_INCREMENTAL", "false")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// The compiler's flags of this checkout's images, as `CARGO_ENCODED_RUSTFLAGS` has them: with other flags, cargo would build in the place
/// of what it built with these, and later the other way round.
fn flags_of_images(root: &Path) -> String {
    let printed = Command::new(env!("CARGO"))
        .args(["run", "-q", "-p", "rigline-images", "--", "--print-flags", "--target", "thumbv6m-none-eabi"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(printed.status.success(), "{}", said(&printed));
    String::from_utf8(printed.stdout).unwrap().trim_end().replace('\n', "\u{1f}")
}

#[test]
fn a_new_firmware_and_its_desktop_program_build_and_pass_their_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = empty_folder("new-firmware");
    // Not as this checkout, which may be around the folder.
    std::fs::write(folder.join("rustfmt.toml"), "").unwrap();
    let made = new(&folder, &["power-switch", "--firmware", "rp2040"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let project = folder.join("power-switch");
    let cargo = |arguments: &[&str]| cargo(&project, arguments);
    if can_format() {
        let formatted = cargo(&["fmt", "-p", "power-switch", "-p", "power-switch-firmware", "--check"]);
        assert!(formatted.status.success(), "{}", said(&formatted));
    }
    let tested = cargo(&["test", "--offline"]);
    let text = String::from_utf8_lossy(&tested.stdout);
    assert!(tested.status.success(), "{text}{}", String::from_utf8_lossy(&tested.stderr));
    // The unit tests, and those that start the program.
    assert_eq!(text.matches("2 passed").count(), 2, "{text}");

    if let Some((why, remedy)) = no_firmware_here(&cargo) {
        assert!(std::env::var_os("RIGLINE_REQUIRE_EMULATOR").is_none(), "{why}: {remedy}");
        rigline_test_support::skipped("the firmware of a new project", why, remedy);
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let flags = flags_of_images(&root);
    let built =
        cargo_command(&project, &["firmware", "--offline"]).env("CARGO_ENCODED_RUSTFLAGS", flags).output().unwrap();
    assert!(built.status.success(), "{}", said(&built));
    greets_in_the_emulator(&root, &target.join("thumbv6m-none-eabi/firmware/power-switch-firmware"));
}

/// Whether the compiler that runs this has a formatter; tells so where it has none.
fn can_format() -> bool {
    let found = Command::new(env!("CARGO")).args(["fmt", "--version"]).output();
    let can = found.is_ok_and(|output| output.status.success());
    if !can {
        let remedy = "rustup component add rustfmt";
        rigline_test_support::skipped("whether new projects are formatted", "the compiler has no rustfmt", remedy);
    }
    can
}

/// Why the firmware cannot be built on this computer, and the remedy, if it cannot.
fn no_firmware_here(cargo: &dyn Fn(&[&str]) -> Output) -> Option<(&'static str, &'static str)> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?.stdout;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot).trim());
    if !sysroot.join("lib/rustlib/thumbv6m-none-eabi/lib").is_dir() {
        return Some(("the compiler has no target for it", "rustup target add thumbv6m-none-eabi"));
    }
    // Its dependencies take a minute and 0.8 GB: for who works with firmware, and has it built once.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let is_required = std::env::var_os("RIGLINE_REQUIRE_EMULATOR").is_some();
    if !is_required && !target.join("thumbv6m-none-eabi/firmware/rig").exists() {
        return Some(("its dependencies take a minute to build", "cargo firmware"));
    }
    let fetched = cargo(&["fetch", "--target", "thumbv6m-none-eabi"]);
    (!fetched.status.success()).then_some(("its dependencies cannot be had", "cargo fetch --target thumbv6m-none-eabi"))
}

/// Both operations, by the host, on the image over emulated USB.
fn greets_in_the_emulator(root: &Path, image: &Path) {
    let emulator = root.join("tests/emulator");
    if !emulator.join("node_modules/rp2040js").is_dir() {
        let remedy = "cd tests/emulator && npm ci";
        rigline_test_support::skipped("the firmware of a new project, run", "there is no emulator", remedy);
        return;
    }
    let mut board = Command::new("node")
        .arg(emulator.join("emulator.mjs"))
        .arg(image)
        .args(["--quiet", "--until-eof"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(board.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["usb"]["product"], "power-switch");
    let target = format!("tcp:127.0.0.1:{}", ready["usb_port"]);
    for (call, wanted) in [(&["greet", "name=Ada"], "Hello, Ada!"), (&["light", "on=true"], "the lamp is on")] {
        let called = Command::new(env!("CARGO_BIN_EXE_rigline"))
            .args(["call", &target])
            .args(call)
            .args(["--start-timeout", "40s"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&called.stdout);
        assert!(text.contains(wanted), "{text}{}", String::from_utf8_lossy(&called.stderr));
    }
    // The emulator ends with its standard input.
    drop(board.stdin.take());
    board.wait().unwrap();
}

#[test]
fn the_udev_rule_is_the_rigs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rule = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(rule("src/bin/rigline/new/rp2040/udev.rules"), rule("../../firmware-example/udev/60-rigline.rules"));
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
        assert!(eval.contains(&format!("\nname: \"{name}\"\n")), "{name}: {eval}");
    }
}

/// The chips with a firmware of their own kind, each with its target.
const CHIPS: &[(&str, &str)] = &[
    ("rp2350", "thumbv8m.main-none-eabi"),
    ("stm32f072", "thumbv6m-none-eabi"),
    ("stm32f411", "thumbv7em-none-eabi"),
    ("nrf52840", "thumbv7em-none-eabi"),
    ("esp32c3", "riscv32imc-unknown-none-elf"),
];

/// `.ci/boards.sh` links the file that is written, with the project's extension in the place of its own.
#[test]
fn the_firmware_of_each_chip_is_the_one_that_the_gate_links() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware-example");
    let folder = empty_folder("new-chips");
    let squeezed = |text: &str| text.split_whitespace().collect::<String>().replace(",)", ")").replace(",}", "}");
    for (chip, target) in CHIPS {
        let place = folder.join(chip);
        std::fs::create_dir(&place).unwrap();
        let made = new(&place, &["power-meter", "--firmware", chip]);
        assert!(made.status.success(), "{}", said(&made));
        let file = |name: &str| std::fs::read_to_string(place.join("power-meter").join(name)).unwrap();
        // The ESP32-C3's is a workspace of its own, and its HAL has the memory layout.
        let boards = example.join(if *chip == "esp32c3" { chip } else { "boards" });
        let source = if *chip == "esp32c3" { "src/main.rs".to_owned() } else { format!("src/bin/hello-{chip}.rs") };
        let hello = std::fs::read_to_string(boards.join(source)).unwrap();
        let program = file("firmware/src/main.rs");
        assert!(!program.contains("ello") && program.contains("PowerMeter { lamp }"), "{program}");
        // But for the order of the imports, which the names decide.
        let body = |text: &str| squeezed(text.rsplit_once("\nuse ").unwrap().1.split_once('\n').unwrap().1);
        assert_eq!(body(&program).replace("PowerMeter", "Hello").replace("power-meter", "hello"), body(&hello));
        if *chip != "esp32c3" {
            let memory = std::fs::read_to_string(boards.join(format!("memory/hello-{chip}.x"))).unwrap();
            assert_eq!(file("firmware/memory.x"), memory);
        }
        assert!(file(".cargo/config.toml").contains(&format!("--target {target}\"\n")), "{chip}");
        let readme = file("README.md");
        assert!(readme.contains(&format!("rustup target add {target}")) && !readme.contains("{{"), "{readme}");
        // Its HAL is the version that the gate links with.
        let ours = std::fs::read_to_string(boards.join("Cargo.toml")).unwrap();
        let manifest = file("firmware/Cargo.toml");
        let hal = manifest.lines().find(|line| line.contains("features = [") && line.contains(&chip[..4])).unwrap();
        let version = hal.split(", features").next().unwrap();
        assert!(ours.contains(version), "{chip}: {hal}");
    }
}

/// Whatever the name's letters and length.
#[test]
fn what_is_written_is_formatted() {
    if !can_format() {
        return;
    }
    let folder = empty_folder("new-formatted");
    std::fs::write(folder.join("rustfmt.toml"), "").unwrap();
    for name in
        ["a", "blinky", "x9", "a-power-supply-controller", "an-extension-that-has-a-rather-long-name-for-a-folder"]
    {
        let places = [("desktop", &[][..]), ("firmware", &["--firmware", "rp2040"])];
        let chips: Vec<_> = CHIPS.iter().map(|(chip, _)| (*chip, ["--firmware", *chip])).collect();
        for (place, arguments) in places.into_iter().chain(chips.iter().map(|(chip, words)| (*chip, &words[..]))) {
            let place = folder.join(place);
            std::fs::create_dir_all(&place).unwrap();
            assert!(new(&place, &[&[name], arguments].concat()).status.success(), "{name}");
            // Not `--all`, which is also about this checkout.
            let firmware = format!("{name}-firmware");
            let packages = if arguments.is_empty() { vec!["-p", name] } else { vec!["-p", name, "-p", &firmware] };
            let formatted = cargo(&place.join(name), &[&["fmt", "--check"][..], &packages].concat());
            assert!(formatted.status.success(), "{name}: {}", said(&formatted));
        }
    }
}

#[test]
fn a_name_that_cannot_be_and_a_folder_that_is_there_are_refused() {
    let folder = empty_folder("new-refused");
    for name in [
        "Power",
        "1st",
        "a b",
        "test",
        "../x",
        "",
        "rigline-std",
        "rigline-host",
        "rigline-embassy",
        "tokio",
        "serde-json",
        "fn",
        "gen",
    ] {
        let refused = new(&folder, &[name]);
        assert_eq!(refused.status.code(), Some(2), "{name}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be a package's name"), "{name}");
    }
    std::fs::create_dir(folder.join("there")).unwrap();
    let refused = new(&folder, &["there"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there exists already; nothing was changed"));
    let refused = new(&folder, &["fine", "--path", "/"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not a checkout of rigline"));
    assert!(!folder.join("fine").exists());
}
