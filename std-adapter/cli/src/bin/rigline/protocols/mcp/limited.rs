//! An extension whose calls are counted.

use std::sync::Arc;
use std::time::Instant;

use rigline::{Call, Config, Context, Event, Extension, Failure, FailureKind, Manifest, Outcome};

use super::policy::Policy;

/// An extension whose calls a policy limits.
pub(crate) struct Limited<E> {
    inner: E,
    policy: Arc<Policy>,
    /// Nobody is between the client and this, who could have asked a person.
    cannot_ask: bool,
}

impl<E> Limited<E> {
    pub(crate) fn new(inner: E, policy: Arc<Policy>, cannot_ask: bool) -> Self {
        Self { inner, policy, cannot_ask }
    }
}

impl<E: Extension> Extension for Limited<E> {
    fn manifest(&self) -> &'static Manifest {
        self.inner.manifest()
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        if self.cannot_ask && self.policy.wants_confirmation(call.operation()) {
            let text =
                format!("{} needs the confirmation of a person, and this server cannot ask for it", call.operation());
            return Err(cx.failure(FailureKind::Forbidden, text.as_str()));
        }
        if let Err(why) = self.policy.admit(call.operation(), Instant::now()) {
            return Err(cx.failure(FailureKind::Forbidden, why.as_str()));
        }
        self.inner.call(call, cx).await
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
