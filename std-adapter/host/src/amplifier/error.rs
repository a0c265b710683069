//! Errors of modules: section 4, "Error Schema (v1)", of Amplifier's protocol text.

use std::fmt;
use std::io;
use std::time::Duration;

use rigline::json::Json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::host::HostError;
use crate::http_client::HttpError;
use crate::process::last_words;

/// The error codes that the protocol text reserves. A module may also use other codes.
pub const RESERVED_CODES: [&str; 7] =
    ["timeout", "oom", "unreachable", "bad_request", "forbidden", "internal", "unsupported_op"];

/// An error that a module answers with.
///
/// ```
/// let error = rigline_host::amplifier::ModuleError::parse(br#"{"code":"timeout","message":"too slow","x":1}"#)?;
/// assert_eq!((error.code.as_str(), error.message.as_str()), ("timeout", "too slow"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModuleError {
    /// The code of the error: one of [`RESERVED_CODES`], or one of the module's own.
    pub code: String,
    /// The description of the error, for people.
    pub message: String,
    /// Further details, by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
    /// The JSON text of the details, with all digits of their numbers. Only answers to calls have it.
    #[serde(skip)]
    pub details_text: Option<String>,
    /// The kind of failure, as rigline's own modules add it where the code does not tell.
    #[serde(default, rename = "rigline/kind", skip_serializing)]
    pub kind: Option<String>,
}

impl ModuleError {
    /// Reads an error from JSON text. Members that the schema does not name are ignored.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Whether the code is one of [`RESERVED_CODES`].
    pub(crate) fn is_reserved(&self) -> bool {
        RESERVED_CODES.contains(&self.code.as_str())
    }
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for ModuleError {}

/// The reason why a call has no usable answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The connection to the module could not be opened.
    #[error(transparent)]
    Connect(HostError),
    /// The HTTP server gave no usable answer.
    #[error(transparent)]
    Http(HttpError),
    /// The module did not answer within the time limit.
    #[error(
        "no answer within {limit:?}{}{}{}{}",
        if waited > limit { format!(" (waited {:.1}s)", waited.as_secs_f64()) } else { String::new() },
        hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default(),
        shown(odd.as_deref()),
        last_words(stderr)
    )]
    Timeout {
        /// The time limit.
        limit: Duration,
        /// The time for which the host waited: the limit, and the grace if there was one.
        waited: Duration,
        /// The likely cause, if one is known.
        hint: Option<String>,
        /// The first line that was not JSON. `None` if there was no such line.
        odd: Option<String>,
        /// The last lines of the module's standard error. Empty if there are none.
        stderr: String,
    },
    /// The answer came after the time limit. A `timeout` error of the module itself is no such
    /// answer: it is returned as its error.
    #[error("the answer came after {took:.3?}, beyond the time limit of {limit:?}")]
    Late {
        /// The time from the request to the answer.
        took: Duration,
        /// The time limit.
        limit: Duration,
    },
    /// The program of the module has ended.
    #[error(
        "the module has ended{}{}{}",
        exit.as_deref().map(|exit| format!(": {exit}")).unwrap_or_default(),
        shown(odd.as_deref()),
        last_words(stderr)
    )]
    Gone {
        /// The first line that was not JSON. `None` if there was no such line.
        odd: Option<String>,
        /// The exit code or the signal with which the program ended. `None` if it is not known.
        exit: Option<String>,
        /// The last lines of the module's standard error. Empty if there are none.
        stderr: String,
    },
    /// The answer is longer than the host accepts.
    #[error("the answer is longer than the limit of {limit} bytes")]
    TooLong {
        /// The longest accepted answer, in bytes.
        limit: usize,
    },
    /// The answer does not have the required form.
    #[error("a bad answer: {reason}: {text}")]
    Bad {
        /// The difference from the required form.
        reason: String,
        /// The beginning of the answer.
        text: String,
    },
    /// The arguments of the call are not a JSON object. Nothing was sent.
    #[error("the arguments must be a JSON object")]
    Arguments,
    /// Reading from or writing to the module failed.
    #[error("communication with the module failed: {0}")]
    Io(#[from] io::Error),
}

fn shown(odd: Option<&str>) -> String {
    match odd {
        Some(line) if is_json_rpc(line) => format!("; it wrote {line:?}, and {OTHER_PROTOCOL}"),
        Some(line) => format!(
            "; it wrote {line:?}, which is not a reply to this request: a reply is one JSON text on one line, in the form that the operation has"
        ),
        None => String::new(),
    }
}

const OTHER_PROTOCOL: &str = "this is JSON-RPC, not Amplifier's protocol; select another protocol with --protocol";

fn is_json_rpc(text: &str) -> bool {
    Json::parse(text.as_bytes()).is_ok_and(|json| json.get("jsonrpc").is_some())
}

pub(super) fn bad(reason: impl Into<String>, text: &str) -> CallError {
    let reason = if is_json_rpc(text) { OTHER_PROTOCOL.to_owned() } else { reason.into() };
    let text = text.chars().take(200).collect();
    CallError::Bad { reason, text }
}
