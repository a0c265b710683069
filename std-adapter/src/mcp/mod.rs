//! MCP: agents' programs as clients of extensions. Streamable HTTP, the client's side, and what makes clients find a server.

#[cfg(feature = "check")]
pub mod check;
mod client;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "http")]
mod http;
mod select;
#[cfg(feature = "http-client")]
mod stream;

pub use select::{Selected, Selection};

use crate::protocol::Protocol;

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(rigline::protocol::MCP),
    has_manifest: true,
    client: Some(client::connect),
    reading: Some(&crate::traffic::JSON_RPC),
    #[cfg(feature = "http")]
    http: Some(&http::ROUTES),
    #[cfg(feature = "check")]
    check: Some(&check::SUITE),
    ..Protocol::new("mcp", "MCP")
};
