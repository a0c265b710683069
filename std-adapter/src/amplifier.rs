//! Amplifier's protocol over HTTP: [`Options::amplifier`](crate::http::Options::amplifier).

mod http;

pub use http::ROUTES;
