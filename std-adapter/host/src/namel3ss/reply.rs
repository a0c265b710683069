//! Replies of tools, read in the way in which namel3ss reads them.

use rigline::json::{
    Json, JsonKind,
    check::{SyntaxError, SyntaxErrorKind},
};
use rigline::protocol::KIND_NAME;
use serde::Serialize;

/// A reply of a tool.
///
/// ```
/// use rigline_host::namel3ss::Reply;
/// // `ok` is judged as Python judges truth, and `output` is an alias of `result`.
/// let reply = Reply::parse(br#"{"ok": 1, "output": {"message": "Hello Ada"}}"#)?;
/// assert_eq!(reply.result.as_deref(), Ok(r#"{"message": "Hello Ada"}"#));
/// # Ok::<(), rigline_host::namel3ss::ReplyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The result as JSON text with all digits, or the error that the tool reported.
    pub result: Result<String, super::ToolError>,
    /// The capability checks that the tool's program made. `None` if it reports none.
    pub capability_checks: Option<Vec<CapabilityCheck>>,
}

/// A capability check: whether a tool was allowed to do something that it wanted to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CapabilityCheck {
    /// The capability that the tool wanted, such as `network`.
    pub capability: String,
    /// Whether the tool was allowed to use the capability.
    pub allowed: bool,
    /// The origin of the guarantee that decided: `engine`, `tool`, `pack`, `user` or `policy`.
    pub guarantee_source: String,
    /// The reason of the decision, such as `guarantee_blocked`.
    pub reason: String,
}

impl CapabilityCheck {
    pub(super) fn missing(capability: &str, source: Option<&str>) -> Self {
        Self {
            capability: capability.into(),
            allowed: false,
            guarantee_source: source.unwrap_or("pack").into(),
            reason: "coverage_missing".into(),
        }
    }
}

/// The reason why the output of a tool is not a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The output is empty.
    #[error("no response")]
    Empty,
    /// The output is not JSON.
    #[error("the response is not JSON: {error}{}", shown(line.as_deref()))]
    NotJson {
        /// The error of the JSON parser.
        error: String,
        /// The first line that is not JSON, if other lines are JSON. `None` otherwise.
        line: Option<String>,
    },
    /// The output is not an object with the member `ok`.
    #[error("the response must be an object with the member ok")]
    Unexpected,
}

fn shown(line: Option<&str>) -> String {
    line.map(|line| format!("; the tool has printed {line:?} in addition to its response")).unwrap_or_default()
}

impl Reply {
    /// Reads the whole output of a tool. As in namel3ss, other lines before the reply are an error.
    /// The error shows the first of them.
    pub fn parse(text: &[u8]) -> Result<Self, ReplyError> {
        // RFC 8259 §8.1: a byte order mark may be passed over.
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text).trim_ascii();
        if text.is_empty() {
            return Err(ReplyError::Empty);
        }
        let json = Json::parse(text).map_err(|error| not_json(text, error))?;
        let Some(ok) = json.get("ok") else { return Err(ReplyError::Unexpected) };
        let capability_checks = json.get("capability_checks").filter(|checks| checks.kind() == JsonKind::Array);
        let capability_checks = capability_checks.map(|checks| checks.elements().filter_map(check).collect());
        let result = if is_true(ok) {
            let result = json.get("result").or_else(|| json.get("output")).unwrap_or(Json::NULL);
            Ok(result.as_str().to_owned())
        } else {
            Err(error(json))
        };
        Ok(Self { result, capability_checks })
    }
}

/// Whether a value is true in Python.
pub(super) fn is_true(json: Json<'_>) -> bool {
    match json.kind() {
        JsonKind::Null => false,
        JsonKind::Bool => json.bool() == Some(true),
        JsonKind::String => json.text().is_some_and(|text| !text.is_empty()),
        JsonKind::Array => json.elements().next().is_some(),
        JsonKind::Object => json.members().next().is_some(),
        JsonKind::Number => {
            let mantissa = json.as_str().split(['e', 'E']).next().unwrap_or_default();
            mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
        }
    }
}

/// `str(value)`, for what stands where a string should.
fn plain(json: Json<'_>) -> String {
    json.text().map_or_else(|| json.as_str().to_owned(), |text| text.to_string())
}

fn error(reply: Json<'_>) -> super::ToolError {
    let error = reply.get("error").filter(|error| is_true(*error));
    let member = |name: &str, flat: &str| {
        let inner = error.and_then(|error| error.get(name)).filter(|value| is_true(*value));
        inner.or_else(|| reply.get(flat)).filter(|value| is_true(*value)).map(plain)
    };
    // The real host crashes at an error that is a text; it says what it says all the same.
    let text = error.filter(|error| error.kind() != JsonKind::Object).map(plain);
    super::ToolError {
        error_type: member("type", "error_type").unwrap_or_else(|| "ToolError".into()),
        message: member("message", "error_message").or(text).unwrap_or_else(|| "Tool error".into()),
        reason_code: error.and_then(|error| error.get("reason_code")).filter(|code| is_true(*code)).map(plain),
        kind: error.and_then(|error| error.get(KIND_NAME)?.text()).map(|kind| kind.to_string()),
    }
}

fn check(json: Json<'_>) -> Option<CapabilityCheck> {
    let text = |name| json.get(name).map(plain);
    Some(CapabilityCheck {
        capability: text("capability")?,
        allowed: json.get("allowed").is_some_and(is_true),
        guarantee_source: text("guarantee_source").unwrap_or_default(),
        reason: text("reason").unwrap_or_default(),
    })
}

fn not_json(text: &[u8], error: SyntaxError) -> ReplyError {
    let mut reason = error.to_string();
    let rest = text.get(error.offset..).unwrap_or_default();
    let before = text.get(..error.offset).unwrap_or_default();
    for word in ["NaN", "Infinity"] {
        // Python's `json.dumps` writes them (apify/apify-client-python#87, flop-labs/technocore-chat#90).
        if rest.starts_with(word.as_bytes()) || before.ends_with(b"-") && rest.starts_with(word.as_bytes()) {
            reason = format!("{word} is not JSON: {reason}");
        }
    }
    let is_depth = matches!(error.kind, SyntaxErrorKind::TooDeep { .. });
    let lines = || text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let is_json = |line: &&[u8]| Json::parse(line).is_ok();
    // A line that is the response by itself, and what was printed before or after it.
    let junk = lines().find(|line| !is_json(line)).or_else(|| lines().next());
    let line = junk
        .filter(|_| !is_depth && lines().count() > 1 && lines().any(|line| is_json(&line)))
        .map(|junk| String::from_utf8_lossy(junk.get(..junk.len().min(200)).unwrap_or_default()).trim_end().to_owned());
    ReplyError::NotJson { error: reason, line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        match Reply::parse(text.as_bytes()) {
            Ok(reply) => reply.result.map_err(|error| format!("{}: {}", error.error_type, error.message)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Python's idea of truth, and every shape of error that was seen.
    #[test]
    fn replies() {
        for (text, result) in [
            (r#"{"ok":true,"result":{"n":1.10}}"#, Ok(r#"{"n":1.10}"#)),
            (r#"{"ok":1,"output":2}"#, Ok("2")),
            (r#"{"ok":"no","result":null,"output":3}"#, Ok("null")),
            (r#"{"ok":[0]}"#, Ok("null")),
            (r#"{"ok":-0.5e-400,"result":9007199254740993}"#, Ok("9007199254740993")),
            (r#"{"ok":false,"error":{"type":"ValueError","message":"x"}}"#, Err("ValueError: x")),
            (r#"{"ok":null,"error":null}"#, Err("ToolError: Tool error")),
            (r#"{"ok":0,"error":"plain"}"#, Err("ToolError: plain")),
            (r#"{"ok":-0.0e9,"error":{"type":"","message":0},"error_type":"T","error_message":"m"}"#, Err("T: m")),
            (r#"{"ok":"","error":["a"]}"#, Err(r#"ToolError: ["a"]"#)),
            (r#"{"ok":{},"error":{"type":7,"message":{"a":1}}}"#, Err(r#"7: {"a":1}"#)),
            (r#"{"ok":[]}"#, Err("ToolError: Tool error")),
            ("", Err("no response")),
            ("[]", Err("the response must be an object with the member ok")),
            ("{}", Err("the response must be an object with the member ok")),
        ] {
            assert_eq!(read(text), result.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        assert!(read(r#"{"ok":true,"result":NaN}"#).unwrap_err().contains("NaN is not JSON"));
        for (text, junk) in [
            ("debug\n{\"ok\":true,\"result\":1}", r#""debug""#),
            ("\r\ndebug\r\n\r\n{\"ok\":true,\"result\":1}\r\n", r#""debug""#),
            ("{\"ok\":true,\"result\":1}\nbye\n", r#""bye""#),
            ("7\n{\"ok\":true,\"result\":1}", r#""7""#),
            ("[1]\n{\"ok\":true,\"result\":1}\n", r#""[1]""#),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(&format!("the tool has printed {junk} in addition to its response")), "{error}");
        }
    }

    #[test]
    fn checks() {
        let reply = r#"{"ok":false,"error":{"type":"CapabilityViolation","message":"m","reason_code":"guarantee_blocked"},"capability_checks":[{"capability":"network","allowed":false,"guarantee_source":"user","reason":"guarantee_blocked"},5]}"#;
        let reply = Reply::parse(reply.as_bytes()).unwrap();
        assert_eq!(reply.result.unwrap_err().reason_code.as_deref(), Some("guarantee_blocked"));
        assert_eq!(reply.capability_checks.unwrap().len(), 1);
    }
}
