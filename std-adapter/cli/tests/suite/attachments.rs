//! Files that steps of evals attach: what is copied, what is refused, and where reports link it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

fn folder(eval: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("eval.yaml"), eval).unwrap();
    folder
}

/// Runs the eval in a folder; returns the exit code and the report.
fn run(folder: &Path, more: &[&str]) -> (i32, Value) {
    let output = Command::new(RIGLINE)
        .args(["eval", "run", "--json", "--quiet", "--runs", "runs"])
        .args(more)
        .arg(".")
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), report)
}

fn attached(trial: &Value) -> Vec<Value> {
    trial["steps"][0]["attachments"].as_array().cloned().unwrap_or_default()
}

/// The addresses that a page links.
fn links(page: &str) -> Vec<String> {
    page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

#[test]
fn each_trial_keeps_its_files_and_all_reports_link_them() {
    // The agent writes other files of the same names in each trial.
    let folder = folder(
        r#"
name: photos
config: { executor: command, command: "sh -c 'mkdir -p shots; echo $$ > \"shots/a b.png\"; echo $$ > shots/trace.csv'", target: sim, trials_per_task: 2 }
tasks:
  - id: rail
    steps:
      - { id: read, operation: measure, args: { channel: "3V3" }, attach: ["shots/*.png", shots/trace.csv, "shots/*"] }
"#,
    );
    let reports = folder.path().join("reports");
    fs::create_dir(&reports).unwrap();
    let options =
        ["--html", "reports/r.html", "--junit", "reports/r.xml", "--ctrf", "reports/r.json", "--record", "rec"];
    let (code, report) = run(folder.path(), &options);
    assert_eq!(code, 0, "{report:#}");
    let trials = report["runs"][0]["tasks"][0]["trials"].as_array().unwrap();
    let mut paths: Vec<PathBuf> = Vec::new();
    for trial in trials {
        let attached = attached(trial);
        let names: Vec<&str> = attached.iter().map(|it| it["name"].as_str().unwrap()).collect();
        // Each file once, whichever patterns match it.
        assert_eq!(names, ["shots/a b.png", "shots/trace.csv"], "{trial:#}");
        assert_eq!(
            (&attached[0]["contentType"], &attached[1]["contentType"]),
            (&"image/png".into(), &"text/csv".into())
        );
        for it in &attached {
            let path = PathBuf::from(it["path"].as_str().unwrap());
            let about = fs::metadata(&path).unwrap();
            assert_eq!(it["bytes"], about.len(), "{it}");
            assert_eq!(about.permissions().mode() & 0o777, 0o600, "{it}");
            assert!(it["sha256"].as_str().unwrap().len() == 64 && it["isOlder"] == false, "{it}");
            paths.push(path);
        }
    }
    let contents: Vec<String> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    assert!(paths.len() == 4 && contents[0] == contents[1] && contents[0] != contents[2], "{contents:?}");
    let xml = fs::read_to_string(reports.join("r.xml")).unwrap();
    let ctrf: Value = serde_json::from_str(&fs::read_to_string(reports.join("r.json")).unwrap()).unwrap();
    let in_ctrf = ctrf["results"]["tests"][0]["attachments"].as_array().unwrap();
    assert_eq!(in_ctrf.len(), 4, "{ctrf:#}");
    let page = fs::read_to_string(reports.join("r.html")).unwrap();
    let links = links(&page);
    for (path, in_ctrf) in paths.iter().zip(in_ctrf) {
        let shown = path.to_str().unwrap();
        assert!(xml.contains(&format!("[[ATTACHMENT|{shown}]]")), "{shown}: {xml}");
        assert_eq!(in_ctrf["path"], shown, "{in_ctrf}");
        let same =
            |link: &&String| reports.join(link).canonicalize().is_ok_and(|it| it == path.canonicalize().unwrap());
        assert!(links.iter().any(|link| same(&link) && link.starts_with("../runs/")), "{shown}: {links:?}");
    }
    // The recording is a link from the page, and a path in JSON.
    assert!(links.contains(&"../rec".to_owned()), "{links:?}");
    assert_eq!(Path::new(report["recording"].as_str().unwrap()), folder.path().canonicalize().unwrap().join("rec"));
}

#[test]
fn what_cannot_be_attached_is_told_and_changes_no_verdict() {
    let folder = folder(
        r#"
name: e
config: { executor: mock }
tasks:
  - id: t
    steps:
      - { id: s, operation: o, attach: [gone.png, "none*", out, out-folder/secret, large.bin, fifo, old.txt, sub] }
      - { id: many, operation: o, attach: "many/*" }
"#,
    );
    let at = |name: &str| folder.path().join(name);
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("secret"), "a secret").unwrap();
    std::os::unix::fs::symlink(other.path().join("secret"), at("out")).unwrap();
    std::os::unix::fs::symlink(other.path(), at("out-folder")).unwrap();
    fs::File::create(at("large.bin")).unwrap().set_len((32 << 20) + 1).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let old = fs::File::create(at("old.txt")).unwrap();
    old.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(60)).unwrap();
    fs::create_dir(at("sub")).unwrap();
    fs::create_dir(at("many")).unwrap();
    (0..40).for_each(|number| fs::write(at(&format!("many/{number:02}")), "x").unwrap());
    let (code, report) = run(folder.path(), &["--junit", "r.xml", "--html", "r.html"]);
    assert_eq!(code, 0, "{report:#}");
    let trial = &report["runs"][0]["tasks"][0]["trials"][0];
    let attached = attached(trial);
    for (place, (name, why)) in [
        ("gone.png", "no such file"),
        ("none*", "no such file"),
        ("out", "leads out of the workdir"),
        ("out-folder/secret", "leads out of the workdir"),
        ("large.bin", "at most 33554432"),
        ("fifo", "not a regular file"),
    ]
    .into_iter()
    .enumerate()
    {
        let it = &attached[place];
        assert!(it["name"] == name && it.get("path").is_none(), "{name}: {it}");
        assert!(it["error"].as_str().unwrap().contains(why), "{name}: {it}");
    }
    assert!(attached[6]["name"] == "old.txt" && attached[6]["isOlder"] == true, "{trial:#}");
    assert!(attached[7]["error"].as_str().unwrap().contains("no such file"), "{trial:#}");
    let many = trial["steps"][1]["attachments"].as_array().unwrap();
    assert!(many.len() == 33 && many[32]["error"].as_str().unwrap().contains("at most 32 files"), "{many:?}");
    let (xml, page) = (fs::read_to_string(at("r.xml")).unwrap(), fs::read_to_string(at("r.html")).unwrap());
    assert!(xml.contains("attached gone.png: there is no such file") && xml.contains("older than the trial"), "{xml}");
    assert!(page.contains("there is no such file") && page.contains("older than the trial"), "{page}");
    assert!(!fs::read_dir(at("runs")).unwrap().flatten().any(|entry| {
        let files = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        files.map(|file| fs::read_to_string(file.path()).unwrap_or_default()).any(|text| text.contains("secret"))
    }));
}

#[test]
fn the_files_of_failed_steps_and_of_earlier_attempts_are_kept() {
    let folder = folder(
        r"
name: e
config: { executor: mock, max_attempts: 2 }
tasks:
  - id: t
    steps: [{ id: s, operation: o, attach: log.txt, mock: { v: 5 }, measure: { output: v, high: 4 } }]
",
    );
    fs::write(folder.path().join("log.txt"), "what went wrong").unwrap();
    let (code, report) = run(folder.path(), &["--ctrf", "r.json", "--html", "r.html"]);
    assert_eq!(code, 1, "{report:#}");
    let trial = &report["runs"][0]["tasks"][0]["trials"][0];
    let (first, last) = (&trial["earlier"][0]["attachments"][0]["path"], &attached(trial)[0]["path"]);
    assert_ne!(first, last);
    let ctrf: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("r.json")).unwrap()).unwrap();
    assert_eq!(ctrf["results"]["tests"][0]["attachments"].as_array().unwrap().len(), 2, "{ctrf:#}");
    let links = links(&fs::read_to_string(folder.path().join("r.html")).unwrap());
    for path in [first, last] {
        let path = Path::new(path.as_str().unwrap());
        assert_eq!(fs::read_to_string(path).unwrap(), "what went wrong");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(links.iter().any(|link| link.ends_with(name)), "{links:?}");
    }
}

#[test]
fn only_files_below_the_workdir_can_be_named() {
    let many = (0..33).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    for (attach, why) in [
        ("../secret".to_owned(), "only files below the workdir"),
        ("/etc/passwd".to_owned(), "only files below the workdir"),
        ("sub/../../secret".to_owned(), "only files below the workdir"),
        ("\"\"".to_owned(), "attach: must not be empty"),
        ("{ a: b }".to_owned(), "attach: expected a string"),
        (format!("[{many}]"), "at most 32 files or patterns, found 33"),
    ] {
        let folder = folder(&format!(
            "name: e\nconfig: {{ executor: mock }}\ntasks: [{{ id: t, steps: [{{ id: s, operation: o, attach: {attach} }}] }}]\n"
        ));
        let (code, report) = run(folder.path(), &[]);
        let error = report["errors"][0]["error"].as_str().unwrap_or_default();
        assert!(code == 2 && error.contains(why), "{attach}: {report:#}");
    }
}
