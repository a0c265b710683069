//! A connection to an extension by any of the protocols, for callers that need not know by which.
//!
//! Each protocol implements [`Client`] in its own folder, and its entry in the registry says how one is made ([`ClientFactory`]).

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rigline::FailureKind;
use rigline::json::{Json, Kind};
use rigline::manifest::Kind as ModuleKind;
use rigline::protocol::{CODE_NAME, KIND_NAME};
use serde_json::Value;

use crate::files;
use crate::host::{CallContext, HostError, Manifest, Operation, Options};
use crate::record::Recorder;
use crate::target::Target;
use rigline_std::sync::lock;

/// Makes a client for a target.
pub type ClientFactory = for<'a> fn(&'a Target, ClientOptions) -> Pending<'a, Result<Box<dyn Client>, ClientError>>;

/// A future, which may move to another thread.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection to an extension.
pub trait Client: Send {
    /// Asks the extension for its description, within `limit`. `about` names an operation, for protocols that describe one at a time.
    fn describe<'a>(
        &'a mut self,
        about: Option<&'a str>,
        limit: Duration,
    ) -> Pending<'a, Result<Description, ClientError>>;

    /// Runs an operation. The operation's own failure is in the [`CallOutcome`].
    fn call<'a>(&'a mut self, request: &'a CallRequest) -> Pending<'a, Result<CallOutcome, ClientError>>;

    /// Parts that the other end carries in addition to its protocol. They are known once it has been described.
    fn carries_more(&self) -> &'static [Part] {
        &[]
    }

    /// Parts that the protocol carries, and that do not get through over the connection that there is.
    fn carries_less(&self) -> &'static [Part] {
        &[]
    }

    /// Why the record of the call that the caller asked for is not whole, if it is not.
    fn record_fault(&mut self) -> Option<String> {
        None
    }

    /// Whether the connection that was open has ended, as far as is known without asking. Then the next call opens another one.
    fn is_lost(&self) -> bool {
        false
    }

    /// Whether the other end has said that its operations are others since this was last asked.
    fn has_changed(&mut self) -> bool {
        false
    }

    /// Cancels a call that was dropped. The next call connects again.
    fn cancel(&mut self) -> Pending<'_, ()>;

    /// Whether a call can be cancelled without the end of the session.
    fn cancels_calls(&self) -> bool {
        true
    }

    /// Leaves a call that was dropped to itself: its answer is dropped when it comes. Returns whether that can be.
    fn leave(&mut self) -> bool {
        false
    }

    /// Cancels a call that was dropped, for a caller that ends, too. A program gets time for its safe state.
    fn interrupt(&mut self) -> Pending<'_, ()> {
        self.cancel()
    }

    /// Ends the session as a loss does, so that the extension brings about its safe state, and the connection.
    fn abandon(self: Box<Self>) -> Pending<'static, ()> {
        let closing = self.close();
        Box::pin(async move { drop(closing.await) })
    }

    /// Ends the session and the connection. Returns what was wrong about the end, in words.
    fn close(self: Box<Self>) -> Pending<'static, Result<Option<String>, ClientError>>;
}

/// How a client is made.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The connection's options.
    pub host: Options,
    /// Options of the protocol's own.
    pub own: OptionValues,
}

impl ClientOptions {
    /// With these options of the connection.
    pub fn new(host: Options) -> Self {
        Self { host, ..Self::default() }
    }
}

/// A call.
#[derive(Debug, Clone, Default)]
pub struct CallRequest {
    /// The operation.
    pub operation: String,
    /// The JSON text of its arguments, an object.
    pub args: String,
    /// The time limit of the call. Zero means no limit, and `None` the protocol's default.
    pub timeout: Option<Duration>,
    /// The session that the call belongs to, in protocols that have such.
    pub session_id: Option<String>,
    /// The part of a task that the call is, in protocols that have such. Its own time limit does not count.
    pub context: Option<Box<CallContext>>,
}

/// A part of a call or a result that only some protocols carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Settings of the extension's own, with which a session begins.
    Config,
    /// The part of a task that a call is, the task's directory, and the agent's prompt and answer.
    Context,
    /// Environment variables of a task.
    Env,
    /// The time limit of a call, which the extension keeps.
    TimeLimit,
    /// The session that a call belongs to.
    Session,
    /// Outputs of any type. Else each is a string.
    Types,
    /// Images, sounds and resources.
    Blocks,
    /// Logs while a call runs.
    Logs,
    /// The kind of the failure.
    FailureKinds,
    /// Failure codes of an operation's own.
    OwnCodes,
    /// That a call that runs is given up.
    Cancel,
}

impl Part {
    /// All parts of calls and results.
    pub const ALL: [Self; 11] = [
        Self::Config,
        Self::Context,
        Self::Env,
        Self::TimeLimit,
        Self::Session,
        Self::Types,
        Self::Blocks,
        Self::Logs,
        Self::FailureKinds,
        Self::OwnCodes,
        Self::Cancel,
    ];

    /// The words for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "the extension's configuration",
            Self::Context => "the phase, the workdir and the agent's answer",
            Self::Env => "environment variables",
            Self::TimeLimit => "time limits",
            Self::Session => "sessions of calls",
            Self::Types => "the types of outputs",
            Self::Blocks => "images, audio and resources",
            Self::Logs => "logs",
            Self::FailureKinds => "kinds of failures",
            Self::OwnCodes => "codes of an operation's own",
            Self::Cancel => "that a call is given up",
        }
    }
}

/// The description of an extension.
#[derive(Debug)]
pub enum Description {
    /// The manifest of the extension.
    Manifest(Box<Described>),
    /// Something else, to be shown as it is.
    Page(Page),
}

/// A manifest, and the form in which it came.
#[derive(Debug, Clone)]
pub struct Described {
    /// The JSON text that the protocol has for it; numbers have all their digits.
    pub text: String,
    /// The manifest, in the form of a gevals manifest.
    pub manifest: Manifest,
    /// The kind of module, if the protocol has one.
    pub kind: Option<ModuleKind>,
    /// Whether results have the types that the manifest's `outputs` declare, where other protocols have strings.
    pub has_typed_outputs: bool,
}

/// A description for people and for programs.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// For programs: JSON text.
    pub json: String,
    /// For people: lines of text.
    pub text: String,
    /// A table below it: its heads.
    pub heads: &'static [&'static str],
    /// The rows of the page.
    pub rows: Vec<Vec<String>>,
}

/// The outcome of a call: the same in every protocol, as far as the protocol has it.
#[derive(Debug, Clone, Default)]
pub struct CallOutcome {
    /// The summary, if there is one.
    pub message: Option<String>,
    /// The JSON text of the outputs: an object, or, in protocols whose results may be any value, any value. Numbers have the digits
    /// that the extension wrote. In protocols without types each output is a string.
    pub outputs: String,
    /// Whether [`message`](Self::message) is a member of the outputs too.
    pub is_message_output: bool,
    /// The blocks of the result's content, in their order and as they came: JSON texts of objects, each on one line. Protocols without such have
    /// none. Texts among them are also in [`message`](Self::message), or in the failure's message. A text that repeats the outputs is left out.
    pub content: Vec<String>,
    /// Why the call failed, if it did.
    pub failure: Option<CallFailure>,
    /// The end of the standard error of a process that ran only for this call.
    pub stderr: String,
}

impl CallOutcome {
    /// Returns the outcome of a call that has succeeded. `result` is the JSON text of any value. If it has a member `message` that is a text, this is
    /// also the message. `stderr` is as in [`stderr`](Self::stderr).
    pub fn of_result(result: String, stderr: String) -> Self {
        let json = Json::parse(result.as_bytes()).ok();
        let message = json.and_then(|json| Some(json.get("message")?.text()?.to_string()));
        Self { message, outputs: result, is_message_output: true, stderr, ..Self::default() }
    }

    /// Tells whether the call succeeded.
    pub fn is_success(&self) -> bool {
        self.failure.is_none()
    }

    /// The outputs, each with its JSON text. Of several with one name the last one counts. A result that is not an object is the output
    /// `value`.
    pub fn members(&self) -> Vec<(String, String)> {
        let json = Json::parse(self.outputs.as_bytes()).unwrap_or(Json::NULL);
        match json.kind() {
            Kind::Object => {
                let mut members: Vec<(String, String)> = Vec::new();
                let mut places = HashMap::new();
                for (name, value) in json.members() {
                    let (name, value) = (name.to_string(), value.as_str().to_owned());
                    match places.get(&name).and_then(|place: &usize| members.get_mut(*place)) {
                        Some(known) => known.1 = value,
                        None => {
                            places.insert(name.clone(), members.len());
                            members.push((name, value));
                        }
                    }
                }
                members
            }
            Kind::Null => Vec::new(),
            _ => vec![("value".to_owned(), json.as_str().to_owned())],
        }
    }

    /// The content that is not text, such as images: JSON texts.
    pub fn blocks(&self) -> impl Iterator<Item = &str> {
        let is_text = |block: &str| {
            let kind = Json::parse(block.as_bytes()).ok().and_then(|block| block.get("type")?.text());
            kind.is_some_and(|kind| kind == *"text")
        };
        self.content.iter().map(String::as_str).filter(move |block| !is_text(block))
    }

    /// The outputs with the content that is not text as a further one, `content`, for programs that know outputs only.
    pub fn outputs_and_blocks(&self) -> String {
        let known = Json::parse(self.outputs.as_bytes()).unwrap_or(Json::NULL);
        let blocks = self.blocks().collect::<Vec<_>>().join(",");
        match self.outputs.trim_end().strip_suffix('}') {
            Some(members) if !blocks.is_empty() && known.kind() == Kind::Object && known.get("content").is_none() => {
                let comma = if known.members().next().is_some() { "," } else { "" };
                format!("{members}{comma}\"content\":[{blocks}]}}")
            }
            _ => self.outputs.clone(),
        }
    }
}

/// The failure of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// The protocol's own code: a number or a string.
    pub code: Option<Value>,
    /// A code that the operation has chosen itself.
    pub custom_code: Option<String>,
    /// The error.
    pub message: String,
}

/// The members in which a server of rigline's own tells of a failure where its protocol has no word for it.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub(crate) kind: Option<FailureKind>,
    pub(crate) own_code: Option<String>,
}

impl Beside {
    /// Reads the members [`KIND_NAME`] and [`CODE_NAME`] of an object, if there is one.
    pub(crate) fn read(object: Option<Json<'_>>) -> Self {
        let text = |name| Some(object?.get(name)?.text()?.to_string());
        Self { kind: text(KIND_NAME).as_deref().and_then(kind_named), own_code: text(CODE_NAME) }
    }
}

/// The kind of failure of that name.
pub(crate) fn kind_named(name: &str) -> Option<FailureKind> {
    FailureKind::ALL.into_iter().find(|kind| kind.name() == name)
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.code {
            Some(Value::String(code)) => write!(f, "{code}: {}", self.message),
            Some(code) => write!(f, "{} ({code})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Why there is no client or no usable answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The host failed.
    Host(HostError),
    /// Another reason, of a protocol's own.
    Other {
        /// The cause.
        cause: Cause,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// The cause of a [`ClientError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The caller asked for something that cannot be.
    Usage,
    /// The other end was not reached, or its answer cannot be used.
    NoAnswer,
    /// There was no answer in time.
    Timeout,
    /// The other end refused.
    Refused,
    /// A process between this one and the other end failed, with this exit code.
    Bridge(u8),
}

impl ClientError {
    /// An error of a protocol's own.
    pub fn new(cause: Cause, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other { cause, source: source.into() }
    }

    /// The caller asked for something that cannot be.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Cause::Usage, text.into())
    }

    /// Transcripts cannot be written.
    pub fn transcripts(error: io::Error) -> Self {
        Self::usage(format!("--transcripts {error}"))
    }

    /// Whether there was no answer in time.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Host(error) => error.is_timeout(),
            Self::Other { cause, .. } => *cause == Cause::Timeout,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Other { source, .. } => source.fmt(f),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Host(error) => error.source(),
            Self::Other { source, .. } => source.source(),
        }
    }
}

impl From<HostError> for ClientError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

/// Adds the identity of an extension to a recording: its name and version, and the outputs of its operation `identify`, if it has one that
/// needs no arguments. It has 2 s to answer that.
pub async fn identify(recorder: &Recorder, client: &mut dyn Client, manifest: &Manifest) {
    let mut rig = serde_json::json!({ "name": manifest.name, "version": manifest.version });
    if manifest.operation("identify").is_some_and(Operation::needs_no_arguments) {
        let request = CallRequest {
            operation: "identify".to_owned(),
            args: "{}".to_owned(),
            timeout: Some(Duration::from_secs(2)),
            ..CallRequest::default()
        };
        match client.call(&request).await {
            Ok(answer) => {
                rig["identity"] = serde_json::from_str(&answer.outputs).unwrap_or_default();
                if let Some(failure) = &answer.failure {
                    rig["error"] = failure.to_string().into();
                }
            }
            Err(error) => rig["error"] = error.to_string().into(),
        }
    }
    recorder.rig(rig);
}

/// A file to which the record of a call is appended. An error of the file is reported later, and does not replace the
/// result of the call.
#[derive(Debug, Clone)]
pub struct Record {
    option: &'static str,
    file: Arc<File>,
    fault: Arc<Mutex<Option<io::Error>>>,
}

impl Record {
    /// Opens the file that an option names.
    pub fn append(option: &'static str, path: &str) -> Result<Self, ClientError> {
        let file = files::append_json_lines(path.as_ref()).map_err(|error| ClientError::usage(error.to_string()))?;
        Ok(Self { option, file: Arc::new(file), fault: Arc::default() })
    }

    /// Why not everything was written, if it was not.
    pub fn fault(&self) -> Option<String> {
        let fault = lock(&self.fault).take();
        fault.map(|error| format!("--{}: cannot be written: {error}", self.option))
    }
}

impl Write for Record {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = (&*self.file).write_all(bytes) {
            lock(&self.fault).get_or_insert(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An option that only one protocol has. The command offers it under this name.
#[derive(Debug)]
pub struct ProtocolOption {
    /// The name, such as `session` for `--session`.
    pub name: &'static str,
    /// The commands that have it.
    pub commands: &'static [Command],
    /// The placeholder for its value in help; a flag has none.
    pub value: Option<&'static str>,
    /// The description for the help.
    pub help: &'static str,
    /// How the value is given.
    pub form: Form,
    /// Another option that it requires.
    pub requires: Option<&'static str>,
}

impl ProtocolOption {
    /// An option of `call`, whose value help calls `value`.
    pub const fn new(name: &'static str, form: Form, value: &'static str, help: &'static str) -> Self {
        Self { name, commands: &[Command::Call], value: Some(value), help, form, requires: None }
    }

    /// A flag of `call`.
    pub const fn flag(name: &'static str, help: &'static str) -> Self {
        Self { value: None, ..Self::new(name, Form::Flag, "", help) }
    }

    /// The same, of other commands.
    #[must_use]
    pub const fn of(self, commands: &'static [Command]) -> Self {
        Self { commands, ..self }
    }
}

/// A command that talks to an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// `call`
    Call,
    /// `describe`
    Describe,
    /// `check`
    Check,
}

/// How the value of a [`ProtocolOption`] is given.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Form {
    /// There is none.
    Flag,
    /// Once.
    Once,
    /// As often as the caller likes.
    Repeated,
    /// Once, or as `@FILE`.
    TextOrFile,
    /// One of these, the first of which is the default.
    OneOf(&'static [&'static str]),
}

/// The values of a protocol's own options, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionValues(BTreeMap<String, Vec<String>>);

impl OptionValues {
    /// Sets a flag, or adds a value.
    pub fn add(&mut self, name: impl Into<String>, value: Option<String>) {
        self.0.entry(name.into()).or_default().extend(value);
    }

    /// Whether the option is given.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of an option, the last one.
    pub fn one(&self, name: &str) -> Option<&str> {
        self.all(name).last().map(String::as_str)
    }

    /// The values of an option.
    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The names of the options that are given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
