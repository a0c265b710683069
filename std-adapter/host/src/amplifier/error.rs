//! §4 Error Schema (v1).

use std::fmt;
use std::io;
use std::time::Duration;

use rigline::json::Json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::host::HostError;
use crate::http_client::HttpError;
use crate::process::last_words;

/// The codes that the specification reserves. A module may also have its own codes.
pub const RESERVED_CODES: [&str; 7] =
    ["timeout", "oom", "unreachable", "bad_request", "forbidden", "internal", "unsupported_op"];

/// The error of a module.
///
/// ```
/// let error = rigline_host::amplifier::ModuleError::parse(br#"{"code":"timeout","message":"too slow","x":1}"#)?;
/// assert_eq!((error.code.as_str(), error.message.as_str()), ("timeout", "too slow"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModuleError {
    /// The kind of failure, in a word.
    pub code: String,
    /// The failure in words.
    pub message: String,
    /// Further details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
    /// The kind of failure, where a module of rigline's own says it beside a code that does not.
    #[serde(default, rename = "rigline/kind", skip_serializing)]
    pub kind: Option<String>,
}

impl ModuleError {
    /// Reads an error. Members that the schema does not name are left alone.
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

/// Why there is no usable answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No connection.
    #[error(transparent)]
    Connect(HostError),
    /// The HTTP server gave no usable answer.
    #[error(transparent)]
    Http(HttpError),
    /// None in time.
    #[error(
        "no answer within {limit:?}{}{}{}",
        hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default(),
        shown(odd.as_deref()),
        last_words(stderr)
    )]
    Timeout {
        /// The limit.
        limit: Duration,
        /// The likely cause, if there is one to name.
        hint: Option<String>,
        /// The first line that was not JSON, if there was one.
        odd: Option<String>,
        /// The end of the program's standard error.
        stderr: String,
    },
    /// The answer came after the limit. Only the module's own timeout error counts then.
    #[error("the answer came after {took:.3?}, beyond the time limit of {limit:?}")]
    Late {
        /// From the request to the answer.
        took: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The module is gone.
    #[error(
        "the module has ended{}{}{}",
        exit.as_deref().map(|exit| format!(": {exit}")).unwrap_or_default(),
        shown(odd.as_deref()),
        last_words(stderr)
    )]
    Gone {
        /// The first line that was not JSON, if there was one.
        odd: Option<String>,
        /// How its process ended.
        exit: Option<String>,
        /// The end of its standard error.
        stderr: String,
    },
    /// The answer is longer than the limit.
    #[error("the answer is longer than the limit of {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The answer is not of the form that it should be.
    #[error("a bad answer: {reason}: {text}")]
    Bad {
        /// The fault.
        reason: String,
        /// The beginning of the line.
        text: String,
    },
    /// The arguments are not a JSON object.
    #[error("the arguments must be a JSON object")]
    Arguments,
    /// The connection failed.
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
