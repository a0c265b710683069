//! §4 Error Schema (v1).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The codes that the text reserves. A module may have codes of its own besides.
pub const RESERVED_CODES: [&str; 7] =
    ["timeout", "oom", "unreachable", "bad_request", "forbidden", "internal", "unsupported_op"];

/// What a module says when it fails.
///
/// ```
/// let error = rigline_std::amplifier::ModuleError::parse(br#"{"code":"timeout","message":"too slow","x":1}"#)?;
/// assert!(error.is_reserved());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModuleError {
    /// The kind of failure, in a word.
    pub code: String,
    /// The failure in words.
    pub message: String,
    /// What else there is to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
}

impl ModuleError {
    /// Reads an error. Members that the schema does not name are left alone.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }

    /// Whether the code is one of [`RESERVED_CODES`].
    pub fn is_reserved(&self) -> bool {
        RESERVED_CODES.contains(&self.code.as_str())
    }
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for ModuleError {}
