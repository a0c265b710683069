//! Drives the rig over MCP with the official Rust client, in both eras.
//!
//!     rmcp-client stdio COMMAND ARG...
//!     rmcp-client http URL

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientRequest, ErrorCode, ProgressNotificationParam, ProtocolVersion, Request,
    ServerResult,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::json;

type Error = Box<dyn std::error::Error>;

#[derive(Clone, Default)]
struct Client {
    heard: Arc<Mutex<Vec<(f64, Option<f64>)>>>,
}

impl ClientHandler for Client {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.heard.lock().unwrap().push((params.progress, params.total));
    }
}

fn call(name: &str, arguments: serde_json::Value) -> CallToolRequestParams {
    let params = CallToolRequestParams::new(name.to_owned());
    match arguments {
        serde_json::Value::Object(arguments) => params.with_arguments(arguments),
        _ => params,
    }
}

async fn drive(era: &str, client: Client, service: RunningService<RoleClient, Client>) -> Result<(), Error> {
    let tools = service.list_all_tools().await?;
    assert!(tools.iter().any(|tool| tool.name == "self_test"), "{tools:?}");

    let measured: CallToolResult = service.call_tool(call("measure", json!({"channel": "3V3"}))).await?;
    assert!(measured.structured_content.is_some_and(|content| content.get("volts").is_some()));

    let request = ClientRequest::CallToolRequest(Request::new(call("self_test", json!({}))));
    let handle = service.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
    let ServerResult::CallToolResult(tested) = handle.await_response().await? else { panic!("another result") };
    assert_eq!(tested.structured_content, Some(json!({"passed": 6, "failed": 0})));
    let wanted: Vec<_> = (1..=6).map(|done| (f64::from(done), Some(6.0))).collect();
    assert_eq!(*client.heard.lock().unwrap(), wanted);

    let failed: CallToolResult = service.call_tool(call("measure", json!({"channel": "nope"}))).await?;
    assert_eq!(failed.is_error, Some(true));
    match service.call_tool(call("no_such_tool", json!({}))).await {
        Err(ServiceError::McpError(error)) => assert_eq!(error.code, ErrorCode::INVALID_PARAMS),
        other => panic!("an unknown tool: {other:?}"),
    }

    let forever = call("wait_for", json!({"channel": "AUX", "min": 9, "max": 10, "within_ms": 60000}));
    let request = ClientRequest::CallToolRequest(Request::new(forever));
    let handle = service.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    handle.cancel(Some("enough".to_owned())).await?;
    let started = Instant::now();
    service.call_tool(call("measure", json!({"channel": "3V3"}))).await?;
    assert!(started.elapsed() < Duration::from_secs(20), "the cancelled call still runs");
    service.cancel().await?;
    println!("rmcp {era}: lists, calls, progress, errors, cancels");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, first, rest @ ..] = words.as_slice() else { return Err("stdio COMMAND ARG... or http URL".into()) };
    let modern = || ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    for (era, is_modern) in [("2026-07-28", true), ("2025-11-25", false)] {
        let client = Client::default();
        let mode = if is_modern { modern() } else { ClientLifecycleMode::Initialize };
        let service = if kind == "stdio" {
            let mut command = tokio::process::Command::new(first);
            command.args(rest);
            client.clone().serve_with_lifecycle(TokioChildProcess::new(command)?, mode).await?
        } else {
            client.clone().serve_with_lifecycle(StreamableHttpClientTransport::from_uri(first.as_str()), mode).await?
        };
        drive(era, client, service).await?;
    }
    Ok(())
}
