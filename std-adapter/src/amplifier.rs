//! Amplifier's protocol over HTTP, see [`Options::amplifier`](crate::http::Options::amplifier).

mod http;

pub use http::ROUTES;
