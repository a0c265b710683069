//! namel3ss's service runner over HTTP.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::handshake;
use crate::http::{Endpoint, Options, Route, Routes};

pub(super) const ROUTES: Routes = Routes {
    protocol: rigline::protocol::NAMEL3SS,
    routes: &[
        Route { path: None, endpoint: Endpoint::Request },
        Route { path: Some(handshake::PATH), endpoint: Endpoint::Answer(handshake::answer) },
    ],
    refusal,
    dialect: None,
};

impl Options {
    /// For namel3ss's service runner.
    pub fn namel3ss() -> Self {
        Self::new(&ROUTES)
    }
}

fn refusal(status: StatusCode, text: &str) -> Value {
    let error_type = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "CapabilityViolation",
        StatusCode::REQUEST_TIMEOUT => "TimeoutError",
        StatusCode::PAYLOAD_TOO_LARGE => "MemoryError",
        StatusCode::SERVICE_UNAVAILABLE => "OperationFailed",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        _ => "ProtocolError",
    };
    json!({ "ok": false, "protocol_version": 1, "error": { "type": error_type, "message": text } })
}
