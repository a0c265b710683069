//! Common parts of several cases.

use serde_json::{Map, Value};

use crate::check::{Bench, CaseFailure, Peer, Verdict, cut};

/// A method that no extension has.
pub(super) const NO_METHOD: &str = "rigline/no-such-method";
/// An operation that no extension has.
pub(super) const NO_OPERATION: &str = "rigline-no-such-operation";

/// The longest request that the manifest says to fit.
pub(super) async fn request_limit(bench: &mut Bench) -> Result<Option<usize>, CaseFailure> {
    let manifest = bench.manifest().await?;
    Ok(manifest["limits"]["request"].as_u64().and_then(|limit| usize::try_from(limit).ok()))
}

pub(super) async fn operations(bench: &mut Bench) -> Result<Map<String, Value>, CaseFailure> {
    match bench.manifest().await?["operations"].take() {
        Value::Object(operations) => Ok(operations),
        _ => Err(CaseFailure::Skip("the manifest has no operations".to_owned())),
    }
}

/// The next reply must be the one to a request that is sent now.
pub(super) async fn expect_next(peer: &mut Peer, fault: &str) -> Verdict {
    let id = peer.next_id();
    peer.send_line(unknown(&id)).await?;
    let reply = peer.any_reply().await?;
    if reply.id() == id {
        Ok(None)
    } else {
        Err(CaseFailure::Fail(format!("{fault}: {}", cut(reply.line().as_bytes()))))
    }
}

/// The params of `execute`.
pub(super) fn execute(operation: &str, args: &str) -> String {
    let operation = Value::from(operation);
    format!(r#"{{"operation":{operation},"args":{args},"context":{{"workdir":"/tmp","phase":"setup"}}}}"#)
}

/// A request for a method that no extension has.
pub(super) fn unknown(id: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\",\"params\":{{}}}}")
}
