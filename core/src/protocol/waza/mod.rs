//! waza: evals for IDEs over JSON-RPC 2.0. There are eight methods and three notifications (`docs`:
//! "JSON-RPC Protocol Specification").
//!
//! | method | [`Request`] | result |
//! |---|---|---|
//! | `eval.run` | [`Run`](Request::Run) | [`Started`] |
//! | `eval.list` | [`List`](Request::List) | [`EvalList`] |
//! | `eval.get` | [`Get`](Request::Get) | [`Eval`] |
//! | `eval.validate` | [`Validate`](Request::Validate) | [`Validation`] |
//! | `task.list` | [`Tasks`](Request::Tasks) | [`TaskList`] |
//! | `task.get` | [`Task`](Request::Task) | [`Task`](struct@Task) |
//! | `run.status` | [`Status`](Request::Status) | [`Status`](struct@Status) |
//! | `run.cancel` | [`Cancel`](Request::Cancel) | [`Started`] |
//!
//! Members are read in every spelling that real clients use (`directory` and `dir`, `runId` and
//! `run_id`, `taskId` and `task_id`). They are written in the spelling of waza's text.

mod board;

pub use board::{BoardEval, BoardTask, Evals, MAX_RUNS};

use core::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::json::ser;
use crate::json::write::{Message, Writer};
use crate::json::{Decimal, RawJson};
use crate::json::{Json, JsonKind, Text};
use crate::level::Level;
use crate::message::Quoted;
use crate::rpc;

/// The error code for an eval file that does not exist or may not be read.
pub const NOT_FOUND: i32 = -32000;
/// The error code for an invalid eval.
pub const VALIDATION_FAILED: i32 = -32001;
/// The error code for a run that cannot be started.
pub const RUN_FAILED: i32 = -32002;

/// A request of a waza client.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Start a run: `eval.run`.
    Run(RunRequest<'a>),
    /// List the evals: `eval.list`.
    List {
        /// The directory to search. If it is none, the service chooses it.
        directory: Option<Text<'a>>,
    },
    /// Read one eval: `eval.get`.
    Get {
        /// The path of the eval's file.
        path: Text<'a>,
    },
    /// Check an eval: `eval.validate`.
    Validate {
        /// The path of the eval's file.
        path: Text<'a>,
    },
    /// List the tasks of an eval: `task.list`.
    Tasks {
        /// The path of the eval's file.
        path: Text<'a>,
    },
    /// Read one task: `task.get`.
    Task {
        /// The path of the eval's file.
        path: Text<'a>,
        /// The id of the task.
        task: Text<'a>,
    },
    /// Ask for the state of a run: `run.status`.
    Status {
        /// The id of the run.
        run: Text<'a>,
    },
    /// Cancel a run: `run.cancel`.
    Cancel {
        /// The id of the run.
        run: Text<'a>,
    },
}

/// The parameters of `eval.run`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RunRequest<'a> {
    /// The path of the eval's file.
    pub path: Text<'a>,
    /// The executor of the tasks. If it is none, the one in the file is used.
    pub executor: Option<Text<'a>>,
    /// The model. If it is none, the one in the file is used.
    pub model: Option<Text<'a>>,
    /// Whether the client wants debug logs.
    pub verbose: bool,
    /// The working directory of the tasks.
    pub context_dir: Option<Text<'a>>,
}

/// The reason why a request is refused before the service gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The method does not exist. This is error -32601.
    UnknownMethod,
    /// A member of `params` is missing or wrong. This is error -32602.
    Params {
        /// The name of the member.
        member: &'static str,
        /// A description of the fault.
        fault: &'static str,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMethod => f.write_str("Method not found"),
            Self::Params { member, fault } => write!(f, "{member}: {fault}"),
        }
    }
}

impl core::error::Error for Refusal {}

/// Whether a method belongs to waza: `eval.*`, `task.*` or `run.*`.
pub fn is_method(method: Text<'_>) -> bool {
    static FAMILIES: [&[u8]; 3] = [b"eval.", b"task.", b"run."];
    FAMILIES.iter().any(|family| {
        let mut chars = method.chars();
        family.iter().all(|byte| chars.next() == Some(char::from(*byte)))
    })
}

/// Reads a request. `params` is null if the message has none.
///
/// # Errors
/// The method does not exist, or a parameter is missing or wrong.
pub fn request<'a>(method: Text<'a>, params: Json<'a>) -> Result<Request<'a>, Refusal> {
    // Of a method that is not known, the parameters do not matter. All that are look at a string
    // first.
    let string = |names: &'static [&'static str]| {
        // An empty array has as many parameters as an empty object.
        let is_empty = params.kind() == JsonKind::Array && params.elements().next().is_none();
        if !is_empty && !matches!(params.kind(), JsonKind::Object | JsonKind::Null) {
            return Err(Refusal::Params { member: "params", fault: "expected an object" });
        }
        let member = names.first().copied().unwrap_or_default();
        match names.iter().find_map(|name| params.get(name)) {
            None => Ok(None),
            Some(value) if value.is_null() => Ok(None),
            Some(value) => value.text().map(Some).ok_or(Refusal::Params { member, fault: "expected a string" }),
        }
    };
    let place = METHODS.iter().position(|(known, _)| method == **known).ok_or(Refusal::UnknownMethod)?;
    let mut required = [Text::of_checked(b""); 2];
    for (text, names) in required.iter_mut().zip(METHODS.get(place).map_or(&[][..], |(_, names)| names)) {
        let member = names.first().copied().unwrap_or_default();
        *text = string(names)?.ok_or(Refusal::Params { member, fault: "required, but missing" })?;
    }
    let [first, second] = required;
    Ok(match place {
        0 => Request::Run(RunRequest {
            path: first,
            executor: string(&["executor"])?,
            model: string(&["model"])?,
            verbose: match params.get("verbose") {
                None => false,
                Some(verbose) if verbose.is_null() => false,
                Some(verbose) => {
                    verbose.bool().ok_or(Refusal::Params { member: "verbose", fault: "expected true or false" })?
                }
            },
            context_dir: string(&["context_dir", "contextDir"])?,
        }),
        1 => Request::List { directory: string(&["directory", "dir"])? },
        2 => Request::Get { path: first },
        3 => Request::Validate { path: first },
        4 => Request::Tasks { path: first },
        5 => Request::Task { path: first, task: second },
        6 => Request::Status { run: first },
        _ => Request::Cancel { run: first },
    })
}

/// The methods, each with its required members in every spelling.
static METHODS: [(&str, &[&[&str]]); 8] = [
    ("eval.run", &[PATH]),
    ("eval.list", &[]),
    ("eval.get", &[PATH]),
    ("eval.validate", &[PATH]),
    ("task.list", &[PATH]),
    ("task.get", &[PATH, &["taskId", "task_id"]]),
    ("run.status", &[RUN]),
    ("run.cancel", &[RUN]),
];
const PATH: &[&str] = &["path"];
const RUN: &[&str] = &["runId", "run_id"];

/// A service that lists, reads, validates and runs evals. Each method answers once through `reply`,
/// or returns an error.
///
/// No method may take long. A run that was started continues elsewhere, and sends notifications.
pub trait EvalService {
    /// Lists the evals.
    fn list<'a>(&'a mut self, directory: Option<Text<'a>>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>>;
    /// Writes one eval.
    fn get<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>>;
    /// Writes the faults of an eval.
    fn validate<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>>;
    /// Writes the list of an eval's tasks.
    fn tasks<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>>;
    /// Writes one task.
    fn task<'a>(&'a mut self, path: Text<'a>, task: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>>;
    /// Starts a run. Its first notification must not be sent before the reply.
    fn run<'a>(&'a mut self, run: &RunRequest<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>>;
    /// Writes the state of a run.
    fn status<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>>;
    /// Cancels a run. A run that has ended keeps its state.
    fn cancel<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>>;
}

/// Lets a service answer a request. Writes the part of the reply after its head: a result or an
/// error.
pub fn answer<'a>(service: &'a mut dyn EvalService, request: &Request<'a>, out: &mut Writer<'_>) {
    let start = out.len();
    let mut reply = Reply { out, answered: false };
    let reply_to = &mut reply;
    let result = match request {
        Request::Run(run) => service.run(run, reply_to),
        Request::List { directory } => service.list(*directory, reply_to),
        Request::Get { path } => service.get(*path, reply_to),
        Request::Validate { path } => service.validate(*path, reply_to),
        Request::Tasks { path } => service.tasks(*path, reply_to),
        Request::Task { path, task } => service.task(*path, *task, reply_to),
        Request::Status { run } => service.status(*run, reply_to),
        Request::Cancel { run } => service.cancel(*run, reply_to),
    };
    let answered = reply.answered;
    match result {
        Ok(()) if answered => {}
        Ok(()) => write_error(out, &Error::Internal("the service gave no answer")),
        Err(error) => {
            out.truncate(start);
            write_error(out, &error);
        }
    }
}

/// Writes the error reply for a refused request, after the head of the reply.
pub fn write_refusal(out: &mut Writer<'_>, refusal: Refusal, method: Text<'_>) {
    match refusal {
        Refusal::UnknownMethod => {
            rpc::begin_error(out, rpc::METHOD_NOT_FOUND);
            out.raw(b"Method not found\",\"data\":{\"method\":\"");
            Quoted(method).write_escaped(out);
            out.raw(b"\"}}}");
            return;
        }
        Refusal::Params { member, fault } => {
            rpc::begin_error(out, rpc::INVALID_PARAMS);
            out.text_part(member);
            out.raw(b": ");
            out.text_part(fault);
        }
    }
    rpc::end_error(out);
}

/// The reply to a request, for the methods of [`EvalService`].
#[derive(Debug)]
pub struct Reply<'w, 'b> {
    out: &'w mut Writer<'b>,
    answered: bool,
}

impl Reply<'_, '_> {
    /// Answers with `result`: a result type of this module, or another type with more members.
    pub fn send<T: Serialize + ?Sized>(&mut self, result: &T) {
        self.send_written(&|out| write_or(out, &|out| ser::put(result, out), b"null"));
    }

    /// Whether what was written has room, with the end of the reply. A notification has no reply,
    /// and nothing to fit.
    fn fits(&self) -> bool {
        self.out.capacity() == 0 || self.out.fits()
    }

    fn send_written(&mut self, write: &dyn Fn(&mut Writer<'_>)) {
        self.out.raw(b",\"result\":");
        write(self.out);
        self.out.byte(b'}');
        self.answered = true;
    }
}

/// Writes a value, or `otherwise` where it has no JSON form.
fn write_or(out: &mut Writer<'_>, value: &dyn Fn(&mut Writer<'_>) -> bool, otherwise: &[u8]) {
    let start = out.len();
    if !value(out) {
        out.truncate(start);
        out.raw(otherwise);
    }
}

/// The reason why a service cannot answer. Each variant has its error code.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Error<'a> {
    /// There is no eval file at that path: -32000.
    NotFound {
        /// The path that was asked for.
        path: Text<'a>,
    },
    /// The path may not be read: -32000. The text is the reason.
    PathNotAllowed(&'a str),
    /// The eval is invalid: -32001.
    Invalid {
        /// All faults of the eval, as a JSON array of strings.
        errors: RawJson<'a>,
    },
    /// A run could not be started: -32002. The text is the reason.
    RunFailed(&'a str),
    /// There is no run with this id: -32602.
    UnknownRun(Text<'a>),
    /// The eval has no task with this id: -32602.
    UnknownTask(Text<'a>),
    /// There is no executor of that name: -32602.
    UnknownExecutor {
        /// The requested name.
        name: Text<'a>,
        /// The known names, as a JSON array of strings.
        known: RawJson<'a>,
    },
    /// The service itself has a fault: -32603. The text describes it.
    Internal(&'a str),
}

impl<'a> Error<'a> {
    /// The code of the error, and its text up to a name.
    fn parts(&self) -> (i32, &'a str, Option<Text<'a>>) {
        match *self {
            Error::NotFound { .. } => (NOT_FOUND, "Eval not found", None),
            Error::PathNotAllowed(text) => (NOT_FOUND, text, None),
            Error::Invalid { .. } => (VALIDATION_FAILED, "Validation failed", None),
            Error::RunFailed(text) => (RUN_FAILED, text, None),
            Error::UnknownRun(run) => (rpc::INVALID_PARAMS, "runId: unknown run ", Some(run)),
            Error::UnknownTask(task) => (rpc::INVALID_PARAMS, "taskId: unknown task ", Some(task)),
            Error::UnknownExecutor { name, .. } => (rpc::INVALID_PARAMS, "executor: unknown executor ", Some(name)),
            Error::Internal(text) => (rpc::INTERNAL_ERROR, text, None),
        }
    }
}

impl fmt::Display for Error<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, text, name) = self.parts();
        f.write_str(text)?;
        name.map_or(Ok(()), |name| name.fmt(f))
    }
}

impl core::error::Error for Error<'_> {}

/// Writes an error after the head of a reply.
pub fn write_error(out: &mut Writer<'_>, error: &Error<'_>) {
    let (code, text, name) = error.parts();
    out.raw(b",\"error\":{\"code\":");
    out.i32(code);
    out.raw(b",\"message\":\"");
    out.text_part(text);
    if let Some(name) = name {
        Quoted(name).write_escaped(out);
    }
    out.byte(b'"');
    match error {
        Error::NotFound { path } => {
            out.raw(b",\"data\":{\"path\":\"");
            path.chars().for_each(|char| char.write_escaped(out));
            out.raw(b"\"}");
        }
        Error::Invalid { errors } => {
            out.raw(b",\"data\":{\"errors\":");
            out.raw(errors.as_str().as_bytes());
            out.byte(b'}');
        }
        Error::UnknownExecutor { known, .. } => {
            out.raw(b",\"data\":{\"known\":");
            out.raw(known.as_str().as_bytes());
            out.byte(b'}');
        }
        _ => {}
    }
    out.raw(b"}}");
}

/// Writes an object member by member, in the order of its keys: a board has flash for less than
/// serde's way.
struct Object<'o, 'b> {
    out: &'o mut Writer<'b>,
    /// The keys that are left, each with a space behind it.
    keys: &'static str,
    /// The byte before the next member.
    before: u8,
}

impl<'o, 'b> Object<'o, 'b> {
    fn new(out: &'o mut Writer<'b>, keys: &'static str) -> Self {
        Self { out, keys, before: b'{' }
    }

    fn next_key(&mut self) -> &'static str {
        let length = self.keys.bytes().position(|byte| byte == b' ').unwrap_or_default();
        let (key, rest) = self.keys.split_at_checked(length).unwrap_or_default();
        self.keys = rest.get(1..).unwrap_or_default();
        key
    }

    /// Begins a member whose value the caller writes.
    #[inline(never)]
    fn value(&mut self) -> &mut Writer<'b> {
        self.out.byte(self.before);
        self.before = b',';
        let key = self.next_key();
        self.out.name(key);
        self.out
    }

    /// A member that may be absent.
    #[inline(never)]
    fn text(&mut self, text: Option<&str>) {
        if let Some(text) = text {
            self.value().str(text);
        } else {
            self.next_key();
        }
    }

    /// A member that may be absent.
    #[inline(never)]
    fn number(&mut self, number: Option<u32>) {
        if let Some(number) = number {
            self.value().u32(number);
        } else {
            self.next_key();
        }
    }

    /// Ends the object; members that are left are absent.
    fn end(self) {
        self.out.byte(b'}');
    }
}

/// Declares a result or the parameters of a notification, and how it is written: absent members are
/// left out, but for those that are marked `nullable`.
macro_rules! object {
    ($(#[$docs:meta])* $name:ident { $($(#[$member_docs:meta])* $member:ident as $key:literal: $type:ty,)* }
        $(nullable { $($(#[$null_docs:meta])* $null:ident as $null_key:literal: $null_type:ty,)* })?) => {
        $(#[$docs])*
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $name<'a> {
            $($(#[$member_docs])* pub $member: Option<$type>,)*
            $($($(#[$null_docs])* pub $null: Option<$null_type>,)*)?
            /// Holds the lifetime, and no data.
            #[doc(hidden)]
            pub _lifetime: core::marker::PhantomData<&'a ()>,
        }

        #[allow(dead_code, reason = "a board does not write all of them")]
        impl $name<'_> {
            /// The keys for [`Object`], in the order of [`Serialize`].
            const KEYS: &'static str = concat!($($key, " ",)* $($($null_key, " ",)*)?);
        }

        impl Serialize for $name<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let count = 0 $(+ usize::from(self.$member.is_some()))* $($(+ { let _ = &self.$null; 1 })*)?;
                let mut object = serializer.serialize_struct(stringify!($name), count)?;
                $(if let Some(value) = &self.$member {
                    object.serialize_field($key, value)?;
                })*
                $($(object.serialize_field($null_key, &self.$null)?;)*)?
                object.end()
            }
        }
    };
}

object! {
    /// The answer to `eval.run` and `run.cancel`.
    Started {
        /// The id of the run.
        run_id as "runId": &'a str,
        /// The state of the run.
        status as "status": RunState,
    }
}

object! {
    /// An eval in a list.
    EvalSummary {
        /// The path of the eval's file.
        path as "path": &'a str,
        /// The name of the eval.
        name as "name": &'a str,
        /// The skill that the eval tests.
        skill as "skill": &'a str,
        /// The version of the eval.
        version as "version": &'a str,
    }
}

object! {
    /// The answer to `eval.list`.
    EvalList {
        /// The evals that were found.
        evals as "evals": &'a [EvalSummary<'a>],
        /// Error messages for the files that could not be read.
        errors as "errors": &'a [&'a str],
    }
}

object! {
    /// The answer to `eval.get`.
    Eval {
        /// The path of the eval's file.
        path as "path": &'a str,
        /// The name of the eval.
        name as "name": &'a str,
        /// The purpose of the eval.
        description as "description": &'a str,
        /// The skill that the eval tests.
        skill as "skill": &'a str,
        /// The version of the eval.
        version as "version": &'a str,
        /// The configuration of the eval.
        config as "config": RawJson<'a>,
        /// The metrics of the eval.
        metrics as "metrics": RawJson<'a>,
    }
}

object! {
    /// The answer to `eval.validate`.
    Validation {
        /// Whether the eval can be run.
        valid as "valid": bool,
        /// The name of the eval, if it is valid.
        name as "name": &'a str,
        /// The skill that the eval tests, if the eval is valid.
        skill as "skill": &'a str,
        /// All faults of the eval.
        errors as "errors": &'a [&'a str],
    }
}

object! {
    /// A task in a list.
    TaskSummary {
        /// The id of the task.
        id as "id": &'a str,
        /// The name of the task.
        name as "name": &'a str,
        /// A description of what the task tests.
        description as "description": &'a str,
        /// The path of the task's file.
        file as "file": &'a str,
    }
}

object! {
    /// The answer to `task.list`.
    TaskList {
        /// The tasks of the eval.
        tasks as "tasks": &'a [TaskSummary<'a>],
    }
}

object! {
    /// The answer to `task.get`.
    Task {
        /// The id of the task.
        id as "id": &'a str,
        /// The name of the task.
        name as "name": &'a str,
        /// A description of what the task tests.
        description as "description": &'a str,
        /// The prompt for an agent.
        prompt as "prompt": &'a str,
        /// The graders that judge the task, as JSON.
        graders as "graders": RawJson<'a>,
    }
}

object! {
    /// The answer to `run.status`.
    Status {
        /// The id of the run.
        run_id as "runId": &'a str,
        /// The state of the run.
        status as "status": RunState,
    }
    nullable {
        /// The summary of the run. It is null until the run has ended.
        result as "result": Summary,
        /// The reason why the run failed; null if it did not.
        error as "error": &'a str,
    }
}

object! {
    /// The notification `eval.progress`.
    Progress {
        /// The id of the run.
        run_id as "runId": &'a str,
        /// The kind of event.
        event as "event": Event,
        /// The id of the task, which waza sends as its name.
        task_name as "taskName": &'a str,
        /// The position of the task, from 1.
        task_num as "taskNum": u32,
        /// The number of tasks of the run.
        total_tasks as "totalTasks": u32,
        /// The position of the trial, from 1.
        trial_num as "trialNum": u32,
        /// The number of trials of the task.
        total_trials as "totalTrials": u32,
        /// The result of the task or trial.
        status as "status": Verdict,
        /// The duration of the task or trial, in milliseconds.
        duration_ms as "durationMs": u32,
    }
}

object! {
    /// The notification `eval.log`.
    Log {
        /// The id of the run.
        run_id as "runId": &'a str,
        /// The level of the log: `debug`, `info`, `warn` or `error`.
        level as "level": &'a str,
        /// The text of the log.
        message as "message": &'a str,
    }
}

object! {
    /// The notification `eval.complete`.
    Complete {
        /// The id of the run.
        run_id as "runId": &'a str,
        /// The summary of the run.
        summary as "summary": Summary,
        /// The reason why the run failed, if it did.
        error as "error": &'a str,
    }
}

/// The numbers of tasks of a run by their results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of all tasks.
    pub total: u32,
    /// The number of tasks that passed.
    pub passed: u32,
    /// The number of tasks that did not pass.
    pub failed: u32,
}

impl Summary {
    /// The share of passed tasks, from 0 to 1 with three decimals. It is 0 if there are no tasks.
    pub fn pass_rate(&self) -> Decimal<3> {
        Decimal::from_mantissa(self.rate_digits().iter().fold(0, |sum, digit| sum * 10 + i32::from(*digit)))
    }

    /// The digits of the pass rate, the first before the point.
    fn rate_digits(&self) -> [u8; 4] {
        // Long division by subtraction, without a division by a variable.
        let (mut rest, mut digits) = (u64::from(self.passed), [0; 4]);
        for digit in &mut digits {
            while self.total > 0 && rest >= u64::from(self.total) {
                rest -= u64::from(self.total);
                *digit += 1;
            }
            rest *= 10;
        }
        digits
    }

    /// As [`Serialize`], without serde.
    fn write(&self, out: &mut Writer<'_>) {
        let mut object = Object::new(out, Self::KEYS);
        for number in [self.total, self.passed, self.failed] {
            object.number(Some(number));
        }
        let rate = object.value();
        for (place, digit) in self.rate_digits().into_iter().enumerate() {
            if place == 1 {
                rate.byte(b'.');
            }
            rate.byte(b'0' | digit);
        }
        object.end();
    }

    const KEYS: &'static str = "total passed failed passRate ";
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Summary", 4)?;
        object.serialize_field("total", &self.total)?;
        object.serialize_field("passed", &self.passed)?;
        object.serialize_field("failed", &self.failed)?;
        object.serialize_field("passRate", &self.pass_rate())?;
        object.end()
    }
}

/// Declares a set of words and how they are written.
macro_rules! words {
    ($(#[$docs:meta])* $name:ident { $($(#[$word_docs:meta])* $word:ident = $text:literal,)* }) => {
        $(#[$docs])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        pub enum $name {
            $($(#[$word_docs])* $word,)*
        }

        impl $name {
            /// The word for this value in the protocol.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$word => $text,)* }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

words! {
    /// The state of a run.
    RunState {
        /// The run is running, or waits for its turn.
        Running = "running",
        /// The run has ended. Its tasks may have passed or not.
        Completed = "completed",
        /// The run could not continue.
        Failed = "failed",
        /// Somebody cancelled the run.
        Cancelled = "cancelled",
    }
}

words! {
    /// An event of a run.
    Event {
        /// The run started.
        RunStart = "run_start",
        /// A task started.
        TaskStart = "task_start",
        /// A trial started.
        TrialStart = "trial_start",
        /// A trial has ended.
        TrialComplete = "trial_complete",
        /// A task has ended, with all its trials.
        TaskComplete = "task_complete",
        /// The run has ended.
        RunComplete = "run_complete",
    }
}

words! {
    /// The result of a task or trial.
    Verdict {
        /// All graders of the trial passed.
        Passed = "passed",
        /// A grader did not pass.
        Failed = "failed",
        /// The task could not be carried out.
        Error = "error",
        /// Somebody cancelled the run.
        Cancelled = "cancelled",
        /// Nothing could judge the trial, because the runner does not have graders of its kinds.
        Skipped = "skipped",
    }
}

/// Writes the notification `eval.log` of a run's number, without the newline.
pub(crate) fn write_log(out: &mut Writer<'_>, run: u32, level: Level, message: &dyn Message) {
    out.raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"eval.log\",\"params\":{\"runId\":\"");
    out.u32(run);
    out.raw(b"\",\"level\":\"");
    out.raw(level.name().as_bytes());
    out.raw(b"\",\"message\":\"");
    message.write_escaped(out);
    out.raw(b"\"}}");
}

/// Writes a notification (`eval.progress`, `eval.log` or `eval.complete`) as a whole line, without
/// its newline.
pub fn write_notification<T: Serialize + ?Sized>(out: &mut Writer<'_>, method: &str, params: &T) {
    begin_notification(out, method);
    write_or(out, &|out| ser::put(params, out), b"{}");
    out.byte(b'}');
}

fn begin_notification(out: &mut Writer<'_>, method: &str) {
    out.raw(b"{\"jsonrpc\":\"2.0\",\"method\":");
    out.str(method);
    out.raw(b",\"params\":");
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use super::*;

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> String {
        let mut memory = [0; 512];
        let mut out = Writer::new(&mut memory);
        write(&mut out);
        String::from_utf8(out.finish().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn every_spelling_is_read() {
        let read = |method: &'static str, params: &'static str| {
            std::format!("{:?}", request(Text::of_checked(method.as_bytes()), Json::parse(params.as_bytes()).unwrap()))
        };
        for none in ["null", "{}", "[]", "[ ]"] {
            assert_eq!(read("eval.list", none), "Ok(List { directory: None })");
        }
        for params in [r#"["d"]"#, "[[]]", "3", r#""d""#] {
            assert!(read("eval.list", params).contains("expected an object"), "{params}");
        }
        assert_eq!(read("eval.list", r#"{"dir":"d"}"#), r#"Ok(List { directory: Some("d") })"#);
        assert_eq!(read("run.status", r#"{"run_id":"r"}"#), r#"Ok(Status { run: "r" })"#);
        assert_eq!(read("task.get", r#"{"path":"p","task_id":"t"}"#), r#"Ok(Task { path: "p", task: "t" })"#);
        assert!(read("eval.run", r#"{"path":"p","verbose":1}"#).contains("expected true or false"));
        assert!(read("eval.get", "{}").contains("required, but missing"));
        assert!(read("eval.get", "[]").contains("required, but missing"));
        assert_eq!(read("eval.list", r#"{"\ud800":1,"dir":"d"}"#), r#"Ok(List { directory: Some("d") })"#);
        for params in ["{}", "null", "[]"] {
            assert!(read("eval.nope", params).contains("UnknownMethod"));
        }
        assert!(read("eval.run", "null").contains("required, but missing"));
    }

    #[test]
    fn a_member_that_is_null_counts_as_absent() {
        let read = |method: &'static str, params: &'static str| {
            request(Text::of_checked(method.as_bytes()), Json::parse(params.as_bytes()).unwrap())
        };
        for method in ["eval.run", "eval.get", "eval.validate", "task.list", "task.get"] {
            let refusal = Refusal::Params { member: "path", fault: "required, but missing" };
            assert_eq!(read(method, r#"{"path":null}"#).unwrap_err(), refusal, "{method}");
        }
        assert!(matches!(read("eval.list", r#"{"directory":null}"#), Ok(Request::List { directory: None })));
        let run = read("eval.run", r#"{"path":"p","executor":null,"model":null,"verbose":null,"context_dir":null}"#);
        let Ok(Request::Run(run)) = run else { panic!("{run:?}") };
        assert_eq!(
            (run.executor.is_none(), run.model.is_none(), run.verbose, run.context_dir.is_none()),
            (true, true, false, true)
        );
    }

    #[test]
    fn each_method_is_its_request() {
        let params = r#"{"path":"p","taskId":"t","runId":"r","executor":"e","model":"m","verbose":true,"context_dir":"c","directory":"d"}"#;
        for (method, expected) in [
            (
                "eval.run",
                r#"Run(RunRequest { path: "p", executor: Some("e"), model: Some("m"), verbose: true, context_dir: Some("c") })"#,
            ),
            ("eval.list", r#"List { directory: Some("d") }"#),
            ("eval.get", r#"Get { path: "p" }"#),
            ("eval.validate", r#"Validate { path: "p" }"#),
            ("task.list", r#"Tasks { path: "p" }"#),
            ("task.get", r#"Task { path: "p", task: "t" }"#),
            ("run.status", r#"Status { run: "r" }"#),
            ("run.cancel", r#"Cancel { run: "r" }"#),
        ] {
            let read = request(Text::of_checked(method.as_bytes()), Json::parse(params.as_bytes()).unwrap());
            assert_eq!(std::format!("{:?}", read.unwrap()), expected);
        }
    }

    #[test]
    fn what_is_written_has_the_texts_spelling() {
        let status = Status { run_id: Some("abc123"), status: Some(RunState::Running), ..Status::default() };
        assert_eq!(
            written(|out| ser::write(&status, out).unwrap()),
            r#"{"runId":"abc123","status":"running","result":null,"error":null}"#
        );
        let summary = Some(Summary { total: 5, passed: 4, failed: 1 });
        let complete = Complete { run_id: Some("abc123"), summary, ..Complete::default() };
        assert_eq!(
            written(|out| write_notification(out, "eval.complete", &complete)),
            r#"{"jsonrpc":"2.0","method":"eval.complete","params":{"runId":"abc123","summary":{"total":5,"passed":4,"failed":1,"passRate":0.800}}}"#
        );
        let path = Text::of_checked(b"a\\\"b");
        assert_eq!(
            written(|out| write_error(out, &Error::NotFound { path })),
            r#","error":{"code":-32000,"message":"Eval not found","data":{"path":"a\"b"}}}"#
        );
    }

    /// "Error Codes" of the text, with the data that belongs to an error.
    #[test]
    fn each_error_has_its_code_and_its_data() {
        let name = Text::of_checked(b"a\\\"b");
        let list = RawJson::from_checked_str(r#"["x","y"]"#).unwrap();
        for (error, written_as) in [
            (Error::NotFound { path: name }, r#"-32000,"message":"Eval not found","data":{"path":"a\"b"}"#),
            (Error::PathNotAllowed("outside"), r#"-32000,"message":"outside""#),
            (Error::Invalid { errors: list }, r#"-32001,"message":"Validation failed","data":{"errors":["x","y"]}"#),
            (Error::RunFailed("\"busy\""), r#"-32002,"message":"\"busy\"""#),
            (Error::UnknownRun(name), r#"-32602,"message":"runId: unknown run a\"b""#),
            (Error::UnknownTask(name), r#"-32602,"message":"taskId: unknown task a\"b""#),
            (
                Error::UnknownExecutor { name, known: list },
                r#"-32602,"message":"executor: unknown executor a\"b","data":{"known":["x","y"]}"#,
            ),
            (Error::Internal("broken"), r#"-32603,"message":"broken""#),
        ] {
            let expected = std::format!(",\"error\":{{\"code\":{written_as}}}}}");
            assert_eq!(written(|out| write_error(out, &error)), expected, "{error:?}");
        }
        let refusal = Refusal::Params { member: "path", fault: "expected a string" };
        assert_eq!(
            written(|out| write_refusal(out, refusal, name)),
            r#","error":{"code":-32602,"message":"path: expected a string"}}"#
        );
    }

    /// Answers each method with its name and its parameters, but `eval.list`, and has no eval `nope`.
    struct Named;

    impl EvalService for Named {
        fn list<'a>(&'a mut self, _: Option<Text<'a>>, _: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
            Ok(())
        }

        fn get<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
            reply.send(&Eval { path: path.as_str(), ..Eval::default() });
            if path == "nope" { Err(Error::NotFound { path }) } else { Ok(()) }
        }

        fn validate<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
            reply.send(&["validate", path.as_str().unwrap()]);
            Ok(())
        }

        fn tasks<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
            reply.send(&["tasks", path.as_str().unwrap()]);
            Ok(())
        }

        fn task<'a>(&'a mut self, path: Text<'a>, task: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
            reply.send(&["task", path.as_str().unwrap(), task.as_str().unwrap()]);
            Ok(())
        }

        fn run<'a>(&'a mut self, run: &RunRequest<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
            reply.send(&["run", run.path.as_str().unwrap()]);
            Ok(())
        }

        fn status<'a>(&'a mut self, _: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
            // It has no JSON form.
            reply.send(&f64::NAN);
            Ok(())
        }

        fn cancel<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Result<(), Error<'a>> {
            reply.send(&["cancel", run.as_str().unwrap()]);
            Ok(())
        }
    }

    #[test]
    fn each_request_is_answered_once_by_its_own_method() {
        for (method, path, answered) in [
            ("eval.run", "p", r#""result":["run","p"]}"#),
            ("eval.list", "p", r#""error":{"code":-32603,"message":"the service gave no answer"}}"#),
            ("eval.get", "p", r#""result":{"path":"p"}}"#),
            ("eval.get", "nope", r#""error":{"code":-32000,"message":"Eval not found","data":{"path":"nope"}}}"#),
            ("eval.validate", "p", r#""result":["validate","p"]}"#),
            ("task.list", "p", r#""result":["tasks","p"]}"#),
            ("task.get", "p", r#""result":["task","p","t"]}"#),
            ("run.status", "p", r#""result":null}"#),
            ("run.cancel", "p", r#""result":["cancel","r"]}"#),
        ] {
            let params = std::format!(r#"{{"path":"{path}","taskId":"t","runId":"r"}}"#);
            let request =
                request(Text::of_checked(method.as_bytes()), Json::parse(params.as_bytes()).unwrap()).unwrap();
            let whole = written(|out| {
                out.raw(b"head");
                answer(&mut Named, &request, out);
            });
            assert_eq!(whole, std::format!("head,{answered}"), "{method}");
        }
    }

    #[test]
    fn a_pass_rate_is_exact_to_three_places() {
        for (passed, total, rate) in
            [(0, 0, 0), (0, 3, 0), (1, 3, 333), (2, 3, 666), (3, 3, 1000), (u32::MAX, u32::MAX, 1000)]
        {
            assert_eq!(Summary { total, passed, failed: total - passed }.pass_rate().mantissa(), rate);
        }
    }
}
