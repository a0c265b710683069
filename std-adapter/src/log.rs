//! Log lines that are longer than their reader accepts.

use rigline::json::{Json, Text};
use rigline::rpc;

/// Shortens a log line of more than `limit` bytes without its newline. Returns `None` for any other
/// line.
///
/// The level and all other short members stay, and the data is removed. The message is cut, with a
/// note of the line's length. The result is a whole line with a newline.
pub fn shortened(line: &[u8], limit: usize) -> Option<Vec<u8>> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    if text.len() <= limit || !rpc::is_log_line(text) {
        return None;
    }
    let json = Json::parse(text).ok()?;
    let params = json.get("params")?;
    let mut short = format!("{{\"jsonrpc\":\"2.0\",\"method\":{},\"params\":{{", json.get("method")?);
    for (name, value) in params.members() {
        let is_short = value.as_bytes().len() <= 256;
        if is_short && name != "message" && name != "data" {
            short.push_str(&format!("\"{}\":{value},", name.raw()));
        }
    }
    short.push_str("\"message\":\"");
    let note = format!("… (shortened: the log line had {} bytes)\"}}}}\n", text.len());
    let message = params.get("message").and_then(|message| message.text());
    let content = message.as_ref().map(Text::raw).unwrap_or_default();
    let room = limit.saturating_add(1).saturating_sub(short.len() + note.len());
    short.push_str(prefix(content, room));
    short.push_str(&note);
    Some(short.into_bytes())
}

/// The number of logs that are lost if this line is dropped. It is more than one if the line itself
/// reports dropped logs.
pub fn logs_in(line: &[u8]) -> u64 {
    const DROPPED: &[u8] = b"\"dropped\":";
    let counted = || {
        let place = line.windows(DROPPED.len()).position(|part| part == DROPPED)?;
        let digits = line.get(place + DROPPED.len()..)?;
        let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
        std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
    };
    counted().unwrap_or(1)
}

/// The longest prefix of a JSON string's content that has at most `room` bytes and cuts neither a
/// character nor an escape.
#[allow(clippy::match_same_arms, reason = "an arm for each row of the table of UTF-8")]
fn prefix(content: &str, room: usize) -> &str {
    let bytes = content.as_bytes();
    let mut end = 0;
    while let Some(first) = bytes.get(end) {
        let length = match (first, bytes.get(end + 1), bytes.get(end + 3)) {
            (b'\\', Some(b'u'), _) if is_high_surrogate(bytes.get(end + 2..end + 4)) => 12,
            (b'\\', Some(b'u'), _) => 6,
            (b'\\', ..) => 2,
            (0..0x80, ..) => 1,
            (0x80..0xe0, ..) => 2,
            (0xe0..0xf0, ..) => 3,
            (0xf0.., ..) => 4,
        };
        if end + length > room {
            break;
        }
        end += length;
    }
    content.get(..end).unwrap_or_default()
}

fn is_high_surrogate(digits: Option<&[u8]>) -> bool {
    matches!(digits, Some([b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B']))
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn a_log_is_shortened_to_the_byte_and_stays_json() {
        for unit in ["a", "\u{e9}", "\u{1f600}", "\\n", "\\u0001", "\\ud83d\\ude00", "\\\"", "\u{4e2d}x"] {
            for limit in 300..330 {
                let message = unit.repeat(400);
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{{\"level\":\"info\",\"message\":\"{message}\",\"data\":{{\"a\":1}}}}}}\n"
                );
                let short = shortened(line.as_bytes(), limit).unwrap();
                assert!(short.len() <= limit + 1 && short.len() + 12 > limit, "{unit} {limit}: {}", short.len());
                let json: serde_json::Value = serde_json::from_slice(&short).unwrap();
                assert_eq!(json["params"]["level"], "info");
                assert!(json["params"]["message"].as_str().unwrap().contains("shortened"), "{json}");
            }
        }
        assert!(shortened(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 3).is_none(), "a reply is not shortened");
    }
}
