//! The emulated board as an Amplifier module and as namel3ss tools: the same image, and the same commands as for a program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rigline_tests::emulator::Emulator;
use serde_json::Value;

/// The command, built if it is not there yet.
fn rigline() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let program = test.ancestors().nth(2).expect("it is in target/debug/deps").join("rigline");
    if !program.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "rigline-cli", "--bin", "rigline"]).status();
        assert!(built.is_ok_and(|status| status.success()) && program.is_file(), "no {}", program.display());
    }
    program
}

#[track_caller]
fn run(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(rigline());
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_commands_drive_a_board_by_every_protocol() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let board = &format!("tcp:127.0.0.1:{}", emulator.usb_port());
    for protocol in ["gevals", "amplifier", "namel3ss"] {
        let text =
            run(&["call", board, "measure", "channel=3V3", "--protocol", protocol, "--json", "--timeout", "20s"], "");
        let result: Value = serde_json::from_str(&text).unwrap();
        let volts = &result["outputs"]["volts"];
        assert!(if protocol == "gevals" { volts.is_string() } else { volts.is_number() }, "{protocol}: {text}");
    }
    let text = run(&["check", board, "--protocol", "amplifier", "--call", "identify", "--patience", "20s"], "");
    assert!(text.contains("skip  large: a device has less memory"), "{text}");
    // Its descriptor's command, as a host would start it.
    let descriptor: Value = serde_json::from_str(&run(&["descriptor", board], "")).unwrap();
    let command: Vec<&str> = descriptor["transport"]["command"]
        .as_array()
        .unwrap()
        .iter()
        .skip(1)
        .map(|word| word.as_str().unwrap())
        .collect();
    let text = run(&command, "{\"op\":\"health\"}\n{\"op\":\"gpio-read\",\"args\":{\"pin\":\"GP15\"}}\n");
    assert!(text.starts_with("{\"status\":\"ok\"}\n{\"ok\":true,\"result\":{\"high\":false"), "{text}");
    // And behind HTTP.
    for protocol in ["amplifier", "namel3ss"] {
        let mut server = Command::new(rigline())
            .args(["serve", board, "--http", "127.0.0.1:0", "--protocol", protocol])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap();
        let text = run(&["call", url, "measure", "channel=3V3", "--protocol", protocol, "--json"], "");
        assert!(serde_json::from_str::<Value>(&text).unwrap()["outputs"]["volts"].is_number(), "{text}");
        server.kill().unwrap();
        server.wait().unwrap();
    }
}
