//! The types that a handler gets and returns: the call with its arguments and its context, a configuration, the outcome.

use serde::Deserialize;

use crate::definition::Protocol;
#[cfg(feature = "serde-json-core")]
use crate::failure::FailureKind;
use crate::failure::{Failure, PathPrefix};
use crate::json::de;
use crate::json::view::Json;
use crate::manifest::Operation;
use crate::received::Received;

/// A call of an operation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The operation's position in the manifest.
    pub index: usize,
    pub(crate) operation: &'static Operation,
    /// A JSON object that was checked and waits to be decoded, once.
    pub(crate) args: &'a mut [u8],
    /// The context of the call.
    pub context: CallContext<'a>,
}

impl<'a> Call<'a> {
    /// The operation's name, as in the manifest.
    pub fn operation(&self) -> &'static str {
        self.operation.name
    }

    /// The arguments as `T`; absent and null arguments are an empty object. Strings are decoded in place, so that a `&str`
    /// in `T` costs no copy; a second call finds nothing any more and fails.
    pub fn args<T: Deserialize<'a>>(&mut self) -> Result<T, Failure> {
        let rules = de::Rules { numeric_strings: self.has_numeric_strings(), refuses_unknown: true };
        let otherwise = |error| Failure { prefix: PathPrefix::Args, ..Failure::bad_arguments(error) };
        de::from_checked_or(core::mem::take(&mut self.args), rules, otherwise)
    }

    /// The arguments as `T` by the crate serde-json-core instead of this one's decoder; see
    /// [`json::serde_json_core`](crate::json::serde_json_core) for what it can do, and for `scratch`.
    #[cfg(feature = "serde-json-core")]
    pub fn args_by_serde_json_core<T: Deserialize<'a>>(&mut self, scratch: &mut [u8]) -> Result<T, Failure> {
        by_serde_json_core(core::mem::take(&mut self.args), scratch)
    }

    /// The arguments as a view, before [`args`](Self::args) has taken them; absent and null arguments are an empty object.
    pub fn args_json(&self) -> Json<'_> {
        object(self.args)
    }

    /// Whether the caller may have written numbers and booleans as strings, as the hosts of some protocols do: `"16"`, `"true"`.
    /// [`args`](Self::args) accepts them where the type wants a number or a boolean; [`args_json`](Self::args_json) shows them as they came.
    pub fn has_numeric_strings(&self) -> bool {
        self.context.protocol.numeric_strings
    }
}

/// A session's configuration.
#[derive(Debug)]
pub struct Config<'a>(pub(crate) &'a mut [u8]);

impl<'a> Config<'a> {
    /// The configuration as `T`. Strings are decoded in place.
    pub fn get<T: Deserialize<'a>>(&mut self) -> Result<T, Failure> {
        let otherwise = |error| Failure { prefix: PathPrefix::Config, ..Failure::bad_arguments(error) };
        de::from_checked_or(core::mem::take(&mut self.0), de::Rules::default(), otherwise)
    }

    /// The configuration as `T` by the crate serde-json-core; see
    /// [`json::serde_json_core`](crate::json::serde_json_core).
    #[cfg(feature = "serde-json-core")]
    pub fn get_by_serde_json_core<T: Deserialize<'a>>(&mut self, scratch: &mut [u8]) -> Result<T, Failure> {
        by_serde_json_core(core::mem::take(&mut self.0), scratch)
    }

    /// The configuration as a view, before [`get`](Self::get) has taken it.
    pub fn json(&self) -> Json<'_> {
        object(self.0)
    }
}

#[cfg(feature = "serde-json-core")]
fn by_serde_json_core<'a, T: Deserialize<'a>>(object: &'a mut [u8], scratch: &mut [u8]) -> Result<T, Failure> {
    use crate::json::serde_json_core::{from_checked, text};
    from_checked(object, scratch).map_err(|error| Failure::new(FailureKind::BadArguments, text(&error)))
}

/// A view of what waits to be decoded. What was decoded is gone.
fn object(text: &[u8]) -> Json<'_> {
    Json::of_checked(if text.is_empty() { b"{}" } else { text })
}

/// The context of a call: what is known of it in addition to its arguments. Each protocol has an accessor for what its
/// hosts send about a call: [`gevals::TaskContext::of`](crate::protocol::gevals::TaskContext::of),
/// [`amplifier::session_id`](crate::protocol::amplifier::session_id),
/// [`namel3ss::Invocation::of`](crate::protocol::namel3ss::Invocation::of).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallContext<'a> {
    /// The limit on the call's time, in nanoseconds: never zero. The driver keeps it; a handler need not.
    pub timeout_nanos: Option<u64>,
    pub(crate) protocol: &'static Protocol,
    pub(crate) received: Received<'a>,
}

impl<'a> CallContext<'a> {
    /// The protocol that the call came by.
    pub fn protocol(&self) -> &'static Protocol {
        self.protocol
    }

    /// The request without its arguments, if it came by this protocol.
    pub fn received_by(&self, protocol: &Protocol) -> Option<Received<'a>> {
        (self.protocol == protocol).then_some(self.received)
    }
}

/// How a call ended well. Outputs and message are in the reply already, by way of [`Context`](crate::Context).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Outcome {
    pub(crate) message: Option<&'static str>,
}

impl Outcome {
    /// Success, with nothing to add to the outputs.
    pub const DONE: Self = Self { message: None };

    /// Success, summed up in a fixed sentence. [`Context::done`](crate::Context::done) accepts any
    /// text.
    pub const fn message(message: &'static str) -> Self {
        Self { message: Some(message) }
    }
}
