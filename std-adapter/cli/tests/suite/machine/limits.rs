//! Limits of the system and of time: files, descriptors, programs that do not end, numbers of many digits.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rigline_host::{Host, Options};

use crate::machine::{EXTENSION, RIGLINE, member, rigline, run, script};

/// Runs `arguments` of the command below a limit of the shell's. Files that whoever runs the tests has left open do not count.
fn below(limit: &str, arguments: &str, folder: &Path) -> (Option<i32>, String, String) {
    let line = format!("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit {limit}; exec {RIGLINE} {arguments}");
    run(Command::new("bash").args(["-c", &line]).current_dir(folder))
}

#[test]
fn too_few_open_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in
        ["call sim measure channel=3V3", "describe sim --json", "ports", "check sim", "rig", "descriptor sim"]
    {
        for limit in [4, 6, 12] {
            let (code, _, errors) = below(&format!("-n {limit}"), arguments, folder.path());
            assert_eq!(code, Some(2), "{arguments}, {limit}: {errors}");
            let wanted = format!("the limit on open files is {limit} (ulimit -n)");
            assert!(errors.contains(&wanted), "{arguments}, {limit}: {errors}");
            assert!(!errors.contains("internal error"), "{errors}");
        }
    }
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_no_signal() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        ("descriptor sim -o d.json", 1),
        ("gevals-shim sim -o shim", 1),
        ("man pages", 1),
        ("check sim --case handshake --json-file r.json", 1),
        ("monitor sim --record r.jsonl", 1),
        ("call sim measure channel=3V3 >out", 1),
        ("describe sim >out", 1),
        ("call sim measure channel=3V3 --protocol amplifier --events e.jsonl", 1),
        ("call sim measure channel=3V3 --protocol namel3ss --trace t.jsonl", 1),
    ] {
        let (code, out, errors) = below("-f 0", arguments, folder.path());
        assert_eq!(code, Some(expected), "{arguments}: {errors}");
        assert!(errors.contains("File too large"), "{arguments}: {errors}");
        assert!(!errors.contains(".tmp"), "{arguments}: {errors}");
        if arguments.contains("--protocol") {
            assert!(out.contains("volts"), "the result is there all the same: {out}");
        }
    }
    // Programs have the default action: bit 24 of the masks of signals that are ignored and caught.
    let shows = script(
        folder.path(),
        "shows",
        &format!("{EXTENSION}grep -E 'SigIgn|SigCgt' /proc/$$/status >&2; say '{{\"success\":true}}'\n"),
    );
    let (_, _, errors) = run(&mut rigline(&["call", shows.to_str().unwrap(), "go", "-v"]));
    let masks: Vec<u64> = errors
        .lines()
        .filter(|line| line.contains("Sig"))
        .map(|line| u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap())
        .collect();
    assert_eq!(masks.len(), 2, "{errors}");
    assert!(masks.iter().all(|mask| mask >> 24 & 1 == 0), "{errors}");
}

#[test]
fn a_call_without_an_answer_ends_soon_after_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let extension = |name: &str, end: &str| script(folder.path(), name, &format!("{EXTENSION}{end}\n"));
    // Each has 1 s and 2 s of grace, and a second for its end.
    let cases = [
        ("stops", "kill -STOP $$; sleep 60", 124),
        ("lines", "exec yes junk", 124),
        ("one-line", "exec tr '\\000' x </dev/zero", 3),
        ("is-deaf", "trap '' TERM INT HUP; while :; do sleep 1; done", 124),
        ("binary", "exec cat /dev/urandom", 124),
    ];
    let ends = |(name, end, expected): (&str, &str, i32)| {
        let path = extension(name, end);
        let started = Instant::now();
        let (code, _, errors) = run(&mut rigline(&["call", path.to_str().unwrap(), "go", "--timeout", "1s", "-q"]));
        let took = started.elapsed();
        // A line of /dev/urandom may be long; and on a busy machine the limit of a line is not reached in time.
        let may_be = |other: &str, code: i32| if name == other { Some(code) } else { None };
        let others = [may_be("binary", 3), may_be("one-line", 124)];
        assert!(code == Some(expected) || code.is_some() && others.contains(&code), "{name}: {code:?} {errors}");
        // Less than the 5 s that it had after its time before.
        assert!(took < Duration::from_millis(7500), "{name} took {took:?}");
    };
    std::thread::scope(|scope| {
        for case in cases {
            let ends = &ends;
            scope.spawn(move || ends(case));
        }
    });
}

#[test]
fn a_program_that_has_stopped_gets_to_its_safe_state() {
    let folder = tempfile::tempdir().unwrap();
    let safe = folder.path().join("safe");
    let text =
        format!("{EXTENSION}trap 'echo safe >{}; exit 0' TERM\nkill -STOP $$\nsleep 60 & wait\n", safe.display());
    let path = script(folder.path(), "stops", &text);
    let (code, _, errors) = run(&mut rigline(&["call", path.to_str().unwrap(), "go", "--timeout", "100ms"]));
    assert_eq!(code, Some(124), "{errors}");
    assert_eq!(fs::read_to_string(safe).unwrap(), "safe\n");
}

/// Reports are tried before anything runs: the program would leave a trace.
#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into()).unwrap();
    symlink("fifo", at("link-to-fifo")).unwrap();
    fs::write(at("file"), "").unwrap();
    let target = script(folder.path(), "runs", "#!/bin/sh\ntouch ran\n");
    let target = target.to_str().unwrap();
    for place in ["folder", "folder/", "fifo", "link-to-fifo", "file/below", "/dev/null/below"] {
        for arguments in [
            &["check", target, "--junit", place][..],
            &["check", target, "--json-file", place],
            &["check", target, "--json", "--junit", place],
            &["check", target, "--protocol", "amplifier", "--junit", place],
            &["check", target, "--protocol", "waza", "--json-file", place],
            &["descriptor", target, "-o", place],
            &["monitor", target, "--record", place],
            &["call", target, "go", "--protocol", "amplifier", "--events", place],
            &["call", target, "go", "--protocol", "namel3ss", "--trace", place],
        ] {
            let (code, out, errors) = run(rigline(arguments).current_dir(folder.path()));
            assert_eq!(code, Some(2), "{arguments:?}: {errors}");
            assert!(!at("ran").exists(), "{arguments:?} has run it");
            assert!(errors.contains(place.trim_end_matches("/below")), "{arguments:?}: {errors}");
            if arguments.contains(&"--json") {
                assert_eq!(member(&out, "/exit_code"), 2, "{out}");
            }
        }
    }
    // Two values on standard output would be none.
    for arguments in [["--json", "--junit", "-"].as_slice(), &["--json-file", "-", "--junit", "/dev/stdout"]] {
        let (code, _, errors) = run(rigline(&[&["check", target], arguments].concat()).current_dir(folder.path()));
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains("can go to standard output"), "{errors}");
    }
    // A transcript's file may be somebody else's FIFO.
    fs::create_dir(at("transcripts")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("transcripts/health.jsonl"), 0o600.into()).unwrap();
    let check = ["check", target, "--protocol", "amplifier", "--transcripts", "transcripts"];
    let (code, _, errors) = run(rigline(&check).current_dir(folder.path()));
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("transcripts/health.jsonl: not a regular file") && !at("ran").exists(), "{errors}");
}

#[test]
fn a_root_that_is_not_there_is_named() {
    for arguments in
        [&["ports"][..], &["ports", "--json"], &[], &["call", "serial:auto", "go"], &["describe", "serial:usb/1-2"]]
    {
        let (code, _, errors) = run(rigline(arguments).env("RIGLINE_ROOT", "/no/such/root"));
        assert_eq!(code, Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains("/no/such/root is not a folder") && errors.contains("RIGLINE_ROOT"), "{errors}");
    }
}

/// The bridge between a namel3ss host and a device is ours: what keeps it from the device is not a crash of a tool.
#[test]
fn a_namel3ss_device_that_is_not_there_is_told_as_any_other() {
    let root = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (target, wanted) in [
        ("serial:auto", "no rigline device is plugged in"),
        ("serial:/dev/no-such-port", "cannot be opened"),
        (&format!("tcp:{free}"), "cannot be opened"),
    ] {
        let (code, _, errors) =
            run(rigline(&["call", target, "go", "--protocol", "namel3ss"]).env("RIGLINE_ROOT", root.path()));
        assert_eq!(code, Some(3), "{errors}");
        assert!(errors.starts_with("rigline: ") && errors.contains(wanted), "{errors}");
        assert!(!errors.contains("crashed"), "{errors}");
    }
}

const DIGITS: &str = "123456789012345678901234567890.10";

/// A number of a setting as it arrived, through every way that a setting takes.
#[test]
fn settings_reach_the_extension_with_all_their_digits() {
    let folder = tempfile::tempdir().unwrap();
    let text = EXTENSION.replace("ask\nsay '{", "ask\nprintf '%s\\n' \"$line\" >>seen\nsay '{");
    let path = script(folder.path(), "sees", &(text + "say '{\"success\":true}'\nask\nsay null\n"));
    let path = path.to_str().unwrap();
    let config = format!("{{\"n\":{DIGITS},\"i\":[18446744073709551617]}}");
    fs::write(
        folder.path().join("e.yaml"),
        format!(
            "name: x\nconfig: {{ target: '{path}', settings: {{ n: {DIGITS}, i: [18446744073709551617] }} }}\ntasks: [ {{id: t, steps: [ {{operation: go}} ]}} ]\n"
        ),
    )
    .unwrap();
    for arguments in [
        &["call", path, "go", "--config", &config][..],
        &["describe", path, "--config", &config],
        &["check", path, "--case", "handshake", "--config", &config],
        &["eval", "run", "e.yaml", "--runs", "runs"],
    ] {
        let (code, out, errors) = run(rigline(arguments).current_dir(folder.path()));
        let seen = fs::read_to_string(folder.path().join("seen")).unwrap_or_default();
        assert!(seen.contains(DIGITS) && seen.contains("18446744073709551617"), "{arguments:?}: {seen}{out}{errors}");
        assert!(arguments[0] == "check" || code == Some(0), "{arguments:?}: {out}{errors}");
        fs::remove_file(folder.path().join("seen")).unwrap();
    }
    // A caller's own settings go through the bridge.
    let mut bridge = rigline(&["bridge", path]).current_dir(folder.path()).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = bridge.stdin.take().unwrap();
    let request = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"0.0.1\",\"config\":{config}}}}}"
    );
    writeln!(input, "{request}").unwrap();
    let mut line = String::new();
    BufReader::new(bridge.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(member(&line, "/result/name"), "fake", "{line}");
    let seen = fs::read_to_string(folder.path().join("seen")).unwrap();
    assert!(seen.contains(DIGITS), "{seen}");
    drop(input);
    bridge.wait().unwrap();
}

#[test]
fn a_manifest_is_shown_and_passed_on_with_all_its_digits() {
    let folder = tempfile::tempdir().unwrap();
    let schema = format!("{{\"type\":\"object\",\"properties\":{{\"n\":{{\"maximum\":{DIGITS},\"default\":1.50}}}}}}");
    let text = EXTENSION.replace("\"params\":{}", &format!("\"params\":{schema},\"outputs\":{{\"x\":[{DIGITS}]}}"));
    let path = script(folder.path(), "shows", &format!("{text}say null\n"));
    let path = path.to_str().unwrap();
    for arguments in [&["describe", path, "--json"][..], &["describe", path, "go", "--json"]] {
        let (code, out, errors) = run(&mut rigline(arguments));
        assert_eq!(code, Some(0), "{errors}");
        assert!(out.contains(&format!("\"maximum\": {DIGITS}")) && out.contains("\"default\": 1.50"), "{out}");
        assert!(out.matches(DIGITS).count() == 2, "{out}");
        serde_json::from_str::<serde_json::Value>(&out).unwrap();
    }
    let mut bridge = rigline(&["bridge", path]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = bridge.stdin.take().unwrap();
    writeln!(
        input,
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"0.0.1\"}}}}"
    )
    .unwrap();
    let mut line = String::new();
    BufReader::new(bridge.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(&format!("\"maximum\":{DIGITS}")), "{line}");
    assert!(member(&line, "/result/limits/request").is_u64(), "{line}");
    drop(input);
    bridge.wait().unwrap();
    let mut relay = rigline(&["bridge", path, "--protocol", "amplifier"]).stdin(Stdio::piped()).spawn().unwrap();
    relay.stdin.take().unwrap().write_all(b"{\"op\":\"describe\"}\n").unwrap();
    let out = relay.wait_with_output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&out).contains(&format!("\"maximum\":{DIGITS}")), "{out:?}");
    // Amplifier's description.
    let module = script(
        folder.path(),
        "module",
        &format!(
            "#!/bin/sh\nread -r line\nprintf '%s\\n' '{{\"name\":\"m\",\"version\":\"1.0.0\",\"kind\":\"tool\",\"capabilities\":[\"go\"],\"inputs\":{{\"go\":{schema}}},\"outputs\":{{\"go\":{{\"type\":\"object\"}}}}}}'\nread -r line\n"
        ),
    );
    for arguments in [&["--json"][..], &["go", "--json"]] {
        let all = [&["describe", module.to_str().unwrap(), "--protocol", "amplifier"], arguments].concat();
        let (code, out, errors) = run(&mut rigline(&all));
        assert_eq!(code, Some(0), "{errors}");
        assert!(out.contains(&format!("\"maximum\": {DIGITS}")), "{out}");
    }
}

/// A descriptor is read by a host with a working folder of its own.
#[test]
fn a_descriptor_names_its_program_by_an_absolute_path() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "ext", &format!("{EXTENSION}say null\n"));
    let (code, out, errors) = run(rigline(&["descriptor", "./ext"]).current_dir(folder.path()));
    assert_eq!(code, Some(0), "{errors}");
    let path = fs::canonicalize(folder.path()).unwrap().join("ext");
    assert!(out.contains(&format!("\"{}\"", path.display())), "{out}");
    // A link keeps its name: Python finds its virtual environment by it. And a shim's words are not changed on their way.
    symlink("ext", folder.path().join("link")).unwrap();
    let link = path.with_file_name("link");
    let link = link.to_str().unwrap();
    for arguments in [&["descriptor", "./link"][..], &["gevals-shim", "./link"], &["namel3ss-shim", "./link"]] {
        let (code, out, errors) = run(rigline(arguments).current_dir(folder.path()));
        assert!(code == Some(0) && out.contains(link), "{arguments:?}: {out}{errors}");
    }
    let (_, out, _) = run(&mut rigline(&["gevals-shim", "exec:sh -c 'printf \u{1b}[0m\u{202e}'"]));
    assert!(out.contains("printf \u{1b}[0m\u{202e}"), "{out:?}");
}

/// The host's own answers to a peer's requests precede what it does next, whatever the peer closes.
#[tokio::test]
async fn a_peer_that_closes_its_side_gets_the_answers_to_its_requests() {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
    const COUNT: usize = 1000;
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let mut text = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"name\":\"p\",\"version\":\"1.0.0\",\"protocolVersion\":\"0.0.1\",\"operations\":{{}}}}}}\n",
            member(&line, "/id")
        );
        for id in 0..COUNT {
            text.push_str(&format!("{{\"jsonrpc\":\"2.0\",\"id\":\"q{id}\",\"method\":\"ask\"}}\n"));
        }
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        rest
    });
    let host = Host::connect(&target, Options::default()).await.unwrap();
    // It sees that the other side is closed.
    let started = Instant::now();
    while host.is_connected() {
        assert!(started.elapsed() < crate::machine::LONG);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(host);
    let rest = tokio::task::spawn_blocking(|| peer.join().unwrap()).await.unwrap();
    let ids: Vec<_> = rest.lines().map(|line| member(line, "/id")).collect();
    assert_eq!(ids.len(), COUNT);
    assert!(ids.iter().enumerate().all(|(at, id)| *id == format!("q{at}")));
}

/// A file of its own in a container is a mount, which nothing can be renamed over: that is said before the run.
#[test]
fn a_report_on_a_mount_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "runs", "#!/bin/sh\ntouch ran\n");
    let line = format!("touch there report && mount --bind there report && exec {RIGLINE} check ./runs --junit report");
    let (code, out, errors) = run(Command::new("unshare").args(["-m", "sh", "-c", &line]).current_dir(folder.path()));
    if errors.starts_with("unshare:") || errors.starts_with("mount:") {
        let why = format!("no mounts can be made here: {}", errors.trim());
        rigline_test_support::skipped("a report on a mount", &why, "run the tests as root, outside of a container");
        return;
    }
    assert_eq!(code, Some(2), "{out}{errors}");
    assert!(errors.contains("--junit report: cannot be written: it is a mount point"), "{errors}");
    assert!(!folder.path().join("ran").exists());
}
