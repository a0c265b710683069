//! Lines that are not JSON: a message with something before it, and damaged messages.

use super::incoming::{Anomalies, Incoming, Malformed, MalformedKind, NonProtocolKind, Received};
use super::{ClientSession, NO_SPANS, non_protocol, scan};
use crate::json::check::{SyntaxError, SyntaxErrorKind};
use crate::rpc;

/// How many places of a damaged line are tried as the beginning of a message.
const CANDIDATES: usize = 8;

impl ClientSession {
    /// Looks at a line that is not JSON.
    pub(super) fn recover<'t>(&mut self, text: &'t [u8], error: SyntaxError) -> Received<'t> {
        let mut broken = (text, error);
        // A terminal's escape sequence, a banner without newline or the rest of a lost line may stand before the message.
        for at in objects(text).take(CANDIDATES) {
            let Some((before, message)) = text.split_at_checked(at) else { break };
            let mut spans = NO_SPANS;
            let (message, rest, error) = match scan(message, &mut spans) {
                Ok(()) => (message, &[][..], None),
                Err(SyntaxError { kind: SyntaxErrorKind::TrailingData, offset }) => {
                    let (first, rest) = message.split_at_checked(offset).unwrap_or((message, &[]));
                    // It is part of something larger.
                    if matches!(rest.first(), Some(b'}' | b']' | b',' | b'"')) {
                        continue;
                    }
                    spans = NO_SPANS;
                    (first, rest, scan(first, &mut spans).err())
                }
                Err(error) => (message, &[][..], Some(error)),
            };
            if let Some(error) = error {
                if broken.0.first() != Some(&b'{') && has_top_level(message, b"jsonrpc") {
                    broken = (message, error);
                }
            } else if rpc::is_version_2(spans[rpc::JSONRPC].of(message))
                && let Ok(received) = self.classify(message, &spans, Anomalies::EXTRA_TEXT)
            {
                self.open = false;
                return Received { before, rest, ..received };
            }
        }
        self.damaged(broken.0, broken.1).unwrap_or_else(|| non_protocol(text, NonProtocolKind::NotJson(error)))
    }

    /// A line that is not JSON but looks like a message.
    fn damaged<'t>(&mut self, text: &'t [u8], error: SyntaxError) -> Option<Received<'t>> {
        let broken = |id, fault| Some(Received::of(Incoming::Malformed(Malformed { id, fault, text })));
        if self.open {
            let key = text.strip_prefix(b"\"").and_then(|text| text.split(|byte| *byte == b'"').next());
            if key == Some(b"method") {
                self.open = false;
                return broken(None, MalformedKind::SeveralLines);
            }
            if key == Some(b"id") {
                let id = text.get(4..).and_then(value_of_key).filter(|id| self.is_pending(*id));
                if let Some(id) = id {
                    self.open = false;
                    self.forget(id);
                    return broken(Some(id), MalformedKind::SeveralLines);
                }
            }
        }
        if text.first() != Some(&b'{') {
            return None;
        }
        let several_lines =
            error.kind == SyntaxErrorKind::UnexpectedEnd && matches!(text.last(), Some(b'{' | b'[' | b',' | b':'));
        self.open = several_lines;
        let fault = if several_lines { MalformedKind::SeveralLines } else { MalformedKind::Syntax(error) };
        let mut id = None;
        for (key, value) in TopLevel::new(text) {
            match key {
                // A damaged notification or request fails no call.
                b"method" => return broken(None, fault),
                b"id" if id.is_none() => id = value_of_key(value).filter(|id| self.is_pending(*id)),
                _ => {}
            }
        }
        if let Some(id) = id {
            self.open = false;
            self.forget(id);
        } else if !has_top_level(text, b"jsonrpc") {
            return None;
        }
        broken(id, fault)
    }
}

/// Where in a text an object with members may begin.
fn objects(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let begins = |at: usize| {
        let rest = text.get(at.wrapping_add(1)..).unwrap_or_default();
        rest.trim_ascii_start().first() == Some(&b'"')
    };
    text.iter().enumerate().filter(|(_, byte)| **byte == b'{').map(|(at, _)| at).filter(move |at| begins(*at))
}

fn has_top_level(text: &[u8], name: &[u8]) -> bool {
    TopLevel::new(text).any(|(key, _)| key == name)
}

/// The number behind a key, a colon before it.
fn value_of_key(text: &[u8]) -> Option<u32> {
    let value = text.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let length = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    str::from_utf8(value.get(..length)?).ok()?.parse().ok()
}

/// The members of the outermost object of a damaged text: what stands between a name's quotes, and everything behind it.
/// Up to the fault this is exact, and a guess from there on.
struct TopLevel<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl<'t> TopLevel<'t> {
    fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied();
        self.at = self.at.wrapping_add(1);
        byte
    }
}

impl<'t> Iterator for TopLevel<'t> {
    type Item = (&'t [u8], &'t [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.take()? {
                b'{' | b'[' => self.depth = self.depth.wrapping_add(1),
                b'}' | b']' if self.depth <= 1 => return None,
                b'}' | b']' => self.depth = self.depth.wrapping_sub(1),
                b'"' => {
                    let start = self.at;
                    loop {
                        match self.take()? {
                            b'\\' => {
                                self.take();
                            }
                            b'"' => break,
                            _ => {}
                        }
                    }
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    if self.depth == 1 && rest.trim_ascii_start().first() == Some(&b':') {
                        return Some((self.text.get(start..self.at.wrapping_sub(1)).unwrap_or_default(), rest));
                    }
                }
                _ => {}
            }
        }
    }
}
