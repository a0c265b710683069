//! namel3ss's service runner over HTTP.

use serde_json::json;

use super::handshake;
use crate::http::{Endpoint, Options, Route, Routes};

/// The paths of namel3ss's service protocol over HTTP: [`Options::path`], and the handshake.
pub const ROUTES: Routes = Routes::new(
    rigline::protocol::NAMEL3SS,
    &[Route::new(None, Endpoint::Request), Route::answer(handshake::PATH, handshake::answer)],
    refusal,
);

impl Options {
    /// Options for a server for namel3ss's service runner.
    pub fn namel3ss() -> Self {
        Self::new(&ROUTES)
    }
}

fn refusal(status: u16, text: &str) -> String {
    let error_type = match status {
        401 | 403 => "CapabilityViolation",
        408 => "TimeoutError",
        413 => "MemoryError",
        503 => "OperationFailed",
        500 => "InternalError",
        _ => "ProtocolError",
    };
    json!({ "ok": false, "protocol_version": 1, "error": { "type": error_type, "message": text } }).to_string()
}
