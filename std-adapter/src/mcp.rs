//! MCP over HTTP: Streamable HTTP.

#[cfg(feature = "http")]
mod http;

#[cfg(feature = "http")]
#[doc(hidden)]
pub use http::ROUTES;
