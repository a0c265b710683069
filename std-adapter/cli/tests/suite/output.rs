//! The output of the command: full disks, JSON in every outcome, terminals of every width, files of others.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rigline"));
    command.args(arguments).stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

fn rigline(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// An extension with one operation, `op`, of this schema, which answers with its request's line in the output `line`.
fn echo(folder: &Path, schema: &str) -> String {
    let path = folder.join("echo.sh");
    let manifest = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"name":"fake","version":"1.2.3","protocolVersion":"0.0.1","operations":{{"op":{{"params":{schema}}}}}}}}}"#
    );
    fs::write(folder.join("manifest"), manifest + "\n").unwrap();
    let script = format!(
        "read -r a\ncat {0}/manifest\nread -r b\nprintf '%s\\n' \"$b\" >{0}/request\ncat {0}/reply\nread -r c\n",
        folder.display()
    );
    fs::write(&path, script).unwrap();
    fs::write(folder.join("reply"), "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":true}}\n").unwrap();
    format!("exec:sh {}", path.display())
}

/// A write that fails is told, and the exit code is not 0.
/// Reports: uutils/coreutils#9782, uutils/coreutils#9877, torognes/vsearch#243.
#[test]
fn a_full_disk_is_told_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "{\"id\":\"1\",\"ts\":1,\"event\":\"a\",\"component\":\"c\"}\n").unwrap();
    let transcript = folder.path().join("transcript");
    fs::write(&transcript, "{\"rigline\":\"transcript\",\"version\":1,\"target\":\"sim\"}\n").unwrap();
    let (log, transcript) = (log.display().to_string(), transcript.display().to_string());
    let commands: &[&[&str]] = &[
        &["describe", "sim"],
        &["describe", "sim", "--json"],
        &["describe", "sim", "measure"],
        &["describe", "sim", "--protocol", "amplifier"],
        &["call", "sim", "measure", "channel=3V3"],
        &["call", "sim", "measure", "channel=3V3", "--json"],
        &["call", "sim", "measure", "channel=3V3", "--protocol", "amplifier"],
        &["call", "sim", "measure", "--help"],
        &["check", "sim", "--case", "handshake"],
        &["check", "sim", "--case", "handshake", "--json"],
        &["descriptor", "sim"],
        &["namel3ss-shim", "sim"],
        &["ports"],
        &["ports", "--json"],
        &["replay", &transcript, "sim"],
        &["events", &log],
        &["events", &log, "--json"],
        &["events", &log, "--check"],
        &["targets"],
        &["completions", "bash"],
        &["help"],
        &["--help"],
        &["--version"],
        &["call", "--help"],
        &["help", "call"],
    ];
    for arguments in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let (_, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains("No space left on device"), "{arguments:?}: {errors}");
        // Neither may standard error be needed.
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full()).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    for arguments in [&["bridge", "sim"][..], &["serve", "sim"], &["monitor", "sim"], &["rig"], &["mcp", "sim"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{request}").unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let (_, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains("No space left on device"), "{arguments:?}: {errors}");
    }
    for (arguments, code) in [(&["bogus"][..], 2), (&["call", "sim", "bogus"], 2), (&["call", "exec:false", "x"], 3)] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(command(arguments).stderr(full).output().unwrap().status.code(), Some(code), "{arguments:?}");
    }
}

/// `--json` is one JSON value on standard output in every outcome.
#[test]
fn json_has_a_value_in_every_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "{\"id\":\"1\",\"ts\":1,\"event\":\"a\",\"component\":\"c\"}\nnope\n{\"id\":\"2\",\"ts\":1,\"event\":\"b\",\"component\":\"c\"}\n")
        .unwrap();
    let log = log.display().to_string();
    let table: &[(&[&str], i32)] = &[
        (&["call", "sim", "measure", "channel=3V3", "--json"], 0),
        (&["call", "sim", "measure", "channel=9V9", "--json"], 2),
        (&["call", "sim", "measure", "--json"], 2),
        (&["call", "sim", "bogus", "--json"], 2),
        (&["call", "--json"], 2),
        (&["call", "--bogus", "--json"], 2),
        (&["call", "exec:false", "x", "--json"], 3),
        (&["call", "/no/such/program", "x", "--json"], 3),
        (&["call", "sim", "identify", "--protocol", "amplifier", "--env", "A=1", "--json"], 2),
        (&["call", "sim", "bogus", "--protocol", "amplifier", "--json"], 2),
        (&["call", "exec:sleep 30", "x", "--start-timeout", "100ms", "--json"], 124),
        (&["call", "sim", "wait-for", "channel=3V3", "min=9", "max=10", "--timeout", "100ms", "--json"], 124),
        (&["describe", "sim", "--json"], 0),
        (&["describe", "sim", "measure", "--json"], 0),
        (&["describe", "sim", "bogus", "--json"], 2),
        (&["describe", "exec:false", "--json"], 3),
        (&["describe", "--json"], 2),
        (&["describe", "no:such", "--json"], 2),
        (&["ports", "--json"], 0),
        (&["ports", "--bogus", "--json"], 2),
        (&["check", "sim", "--case", "handshake", "--json"], 0),
        (&["check", "sim", "--case", "no-such-case", "--json"], 2),
        (&["events", &log, "--json"], 1),
        (&["events", "/no/such/file", "--json"], 2),
        (&["eval", "list", "/no/such/folder", "--json", "--bogus"], 2),
        (&["bogus", "--json"], 2),
    ];
    for (arguments, code) in table {
        let output = rigline(arguments);
        let (out, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {out}{errors}");
        let value: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"));
        if *code != 0 {
            assert_eq!(value["success"], false, "{arguments:?}: {out}");
        }
        if value.get("exit_code").is_some() {
            assert_eq!(value["exit_code"], *code, "{arguments:?}");
            assert!(value["error"].as_str().is_some_and(|error| !error.is_empty()), "{arguments:?}: {out}");
        }
    }
    let (out, _) = texts(&rigline(&["events", &log, "--json"]));
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((value["events"].as_array().unwrap().len(), &value["faults"][0]["line"]), (2, &Value::from(2)));
    assert_eq!(texts(&rigline(&["events", &log, "--json-lines"])).0.lines().count(), 2);
}

/// Characters that drive a terminal, in raw UTF-8.
const HOSTILE: &str = "a\u{1b}]0;t\u{7}\u{9b}2J\u{7f}\u{202e}b\u{2066}c\u{2028}d\u{200f}e";

fn is_safe(text: &str) -> bool {
    !text.contains(|char: char| rigline_host::terminal::is_control(char) && char != '\n' && char != '\r')
}

#[test]
fn nothing_that_others_say_drives_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = serde_json::to_string(HOSTILE).unwrap();
    let schema = format!(
        r#"{{"type":"object","description":{hostile},"properties":{{{hostile}:{{"type":"string","description":{hostile},"default":{hostile}}}}}}}"#
    );
    let target = echo(folder.path(), &schema);
    let log =
        |text: &str| format!(r#"{{"jsonrpc":"2.0","method":"log","params":{{"level":"warn","message":{text}}}}}"#);
    let replies = [
        format!(
            r#"{{"jsonrpc":"2.0","id":2,"result":{{"success":true,"message":{hostile},"outputs":{{{hostile}:{hostile}}}}}}}"#
        ),
        format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"success":false,"error":{hostile}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":2,"error":{{"code":-32000,"message":{hostile}}}}}"#),
        HOSTILE.to_owned(),
    ];
    for reply in &replies {
        fs::write(folder.path().join("reply"), format!("{}\n{HOSTILE}\n{reply}\n", log(&hostile))).unwrap();
        for more in [&[][..], &["-v"], &["--json"]] {
            let output = rigline(&[&["call", &target, "op", "--timeout", "1s"][..], more].concat());
            let (out, errors) = texts(&output);
            assert!(is_safe(&out) && is_safe(&errors), "{out:?} {errors:?}");
            if more == ["--json"] {
                let value: Value = serde_json::from_str(&out).unwrap();
                if output.status.success() {
                    assert_eq!(value["message"], HOSTILE);
                }
            }
        }
    }
    let reply = "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":true}}\n";
    fs::write(folder.path().join("reply"), format!("{HOSTILE}\n{reply}")).unwrap();
    let argument = format!("{HOSTILE}=1");
    let file = folder.path().join(HOSTILE);
    fs::write(&file, format!("{HOSTILE}\n{{\"id\":\"1\",\"ts\":1,\"event\":{hostile},\"component\":{hostile}}}\n"))
        .unwrap();
    let file = file.display().to_string();
    for arguments in [
        &["describe", &target][..],
        &["describe", &target, "op"],
        &["describe", &target, HOSTILE],
        &["describe", &target, "--json"],
        &["call", &target, HOSTILE],
        &["call", "sim", "measure", &argument],
        &["call", "sim", "measure", HOSTILE],
        &["call", "sim", HOSTILE, "--help"],
        &[HOSTILE],
        &["call", "sim", "measure", "--timeout", HOSTILE],
        &["describe", HOSTILE],
        &["events", &file],
        &["events", &file, "--json"],
        &["events", &file, "--json-lines"],
        &["descriptor", "--check", &file],
        &["replay", &file, "sim"],
        &["namel3ss-shim", "sim", "-o", "/dev/null/x"],
        &["check", HOSTILE],
        &["eval", "validate", &file],
        &["new", HOSTILE],
    ] {
        let (out, errors) = texts(&rigline(arguments));
        assert!(is_safe(&out) && is_safe(&errors), "{arguments:?}: {out:?} {errors:?}");
        // On a terminal with colours, too.
        for columns in [20, 100] {
            let seen = without_styles(&on_terminal(columns, arguments, &[]));
            assert!(is_safe(&seen), "{arguments:?}: {seen:?}");
        }
    }
}

/// 0 columns are 80; every width is readable, and none has a letter a line.
/// Reports: nushell/nushell#15328, diazoxide/charter#594.
#[test]
fn every_width_is_readable() {
    let commands: &[&[&str]] = &[
        &["call", "sim", "measure", "channel=3V3"],
        &["describe", "sim"],
        &["describe", "sim", "measure"],
        &["call", "--help"],
        &["help"],
        &["targets"],
        &["ports"],
    ];
    for arguments in commands {
        for columns in [0, 1, 2, 19, 20, 60, 80, 100, 2000] {
            let seen = without_styles(&on_terminal(columns, arguments, &[]));
            // Lines that the spinner draws are taken back by it.
            let lines = || seen.lines().map(|line| line.rsplit('\r').next().unwrap_or_default());
            let short = lines().filter(|line| !line.trim().is_empty() && line.trim().chars().count() < 3).count();
            // In 20 columns, a word such as "or" may be alone on its line.
            assert!(short * 10 <= lines().count().max(20), "{arguments:?} at {columns}:\n{seen}");
            let width = if columns < 20 { 80 } else { usize::from(columns) };
            for line in lines().filter(|line| line.starts_with(['┌', '│', '╞', '└'])) {
                assert!(line.chars().count() <= width, "{arguments:?} at {columns}:\n{seen}");
            }
        }
    }
    let seen = without_styles(&on_terminal(0, &["call", "sim", "measure", "channel=3V3"], &[]));
    assert!(seen.contains("│ samples ┆ 16"), "{seen}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let failing = &["call", "sim", "bogus"][..];
    let passing = &["check", "sim", "--case", "handshake"][..];
    for arguments in [failing, passing] {
        let is_coloured = |variables: &[(&str, &str)]| on_terminal(80, arguments, variables).contains("\u{1b}[3");
        assert!(is_coloured(&[]), "{arguments:?}");
        assert!(is_coloured(&[("NO_COLOR", "")]), "an empty NO_COLOR says nothing");
        assert!(!is_coloured(&[("NO_COLOR", "1")]), "{arguments:?}");
        assert!(!is_coloured(&[("TERM", "dumb")]), "{arguments:?}");
        let (out, errors) = texts(&rigline(arguments));
        assert!(!(out + &errors).contains('\u{1b}'), "{arguments:?}");
    }
}

/// Runs a command on a terminal of this many columns, and returns all that it shows.
fn on_terminal(columns: u16, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = rustix_openpty::openpty(None, Some(&size)).unwrap();
    let mut command = command(arguments);
    command.env("TERM", "xterm").envs(variables.iter().copied());
    command.stdout(pty.user.try_clone().unwrap()).stderr(pty.user);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut seen = Vec::new();
    // The end of the other side is an error on Linux.
    let _ = File::from(pty.controller).read_to_end(&mut seen);
    child.wait().unwrap();
    String::from_utf8_lossy(&seen).replace("\r\n", "\n")
}

/// Without our own colours, and without the spinner's movements.
fn without_styles(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = match after.find(|char: char| !char.is_ascii_digit() && char != ';' && char != '?') {
            Some(end) if after[end..].starts_with(['m', 'K', 'A', 'B', 'h', 'l']) => &after[end + 1..],
            _ => {
                plain.push('\u{1b}');
                after
            }
        };
    }
    plain + rest
}

#[test]
fn nothing_of_others_is_changed_and_nothing_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let name = |name: &str| at(name).display().to_string();
    fs::write(at("theirs"), "theirs\n").unwrap();
    symlink("theirs", at("link")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into()).unwrap();
    let call = |option: &'static str, file: &str, protocol: &'static str| {
        rigline(&["call", "sim", "measure", "channel=3V3", "--protocol", protocol, option, &name(file)])
    };
    for (option, protocol) in [("--events", "amplifier"), ("--trace", "namel3ss")] {
        for file in ["theirs", "link", "dangling", "fifo"] {
            let output = call(option, file, protocol);
            assert_eq!(output.status.code(), Some(2), "{option} {file}: {:?}", texts(&output));
        }
        let new = format!("new/{protocol}/log");
        assert_eq!(call(option, &new, protocol).status.code(), Some(0));
        assert_eq!(call(option, &new, protocol).status.code(), Some(0));
        let log = fs::read_to_string(at(&new)).unwrap();
        assert!(log.lines().count() >= 2 && log.lines().all(|line| line.starts_with('{')), "{log}");
    }
    for file in ["theirs", "link", "dangling", "fifo"] {
        let output = rigline(&["monitor", "sim", "--record", &name(file)]);
        assert_eq!(output.status.code(), Some(2), "{file}: {:?}", texts(&output));
    }
    for _ in 0..2 {
        assert_eq!(rigline(&["monitor", "sim", "--record", &name("new/record")]).status.code(), Some(0));
    }
    assert!(fs::read_to_string(at("new/record")).unwrap().starts_with("{\"rigline\":\"transcript\""));
    assert_eq!(rigline(&["descriptor", "sim", "-o", &name("link")]).status.code(), Some(0));
    assert!(fs::symlink_metadata(at("link")).unwrap().is_file(), "the link is replaced");
    assert_eq!(rigline(&["descriptor", "--check", &name("link")]).status.code(), Some(0));
    assert_eq!(rigline(&["descriptor", "sim", "-o", &name("fifo")]).status.code(), Some(2));
    fs::remove_file(at("link")).unwrap();
    symlink("theirs", at("link")).unwrap();
    // What is read must be a file: none of these waits.
    let at_fifo = format!("@{}", name("fifo"));
    for arguments in [
        &["events", &name("fifo")][..],
        &["replay", &name("fifo"), "sim"],
        &["descriptor", "--check", &name("fifo")],
        &["call", "sim", "measure", "--args", &at_fifo],
        &["call", "sim", "measure", "--args", "@/dev/zero"],
        &["call", "sim", "measure", "--agent-prompt", &at_fifo],
        &["events", folder.path().to_str().unwrap()],
    ] {
        let output = rigline(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {:?}", texts(&output));
    }
    assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs\n");
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink() && !at("nowhere").exists());
    let left = fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains(".tmp"));
    assert_eq!(left.count(), 0);
}

/// Reports: knowsuchagency/mcp2cli#83, anthropics/claude-code#90549, marianfoo/sap-mcp-servers#52.
#[test]
fn a_call_by_the_whole_schema_of_a_real_extension() {
    let folder = tempfile::tempdir().unwrap();
    let sent = |schema: &str, arguments: &[&str]| {
        let target = echo(folder.path(), schema);
        let output = rigline(&[&["call", &target, "op"], arguments].concat());
        let (_, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{schema} {arguments:?}: {errors}");
        let request: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("request")).unwrap()).unwrap();
        (request["params"]["args"].to_string(), errors)
    };
    let schema = r##"{"properties":{"level":{"enum":["0","1","auto"]},"label":{"anyOf":[{"type":"string"},{"type":"null"}]},"r":{"$ref":"#/$defs/t"},"place":{"$ref":"#/$defs/place"}},"$defs":{"t":{"type":"string"},"place":{"type":"object","properties":{"city":{"type":"string"}}}}}"##;
    for (pair, args) in [
        ("level=1", r#"{"level":"1"}"#),
        ("label=123", r#"{"label":"123"}"#),
        ("r=1e3", r#"{"r":"1e3"}"#),
        ("place.city=007", r#"{"place":{"city":"007"}}"#),
    ] {
        assert_eq!(sent(schema, &[pair]).0, args);
    }
    for schema in [
        r#"{"$schema":"https://spec.openapis.org/oas/3.1/dialect/base","type":"object","properties":{"x":{"type":"string"}}}"#,
        r#"{"properties":{"x":{"type":"string","pattern":"^a\\Z"}}}"#,
        r#"{"properties":{"x":{"$ref":"https://example.org/x.json"}}}"#,
    ] {
        let (args, errors) = sent(schema, &["x=a"]);
        assert_eq!(args, r#"{"x":"a"}"#);
        assert!(errors.contains("the extension checks it"), "{errors}");
    }
    let value = format!("x={}b", "a".repeat(40));
    let (_, errors) = sent(r#"{"properties":{"x":{"type":"string","pattern":"^(?=a)(a|aa)+\\1$"}}}"#, &[&value]);
    assert!(errors.contains("the extension checks it"), "{errors}");
}

/// Which of the two values would be sent is nobody's to guess.
#[test]
fn a_name_twice_is_refused_also_in_args() {
    let folder = tempfile::tempdir().unwrap();
    let target = echo(folder.path(), "{}");
    for arguments in [
        &["x=1", "x=2"][..],
        &["--args", r#"{"x":1,"y":2,"x":1}"#],
        &["--args", r#"{"x":1,"\u0078":2}"#],
        &["--args", r#"{"y":[0,{"x":1,"x":2}]}"#],
    ] {
        let output = rigline(&[&["call", &target, "op"], arguments].concat());
        let (_, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains("`x` is given more than once"), "{errors}");
    }
    // The script writes down the line after `initialize`, which is `shutdown` or nothing.
    let next = fs::read_to_string(folder.path().join("request")).unwrap_or_default();
    assert!(!next.contains("execute"), "{next}");
}

#[test]
fn completions_and_manual_pages() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (out, errors) = texts(&rigline(&["completions", shell]));
        assert!(out.contains("RIGLINE_COMPLETE"), "{shell}: {out}{errors}");
    }
    let complete = |words: &[&str]| {
        let mut command = command(&["--"]);
        command.args(words).env("RIGLINE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        texts(&command.output().unwrap()).0
    };
    for (words, found) in [
        (&["rigline", "desc"][..], "describe"),
        (&["rigline", "call", "sim", "mea"], "measure"),
        (&["rigline", "call", "'sim'", "mea"], "measure"),
        (&["rigline", "describe", "sim", "gpio"], "gpio-read"),
        (&["rigline", "call", "sim", "power", "ra"], "rail="),
        (&["rigline", "call", "sim", "power", "rail=3V3", "on="], "on=false"),
    ] {
        // A target has little time at a prompt, and may need more on a busy machine.
        let is_found = (0..10).any(|_| complete(words).contains(found));
        assert!(is_found, "{words:?}");
    }
    assert_eq!(complete(&["rigline", "call", "exec:false", "mea"]), "");
    let pages = folder.path().join("share/man1");
    let output = rigline(&["man", pages.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
    for page in ["rigline.1", "rigline-call.1", "rigline-eval-run.1", "rigline-targets.1", "rigline-mcp.1"] {
        assert!(fs::read_to_string(pages.join(page)).unwrap().contains(".TH"), "{page}");
    }
}

#[test]
fn targets_and_their_options_are_explained() {
    // The documentation of the parser lists the forms in a table, and the options in a paragraph.
    let docs: Vec<&str> = include_str!("../../../host/src/target.rs")
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .collect();
    let forms = docs.iter().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(form, _)| form);
    let forms = forms.map(|form| form.replace("[ARGS]", "ARGS").replace("/PATH", "/")).collect::<Vec<_>>();
    let text = docs.join(" ");
    let options: Vec<String> =
        text.split('`').filter(|word| word.contains('=') && word.len() < 30).map(str::to_owned).collect();
    assert!(forms.len() > 9 && options.len() > 5, "{forms:?} {options:?}");
    for arguments in [&["help", "targets"][..], &["targets"], &["targets", "--help"]] {
        let (out, _) = texts(&rigline(arguments));
        for text in forms.iter().chain(&options).chain([&"Exit codes:".to_owned()]) {
            assert!(out.contains(text.as_str()), "{text}: {out}");
        }
    }
}

/// Where no device is plugged in, every command says the same, and the way out.
#[test]
fn no_device_is_told_in_one_way() {
    let root = tempfile::tempdir().unwrap();
    for arguments in [
        &["describe", "serial:auto"][..],
        &["call", "serial:auto", "x"],
        &["descriptor", "serial:auto"],
        &["monitor", "serial:auto"],
        &["describe", "serial:auto", "--protocol", "amplifier"],
        &["call", "serial:auto", "x", "--protocol", "amplifier"],
        &["bridge", "serial:auto", "--protocol", "amplifier"],
    ] {
        let output = command(arguments).env("RIGLINE_ROOT", root.path()).output().unwrap();
        let (_, errors) = texts(&output);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {errors}");
        assert!(errors.contains("rigline: no rigline device is plugged in\n"), "{arguments:?}: {errors}");
        assert!(errors.contains("rigline call sim measure channel=3V3"), "{arguments:?}: {errors}");
    }
}

/// A gevals host may not show the log that says what is waited for: a person sees it too.
#[test]
fn what_is_waited_for_is_said_on_standard_error() {
    let root = tempfile::tempdir().unwrap();
    let input = root.path().join("input");
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    std::fs::write(&input, format!("{line}\n")).unwrap();
    let mut command = command(&["serve", "serial:auto", "--wait", "10ms"]);
    command.env("RIGLINE_ROOT", root.path()).stdin(std::fs::File::open(&input).unwrap());
    let (out, errors) = texts(&command.output().unwrap());
    let said = "no rigline device is plugged in; waiting up to 10ms";
    assert!(errors.contains(&format!("rigline: {said}\n")), "{errors}");
    assert!(out.contains(said) && out.contains("-32000"), "{out}");
}

/// The exit codes stand once in the help of every command: those of all commands, or the command's own.
#[test]
fn every_help_has_the_exit_codes() {
    let (help, _) = texts(&rigline(&["--help"]));
    let names: Vec<&str> = help
        .lines()
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.contains(&"call") && names.contains(&"eval"), "{help}");
    let nested = ["run", "list", "validate", "new"].map(|name| ["help", "eval", name]);
    let hidden = ["mcp", "bridge", "jsonrpc", "rig"].map(|name| vec!["help", name]);
    let all = names.iter().filter(|name| **name != "help").map(|name| vec!["help", name]);
    let mut own = ["check", "serve", "monitor", "lock", "jsonrpc"].map(|name| vec!["help", name]).to_vec();
    own.push(vec!["help", "eval", "run"]);
    for words in all.chain(nested.map(Vec::from)).chain(hidden) {
        let (help, _) = texts(&rigline(&words));
        assert_eq!(help.matches("Exit codes:").count(), 1, "{words:?}: {help}");
        let has_own = own.contains(&words);
        assert_eq!(help.matches("124 timed out").count(), usize::from(!has_own), "{words:?}: {help}");
    }
    assert_eq!(help.matches("124 timed out").count(), 1, "{help}");
}

/// The list of targets is laid out by hand, for terminals from 60 columns on.
#[test]
fn targets_fit_60_columns() {
    let until_usage = |text: &str| text.split("Usage:").next().unwrap().to_owned();
    let (whole, _) = texts(&rigline(&["targets"]));
    let narrow = without_styles(&on_terminal(60, &["targets"], &[]));
    assert_eq!(until_usage(&narrow), until_usage(&whole));
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
}

/// Wide characters take two columns each.
#[test]
fn tables_of_wide_characters_fit() {
    let folder = tempfile::tempdir().unwrap();
    let schema = r#"{"type":"object","properties":{"チャンネル":{"type":"string","description":"日本語の長い説明文がここに入りますので表が狭い端末でも読めるべきです"}}}"#;
    let target = echo(folder.path(), schema);
    // As wide as terminals show them: what is not ASCII and no line of the table takes two columns here.
    let width = |line: &str| line.chars().map(|char| if char >= '\u{3000}' { 2 } else { 1 }).sum::<usize>();
    for columns in [64, 80, 100] {
        let text = without_styles(&on_terminal(columns, &["describe", &target], &[]));
        assert!(text.contains("チャンネル"), "{text}");
        let table: Vec<&str> = text.lines().filter(|line| line.starts_with(['┌', '│', '╞', '└'])).collect();
        assert!(!table.is_empty() || columns < 80, "{text}");
        let widths: Vec<usize> = table.iter().map(|line| width(line)).collect();
        assert!(
            widths.iter().all(|width| *width == widths[0] && *width <= columns.into()),
            "{columns}: {widths:?}\n{text}"
        );
    }
}

#[test]
fn describe_shows_one_operation_with_an_example() {
    let folder = tempfile::tempdir().unwrap();
    let schema = r##"{"type":"object","required":["place","mode"],"properties":{"place":{"$ref":"#/$defs/place"},"days":{"type":"array","items":{"type":"object","properties":{"high":{"type":"number","minimum":-3.4028234663852886e38,"maximum":3.4028234663852886e38}}}},"mode":{"enum":["fast","slow"],"description":"How it goes"}},"$defs":{"place":{"type":"object","required":["city"],"properties":{"city":{"type":"string"},"inner":{"$ref":"#/$defs/place"}}}}}"##;
    let target = echo(folder.path(), schema);
    let (out, errors) = texts(&rigline(&["describe", &target, "op"]));
    for text in
        ["place.city", "days.0.high", "list of object", r#""fast" | "slow""#, "place.city=TEXT mode=fast", "Example:"]
    {
        assert!(out.contains(text), "{text}: {out}{errors}");
    }
    assert!(!out.contains("e38") && !out.contains("e+38"), "{out}");
    let (help, _) = texts(&rigline(&["call", &target, "op", "--help"]));
    assert_eq!(help, out);
    assert!(texts(&rigline(&["call", &target, "--help"])).0.contains("Usage: rigline call"));
    // The example of every operation of the rig is one that its schema takes.
    let described: Value = serde_json::from_slice(&rigline(&["describe", "sim", "--json"]).stdout).unwrap();
    for name in described["manifest"]["operations"].as_object().unwrap().keys() {
        let one: Value = serde_json::from_slice(&rigline(&["describe", "sim", name, "--json"]).stdout).unwrap();
        let example = one["example"].as_str().unwrap();
        let words: Vec<&str> = example.split(' ').skip(1).chain(["--timeout", "1ms"]).collect();
        let (_, errors) = texts(&rigline(&words));
        assert!(!errors.contains("shows its arguments"), "{example}: {errors}");
    }
}

#[test]
fn a_schema_that_refers_to_itself_has_a_short_example() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..100).map(|number| format!("a{number}")).collect();
    let members: Value = names.iter().map(|name| (name.clone(), json!({"$ref": "#"}))).collect();
    let list = json!({"type": "array", "items": {"$ref": "#/properties/l"}});
    for schema in [
        json!({"type": "object", "properties": {"l": list}, "required": ["l"]}),
        json!({"type": "object", "properties": members, "required": names}),
    ] {
        let target = echo(folder.path(), &schema.to_string());
        let (out, errors) = texts(&rigline(&["describe", &target, "op"]));
        let example = out.lines().skip_while(|line| !line.starts_with("Example:")).collect::<String>();
        assert!((10..20_000).contains(&example.len()), "{example}{errors}");
    }
}

#[test]
fn a_huge_value_is_shortened_in_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let target = echo(folder.path(), "{}");
    let blob = "x".repeat(100_000);
    let reply =
        format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"success":true,"outputs":{{"blob":"{blob}","n":"1"}}}}}}"#);
    fs::write(folder.path().join("reply"), reply + "\n").unwrap();
    let (out, _) = texts(&rigline(&["call", &target, "op"]));
    assert!(out.len() < 4000 && out.contains("100000 bytes"), "{out}");
    let value: Value = serde_json::from_slice(&rigline(&["call", &target, "op", "--json"]).stdout).unwrap();
    assert_eq!(value["outputs"]["blob"], blob);
}
