//! The client of an extension. It is the same for all protocols, so that a caller need not know
//! which one is spoken.
//!
//! Each protocol implements [`Client`] in its own folder. Its entry in the registry has the
//! function that makes the client ([`ClientFactory`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rigline::FailureKind;
use rigline::ModuleKind;
use rigline::json::{Json, JsonKind};
use rigline::protocol::{CODE_NAME, KIND_NAME};
use serde_json::Value;

use crate::files;
use crate::host::{CallContext, HostError, Manifest, Operation, Options};
use crate::record::Recorder;
use crate::target::Target;
use rigline_std::mutex::lock;

/// A function that makes a client for a target.
pub type ClientFactory = for<'a> fn(&'a Target, ClientOptions) -> Pending<'a, Result<Box<dyn Client>, ClientError>>;

/// A boxed future that may move to another thread.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection to an extension, by any of the protocols.
pub trait Client: Send {
    /// Asks the extension for its description. The time limit is `limit`. If the protocol describes
    /// one operation at a time, `about` names it.
    fn describe<'a>(
        &'a mut self,
        about: Option<&'a str>,
        limit: Duration,
    ) -> Pending<'a, Result<Description, ClientError>>;

    /// Calls an operation. If the operation fails, the [`CallOutcome`] has the failure; an error
    /// means that there was no usable answer.
    fn call<'a>(&'a mut self, request: &'a CallRequest) -> Pending<'a, Result<CallOutcome, ClientError>>;

    /// Returns the parts that the extension supports beyond its protocol. They are known once it
    /// has been described.
    fn carries_more(&self) -> &'static [Part] {
        &[]
    }

    /// Returns the parts that the protocol has, but that do not pass over the present connection.
    fn carries_less(&self) -> &'static [Part] {
        &[]
    }

    /// Returns the reason why the record of the call, which the caller asked for, is incomplete.
    /// Returns `None` if it is complete.
    fn record_fault(&mut self) -> Option<String> {
        None
    }

    /// Returns whether the open connection is known to have ended. The next call then opens a new
    /// one.
    fn is_lost(&self) -> bool {
        false
    }

    /// Returns whether the extension has reported a change of its operations since the last call of
    /// this function.
    fn has_changed(&mut self) -> bool {
        false
    }

    /// Cancels a call whose future was dropped. The next call connects again.
    fn cancel(&mut self) -> Pending<'_, ()>;

    /// Returns whether a call can be cancelled without ending the session.
    fn cancels_calls(&self) -> bool {
        true
    }

    /// Abandons a call whose future was dropped: it runs on, and its answer is ignored. Returns
    /// `false` if the protocol does not allow that.
    fn leave(&mut self) -> bool {
        false
    }

    /// Cancels a call whose future was dropped, for a caller that ends too. A program gets time to
    /// bring about its safe state.
    fn interrupt(&mut self) -> Pending<'_, ()> {
        self.cancel()
    }

    /// Ends the session and the connection without a farewell, as a loss does. The extension then
    /// brings about its safe state.
    fn abandon(self: Box<Self>) -> Pending<'static, ()> {
        let closing = self.close();
        Box::pin(async move { drop(closing.await) })
    }

    /// Ends the session and the connection. Returns a description of the irregularity if the end
    /// was not regular, and `None` otherwise.
    fn close(self: Box<Self>) -> Pending<'static, Result<Option<String>, ClientError>>;
}

/// The options with which a client is made.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The options of the connection.
    pub host: Options,
    /// The values of the protocol's own options.
    pub own: OptionValues,
}

impl ClientOptions {
    /// Options of the connection, without options of a protocol.
    pub fn new(host: Options) -> Self {
        Self { host, ..Self::default() }
    }
}

/// The parameters of a call.
#[derive(Debug, Clone, Default)]
pub struct CallRequest {
    /// The name of the operation.
    pub operation: String,
    /// The arguments, as the text of a JSON object.
    pub args: String,
    /// The time limit of the call. Zero means no limit, and `None` means the default of the
    /// protocol.
    pub timeout: Option<Duration>,
    /// The id of the session that the call belongs to. Protocols without such sessions ignore it.
    pub session_id: Option<String>,
    /// The context of the call, such as its phase. Protocols without contexts ignore it, and the
    /// time limit in it is not used.
    pub context: Option<Box<CallContext>>,
}

/// A part of a call or a result that only some protocols can transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The configuration of the extension, which it gets at the beginning of a session.
    Config,
    /// The phase of the task, the working folder, and the prompt and answer of the agent.
    Context,
    /// The environment variables of a task.
    Env,
    /// The time limit of a call, enforced by the extension.
    TimeLimit,
    /// The id of the session that a call belongs to.
    Session,
    /// The JSON types of outputs. Without this part each output is a string.
    Types,
    /// Content blocks in results, such as images, sounds and resources.
    Blocks,
    /// The logs that an extension sends during a call.
    Logs,
    /// The kind of a failure.
    FailureKinds,
    /// The failure codes that an operation has defined itself.
    OwnCodes,
    /// The cancellation of a running call.
    Cancel,
}

impl Part {
    /// All parts.
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

    /// Returns the part in words, for messages.
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

/// The answer of an extension to a request for its description.
#[derive(Debug)]
pub enum Description {
    /// A manifest, with its operations.
    Manifest(Box<Described>),
    /// A text and data that are shown as they are, for protocols without a manifest.
    Page(Page),
}

/// A manifest, and the form in which the extension sent it.
#[derive(Debug, Clone)]
pub struct Described {
    /// The description as JSON text, in the form of the protocol. Numbers keep all their digits.
    pub text: String,
    /// The description, converted to a gevals manifest.
    pub manifest: Manifest,
    /// The kind of module. `None` if the protocol has no kinds.
    pub kind: Option<ModuleKind>,
    /// Whether results have the types that `outputs` of the manifest declare. If not, all outputs
    /// are strings.
    pub has_typed_outputs: bool,
}

/// A description, once for people and once for programs.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The description for programs, as JSON text.
    pub json: String,
    /// The description for people, as lines of text.
    pub text: String,
    /// The column heads of a table that follows the text.
    pub heads: &'static [&'static str],
    /// The rows of the table.
    pub rows: Vec<Vec<String>>,
}

/// The outcome of a call. Its form is the same in all protocols.
#[derive(Debug, Clone, Default)]
pub struct CallOutcome {
    /// The message of the operation. `None` if it sent none.
    pub message: Option<String>,
    /// The outputs as JSON text. It is an object, or any value in protocols that allow it. Numbers
    /// keep all their digits. In protocols without types each output is a string.
    pub outputs: String,
    /// Whether [`message`](Self::message) is also a member of the outputs.
    pub is_message_output: bool,
    /// The content blocks of the result, in their order. Each is the text of a JSON object on one
    /// line. Texts among them are also in [`message`](Self::message) or in the message of the
    /// failure. A text block that repeats the outputs is left out. Empty in protocols without
    /// content blocks.
    pub content: Vec<String>,
    /// The failure of the call. `None` if it succeeded.
    pub failure: Option<CallFailure>,
    /// The last lines of standard error, if a process ran only for this call.
    pub stderr: String,
}

impl CallOutcome {
    /// The outcome of a successful call. `result` is the JSON text of any value. If it has a text
    /// member `message`, that is also the message.
    pub fn of_result(result: String, stderr: String) -> Self {
        let json = Json::parse(result.as_bytes()).ok();
        let message = json.and_then(|json| Some(json.get("message")?.text()?.to_string()));
        Self { message, outputs: result, is_message_output: true, stderr, ..Self::default() }
    }

    /// Returns whether the call succeeded.
    pub fn is_success(&self) -> bool {
        self.failure.is_none()
    }

    /// Returns the outputs by name, with the JSON text of each. If a name occurs twice, the last
    /// one counts. A result that is not an object becomes the output `value`.
    pub fn members(&self) -> Vec<(String, String)> {
        let json = Json::parse(self.outputs.as_bytes()).unwrap_or(Json::NULL);
        match json.kind() {
            JsonKind::Object => {
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
            JsonKind::Null => Vec::new(),
            _ => vec![("value".to_owned(), json.as_str().to_owned())],
        }
    }

    /// Returns the content blocks that are not text, such as images, as JSON texts.
    pub fn blocks(&self) -> impl Iterator<Item = &str> {
        let is_text = |block: &str| {
            let kind = Json::parse(block.as_bytes()).ok().and_then(|block| block.get("type")?.text());
            kind.is_some_and(|kind| kind == *"text")
        };
        self.content.iter().map(String::as_str).filter(move |block| !is_text(block))
    }

    /// Returns the content blocks that are not text as one further output: its name, and a JSON list.
    /// The name is `content`, or `content-2` and so on if an output has that name. Returns `None` if
    /// there are no such blocks.
    pub fn blocks_as_output(&self) -> Option<(String, String)> {
        let blocks = self.blocks().collect::<Vec<_>>().join(",");
        if blocks.is_empty() {
            return None;
        }
        let taken: HashSet<String> = self.members().into_iter().map(|(name, _)| name).collect();
        let numbered = (2..).map(|number| format!("content-{number}"));
        let name = std::iter::once("content".to_owned()).chain(numbered).find(|name| !taken.contains(name))?;
        Some((name, format!("[{blocks}]")))
    }

    /// Returns the outputs as JSON text, with [`blocks_as_output`](Self::blocks_as_output). Where
    /// there are blocks, a result that is not an object is the output `value`.
    pub fn outputs_and_blocks(&self) -> String {
        let Some((name, blocks)) = self.blocks_as_output() else { return self.outputs.clone() };
        let json = Json::parse(self.outputs.as_bytes()).unwrap_or(Json::NULL);
        let members = match json.kind() {
            JsonKind::Object => {
                json.as_str().strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default().to_owned()
            }
            JsonKind::Null => String::new(),
            _ => format!("\"value\":{json}"),
        };
        let comma = if members.trim().is_empty() { "" } else { "," };
        format!("{{{members}{comma}{}:{blocks}}}", Value::from(name))
    }
}

/// The failure of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The error code of the protocol: a number or a string. `None` if it sent none.
    pub code: Option<Value>,
    /// The failure code that the operation has defined itself.
    pub custom_code: Option<String>,
    /// The description of the failure, for people.
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

/// The reason why there is no client, or no usable answer to a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection or the session failed.
    Host(HostError),
    /// Another reason, which is particular to a protocol.
    Other {
        /// The kind of reason.
        cause: Cause,
        /// The reason itself.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// The kind of reason in a [`ClientError`]. The command chooses its exit code by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The caller asked for something impossible, such as an option that the protocol lacks.
    Usage,
    /// The target was not reached, or its answer cannot be used.
    NoAnswer,
    /// The target did not answer within the time limit.
    Timeout,
    /// The target refused the request.
    Refused,
    /// A process between the caller and the target failed. The number is its exit code.
    Bridge(u8),
}

impl ClientError {
    /// An error that is particular to a protocol.
    pub fn new(cause: Cause, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other { cause, source: source.into() }
    }

    /// An error of kind [`Cause::Usage`], with this text.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Cause::Usage, text.into())
    }

    /// The error for a transcript that cannot be written.
    pub fn transcripts(error: io::Error) -> Self {
        Self::usage(format!("--transcripts {error}"))
    }

    /// Returns whether the target did not answer within the time limit.
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

/// Adds the identity of an extension to a recording: its name, its version, and the outputs of its
/// operation `identify`. That operation is called only if it needs no arguments, with a time limit
/// of 2 s.
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

/// A file that the record of a call is appended to. If writing fails, [`fault`](Self::fault)
/// reports it, and the call goes on.
#[derive(Debug, Clone)]
pub struct Record {
    option: &'static str,
    file: Arc<File>,
    fault: Arc<Mutex<Option<io::Error>>>,
}

impl Record {
    /// Opens the file that the option `option` names, for appending.
    pub fn append(option: &'static str, path: &str) -> Result<Self, ClientError> {
        let file = files::append_json_lines(path.as_ref()).map_err(|error| ClientError::usage(error.to_string()))?;
        Ok(Self { option, file: Arc::new(file), fault: Arc::default() })
    }

    /// Returns the error of the first failed write, once. Returns `None` if everything was written.
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

/// A command-line option that only one protocol has.
#[derive(Debug)]
pub struct ProtocolOption {
    /// The name of the option, such as `session` for `--session`.
    pub name: &'static str,
    /// The commands that have the option.
    pub commands: &'static [Command],
    /// The placeholder for the value in the help. `None` for a flag.
    pub value: Option<&'static str>,
    /// The description of the option in the help.
    pub help: &'static str,
    /// The way in which the value is given.
    pub form: Form,
    /// The name of another option that this one requires.
    pub requires: Option<&'static str>,
}

impl ProtocolOption {
    /// An option of the command `call`. In the help its value is called `value`.
    pub const fn new(name: &'static str, form: Form, value: &'static str, help: &'static str) -> Self {
        Self { name, commands: &[Command::Call], value: Some(value), help, form, requires: None }
    }

    /// A flag of the command `call`.
    pub const fn flag(name: &'static str, help: &'static str) -> Self {
        Self { value: None, ..Self::new(name, Form::Flag, "", help) }
    }

    /// Moves the option to other commands.
    #[must_use]
    pub const fn of(self, commands: &'static [Command]) -> Self {
        Self { commands, ..self }
    }
}

/// A command that talks to an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// The command `rigline call`.
    Call,
    /// The command `rigline describe`.
    Describe,
    /// The command `rigline check`.
    Check,
}

/// The way in which the value of a [`ProtocolOption`] is given.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Form {
    /// The option is a flag, and has no value.
    Flag,
    /// The option is given at most once.
    Once,
    /// The option may be given several times.
    Repeated,
    /// The option is given at most once. Its value is the text itself, or `@FILE` for the text of a
    /// file.
    TextOrFile,
    /// The value is one of these texts. The first is the default.
    OneOf(&'static [&'static str]),
}

/// The values of a protocol's own options, by the names of the options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionValues(BTreeMap<String, Vec<String>>);

impl OptionValues {
    /// Adds a value to an option. For a flag, `value` is `None`.
    pub fn add(&mut self, name: impl Into<String>, value: Option<String>) {
        self.0.entry(name.into()).or_default().extend(value);
    }

    /// Returns whether the option was given.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the last value of an option.
    pub fn one(&self, name: &str) -> Option<&str> {
        self.all(name).last().map(String::as_str)
    }

    /// Returns all values of an option.
    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the names of the options that were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
