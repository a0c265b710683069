//! The files that the command writes: who can read them, and what is left of them when the command is killed at any moment.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// A command that writes files in a folder, and that ends by itself unless `until` is set: then it has written all that it will when
/// this file is there.
struct Writer {
    folder: TempDir,
    arguments: Vec<String>,
    until: Option<PathBuf>,
}

impl Writer {
    fn new(arguments: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let eval = "name: e\nconfig: { target: sim }\ntasks: [ {id: t, steps: [ {operation: identify} ]} ]\n";
        fs::write(folder.path().join("e.yaml"), eval).unwrap();
        Self { folder, arguments: arguments.split(' ').map(str::to_owned).collect(), until: None }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(RIGLINE);
        command.args(&self.arguments).current_dir(self.folder.path()).env("XDG_STATE_HOME", self.at("state"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end, and returns how long that took.
    fn run(&self) -> Duration {
        let start = Instant::now();
        match &self.until {
            None => {
                let output = self.command().output().unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{:?}: {errors}", self.arguments);
            }
            Some(file) => {
                let mut child = self.command().spawn().unwrap();
                while !file.exists() {
                    assert!(start.elapsed() < Duration::from_secs(30), "{:?} writes no file", self.arguments);
                    std::thread::sleep(Duration::from_millis(5));
                }
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
        start.elapsed()
    }

    /// Kills it many times, each time at another moment, and has `check` look at what is left. Then it must be able to run again.
    fn is_killed(&self, again: bool, check: impl Fn(&Path)) {
        let kills = std::env::var("RIGLINE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(8);
        let longest = u64::try_from(self.run().as_micros()).unwrap();
        check(self.folder.path());
        let random = RandomState::new();
        for number in 0..kills {
            if let Some(file) = &self.until {
                fs::remove_file(file).unwrap();
            }
            let mut child = self.command().spawn().unwrap();
            std::thread::sleep(Duration::from_micros(random.hash_one(number) % longest));
            child.kill().unwrap();
            child.wait().unwrap();
            check(self.folder.path());
            if again || self.until.is_some() {
                self.run();
                check(self.folder.path());
            }
        }
        self.run();
    }
}

#[track_caller]
fn assert_mode(path: &Path, expected: u32) {
    let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, expected, "{}: {mode:o}", path.display());
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}: {text}", path.display()))
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn a_clients_configuration_is_whole_and_as_private_as_it_was() {
    let writer = Writer::new("mcp-config sim --client cursor --write --file mcp.json --name rig");
    let old = r#"{"mcpServers":{"theirs":{"command":"x","env":{"TOKEN":"s3cret"}}}}"#;
    let put = |folder: &Path| {
        fs::write(folder.join("mcp.json"), old).unwrap();
        fs::set_permissions(folder.join("mcp.json"), fs::Permissions::from_mode(0o600)).unwrap();
    };
    put(writer.folder.path());
    writer.is_killed(false, |folder| {
        let file = json(&folder.join("mcp.json"));
        assert_eq!(file["mcpServers"]["theirs"]["env"]["TOKEN"], "s3cret", "{file}");
        for name in names(folder).iter().filter(|name| name.starts_with("mcp.json") || name.starts_with(".rigline-")) {
            assert_mode(&folder.join(name), 0o600);
        }
        for name in names(folder).iter().filter(|name| name.starts_with("mcp.json.bak")) {
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), old, "{name}");
        }
        put(folder);
    });
}

/// A report says from the start that the run has not ended, so that one whose run was killed is no success.
#[test]
fn a_report_is_whole_and_says_when_its_run_has_not_ended() {
    let writer = Writer::new("eval run e.yaml --runs runs --json-file report.json --junit report.xml");
    writer.is_killed(false, |folder| {
        let has_ended = |text: &str| !text.contains("has not ended");
        let report = json(&folder.join("report.json"));
        assert_eq!(report["success"], has_ended(&report.to_string()), "{report}");
        let junit = fs::read_to_string(folder.join("report.xml")).unwrap();
        assert!(junit.trim_end().ends_with("</testsuites>"), "{junit}");
        assert_eq!(junit.contains("errors=\"0\""), has_ended(&junit), "{junit}");
    });
}

#[test]
fn a_stored_run_is_its_users_only_and_the_store_can_be_used_again() {
    let writer = Writer::new("eval run e.yaml --runs runs");
    writer.is_killed(true, |folder| {
        for name in names(&folder.join("runs")) {
            assert_mode(&folder.join("runs").join(&name), 0o600);
            let text = fs::read_to_string(folder.join("runs").join(&name)).unwrap();
            assert!(
                name.starts_with('.') || serde_json::from_str::<Value>(text.lines().next().unwrap()).is_ok(),
                "{text}"
            );
        }
    });
}

#[test]
fn a_recording_is_its_users_only_and_its_folder_can_be_used_again() {
    let writer = Writer::new("call sim identify --env TOKEN=s3cret --record recorded");
    writer.is_killed(true, |folder| {
        for name in names(&folder.join("recorded")) {
            assert_mode(&folder.join("recorded").join(name), 0o600);
        }
    });
    let session = fs::read_to_string(writer.at("recorded/session.jsonl")).unwrap();
    assert!(session.contains("s3cret"), "there is something to protect: {session}");
}

#[test]
fn a_log_of_events_is_its_users_only_and_can_be_continued() {
    let writer = Writer::new("call sim identify --protocol amplifier --events events.jsonl");
    writer.is_killed(true, |folder| {
        assert_mode(&folder.join("events.jsonl"), 0o600);
    });
}

#[test]
fn a_kept_token_is_whole_and_its_users_only() {
    let mut writer = Writer::new("web sim --keep-token --port 0");
    writer.until = Some(writer.at("state/rigline/web-token"));
    writer.is_killed(true, |folder| {
        let state = folder.join("state/rigline");
        for name in names(&state) {
            if state.join(&name).is_file() {
                assert_mode(&state.join(&name), 0o600);
            }
        }
        let token = fs::read_to_string(state.join("web-token")).unwrap_or_default();
        assert!(token.is_empty() || (token.len() == 33 && token.ends_with('\n')), "{token:?}");
    });
}

/// The words of a target may be secrets, and so may the arguments of an agent's calls.
#[test]
fn what_is_remembered_of_a_target_and_of_an_agents_calls_is_its_users_only() {
    let writer = Writer::new("mcp sim --record recorded");
    writer.is_killed(true, |folder| {
        for below in ["state/rigline/boards", "recorded"] {
            let files = fs::read_dir(folder.join(below)).into_iter().flatten().flatten();
            for file in files {
                assert_mode(&file.path(), 0o600);
            }
        }
    });
    let boards = names(&writer.at("state/rigline/boards"));
    let text = fs::read_to_string(writer.at("state/rigline/boards").join(&boards[0])).unwrap();
    assert!(text.contains("\"target\":\"sim\""), "there is something to protect: {text}");
}

#[test]
fn a_key_is_whole_or_not_there_and_its_users_only() {
    let writer = Writer::new("lab key ann.nk");
    writer.is_killed(false, |folder| {
        if let Ok(key) = fs::read_to_string(folder.join("ann.nk")) {
            assert!(key.starts_with("SU") && key.ends_with('\n') && key.len() == 59, "{key:?}");
            fs::remove_file(folder.join("ann.nk")).unwrap();
        }
        for name in names(folder).iter().filter(|name| name.starts_with(".rigline-")) {
            assert_mode(&folder.join(name), 0o600);
        }
    });
}
