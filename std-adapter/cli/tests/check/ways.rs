//! Every outcome of a call, in every way that a target can be asked: `tests/vectors/outcomes.json`.
//!
//! The program is its own extension here, too: `check fake-outcomes` serves one that has an operation for each outcome.
#![cfg_attr(not(unix), allow(unused, reason = "targets with quotes"))]

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rigline::json::{Json, JsonKind, RawJson};
use rigline::{Content, Context, Failure, FailureKind, Outcome, Params};
use rigline_host::choose::{self, Chosen, ProtocolNeed};
use rigline_host::client::{CallOutcome, CallRequest, ClientError, ClientOptions, Part};
use rigline_host::target::Target;
use rigline_host::{Options, protocols};
use rigline_std::stdio::Stdio as Server;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

const RIGLINE: &str = env!("CARGO_BIN_EXE_rigline");

/// The bytes of a text, a blob and an image.
const BYTES: &[u8] = b"foo";

fn vectors(name: &str) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = here.ancestors().map(|folder| folder.join("tests/vectors").join(name)).find(|path| path.is_file());
    fs::read_to_string(found.unwrap()).unwrap()
}

/// An outcome.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    /// The operation that has it; none if it is `give`, with the row's name.
    operation: Option<String>,
    args: Option<Box<RawValue>>,
    /// The kind of failure, if it is one.
    kind: Option<String>,
    own_code: Option<String>,
    outputs: Option<Box<RawValue>>,
    message: Option<String>,
    #[serde(default)]
    content: Vec<String>,
    timeout_ms: Option<u64>,
}

fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    let rows = ROWS.get_or_init(|| serde_json::from_str(&vectors("outcomes.json")).unwrap());
    assert!(rows.len() >= 30, "there are {} rows", rows.len());
    rows
}

/// A piece of content, and its block as MCP has it.
fn content_of(name: &str) -> (&'static str, Content<'static>, &'static str) {
    match name {
        "image" => (
            "image",
            Content::Image { mime_type: "image/png", data: BYTES },
            r#"{"type":"image","mimeType":"image/png","data":"Zm9v"}"#,
        ),
        "audio" => (
            "audio",
            Content::Audio { mime_type: "audio/wav", data: BYTES },
            r#"{"type":"audio","mimeType":"audio/wav","data":"Zm9v"}"#,
        ),
        "text-resource" => (
            "resource",
            Content::TextResource { uri: "test:a", mime_type: "text/plain", text: "t\"x" },
            r#"{"type":"resource","resource":{"uri":"test:a","mimeType":"text/plain","text":"t\"x"}}"#,
        ),
        _ => (
            "resource",
            Content::BlobResource { uri: "test:b", mime_type: "application/pdf", data: BYTES },
            r#"{"type":"resource","resource":{"uri":"test:b","mimeType":"application/pdf","blob":"Zm9v"}}"#,
        ),
    }
}

/// The extension.
struct Outcomes;

#[derive(Params)]
struct Give<'a> {
    /// The name of the outcome.
    name: &'a str,
}

#[derive(Params)]
struct Echo<'a> {
    /// The text.
    text: &'a str,
}

#[derive(Params)]
struct Wait<'a> {
    /// How long, in milliseconds.
    #[param(default = 60_000)]
    ms: u32,
    /// A file that gets the id of this process when the call begins, and [`GIVEN_UP`] when it ends early.
    #[param(default = "")]
    mark: &'a str,
}

const GIVEN_UP: &str = "given up";
const KILLED: &str = "the extension was killed before it had given the call up";

/// Writes a file when a call is given up.
struct Marks(String);

impl Drop for Marks {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            let _ = fs::write(&self.0, GIVEN_UP);
        }
    }
}

#[rigline::extension(name = "outcomes", version = "1.0.0", description = "Has every outcome")]
impl Outcomes {
    /// Has an outcome of the table.
    #[operation]
    fn give(args: Give<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let Some(row) = rows().iter().find(|row| row.name == args.name) else {
            return Err(cx.failure(FailureKind::BadArguments, "there is no such outcome"));
        };
        for (name, value) in row.members() {
            let mut value = value.into_bytes();
            let value = RawJson::from_checked(&mut value).unwrap_or(RawJson::NULL);
            cx.output(&name, &value)?;
        }
        for name in &row.content {
            let (name, content, _) = content_of(name);
            cx.content(name, &content)?;
        }
        if let Some(kind) = &row.kind {
            let kind = FailureKind::ALL.into_iter().find(|known| known.name() == kind).unwrap_or(FailureKind::Internal);
            let failure = cx.failure(kind, row.message.as_deref().unwrap_or_default());
            return Err(if row.own_code.is_some() { failure.with_code("E_OWN") } else { failure });
        }
        match &row.message {
            Some(message) => cx.done(message.as_str()),
            None => Ok(Outcome::DONE),
        }
    }

    /// Has a text as its output.
    #[operation]
    fn echo(args: Echo<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.output("x", &args.text)?;
        Ok(Outcome::DONE)
    }

    /// Has an output that fits no reply.
    #[operation]
    fn large(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.output("text", &"x".repeat(100_000).as_str())?;
        Ok(Outcome::DONE)
    }

    /// Waits.
    #[operation]
    async fn wait(args: Wait<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let mut marks = Marks(args.mark.to_owned());
        if !args.mark.is_empty() {
            let _ = fs::write(args.mark, std::process::id().to_string());
        }
        cx.sleep(Duration::from_millis(args.ms.into())).await;
        marks.0.clear();
        cx.done("waited")
    }

    /// Ends the program.
    #[operation]
    fn exit(_cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        std::process::exit(7)
    }
}

impl Row {
    /// The outputs: names, and JSON texts as they are in the table.
    fn members(&self) -> Vec<(String, String)> {
        let outputs = self.outputs.as_ref().map(|outputs| Json::parse(outputs.get().as_bytes()).unwrap());
        let members = outputs.iter().flat_map(Json::members);
        members.map(|(name, value)| (name.to_string(), compact(value.as_str()))).collect()
    }

    fn operation(&self) -> &str {
        self.operation.as_deref().unwrap_or("give")
    }

    fn args(&self) -> String {
        match self.operation {
            None => serde_json::json!({ "name": self.name }).to_string(),
            Some(_) => self.args.as_ref().map_or("{}", |args| args.get()).to_owned(),
        }
    }

    fn request(&self) -> CallRequest {
        CallRequest {
            operation: self.operation().to_owned(),
            args: self.args(),
            timeout: Some(self.timeout_ms.map_or(Duration::from_secs(20), Duration::from_millis)),
            ..CallRequest::default()
        }
    }

    /// The kind that a caller is told by this protocol: where its code means several and nothing stands beside it, the table says which.
    fn kind_by(&self, protocol: &str) -> Option<String> {
        let kind = self.kind.clone()?;
        let kinds: Vec<Value> = serde_json::from_str(&vectors("failures.json")).unwrap();
        let row = kinds.iter().find(|row| row["kind"] == *kind).unwrap();
        let is_beside = self.own_code.is_some() || row["beside"].as_array().unwrap().contains(&protocol.into());
        let read = row["reads"][protocol].as_str().filter(|_| !is_beside);
        Some(read.map_or(kind, str::to_owned))
    }

    /// The outcome as a caller is to see it that gets types and blocks, or does not.
    fn seen(&self, protocol: &str, has_types: bool, has_blocks: bool) -> Seen {
        let mut outputs = self.members();
        let mut blocks = Vec::new();
        for name in &self.content {
            let (name, _, block) = content_of(name);
            if has_blocks {
                blocks.push(block.to_owned());
                continue;
            }
            let json: Value = serde_json::from_str(block).unwrap();
            let place = if json["resource"].is_object() { &json["resource"] } else { &json };
            let text = match place["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("data:{};base64,Zm9v", place["mimeType"].as_str().unwrap()),
            };
            outputs.push((name.to_owned(), Value::from(text).to_string()));
        }
        if !has_types {
            for (_, value) in &mut outputs {
                if !value.starts_with('"') {
                    *value = Value::from(value.as_str()).to_string();
                }
            }
        }
        // An error of namel3ss has no outputs.
        if self.kind.is_some() && protocol == "namel3ss" {
            outputs.clear();
        }
        // A failure that the row does not make itself has words of its own.
        let message = self.operation.is_none().then(|| self.message.clone()).flatten();
        Seen {
            kind: self.kind_by(protocol).unwrap_or_else(|| "success".to_owned()),
            own_code: self.own_code.clone(),
            message,
            outputs,
            blocks,
        }
    }
}

/// An outcome as a caller sees it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    kind: String,
    own_code: Option<String>,
    message: Option<String>,
    outputs: Vec<(String, String)>,
    blocks: Vec<String>,
}

impl Seen {
    fn of(row: &Row, called: Result<CallOutcome, ClientError>) -> Self {
        let outcome = match called {
            Ok(outcome) => outcome,
            Err(error) => {
                let kind = if error.is_timeout() { FailureKind::Timeout } else { FailureKind::NoAnswer };
                return Self {
                    kind: kind.name().to_owned(),
                    own_code: None,
                    message: None,
                    outputs: Vec::new(),
                    blocks: Vec::new(),
                };
            }
        };
        let is_own = |name: &str| !(outcome.is_message_output && name == "message");
        let members = outcome.members().into_iter().filter(|(name, _)| is_own(name));
        let failure = outcome.failure.as_ref();
        let message = failure.map(|failure| failure.message.clone()).or_else(|| outcome.message.clone());
        Self {
            kind: failure.map_or("success", |failure| failure.kind.name()).to_owned(),
            own_code: failure.and_then(|failure| failure.custom_code.clone()),
            message: message.filter(|_| row.operation.is_none()),
            outputs: members.map(|(name, value)| (name, compact(&plain(&value)))).collect(),
            blocks: outcome.blocks().map(compact).collect(),
        }
    }
}

/// A text's JSON in one spelling of its escapes; any other value as it is.
fn plain(json: &str) -> String {
    match Json::parse(json.as_bytes()).unwrap().text() {
        Some(text) => Value::from(text.to_string()).to_string(),
        None => json.to_owned(),
    }
}

/// JSON without white space between its tokens, with texts in one spelling of their escapes.
fn compact(json: &str) -> String {
    fn write(json: Json<'_>, out: &mut String) {
        match json.kind() {
            JsonKind::Object => {
                out.push('{');
                for (place, (name, value)) in json.members().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    let _ = write!(out, "{}:", Value::from(name.to_string()));
                    write(value, out);
                }
                out.push('}');
            }
            JsonKind::Array => {
                out.push('[');
                for (place, value) in json.elements().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    write(value, out);
                }
                out.push(']');
            }
            _ => out.push_str(&plain(json.as_str())),
        }
    }
    let mut out = String::new();
    write(Json::parse(json.as_bytes()).unwrap(), &mut out);
    out
}

/// A server that ends with the test.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(words: &[&str]) -> Self {
        let mut child = Command::new(RIGLINE).args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(!address.is_empty(), "{words:?}");
        Self { child, address }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(id) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        #[cfg(not(unix))]
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A way to ask the extension.
struct Way {
    name: String,
    target: String,
    protocol: Option<&'static str>,
    /// The server that it is asked through.
    _server: Option<Serving>,
}

/// The target of the extension itself.
fn extension() -> String {
    format!("exec:'{}' fake-outcomes", std::env::current_exe().unwrap().display())
}

/// All ways; servers are started as they are needed.
fn ways() -> Vec<Box<dyn FnOnce() -> Way>> {
    let mut ways: Vec<Box<dyn FnOnce() -> Way>> = Vec::new();
    for protocol in [None, Some("gevals"), Some("mcp"), Some("amplifier"), Some("namel3ss")] {
        ways.push(Box::new(move || Way {
            name: format!("the program itself, by {}", protocol.unwrap_or("what it answers")),
            target: extension(),
            protocol,
            _server: None,
        }));
        if let Some(own) = protocol {
            ways.push(Box::new(move || Way {
                name: format!("bridge --protocol {own}"),
                target: format!("exec:'{RIGLINE}' bridge \"{}\" --protocol {own} --line-limit 8000000", extension()),
                protocol,
                _server: None,
            }));
        }
    }
    ways.push(Box::new(|| Way {
        name: "mcp".to_owned(),
        target: format!("exec:'{RIGLINE}' mcp \"{}\"", extension()),
        protocol: Some("mcp"),
        _server: None,
    }));
    for (wire, served, asked) in [
        ("--tcp", "gevals", &["gevals"][..]),
        ("--tcp", "mcp", &["gevals", "mcp", "amplifier"]),
        ("--tcp", "amplifier", &["amplifier"]),
        ("--http", "mcp", &["mcp"]),
        ("--http", "amplifier", &["amplifier"]),
        ("--http", "namel3ss", &["namel3ss"]),
    ] {
        for asked in asked {
            ways.push(Box::new(move || {
                let server = Serving::start(&["serve", &extension(), wire, "0", "--protocol", served]);
                let name = format!("serve {wire} --protocol {served}, by {asked}");
                Way { name, target: server.address.clone(), protocol: Some(asked), _server: Some(server) }
            }));
        }
    }
    ways.push(Box::new(|| {
        let server = Serving::start(&["web", &extension()]);
        let (web, token) = server.address.strip_prefix("http://").unwrap().split_once("/#token=").unwrap();
        let target = lines_to_websocket(web, token);
        Way { name: "web".to_owned(), target, protocol: Some("gevals"), _server: Some(server) }
    }));
    ways
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

impl Way {
    async fn connect(&self) -> Chosen {
        let target: Target = self.target.parse().unwrap_or_else(|error| panic!("{}: {error}", self.target));
        let protocol = self.protocol.map(|name| protocols::named(name).unwrap());
        let mut options = Options::default();
        options.reconnect = true;
        let chosen = choose::connect(&target, ClientOptions::new(options), protocol, ProtocolNeed::Context).await;
        let mut chosen = chosen.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        if chosen.protocol.has_manifest {
            let described = chosen.client.describe(None, Duration::from_secs(20)).await;
            described.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
        chosen
    }

    /// The outcomes that differ from the table.
    fn differences(&self) -> Vec<String> {
        runtime().block_on(async {
            let mut chosen = self.connect().await;
            let mut wrong = Vec::new();
            for row in rows() {
                let wanted = row.seen(chosen.protocol.name, chosen.carries(Part::Types), chosen.carries(Part::Blocks));
                let mut seen = Seen::of(row, chosen.client.call(&row.request()).await);
                // The client of namel3ss has the error's own members there.
                if row.kind.is_some() && chosen.protocol.name == "namel3ss" {
                    seen.outputs.clear();
                }
                if seen != wanted {
                    wrong.push(format!("{}, {}:\n  wanted {wanted:?}\n  seen   {seen:?}", self.name, row.name));
                }
            }
            let _ = chosen.client.close().await;
            wrong
        })
    }

    /// The faults when a call is cancelled: the extension is to give it up, and to take the next one.
    fn faults_of_cancelling(&self, folder: &Path) -> Vec<String> {
        let mark = folder.join("mark");
        let _ = fs::remove_file(&mark);
        runtime().block_on(async {
            let mut chosen = self.connect().await;
            if !chosen.carries(Part::Cancel) {
                return Vec::new();
            }
            let request = CallRequest {
                operation: "wait".to_owned(),
                args: serde_json::json!({ "ms": 30_000, "mark": mark }).to_string(),
                timeout: Some(Duration::from_secs(40)),
                ..CallRequest::default()
            };
            let mut wrong = Vec::new();
            let begun = tokio::select! {
                answer = chosen.client.call(&request) => Err(format!("{}: the call that was to be cancelled gave {answer:?}", self.name)),
                begun = mark_of_a_process(&mark) => begun.ok_or_else(|| format!("{}: the call did not reach the extension", self.name)),
            };
            let process = begun.map_err(|fault| wrong.push(fault)).ok();
            chosen.client.cancel().await;
            let row = &rows()[0];
            let seen = Seen::of(row, chosen.client.call(&row.request()).await);
            if seen.kind != "success" {
                wrong.push(format!("{}: the call after a cancelled one gave {seen:?}", self.name));
            }
            let has_given_up = || fs::read_to_string(&mark).is_ok_and(|text| text == GIVEN_UP);
            let goes_on = |process| !has_given_up() && is_running(process);
            let since = Instant::now();
            while process.is_some_and(goes_on) && since.elapsed() < Duration::from_secs(10) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if let Some(process) = process
                && !has_given_up()
            {
                let what = if is_running(process) { "the extension goes on with a cancelled call" } else { KILLED };
                wrong.push(format!("{}: {what}", self.name));
            }
            let _ = chosen.client.close().await;
            wrong
        })
    }
}

/// The process whose extension has begun with a call, by the file that it writes.
async fn mark_of_a_process(mark: &Path) -> Option<i32> {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(20) {
        if let Some(process) = fs::read_to_string(mark).ok().and_then(|text| text.parse().ok()) {
            return Some(process);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

#[cfg(unix)]
fn is_running(process: i32) -> bool {
    rustix::process::Pid::from_raw(process).is_some_and(|id| rustix::process::test_kill_process(id).is_ok())
}

#[cfg(not(unix))]
fn is_running(_process: i32) -> bool {
    true
}

/// Walks all ways on a few threads.
fn walk(check: impl Fn(&Way, &Path) -> Vec<String> + Sync) {
    let ways = std::sync::Mutex::new(ways().into_iter().map(|way| way()).collect::<Vec<_>>());
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let folder = TempDir::new().unwrap();
                loop {
                    let Some(way) = ways.lock().unwrap().pop() else { return };
                    wrong.lock().unwrap().extend(check(&way, folder.path()));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

fn every_outcome_is_the_same_in_every_way() {
    walk(|way, _| way.differences());
}

fn a_cancelled_call_ends_at_the_extension_in_every_way() {
    walk(|way, folder| {
        let mut wrong = way.faults_of_cancelling(folder);
        // On a machine with too much to do, a process may not get its half second.
        for _ in 0..2 {
            if wrong.is_empty() || !wrong.iter().all(|fault| fault.ends_with(KILLED)) {
                break;
            }
            wrong = way.faults_of_cancelling(folder);
        }
        wrong
    });
}

fn rigline(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(RIGLINE).args(words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The exit code of each kind of failure, directly and through a server.
fn the_exit_code_follows_from_the_kind() {
    let kinds: Vec<Value> = serde_json::from_str(&vectors("failures.json")).unwrap();
    let tcp = Serving::start(&["serve", &extension(), "--tcp", "0", "--protocol", "mcp"]);
    let http = Serving::start(&["serve", &extension(), "--http", "0", "--protocol", "amplifier"]);
    for (target, protocol) in
        [(&extension(), "gevals"), (&extension(), "namel3ss"), (&tcp.address, "mcp"), (&http.address, "amplifier")]
    {
        for row in rows().iter().filter(|row| row.kind.is_some()) {
            let (args, limit) = (row.args(), row.timeout_ms.map_or("20s".to_owned(), |ms| format!("{ms}ms")));
            let words = [
                "call",
                target,
                row.operation(),
                "--args",
                &args,
                "--timeout",
                &limit,
                "--json",
                "--protocol",
                protocol,
            ];
            let (code, stdout, stderr) = rigline(&words);
            let wanted = kinds.iter().find(|kind| kind["kind"].as_str() == row.kind_by(protocol).as_deref()).unwrap();
            let what = format!("{} by {protocol} at {target}: {stdout}{stderr}", row.name);
            assert_eq!(code.map(i64::from), wanted["exit"].as_i64(), "{what}");
            let report: Value = serde_json::from_str(&stdout).unwrap();
            let own_code = report.get("own_code").or(report.get("code").filter(|_| row.own_code.is_some()));
            assert_eq!(own_code.and_then(Value::as_str), row.own_code.as_deref(), "{what}");
        }
    }
    // What is refused before it is sent has the same code.
    for words in [&["nope"][..], &["give"]] {
        let (code, stdout, stderr) = rigline(&[&["call", &extension()], words, &["--json"]].concat());
        assert_eq!(code, Some(2), "{stdout}{stderr}");
    }
}

/// An eval with a task for each outcome but the last ones, which take time.
fn write_eval(folder: &Path) -> PathBuf {
    let mut text = "name: outcomes\nconfig: { executor: extension, timeout_seconds: 20 }\ntasks:\n".to_owned();
    for (place, row) in rows().iter().enumerate().filter(|(_, row)| row.operation.is_none()) {
        let _ = writeln!(
            text,
            "  - id: t{place}\n    steps:\n      - {{ id: s, operation: give, args: {} }}\n    graders:\n      - {{ type: max_duration, max: 20s }}",
            row.args()
        );
    }
    let path = folder.join("eval.yaml");
    fs::write(&path, text).unwrap();
    path
}

fn an_eval_has_every_outcome_the_same_in_every_way() {
    let folder = TempDir::new().unwrap();
    let eval = write_eval(folder.path());
    let tcp = Serving::start(&["serve", &extension(), "--tcp", "0"]);
    let mcp = Serving::start(&["serve", &extension(), "--http", "0", "--protocol", "mcp"]);
    let amplifier = Serving::start(&["serve", &extension(), "--http", "0", "--protocol", "amplifier"]);
    let mut first: Option<Vec<Value>> = None;
    for target in [&extension(), &tcp.address, &mcp.address, &amplifier.address] {
        let runs = folder.path().join("runs");
        let words =
            ["eval", "run", eval.to_str().unwrap(), "--target", target, "--json", "--runs", runs.to_str().unwrap()];
        let (_, stdout, stderr) = rigline(&words);
        let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
        let tasks = report["runs"][0]["tasks"].as_array().unwrap_or_else(|| panic!("{target}: {stdout}{stderr}"));
        let mut seen = Vec::new();
        for (place, row) in rows().iter().enumerate().filter(|(_, row)| row.operation.is_none()) {
            let task = tasks.iter().find(|task| task["id"] == format!("t{place}"));
            let task = task.unwrap_or_else(|| panic!("{target}: no t{place}: {stdout}{stderr}"));
            let trial = &task["trials"][0];
            let step = &trial["steps"][0];
            // An image is an output of its own where the protocol has no blocks.
            let mut outputs = step["outputs"].clone();
            if !row.content.is_empty() {
                outputs = Value::Null;
            }
            for (name, value) in row.members() {
                let text = Json::parse(value.as_bytes()).unwrap().text().map_or(value.clone(), |text| text.to_string());
                let found = step["outputs"][&name].as_str().unwrap_or_default();
                let found = if Json::parse(value.as_bytes()).unwrap().text().is_some() {
                    found.to_owned()
                } else {
                    compact(found)
                };
                assert_eq!(found, text, "{target}, {}: {step}", row.name);
                if let Some(output) = outputs.get_mut(&name) {
                    *output = text.into();
                }
            }
            let outputs = outputs.as_object().map(|outputs| {
                outputs
                    .iter()
                    .filter(|(name, _)| *name != "message")
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect::<Vec<_>>()
            });
            seen.push(serde_json::json!([row.name, task["verdict"], trial["verdict"], outputs]));
        }
        match &first {
            None => first = Some(seen),
            Some(first) => {
                for (one, other) in first.iter().zip(&seen) {
                    assert_eq!(one, other, "{target}");
                }
            }
        }
    }
}

/// A text as a scalar of YAML.
fn scalar(text: &str) -> String {
    let escaped = |char: char| match char {
        ' '..='~' if !matches!(char, '"' | '\\') => char.to_string(),
        _ => format!("\\u{:04x}", u32::from(char)),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

fn an_eval_judges_numbers_as_the_vectors_say() {
    let cases: Vec<Value> = serde_json::from_str(&vectors("numbers.json")).unwrap();
    let mut text = "name: numbers\nconfig: { executor: extension }\ntasks:\n".to_owned();
    let mut wanted = Vec::new();
    for (place, case) in cases.iter().enumerate() {
        let of = |name: &str| case[name].as_str().unwrap_or_default();
        let limits = match case["number"].as_str() {
            Some(number) => vec![
                (format!("min: {number}, max: {number}"), "pass"),
                (format!("min: {}, max: {}", of("less"), of("more")), "pass"),
                (format!("min: {}", of("more")), "fail"),
                (format!("max: {}", of("less")), "fail"),
            ],
            None => vec![("min: -1e99999999999999999".to_owned(), "fail")],
        };
        for (number, (limits, verdict)) in limits.into_iter().enumerate() {
            let _ = writeln!(
                text,
                "  - id: t{place}-{number}\n    steps:\n      - {{ id: s, operation: echo, args: {{ text: {} }} }}\n    graders:\n      - {{ type: output_range, step: s, output: x, {limits} }}",
                scalar(of("text"))
            );
            wanted.push((format!("t{place}-{number}"), verdict, format!("{case} {limits}")));
        }
    }
    let folder = TempDir::new().unwrap();
    let eval = folder.path().join("eval.yaml");
    fs::write(&eval, text).unwrap();
    let runs = folder.path().join("runs");
    let words =
        ["eval", "run", eval.to_str().unwrap(), "--target", &extension(), "--json", "--runs", runs.to_str().unwrap()];
    let (_, stdout, stderr) = rigline(&words);
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    let tasks = report["runs"][0]["tasks"].as_array().unwrap_or_else(|| panic!("{stdout}{stderr}"));
    let mut wrong = Vec::new();
    for (id, verdict, case) in &wanted {
        let task = tasks.iter().find(|task| task["id"] == **id).unwrap_or_else(|| panic!("no {id}: {stdout}{stderr}"));
        if task["verdict"] != **verdict {
            wrong.push(format!("{case}: {} instead of {verdict}: {task}", task["verdict"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Calls every outcome, and prints what the client makes of it: the row's name, the class of the failure, its own code, outputs and message.
const PYTHON: &str = r"
import json, sys
import rigline

for row in json.load(open(sys.argv[2])):
    if 'content' in row or row.get('operation') == 'exit':
        continue
    with rigline.connect(sys.argv[1]) as rig:
        try:
            name = row.get('operation', 'give')
            result = rig.call(name, {'name': row['name']} if name == 'give' else row.get('args', {}), timeout=row.get('timeout_ms', 20000) / 1000)
            seen = ['', None, dict(result.outputs), result.message]
        except rigline.RiglineError as error:
            outputs = dict(error.result.outputs) if isinstance(error, rigline.OperationFailed) else {}
            seen = [type(error).__name__, error.own_code, outputs, error.message]
    print(json.dumps([row['name'], *seen]), flush=True)
";

/// The same, by the client in JavaScript.
const JAVASCRIPT: &str = r"
import { readFileSync } from 'node:fs';
import { connect } from 'CLIENT';

const [target, table] = process.argv.slice(2);
for (const row of JSON.parse(readFileSync(table, 'utf8'))) {
  if (row.content || row.operation === 'exit') continue;
  const rig = await connect(target);
  const name = row.operation ?? 'give';
  let seen;
  try {
    const result = await rig.call(name, name === 'give' ? { name: row.name } : (row.args ?? {}), { timeout: (row.timeout_ms ?? 20000) / 1000 });
    seen = ['', null, Object.fromEntries(result.outputs), result.message];
  } catch (error) {
    const outputs = Object.fromEntries(error.result?.outputs ?? []);
    seen = [error.kind ?? String(error), error.ownCode ?? null, outputs, error.text ?? ''];
  }
  await rig.close();
  console.log(JSON.stringify([row.name, ...seen]));
}
";

/// The same, by the client in Go.
const GO: &str = r#"package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	rigline "github.com/rigline/rigline/std-adapter/go"
)

type row struct {
	Name      string
	Operation string
	Args      json.RawMessage
	Timeout   int `json:"timeout_ms"`
	Content   []string
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	text, err := os.ReadFile(os.Args[2])
	must(err)
	var rows []row
	must(json.Unmarshal(text, &rows))
	for _, row := range rows {
		if len(row.Content) > 0 || row.Operation == "exit" {
			continue
		}
		rig, err := rigline.Connect(context.Background(), os.Args[1], nil)
		must(err)
		operation, args := row.Operation, any(row.Args)
		if operation == "" {
			operation, args = "give", map[string]any{"name": row.Name}
		} else if len(row.Args) == 0 {
			args = nil
		}
		options := &rigline.CallOptions{Timeout: 20 * time.Second}
		if row.Timeout > 0 {
			options.Timeout = time.Duration(row.Timeout) * time.Millisecond
		}
		result, err := rig.Call(context.Background(), operation, args, options)
		outputs, kind, message := map[string]string{}, "", ""
		var own *string
		var failure *rigline.Error
		if errors.As(err, &failure) {
			kind, message = string(failure.Kind), failure.Message
			if code := failure.OwnCode(); code != "" {
				own = &code
			}
		} else {
			must(err)
			message = result.Message
		}
		if result != nil {
			for _, output := range result.Outputs {
				outputs[output.Name] = output.Text
			}
		}
		must(rig.Close())
		line, err := json.Marshal([]any{row.Name, kind, own, outputs, message})
		must(err)
		fmt.Println(string(line))
	}
}
"#;

fn clients_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Whether a program runs with this argument, and says so by its exit code.
fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn the_python_client_has_every_outcome_in_every_way() {
    if !runs("python3", &["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]) {
        return rigline_test_support::skipped(
            "the outcomes in the Python client",
            "there is no python3 of 3.9 or newer",
            "apt-get install python3",
        );
    }
    let sources = clients_folder().join("python/src");
    client_has_every_outcome("python", || {
        let mut command = Command::new("python3");
        command.args(["-c", PYTHON]).env("PYTHONPATH", &sources);
        command
    });
}

fn the_javascript_client_has_every_outcome_in_every_way() {
    if !runs("node", &["-e", "process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)"]) {
        return rigline_test_support::skipped(
            "the outcomes in the JavaScript client",
            "there is no node of 18 or newer",
            "apt-get install nodejs",
        );
    }
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("outcomes.mjs");
    let client = clients_folder().join("js/src/node.js");
    fs::write(&script, JAVASCRIPT.replace("CLIENT", client.to_str().unwrap())).unwrap();
    client_has_every_outcome("client", || {
        let mut command = Command::new("node");
        command.arg(&script);
        command
    });
}

fn the_go_client_has_every_outcome_in_every_way() {
    if !runs("go", &["version"]) {
        return rigline_test_support::skipped(
            "the outcomes in the Go client",
            "there is no go",
            "apt-get install golang-go",
        );
    }
    let folder = TempDir::new().unwrap();
    let module = "github.com/rigline/rigline/std-adapter/go";
    let client = clients_folder().join("go");
    let text = format!(
        "module outcomes\n\ngo 1.19\n\nrequire {module} v0.0.0\n\nreplace {module} => {}\n",
        client.to_str().unwrap()
    );
    fs::write(folder.path().join("go.mod"), text).unwrap();
    fs::write(folder.path().join("main.go"), GO).unwrap();
    let program = folder.path().join("outcomes");
    let mut build = Command::new("go");
    build.args(["build", "-o", program.to_str().unwrap(), "."]).current_dir(folder.path()).env("GOFLAGS", "-mod=mod");
    let built = build.env("GOPROXY", "off").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    client_has_every_outcome("client", || Command::new(&program));
}

/// Has a client call every outcome, directly, through a server, and through one that asks by another protocol. `column` of the table of failures
/// is what the client calls them.
fn client_has_every_outcome(column: &str, program: impl Fn() -> Command) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table =
        here.ancestors().map(|folder| folder.join("tests/vectors/outcomes.json")).find(|path| path.is_file()).unwrap();
    let kinds: Vec<Value> = serde_json::from_str(&vectors("failures.json")).unwrap();
    let tcp = Serving::start(&["serve", &extension(), "--tcp", "0"]);
    let relayed = Serving::start(&["serve", &extension(), "--tcp", "0", "--protocol", "mcp"]);
    for target in [&extension(), &tcp.address, &relayed.address] {
        let output = program().args([target.as_str(), table.to_str().unwrap()]).env("RIGLINE_BINARY", RIGLINE).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{target}: {}", String::from_utf8_lossy(&output.stderr));
        let seen = String::from_utf8(output.stdout).unwrap();
        for line in seen.lines() {
            let [name, class, own_code, outputs, message] = &serde_json::from_str::<Vec<Value>>(line).unwrap()[..]
            else {
                panic!("{line}")
            };
            let row = rows().iter().find(|row| row.name == *name).unwrap();
            let kind = kinds.iter().find(|kind| kind["kind"].as_str() == row.kind_by("gevals").as_deref());
            assert_eq!(class, kind.map_or("", |kind| kind[column].as_str().unwrap()), "{target}: {line}");
            assert_eq!(own_code.as_str(), row.own_code.as_deref(), "{target}: {line}");
            let wanted = row.seen("gevals", false, false);
            for (name, value) in &wanted.outputs {
                let wanted: String = serde_json::from_str(value).unwrap();
                let found = outputs[name].as_str().unwrap();
                assert!(found == wanted || compact(found) == wanted, "{target}: {line}");
            }
            if row.operation.is_none() && row.kind.is_none() {
                assert_eq!(outputs.as_object().unwrap().len(), wanted.outputs.len(), "{target}: {line}");
                assert_eq!(message.as_str(), Some(row.message.as_deref().unwrap_or_default()), "{target}: {line}");
            }
        }
        assert_eq!(
            seen.lines().count(),
            rows().iter().filter(|row| row.content.is_empty() && row.operation() != "exit").count()
        );
    }
}

/// Leads connections of lines to the WebSocket of `rigline web`, a frame for each line. Returns where it listens.
fn lines_to_websocket(web: &str, token: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (web, token) = (web.to_owned(), token.to_owned());
    thread::spawn(move || {
        for lines in listener.incoming() {
            let Ok(lines) = lines else { return };
            let mut request = format!("ws://{web}/ws?token={token}").into_client_request().unwrap();
            request.headers_mut().insert("Origin", format!("http://{web}").parse().unwrap());
            let Ok(stream) = TcpStream::connect(&web) else { return };
            let control = stream.try_clone().unwrap();
            let Ok((mut socket, _)) = tungstenite::client(request, stream) else { return };
            thread::spawn(move || carry_lines(&mut socket, &control, lines));
        }
    });
    format!("tcp:{address}")
}

/// Carries what either side says to the other, until one ends.
fn carry_lines(socket: &mut WebSocket<TcpStream>, control: &TcpStream, mut lines: TcpStream) {
    let (sender, said) = std::sync::mpsc::channel();
    let reader = BufReader::new(lines.try_clone().unwrap());
    let waking = control.try_clone().unwrap();
    thread::spawn(move || {
        for line in reader.lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                return;
            }
        }
        drop(sender);
        let _ = waking.shutdown(Shutdown::Read);
    });
    let _ = control.set_read_timeout(Some(Duration::from_millis(5)));
    loop {
        loop {
            match said.try_recv() {
                // A blank line is nothing to a page.
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => {
                    if socket.send(Message::text(line)).is_err() {
                        return;
                    }
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    let _ = control.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
        match socket.read() {
            Ok(Message::Text(text)) => {
                if io::Write::write_all(&mut lines, format!("{}\n", text.as_str().trim_end()).as_bytes()).is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(tungstenite::Error::Io(error))
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => {
                let _ = lines.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// Serves the extension on standard input and output.
pub(super) fn serve() -> ExitCode {
    Server::new().reply_limit(65_536).serve(Outcomes)
}

pub(super) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 8] = [
        ("every_outcome_is_the_same_in_every_way", every_outcome_is_the_same_in_every_way),
        ("a_cancelled_call_ends_at_the_extension_in_every_way", a_cancelled_call_ends_at_the_extension_in_every_way),
        ("the_exit_code_follows_from_the_kind", the_exit_code_follows_from_the_kind),
        ("an_eval_has_every_outcome_the_same_in_every_way", an_eval_has_every_outcome_the_same_in_every_way),
        ("an_eval_judges_numbers_as_the_vectors_say", an_eval_judges_numbers_as_the_vectors_say),
        ("the_python_client_has_every_outcome_in_every_way", the_python_client_has_every_outcome_in_every_way),
        ("the_javascript_client_has_every_outcome_in_every_way", the_javascript_client_has_every_outcome_in_every_way),
        ("the_go_client_has_every_outcome_in_every_way", the_go_client_has_every_outcome_in_every_way),
    ];
    let trial = |(name, test): (&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    tests.into_iter().map(trial).collect()
}
