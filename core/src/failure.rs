//! How a call failed.

use core::fmt;

use crate::json::de::DecodeError;
use crate::json::write::{Message, Writer};

/// The failure of a call. The table in [`protocol`](crate::protocol) shows how each protocol
/// encodes it.
///
/// Every [`core::error::Error`] converts into a failure of the kind
/// [`Failed`](FailureKind::Failed), also by `?`, with its text. For this reason this type does not
/// implement `Error` itself: the two conversions would overlap. Without an allocator, a text longer
/// than [`MAX_ERROR_TEXT`] bytes is cut and ends in `...`.
/// [`Context::failure`](crate::Context::failure) takes a text of any length, and any kind.
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
    pub(crate) origin: Origin,
    pub(crate) code: Option<&'static str>,
}

/// The origin of a failure. In all but the first case the work was refused, so that it has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Work,
    /// The arguments could not be decoded.
    Args,
    /// The configuration could not be decoded.
    Config,
    /// The work did not begin.
    Refusal,
}

impl Origin {
    /// The start of a decoding error's path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Work | Self::Refusal => "",
            Self::Args => "args",
            Self::Config => "config",
        }
    }
}

/// The kind of a failure. It decides the code that each protocol sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum FailureKind {
    /// The operation ran and its own logic failed: gevals `success:false`.
    Failed,
    /// There is no operation of that name: gevals -32601.
    UnknownOperation,
    /// An argument is missing, of the wrong type or out of bounds: gevals -32602.
    BadArguments,
    /// The operation could not be carried out because something was out of reach: a device is gone,
    /// or access was refused. gevals -32000.
    Unreachable,
    /// The operation did not end in time: gevals -32001.
    Timeout,
    /// Something that the operation requires is missing: gevals -32002.
    RequirementNotMet,
    /// The operation is not allowed: gevals -32000.
    Forbidden,
    /// Something does not fit into its buffer: gevals -32603.
    TooLarge,
    /// The extension itself has a fault: gevals -32603.
    Internal,
    /// The program behind this one gave no usable answer: gevals -32000. Whether the operation ran
    /// is not known. Relays use this kind.
    NoAnswer,
}

impl FailureKind {
    /// All kinds of failures.
    pub const ALL: [Self; 10] = [
        Self::Failed,
        Self::UnknownOperation,
        Self::BadArguments,
        Self::Unreachable,
        Self::Timeout,
        Self::RequirementNotMet,
        Self::Forbidden,
        Self::TooLarge,
        Self::Internal,
        Self::NoAnswer,
    ];

    /// The name of the kind, in lower-case letters with underscores, such as `bad_arguments`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::UnknownOperation => "unknown_operation",
            Self::BadArguments => "bad_arguments",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::RequirementNotMet => "requirement_not_met",
            Self::Forbidden => "forbidden",
            Self::TooLarge => "too_large",
            Self::Internal => "internal",
            Self::NoAnswer => "no_answer",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Detail {
    Static(&'static str),
    /// The text of another error.
    Error(ErrorText),
    /// The text waits in the reply region, put there by
    /// [`Context::failure`](crate::Context::failure).
    Written,
    Decode(DecodeError),
    /// Bytes that were needed and bytes that there were.
    Size(usize, usize),
}

impl Failure {
    /// There is no operation of that name. For the last arm of a handler's match, which is never
    /// reached.
    pub const UNKNOWN_OPERATION: Self = Self::new(FailureKind::UnknownOperation, "Unknown operation");

    /// A failure with a fixed sentence as its text. [`Context::failure`](crate::Context::failure)
    /// takes any text.
    pub const fn new(kind: FailureKind, text: &'static str) -> Self {
        Self { kind, detail: Detail::Static(text), origin: Origin::Work, code: None }
    }

    /// A failure of the kind [`BadArguments`](FailureKind::BadArguments), because the arguments
    /// could not be decoded.
    pub fn bad_arguments(error: DecodeError) -> Self {
        Self { kind: FailureKind::BadArguments, detail: Detail::Decode(error), origin: Origin::Work, code: None }
    }

    pub(crate) const fn too_large(needed: usize, capacity: usize) -> Self {
        Self { kind: FailureKind::TooLarge, detail: Detail::Size(needed, capacity), origin: Origin::Work, code: None }
    }

    pub(crate) const TIMEOUT: Self = Self::new(FailureKind::Timeout, "the operation did not end before its timeout");
    pub(crate) const CANCELLED: Self = Self::new(FailureKind::Unreachable, "the call was cancelled");

    /// Adds an error code of the extension. Amplifier sends it as `error.code`, namel3ss as
    /// `error.type`. Other protocols have no place for it, and send it beside their own data as
    /// [`CODE_NAME`](crate::protocol::CODE_NAME).
    pub const fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Says that the call was refused before it changed anything. It then does not count as one that
    /// may have switched an output on: [`Session::is_touched`](crate::exchange::Session::is_touched).
    /// A failure of [`Call::args`](crate::Call::args) or [`Config::get`](crate::Config::get) says so
    /// already.
    pub const fn refused(mut self) -> Self {
        if let Origin::Work = self.origin {
            self.origin = Origin::Refusal;
        }
        self
    }

    /// Whether the work was refused, so that it has changed nothing.
    pub(crate) fn is_refusal(&self) -> bool {
        self.origin != Origin::Work
    }

    /// Whether its text was logged when it was made: a run of an eval has no reply.
    pub(crate) fn is_logged(&self) -> bool {
        self.detail == Detail::Written
    }

    /// The kind of the failure.
    pub const fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl<E: core::error::Error + 'static> From<E> for Failure {
    #[cold]
    fn from(error: E) -> Self {
        // Errors of this crate's decoder are bad arguments. `dyn Error` has `Debug` among its
        // functions, which is large.
        match (&error as &dyn core::any::Any).downcast_ref::<DecodeError>() {
            Some(error) => Self::bad_arguments(*error),
            None => Self {
                kind: FailureKind::Failed,
                detail: Detail::Error(ErrorText::of(&error)),
                origin: Origin::Work,
                code: None,
            },
        }
    }
}

/// The size of the text that a [`Failure`] keeps of another error without an allocator, in bytes.
pub const MAX_ERROR_TEXT: usize = 48;

#[cfg(not(feature = "alloc"))]
const _: () = assert!(size_of::<ErrorText>() <= size_of::<DecodeError>(), "a failure is not larger for it");

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
        /// Keeps the beginning of a text that fits, and records whether all of it did.
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
            Detail::Decode(error) => write!(f, "{}", error.display_in(self.origin.path())),
            Detail::Size(needed, capacity) => write!(f, "needs {needed} bytes, {capacity} available"),
        }
    }
}

/// Writes the sentence of `Display` without formatting code.
impl Message for Failure {
    fn write_escaped(&self, out: &mut Writer<'_>) {
        match &self.detail {
            Detail::Static(text) => out.text_part(text),
            Detail::Error(text) => out.text_part(text.as_str()),
            Detail::Written => out.raw(b"see the reply"),
            Detail::Decode(error) => error.pieces(self.origin.path(), &mut |piece| out.text_part(piece)),
            Detail::Size(needed, capacity) => {
                out.raw(b"needs ");
                out.usize(*needed);
                out.raw(b" bytes, ");
                out.usize(*capacity);
                out.raw(b" available");
            }
        }
    }
}
