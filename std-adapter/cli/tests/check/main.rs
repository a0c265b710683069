//! `rigline check`: for every case an extension that fails exactly that case, and one that fails none. Every outcome of a call, in every way: `ways.rs`.
//!
//! The program is its own extension, module and tool, since the standard output of a usual test program has lines of its own: see `fake.rs`, `peer.rs`
//! and `ways.rs`.

use rigline_test_support as _;

mod fake;
mod mcp;
mod peer;
mod ways;

use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use rigline_host::Options;
use rigline_host::amplifier::{self, LogReader, check_taxonomy};
use rigline_host::check::Settings;
use rigline_host::check::{Bench, Case, CaseOutcome, Plan, RecordingFixture, Report, Sample, run};
use rigline_host::client::OptionValues;
use rigline_host::gevals;
use rigline_host::namel3ss;
use rigline_host::protocols;
use rigline_host::target::{Exec, Target};
use serde_json::Value;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("fake") => return fake::main(&args.next().unwrap_or_default()),
        Some("fake-amplifier") => return peer::amplifier(&args.next().unwrap_or_default()),
        Some("fake-namel3ss") => return peer::namel3ss(&args.next().unwrap_or_default()),
        Some("fake-outcomes") => return ways::serve(),
        _ => {}
    }
    let mut trials = vec![
        Trial::test("a_good_extension_passes", || expect("", &[])),
        Trial::test("the_built_in_rig_passes", the_built_in_rig_passes),
        Trial::test("the_report_has_one_shape", the_report_has_one_shape),
        Trial::test("operations_run_on_hardware_only_where_named", operations_run_on_hardware_only_where_named),
        Trial::test("a_target_that_cannot_be_reached_has_exit_code_3", a_target_that_cannot_be_reached_has_exit_code_3),
        Trial::test(
            "only_cases_that_a_real_host_needs_decide_the_exit_code",
            only_cases_that_a_real_host_needs_decide_the_exit_code,
        ),
        Trial::test("log_cases_run_the_calls_that_are_named", log_cases_run_the_calls_that_are_named),
        Trial::test("reports_go_to_files", reports_go_to_files),
        Trial::test("both_answers_to_an_unknown_operation", both_answers_to_an_unknown_operation),
        Trial::test("the_entry_of_a_tool_is_named", the_entry_of_a_tool_is_named),
    ];
    trials.extend(gevals::check::CASES.iter().map(|case| Trial::test(case.name, || expect(case.name, &[case.name]))));
    for (protocol, names) in
        [("amplifier", names(amplifier::check::CASES)), ("namel3ss", names(namel3ss::check::CASES))]
    {
        for transport in ["program", "http"] {
            for fault in std::iter::once("").chain(names.clone()) {
                // Only services shake hands.
                if !(transport == "program" && fault.starts_with("handshake")) {
                    let name = format!("{protocol}.{transport}.{}", if fault.is_empty() { "good" } else { fault });
                    trials.push(Trial::test(name, move || expect_of_peer(protocol, transport, fault)));
                }
            }
        }
    }
    for fault in std::iter::once("")
        .chain(names(rigline_host::mcp::check::CASES))
        .filter(|name| name.is_empty() || name.starts_with("http."))
    {
        let name = format!("mcp.{}", if fault.is_empty() { "good" } else { fault });
        trials.push(Trial::test(name, move || expect_of_http(fault)));
    }
    trials.extend(ways::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn names<H>(cases: &[Case<H>]) -> Vec<&'static str> {
    cases.iter().map(|case| case.name).collect()
}

fn expect_of_peer(protocol: &'static str, transport: &str, fault: &str) -> Result<(), Failed> {
    let target = match transport {
        "http" => Target::Http(peer::listen(protocol, fault)),
        _ => {
            let program = std::env::current_exe()?.to_string_lossy().into_owned();
            Target::Exec(Exec { program, args: vec![format!("fake-{protocol}"), fault.into()] })
        }
    };
    let folder = tempfile::tempdir()?;
    let plan = Plan {
        samples: vec![Sample { operation: "look-up".into(), args: "{}".into() }],
        slow: None,
        transcripts: Some(folder.path().join("transcripts")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        if protocol == "amplifier" {
            let mut host = rigline_host::amplifier::Host::new(&target, &Options::default()).unwrap();
            // Two seconds are long on a busy machine, but a module that hangs is not to take more of the test's.
            (host.timeout, host.grace) = (Duration::from_secs(2), Duration::ZERO);
            run(amplifier::check::CASES, RecordingFixture::new(host, "fake", plan), |_| {}).await
        } else {
            let mut host = rigline_host::namel3ss::Host::of_target(&target).unwrap();
            host.project.settings.python_tools.timeout_seconds = Some(2.0);
            run(namel3ss::check::CASES, RecordingFixture::new(host, "fake", plan), |_| {}).await
        }
    })?;
    let named = |outcome| -> Vec<_> {
        report.results.iter().filter(|result| result.outcome == outcome).map(|result| result.name).collect()
    };
    let wanted = if fault.is_empty() { Vec::new() } else { vec![fault] };
    let skipped = if transport == "program" && protocol == "namel3ss" { 2 } else { 0 };
    let texts: Vec<_> = report.results.iter().filter(|result| result.outcome != CaseOutcome::Pass).collect();
    if named(CaseOutcome::Fail) != wanted || named(CaseOutcome::Skip).len() != skipped {
        return Err(format!("{texts:#?}").into());
    }
    // Each case has its transcript, of events that are some.
    for result in &report.results {
        let log = std::fs::read(result.transcript.as_ref().unwrap())?;
        let mut reader = LogReader::new(&log[..], 1 << 20);
        while let Some(entry) = reader.next_entry()? {
            let event = entry.event.map_err(|fault| fault.to_string())?;
            assert_eq!(check_taxonomy(&event, true), Vec::<String>::new());
        }
    }
    let summary = report.to_json();
    assert!(summary["cases"][0]["transcript"].as_str().is_some_and(|path| path.contains("transcripts")), "{summary}");
    Ok(())
}

/// The cases of Streamable HTTP itself, on a server with this fault.
fn expect_of_http(fault: &'static str) -> Result<(), Failed> {
    let settings = Settings {
        target: Target::Http(mcp::listen(fault)),
        options: Options::default(),
        timeout: Duration::from_secs(20),
        plan: Plan::default(),
        own: OptionValues::default(),
        prefixes: vec!["http.".to_owned()],
    };
    let suite = protocols::named("mcp").unwrap().check.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on((suite.run)(settings, &mut |_| {}))?;
    let texts: Vec<_> = report.results.iter().filter(|result| result.outcome != CaseOutcome::Pass).collect();
    let names: Vec<_> = texts.iter().map(|result| result.name).collect();
    let wanted: Vec<_> = Some(fault).filter(|fault| !fault.is_empty()).into_iter().collect();
    if names != wanted || texts.iter().any(|result| result.outcome != CaseOutcome::Fail || result.text.is_empty()) {
        return Err(format!("{texts:#?}").into());
    }
    Ok(())
}

fn expect(fault: &str, failed: &[&str]) -> Result<(), Failed> {
    let report = check(&fake(fault));
    let named = |outcome| -> Vec<_> {
        report.results.iter().filter(|result| result.outcome == outcome).map(|result| result.name).collect()
    };
    let texts: Vec<_> = report.results.iter().filter(|result| result.outcome != CaseOutcome::Pass).collect();
    if named(CaseOutcome::Fail) != failed || !named(CaseOutcome::Skip).is_empty() {
        return Err(format!("{texts:#?}").into());
    }
    Ok(())
}

fn fake(fault: &str) -> Target {
    let program = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    Target::Exec(Exec { program, args: vec!["fake".into(), fault.into()] })
}

fn check(target: &Target) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = Options::default();
        options.shutdown_timeout = Duration::from_secs(3);
        let mut bench = Bench::new(target, &options).unwrap();
        bench.timeout = Duration::from_secs(3);
        run(gevals::check::CASES, bench, |_| {}).await.unwrap()
    })
}

fn rigline(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rigline")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn the_built_in_rig_passes() -> Result<(), Failed> {
    let (code, out, _) = rigline(&["check", "sim"]);
    let all = format!("sim: {} passed, 0 failed, 0 skipped\n", gevals::check::CASES.len());
    if code == Some(0) && out.ends_with(&all) { Ok(()) } else { Err(out.into()) }
}

fn the_report_has_one_shape() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.xml");
    let target = fake("manifest.name").to_string();
    let (code, out, errors) =
        rigline(&["check", &target, "--case", "manifest", "--json", "--strict", "--junit", &file.to_string_lossy()]);
    assert_eq!(code, Some(1), "{errors}");
    let report: Value = serde_json::from_str(&out)?;
    let names: Vec<_> = report.as_object().unwrap().keys().collect();
    assert_eq!(names, ["target", "passed", "failed", "failed_by_standard", "skipped", "cases"]);
    assert_eq!((report["failed"].as_u64(), report["skipped"].as_u64()), (Some(1), Some(0)));
    let case = &report["cases"][0];
    let names: Vec<_> = case.as_object().unwrap().keys().collect();
    assert_eq!(names, ["name", "section", "needed_by", "outcome", "text", "seconds", "exchange"]);
    assert_eq!((case["name"].as_str(), case["outcome"].as_str()), (Some("manifest.name"), Some("fail")));
    assert_eq!(case["section"], "gevals: Manifest Fields");
    assert!(case["exchange"][0]["sent"].as_str().unwrap().contains("initialize"));
    assert!(case["exchange"][1]["got"].as_str().unwrap().contains("result"));
    let xml = std::fs::read_to_string(file)?;
    assert!(xml.contains("failures=\"1\"") && xml.contains("name=\"manifest.name\""), "{xml}");
    let (code, out, _) = rigline(&["check", &target, "--case", "manifest.name", "--strict"]);
    assert_eq!(code, Some(1));
    assert!(out.contains("fail  manifest.name: name must be a non-empty string"), "{out}");
    assert!(out.contains("      → {\"jsonrpc\"") && out.contains("      ← {\"jsonrpc\""), "{out}");
    for wrong in
        [&["check", "sim", "--case", "nothing"][..], &["check", "http://x/"], &["check", "sim", "--call", "{}"]]
    {
        assert_eq!(rigline(wrong).0, Some(2), "{wrong:?}");
    }
    Ok(())
}

/// A board behind a TCP port: what runs there is told by the operations that it saw.
fn operations_run_on_hardware_only_where_named() -> Result<(), Failed> {
    let (port, seen) = fake::listen();
    let (code, out, _) = rigline(&["check", &format!("tcp:127.0.0.1:{port}"), "--call", "look", "{\"at\":\"x\"}"]);
    if code != Some(0) {
        return Err(out.into());
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(seen.contains(&"look".to_owned()), "{seen:?}");
    assert!(seen.iter().all(|name| name == "look" || name.starts_with("rigline-")), "{seen:?}");
    assert!(out.contains("skip  one-shot: only programs have a one-shot mode"), "{out}");
    let (code, out, _) = rigline(&["check", &format!("tcp:127.0.0.1:{port}"), "--case", "execute"]);
    assert_eq!(code, Some(0), "{out}");
    Ok(())
}

/// Exit code 3, and nothing passes that never ran.
/// Reports: gregkh/usbutils#256.
fn a_target_that_cannot_be_reached_has_exit_code_3() -> Result<(), Failed> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (tcp, http) = (format!("tcp:127.0.0.1:{port}"), format!("http://127.0.0.1:{port}/tools"));
    for (target, protocol) in [
        ("/no/such/program", "gevals"),
        ("/no/such/program", "waza"),
        ("/no/such/program", "amplifier"),
        ("/no/such/program", "namel3ss"),
        (&tcp, "gevals"),
        (&tcp, "amplifier"),
        (&http, "amplifier"),
        (&http, "namel3ss"),
    ] {
        let arguments =
            ["check", target, "--protocol", protocol, "--patience", "500ms", "--call", "look", "{}", "--json"];
        let (code, out, errors) = rigline(&arguments);
        assert_eq!(code, Some(3), "{target} {protocol}: {out}{errors}");
        let report: Value = serde_json::from_str(&out)?;
        assert_eq!(report["passed"], 0, "{target} {protocol}: {out}");
        let (code, out, errors) = rigline(&arguments[..arguments.len() - 1]);
        assert!(code == Some(3) && !out.contains("pass  "), "{target} {protocol}: {out}");
        assert!(errors.starts_with("rigline: "), "{errors}");
    }
    // A case that needs a session has one, even if it is the only case.
    let (code, out, _) = rigline(&["check", "exec:false", "--patience", "200ms", "--case", "stdout.clean"]);
    assert!(code == Some(1) && !out.contains("pass  "), "{out}");
    // What starts and does not answer has failed.
    let (code, out, _) = rigline(&["check", "exec:false", "--patience", "200ms", "--case", "handshake"]);
    assert!(code == Some(1) && out.contains("exit status 1"), "{out}");
    Ok(())
}

#[allow(clippy::unnecessary_wraps, reason = "as all trials")]
fn only_cases_that_a_real_host_needs_decide_the_exit_code() -> Result<(), Failed> {
    for (fault, need) in
        [("manifest.operations", "host"), ("log.form", "host"), ("batch", "standard"), ("log.level", "standard")]
    {
        let target = fake(fault).to_string();
        let strict = rigline(&["check", &target, "--strict"]);
        let plain = rigline(&["check", &target]);
        let is_needed = need == "host";
        assert_eq!((plain.0, strict.0), (Some(i32::from(is_needed)), Some(1)), "{fault}: {}", plain.1);
        let (note, end) = match is_needed {
            true => ("[needed by the real host]", " passed, 1 failed, 0 skipped\n"),
            false => (
                "[needed by a standard; not by the real host]",
                " passed, 1 failed (which no real host needs), 0 skipped\n",
            ),
        };
        assert!(plain.1.contains(note) && plain.1.ends_with(end), "{fault}: {}", plain.1);
    }
    Ok(())
}

#[allow(clippy::unnecessary_wraps, reason = "as all trials")]
fn log_cases_run_the_calls_that_are_named() -> Result<(), Failed> {
    let target = fake("log.form").to_string();
    let (code, out, _) = rigline(&["check", "sim", "--case", "execute.result", "--call", "measure"]);
    assert!(code == Some(1) && out.contains("was refused") && out.contains("--call OPERATION '{…}'"), "{out}");
    // The extension is not at fault.
    for call in ["nowhere", "[1]"] {
        let arguments = ["check", "sim", "--case", "execute", "--call", call];
        let (code, out, errors) = rigline(&arguments);
        let why = format!("--call {call}: the extension has no such operation; expected one of: identify, ");
        assert!(code == Some(2) && errors.contains(&why) && !out.contains("fail "), "{call}: {out}{errors}");
        let (code, out, _) = rigline(&[&arguments[..], &["--json"]].concat());
        let json: Value = serde_json::from_str(&out)?;
        assert!(code == Some(2) && json["exit_code"] == 2 && json["error"].to_string().contains(&why), "{out}");
    }
    let (code, out, _) = rigline(&["check", &target, "--case", "log.form", "--call", "identify"]);
    assert!(code == Some(1) && out.contains("data must be an object"), "{out}");
    let (code, out, _) =
        rigline(&["check", &fake("log.level").to_string(), "--case", "log.level", "--call", "identify"]);
    assert!(code == Some(0) && out.contains("fail  log.level: a log's level must be"), "{out}");
    Ok(())
}

fn reports_go_to_files() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (json, junit) = (folder.path().join("report.json"), folder.path().join("report.xml"));
    let target = fake("batch").to_string();
    let (code, out, errors) = rigline(&[
        "check",
        &target,
        "--case",
        "batch",
        "--json-file",
        &json.to_string_lossy(),
        "--junit",
        &junit.to_string_lossy(),
    ]);
    assert!(code == Some(0) && out.contains("fail  batch"), "{out}{errors}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json)?)?;
    assert_eq!((&report["failed"], &report["failed_by_standard"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(report["cases"][0]["needed_by"], "standard");
    // A report is red if and only if the command does not exit with 0.
    let xml = std::fs::read_to_string(&junit)?;
    assert!(xml.contains("failures=\"0\"") && xml.contains("<skipped>failed, and no real host needs it: "), "{xml}");
    let strict = ["check", &target, "--case", "batch", "--strict", "--junit", &junit.to_string_lossy()];
    let (code, _, errors) = rigline(&strict);
    let xml = std::fs::read_to_string(&junit)?;
    assert!(code == Some(1) && xml.contains("type=\"needed by standard\""), "{errors}{xml}");
    let (_, out, _) = rigline(&["check", &target, "--case", "batch", "--json-file", "-"]);
    assert_eq!(serde_json::from_str::<Value>(&out)?["failed"], 1, "{out}");
    // A folder cannot be made in the place of a file.
    let wrong = format!("{target_file}/x", target_file = std::env::current_exe()?.display());
    let (code, _, errors) = rigline(&["check", &target, "--case", "batch", "--junit", &wrong]);
    assert!(code == Some(2) && errors.contains(&wrong), "{errors}");
    Ok(())
}

/// The text's -32601, and the Go kit's `success:false`; a manifest without `requires` is as good as one with it.
fn both_answers_to_an_unknown_operation() -> Result<(), Failed> {
    expect("unknown-as-the-go-kit", &[])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for (fault, is_refused) in [("unknown-as-the-go-kit", false), ("", true)] {
            let host = rigline_host::Host::connect(&fake(fault), Options::default()).await?;
            let result = host.call_json("no-such", "{}", rigline_host::CallContext::default()).await?;
            assert!(!result.is_success(), "{fault}");
            assert_eq!(matches!(result.outcome, rigline_host::CallVerdict::Refused(_)), is_refused, "{fault}");
            host.shutdown().await?;
        }
        Ok(())
    })
}

#[allow(clippy::unnecessary_wraps, reason = "as all trials")]
fn the_entry_of_a_tool_is_named() -> Result<(), Failed> {
    let target = peer::listen("namel3ss", "entry");
    let arguments = ["check", &target, "--protocol", "namel3ss", "--call", "look-up", "--case", "success"];
    assert_eq!(rigline(&arguments).0, Some(1));
    let with = [&arguments[..], &["--entry", "tools.rig:look_up"]].concat();
    let (code, out, errors) = rigline(&with);
    assert_eq!(code, Some(0), "{out}{errors}");
    let (code, _, errors) = rigline(&["check", "sim", "--entry", "a:b"]);
    assert!(code == Some(2) && errors.contains("--entry goes with --protocol namel3ss"), "{errors}");
    Ok(())
}
