//! `rigline describe` and `rigline call` as a user meets them: real processes, their exit codes and what they print.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

/// A shell's `read` takes a request; what each answers is in `$1`.
const SHELL: &str = r#"exec:sh -c 'read a; echo "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"name\":\"fake\",\"version\":\"1.2.3\",\"protocolVersion\":\"0.0.1\",\"operations\":{\"go\":{\"params\":SCHEMA}}}}"; read -r b; STEPS'"#;

#[test]
fn exit_codes() {
    let reply = |body: &str| shell("{}", &format!("echo \"{{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":2,{body}}}\""));
    let failed = reply(r#"\"result\":{\"success\":false,\"error\":\"no luck\"}"#);
    let error = |code| reply(&format!(r#"\"error\":{{\"code\":{code},\"message\":\"no\"}}"#));
    let table: &[(&[&str], i32, &str)] = &[
        (&["call", "sim", "measure", "channel=3V3"], 0, ""),
        (&["call", "sim", "measure", "channel=9V9"], 2, "is not one of \"3V3\""),
        (&["call", "sim", "measure"], 2, "\"channel\" is a required property"),
        (&["call", "sim", "measure", "channel=3V3", "samples=many"], 2, "samples: \"many\" is not of type \"integer\""),
        (&["call", "sim", "measure", "channel=3V3", "samples=0"], 2, "samples: 0 is less than the minimum of 1"),
        (&["call", "sim", "measure", "chanel=3V3"], 2, "no argument `chanel`; did you mean `channel`?"),
        (&["call", "sim", "measure", "--args", r#"{"chanel":"3V3"}"#], 2, "did you mean `channel`?"),
        (&["call", "sim", "mesure"], 2, "no operation `mesure`; did you mean `measure`?"),
        (&["call", "sim", "measure", "3V3"], 2, "`3V3`: expected NAME=VALUE"),
        (&["call", "sim", "measure", "=3V3"], 2, "`=3V3`: expected NAME=VALUE"),
        (&["call", "sim", "measure", "channel=3V3", "channel=5V0"], 2, "`channel` is given more than once"),
        (&["call", "sim", "identify", "colour=red"], 2, "args: colour is an unknown member; none are expected here"),
        (&["call", "sim", "identify", "--config", r#"{"settle_ms":-1}"#], 2, "expected an integer from 0 to 5000"),
        (&["call", "sim", "identify", "--config", "[1]"], 2, "the config must be a JSON object"),
        (&["call", "sim", "measure", "--args", "[1]"], 2, "--args: expected a JSON object"),
        (&["call", "sim", "measure", "--args", "{"], 2, "not JSON"),
        (&["call", "sim", "measure", "--args", "@/no/such/file"], 2, "/no/such/file"),
        (&["call", "sim", "measure", "--timeout", "soon"], 2, "1m30s"),
        (&["call", "sim", "measure", "channel=3V3", "--env", "X"], 2, "--env `X`: expected NAME=VALUE"),
        (&["call", "sim", "measure", "channel=3V3", "--phase", "later"], 2, "setup, verify, cleanup"),
        (&["call", "seriel:auto", "x"], 2, "not a kind of target"),
        (&["call", "sim", "wait-for", "channel=3V3", "min=9", "max=10", "--timeout", "100ms"], 124, ""),
        (&["call", &failed, "go"], 1, "no luck"),
        (&["call", &error(-32000), "go"], 1, "no (-32000)"),
        (&["call", &error(-32001), "go"], 124, "no (-32001)"),
        (&["call", &error(-32602), "go"], 2, "no (-32602)"),
        (&["call", &reply(r#"\"result\":{}"#), "go"], 3, "the result has no success"),
        (&["call", &shell("{}", "sleep 30"), "go", "--timeout", "10ms"], 124, "did not answer `go` within"),
        (&["call", &shell("{}", "echo boom >&2; exit 7"), "go"], 3, "exit status 7"),
        (&["call", "/no/such/program", "go"], 3, "there is no program `/no/such/program`"),
        (&["call", "no-such-program", "go"], 3, "in PATH"),
        (&["call", "exec:false", "go"], 3, "exit status 1"),
        (&["call", "exec:sleep 30", "go", "--start-timeout", "200ms"], 124, "did not answer within"),
        (&["call", "tcp:127.0.0.1:1", "go"], 3, "cannot be opened"),
        (&["call", "serial:/no/such/port", "go"], 3, "cannot be opened"),
        (&["describe", "sim"], 0, ""),
        (&["describe", "exec:cat", "--start-timeout", "200ms"], 124, "(a request came back: the line echoes)"),
        (&["check", "no-such-program"], 3, "there is no program `no-such-program` in PATH"),
        (&["check", "tcp:127.0.0.1:1"], 3, "cannot be opened: Connection refused"),
        (&["check", "exec:false", "--case", "handshake"], 1, ""),
        (&["describe", "exec:true"], 3, "exit status 0"),
        (&["describe", "exec:sleep 30", "--start-timeout", "200ms"], 124, "it has written nothing at all"),
        (&["describe", "tcp:nowhere"], 2, "tcp:HOST:PORT"),
        (&["describe"], 2, "TARGET"),
        (&["descriptor", "http://127.0.0.1:1"], 3, "cannot connect"),
        (&["descriptor", "no:such"], 2, "not a kind of target"),
        (&["descriptor", "--check", "/no/such/file"], 2, "/no/such/file"),
        (&["descriptor", "--check", "Cargo.toml"], 1, "Cargo.toml: "),
        (&["call", "sim", "identify", "--timeout", "0s"], 2, "must be more than 0s"),
        (&["dscribe"], 2, "describe"),
    ];
    for (arguments, code, text) in table {
        let output = rigline(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
    }
}

/// The commands of earlier versions are in no list, and work as before.
#[test]
fn old_spellings_of_commands_do_what_the_new_ones_do() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("events.jsonl");
    let event = r#"{"id":"1","ts":1,"event":"session:start","component":"k","session_id":"s","data":{}}"#;
    fs::write(&log, format!("{event}\n")).unwrap();
    let log = log.to_str().unwrap();
    let gevals = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    let amplifier = r#"{"op":"health"}"#;
    let tools = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let evals = r#"{"jsonrpc":"2.0","id":1,"method":"eval.list","params":{"directory":"."}}"#;
    let runs = folder.path().join("runs");
    let runs = runs.to_str().unwrap();
    let table: &[(&[&str], &[&str], &str)] = &[
        (&["gevals-shim", "sim"], &["install", "gevals", "sim"], ""),
        (&["namel3ss-shim", "sim"], &["install", "namel3ss", "sim"], ""),
        (&["descriptor", "sim"], &["install", "amplifier", "sim"], ""),
        (&["mcp-config", "sim", "--client", "cursor"], &["install", "cursor", "sim"], ""),
        (&["mcp-config", "sim", "--client", "vscode", "--read-only"], &["install", "vscode", "sim", "--read-only"], ""),
        (&["events", log], &["replay", log], ""),
        (&["events", log, "--taxonomy", "--json"], &["replay", log, "--taxonomy", "--json"], ""),
        (&["bridge", "sim"], &["serve", "sim"], gevals),
        (&["rig", "--protocol", "amplifier"], &["serve", "sim", "--protocol", "amplifier"], amplifier),
        (&["mcp", "sim", "--read-only"], &["serve", "sim", "--protocol", "mcp", "--read-only"], tools),
        (&["jsonrpc", "--runs", runs], &["serve", "--protocol", "waza", "--runs", runs], evals),
    ];
    let (help, _) = texts(&rigline(&["--help"]));
    for (old, new, input) in table {
        let listed = help.lines().any(|line| line.trim_start().starts_with(&format!("{} ", old[0])));
        assert!(!listed, "{}: {help}", old[0]);
        let input = if input.is_empty() { String::new() } else { format!("{input}\n") };
        let (before, after) = (rigline_with(old, &input), rigline_with(new, &input));
        assert!(!before.stdout.is_empty(), "{old:?}: {}", texts(&before).1);
        assert_eq!(before.status.code(), after.status.code(), "{new:?}: {}", texts(&after).1);
        assert_eq!(texts(&before).0, texts(&after).0, "{new:?}");
    }
    // What only a server on an address has is not taken for a form on standard input and output.
    let (_, errors) = texts(&rigline(&["serve", "sim", "--clients", "3"]));
    assert!(errors.contains("the address to listen on is missing"), "{errors}");
}

/// Command lines as somebody writes them who has not read the manual.
#[test]
fn a_wrong_command_line_is_told_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), "{}").unwrap();
    let table: &[(&[&str], i32, &str)] = &[
        // Commands.
        (&["run", "evals"], 2, "there is `rigline eval run`"),
        (&["validate"], 2, "there is `rigline eval validate`"),
        (&["version"], 2, "there is `rigline --version`"),
        (&["help", "tagets"], 2, "a similar subcommand exists: 'targets'"),
        (&["sim"], 2, "`sim` is a target; `rigline describe sim` shows its operations"),
        (&["serial:auto", "measure"], 2, "`rigline describe serial:auto` shows its operations"),
        (&["call sim measure"], 2, "without the quotes it is: rigline call sim measure"),
        (&["measure", "channel=3V3"], 2, "an operation is called by: rigline call TARGET measure channel=3V3"),
        (&["describe"], 2, "`rigline targets` explains targets; the built-in rig is the target sim"),
        (&["serve", "--tcp", "7000"], 2, "`rigline targets` explains targets"),
        (&["call", "sim"], 2, "`rigline describe sim` lists the operations"),
        // Targets.
        (&["call", "mcp:sim", "measure"], 2, "did you mean sim --protocol mcp?"),
        (&["call", "sim?baud=9600", "measure"], 2, "the target sim has no options"),
        (&["call", "tcp:localhost:99999", "measure"], 2, "a port from 1 to 65535"),
        (&["call", ".", "measure"], 3, "it is a folder, not a program"),
        (&["call", "..", "measure"], 3, "it is a folder, not a program"),
        // Arguments.
        (&["call", "sim", "measure", "channel:3V3"], 2, "expected NAME=VALUE; did you mean `channel=3V3`?"),
        (&["call", "sim", "measure", "channel"], 2, "expected NAME=VALUE; write `channel=VALUE`"),
        (
            &["call", "sim", "measure", "3V3"],
            2,
            "expected NAME=VALUE; `rigline describe sim measure` shows its arguments",
        ),
        (&["call", "sim", "measure", r#"{"channel":"3V3"}"#], 2, "a JSON object is given by --args"),
        (&["call", "sim", "measure", "--channel", "3V3"], 2, "written without dashes: channel=VALUE"),
        (&["call", "sim", "measure", "--args", "{channel: 3V3}"], 2, "names and texts are in double quotes"),
        (&["call", "sim", "identify", "--config", "config.json"], 2, "write @config.json to read the file"),
        (&["call", "sim", "identify", "--config", "fast"], 2, "write the JSON text itself, @FILE, or -"),
        // Options.
        (
            &["call", "sim", "measure", "channel=3V3", "--timeout", "-5s"],
            2,
            "`-5s` is below 0, which --timeout cannot be",
        ),
        (&["eval", "run", "evals", "--trials", "3"], 2, "`rigline eval run --help` lists the options"),
        (&["check", "sim", "--list"], 2, "`rigline check --help` lists the options"),
        (
            &["check", "sim", "--case", "initialise"],
            2,
            "no case begins with `initialise`; expected one of: handshake, ",
        ),
        // Files.
        (&["mcp-config", "sim", "--client", "cursor", "--write", "--file", "."], 2, "a folder, not a file"),
    ];
    for (arguments, code, text) in table {
        let output = command(arguments).current_dir(folder.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?}: {errors}");
        assert!(!errors.contains("as a value, use"), "{arguments:?}: {errors}");
    }
    // Where clap knows a similar word, that is the tip.
    let (_, errors) = texts(&rigline(&["call", "sim", "measure", "--jsn"]));
    assert!(errors.contains("'--json'") && !errors.contains("without dashes"), "{errors}");
    // With --json, the reason stays one sentence.
    let output = rigline(&["describe", "--json"]);
    let failure: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(failure["exit_code"], 2);
    assert!(!failure["error"].as_str().unwrap().contains("explains targets"), "{failure}");
}

#[test]
fn a_call_prints_its_outputs_and_its_logs_apart() {
    let output = rigline(&["call", "sim", "power", "rail=3V3", "on=true"]);
    let (out, errors) = texts(&output);
    assert!(out.contains("3V3 is on"), "{out}");
    assert!(errors.contains("Z info: switching 3V3 on"), "{errors}");
    let output = rigline(&["call", "sim", "measure", "channel=3V3", "samples=4"]);
    let (out, _) = texts(&output);
    assert!(out.contains("samples") && out.contains("┆ 4"), "{out}");
}

#[test]
fn json_has_one_shape() {
    let table: &[(&[&str], &str, bool)] = &[
        (&["call", "sim", "measure", "channel=3V3", "--json"], "null", true),
        (
            &[
                "call",
                &shell(
                    "{}",
                    r#"echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32000,\"message\":\"gone\"}}""#,
                ),
                "go",
                "--json",
            ],
            "-32000",
            false,
        ),
    ];
    for (arguments, code, success) in table {
        let result: Value = serde_json::from_slice(&rigline(arguments).stdout).unwrap();
        let names: Vec<_> = result.as_object().unwrap().keys().collect();
        assert_eq!(names, ["success", "message", "error", "code", "outputs"]);
        assert_eq!((result["code"].to_string().as_str(), &result["success"]), (*code, &Value::Bool(*success)));
        assert!(result["outputs"].as_object().unwrap().values().all(Value::is_string), "{result}");
    }
    let described: Value = serde_json::from_slice(&rigline(&["describe", "sim", "--json"]).stdout).unwrap();
    assert!(described["manifest"]["operations"]["measure"]["params"]["properties"]["channel"].is_object());
    assert_eq!((&described["requires"], &described["faults"]), (&Value::Array(vec![]), &Value::Array(vec![])));
}

#[test]
fn arguments_come_from_pairs_texts_files_and_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("args.json");
    fs::write(&file, "\u{feff}{\"channel\":\"3V3\",\n\"samples\":2}").unwrap();
    let at_file = format!("@{}", file.display());
    let table: &[(&[&str], &str, &str)] = &[
        (&["channel=3V3", "samples=5"], "", "5"),
        (&["--args", r#"{"channel":"3V3","samples":3}"#], "", "3"),
        (&["--args", &at_file], "", "2"),
        (&["--args", &at_file, "samples=7"], "", "7"),
        (&["--args", "-"], r#"{"channel":"3V3","samples":9}"#, "9"),
    ];
    for (arguments, input, samples) in table {
        let arguments = [&["call", "sim", "measure", "--json"], *arguments].concat();
        let output = rigline_with(&arguments, input);
        let (out, errors) = texts(&output);
        let result: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{arguments:?}: {errors}"));
        assert_eq!(result["outputs"]["samples"], *samples, "{arguments:?}");
    }
}

#[test]
fn arguments_are_typed_by_the_schema() {
    // What comes out is the request's own text.
    let echo = |schema: &str| {
        shell(schema, r#"printf "%s\n" "$b" >&2; echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":true}}""#)
    };
    let schema = |kind: &str| format!(r#"{{\"type\":\"object\",\"properties\":{{\"x\":{kind}}}}}"#);
    let table = [
        (schema(r#"{\"type\":\"string\"}"#), "x=4", r#"{"x":"4"}"#),
        (schema(r#"{\"type\":\"string\"}"#), "x=a=b", r#"{"x":"a=b"}"#),
        (schema(r#"{\"type\":\"string\"}"#), "x=", r#"{"x":""}"#),
        (schema(r#"{\"type\":\"integer\"}"#), "x=4", r#"{"x":4}"#),
        (schema(r#"{\"type\":\"number\"}"#), "x=-4.5", r#"{"x":-4.5}"#),
        (schema(r#"{\"type\":\"boolean\"}"#), "x=true", r#"{"x":true}"#),
        (schema(r#"{\"type\":[\"string\",\"null\"]}"#), "x=null", r#"{"x":null}"#),
        (schema(r#"{\"type\":\"array\"}"#), "x=[1,2]", r#"{"x":[1,2]}"#),
        (schema(r#"{\"type\":\"object\"}"#), r#"x={"a":1}"#, r#"{"x":{"a":1}}"#),
        ("{}".to_owned(), "x=4", r#"{"x":4}"#),
        // Digits are kept (erpc/erpc#869, erpc/erpc#851).
        (schema(r#"{\"type\":\"integer\"}"#), "x=12345678901234567890123", r#"{"x":12345678901234567890123}"#),
        (schema(r#"{\"type\":\"number\"}"#), "x=9007199254740993.10", r#"{"x":9007199254740993.10}"#),
        ("{}".to_owned(), "x=1e3", r#"{"x":1e3}"#),
        (
            "{}".to_owned(),
            "--args={\"x\":-0,\r\n\"y\":[18446744073709551616]}",
            r#"{"x":-0,"y":[18446744073709551616]}"#,
        ),
        ("{}".to_owned(), "x=3V3", r#"{"x":"3V3"}"#),
        ("true".to_owned(), "x=y", r#"{"x":"y"}"#),
    ];
    for (schema, pair, args) in table {
        let output = rigline(&["call", &echo(&schema), "go", pair, "-v"]);
        let (_, errors) = texts(&output);
        assert!(errors.contains(&format!(r#""args":{args},"#)), "{pair}: {errors}");
    }
}

#[test]
fn the_context_is_what_was_said() {
    let echo =
        shell("{}", r#"printf "%s\n" "$b" >&2; echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":true}}""#);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("output.txt");
    fs::write(&file, "Done.\n").unwrap();
    let at_file = format!("@{}", file.display());
    #[rustfmt::skip]
    let output = rigline(&[
        "call", &echo, "go", "-v", "--workdir", "/task", "--phase", "verify", "--env", "A=1=2", "--timeout", "1m30s",
        "--agent-prompt", "Do it", "--agent-output", &at_file,
    ]);
    let (_, errors) = texts(&output);
    let context = r#""context":{"workdir":"/task","phase":"verify","env":{"A":"1=2"},"timeout":"1m30s","agent":{"prompt":"Do it","output":"Done.\n"}}"#;
    assert!(errors.contains(context), "{errors}");
}

#[test]
fn logs_by_verbosity() {
    let levels = ["debug", "info", "warn", "error"].map(|level| {
        format!(r#"echo "{{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{{\"level\":\"{level}\",\"message\":\"a {level} line\"}}}}"; "#)
    });
    let steps = format!(
        r#"{}echo told >&2; echo "{{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{{\"success\":true}}}}""#,
        levels.concat()
    );
    let target = shell("{}", &steps);
    let table: &[(&[&str], &[&str], &[&str])] = &[
        (&[], &["a info", "a warn", "a error"], &["a debug", "told"]),
        (&["-v"], &["a debug", "a info", "a warn", "a error", "told"], &[]),
        (&["-q"], &["a error"], &["a debug", "a info", "a warn", "told"]),
    ];
    for (flags, shown, hidden) in table {
        let output = rigline(&[&["call", &target, "go"], *flags].concat());
        let (_, errors) = texts(&output);
        assert!(shown.iter().all(|text| errors.contains(text)), "{flags:?}: {errors}");
        assert!(!hidden.iter().any(|text| errors.contains(text)), "{flags:?}: {errors}");
    }
    assert_eq!(rigline(&["call", "sim", "measure", "-v", "-q"]).status.code(), Some(2));
}

/// Text of an extension must not drive the terminal.
#[test]
fn escape_sequences_are_not_passed_on() {
    let log =
        r#"{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{\"level\":\"info\",\"message\":\"a\\u001b[31mb\"}}"#;
    let reply = r#"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":true,\"message\":\"c\\u001b]0;dA\",\"outputs\":{\"e\":\"\\u0007f\"}}}"#;
    let steps = format!(r#"printf "%s\n%s\n%s\n" "$(printf "\033]0;t")" "{log}" "{reply}""#);
    let (out, errors) = texts(&rigline(&["call", &shell("{}", &steps), "go"]));
    assert!(out.contains("c\u{FFFD}]0;dA") && out.contains("\u{FFFD}f"), "{out}{errors}");
    assert!(errors.contains("skipped: \u{FFFD}]0;t") && errors.contains("a\u{FFFD}[31mb"), "{errors}");
    assert!(!format!("{out}{errors}").contains(['\u{1b}', '\u{7}']), "{out}{errors}");
}

#[test]
fn expected_versions() {
    let target = || shell("{}", r#"echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"success\":true}}""#);
    for (range, code) in [(">=1.2", 0), ("1", 0), ("=1.2.3", 0), (">=1.3", 3), ("0.9", 3), ("latest", 2)] {
        let output = rigline(&["call", &target(), "go", "--expect-version", range]);
        assert_eq!(output.status.code(), Some(code), "{range}: {}", texts(&output).1);
    }
    assert!(texts(&rigline(&["call", &target(), "go", "--expect-version", "2"])).1.contains("version 1.2.3 is not in"));
}

#[test]
fn an_output_that_nobody_reads_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("log"), "no event\n".repeat(10_000)).unwrap();
    for arguments in [
        &["call", "sim", "measure", "channel=3V3"][..],
        &["describe", "sim"],
        &["help"],
        &["check", "sim", "--case", "handshake"],
        &["descriptor", "sim"],
        &["events", "log", "--check"],
        &["namel3ss-shim", "sim"],
        &["new", "starter"],
        &["ports"],
        &["rig", "--help"],
    ] {
        let mut child =
            command(arguments).current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = child.wait().unwrap();
        assert!(
            status.code().is_some_and(|code| code != 101) && !errors.contains("panicked"),
            "{arguments:?}: {errors}"
        );
    }
    for (arguments, code) in [
        (&["call", "sim", "power", "rail=3V3", "on=true"][..], 0),
        (&["events", "log"], 1),
        (&["descriptor", "exec:false"], 3),
        (&["new", "starter"], 2),
    ] {
        let mut child = command(arguments).current_dir(&folder).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn an_interruption_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let write = format!("echo $$ > {}", pids.display());
    let in_a_call = shell("{}", &format!("{write}; sleep 60 & wait"));
    let at_its_start = format!("exec:sh -c '{write}; sleep 60'");
    for (target, signal, code) in [
        (&in_a_call, Signal::INT, 130),
        (&in_a_call, Signal::TERM, 143),
        (&in_a_call, Signal::HUP, 129),
        (&at_its_start, Signal::INT, 130),
    ] {
        let _ = fs::remove_file(&pids);
        let mut child = command(&["call", target, "go"]).stderr(Stdio::null()).spawn().unwrap();
        let pid = loop {
            match fs::read_to_string(&pids).ok().and_then(|text| text.trim().parse().ok()) {
                Some(pid) => break Pid::from_raw(pid).unwrap(),
                None => sleep(Duration::from_millis(10)),
            }
        };
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{target}");
        let until = Instant::now() + Duration::from_secs(3);
        while test_kill_process(pid).is_ok() {
            assert!(Instant::now() < until, "{target}: it still runs");
            sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_manifest_as_a_table() {
    let (out, _) = texts(&rigline(&["describe", "sim"]));
    for text in ["rig 0.1.0", "measure: ", "│ channel", "(required)", "integer 1..", "limits: "] {
        assert!(out.contains(text), "{text}: {out}");
    }
    let needy = r#"exec:sh -c 'read a; echo "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"name\":\"fake\",\"version\":\"1.2.3\",\"protocolVersion\":\"0.0.1\",\"requires\":[{\"command\":\"sh\"},{\"command\":\"no-such-command\"}],\"operations\":null}}"; read b'"#;
    let (out, _) = texts(&rigline(&["describe", needy]));
    assert!(out.contains("requires sh: /") && out.contains("requires no-such-command: NOT FOUND in PATH"), "{out}");
    assert!(out.contains("fault in the manifest: operations is missing"), "{out}");
}

#[test]
fn without_a_command_it_looks_for_the_one_rig() {
    let root = tempfile::tempdir().unwrap();
    let look_by = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("RIGLINE_ROOT", root.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        let (out, errors) = texts(&output);
        (out, errors, output.status.code())
    };
    let look = || look_by(&[]);
    for command in
        [&["call", "serial:auto", "measure"][..], &["describe", "serial:auto/123"], &["check", "serial:auto"]]
    {
        let (_, errors, code) = look_by(command);
        assert!(errors.contains("plugged in") && errors.contains("rigline call sim"), "{command:?}: {errors}");
        assert_eq!(code, Some(3), "{command:?}");
    }
    let (out, ..) = look();
    assert!(out.contains("No rig is plugged in") && out.contains("rigline describe sim"), "{out}");
    device(root.path(), "ttyACM0", "1-1", "Some modem");
    let (out, ..) = look();
    assert!(out.contains("do not look like one") && out.contains("Some modem"), "{out}");
    device(root.path(), "ttyACM1", "1-2", "rigline rig");
    let (out, errors, _) = look();
    // It is the one, and there is no such port to open.
    assert!(out.contains("ttyACM1") && errors.contains("cannot be opened"), "{out}{errors}");
    device(root.path(), "ttyACM2", "1-3", "rigline rig");
    let (_, errors, _) = look();
    assert!(errors.contains("several rigline devices") && errors.contains("usb 1-3"), "{errors}");
}

/// A USB serial device as sysfs has it.
fn device(root: &Path, name: &str, place: &str, product: &str) {
    let device = root.join("sys/devices").join(place);
    let interface = device.join(format!("{place}:1.0"));
    fs::create_dir_all(&interface).unwrap();
    for (file, text) in [("idVendor", "1209"), ("idProduct", "0001"), ("product", product), ("serial", place)] {
        fs::write(device.join(file), text).unwrap();
    }
    let class = root.join("sys/class/tty").join(name);
    fs::create_dir_all(&class).unwrap();
    std::os::unix::fs::symlink(&interface, class.join("device")).unwrap();
}

fn shell(schema: &str, steps: &str) -> String {
    let schema = if schema.contains('\\') { schema.to_owned() } else { schema.replace('"', "\\\"") };
    SHELL.replace("SCHEMA", &schema).replace("STEPS", steps)
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rigline"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn rigline(arguments: &[&str]) -> Output {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
}

fn rigline_with(arguments: &[&str], input: &str) -> Output {
    let mut command = command(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn ports_and_who_holds_them() {
    let root = tempfile::tempdir().unwrap();
    device(root.path(), "ttyACM0", "1-1", "Some modem");
    device(root.path(), "ttyACM10", "1-3", "rigline rig");
    device(root.path(), "ttyACM9", "1-2", "rigline rig");
    fs::create_dir_all(root.path().join("dev")).unwrap();
    fs::write(root.path().join("dev/ttyACM9"), "").unwrap();
    fs::create_dir_all(root.path().join("proc/42/fd")).unwrap();
    fs::write(root.path().join("proc/42/cmdline"), "minicom\0-D\0x\0").unwrap();
    std::os::unix::fs::symlink(root.path().join("dev/ttyACM9"), root.path().join("proc/42/fd/3")).unwrap();
    let list = |arguments: &[&str]| {
        let mut command = command(&[&["ports"], arguments].concat());
        command.env("RIGLINE_ROOT", root.path()).stdout(Stdio::piped());
        texts(&command.output().unwrap()).0
    };
    let ports: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let names: Vec<_> =
        ports.as_array().unwrap().iter().map(|port| port["usb"]["serial_number"].as_str().unwrap()).collect();
    assert_eq!(names, ["1-1", "1-2", "1-3"]);
    assert_eq!((&ports[0]["rigline"], &ports[1]["rigline"]), (&Value::Bool(false), &Value::Bool(true)));
    assert_eq!(ports[1]["held_by"][0], "process 42 (minicom -D x)");
    let text = list(&[]);
    assert!(text.contains("1209:0001") && text.contains("--probe"), "{text}");
    let probed: Value = serde_json::from_str(&list(&["--json", "--probe"])).unwrap();
    assert!(
        probed[0]["error"].is_null() && probed[1]["error"].is_string(),
        "only what looks like ours is asked: {probed}"
    );
}

#[test]
fn what_is_recorded_is_played_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    let file = file.to_str().unwrap();
    let session = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":true},"context":{}}}"#,
        "\n",
        "{oops\n",
        r#"{"jsonrpc":"2.0","id":3,"method":"shutdown"}"#,
        "\n",
    );
    let monitored = rigline_with(&["monitor", "sim", "--record", file], session);
    let (out, errors) = texts(&monitored);
    assert_eq!(out.lines().count(), 5, "every byte passes: {out}");
    for text in [
        "→ request 1: initialize",
        "← reply 1 to initialize: ok after ",
        "→ request 2: execute power",
        "← log info: switching 3V3 on",
        "  ! not JSON",
        "← reply null to ?: error",
        "ended: exit status 0",
    ] {
        assert!(errors.contains(text), "{text}: {errors}");
    }
    let played = rigline(&["replay", file, "sim"]);
    let (out, _) = texts(&played);
    assert_eq!((played.status.code(), out.as_str()), (Some(0), "5 lines the same, 0 different\n"));

    let changed = fs::read_to_string(file).unwrap().replace("switching 3V3 on", "switching 3V3 off");
    fs::write(file, changed).unwrap();
    let played = rigline(&["replay", file, "sim"]);
    let (out, _) = texts(&played);
    assert_eq!(played.status.code(), Some(1));
    assert!(out.contains(r#"params.message: "switching 3V3 off" became "switching 3V3 on""#), "{out}");
    assert_eq!(rigline(&["replay", file, "sim", "--ignore", "message"]).status.code(), Some(0));
    assert_eq!(rigline(&["replay", file, "/no/such/program"]).status.code(), Some(3));
    assert_eq!(rigline(&["replay", "/no/such/file", "sim"]).status.code(), Some(2));
}

/// An answer that comes twice, and a log behind the answer: whether the program ends then or waits for more.
#[test]
fn lines_behind_the_last_recorded_one_are_differences() {
    let folder = tempfile::tempdir().unwrap();
    let program = |name: &str, more: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\nread -r line\necho '{{\"ok\":true}}'\n{more}\n")).unwrap();
        format!("exec:sh {}", path.display())
    };
    let usual = program("usual.sh", "exit 0");
    let file = folder.path().join("session.jsonl");
    let file = file.to_str().unwrap();
    rigline_with(&["monitor", &usual, "--record", file], "{\"op\":\"health\"}\n");
    for (name, more, code, text) in [
        ("same.sh", "exit 0", 0, "1 line the same, 0 different\n"),
        ("waits.sh", "read -r more; echo late", 0, "1 line the same, 0 different\n"),
        ("twice.sh", "echo '{\"ok\":true}'", 1, "- (no more lines)\n+ {\"ok\":true}\n1 line the same, 1 different\n"),
        ("soon.sh", "sleep 0.1; echo one; echo two; read -r more", 1, "+ one\n- (no more lines)\n+ two\n"),
    ] {
        let played = rigline(&["replay", file, &program(name, more)]);
        let (out, errors) = texts(&played);
        assert_eq!(played.status.code(), Some(code), "{name}: {out}{errors}");
        assert!(out.contains(text), "{name}: {out}{errors}");
    }
}

/// An extension with these operations, which answers each call with the name that it got.
fn named(folder: &Path, operations: &[&str]) -> String {
    let operations: serde_json::Map<String, Value> =
        operations.iter().map(|name| ((*name).to_owned(), serde_json::json!({ "params": {} }))).collect();
    let path = folder.join("named.py");
    let program = format!(
        r#"import json, sys
operations = json.loads('{}')
for line in sys.stdin:
    request = json.loads(line)
    params = request.get("params") or {{}}
    result = {{"name": "named", "version": "1.0.0", "protocolVersion": "0.0.1", "operations": operations}}
    if request["method"] == "execute":
        result = {{"success": True, "message": "called", "outputs": {{"name": params["operation"]}}}}
        if params["operation"] not in operations:
            print(json.dumps({{"jsonrpc": "2.0", "id": request["id"], "error": {{"code": -32601, "message": "no such operation"}}}}), flush=True)
            continue
    print(json.dumps({{"jsonrpc": "2.0", "id": request["id"], "result": result}}), flush=True)
    if request["method"] == "shutdown":
        break
"#,
        Value::Object(operations)
    );
    fs::write(&path, program).unwrap();
    format!("exec:python3 '{}'", path.display())
}

#[test]
fn an_operation_is_found_in_either_spelling_by_every_host() {
    let folder = tempfile::tempdir().unwrap();
    let target = named(folder.path(), &["set-target", "read_pin", "a-b", "a_b", "x-y_z", "x_y-z"]);
    // What is written, and what the extension gets.
    let table = [
        ("set_target", "set-target"),
        ("set-target", "set-target"),
        ("read-pin", "read_pin"),
        ("a-b", "a-b"),
        ("a_b", "a_b"),
    ];
    let eval = |operation: &str| {
        let text = format!(
            "name: x\ntasks:\n  - id: t\n    steps: [ {{ id: s, operation: {operation} }} ]\n    graders: [ {{ type: output_equals, step: s, output: name, value: OWN }} ]\n"
        );
        fs::write(
            folder.path().join("eval.yaml"),
            text.replace("OWN", table.iter().find(|(written, _)| *written == operation).map_or("none", |(_, own)| own)),
        )
        .unwrap();
        let path = folder.path().join("eval.yaml");
        let runs = folder.path().join("runs");
        rigline(&["eval", "run", "--target", &target, "--runs", runs.to_str().unwrap(), path.to_str().unwrap()])
    };
    for (written, own) in table {
        let (stdout, stderr) = texts(&rigline(&["call", &target, written, "--json"]));
        let value: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{written}: {stdout}{stderr}"));
        assert_eq!(value["outputs"]["name"], own, "{written}: {stdout}{stderr}");
        let output = rigline(&["describe", &target, written]);
        assert!(output.status.success() && texts(&output).0.contains(own), "{written}: {:?}", texts(&output));
        let output = eval(written);
        assert!(output.status.success(), "{written}: {:?}", texts(&output));
        let output = rigline(&["check", &target, "--call", written, "--case", "execute.result"]);
        assert!(texts(&output).0.contains("pass  execute.result"), "{written}: {:?}", texts(&output));
        // A host of another kind behind `bridge`.
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"execute\",\"params\":{{\"operation\":\"{written}\",\"args\":{{}},\"context\":{{}}}}}}\n"
        );
        let (stdout, stderr) = texts(&rigline_with(&["bridge", &target], &line));
        let reply: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{written}: {stdout}{stderr}"));
        assert_eq!(reply["result"]["outputs"]["name"], own, "{written}: {stdout}{stderr}");
    }
    // What is ambiguous is refused, with the names.
    let output = rigline(&["call", &target, "x_y_z"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output).1.contains("`x_y_z` may be x-y_z or x_y-z; write one of them"), "{:?}", texts(&output));
    let output = eval("x_y_z");
    assert!(
        output.status.code() == Some(2) && texts(&output).1.contains("may be x-y_z or x_y-z"),
        "{:?}",
        texts(&output)
    );
    let output = rigline(&["check", &target, "--call", "x_y_z"]);
    assert!(
        output.status.code() == Some(2) && texts(&output).1.contains("may be x-y_z or x_y-z"),
        "{:?}",
        texts(&output)
    );
}

#[test]
fn a_call_that_check_cannot_make_is_told_before_any_case_runs() {
    for protocol in ["gevals", "amplifier", "mcp"] {
        let output = rigline(&["check", "sim", "--protocol", protocol, "--call", "mesure"]);
        let (stdout, stderr) = texts(&output);
        assert!(output.status.code() == Some(2) && stdout.is_empty(), "{protocol}: {stdout}{stderr}");
        assert!(
            stderr.contains("--call mesure: the extension has no such operation; did you mean `measure`?"),
            "{protocol}: {stderr}"
        );
        assert!(stderr.contains("identify"), "{protocol}: {stderr}");
        let output = rigline(&["check", "sim", "--protocol", protocol, "--call", "self_test", "--case", "manifest"]);
        assert!(!texts(&output).1.contains("no such operation"), "{protocol}: {:?}", texts(&output));
    }
}
