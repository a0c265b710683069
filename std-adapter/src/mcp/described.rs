//! Answers from the manifest alone, so that no client waits for another client's call to list the tools.

use rigline::engine::{Engine, Memory};
use rigline::protocol::mcp;
use rigline::serve::Transport;
use rigline::serve::blocking::{Halves, Server};
use rigline::{Call, Context, Extension, Failure, Manifest, Outcome};

use crate::clock::TokioClock;

const LOG: usize = 1024;

/// The reply to a request that runs no operation, of at most `reply_limit` bytes; none where nothing is to be said.
pub(super) fn described(manifest: &'static Manifest, request: &str, reply_limit: usize) -> Option<Vec<u8>> {
    let mut input = request.as_bytes().to_vec();
    // Outside strings, where alone they can be, they are white space.
    input.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    input.push(b'\n');
    let (mut line, mut reply, mut log) = (vec![0; input.len() + 1], vec![0; reply_limit.saturating_add(1)], [0; LOG]);
    let memory = Memory { request: &mut line, reply: &mut reply };
    let mut engine = Engine::with_protocols(manifest, memory, &[mcp::MCP]).ok()?;
    let mut stream = Halves { reader: &*input, writer: Vec::new() };
    let (mut described, clock) = (Described(manifest), TokioClock::new());
    let server = Server::new(&mut described, &mut engine, &clock).transport(Transport::Stdio);
    server.log_buffer(&mut log).serve(&mut stream).ok()?;
    stream.writer.pop();
    (!stream.writer.is_empty()).then_some(stream.writer)
}

/// An extension that has a manifest, but runs nothing.
struct Described(&'static Manifest);

impl Extension for Described {
    fn manifest(&self) -> &'static Manifest {
        self.0
    }

    async fn call(&mut self, _: Call<'_>, _: &mut Context<'_>) -> Result<Outcome, Failure> {
        Err(Failure::UNKNOWN_OPERATION)
    }
}

#[cfg(test)]
mod tests {
    use rigline::{Operation, Schema};

    use super::*;

    #[test]
    fn a_reply_is_within_its_limit() {
        const LIST: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}";
        static NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let text = "what it does ".repeat(40).leak();
        let operations = NAMES.map(|name| Operation::new(name, Schema::OBJECT).description(text)).to_vec();
        let manifest = Box::leak(Box::new(Manifest::new("many", "1.0.0").operations(operations.leak())));
        let page = described(manifest, LIST, 2000).unwrap();
        assert!(page.len() <= 2000 && String::from_utf8(page).unwrap().contains("nextCursor"));
        assert!(!String::from_utf8(described(manifest, LIST, 8 << 20).unwrap()).unwrap().contains("nextCursor"));
    }
}
