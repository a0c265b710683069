//! The trait that an extension implements, and what its handlers take and give.

use core::fmt;

use serde::Deserialize;

use crate::context::Context;
use crate::event::Event;
use crate::json::de::{self, DecodeError};
use crate::json::view::{Json, Members, Text};
use crate::json::write::{Message, Writer};
use crate::manifest::{Manifest, Operation};

/// An extension: a manifest, and a handler for the operations in it.
///
/// One extension lives on one thread; whoever serves it to many sends it one call at a time.
///
/// `#[rigline::extension]` (feature `macros`) writes it, from the methods of a type and their doc comments. By hand it
/// is no secret, and the way to go for an extension whose operations are known elsewhere, or which wraps another:
///
/// ```
/// use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
///
/// struct Greeter;
///
/// impl Extension for Greeter {
///     fn manifest(&self) -> &'static Manifest {
///         const MANIFEST: Manifest =
///             Manifest::new("greeter", "1.0.0").operations(&[Operation::new("greet", Schema::OBJECT)]);
///         &MANIFEST
///     }
///
///     async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
///         match call.operation() {
///             "greet" => cx.done("hello"),
///             _ => Err(Failure::UNKNOWN_OPERATION),
///         }
///     }
/// }
/// ```
#[allow(async_fn_in_trait, reason = "an extension lives on one thread: a `Send` bound would keep boards out")]
pub trait Extension {
    /// What the extension is and offers. Known at compile time, so that it costs no memory but flash.
    fn manifest(&self) -> &'static Manifest;

    /// Runs one operation. Only operations of the manifest arrive here.
    ///
    /// The future is dropped at its next await when the call is cancelled, times out, or its session is lost;
    /// [`safe_state`](Self::safe_state) runs after that.
    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure>;

    /// Takes the configuration that a host sends when it starts a session (gevals `initialize`, member `config`). It is not
    /// called where a host sends none. What fails here fails the start of the session.
    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let _ = (config, cx);
        Ok(())
    }

    /// Takes note of an event: Amplifier `on_event`, for modules of kind [`Hook`](crate::manifest::Kind::Hook). The
    /// acknowledgement is on the wire already when this runs, and requests that come in meanwhile wait their turn.
    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        let _ = (event, cx);
    }

    /// Runs one task of an eval that is part of the extension, see
    /// [`Engine::with_evals`](crate::engine::Engine::with_evals): success is a pass. Feature `waza`.
    #[cfg(feature = "waza")]
    async fn run_task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let _ = (eval, task, cx);
        Err(Failure::new(FailureKind::Internal, "there is no such task"))
    }

    /// Brings what the extension drives into a state that is safe when nobody watches: a rig turns its rails off.
    ///
    /// It runs when a session that began with `initialize` is lost without `shutdown`, and when a call is cancelled or
    /// times out.
    async fn safe_state(&mut self) {}
}

/// A call of an operation.
#[derive(Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// Where in the manifest the operation stands.
    pub index: usize,
    pub(crate) operation: &'static Operation,
    pub(crate) args: Value<'a>,
    /// What the host says about the call's surroundings.
    pub context: CallContext<'a>,
}

impl<'a> Call<'a> {
    /// The operation's name, as the manifest has it.
    pub fn operation(&self) -> &'static str {
        self.operation.name
    }

    /// The arguments as `T`; absent and null arguments are an empty object. Strings are decoded in place, so that a `&str`
    /// in `T` costs no copy; a second call finds nothing any more and fails.
    pub fn args<T: Deserialize<'a>>(&mut self) -> Result<T, Failure> {
        self.args.take(|error| Failure { root: Root::Args, ..Failure::bad_arguments(error) })
    }

    /// The arguments as `T` by the crate serde-json-core instead of this one's decoder; see
    /// [`json::serde_json_core`](crate::json::serde_json_core) for what it can do, and for `scratch`.
    #[cfg(feature = "serde-json-core")]
    pub fn args_by_serde_json_core<T: Deserialize<'a>>(&mut self, scratch: &mut [u8]) -> Result<T, Failure> {
        self.args.take_by_serde_json_core(scratch)
    }

    /// The arguments as a view, before [`args`](Self::args) has taken them; absent and null arguments are an empty object.
    pub fn args_json(&self) -> Json<'_> {
        self.args.json()
    }

    /// Whether the caller may have written numbers as strings, as namel3ss writes the decimals of a flow.
    /// [`args`](Self::args) accepts them where the type wants a number; [`args_json`](Self::args_json) shows them as they came.
    pub fn has_numeric_strings(&self) -> bool {
        self.args.numeric_strings
    }
}

/// A session's configuration: gevals `config`.
#[derive(Debug)]
pub struct Config<'a>(pub(crate) Value<'a>);

impl<'a> Config<'a> {
    /// The configuration as `T`. Strings are decoded in place.
    pub fn get<T: Deserialize<'a>>(&mut self) -> Result<T, Failure> {
        self.0.take(|error| Failure { root: Root::Config, ..Failure::bad_arguments(error) })
    }

    /// The configuration as `T` by the crate serde-json-core; see
    /// [`json::serde_json_core`](crate::json::serde_json_core).
    #[cfg(feature = "serde-json-core")]
    pub fn get_by_serde_json_core<T: Deserialize<'a>>(&mut self, scratch: &mut [u8]) -> Result<T, Failure> {
        self.0.take_by_serde_json_core(scratch)
    }

    /// The configuration as a view, before [`get`](Self::get) has taken it.
    pub fn json(&self) -> Json<'_> {
        self.0.json()
    }
}

/// A JSON object that was checked and waits to be decoded, once.
#[derive(Debug)]
pub(crate) struct Value<'a> {
    pub(crate) text: &'a mut [u8],
    /// Whether a string whose text is a number is accepted where a number is expected.
    pub(crate) numeric_strings: bool,
}

impl<'a> Value<'a> {
    fn take<T: Deserialize<'a>>(&mut self, otherwise: fn(DecodeError) -> Failure) -> Result<T, Failure> {
        de::from_checked_or(core::mem::take(&mut self.text), self.numeric_strings, otherwise)
    }

    #[cfg(feature = "serde-json-core")]
    fn take_by_serde_json_core<T: Deserialize<'a>>(&mut self, scratch: &mut [u8]) -> Result<T, Failure> {
        use crate::json::serde_json_core::{from_checked, text};
        from_checked(core::mem::take(&mut self.text), scratch)
            .map_err(|error| Failure::new(FailureKind::BadArguments, text(&error)))
    }

    fn json(&self) -> Json<'_> {
        match &*self.text {
            [] => Json::of_checked(b"{}"),
            text => Json::of_checked(text),
        }
    }
}

/// What the host says about a call's surroundings: gevals "Context Object". Every member is optional, since real hosts
/// leave them out.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct CallContext<'a> {
    /// The task's directory, for relative paths.
    pub workdir: Option<Text<'a>>,
    /// The part of the task the call belongs to.
    pub phase: Phase,
    /// The limit on the call's time, in nanoseconds: never zero. The shell keeps it; a handler need not.
    pub timeout_nanos: Option<u64>,
    pub(crate) env: Option<Json<'a>>,
    /// What the agent under test was asked and answered; in the verify phase only.
    pub agent: Option<Agent<'a>>,
    /// The caller's session: Amplifier `session_id`.
    pub session_id: Option<Text<'a>>,
    /// What a namel3ss host says besides.
    #[cfg(feature = "namel3ss")]
    pub namel3ss: crate::protocol::namel3ss::Surroundings<'a>,
}

impl<'a> CallContext<'a> {
    /// The task's environment variables.
    pub fn env(&self) -> Env<'a> {
        Env(self.env.unwrap_or(Json::NULL).members())
    }
}

/// Environment variables, names and values.
#[derive(Debug, Clone)]
pub struct Env<'a>(Members<'a>);

impl<'a> Iterator for Env<'a> {
    type Item = (Text<'a>, Text<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find_map(|(name, value)| Some((name, value.text()?)))
    }
}

/// The part of a task a call belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Phase {
    /// Not said, or a word we do not know. The real gevals host never says it.
    #[default]
    Unknown,
    /// Before the agent works.
    Setup,
    /// After it.
    Verify,
    /// At the end, whatever happened.
    Cleanup,
}

/// What the agent under test was asked and answered: gevals "Agent Context Object".
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Agent<'a> {
    /// The prompt given to it.
    pub prompt: Option<Text<'a>>,
    /// Its response.
    pub output: Option<Text<'a>>,
}

/// How a call ended well. Outputs and message are in the reply already, by way of [`Context`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Outcome {
    pub(crate) message: Option<&'static str>,
}

impl Outcome {
    /// Success, with nothing to add to the outputs.
    pub const DONE: Self = Self { message: None };

    /// Success, summed up in a fixed sentence. [`Context::done`] takes any.
    pub const fn message(message: &'static str) -> Self {
        Self { message: Some(message) }
    }
}

/// How a call failed. [`protocol`](crate::protocol) has the table of how each protocol encodes it.
///
/// Every [`core::error::Error`] converts into one of the kind [`Failed`](FailureKind::Failed), by `?` too; its text is kept. That is
/// why this type does not implement `Error` itself: the two conversions would overlap. Without an allocator the first
/// [`MAX_ERROR_TEXT`] bytes are kept, and a longer text ends in `...`. [`Context::failure`] takes any text, of any length and
/// kind.
///
/// ```
/// # use rigline::Failure;
/// fn count(text: &str) -> Result<u8, Failure> {
///     Ok(text.parse()?)
/// }
/// assert_eq!(count("300").unwrap_err().to_string(), "number too large to fit in target type");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) detail: Detail,
    /// What the path of a decoding error starts with.
    pub(crate) root: Root,
    pub(crate) code: Option<&'static str>,
}

/// The value that a decoding error's path starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    None,
    Args,
    Config,
}

impl Root {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Args => "args",
            Self::Config => "config",
        }
    }
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum FailureKind {
    /// The operation ran and its own logic failed: gevals `success:false`.
    Failed,
    /// No operation of that name: gevals -32601.
    UnknownOperation,
    /// An argument is missing, of the wrong type or out of bounds: gevals -32602.
    BadArguments,
    /// It could not be carried out: a device is gone, access was refused. gevals -32000.
    Unreachable,
    /// It did not end in time: gevals -32001.
    Timeout,
    /// Something that it requires is not there: gevals -32002.
    RequirementNotMet,
    /// It is not allowed: gevals -32000.
    Forbidden,
    /// Something does not fit its buffer: gevals -32603.
    TooLarge,
    /// A fault in the extension itself: gevals -32603.
    Internal,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Detail {
    Static(&'static str),
    /// The text of another error.
    Error(ErrorText),
    /// The text waits in the reply region, put there by [`Context::failure`].
    Written,
    Decode(DecodeError),
    /// Bytes that were needed and bytes that there were.
    Size(usize, usize),
}

impl Failure {
    /// No operation of that name: for the arm of a handler's match that is never reached.
    pub const UNKNOWN_OPERATION: Self = Self::new(FailureKind::UnknownOperation, "Unknown operation");

    /// A failure explained by a fixed sentence. [`Context::failure`] takes any text.
    pub const fn new(kind: FailureKind, text: &'static str) -> Self {
        Self { kind, detail: Detail::Static(text), root: Root::None, code: None }
    }

    /// Arguments that could not be decoded.
    pub fn bad_arguments(error: DecodeError) -> Self {
        Self { kind: FailureKind::BadArguments, detail: Detail::Decode(error), root: Root::None, code: None }
    }

    pub(crate) const fn too_large(needed: usize, capacity: usize) -> Self {
        Self { kind: FailureKind::TooLarge, detail: Detail::Size(needed, capacity), root: Root::None, code: None }
    }

    pub(crate) const TIMEOUT: Self = Self::new(FailureKind::Timeout, "the operation did not end before its timeout");
    pub(crate) const CANCELLED: Self = Self::new(FailureKind::Unreachable, "the call was cancelled");

    /// With a code of the extension's own, for the protocols that have words as codes: Amplifier `error.code`, namel3ss
    /// `error.type`. gevals has none.
    pub const fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Whether its text was logged when it was made: there is no reply in a run.
    #[cfg(feature = "waza")]
    pub(crate) fn is_logged(&self) -> bool {
        self.detail == Detail::Written
    }

    /// What kind of failure it was.
    pub const fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl<E: core::error::Error + 'static> From<E> for Failure {
    #[cold]
    fn from(error: E) -> Self {
        // Errors of this crate's decoder are bad arguments. `dyn Error` has `Debug` among its functions, which is large.
        match (&error as &dyn core::any::Any).downcast_ref::<DecodeError>() {
            Some(error) => Self::bad_arguments(*error),
            None => Self {
                kind: FailureKind::Failed,
                detail: Detail::Error(ErrorText::of(&error)),
                root: Root::None,
                code: None,
            },
        }
    }
}

/// How many bytes of another error's text a [`Failure`] keeps where there is no allocator.
pub const MAX_ERROR_TEXT: usize = 64;

/// The text of another error, as it displays itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ErrorText {
    #[cfg(feature = "alloc")]
    text: alloc::string::String,
    #[cfg(not(feature = "alloc"))]
    text: heapless::String<MAX_ERROR_TEXT, u8>,
}

impl ErrorText {
    #[cfg(feature = "alloc")]
    fn of(error: &dyn fmt::Display) -> Self {
        Self { text: alloc::format!("{error}") }
    }

    #[cfg(not(feature = "alloc"))]
    fn of(error: &dyn fmt::Display) -> Self {
        /// Takes what fits, and notes whether all did.
        struct Cut(heapless::String<MAX_ERROR_TEXT, u8>, bool);
        impl fmt::Write for Cut {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for char in text.chars() {
                    self.1 = self.1 || self.0.push(char).is_err();
                    if self.1 {
                        return Err(fmt::Error);
                    }
                }
                Ok(())
            }
        }
        let mut cut = Cut(heapless::String::new(), false);
        let _ = fmt::write(&mut cut, format_args!("{error}"));
        let Cut(mut text, is_cut) = cut;
        if is_cut {
            while text.len() > MAX_ERROR_TEXT - 3 {
                text.pop();
            }
            let _ = text.push_str("...");
        }
        Self { text }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Detail::Static(text) => f.write_str(text),
            Detail::Error(text) => f.write_str(text.as_str()),
            Detail::Written => f.write_str("see the reply"),
            Detail::Decode(error) => write!(f, "{}", error.display_in(self.root.name())),
            Detail::Size(needed, capacity) => write!(f, "{needed} bytes do not fit the {capacity} there are"),
        }
    }
}

/// The sentence of its `Display`, without formatting code.
impl Message for Failure {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        match &self.detail {
            Detail::Static(text) => out.text_part(text),
            Detail::Error(text) => out.text_part(text.as_str()),
            Detail::Written => out.raw(b"see the reply"),
            Detail::Decode(error) => error.pieces(self.root.name(), &mut |piece| out.text_part(piece)),
            Detail::Size(needed, capacity) => {
                out.usize(*needed);
                out.raw(b" bytes do not fit the ");
                out.usize(*capacity);
                out.raw(b" there are");
            }
        }
    }
}
