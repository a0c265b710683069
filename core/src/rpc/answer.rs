//! Answers whole lines of JSON-RPC 2.0 for servers that have their own methods and no
//! [`Extension`](crate::Extension).

use crate::frame::TooLong;
use crate::json::check::{NO_SPANS, SyntaxError};
use crate::json::write::Writer;
use crate::json::{Json, Text};
use crate::message::{Envelope, Received};
use crate::rpc::{self, end_line, invalid_request, writer};

/// A request or a notification with a valid envelope (JSON-RPC 2.0 §4).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Incoming<'t> {
    /// The method of the request.
    pub method: Text<'t>,
    /// The parameters of the request; null if there are none.
    pub params: Json<'t>,
    /// Whether the message has no id and gets no reply. Anything that is written for it is dropped.
    pub is_notification: bool,
}

/// Answers one line, which may be a batch (§6). Returns the reply as a whole line with its newline,
/// in `memory`. Returns none if there is no reply.
///
/// `serve` is called once for each request and notification, in their order. It writes the part of
/// the reply after its head, `,"result":…}` or `,"error":{…}}`, as
/// [`waza::answer`](crate::protocol::waza::answer) does. Messages that are not valid requests are
/// answered by this function, and replies are not answered.
///
/// The reply can be one byte shorter than `memory`. In place of a longer reply the caller gets
/// error -32603 with the size that is needed. `memory` should therefore have
/// [`LEAST_REPLY`](crate::exchange::LEAST_REPLY) bytes or more. The replies of a batch share the
/// memory, and room is kept for an error reply to each later member. A batch of more than
/// [`MAX_BATCH`](rpc::MAX_BATCH) members gets one error -32600, and none of it runs.
///
/// ```
/// use rigline::rpc;
///
/// let mut memory = [0; 600];
/// let line = br#"[{"jsonrpc":"2.0","id":1,"method":"add","params":[1,2]},{"jsonrpc":"2.0","method":"add"}]"#;
/// let mut calls = 0;
/// let reply = rpc::answer(line, &mut memory, &mut |_, out| {
///     calls += 1;
///     out.raw(b",\"result\":3}");
/// });
/// assert_eq!(reply, Some(&b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":3}]\n"[..]));
/// assert_eq!(calls, 2);
/// ```
pub fn answer<'o>(
    line: &[u8],
    memory: &'o mut [u8],
    serve: &mut dyn FnMut(Incoming<'_>, &mut Writer<'_>),
) -> Option<&'o [u8]> {
    let limit = memory.len().saturating_sub(1);
    let end = match line.trim_ascii_start().first() {
        Some(b'[') => batch(line, memory, limit, serve),
        _ => {
            let mut spans = NO_SPANS;
            match rpc::scan(line, &mut spans) {
                Ok(()) => member(&Received::whole(line, &spans), memory, 0, limit, serve),
                Err(error) => Some(parse_error(&mut writer(memory, 0, limit), error)),
            }
        }
    }?;
    Some(end_line(memory, end))
}

/// Answers a line that was longer than the limit of a [`Framer`](crate::frame::Framer).
pub fn answer_too_long(fault: TooLong, memory: &mut [u8]) -> &[u8] {
    let limit = memory.len().saturating_sub(1);
    let end = {
        let mut out = writer(memory, 0, limit);
        begin_parse_error(&mut out);
        rpc::end_too_long(&mut out, fault)
    };
    end_line(memory, end)
}

fn batch(
    line: &[u8],
    memory: &mut [u8],
    limit: usize,
    serve: &mut dyn FnMut(Incoming<'_>, &mut Writer<'_>),
) -> Option<usize> {
    let mut spans = NO_SPANS;
    let mut reserve = match rpc::reserve_for_batch(line, limit, &mut spans) {
        Ok(Ok(reserve)) => reserve,
        Ok(Err(fault)) => return Some(invalid_request(&mut writer(memory, 0, limit), b"", fault)),
        Err(error) => return Some(parse_error(&mut writer(memory, 0, limit), error)),
    };
    let mut end = 0;
    // Behind the opening bracket, and then behind each member.
    let mut next = line.iter().position(|byte| *byte == b'[')?.wrapping_add(1);
    while let Some(found) = rpc::next_member(line, next, &mut spans) {
        next = found.end;
        let received = Received::whole(line.get(found).unwrap_or_default(), &spans);
        reserve = reserve.saturating_sub(rpc::reserve(&received));
        let start = end + 1;
        // The closing bracket goes behind the last.
        let most = limit.saturating_sub(reserve.saturating_add(1));
        if let Some(to) = member(&received, memory, start, most, serve) {
            if let Some(place) = memory.get_mut(end) {
                *place = if end == 0 { b'[' } else { b',' };
            }
            end = to;
        }
    }
    if end == 0 {
        return None;
    }
    if let Some(place) = memory.get_mut(end) {
        *place = b']';
    }
    Some(end + 1)
}

/// Answers one message at `start` of `memory`; returns where the reply ends.
fn member(
    received: &Received<'_>,
    memory: &mut [u8],
    start: usize,
    limit: usize,
    serve: &mut dyn FnMut(Incoming<'_>, &mut Writer<'_>),
) -> Option<usize> {
    let mut out = writer(memory, start, limit);
    let (id, is_notification) = match rpc::envelope(received) {
        Envelope::Reply => return None,
        Envelope::Invalid { text: fault, id } => return Some(invalid_request(&mut out, received.of(id), fault)),
        Envelope::Request { id } => (received.of(id), false),
        Envelope::Notification => (&b""[..], true),
    };
    let (method, params) = rpc::method_and_params(received)?;
    let incoming = Incoming { method, params, is_notification };
    if is_notification {
        serve(incoming, &mut Writer::new(&mut []));
        return None;
    }
    rpc::write_head(&mut out, id);
    let head = out.len();
    serve(incoming, &mut out);
    if out.fits() {
        return Some(out.len());
    }
    let (needed, capacity) = (out.needed().saturating_sub(start), out.capacity().saturating_sub(start));
    out.truncate(head);
    rpc::begin_error(&mut out, rpc::INTERNAL_ERROR);
    out.raw(b"reply too large: it needs ");
    out.usize(needed);
    out.raw(b" bytes, there is room for ");
    out.usize(capacity);
    rpc::end_error(&mut out);
    Some(out.len())
}

fn begin_parse_error(out: &mut Writer<'_>) {
    rpc::write_head(out, b"");
    rpc::begin_error(out, rpc::PARSE_ERROR);
}

fn parse_error(out: &mut Writer<'_>, error: SyntaxError) -> usize {
    begin_parse_error(out);
    rpc::end_parse_error(out, error)
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::*;

    fn answered(line: &str, room: usize) -> (String, usize) {
        let mut memory = std::vec![0; room];
        let mut calls = 0;
        let reply = answer(line.as_bytes(), &mut memory, &mut |incoming, out| {
            calls += 1;
            if incoming.method == "long" {
                out.raw(b",\"result\":\"");
                out.raw(&[b'x'; 2000]);
                out.raw(b"\"}");
            } else {
                out.raw(b",\"result\":");
                out.raw(incoming.params.as_bytes());
                out.byte(b'}');
            }
        });
        (reply.map(|reply| String::from_utf8_lossy(reply).to_string()).unwrap_or_default(), calls)
    }

    #[test]
    fn lines_are_answered_as_json_rpc_has_it() {
        let table = [
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}"#,
                r#"{"jsonrpc":"2.0","id":"a","result":{"x":1}}"#,
                1,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, r#"{"jsonrpc":"2.0","id":1,"result":null}"#, 1),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, "", 1),
            (r#"{"jsonrpc":"2.0","id":1,"result":2}"#, "", 0),
            (r#"[{"jsonrpc":"2.0","method":"m"}]"#, "", 1),
            (
                r#" [1, {"jsonrpc":"2.0","id":7,"method":"m"}]"#,
                r#"[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: a request must be an object"}},{"jsonrpc":"2.0","id":7,"result":null}]"#,
                1,
            ),
            (
                "[]",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: an empty batch"}}"#,
                0,
            ),
            (
                "{",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: the line ends inside a value; a message must be complete and on one line at byte 1"}}"#,
                0,
            ),
        ];
        for (line, reply, calls) in table {
            let (told, called) = answered(line, 900);
            assert_eq!((told.trim_end(), called), (reply, calls), "{line}");
        }
    }

    #[test]
    fn a_line_over_the_limit_is_a_parse_error_that_tells_both_lengths() {
        let reply = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"line too long: 12 bytes, the limit is 10"}}"#;
        let told = answer_too_long(TooLong { limit: 10, dropped: 12 }, &mut [0; 200]).to_vec();
        assert_eq!(told, [&reply[..], b"\n"].concat());
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_tells_the_size() {
        let one = r#"{"jsonrpc":"2.0","id":1,"method":"long"}"#;
        assert_eq!(answered(one, 2037).0.len(), 2037);
        assert!(answered(one, 2036).0.contains("it needs 2036 bytes, there is room for 2035"));
        let (told, calls) = answered(&std::format!("[{one},{one},{one}]"), 4500);
        assert_eq!((told.matches("xxxx").count() > 0, told.matches("-32603").count(), calls), (true, 1, 3));
        assert!(told.ends_with("]\n"));
        let many = std::vec![one; 65].join(",");
        assert_eq!(answered(&std::format!("[{many}]"), 4500).1, 0);
    }
}
