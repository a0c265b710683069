//! MCP: the client that calls a server's tools, and the entries by which agents' programs find a
//! server.

pub mod check;
mod client;
pub mod config;
mod stream;

use rigline::json::Json;
use rigline_std::queue::Changes;

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
    changes: Some(&CHANGES),
    check: Some(&check::SUITE),
    ..Protocol::new("mcp", "MCP")
};

/// The list of tools has changed (Tools, List Changed Notification).
const CHANGES: Changes = Changes {
    notification: |subscription| {
        let params = subscription.map(|id| format!(r#","params":{{"_meta":{{"{SUBSCRIPTION}":{id}}}}}"#));
        let params = params.unwrap_or_default();
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed"{params}}}"#)
    },
    subscription: |acknowledgement| {
        let params = Json::parse(acknowledgement).ok()?.get("params")?;
        let is_wanted = params.get("notifications")?.get("toolsListChanged")?.bool()?;
        is_wanted.then(|| params.get("_meta")?.get(SUBSCRIPTION).map(|id| id.as_str().to_owned()))?
    },
};

/// The member of `_meta` with the id of a subscription.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
