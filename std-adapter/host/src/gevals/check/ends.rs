//! How sessions end.

use serde_json::json;

use super::common::{NO_OPERATION, execute};
use crate::check::{Bench, Reply, Verdict, cut};

pub(super) async fn one_shot(bench: &mut Bench) -> Verdict {
    shoot(bench, "\n").await
}

pub(super) async fn one_shot_without_newline(bench: &mut Bench) -> Verdict {
    shoot(bench, "").await
}

async fn shoot(bench: &mut Bench, end: &str) -> Verdict {
    if bench.is_live() {
        return bench.skip("only programs have a one-shot mode");
    }
    let (name, args) = match bench.permitted_calls().await {
        Ok(mut calls) => calls.swap_remove(0),
        Err(_) => (NO_OPERATION.to_owned(), json!({})),
    };
    let mut peer = bench.connect().await?;
    let params = execute(&name, &args.to_string());
    peer.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"execute\",\"params\":{params}}}{end}").as_bytes())
        .await?;
    peer.close_input().await;
    let replies = peer.rest().await?;
    let is_it = |reply: &Reply| reply.id() == "1";
    match replies.as_slice() {
        [reply] if is_it(reply) => {}
        [] => return bench.fail("the end of input came, and no answer"),
        replies => return bench.fail(format!("expected one answer, got {}", replies.len())),
    }
    match peer.exit(bench.shutdown_timeout()).await {
        Some(_) => Ok(None),
        None => bench.fail("it does not exit after its only request"),
    }
}

pub(super) async fn shutdown_reply(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let id = peer.next_id();
    peer.request(&id, "shutdown", "{}").await?;
    match peer.reply_or_end().await? {
        Some(reply) if reply.id() == id && reply.result().is_some() => Ok(None),
        Some(reply) => bench.fail(format!("shutdown was answered with {}", cut(reply.line().as_bytes()))),
        None => match peer.exit(bench.shutdown_timeout()).await {
            Some(exit) if exit.is_success() => {
                Ok(Some("it exits without a reply, which the real host accepts".to_owned()))
            }
            exit => bench
                .fail(format!("it ended without a reply{}", exit.map(|exit| format!(": {exit}")).unwrap_or_default())),
        },
    }
}

pub(super) async fn shutdown_params(bench: &mut Bench) -> Verdict {
    for params in ["", "null", "[]"] {
        let mut peer = bench.session().await?;
        let id = peer.next_id();
        peer.request(&id, "shutdown", params).await?;
        if let Some(reply) = peer.reply_or_end().await?
            && let Some(error) = reply.error()
        {
            let params = if params.is_empty() { "no params" } else { params };
            return bench.fail(format!("shutdown with {params} was refused: {error}"));
        }
    }
    Ok(None)
}

pub(super) async fn shutdown_exit(bench: &mut Bench) -> Verdict {
    if bench.is_live() {
        return bench.skip("only programs exit");
    }
    let mut peer = bench.session().await?;
    peer.request("950", "shutdown", "{}").await?;
    let _ = peer.reply_or_end().await?;
    // The real host leaves standard input open.
    match peer.exit(bench.shutdown_timeout()).await {
        Some(exit) if exit.is_success() => Ok(None),
        Some(exit) => bench.fail(format!("it ended with {exit}")),
        None => bench.fail(format!("it still runs {:?} after shutdown, with its input open", bench.shutdown_timeout())),
    }
}

pub(super) async fn end_of_input(bench: &mut Bench) -> Verdict {
    if bench.is_live() {
        return bench.skip("only programs have an end of input");
    }
    let mut peer = bench.session().await?;
    peer.close_input().await;
    match peer.exit(bench.shutdown_timeout()).await {
        Some(_) => Ok(None),
        None => bench.fail(format!("it still runs {:?} after the end of its input", bench.shutdown_timeout())),
    }
}
