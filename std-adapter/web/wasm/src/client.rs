//! The client half: request lines out, and what each line that comes back is.

use std::fmt::Write as _;

use rigline::client::{ClientSession, Incoming, ReplyBody, Request, write_refusal};
use rigline::json::RawJson;
use rigline::json::check::check;
use rigline::json::write::Writer;

/// How many words a record has:
///
/// | word | what |
/// |---|---|
/// | 0 | the [`What`] |
/// | 1 | the id of the request that it is about; 0 if there is none |
/// | 2, 3 | where the message, or the text that is none, stands in the line; its length |
/// | 4, 5 | where its words stand in the text for JavaScript: why a reply is of no use, or the answer to a request of the peer's |
pub const FIELDS: usize = 6;

/// The kind of a message. The numbers are part of the interface to JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// Text that is not a message, or one that nobody waits for.
    Noise = 0,
    /// A reply with a result.
    Result = 1,
    /// A reply with an error.
    Error = 2,
    /// A reply that is of no use.
    Invalid = 3,
    /// A log.
    Log = 4,
    /// A request of the peer's, with the line that refuses it.
    Refused = 5,
}

/// A session.
#[derive(Debug)]
pub struct WasmSession {
    client: ClientSession,
    records: Vec<u32>,
}

impl WasmSession {
    /// A session whose ids begin behind `base`.
    pub fn new(base: u32) -> Self {
        Self { client: ClientSession::new(base), records: Vec::new() }
    }

    /// The results of the last line, [`FIELDS`] words each.
    pub fn records(&self) -> &[u32] {
        &self.records
    }

    /// Writes a request's line, newline included, to `line`: the buffer has its method, of `method` bytes, and its parameters. Gives its id;
    /// `None` when too many are out, or the parameters are not JSON.
    pub fn request(&mut self, buffer: &[u8], method: usize, line: &mut String) -> Option<u32> {
        line.clear();
        let (method, params) = buffer.split_at_checked(method)?;
        let method = std::str::from_utf8(method).ok()?;
        check(params).ok()?;
        let mut params = params.to_vec();
        let request = Request::Other { method, params: RawJson::from_checked(&mut params).ok()? };
        let mut memory = vec![0; request.measure()];
        let mut out = Writer::new(&mut memory);
        let id = self.client.start(&request, &mut out).ok()?;
        line.push_str(std::str::from_utf8(out.as_written()).ok()?);
        Some(id)
    }

    /// Says what a line is; returns the number of records. `words` gets what they refer to.
    pub fn receive(&mut self, line: &[u8], words: &mut String) -> usize {
        words.clear();
        self.records.clear();
        // Microcontrollers send NULs when they start.
        let trim = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        let mut rest = line;
        while !rest.iter().all(trim) {
            let begin = rest.iter().position(|byte| !trim(byte)).unwrap_or_default();
            let end = rest.iter().rposition(|byte| !trim(byte)).map_or(0, |end| end + 1);
            let text = rest.get(begin..end).unwrap_or_default();
            let received = self.client.receive(text);
            let message_end = text.len() - received.rest.len();
            let message = text.get(received.before.len()..message_end).unwrap_or_default();
            let mut put = |what: What, id: u32, part: &[u8], said: &str| {
                let start = (part.as_ptr() as usize).wrapping_sub(line.as_ptr() as usize);
                let place = words.len();
                words.push_str(said);
                self.records.extend([
                    what as u32,
                    id,
                    small(start),
                    small(part.len()),
                    small(place),
                    small(said.len()),
                ]);
            };
            if !received.before.trim_ascii().is_empty() {
                put(What::Noise, 0, received.before, "");
            }
            let mut answered = None;
            match received.incoming {
                Incoming::Reply(reply) => match reply.body {
                    ReplyBody::Result(_) => put(What::Result, reply.id, message, ""),
                    ReplyBody::Error(_) => put(What::Error, reply.id, message, ""),
                    ReplyBody::Invalid(why) => put(What::Invalid, reply.id, message, why),
                    _ => put(What::Invalid, reply.id, message, "the reply is of no known kind"),
                },
                Incoming::Malformed(broken) => {
                    put(What::Noise, 0, message, "");
                    if let Some(id) = broken.id {
                        let mut why = String::new();
                        let _ = write!(why, "the answer is {broken}");
                        put(What::Invalid, id, message, &why);
                    }
                }
                // The peer could not read a request (JSON-RPC 2.0 §5): it must be the one that is out.
                Incoming::ErrorWithoutId { only: Some(id), .. } => {
                    answered = Some(id);
                    put(What::Error, id, message, "");
                }
                Incoming::Log(_) => put(What::Log, 0, message, ""),
                Incoming::Request(request) => {
                    let mut memory = [0; 1024];
                    let mut out = Writer::new(&mut memory);
                    write_refusal(&request, &mut out);
                    let refusal = std::str::from_utf8(out.as_written()).unwrap_or_default();
                    put(What::Refused, 0, message, refusal);
                }
                _ => put(What::Noise, 0, message, ""),
            }
            if let Some(id) = answered {
                self.client.forget(id);
            }
            // Each turn takes something off.
            rest = if received.rest.len() < text.len() { received.rest } else { &[] };
        }
        self.records.len() / FIELDS
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_find_their_requests() {
        let mut session = WasmSession::new(0);
        let mut line = String::new();
        let id = session.request(b"execute{\"a\":\n1}", 7, &mut line).unwrap();
        assert_eq!((id, &*line), (1, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"execute\",\"params\":{\"a\":1}}\n"));
        assert_eq!(session.request(b"execute{", 7, &mut line), None);
        let mut words = String::new();
        let text = b"boot {\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{}}{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}} \0\r";
        assert_eq!(session.receive(text, &mut words), 3);
        let kinds: Vec<_> = session.records().chunks(FIELDS).map(|record| (record[0], record[1])).collect();
        assert_eq!(kinds, [(0, 0), (4, 0), (1, 1)]);
        assert_eq!(session.receive(b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"m\"}", &mut words), 1);
        assert!(words.contains("-32601") && words.ends_with('\n'), "{words}");
    }
}
