//! Whoever starts a test program, it begins in the environment that the tests are written for.

use std::process::Command;
use std::{env, fs};

#[test]
#[ignore = "the test below starts it, in an odd environment"]
fn report() {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    for line in status.lines().filter(|line| ["SigBlk", "SigIgn", "Umask"].iter().any(|name| line.starts_with(name))) {
        // The two signals above 31 are the C library's own.
        match line.split_once(":\t") {
            Some(("Umask", mask)) => println!("umask {mask}"),
            Some((name, mask)) => println!("{name} {:x}", u64::from_str_radix(mask, 16).unwrap() & 0x7FFF_FFFF),
            None => {}
        }
    }
    for name in
        ["LANG", "LC_ALL", "TZ", "HOME", "http_proxy", "NO_PROXY", "NO_COLOR", "XDG_STATE_HOME", "CARGO_HOME", "KEPT"]
    {
        println!("{name}={}", env::var(name).unwrap_or_default());
    }
    // A program that a test starts has it too.
    let child = Command::new("sh").args(["-c", "echo child: $(umask) $TZ; trap"]).output().unwrap();
    println!("{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
fn a_test_program_has_the_same_environment_whoever_starts_it() {
    let program = env::current_exe().unwrap();
    // As `nohup` and a shell's background do, and an agent that blocks signals.
    let script =
        "trap '' HUP INT QUIT TERM USR1; umask 077; exec \"$0\" environment::report --exact --ignored --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(&program)
        .envs([
            ("LANG", "tr_TR.UTF-8"),
            ("LC_ALL", "tr_TR.UTF-8"),
            ("TZ", "Pacific/Chatham"),
            ("HOME", "/does/not/exist"),
        ])
        .envs([("http_proxy", "http://127.0.0.1:9"), ("NO_PROXY", "*"), ("NO_COLOR", "1"), ("XDG_STATE_HOME", "/proc")])
        .envs([("CARGO_HOME", "/its/own"), ("KEPT", "yes")])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let home = program.parent().unwrap().join("test-home");
    for line in [
        "umask 0022",
        "SigBlk 0",
        // SIGPIPE, which Rust's runtime ignores.
        "SigIgn 1000",
        "LANG=C.UTF-8",
        "LC_ALL=",
        "TZ=UTC",
        &format!("HOME={}", home.display()),
        "http_proxy=",
        "NO_PROXY=",
        "NO_COLOR=",
        "XDG_STATE_HOME=",
        "CARGO_HOME=/its/own",
        "KEPT=yes",
        "child: 0022 UTC",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line}\n{text}");
    }
}
