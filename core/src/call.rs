//! The types that a handler gets and returns: a call with its arguments and context, a session's
//! configuration, and an outcome.

use serde::Deserialize;

#[cfg(feature = "serde-json-core")]
use crate::failure::FailureKind;
use crate::failure::{Failure, Origin};
use crate::json::Json;
use crate::json::de;
use crate::manifest::Operation;
use crate::message::Received;
use crate::protocol::define::Protocol;

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

    /// Whether the manifest by which the call was accepted says that the operation changes nothing.
    pub fn only_reads(&self) -> bool {
        self.operation.only_reads()
    }

    /// Decodes the arguments as `T`. Absent and null arguments are an empty object.
    ///
    /// Strings are decoded in place, so that a `&str` in `T` costs no copy. The arguments can be
    /// decoded once: a second call of this method returns an error.
    pub fn args<T: Deserialize<'a>>(&mut self) -> Result<T, Failure> {
        let rules = de::Rules { numeric_strings: self.has_numeric_strings(), refuses_unknown: true };
        let otherwise = |error| Failure { origin: Origin::Args, ..Failure::bad_arguments(error) };
        de::from_checked_or(core::mem::take(&mut self.args), rules, otherwise)
    }

    /// Decodes the arguments as `T` by the crate serde-json-core, not by the decoder of this crate.
    /// [`json::serde_json_core`](crate::json::serde_json_core) says which types that crate can
    /// decode, and how long `scratch` must be.
    #[cfg(feature = "serde-json-core")]
    pub fn args_by_serde_json_core<T: Deserialize<'a>>(&mut self, scratch: &mut [u8]) -> Result<T, Failure> {
        by_serde_json_core(core::mem::take(&mut self.args), scratch)
    }

    /// A view of the arguments. Absent and null arguments are an empty object, and so are arguments
    /// that [`args`](Self::args) has decoded already.
    pub fn args_json(&self) -> Json<'_> {
        object(self.args)
    }

    /// Whether the caller may have written numbers and booleans as strings (`"16"`, `"true"`), as
    /// the hosts of some protocols do. [`args`](Self::args) accepts such strings if the type wants
    /// a number or a boolean. [`args_json`](Self::args_json) shows them as they came.
    pub fn has_numeric_strings(&self) -> bool {
        self.context.protocol.numeric_strings
    }
}

/// The configuration that a host sends at the start of a session.
/// [`Extension::configure`](crate::Extension::configure) gets it.
#[derive(Debug)]
pub struct Config<'a>(pub(crate) &'a mut [u8]);

impl<'a> Config<'a> {
    /// Decodes the configuration as `T`. Strings are decoded in place. It can be decoded once.
    pub fn get<T: Deserialize<'a>>(&mut self) -> Result<T, Failure> {
        let otherwise = |error| Failure { origin: Origin::Config, ..Failure::bad_arguments(error) };
        de::from_checked_or(core::mem::take(&mut self.0), de::Rules::default(), otherwise)
    }

    /// Decodes the configuration as `T` by the crate serde-json-core.
    /// [`json::serde_json_core`](crate::json::serde_json_core) says which types it can decode, and
    /// how long `scratch` must be.
    #[cfg(feature = "serde-json-core")]
    pub fn get_by_serde_json_core<T: Deserialize<'a>>(&mut self, scratch: &mut [u8]) -> Result<T, Failure> {
        by_serde_json_core(core::mem::take(&mut self.0), scratch)
    }

    /// A view of the configuration. It is an empty object after [`get`](Self::get) has decoded the
    /// configuration.
    pub fn json(&self) -> Json<'_> {
        object(self.0)
    }
}

#[cfg(feature = "serde-json-core")]
fn by_serde_json_core<'a, T: Deserialize<'a>>(object: &'a mut [u8], scratch: &mut [u8]) -> Result<T, Failure> {
    use crate::json::serde_json_core::{from_checked, text};
    from_checked(object, scratch).map_err(|error| Failure::new(FailureKind::BadArguments, text(&error)).refused())
}

/// A view of what waits to be decoded. What was decoded is gone.
fn object(text: &[u8]) -> Json<'_> {
    Json::of_checked(if text.is_empty() { b"{}" } else { text })
}

/// Facts about a call beside its arguments, such as its time limit and its protocol.
///
/// Each protocol has a function that returns the context that its hosts send with a call:
/// [`gevals::TaskContext::of`](crate::protocol::gevals::TaskContext::of),
/// [`amplifier::session_id`](crate::protocol::amplifier::session_id),
/// [`namel3ss::Invocation::of`](crate::protocol::namel3ss::Invocation::of).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallContext<'a> {
    /// The time limit of the call in nanoseconds, if the host sets one. It is never zero. The
    /// driver enforces it, so a handler need not.
    pub timeout_nanos: Option<u64>,
    pub(crate) protocol: &'static Protocol,
    pub(crate) received: Received<'a>,
}

impl<'a> CallContext<'a> {
    /// The protocol of the call.
    pub fn protocol(&self) -> &'static Protocol {
        self.protocol
    }

    /// The request without its arguments, if the call came by `protocol`; otherwise none.
    pub fn received_by(&self, protocol: &Protocol) -> Option<Received<'a>> {
        (self.protocol == protocol).then_some(self.received)
    }
}

/// The success of a call. Handlers return it after they have written outputs and the message
/// through [`Context`](crate::Context).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Outcome {
    pub(crate) message: Option<&'static str>,
}

impl Outcome {
    /// Success without a message.
    pub const DONE: Self = Self { message: None };

    /// Success with a fixed sentence as its message. [`Context::done`](crate::Context::done)
    /// accepts any text.
    pub const fn message(message: &'static str) -> Self {
        Self { message: Some(message) }
    }
}
