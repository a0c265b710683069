//! Requests: ids, methods, batches, and what is not a request.

use rigline::json::{Json, JsonKind};
use serde_json::Value;

use super::common::{NO_METHOD, NO_OPERATION, execute, expect_next, unknown};
use crate::check::{Bench, Verdict, cut};

pub(super) const STRING_IDS: &[&str] =
    &["\"1\"", "\"abc-123\"", r#""a\"b\\c""#, r#""\u00e9\n""#, "\"7b9e2d4a-0c1f-4e5d-9a8b-112233445566\"", "\"\""];

/// `lenient`: an id that is refused with -32600 and id null is right too.
pub(super) async fn ids(bench: &mut Bench, ids: &[&str], lenient: bool) -> Verdict {
    let mut peer = bench.session().await?;
    for id in ids {
        for method in [NO_METHOD, "execute"] {
            let params = if method == "execute" { execute(NO_OPERATION, "{}") } else { "{}".to_owned() };
            peer.request(id, method, &params).await?;
            let reply = peer.any_reply().await?;
            let got = reply.id();
            if same(&got, id) || lenient && got == "null" && reply.code() == Some(-32600) {
                continue;
            }
            return bench.fail(format!("the id {id} came back as {}", if got.is_empty() { "none" } else { &got }));
        }
    }
    Ok(None)
}

/// Whether two ids are the same JSON value.
fn same(a: &str, b: &str) -> bool {
    let text =
        |id: &str| Json::parse(id.as_bytes()).ok().and_then(|id| id.text().map(|text| text.to_cow().into_owned()));
    let number = |id: &str| match Json::parse(id.as_bytes()).ok()?.kind() {
        JsonKind::Number => id.parse::<f64>().ok().filter(|number| number.abs() < 9e15),
        _ => None,
    };
    a == b
        || text(a).is_some_and(|a| Some(a) == text(b))
        || number(a).is_some_and(|a| number(b).is_some_and(|b| a.total_cmp(&b).is_eq()))
}

pub(super) async fn invalid_ids(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for id in ["{}", "[1]", "true"] {
        peer.send_line(unknown(id)).await?;
        let reply = peer.any_reply().await?;
        reply.expect_error(&[-32600])?;
        if reply.id() != "null" {
            return bench.fail(format!("the id {id} is not an id, and came back as {}", reply.id()));
        }
    }
    Ok(None)
}

pub(super) async fn unknown_method(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.ask(NO_METHOD, "{}").await?.expect_error(&[-32601])?;
    Ok(None)
}

pub(super) async fn notifications(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send(
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"{NO_METHOD}\"}}\n\
             {{\"jsonrpc\":\"2.0\",\"method\":\"execute\",\"params\":{{\"operation\":\"{NO_OPERATION}\"}}}}\n\
             {{\"jsonrpc\":\"2.0\",\"method\":\"execute\",\"params\":17}}\n"
        )
        .as_bytes(),
    )
    .await?;
    expect_next(&mut peer, "a notification was answered").await
}

pub(super) async fn replies(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send(
        b"{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n\
          {\"jsonrpc\":\"2.0\",\"id\":98,\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}\n",
    )
    .await?;
    expect_next(&mut peer, "a reply was answered").await
}

pub(super) async fn invalid_requests(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let table = [
        ("{}", "null"),
        ("\"hi\"", "null"),
        ("3", "null"),
        ("[]", "null"),
        (r#"{"jsonrpc":"2.0","id":4}"#, "4"),
        (r#"{"jsonrpc":"2.0","id":4,"method":1}"#, "4"),
        (r#"{"jsonrpc":"1.0","id":4,"method":"rigline/no-such-method"}"#, "4"),
    ];
    for (line, id) in table {
        peer.send_line(line).await?;
        let reply = peer.any_reply().await?;
        // A peer that does not look at the version may serve it.
        let served = line.contains("\"1.0\"") && reply.code() == Some(-32601);
        if !served {
            reply.expect_error(&[-32600])?;
        }
        let got = reply.id();
        if got != id && got != "null" {
            return bench.fail(format!("the reply to {line} must have the id {id}, and has {got:?}"));
        }
    }
    expect_next(&mut peer, "an invalid request was answered twice").await
}

pub(super) async fn batch(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send_line(format!("[{},{{\"jsonrpc\":\"2.0\",\"method\":\"x\"}},{}]", unknown("901"), unknown("902"))).await?;
    let reply = peer.any_reply().await?;
    let replies: Value = serde_json::from_str(reply.line()).unwrap_or_default();
    let Some(replies) = replies.as_array() else {
        reply.expect_error(&[-32600])?;
        return Ok(Some("it does not support batches".to_owned()));
    };
    let mut ids: Vec<_> = replies.iter().filter_map(|reply| reply["id"].as_i64()).collect();
    ids.sort_unstable();
    if ids != [901, 902] || replies.len() != 2 {
        let got = cut(reply.line().as_bytes());
        return bench.fail(format!("a batch of two requests and a notification was answered by {got}"));
    }
    expect_next(&mut peer, "a batch was answered twice").await
}
