//! MCP: Streamable HTTP, and what makes clients find a server.

#[cfg(feature = "http")]
mod http;

use crate::protocol::Protocol;

/// The entry in the registry.
pub(crate) const PROTOCOL: Protocol = Protocol {
    lines: Some(rigline::protocol::MCP),
    has_manifest: true,
    #[cfg(feature = "http")]
    http: Some(&http::ROUTES),
    ..Protocol::new("mcp", "MCP")
};
