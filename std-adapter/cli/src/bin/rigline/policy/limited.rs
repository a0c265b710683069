//! An extension whose calls are counted, and where nobody else does so, confirmed and kept.

use std::sync::Arc;
use std::time::Instant;

use rigline::{Call, Config, Context, Event, Extension, Failure, FailureKind, Manifest, Outcome};
use rigline_host::protocols;
use serde_json::{Value, json};

use super::Policy;
use super::calls::{Calls, Ended};
use crate::out::complain;

/// An extension whose calls a policy limits.
pub(crate) struct Limited<E> {
    inner: E,
    policy: Arc<Policy>,
    calls: Option<Arc<Calls>>,
    /// Nobody is between an agent and this, who could have asked a person.
    is_direct: bool,
}

impl<E> Limited<E> {
    pub(crate) fn new(inner: E, policy: Arc<Policy>, calls: Option<Arc<Calls>>, is_direct: bool) -> Self {
        Self { inner, policy, calls, is_direct }
    }
}

/// A call, which is kept when it has ended. One that is dropped was cancelled.
struct Kept {
    calls: Option<Arc<Calls>>,
    client: Value,
    operation: &'static str,
    arguments: Value,
    began: Instant,
    outcome: &'static str,
    result: Value,
}

impl Kept {
    fn begin(calls: Option<Arc<Calls>>, call: &Call<'_>) -> Self {
        let mut kept = Self {
            calls,
            client: Value::Null,
            operation: call.operation(),
            arguments: Value::Null,
            began: Instant::now(),
            outcome: "cancelled",
            result: Value::Null,
        };
        if kept.calls.is_some() {
            let session =
                protocols::ALL.iter().find_map(|protocol| protocol.session_id.and_then(|of| of(&call.context)));
            kept.client = json!({ "session": session });
            kept.arguments = serde_json::from_str(call.args_json().as_str()).unwrap_or_default();
        }
        kept
    }

    fn refused(mut self, why: &str) {
        (self.outcome, self.result) = ("refused", json!({ "message": why }));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(calls) = &self.calls else { return };
        let ended = Ended {
            client: &self.client,
            operation: self.operation,
            arguments: &self.arguments,
            outcome: self.outcome,
            result: self.result.take(),
            took: self.began.elapsed(),
        };
        if let Err(error) = calls.add(&ended) {
            complain(format_args!("rigline: a call is not in the record: {error}"));
        }
    }
}

impl<E: Extension> Extension for Limited<E> {
    fn manifest(&self) -> &'static Manifest {
        self.inner.manifest()
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let is_direct = self.is_direct || !call.context.protocol().has_content();
        let mut kept = Kept::begin(self.calls.clone().filter(|_| is_direct), &call);
        if is_direct && self.policy.wants_confirmation(call.operation()) {
            let text =
                format!("{} needs the confirmation of a person, and this server cannot ask for it", call.operation());
            kept.refused(&text);
            return Err(cx.failure(FailureKind::Forbidden, text.as_str()).refused());
        }
        if let Err(why) = self.policy.admit(call.operation(), Instant::now()) {
            kept.refused(&why);
            return Err(cx.failure(FailureKind::Forbidden, why.as_str()).refused());
        }
        let result = self.inner.call(call, cx).await;
        (kept.outcome, kept.result) = match &result {
            Ok(_) => ("ok", Value::Null),
            Err(failure) => ("failed", json!({ "kind": failure.kind().name() })),
        };
        result
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        self.inner.configure(config, cx).await
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        self.inner.on_event(event, cx).await;
    }

    async fn safe_state(&mut self) {
        self.inner.safe_state().await;
    }
}
