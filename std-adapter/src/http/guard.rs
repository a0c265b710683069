//! The check of who may send requests over HTTP.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};

use super::stream::Ambiguous;
use crate::net::Access;

/// Why no request of a connection is answered.
#[derive(Debug, Clone)]
pub(super) struct TurnedAway {
    status: StatusCode,
    text: String,
}

impl TurnedAway {
    /// Its user may not ask.
    pub(super) fn refused(text: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, text }
    }

    /// There is no place for it.
    pub(super) fn too_many(text: String) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, text }
    }
}

/// The rules for who may send requests over HTTP.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// The rules about users and the token.
    pub access: Access,
    /// Further host names, in lower case, that requests may be sent to.
    pub hosts: Vec<String>,
    /// Origins of web pages, in lower case, that may send requests and read the answers.
    pub origins: Vec<String>,
}

#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    text: String,
}

fn refusal(status: StatusCode, text: impl Into<String>) -> Refusal {
    Refusal { status, text: text.into() }
}

impl Guard {
    /// Lets `next` answer a request if its sender may ask. Otherwise `refuse` makes the response.
    /// The headers of the response allow web pages of the allowed origins to read it.
    pub async fn answer<R: Future<Output = Response>>(
        &self,
        request: Request,
        next: impl FnOnce(Request) -> R,
        refuse: impl FnOnce(StatusCode, &str) -> Response,
    ) -> Response {
        let origin = request.headers().get(header::ORIGIN).filter(|origin| self.allows(origin)).cloned();
        let mut response = match self.check(&request) {
            Ok(()) if is_preflight(&request) => preflight(request.headers()),
            Ok(()) => next(request).await,
            Err(refusal) => {
                let mut response = refuse(refusal.status, &refusal.text);
                let headers = response.headers_mut();
                if refusal.status == StatusCode::UNAUTHORIZED {
                    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                }
                if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
                    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                // RFC 9112 §6.1: the end of such a message is ambiguous.
                if matches!(refusal.status, StatusCode::BAD_REQUEST | StatusCode::NOT_IMPLEMENTED) {
                    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        };
        if let Some(origin) = origin {
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        response
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let headers = request.headers();
        if let Some(TurnedAway { status, text }) = request.extensions().get() {
            return Err(refusal(*status, text.as_str()));
        }
        if request.extensions().get::<Ambiguous>().is_some() {
            let text = "a request must not have both Content-Length and Transfer-Encoding";
            return Err(refusal(StatusCode::BAD_REQUEST, text));
        }
        // RFC 9112 §6.1: what is not understood is 501. hyper takes the last coding for the only
        // one.
        let encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
        if !encodings.into_iter().all(|encoding| encoding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
            return Err(refusal(StatusCode::NOT_IMPLEMENTED, "Transfer-Encoding: only chunked is understood"));
        }
        let host = self.check_host(request)?;
        self.check_origin(headers, &host)?;
        // A preflight request never carries a token.
        if is_preflight(request) { Ok(()) } else { self.check_token(headers) }
    }

    /// The authority that the request is for.
    fn check_host(&self, request: &Request) -> Result<String, Refusal> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => match host.to_str() {
                Ok(host) => host.to_ascii_lowercase(),
                // RFC 9110 §7.2: an authority is ASCII.
                Err(_) => return Err(refusal(StatusCode::BAD_REQUEST, "Host: not a name")),
            },
            // RFC 9112 §3.2.
            (None, _) if request.version() == Version::HTTP_11 => {
                return Err(refusal(StatusCode::BAD_REQUEST, "Host: required, but missing"));
            }
            (None, _) => String::new(),
            (Some(_), Some(_)) => return Err(refusal(StatusCode::BAD_REQUEST, "more than one Host")),
        };
        let target = request.uri().authority().map(|authority| authority.as_str().to_ascii_lowercase());
        for authority in [Some(&host).filter(|host| !host.is_empty()), target.as_ref()].into_iter().flatten() {
            if !self.is_ours(name(authority)) {
                let text = format!("{authority} is not a name of this server (it can be allowed)");
                return Err(refusal(StatusCode::FORBIDDEN, text));
            }
        }
        Ok(target.unwrap_or(host))
    }

    /// Whether no stranger can have a domain of this name lead here.
    fn is_ours(&self, name: &str) -> bool {
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let plain = name.trim_end_matches('.');
        address.parse::<Ipv4Addr>().is_ok()
            || address.parse::<Ipv6Addr>().is_ok()
            || !plain.contains('.')
            || plain.ends_with(".localhost")
            || self.hosts.iter().any(|host| host == plain)
    }

    fn check_origin(&self, headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
        let foreign = || refusal(StatusCode::FORBIDDEN, "requests from web pages of another origin are refused");
        for origin in headers.get_all(header::ORIGIN) {
            let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
            let is_own = text.split_once("://").is_some_and(|(_, authority)| !host.is_empty() && authority == host);
            if !is_own && !self.allows(origin) {
                return Err(foreign());
            }
        }
        // Browsers say it with every request, those that carry no Origin too.
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        match site {
            Some(b"cross-site" | b"same-site") if !headers.contains_key(header::ORIGIN) => Err(foreign()),
            _ => Ok(()),
        }
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().unwrap_or_default();
        self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.access.token else { return Ok(()) };
        if token.is(bearer(headers)) {
            return Ok(());
        }
        Err(refusal(StatusCode::UNAUTHORIZED, "the bearer token of this server is required"))
    }
}

/// The bearer token of a request; empty if there is none.
pub fn bearer(headers: &HeaderMap) -> &[u8] {
    let given = headers.get(header::AUTHORIZATION).map_or(&[][..], HeaderValue::as_bytes);
    // RFC 9110 §11.1: the scheme's case does not matter.
    match given.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token.trim_ascii(),
        _ => &[],
    }
}

/// Whether a browser asks if it may send a request of another origin (the CORS protocol of the
/// Fetch standard).
fn is_preflight(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The methods that pages may send. Which of them a path answers, the request itself learns.
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
/// The headers of requests in every protocol. A browser names those that it will send beside these.
const HEADERS: &str = "authorization, content-type, accept, last-event-id";

/// It may: the request itself is checked when it comes.
fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
    // There may be many, so that they stand in a field of their own.
    if let Some(value) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.append(header::ACCESS_CONTROL_ALLOW_HEADERS, value.clone());
    }
    response
}

/// An authority's host, its port apart.
fn name(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Token;
    use axum::body::Body;

    fn status(guard: &Guard, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri("/invoke");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guard.check(&request.body(Body::empty()).unwrap()).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn hosts_and_origins() {
        let guard = Guard {
            hosts: vec!["rig.example.org".into()],
            origins: vec!["https://bench.example.org".into()],
            ..Guard::default()
        };
        for (expected, headers) in [
            (200, &[("host", "127.0.0.1:8080")][..]),
            (200, &[("host", "[::1]:8080")]),
            (200, &[("host", "localhost")]),
            (200, &[("host", "x")]),
            (200, &[("host", "RIG.example.org:80")]),
            (200, &[("host", "192.168.1.4:80")]),
            (400, &[]),
            (400, &[("host", "a"), ("host", "b")]),
            (400, &[("host", "ex\u{e4}mple.test")]),
            (403, &[("host", "evil.example")]),
            (403, &[("host", "127.0.0.1.evil.example:8080")]),
            (403, &[("host", "localhost.evil.example")]),
            (200, &[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")]),
            (200, &[("host", "127.0.0.1:8080"), ("origin", "https://bench.example.org")]),
            (403, &[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:9090")]),
            (403, &[("host", "127.0.0.1:8080"), ("origin", "http://evil.example")]),
            (403, &[("host", "127.0.0.1:8080"), ("origin", "null")]),
            (403, &[("host", "evil.example"), ("origin", "http://evil.example")]),
            (403, &[("host", "localhost"), ("sec-fetch-site", "cross-site")]),
            (200, &[("host", "localhost"), ("sec-fetch-site", "none")]),
            (200, &[("host", "localhost"), ("transfer-encoding", "Chunked")]),
            (501, &[("host", "localhost"), ("transfer-encoding", "gzip, chunked")]),
        ] {
            assert_eq!(status(&guard, headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn tokens() {
        let access = Access::same_user().with_token(Token::new("s3cret").unwrap());
        let guard = Guard { access, ..Guard::default() };
        for (expected, value) in [
            (200, "Bearer s3cret"),
            (200, "bearer s3cret"),
            (401, "Bearer s3cre"),
            (401, "Bearer s3cret2"),
            (401, "Bearer"),
            (401, "Basic s3cret"),
            (401, ""),
        ] {
            assert_eq!(status(&guard, &[("host", "localhost"), ("authorization", value)]), expected, "{value}");
        }
        assert_eq!(status(&guard, &[("host", "localhost")]), 401);
        for bad in ["", "a b", "ä"] {
            assert!(Token::new(bad).is_err(), "{bad}");
        }
    }
}
