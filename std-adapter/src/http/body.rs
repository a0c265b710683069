//! Request bodies: read whole, within bounds.
//!
//! axum's extractors bound the length of one body. They have no common bound for all bodies, no
//! deadline, and close the connection of a body that is too long before its sender can read why.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::Options;

/// The place that a body takes up in the memory for all of them.
pub(crate) type Permit = Option<OwnedSemaphorePermit>;

/// How much of a body that is too long is still taken, so that its sender, who may not read before
/// it has sent all, gets to see the answer.
const DRAIN_LIMIT: u64 = 64 << 20;

/// Why a body is not taken.
#[derive(Debug)]
pub(crate) enum Fault {
    NotJson(String),
    Cut,
    TooLong { limit: usize },
    Late(Duration),
    NoMemory,
    Encoding(String),
}

impl Fault {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NotJson(_) | Self::Cut => StatusCode::BAD_REQUEST,
            Self::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late(_) => StatusCode::REQUEST_TIMEOUT,
            Self::NoMemory => StatusCode::SERVICE_UNAVAILABLE,
            Self::Encoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    /// Whether the body may not have been read to its end.
    pub(super) fn ends_connection(&self) -> bool {
        !matches!(self, Self::NotJson(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(text) | Self::Encoding(text) => f.write_str(text),
            Self::Cut => f.write_str("the body ends early"),
            Self::TooLong { limit } => write!(f, "the body is too long: the limit is {limit} bytes"),
            Self::Late(limit) => write!(f, "the body did not come within {limit:?}"),
            Self::NoMemory => f.write_str("other requests use all memory"),
        }
    }
}

/// Reads a body, its byte-order mark apart.
pub(super) async fn read(
    request: Request,
    options: &Options,
    memory: &Arc<Semaphore>,
) -> Result<(Vec<u8>, Permit), Fault> {
    check_encoding(request.headers())?;
    let waits = request.headers().contains_key(header::EXPECT);
    let limit = options.request_limit;
    let mut body = request.into_body();
    let declared = body.size_hint().lower();
    let mut is_too_long = declared > limit as u64;
    if is_too_long && (waits || declared > DRAIN_LIMIT) {
        // RFC 9110 §10.1.1: a client that waits for "100 Continue" gets the refusal instead.
        return Err(Fault::TooLong { limit });
    }
    let deadline = Instant::now() + options.read_timeout;
    let (mut text, mut permit, mut total) = (Vec::new(), None, 0_u64);
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_) if is_too_long => break,
            Err(_) => return Err(Fault::Late(options.read_timeout)),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Fault::Cut),
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers say nothing to us.
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len() as u64);
        if is_too_long || total > limit as u64 {
            is_too_long = true;
            text = Vec::new();
            if total > DRAIN_LIMIT {
                break;
            }
            continue;
        }
        reserve(memory, &mut permit, text.len() + data.len())?;
        text.extend_from_slice(&data);
    }
    if is_too_long {
        return Err(Fault::TooLong { limit });
    }
    // RFC 8259 §8.1.
    if text.starts_with(b"\xEF\xBB\xBF") {
        text.drain(..3);
    }
    Ok((text, permit))
}

fn reserve(memory: &Arc<Semaphore>, permit: &mut Permit, bytes: usize) -> Result<(), Fault> {
    let have = permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let need = u32::try_from(bytes.div_ceil(1024).saturating_sub(have)).map_err(|_| Fault::NoMemory)?;
    if need > 0 {
        let more = memory.clone().try_acquire_many_owned(need).map_err(|_| Fault::NoMemory)?;
        match permit {
            Some(permit) => permit.merge(more),
            None => *permit = Some(more),
        }
    }
    Ok(())
}

/// Checks that a body is one JSON text.
pub(super) fn check(text: &[u8]) -> Result<(), Fault> {
    rigline::json::check::check(text).map_err(|error| Fault::NotJson(format!("Parse error: {error}")))
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Fault> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(Fault::Encoding("the body must not be compressed".into()));
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    for parameter in content_type.split(';').skip(1) {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let value = value.trim().trim_matches('"').to_ascii_lowercase();
        if name.trim().eq_ignore_ascii_case("charset") && !matches!(value.as_str(), "utf-8" | "utf8" | "us-ascii") {
            return Err(Fault::Encoding(format!("the body must be UTF-8, not {value}")));
        }
    }
    Ok(())
}
