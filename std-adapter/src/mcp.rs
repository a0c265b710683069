//! MCP: a selection of an extension's operations for agents, and Streamable HTTP.

#[cfg(feature = "http")]
mod http;
mod select;

#[cfg(feature = "http")]
#[doc(hidden)]
pub use http::ROUTES;
pub use select::{Selected, Selection};
