//! Amplifier's protocol as a [`Client`].

use std::sync::Arc;
use std::time::Duration;

use rigline::FailureKind;
use rigline::json::Json;
use rigline::protocol::amplifier;
use serde_json::json;

use super::{CallError, EventLog, Host, HttpError, ModuleError, ModuleLocation};
use crate::client::{
    CallFailure, CallOutcome, CallRequest, Cause, Client, ClientError, ClientOptions, Described, Description, Part,
    Pending, Record, kind_named,
};
use crate::host::wire::{self, Connect, InUse};
use crate::host::{Connection, Manifest, NO_LIMIT};
use crate::target::Target;

struct AmplifierClient {
    host: Host,
    events: Option<Record>,
    /// A server is in use as long as this is there.
    _in_use: Option<InUse>,
}

pub(super) fn connect(target: &Target, options: ClientOptions) -> Pending<'_, Result<Box<dyn Client>, ClientError>> {
    Box::pin(async move {
        let in_use = wire::in_use(target, &options.host).await?;
        client(Host::new(target, &options.host)?, &options, in_use)
    })
}

/// A client over what `dialer` opens, which leads to `target`; with a connection that is open, if all that was asked on it has been answered.
pub(crate) fn client_of(
    dialer: Box<dyn Connect>,
    target: &Target,
    options: &ClientOptions,
    open: Option<Connection>,
) -> Result<Box<dyn Client>, ClientError> {
    let host = Host::over(dialer, target, &options.host);
    let host = match open {
        Some(connection) => host.on(connection),
        None => host,
    };
    client(host, options, None)
}

fn client(mut host: Host, options: &ClientOptions, in_use: Option<InUse>) -> Result<Box<dyn Client>, ClientError> {
    let events = options.own.one("events").map(|path| Record::append("events", path)).transpose()?;
    host.events = events.clone().map(|events| Arc::new(EventLog::new(events)));
    host.session_id = options.own.one("session").map(str::to_owned);
    Ok(Box::new(AmplifierClient { host, events, _in_use: in_use }))
}

impl Client for AmplifierClient {
    fn describe<'a>(
        &'a mut self,
        _about: Option<&'a str>,
        limit: Duration,
    ) -> Pending<'a, Result<Description, ClientError>> {
        Box::pin(async move {
            self.host.timeout = limit;
            let (description, text) = self.host.describe_as_text().await?;
            let json = Json::parse(text.as_bytes()).unwrap_or(Json::NULL);
            let schema =
                |kind: &str, name: &str| json.get(kind).and_then(|schemas| schemas.get(name)).map(|json| json.as_str());
            let operations: Vec<String> = description
                .capabilities
                .iter()
                .map(|name| {
                    let params = schema("inputs", name).unwrap_or("true");
                    let outputs = schema("outputs", name).unwrap_or("null");
                    format!("{}:{{\"params\":{params},\"outputs\":{outputs}}}", json!(name))
                })
                .collect();
            let kind = description.kind;
            let manifest = Manifest::read(&format!(
                "{{\"name\":{},\"version\":{},\"protocolVersion\":\"1\",\"description\":{},\"operations\":{{{}}}}}",
                json!(description.name),
                json!(description.version),
                json!(format!("an Amplifier module of the kind {}", kind.name())),
                operations.join(",")
            ));
            let manifest = manifest.map_err(|text| ClientError::new(Cause::NoAnswer, text))?;
            let described = Described { text, manifest, kind: Some(kind), has_typed_outputs: true };
            Ok(Description::Manifest(Box::new(described)))
        })
    }

    fn call<'a>(&'a mut self, request: &'a CallRequest) -> Pending<'a, Result<CallOutcome, ClientError>> {
        Box::pin(async move {
            if request.session_id.is_some() {
                self.host.session_id.clone_from(&request.session_id);
            }
            self.host.timeout = match request.timeout {
                Some(Duration::ZERO) => NO_LIMIT,
                Some(limit) => limit,
                None => rigline::protocol::amplifier::TIMEOUT,
            };
            match self.host.invoke(&request.operation, &request.args).await? {
                Ok(result) => Ok(CallOutcome::of_result(result, String::new())),
                Err(error) => Ok(failure(error)),
            }
        })
    }

    fn carries_less(&self) -> &'static [Part] {
        match self.host.place() {
            // A server finishes what it has begun.
            ModuleLocation::Http { .. } => &[Part::Cancel],
            ModuleLocation::Lines(_) => &[],
        }
    }

    fn record_fault(&mut self) -> Option<String> {
        self.events.as_ref().and_then(Record::fault)
    }

    fn cancel(&mut self) -> Pending<'_, ()> {
        Box::pin(self.host.abandon_call())
    }

    fn close(self: Box<Self>) -> Pending<'static, Result<Option<String>, ClientError>> {
        Box::pin(async move {
            self.host.close().await;
            Ok(None)
        })
    }
}

fn failure(error: ModuleError) -> CallOutcome {
    let said = error.kind.as_deref().and_then(kind_named);
    let kind = said.or_else(|| amplifier::failure_kind(&error.code)).unwrap_or(FailureKind::Failed);
    let custom_code = (!error.is_reserved()).then(|| error.code.clone());
    let outputs = error.details_text.unwrap_or_else(|| "{}".to_owned());
    let failure = CallFailure { kind, code: Some(error.code.into()), custom_code, message: error.message };
    CallOutcome { outputs, is_message_output: true, failure: Some(failure), ..CallOutcome::default() }
}

impl From<CallError> for ClientError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Connect(error) => Self::Host(error),
            CallError::Timeout { .. } | CallError::Late { .. } | CallError::Http(HttpError::Timeout { .. }) => {
                Self::new(Cause::Timeout, error)
            }
            error => Self::new(Cause::NoAnswer, error),
        }
    }
}
