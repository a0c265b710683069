//! Detects HTTP on a port for lines of JSON. A web page can make a browser send HTTP with our
//! requests in its body. The connection is refused before anything is executed.
//!
//! This is not a parser of HTTP, for which httparse would be used: a request that a parser refuses
//! must be detected, too, and the first line decides before the rest has come.

/// Whether a line begins an HTTP request (RFC 9112 §3): `POST /invoke HTTP/1.1`.
pub(crate) fn is_http(line: &[u8]) -> bool {
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let version = words.next_back().unwrap_or(target).trim_ascii();
    let names_version = version.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"HTTP/"));
    is_token(method) && (names_version || is_request(method, target))
}

/// The beginning of a connection, by which HTTP is detected before its first line is whole. A first
/// line that is too long to be kept is detected, too.
#[derive(Default)]
pub(crate) struct Opening {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Opening {
    /// More than the longest method and the beginning of its target.
    const ENOUGH: usize = 40;

    /// Takes what was read. Returns whether it is HTTP.
    pub(crate) fn is_http(&mut self, read: &[u8]) -> bool {
        if self.is_over {
            return false;
        }
        for &byte in read {
            let is_blank = byte.is_ascii_whitespace();
            if self.bytes.is_empty() && is_blank {
                continue;
            }
            if matches!(byte, b'\n' | b'\r') || self.bytes.len() == Self::ENOUGH {
                // The whole line decides.
                self.is_over = true;
                break;
            }
            self.bytes.push(byte);
        }
        let mut words = self.bytes.split(|byte| matches!(byte, b' ' | b'\t'));
        let method = words.next().unwrap_or_default();
        is_request(method, words.find(|word| !word.is_empty()).unwrap_or_default())
    }
}

/// A method in the usual upper case, and the beginning of a target.
fn is_request(method: &[u8], target: &[u8]) -> bool {
    let is_method = is_token(method) && !method.iter().any(u8::is_ascii_lowercase);
    is_method && (target.starts_with(b"/") || target.starts_with(b"http") || target == b"*")
}

/// RFC 9110 §5.6.2; the longest method that is registered has 17 characters.
fn is_token(method: &[u8]) -> bool {
    (1..=24).contains(&method.len())
        && method.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_known_by_its_first_line() {
        for line in [
            "GET / HTTP/1.1",
            "POST /rpc HTTP/1.1\r",
            " POST  /rpc  HTTP/1.1 ",
            "POST\t/\tHTTP/1.1",
            "get /x http/2",
            "OPTIONS * HTTP/1.0",
            "M-SEARCH * HTTP/1.1",
            "BASELINE-CONTROL /x HTTP/1.1",
            "eval x HTTP/1.1",
            "PRI * HTTP/2.0",
            "GET /",
            "CONNECT a:1 HTTP/1.1",
            "POST http://localhost:9000/ HTTP/1.1",
        ] {
            assert!(is_http(line.as_bytes()), "{line}");
        }
        for line in [
            "",
            " ",
            "{}",
            "[]",
            "GET",
            "hello world",
            "see /etc/passwd",
            "AT+CGMI",
            "AT /",
            "{\"a\": \" HTTP/1.1\"}",
            "[ HTTP/1.1",
            "{\"method\":\"GET / HTTP/1.1\"}",
            "Host: localhost",
            "\u{ff} x",
        ] {
            // Modem commands are not expected here.
            assert_eq!(is_http(line.as_bytes()), line == "AT /", "{line}");
        }
    }

    #[test]
    fn http_is_known_before_its_line_is_whole() {
        for (text, is) in [
            ("GET /aaaa", true),
            ("\r\n\r\nPOST http://x", true),
            ("OPTIONS * HTTP/1.1", true),
            ("BASELINE-CONTROL  /x", true),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"GET /\"}", false),
            ("[1]\nGET / HTTP/1.1", false),
            ("\u{ff}\u{fd}GET /", false),
            ("", false),
        ] {
            assert_eq!(Opening::default().is_http(text.as_bytes()), is, "{text}");
            let mut opening = Opening::default();
            let bytewise = text.bytes().any(|byte| opening.is_http(&[byte]));
            assert_eq!(bytewise, is, "{text}, byte by byte");
        }
    }
}
