//! MCP: the client that calls a server's tools, and the entries by which agents' programs find a
//! server.

pub mod check;
mod client;
pub mod config;
mod stream;

use crate::client::Part;
use crate::protocol::Protocol;
pub(crate) use client::{client_of, describes_server, initialize, with_logs};

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(rigline::protocol::MCP),
    has_manifest: true,
    carries: &[Part::Types, Part::Blocks, Part::Logs, Part::Cancel],
    client: Some(client::connect),
    reading: Some(&crate::decode::JSON_RPC),
    http: Some(&rigline_std::mcp::ROUTES),
    check: Some(&check::SUITE),
    ..Protocol::new("mcp", "MCP")
};
