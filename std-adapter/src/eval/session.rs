//! What steps are sent to: a rigline target.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rigline::{Level, Phase};
use serde_json::Value;

use crate::host::{Agent, CallContext, EventKind, Host, Listener, Options, Outcome};
use crate::target::Target;

/// A future on the heap.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Gets what an extension logs. It must not wait.
pub type OnLog = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// Opens sessions with targets.
pub trait Connect: Send + Sync {
    /// Opens a session with `target`, configured with `settings`.
    fn connect<'a>(
        &'a self,
        target: &'a str,
        settings: Option<Value>,
        log: OnLog,
    ) -> Pending<'a, Result<Box<dyn Session>, String>>;
}

/// A session with an extension.
pub trait Session: Send + Sync {
    /// Calls an operation. What keeps an answer away is the error.
    fn call<'a>(&'a self, call: &'a Call<'a>) -> Pending<'a, Result<Answer, String>>;
    /// The JSON Schema of an operation's arguments, if it has one.
    fn schema(&self, operation: &str) -> Option<Value>;
    /// Ends the call in hand at once, and opens a session anew.
    fn cancel(&self) -> Pending<'_, Result<(), String>>;
    /// Ends the session.
    fn close(self: Box<Self>) -> Pending<'static, ()>;
}

/// A call of an operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The operation.
    pub operation: &'a str,
    /// Its arguments.
    pub args: Value,
    /// The part of the task.
    pub phase: Phase,
    /// The task's directory.
    pub workdir: &'a str,
    /// Environment variables.
    pub env: &'a BTreeMap<String, String>,
    /// The most time it may take.
    pub timeout: Option<Duration>,
    /// The prompt and what the agent said.
    pub agent: Option<(&'a str, &'a str)>,
}

/// What an operation answered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Answer {
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Its message.
    pub message: Option<String>,
    /// Its outputs, in their order.
    pub outputs: Vec<(String, String)>,
}

/// Sessions of a [`Host`].
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// The program that `sim` starts: see [`Options::sim_program`].
    pub sim_program: Option<PathBuf>,
}

impl Connect for Hosts {
    fn connect<'a>(
        &'a self,
        target: &'a str,
        settings: Option<Value>,
        log: OnLog,
    ) -> Pending<'a, Result<Box<dyn Session>, String>> {
        Box::pin(async move {
            let target: Target = target.parse().map_err(|error| format!("{error}"))?;
            let options = Options {
                config: settings,
                reconnect: true,
                sim_program: self.sim_program.clone(),
                listener: Some(listener(log)),
                ..Options::default()
            };
            let host = Host::connect(&target, options).await.map_err(|error| error.to_string())?;
            Ok(Box::new(Open(host)) as Box<dyn Session>)
        })
    }
}

fn listener(log: OnLog) -> Listener {
    Arc::new(move |event| match &event.kind {
        EventKind::Log(said) => match &said.data {
            Some(data) => log(said.level, &format!("{} {data}", said.message)),
            None => log(said.level, &said.message),
        },
        EventKind::Stderr(line) => log(Level::Debug, line),
        EventKind::Exited(_) | EventKind::Gone(_) | EventKind::Reconnected | EventKind::Echo => {
            log(Level::Debug, &format!("{}: {}", event.extension, event.kind));
        }
        _ => log(Level::Warn, &format!("{}: {}", event.extension, event.kind)),
    })
}

struct Open(Host);

impl Session for Open {
    fn call<'a>(&'a self, call: &'a Call<'a>) -> Pending<'a, Result<Answer, String>> {
        let context = CallContext {
            workdir: Some(call.workdir.to_owned()),
            phase: call.phase,
            env: call.env.clone(),
            timeout: call.timeout,
            agent: call.agent.map(|(prompt, output)| Agent { prompt: prompt.to_owned(), output: output.to_owned() }),
        };
        Box::pin(async move {
            let result = self.0.call(call.operation, &call.args, context).await.map_err(|error| error.to_string())?;
            let failure = match &result.outcome {
                Outcome::Success => None,
                _ => Some(result.to_string()),
            };
            Ok(Answer { failure, message: result.message, outputs: result.outputs })
        })
    }

    fn schema(&self, operation: &str) -> Option<Value> {
        self.0.describe().operation(operation).map(|operation| operation.params.clone())
    }

    fn cancel(&self) -> Pending<'_, Result<(), String>> {
        Box::pin(async move { self.0.cancel().await.map_err(|error| error.to_string()) })
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move { drop(self.0.shutdown().await) })
    }
}
