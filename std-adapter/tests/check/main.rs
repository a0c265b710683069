//! `rigline check`: for every case an extension that fails exactly that case, and one that fails none.
//!
//! The program is its own fake extension, module and tool: see `fake.rs` and `peer.rs`.

mod fake;
mod peer;

use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use rigline_std::amplifier::{LogReader, check_taxonomy};
use rigline_std::cases::{self, Case, Plan, Sample, amplifier, namel3ss};
use rigline_std::check::{Bench, Outcome, Report, gevals, run};
use rigline_std::host::Options;
use rigline_std::target::{Exec, Target};
use serde_json::Value;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("fake") => return fake::main(&args.next().unwrap_or_default()),
        Some("fake-amplifier") => return peer::amplifier(&args.next().unwrap_or_default()),
        Some("fake-namel3ss") => return peer::namel3ss(&args.next().unwrap_or_default()),
        _ => {}
    }
    let mut trials = vec![
        Trial::test("a_good_extension_passes", || expect("", &[])),
        Trial::test("the_built_in_rig_passes", the_built_in_rig_passes),
        Trial::test("the_report_has_one_shape", the_report_has_one_shape),
        Trial::test("operations_run_on_hardware_only_where_named", operations_run_on_hardware_only_where_named),
        Trial::test("what_cannot_be_started_fails", what_cannot_be_started_fails),
    ];
    trials.extend(gevals::CASES.iter().map(|case| Trial::test(case.name, || expect(case.name, &[case.name]))));
    for (protocol, names) in [("amplifier", names(amplifier::CASES)), ("namel3ss", names(namel3ss::CASES))] {
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
            let mut host = rigline_std::amplifier::Host::new(&target, &Options::default()).unwrap();
            // Two seconds are long on a busy machine, but a module that hangs is not to take more of the test's.
            (host.timeout, host.grace) = (Duration::from_secs(2), Duration::ZERO);
            let cases: Vec<_> = amplifier::CASES.iter().collect();
            cases::run(&cases, &mut host, "fake", &plan, |_| {}).await
        } else {
            let mut host = rigline_std::namel3ss::Host::of_target(&target).unwrap();
            host.project.settings.python_tools.timeout_seconds = Some(2.0);
            let cases: Vec<_> = namel3ss::CASES.iter().collect();
            cases::run(&cases, &mut host, "fake", &plan, |_| {}).await
        }
    })?;
    let named = |outcome| -> Vec<_> {
        report.results.iter().filter(|result| result.outcome == outcome).map(|result| result.name).collect()
    };
    let wanted = if fault.is_empty() { Vec::new() } else { vec![fault] };
    let skipped = if transport == "program" && protocol == "namel3ss" { 2 } else { 0 };
    let texts: Vec<_> = report.results.iter().filter(|result| result.outcome != Outcome::Pass).collect();
    if named(Outcome::Fail) != wanted || named(Outcome::Skip).len() != skipped {
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

fn expect(fault: &str, failed: &[&str]) -> Result<(), Failed> {
    let report = check(&fake(fault));
    let named = |outcome| -> Vec<_> {
        report.results.iter().filter(|result| result.outcome == outcome).map(|result| result.name).collect()
    };
    let texts: Vec<_> = report.results.iter().filter(|result| result.outcome != Outcome::Pass).collect();
    if named(Outcome::Fail) != failed || !named(Outcome::Skip).is_empty() {
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
        bench.patience = Duration::from_secs(3);
        run(gevals::CASES, bench, |_| {}).await
    })
}

fn rigline(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rigline")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn the_built_in_rig_passes() -> Result<(), Failed> {
    let (code, out, _) = rigline(&["check", "sim"]);
    let all = format!("sim: {} passed, 0 failed, 0 skipped\n", gevals::CASES.len());
    if code == Some(0) && out.ends_with(&all) { Ok(()) } else { Err(out.into()) }
}

fn the_report_has_one_shape() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.xml");
    let target = fake("manifest.name").to_string();
    let (code, out, errors) =
        rigline(&["check", &target, "--case", "manifest", "--json", "--junit", &file.to_string_lossy()]);
    assert_eq!(code, Some(1), "{errors}");
    let report: Value = serde_json::from_str(&out)?;
    let names: Vec<_> = report.as_object().unwrap().keys().collect();
    assert_eq!(names, ["target", "passed", "failed", "skipped", "cases"]);
    assert_eq!((report["failed"].as_u64(), report["skipped"].as_u64()), (Some(1), Some(0)));
    let case = &report["cases"][0];
    let names: Vec<_> = case.as_object().unwrap().keys().collect();
    assert_eq!(names, ["name", "section", "outcome", "text", "seconds", "exchange"]);
    assert_eq!((case["name"].as_str(), case["outcome"].as_str()), (Some("manifest.name"), Some("fail")));
    assert_eq!(case["section"], "gevals: Manifest Fields");
    assert!(case["exchange"][0]["sent"].as_str().unwrap().contains("initialize"));
    assert!(case["exchange"][1]["got"].as_str().unwrap().contains("result"));
    let xml = std::fs::read_to_string(file)?;
    assert!(xml.contains("failures=\"1\"") && xml.contains("name=\"manifest.name\""), "{xml}");
    let (code, out, _) = rigline(&["check", &target, "--case", "manifest.name"]);
    assert_eq!(code, Some(1));
    assert!(out.contains("fail  manifest.name: name must be a string that is not empty"), "{out}");
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

#[allow(clippy::unnecessary_wraps, reason = "as all trials")]
fn what_cannot_be_started_fails() -> Result<(), Failed> {
    for (target, text) in [("/no/such/program", "there is no program"), ("exec:false", "exit status 1")] {
        let (code, out, _) = rigline(&["check", target, "--patience", "200ms", "--case", "handshake"]);
        assert_eq!(code, Some(1), "{out}");
        assert!(out.contains(text), "{out}");
    }
    Ok(())
}
