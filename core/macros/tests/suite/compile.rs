//! The compiler's messages about programs that use the macros: those in `tests/fail` do not
//! compile, those in `tests/warn` compile with warnings of ours, those in `tests/pass` compile.
//!
//! Only what is ours is judged, so that every compiler may word its own part as it likes: that a
//! program is refused, the line and the text that an error points at, and our sentence. A comment
//! below the line says them, with one `^` for each line up:
//!
//! ```text
//!     #[param(min = 1)]
//!     //~^ [min] did you mean `minimum`?
//! ```
//!
//! The sentence is a part of the error's text, of a label or of a note; it is left out where the
//! whole text is the compiler's. Each error needs such a comment, and each comment an error.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

#[test]
fn faults_are_told_where_they_are() {
    let programs = programs();
    let mut diagnostics = check(&programs);
    let mut report = String::new();
    for program in &programs {
        let diagnostics = diagnostics.remove(&program.name).unwrap_or_default();
        let mut wrong = program.judge(&diagnostics);
        if wrong.is_empty() {
            continue;
        }
        wrong.push("What the compiler says:".to_owned());
        wrong.extend(diagnostics.iter().map(|diagnostic| diagnostic.rendered.clone()));
        let _ = writeln!(report, "{}:\n{}\n", program.path.display(), wrong.join("\n"));
    }
    assert!(report.is_empty(), "{report}");
}

#[derive(PartialEq)]
enum Verdict {
    Fails,
    Warns,
    Passes,
}

struct Program {
    name: String,
    path: PathBuf,
    text: String,
    verdict: Verdict,
}

/// The expectation in a comment of a program.
struct Expected<'p> {
    line: usize,
    token: &'p str,
    sentence: &'p str,
}

struct Diagnostic {
    kind: DiagnosticKind,
    /// Lines, and the text there.
    places: Vec<(usize, String)>,
    /// Its own text, its labels and its notes.
    texts: Vec<String>,
    rendered: String,
}

#[derive(PartialEq)]
enum DiagnosticKind {
    Error,
    /// A lint of the compiler's, which the flags of whoever runs the test may have made an error; a remark.
    Warning,
    /// The lint by which the macros warn.
    OurWarning,
}

fn programs() -> Vec<Program> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut programs = Vec::new();
    for folder in ["fail", "warn", "pass"] {
        for entry in fs::read_dir(tests.join(folder)).expect("the folder is there") {
            let path = entry.expect("the folder can be read").path();
            let name = format!("{folder}-{}", path.file_stem().expect("a file").display());
            let text = fs::read_to_string(&path).expect("the program can be read");
            let verdict = match folder {
                "fail" => Verdict::Fails,
                "warn" => Verdict::Warns,
                _ => Verdict::Passes,
            };
            programs.push(Program { name, path, text, verdict });
        }
    }
    programs
}

/// The compiler's messages about each program: one run of cargo in a package that has all of them.
fn check(programs: &[Program]) -> BTreeMap<String, Vec<Diagnostic>> {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the core's folder");
    let workspace = core.parent().expect("the core's folder is in the workspace's");
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages");
    // The versions that the workspace has, so that nothing is downloaded: cargo removes from the
    // lock file what is not needed.
    let versions = fs::read_to_string(workspace.join("Cargo.toml")).expect("the workspace has a manifest");
    let heapless = versions.lines().find(|line| line.starts_with("heapless = ")).expect("the workspace has heapless");
    let mut manifest = format!(
        "[workspace]\n[package]\nname = \"messages\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\nrigline = {{ path = {} }}\n{heapless}\n",
        quoted(core)
    );
    for Program { name, path, .. } in programs {
        let _ = write!(manifest, "[[bin]]\nname = {name:?}\npath = {}\n", quoted(path));
    }
    fs::create_dir_all(&package).expect("a folder can be made");
    fs::write(package.join("Cargo.toml"), manifest).expect("a file can be written");
    fs::copy(workspace.join("Cargo.lock"), package.join("Cargo.lock")).expect("the workspace has a lock file");
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["check", "--bins", "--keep-going", "--offline", "--message-format=json"])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", package.join("target"))
        .output()
        .expect("cargo can be run");
    let mut said = BTreeMap::<String, Vec<Diagnostic>>::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).expect("cargo writes a JSON value a line");
        let name = line["target"]["name"].as_str().unwrap_or_default();
        let of_program = programs.iter().find(|program| program.name == name);
        if let (Some("compiler-message"), Some(program)) = (line["reason"].as_str(), of_program) {
            said.entry(name.to_owned()).or_default().push(Diagnostic::of(&line["message"], program));
        }
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!said.is_empty(), "cargo has checked none of the programs:\n{errors}");
    said
}

/// A path as a string of TOML.
fn quoted(path: &Path) -> String {
    Value::from(path.to_str().expect("the path is UTF-8")).to_string()
}

impl Diagnostic {
    fn of(message: &Value, program: &Program) -> Self {
        let code = message["code"]["code"].as_str();
        let spans = || message["spans"].as_array().into_iter().flatten();
        let notes = message["children"].as_array().into_iter().flatten().map(|note| &note["message"]);
        let labels = spans().map(|span| &span["label"]);
        let texts = [&message["message"]].into_iter().chain(labels).chain(notes);
        Self {
            kind: match code {
                Some("deprecated") => DiagnosticKind::OurWarning,
                Some(code) if !code.starts_with('E') => DiagnosticKind::Warning,
                None if message["level"] != "error" => DiagnosticKind::Warning,
                _ => DiagnosticKind::Error,
            },
            places: spans().filter(|span| span["is_primary"] == true).filter_map(|span| place(span, program)).collect(),
            texts: texts.filter_map(Value::as_str).map(str::to_owned).collect(),
            rendered: message["rendered"].as_str().unwrap_or_default().to_owned(),
        }
    }

    fn is(&self, expected: &Expected<'_>) -> bool {
        self.places.iter().any(|(line, token)| *line == expected.line && token == expected.token)
            && self.texts.iter().any(|text| text.contains(expected.sentence))
    }
}

/// The line of the program that a span is in, and the text there. One in a library is taken to
/// where the program calls it.
fn place(span: &Value, program: &Program) -> Option<(usize, String)> {
    let mut span = span;
    while Path::new(span["file_name"].as_str()?).file_name() != program.path.file_name() {
        span = &span["expansion"]["span"];
    }
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let text = &span["text"][0];
    let (start, end) = (number(&text["highlight_start"])?, number(&text["highlight_end"])?);
    let token = text["text"].as_str()?.chars().skip(start - 1).take(end - start).collect();
    Some((number(&span["line_start"])?, token))
}

impl Program {
    fn judge(&self, diagnostics: &[Diagnostic]) -> Vec<String> {
        let expected = self.expected();
        let judged = if self.verdict == Verdict::Fails { DiagnosticKind::Error } else { DiagnosticKind::OurWarning };
        let mut wrong = Vec::new();
        if self.verdict == Verdict::Fails
            && !diagnostics.iter().any(|diagnostic| diagnostic.kind == DiagnosticKind::Error)
        {
            wrong.push("It compiles.".to_owned());
        }
        for Diagnostic { kind, places, texts, .. } in diagnostics {
            // The last of the compiler's errors points nowhere.
            if *kind == DiagnosticKind::Error && self.verdict != Verdict::Fails && !places.is_empty() {
                wrong.push(format!("It does not compile: {}", texts.concat()));
            }
            // A new compiler may have new lints.
            if *kind == DiagnosticKind::Warning
                && self.verdict == Verdict::Passes
                && env::var_os("RIGLINE_DENY_WARNINGS").is_some()
            {
                wrong.push(format!("The compiler warns: {}", texts.concat()));
            }
        }
        for diagnostic in diagnostics.iter().filter(|diagnostic| diagnostic.kind == judged) {
            if let [(line, token), ..] = &diagnostic.places[..]
                && !expected.iter().any(|expected| diagnostic.is(expected))
            {
                wrong.push(format!("Not expected at line {line}: [{token}] {}", diagnostic.texts[0]));
            }
        }
        for expected in expected {
            if !diagnostics.iter().any(|diagnostic| diagnostic.kind == judged && diagnostic.is(&expected)) {
                wrong.push(format!("Expected at line {}: [{}] {}", expected.line, expected.token, expected.sentence));
            }
        }
        wrong
    }

    fn expected(&self) -> Vec<Expected<'_>> {
        let mut expected = Vec::new();
        for (line, text) in self.text.lines().enumerate() {
            let Some(comment) = text.trim_start().strip_prefix("//~") else { continue };
            let rest = comment.trim_start_matches('^');
            let (token, sentence) = rest
                .trim_start()
                .strip_prefix('[')
                .and_then(|rest| rest.split_once("] ").or_else(|| Some((rest.strip_suffix(']')?, ""))))
                .unwrap_or_else(|| panic!("{}:{}: expected `//~^ [text] sentence`", self.path.display(), line + 1));
            let up = comment.len() - rest.len();
            expected.push(Expected { line: line + 1 - up, token, sentence });
        }
        expected
    }
}
