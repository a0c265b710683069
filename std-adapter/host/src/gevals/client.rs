//! gevals as a [`Client`].

use std::time::Duration;

use rigline::json::Json;
use rigline::protocol::gevals;
use rigline::{FailureKind, Phase};
use serde_json::{Map, Value, json};

use crate::client::{
    Beside, CallFailure, CallOutcome, CallRequest, Client, ClientError, ClientOptions, Described, Description,
    OptionValues, Pending,
};
use crate::host::{Agent, CallContext, CallResult, CallVerdict, Host, HostError, Manifest, Shutdown};
use crate::target::Target;

/// The time that a program has to end when its call is cancelled.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(2);

struct GevalsClient {
    host: Host,
    context: CallContext,
    /// A call was cancelled: the next one connects again.
    was_cancelled: bool,
}

pub(super) fn connect(target: &Target, options: ClientOptions) -> Pending<'_, Result<Box<dyn Client>, ClientError>> {
    Box::pin(async move {
        // Its mistakes are told before anything is started.
        context(&options.own)?;
        let has_config = options.host.config.is_some();
        let host = Host::connect(target, options.host.clone()).await;
        client_of(host.map_err(|error| connect_error(error, has_config))?, &options)
    })
}

/// The client of a session that has begun.
pub(crate) fn client_of(host: Host, options: &ClientOptions) -> Result<Box<dyn Client>, ClientError> {
    Ok(Box::new(GevalsClient { host, context: context(&options.own)?, was_cancelled: false }))
}

/// Why there is no session.
pub(crate) fn connect_error(error: HostError, has_config: bool) -> ClientError {
    match &error {
        // The settings are arguments of the command.
        HostError::Refused { error: why, .. } if has_config && why.code == Some(-32602) => {
            ClientError::usage(error.to_string())
        }
        _ => error.into(),
    }
}

/// gevals "Context Object".
fn context(own: &OptionValues) -> Result<CallContext, ClientError> {
    let mut context = CallContext {
        phase: match own.one("phase") {
            Some("setup") => Phase::Setup,
            Some("verify") => Phase::Verify,
            Some("cleanup") => Phase::Cleanup,
            _ => Phase::default(),
        },
        workdir: own.one("workdir").map(str::to_owned),
        ..CallContext::default()
    };
    for pair in own.all("env") {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(ClientError::usage(format!("--env `{pair}`: expected NAME=VALUE")));
        };
        context.env.insert(name.to_owned(), value.to_owned());
    }
    let (prompt, output) = (own.one("agent-prompt"), own.one("agent-output"));
    if prompt.is_some() || output.is_some() {
        let [prompt, output] = [prompt, output].map(|text| text.unwrap_or_default().to_owned());
        context.agent = Some(Agent { prompt, output });
    }
    Ok(context)
}

impl Client for GevalsClient {
    fn describe<'a>(
        &'a mut self,
        _about: Option<&'a str>,
        _limit: Duration,
    ) -> Pending<'a, Result<Description, ClientError>> {
        let manifest = self.host.describe();
        Box::pin(std::future::ready(Ok(Description::Manifest(Box::new(Described {
            text: with_requirements(&manifest),
            manifest: (*manifest).clone(),
            kind: None,
            has_typed_outputs: false,
        })))))
    }

    fn call<'a>(&'a mut self, request: &'a CallRequest) -> Pending<'a, Result<CallOutcome, ClientError>> {
        let context = request.context.as_deref().unwrap_or(&self.context).clone();
        let context = CallContext { timeout: request.timeout, ..context };
        Box::pin(async move {
            if std::mem::take(&mut self.was_cancelled) {
                self.host.reconnect().await?;
            }
            let result = self.host.call_json(&request.operation, &request.args, context).await?;
            Ok(answer(result))
        })
    }

    fn is_lost(&self) -> bool {
        !self.host.is_connected()
    }

    fn cancel(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            self.host.give_up(INTERRUPT_TIMEOUT).await;
            self.was_cancelled = true;
        })
    }

    fn cancels_calls(&self) -> bool {
        false
    }

    fn leave(&mut self) -> bool {
        self.host.is_connected()
    }

    fn interrupt(&mut self) -> Pending<'_, ()> {
        Box::pin(async {
            // A program may bring about its safe state first. To a device, a closed port or socket says as much.
            if let Some(child) = self.host.child() {
                child.end(INTERRUPT_TIMEOUT).await;
            }
        })
    }

    fn abandon(mut self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.interrupt().await;
            drop(self);
        })
    }

    fn close(self: Box<Self>) -> Pending<'static, Result<Option<String>, ClientError>> {
        Box::pin(async move {
            if self.was_cancelled {
                return Ok(None);
            }
            let end = self.host.shutdown().await?;
            Ok((!end.is_clean()).then(|| unclean(&end)))
        })
    }
}

/// The manifest as it came, and which of the commands it requires are found, as JSON text.
fn with_requirements(manifest: &Manifest) -> String {
    let requires: Vec<Value> = manifest
        .requires
        .iter()
        .map(|command| json!({ "command": command, "found": which::which(command).ok() }))
        .collect();
    let (requires, faults) = (json!(requires), json!(manifest.faults));
    format!("{{\"manifest\":{},\"requires\":{requires},\"faults\":{faults}}}", manifest.text)
}

fn unclean(end: &Shutdown) -> String {
    let why = match (&end.error, end.killed, end.exit) {
        (Some(error), ..) => format!("shutdown was answered with an error: {error}"),
        (None, true, _) => "it did not end after shutdown, and was killed".to_owned(),
        (None, false, Some(exit)) => exit.to_string(),
        (None, false, None) => "shutdown was not answered".to_owned(),
    };
    format!("the extension did not end cleanly: {why}")
}

fn answer(result: CallResult) -> CallOutcome {
    let failure = result.failure().map(|text| {
        // The code is a member of its own.
        let message = match &result.outcome {
            CallVerdict::Refused(refused) if !refused.message.is_empty() => refused.message.clone(),
            _ => text,
        };
        let Beside { kind, own_code: custom_code } =
            Beside::read(Json::parse(result.raw.as_bytes()).ok().and_then(|raw| raw.get("data")));
        let (kind, code) = match &result.outcome {
            CallVerdict::Refused(refused) => {
                let by_code = refused.code.and_then(gevals::failure_kind);
                (kind.or(by_code).unwrap_or(FailureKind::Unreachable), refused.code.map(Value::from))
            }
            CallVerdict::Invalid(_) => (FailureKind::NoAnswer, None),
            _ => (FailureKind::Failed, None),
        };
        CallFailure { kind, code, custom_code, message }
    });
    let outputs: Map<String, Value> =
        result.outputs.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
    let outputs = Value::Object(outputs).to_string();
    CallOutcome { message: result.message, outputs, failure, ..CallOutcome::default() }
}
