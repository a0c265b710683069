//! Amplifier's protocol over HTTP (Amplifier “Protocols” §2).

use serde_json::json;

use crate::http::{Options, Route, Routes};

/// The paths of Amplifier's protocol over HTTP: `/health`, `/describe` and `/invoke`.
pub const ROUTES: Routes = Routes::new(
    rigline::protocol::AMPLIFIER,
    &[
        Route::fixed("/health", "{\"status\":\"ok\"}"),
        Route::line("/describe", "{\"op\":\"describe\"}"),
        Route::request("/invoke"),
    ],
    refusal,
);

impl Options {
    /// Options for a server for Amplifier's hosts.
    pub fn amplifier() -> Self {
        Self::new(&ROUTES)
    }
}

/// Amplifier's protocol text §4.
fn refusal(status: u16, text: &str) -> String {
    let code = match status {
        401 | 403 => "forbidden",
        408 => "timeout",
        413 => "oom",
        503 => "unreachable",
        500 => "internal",
        _ => "bad_request",
    };
    json!({ "ok": false, "error": { "code": code, "message": text } }).to_string()
}
