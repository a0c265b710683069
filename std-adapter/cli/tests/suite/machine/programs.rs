//! Programs: how they are started, what they inherit, and that nothing of them is left.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rigline_host::{Host, JsonObject, Options};
use rustix::process::{Pid, test_kill_process};

use crate::machine::{EXTENSION, LONG, RIGLINE, copy_command, rigline, run, script, wait_until};

/// Writes down who it is and whom it has started, and then ends for nothing but SIGKILL.
const HANGS: &str = "trap '' TERM HUP INT; sleep 300 & echo $$ $! > \"$PIDS.new\"; mv \"$PIDS.new\" \"$PIDS\"; while :; do sleep 1; done\n";

fn is_alive(pid: &str) -> bool {
    // A zombie that nobody waits for has ended all the same.
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
        && Pid::from_raw(pid.parse().unwrap()).is_some_and(|pid| test_kill_process(pid).is_ok())
}

#[test]
fn kill_9_of_a_command_leaves_nobody_behind() {
    let folder = tempfile::tempdir().unwrap();
    let starts = script(folder.path(), "starts", &format!("{EXTENSION}{HANGS}"));
    let never = script(folder.path(), "never", &format!("#!/bin/sh\n{HANGS}"));
    let (starts, never) = (format!("exec:{}", starts.display()), format!("exec:{}", never.display()));
    let eval = folder.path().join("e.yaml");
    fs::write(
        &eval,
        format!("name: x\nconfig: {{ target: '{starts}' }}\ntasks: [ {{id: t, steps: [ {{operation: go}} ]}} ]\n"),
    )
    .unwrap();
    let prompt = folder.path().join("p.yaml");
    fs::write(
        &prompt,
        format!(
            "name: x\nconfig: {{ executor: command, command: [{}] }}\ntasks: [ {{id: t, prompt: p}} ]\n",
            &never[5..]
        ),
    )
    .unwrap();
    let runs = folder.path().join("runs");
    let (eval, prompt, runs) = (eval.to_str().unwrap(), prompt.to_str().unwrap(), runs.to_str().unwrap());
    let call =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"execute\",\"params\":{\"operation\":\"go\",\"context\":{}}}\n";
    for (arguments, input) in [
        (&["call", &starts, "go"][..], ""),
        (&["call", &never, "go"], ""),
        (&["describe", &never], ""),
        (&["call", &never, "go", "--protocol", "amplifier"], ""),
        (&["call", &never, "go", "--protocol", "namel3ss"], ""),
        (&["check", &never], ""),
        (&["monitor", &never], ""),
        (&["bridge", &starts], call),
        (&["bridge", &never, "--protocol", "amplifier"], ""),
        (&["serve", &never, "--http", "0", "--protocol", "amplifier"], ""),
        (&["eval", "run", eval, "--runs", runs], ""),
        (&["eval", "run", prompt, "--runs", runs], ""),
    ] {
        let pids = folder.path().join("pids");
        let _ = fs::remove_file(&pids);
        let mut child = rigline(arguments).env("PIDS", &pids).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        wait_until(&format!("{arguments:?} has started it"), || pids.exists());
        let pids = fs::read_to_string(pids).unwrap();
        assert!(pids.split_whitespace().all(is_alive), "{arguments:?}");
        child.kill().unwrap();
        let killed = Instant::now();
        child.wait().unwrap();
        wait_until(&format!("{arguments:?} has left nobody"), || !pids.split_whitespace().any(is_alive));
        assert!(killed.elapsed() < Duration::from_secs(10), "{arguments:?}");
    }
}

#[test]
fn not_even_a_program_that_was_just_being_started_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#!/bin/sh\ntrap '' TERM HUP\nwhile :; do sleep 1; done\n";
    let program = script(folder.path(), "ext", text).into_os_string().into_string().unwrap();
    for delay in 0..60 {
        let protocol = ["gevals", "amplifier", "namel3ss"].into_iter().cycle().nth(delay).unwrap();
        let mut child = rigline(&["call", &program, "go", "--protocol", protocol]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay as u64));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let runs = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
        lines.any(|line| line.split('\0').any(|word| word == program))
    };
    wait_until("nobody is left", || !runs());
}

#[test]
fn hardware_gets_to_its_safe_state_when_a_command_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let safe = folder.path().join("safe");
    let text = format!(
        "{EXTENSION}exec 2>/dev/null; trap 'touch {}; exit 0' TERM; touch {0}.ready; while :; do sleep 0.1; done\n",
        safe.display()
    );
    let target = format!("exec:{}", script(folder.path(), "ext", &text).display());
    let mut child = rigline(&["call", &target, "go"]).spawn().unwrap();
    wait_until("it runs", || folder.path().join("safe.ready").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("it was asked to end", || safe.exists());
}

#[test]
fn a_program_that_ends_in_good_order_is_not_killed() {
    let folder = tempfile::tempdir().unwrap();
    // Its own children are its own: they hold no pipe, and have a group of their own.
    let text = format!(
        "{EXTENSION}cd {}\nsetsid sh -c 'echo $$ > new; mv new pid; exec sleep 60' >/dev/null 2>&1 </dev/null &\n\
         while [ ! -e pid ]; do sleep 0.01; done; say '{{\"success\":true}}'; ask; say '{{}}'\n",
        folder.path().display()
    );
    let target = format!("exec:{}", script(folder.path(), "ext", &text).display());
    let (code, _, errors) = run(&mut rigline(&["call", &target, "go"]));
    assert_eq!(code, Some(0), "{errors}");
    let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
    assert!(is_alive(pid.trim()));
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn why_a_program_cannot_be_started() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    script(here, "interpreter", "#!/no/such/interpreter -x\n");
    script(here, "crlf", "#!/bin/sh\r\necho\r\n");
    script(here, "plain", "echo\n");
    script(here, "weather", EXTENSION);
    fs::write(here.join("data"), "#!/bin/sh\n").unwrap();
    fs::create_dir(here.join("folder")).unwrap();
    std::os::unix::fs::symlink("nowhere", here.join("link")).unwrap();
    for (target, expected) in [
        ("./interpreter", "its interpreter /no/such/interpreter is not there"),
        ("./crlf", "its first line ends with CR LF"),
        ("./data", "it may not be executed; try chmod +x"),
        ("./folder", "it is a folder, not a program"),
        ("exec:./folder", "it is a folder, not a program"),
        ("folder", "folder is a folder"),
        ("./link", "it is a link to nowhere, which is not there"),
        ("./nothing", "there is no program `./nothing`"),
        // N 3.
        ("weather", "there is no program `weather` in PATH; a file of this name is here: write ./weather"),
        ("Sim", "did you mean sim?"),
        ("ttyACM0", "did you mean serial:/dev/ttyACM0?"),
    ] {
        let (code, _, errors) = run(rigline(&["call", target, "go"]).current_dir(here));
        assert_eq!(code, Some(3), "{target}: {errors}");
        assert!(errors.contains(expected), "{target}: {errors}");
    }
    // The same words for the programs of the other protocols, and for what an eval starts.
    for (arguments, code) in [
        (&["call", "./interpreter", "go", "--protocol", "amplifier"][..], 3),
        (&["call", "./interpreter", "go", "--protocol", "namel3ss"], 3),
        (&["monitor", "./interpreter"], 3),
    ] {
        let (found, _, errors) = run(rigline(arguments).current_dir(here));
        assert_eq!(found, Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains("/no/such/interpreter is not there"), "{arguments:?}: {errors}");
    }
    fs::write(
        here.join("e.yaml"),
        "name: x\nconfig: { executor: command, command: [./interpreter] }\ntasks: [ {id: t, prompt: p} ]\n",
    )
    .unwrap();
    let (_, out, errors) = run(rigline(&["eval", "run", "e.yaml", "--runs", "runs"]).current_dir(here));
    assert!(errors.contains("/no/such/interpreter is not there"), "{out}{errors}");
    // Targets that name a kind, or nearly so.
    for (target, expected) in
        [("127.0.0.1:7000", "tcp:127.0.0.1:7000"), ("Serial:auto", "serial:auto"), ("localhost:1", "tcp:localhost:1")]
    {
        let (code, _, errors) = run(&mut rigline(&["call", target, "go"]));
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains(&format!("did you mean {expected}?")), "{errors}");
    }
}

/// Reports: gregkh/usbutils#256.
#[test]
fn an_unreachable_target_is_exit_code_3() {
    // A port that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = format!("tcp:{free}");
    for target in ["exec:/no/such", &refused, "serial:/dev/no-such-port"] {
        for command in [&["describe", target][..], &["call", target, "go"], &["monitor", target]] {
            let (code, _, errors) = run(&mut rigline(command));
            assert_eq!(code, Some(3), "{command:?}: {errors}");
        }
    }
}

#[test]
fn arguments_and_settings_are_objects() {
    for arguments in [
        &["call", "sim", "identify", "--config", "[1]"][..],
        &["call", "sim", "identify", "--config", "7"],
        &["call", "sim", "identify", "--args", "[1]"],
        &["call", "sim", "identify", "--args", "\"x\""],
    ] {
        let (code, _, errors) = run(&mut rigline(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains("object"), "{arguments:?}: {errors}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = Options::default();
        options.sim_program = Some(RIGLINE.into());
        let host = Host::connect(&"sim".parse().unwrap(), options.clone()).await.unwrap();
        for args in ["[1]", "7", "\"x\"", "true"] {
            let error = host.call_json("identify", args, rigline_host::CallContext::default()).await.unwrap_err();
            assert_eq!(error.to_string(), "the arguments must be a JSON object", "{args}");
        }
        let error = JsonObject::try_from(serde_json::json!([1])).unwrap_err();
        assert_eq!(error.to_string(), "the config must be a JSON object");
    });
}

#[test]
fn a_program_has_the_limits_and_dispositions_of_who_started_the_command() {
    // Signal n is bit n - 1.
    const SIGHUP: u64 = 1;
    const SIGINT: u64 = 1 << 1;
    let folder = tempfile::tempdir().unwrap();
    // The server of evals raises its own limit on open files.
    fs::write(
        folder.path().join("e.yaml"),
        "name: x\nconfig: { executor: command, command: [sh, -c, 'ulimit -S -n'] }\ntasks: [ {id: t, prompt: p, graders: [{type: output_equals, value: '200'}]} ]\n",
    )
    .unwrap();
    let limited = format!("ulimit -S -n 200; exec {RIGLINE} eval run e.yaml --runs runs");
    let (code, out, errors) = run(Command::new("sh").args(["-c", &limited]).current_dir(folder.path()));
    assert_eq!(code, Some(0), "{out}{errors}");
    // A program that is started by way of `nohup` goes on ignoring SIGHUP, and is not made to ignore anything else.
    let text = format!("#!/bin/sh\ngrep -E 'SigIgn|SigBlk' /proc/self/status > status\n{}", &EXTENSION[10..]);
    script(folder.path(), "ext", &format!("{text}say '{{\"success\":true}}'; ask; say '{{}}'\n"));
    let nohup = format!("trap '' HUP; exec {RIGLINE} call ./ext go");
    let (code, _, errors) = run(Command::new("sh").args(["-c", &nohup]).current_dir(folder.path()));
    assert_eq!(code, Some(0), "{errors}");
    let status = fs::read_to_string(folder.path().join("status")).unwrap();
    // A shell that starts the tests in the background has them ignore SIGINT, which the command handles, and SIGQUIT.
    let (_, own, _) = run(Command::new("sh").args(["-c", "trap '' HUP; grep -E 'SigIgn|SigBlk' /proc/self/status"]));
    let masks = |status: &str| -> Vec<u64> {
        let masks = status.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok());
        // The two signals above 31 are the C library's own.
        masks.map(|mask| mask & 0x7FFF_FFFF & !SIGINT).collect()
    };
    assert_eq!(masks(&status), masks(&own), "{status}{own}");
    assert_eq!(masks(&status).last().map(|ignored| ignored & SIGHUP), Some(SIGHUP), "{status}");
}

#[test]
fn a_time_limit_is_named_with_its_grace() {
    let folder = tempfile::tempdir().unwrap();
    let target = format!("exec:{}", script(folder.path(), "ext", &format!("{EXTENSION}sleep 60\n")).display());
    let (code, _, errors) = run(&mut rigline(&["call", &target, "go", "--timeout", "500ms"]));
    assert_eq!(code, Some(124), "{errors}");
    assert!(errors.contains("did not answer `go` within 2.5s: its time limit of 500ms, and 2s of grace"), "{errors}");
}

#[test]
fn folders_and_programs_with_names_that_are_not_utf_8() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    fs::create_dir(&odd).unwrap();
    script(&odd, "ext", &format!("{EXTENSION}say '{{\"success\":true}}'; ask; say '{{}}'\n"));
    script(
        &odd,
        "module",
        "#!/bin/sh\nwhile read -r line || [ -n \"$line\" ]; do case $line in\n*describe*) echo '{\"name\":\"m\",\"version\":\"1\",\"kind\":\"tool\",\"capabilities\":[\"go\"]}' ;;\n*) echo '{\"ok\":true,\"result\":1}' ;;\nesac; done\n",
    );
    // The command itself is in such a folder too.
    let copy = odd.join("rl");
    copy_command(&copy);
    for arguments in [
        &["call", "./ext", "go"][..],
        &["call", "sim", "identify"],
        &["call", "sim", "identify", "--protocol", "namel3ss"],
        &["call", "./module", "go", "--protocol", "amplifier"],
        &["call", "./module", "go", "--protocol", "namel3ss"],
        &["monitor", "sim", "--record", "record.jsonl"],
    ] {
        let (code, out, errors) = run(Command::new(&copy).args(arguments).current_dir(&odd).stdin(Stdio::null()));
        assert_eq!(code, Some(0), "{arguments:?}: {out}{errors}");
    }
}

/// Reports: denoland/deno#36176, smol-machines/smolvm#945, manaflow-ai/cmux#10483.
#[test]
fn the_running_binary_may_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("rl");
    copy_command(&copy);
    let request =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"0.0.1\"}}\n";
    for replaced in [true, false] {
        let mut child = Command::new(&copy);
        let mut child = child.args(["bridge", "sim"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It runs, and has started nothing yet.
        std::thread::sleep(Duration::from_millis(300));
        fs::remove_file(&copy).unwrap();
        if replaced {
            script(folder.path(), "rl", "#!/bin/sh\nexit 9\n");
        }
        child.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("\"protocolVersion\""), "{line}");
        drop(child.stdin.take());
        child.wait().unwrap();
        let _ = fs::remove_file(&copy);
        copy_command(&copy);
    }
}

/// Not a test of its own: somebody's host program, which is this one.
#[test]
#[ignore = "the next test runs it as a program of its own"]
fn a_host_program_of_somebody() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match runtime.block_on(Host::connect(&"sim".parse().unwrap(), Options::default())) {
        Ok(host) => println!("connected to {}", host.describe().name),
        Err(error) => println!("error: {error}"),
    }
}

#[test]
fn the_target_sim_of_a_host_program_is_rigline_from_path() {
    let bin = Path::new(RIGLINE).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    // Somebody may even have called the program itself that.
    fs::create_dir(folder.path().join("own")).unwrap();
    std::os::unix::fs::symlink(&this, folder.path().join("own/rigline")).unwrap();
    for (path, expected) in [
        (bin.to_path_buf(), "connected to"),
        ("/no/such".into(), "error: the target sim is the command rigline, which is not in PATH"),
        (folder.path().join("own"), "is this program itself"),
    ] {
        let mut program = Command::new(&this);
        program.args(["--exact", "machine::programs::a_host_program_of_somebody", "--ignored", "--nocapture"]);
        let (_, out, errors) = run(program.env("PATH", &path));
        assert!(out.contains(expected), "{}: {out}{errors}", path.display());
    }
}

#[test]
fn no_target_starts_itself_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let text = format!("#!/bin/sh\necho x >> {}\nexec {RIGLINE} call ./ext go\n", started.display());
    script(folder.path(), "ext", &text);
    let start = Instant::now();
    let mut command = rigline(&["call", "./ext", "go"]);
    let (code, _, errors) = run(command.current_dir(folder.path()).process_group(0));
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("`./ext` starts itself"), "{errors}");
    assert_eq!(fs::read_to_string(started).unwrap(), "x\n");
    assert!(start.elapsed() < LONG);
}

#[test]
fn each_of_twenty_requests_to_the_host_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let answers = folder.path().join("answers");
    let text = format!(
        r#"{EXTENSION}call=$id
all=; n=1
while [ $n -le 20 ]; do all="$all{{\"jsonrpc\":\"2.0\",\"id\":\"q$n\",\"method\":\"roots/list\"}}
"; n=$((n+1)); done
printf '%s' "$all"
n=1
while [ $n -le 20 ]; do read -r line; printf '%s\n' "$line" >> {}; n=$((n+1)); done
id=$call; say '{{"success":true,"message":"answered"}}'
ask; say '{{}}'
"#,
        answers.display()
    );
    let target = format!("exec:{}", script(folder.path(), "ext", &text).display());
    let (code, out, errors) = run(&mut rigline(&["call", &target, "go", "--timeout", "20s"]));
    assert_eq!(code, Some(0), "{out}{errors}");
    let answers = fs::read_to_string(answers).unwrap();
    let ids: Vec<String> =
        answers.lines().map(|line| crate::machine::member(line, "/id").as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, (1..=20).map(|n| format!("q{n}")).collect::<Vec<_>>());
    assert!(answers.lines().all(|line| crate::machine::member(line, "/error/code") == -32601), "{answers}");
}

#[test]
fn a_bridge_whose_host_is_gone_ends_what_it_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let target = format!("exec:{}", script(folder.path(), "ext", &format!("{EXTENSION}{HANGS}")).display());
    for command in ["bridge", "monitor"] {
        let _ = fs::remove_file(&pids);
        let mut child = rigline(&[command, &target]).env("PIDS", &pids).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for (id, method) in [(1, "initialize"), (2, "execute")] {
            writeln!(stdin, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{\"protocolVersion\":\"0.0.1\",\"operation\":\"go\",\"context\":{{}}}}}}").unwrap();
        }
        wait_until("the call is out", || pids.exists());
        // Nobody reads any more; the input stays open.
        drop(child.stdout.take());
        drop(child.stderr.take());
        wait_until(&format!("{command} ends"), || child.try_wait().unwrap().is_some());
        let started = fs::read_to_string(&pids).unwrap();
        wait_until(&format!("{command} leaves nobody"), || !started.split_whitespace().any(is_alive));
        drop(stdin);
    }
}

/// A program that reads nothing keeps a long request from being written, and with it the end of its input: what waits for it ends all the
/// same, and so does the program.
#[test]
fn a_program_that_reads_nothing_holds_nobody_up() {
    const MCP: &str = r#"#!/bin/sh
read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"a","version":"1"}}}'
read -r line; read -r line; echo '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"go","inputSchema":{"type":"object"}}]}}'
"#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("args"), format!("{{\"s\":\"{}\"}}", "x".repeat(1 << 20))).unwrap();
    let args = format!("@{}", folder.path().join("args").display());
    let ready = EXTENSION.rsplit_once("ask").unwrap().0;
    for (protocol, beginning) in [("gevals", ready), ("mcp", MCP), ("amplifier", "#!/bin/sh\n")] {
        let pid = folder.path().join(protocol);
        let text = format!("{beginning}echo $$ >{}\nexec sleep 600\n", pid.display());
        let program = script(folder.path(), &format!("{protocol}.sh"), &text);
        let target = format!("exec:{}", program.display());
        let words = ["call", &target, "go", "--protocol", protocol, "--args", &args, "--timeout", "500ms"];
        let mut call = rigline(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        let code = loop {
            match call.try_wait().unwrap() {
                Some(status) => break status.code(),
                None if start.elapsed() > LONG => {
                    let _ = call.kill();
                    let _ = call.wait();
                    panic!("{protocol}: it waits for ever");
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        assert_eq!(code, Some(124), "{protocol}");
        let pid = std::fs::read_to_string(pid).unwrap();
        wait_until("the program has ended", || !Path::new(&format!("/proc/{}", pid.trim())).exists());
    }
}
