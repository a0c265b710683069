//! Amplifier's protocol over HTTP (PROTOCOLS.md §2).

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::http::{Endpoint, Options, Route, Routes};

pub(super) const ROUTES: Routes = Routes {
    protocol: rigline::protocol::AMPLIFIER,
    routes: &[
        // At once, even while a call runs.
        Route { path: Some("/health"), endpoint: Endpoint::Health("{\"status\":\"ok\"}\n") },
        Route { path: Some("/describe"), endpoint: Endpoint::Line("{\"op\":\"describe\"}\n") },
        Route { path: Some("/invoke"), endpoint: Endpoint::Request },
    ],
    refusal,
    dialect: None,
};

impl Options {
    /// For Amplifier's hosts.
    pub fn amplifier() -> Self {
        Self::new(&ROUTES)
    }
}

/// PROTOCOLS.md §4.
fn refusal(status: StatusCode, text: &str) -> Value {
    let code = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "forbidden",
        StatusCode::REQUEST_TIMEOUT => "timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "oom",
        StatusCode::SERVICE_UNAVAILABLE => "unreachable",
        StatusCode::INTERNAL_SERVER_ERROR => "internal",
        _ => "bad_request",
    };
    json!({ "ok": false, "error": { "code": code, "message": text } })
}
