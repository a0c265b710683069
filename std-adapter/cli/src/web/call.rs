//! One call over HTTP, for programs that have no WebSocket.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use rigline::json::Json;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, split};
use tokio_util::sync::CancellationToken;

use super::targets::Lease;
use super::{json_response, json_text};
use rigline_std::queue::Client;

const INITIALIZE: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"0.0.1\"}}\n";
const SHUTDOWN: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"shutdown\"}\n";

/// How often a call that runs looks for its client.
const WATCH: Duration = Duration::from_millis(200);

/// Calls an operation in a session for this call only, which leaves outputs as they are. When the client is gone, or the server stops, its
/// call is cancelled.
pub(super) async fn call(
    lease: Lease,
    name: &str,
    params: &[u8],
    client: &Client,
    stop: &CancellationToken,
) -> Response {
    let gone = async {
        while !client.is_gone() {
            tokio::time::sleep(WATCH).await;
        }
    };
    let answer = tokio::select! {
        answer = exchange(lease, name, params) => answer,
        () = gone => None,
        () = stop.cancelled() => {
            Some(failure(StatusCode::SERVICE_UNAVAILABLE, "the server stops, and the call was cancelled", None))
        }
    };
    answer.unwrap_or_else(|| failure(StatusCode::BAD_GATEWAY, "the extension has ended", None))
}

async fn exchange(lease: Lease, name: &str, params: &[u8]) -> Option<Response> {
    let (stream, _guard) = lease.open(name);
    let (reader, mut writer) = split(stream);
    let execute = [b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"execute\",\"params\":", params, b"}\n"].concat();
    let mut lines = BufReader::new(reader).split(b'\n');
    let (mut answer, mut is_sent) = (None, false);
    writer.write_all(INITIALIZE).await.ok()?;
    while answer.is_none() {
        let line = lines.next_segment().await.ok()??;
        answer = answer_in(&line);
        // Not before the session has begun: a call that is reported as failed must not run after all.
        if answer.is_none() && !is_sent && id_of(Json::parse(&line).ok()) == Some(b"1") {
            is_sent = true;
            writer.write_all(&execute).await.ok()?;
        }
    }
    writer.write_all(SHUTDOWN).await.ok();
    while let Ok(Some(line)) = lines.next_segment().await {
        if id_of(Json::parse(&line).ok()) == Some(b"3") {
            break;
        }
    }
    answer
}

/// The client's answer, if this line tells the end of the call.
fn answer_in(line: &[u8]) -> Option<Response> {
    let reply = Json::parse(line).ok()?;
    let id = id_of(Some(reply))?;
    let error = reply.get("error");
    if id != b"2" && (id != b"1" || error.is_none()) {
        return None;
    }
    let Some(error) = error else {
        let result = String::from_utf8_lossy(reply.get("result")?.as_bytes()).into_owned();
        return Some(json_text(StatusCode::OK, result));
    };
    let error: Value = serde_json::from_slice(error.as_bytes()).unwrap_or_default();
    let status = match error["code"].as_i64() {
        Some(-32_602..=-32_600) => StatusCode::BAD_REQUEST,
        Some(-32_001) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    Some(failure(status, error["message"].as_str().unwrap_or_default(), error["code"].as_i64()))
}

fn id_of(message: Option<Json<'_>>) -> Option<&[u8]> {
    Some(message?.get("id")?.as_bytes())
}

fn failure(status: StatusCode, text: &str, code: Option<i64>) -> Response {
    json_response(status, &json!({ "error": text, "code": code }))
}
