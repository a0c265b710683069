//! Lines: their bytes, lengths and ends.

use super::common::{NO_METHOD, expect_next, request_limit, unknown};
use crate::check::{Bench, Verdict, cut};

/// How long a line is that is over any sensible limit, where the manifest names none: in a program,
/// and on a wire.
const OVER_LONG: (usize, usize) = (9 << 20, 256 << 10);

pub(super) async fn bad_json(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for line in ["{oops", r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"t":NaN}}"#, "{\"a\":1,}", "nonsense"] {
        peer.send_line(line).await?;
        let reply = peer.any_reply().await?;
        reply.expect_error(&[-32700])?;
        if reply.id() != "null" {
            return bench.fail(format!("the reply to bad JSON must have the id null, and has {:?}", reply.id()));
        }
    }
    Ok(None)
}

pub(super) async fn recovery(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send(b"{oops\n{\n]\n").await?;
    let id = peer.next_id();
    peer.send_line(unknown(&id)).await?;
    for _ in 0..4 {
        match peer.reply_or_end().await? {
            Some(reply) if reply.id() == id => return Ok(None),
            Some(_) => {}
            None => return bench.fail("one bad line ended the session"),
        }
    }
    bench.fail("a bad line got more than one answer")
}

pub(super) async fn bad_utf8(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let lines: [&[u8]; 3] = [
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xC4\xE3\"}\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xC0\xAF\"}\n",
        b"\xFF\xFE\n",
    ];
    for line in lines {
        peer.send(line).await?;
        peer.any_reply().await?.expect_error(&[-32700, -32600])?;
    }
    expect_next(&mut peer, "bad UTF-8 was answered twice").await
}

/// A request for nothing, of exactly this many bytes.
fn padded(id: &str, size: usize) -> String {
    let start = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{NO_METHOD}\",\"params\":{{\"x\":\"");
    // What is behind the limit must not run.
    let end = r#"\"}} {\"jsonrpc\":\"2.0\",\"id\":909,\"method\":\"shutdown\"}"}}"#;
    let filling = size.saturating_sub(start.len() + end.len());
    format!("{start}{}{end}", "A".repeat(filling))
}

pub(super) async fn over_long(bench: &mut Bench) -> Verdict {
    let size = match request_limit(bench).await? {
        Some(limit) if limit < (64 << 20) => limit + 1,
        _ if bench.is_live() => OVER_LONG.1,
        _ => OVER_LONG.0,
    };
    let mut peer = bench.session().await?;
    peer.send_line(padded("900", size)).await?;
    let reply = peer.any_reply().await?;
    if !matches!(reply.id().as_str(), "null" | "900") {
        return bench.fail(format!("a line of {size} bytes was answered with the id {}", reply.id()));
    }
    expect_next(&mut peer, "a line that is too long was answered twice").await
}

pub(super) async fn at_the_limit(bench: &mut Bench) -> Verdict {
    let Some(limit) = request_limit(bench).await?.filter(|limit| *limit < (64 << 20)) else {
        return bench.skip("the manifest names no limit");
    };
    let mut peer = bench.session().await?;
    for size in [limit - 1, limit] {
        peer.send_line(padded("900", size)).await?;
        let reply = peer.any_reply().await?;
        if reply.id() != "900" {
            return bench.fail(format!("a request of {size} bytes must fit {limit}: {}", cut(reply.line().as_bytes())));
        }
    }
    peer.send_line(padded("900", limit + 1)).await?;
    let reply = peer.any_reply().await?;
    if reply.id() != "null" || reply.error().is_none() {
        return bench.fail(format!("a request of {} bytes must not fit {limit}", limit + 1));
    }
    Ok(None)
}

pub(super) async fn crlf(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for end in ["\r\n", "\r\r\n"] {
        let id = peer.next_id();
        peer.send(format!("{}{end}", unknown(&id)).as_bytes()).await?;
        peer.reply(&id).await?;
    }
    Ok(None)
}

pub(super) async fn byte_order_mark(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let id = peer.next_id();
    peer.send(format!("\u{feff}{}\n", unknown(&id)).as_bytes()).await?;
    let reply = peer.any_reply().await?;
    if reply.id() == id {
        return Ok(None);
    }
    // RFC 8259 lets a parser take it or refuse it.
    reply.expect_error(&[-32700])?;
    Ok(Some("it refuses a byte-order mark, which it may".to_owned()))
}

pub(super) async fn blank_lines(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    peer.send(b"\n\r\n  \n").await?;
    expect_next(&mut peer, "a blank line was answered").await
}

pub(super) async fn split(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let id = peer.next_id();
    peer.trickle(format!("{}\n", unknown(&id)).as_bytes()).await?;
    peer.reply(&id).await?;
    Ok(None)
}

pub(super) async fn merged(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    let ids: Vec<String> = (0..3).map(|_| peer.next_id()).collect();
    let requests = ids.iter().map(|id| format!("{}\n", unknown(id)));
    peer.send(requests.collect::<String>().as_bytes()).await?;
    for id in &ids {
        peer.reply(id).await?;
    }
    Ok(None)
}

pub(super) async fn nesting(bench: &mut Bench) -> Verdict {
    let mut peer = bench.session().await?;
    for depth in [100, 100_000] {
        // On a board, what fits its line.
        let depth = request_limit(bench).await?.map_or(depth, |limit| depth.min(limit.saturating_sub(100) / 2));
        let id = peer.next_id();
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        peer.request(&id, NO_METHOD, &format!("{{\"x\":{open}{close}}}")).await?;
        peer.any_reply().await?;
    }
    expect_next(&mut peer, "deep nesting was answered twice").await
}
