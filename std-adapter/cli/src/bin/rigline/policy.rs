//! The owner's rules for the calls of agents: limits, confirmations, a choice of operations, a record. On the command line, and in a file
//! that the agent cannot change.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::ValueHint;
use rigline::{Extension, Manifest, Operation};
use rigline_host::record::Recorder;
use rigline_host::target::Target;
use rigline_std::mutex::lock;
use rigline_std::{OperationSelection, Selected};
use serde::Deserialize;

use self::calls::Calls;
use self::limited::Limited;
use crate::choice::Choice;
use crate::connect::Failure;
use crate::record::RecordArguments;
use crate::{files, out};

pub(crate) mod calls;
pub(crate) mod limited;

/// The options of an owner.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PolicyArguments {
    /// Allow at most N calls of an operation in a second, a minute, an hour or a day, such as power=20/h. The operation `*` stands
    /// for all operations together
    #[arg(long = "limit", value_name = "OP=N/s|m|h|d")]
    pub(crate) limits: Vec<Limit>,
    /// Have a person confirm each call of these operations. Where the client cannot ask, they are refused
    #[arg(long, value_name = "OP", num_args = 1..)]
    pub(crate) confirm: Vec<String>,
    /// Keep every call with its time, client, arguments and outcome in this folder, and every line of the target, so that the target
    /// replay:DIR answers as this one did. The folder must be new or empty, or have an earlier recording, which is replaced
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) record: Option<PathBuf>,
    /// Read these settings from a TOML file, too: read-only, allow, confirm, record, and a table [limit]. It must be outside the current
    /// folder, and no other user may be able to write it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,
}

/// So many calls in such a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    operation: String,
    count: usize,
    period: Duration,
    unit: &'static str,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (operation, rate) = text.rsplit_once('=').ok_or("expected OP=N/UNIT, such as power=20/h")?;
        Self::new(operation, rate)
    }
}

impl Limit {
    fn new(operation: &str, rate: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "`{rate}` is not a limit; expected N/UNIT with N from 1 and s, m, h or d for the unit, such as 20/h"
            )
        };
        let (count, unit) = rate.split_once('/').ok_or_else(fault)?;
        let (period, unit) = match unit.trim() {
            "s" => (1, "a second"),
            "m" | "min" => (60, "a minute"),
            "h" => (3600, "an hour"),
            "d" => (86_400, "a day"),
            _ => return Err(fault()),
        };
        let count = count.trim().parse().ok().filter(|count| (1..=1_000_000).contains(count)).ok_or_else(fault)?;
        if operation.trim().is_empty() {
            return Err("the operation is missing; expected OP=N/UNIT".to_owned());
        }
        Ok(Self { operation: operation.trim().to_owned(), count, period: Duration::from_secs(period), unit })
    }

    /// As the command line has it.
    fn word(&self) -> String {
        let unit = match self.period.as_secs() {
            1 => "s",
            60 => "m",
            3600 => "h",
            _ => "d",
        };
        format!("{}={}/{unit}", self.operation, self.count)
    }
}

/// A policy file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    #[serde(default)]
    read_only: bool,
    allow: Option<Vec<String>>,
    #[serde(default)]
    confirm: Vec<String>,
    record: Option<PathBuf>,
    #[serde(default)]
    limit: BTreeMap<String, String>,
}

/// The rules for calls.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    limits: Vec<Limit>,
    confirm: Vec<String>,
    pub(crate) record: Option<PathBuf>,
    /// For each limit, when its calls were, the oldest first.
    calls: Mutex<Vec<VecDeque<Instant>>>,
}

impl PolicyArguments {
    /// Reads the file, and makes the choice of operations as narrow as it says.
    pub(crate) fn read(&self, choice: &mut Choice) -> Result<Policy, Failure> {
        let mut policy = Policy {
            limits: self.limits.clone(),
            confirm: self.confirm.clone(),
            record: self.record.clone(),
            calls: Mutex::default(),
        };
        if let Some(path) = &self.policy {
            let fault = |text: String| Failure::usage(format!("--policy {}: {text}", path.display()));
            let file = out_of_reach(path).map_err(fault)?;
            let text = files::read(&file).map_err(|error| fault(error.to_string()))?;
            let file: File = toml::from_str(&text).map_err(|error| fault(error.message().to_owned()))?;
            choice.read_only |= file.read_only;
            if let Some(allow) = file.allow {
                choice.allow = match choice.allow.is_empty() {
                    true => allow,
                    false => {
                        let both: Vec<String> = choice
                            .allow
                            .iter()
                            .filter(|name| allow.iter().any(|known| is_same(known, name)))
                            .cloned()
                            .collect();
                        if both.is_empty() {
                            return Err(fault("it allows none of the operations that --allow names".to_owned()));
                        }
                        both
                    }
                };
            }
            policy.confirm.extend(file.confirm);
            policy.record = policy.record.or(file.record);
            for (operation, rate) in &file.limit {
                policy
                    .limits
                    .push(Limit::new(operation, rate).map_err(|error| fault(format!("limit {operation}: {error}")))?);
            }
        }
        policy.calls = Mutex::new(vec![VecDeque::new(); policy.limits.len()]);
        Ok(policy)
    }

    /// The options, for another command line that is started in another folder.
    pub(crate) fn words(&self) -> Result<Vec<String>, Failure> {
        let mut words = Vec::new();
        for limit in &self.limits {
            words.extend(["--limit".to_owned(), limit.word()]);
        }
        for (option, path) in [("--record", &self.record), ("--policy", &self.policy)] {
            let Some(path) = path else { continue };
            let path = std::path::absolute(path).map_err(|error| Failure::usage(format!("{option}: {error}")))?;
            words.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
        }
        if !self.confirm.is_empty() {
            words.push("--confirm".to_owned());
            words.extend(self.confirm.iter().cloned());
        }
        Ok(words)
    }
}

/// Rules for a target that is served: the operations that are offered, how often, and the record of their calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) selection: OperationSelection,
    pub(crate) policy: Arc<Policy>,
    pub(crate) calls: Option<Arc<Calls>>,
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Whether all operations are offered.
    pub(crate) is_all: bool,
}

impl Rules {
    /// Reads them, and begins the recording if there is to be one.
    pub(crate) fn read(arguments: &PolicyArguments, choice: &Choice, target: &Target) -> Result<Self, Failure> {
        let mut choice = choice.clone();
        let policy = arguments.read(&mut choice)?;
        let recorder = RecordArguments::of(policy.record.as_deref()).begin(&target.to_string())?;
        let calls = match &policy.record {
            Some(folder) => {
                let calls = Calls::create(folder);
                let fault = |error| Failure::usage(format!("--record {}: {error}", folder.display()));
                Some(Arc::new(calls.map_err(fault)?))
            }
            None => None,
        };
        let (selection, is_all) = (choice.selection(), choice.is_all());
        Ok(Self { selection, policy: Arc::new(policy), calls, recorder, is_all })
    }

    /// Whether everything is allowed, and nothing kept.
    pub(crate) fn are_none(&self) -> bool {
        self.is_all && self.policy.is_empty()
    }

    /// An extension with the operations that are offered, whose calls are counted. `is_there` says whether it is known what it has.
    /// With `is_direct`, nobody stands between it and its agents, who asks a person and keeps the calls. Between it and clients of other protocols
    /// nobody stands anyway.
    pub(crate) fn over<E: Extension>(
        &self,
        extension: E,
        is_there: bool,
        is_direct: bool,
    ) -> Result<Limited<Selected<E>>, Failure> {
        let selected = match is_there {
            true => {
                self.policy.check(extension.manifest()).map_err(Failure::usage)?;
                Selected::new(extension, &self.selection).map_err(Failure::usage)?
            }
            false => Selected::of_what_comes(extension, &self.selection),
        };
        Ok(Limited::new(selected, Arc::clone(&self.policy), self.calls.clone(), is_direct))
    }

    /// Ends the recording.
    pub(crate) fn finish(&self) {
        if let Some(recorder) = &self.recorder
            && let Err(error) = recorder.finish(0)
        {
            out::complain_of_failure(&format!("the recording is not complete: {error}"));
        }
    }
}

/// The file that a path leads to, if the agent, which works in the current folder, and other users have no way to change it or to put
/// another one in its place: neither the file, nor a folder or a link on the way to it.
fn out_of_reach(path: &Path) -> Result<PathBuf, String> {
    let said = |error: std::io::Error| error.to_string();
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).ok();
    let here = here.filter(|here| here.parent().is_some());
    let ensure_elsewhere = |at: &Path, what: &str| match &here {
        Some(here) if at.starts_with(here) => {
            Err(format!("{what} in the folder {}, in which the agent works: keep it elsewhere", here.display()))
        }
        _ => Ok(()),
    };
    let mut at = PathBuf::new();
    let mut parts: Vec<OsString> = Vec::new();
    let push = |parts: &mut Vec<OsString>, path: &Path| {
        parts.extend(path.components().rev().map(|part| part.as_os_str().to_owned()));
    };
    push(&mut parts, &std::path::absolute(path).map_err(said)?);
    let mut links = 0;
    while let Some(part) = parts.pop() {
        match part.to_str() {
            Some("..") => {
                at.pop();
                continue;
            }
            Some(".") => continue,
            _ => {}
        }
        let next = at.join(&part);
        let about = std::fs::symlink_metadata(&next).map_err(said)?;
        if about.is_symlink() {
            ensure_elsewhere(&next, "a link on the way to it is")?;
            links += 1;
            if links > MOST_LINKS {
                return Err("too many links lead to it".to_owned());
            }
            let target = std::fs::read_link(&next).map_err(said)?;
            push(&mut parts, &target);
        } else {
            ensure_own(&next, &about)?;
            at = next;
        }
    }
    ensure_elsewhere(&at, "it is")?;
    Ok(at)
}

/// How many links may lead to a file, as on Linux.
const MOST_LINKS: usize = 40;

/// Whether other users cannot write a file, or put other files into a folder in the place of those that are there.
#[cfg(unix)]
fn ensure_own(path: &Path, about: &std::fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    const STICKY: u32 = 0o1000;
    let is_open = about.mode() & 0o022 != 0;
    match about.is_dir() {
        true if is_open && about.mode() & STICKY == 0 => Err(format!(
            "other users can put another one in its place, since they can write {} (chmod go-w)",
            path.display()
        )),
        false if is_open => Err("other users can write it (chmod go-w)".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn ensure_own(_: &Path, _: &std::fs::Metadata) -> Result<(), String> {
    Ok(())
}

/// Whether two names mean one operation. A tool is called by the name of its operation, or by its
/// [identifier](rigline::Operation::identifier).
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    Operation::identifier_of(one).eq(Operation::identifier_of(other))
}

impl Policy {
    /// Whether it asks for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.confirm.is_empty() && self.record.is_none()
    }

    /// Whether all names are operations of an extension.
    pub(crate) fn check(&self, manifest: &Manifest) -> Result<(), String> {
        let limited = self.limits.iter().map(|limit| ("--limit", &limit.operation));
        for (option, name) in limited.chain(self.confirm.iter().map(|name| ("--confirm", name))) {
            if name != "*" && !manifest.operations.iter().any(|operation| is_same(operation.name, name)) {
                let known: Vec<&str> = manifest.operations.iter().map(|operation| operation.name).collect();
                return Err(format!(
                    "{option}: {} has no operation `{name}`; it has {}",
                    manifest.name,
                    known.join(", ")
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn wants_confirmation(&self, operation: &str) -> bool {
        self.confirm.iter().any(|name| name == "*" || is_same(name, operation))
    }

    /// Counts a call, or says why it must not be.
    pub(crate) fn admit(&self, operation: &str, now: Instant) -> Result<(), String> {
        let mut calls = lock(&self.calls);
        let counted = |limit: &Limit| limit.operation == "*" || is_same(&limit.operation, operation);
        for (limit, calls) in self.limits.iter().zip(calls.iter_mut()).filter(|(limit, _)| counted(limit)) {
            while calls.front().is_some_and(|first| now.saturating_duration_since(*first) >= limit.period) {
                calls.pop_front();
            }
            if calls.len() >= limit.count {
                let oldest = calls.front().copied().unwrap_or(now);
                let left = limit.period.saturating_sub(now.saturating_duration_since(oldest));
                let (what, times) = (if limit.operation == "*" { "the rig" } else { operation }, limit.count);
                return Err(format!(
                    "{what} is limited to {times} {} in {} by its owner; the next is possible in {} s",
                    if times == 1 { "call" } else { "calls" },
                    limit.unit,
                    left.as_secs() + 1
                ));
            }
        }
        for (_, calls) in self.limits.iter().zip(calls.iter_mut()).filter(|(limit, _)| counted(limit)) {
            calls.push_back(now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_the_calls_of_the_last_period() {
        let limits = vec!["power=2/m".parse().unwrap(), "*=3/m".parse().unwrap()];
        let calls = Mutex::new(vec![VecDeque::new(); 2]);
        let policy = Policy { limits, calls, ..Policy::default() };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(policy.admit("power", at(0)).is_ok() && policy.admit("power", at(30)).is_ok());
        let error = policy.admit("power", at(40)).unwrap_err();
        assert_eq!(error, "power is limited to 2 calls in a minute by its owner; the next is possible in 21 s");
        assert!(policy.admit("measure", at(41)).is_ok(), "what was refused does not count");
        assert!(policy.admit("measure", at(42)).unwrap_err().starts_with("the rig is limited to 3 calls"));
        assert!(policy.admit("power", at(60)).is_ok(), "the oldest call is out of the period");
        assert!(policy.admit("power", at(61)).is_err());
    }

    /// An agent calls a tool by each name that the server takes, and the owner's word is about the operation.
    #[test]
    fn an_operation_is_the_same_by_every_name_that_a_tool_has() {
        let long = "x".repeat(70);
        for (operation, tool) in [
            ("all-off", "all_off"),
            ("rail.set", "rail_set"),
            ("rail/set", "rail_set"),
            ("größe", "gr____e"),
            (&*long, &long[..64]),
        ] {
            let policy = Policy { confirm: vec![operation.to_owned()], ..Policy::default() };
            assert!(policy.wants_confirmation(operation) && policy.wants_confirmation(tool), "{operation}");
            assert!(!policy.wants_confirmation(&tool[1..]), "{operation}");
        }
    }

    #[test]
    fn a_limit_is_read_or_refused() {
        for text in ["power=20/h", "set-target=1/s", "*=5/min", "a=b=3/d"] {
            assert!(text.parse::<Limit>().is_ok(), "{text}");
        }
        for text in
            ["power", "power=", "power=20", "power=0/h", "power=x/h", "power=1/w", "=1/h", "power=-1/h", "power=1.5/h"]
        {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }
}
