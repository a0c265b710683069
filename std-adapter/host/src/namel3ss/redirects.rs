//! Redirects as Python's urllib follows them, since the real service runner is built on it.
//!
//! A crate for URIs, such as fluent-uri, refuses the addresses that are not quite URIs and that
//! urllib quotes.

use tokio::time::timeout;

use crate::http_client::{Bounds, Credentials, HttpError, exchange, parse};

/// The most redirects that are followed, as in Python's urllib.
const MAX_REDIRECTS: usize = 10;

/// [`post`] that follows the redirects 301, 302 and 303 as Python's urllib does: by a `GET` without a body. The
/// credentials go to the first server only.
pub(super) async fn post_following(
    url: &str,
    credentials: Option<&Credentials>,
    body: Vec<u8>,
    bounds: Bounds,
) -> Result<Vec<u8>, HttpError> {
    let following = async {
        let mut answer = exchange(url, credentials, Some(body), bounds.limit).await;
        let mut at = url.to_owned();
        for _ in 0..MAX_REDIRECTS {
            let Err(HttpError::Redirect { status: 301..=303, location }) = &answer else { break };
            let next = resolve(&at, location)?;
            let same_server = parse(&next)?.authority() == parse(url)?.authority();
            answer = exchange(&next, credentials.filter(|_| same_server), None, bounds.limit).await;
            at = next;
        }
        answer
    };
    timeout(bounds.timeout, following).await.unwrap_or(Err(HttpError::Timeout { limit: bounds.timeout }))
}

/// Where a `Location` leads that came from `base` (RFC 3986 §5.2, without dot segments).
fn resolve(base: &str, location: &str) -> Result<String, HttpError> {
    if location.contains("://") {
        return Ok(location.to_owned());
    }
    if location.starts_with("//") {
        return Ok(format!("http:{location}"));
    }
    if location.starts_with('/') {
        return with_path(base, location);
    }
    let uri = parse(base)?;
    let folder = uri.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    with_path(base, &format!("{folder}/{location}"))
}

/// The same server's address with another path.
pub(super) fn with_path(url: &str, path: &str) -> Result<String, HttpError> {
    let uri = parse(url)?;
    Ok(format!("http://{}{path}", uri.authority().map_or("", |authority| authority.as_str())))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// The first server sends the client to the second, which sends it to itself. Only the first is
    /// trusted.
    #[test]
    fn no_redirect_takes_the_token_to_another_server() {
        let [first, second] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let url = |listener: &TcpListener, path: &str| format!("http://{}{path}", listener.local_addr().unwrap());
        let start = url(&first, "/a");
        let elsewhere = url(&second, "/b");
        let head = |listener: &TcpListener, reply: &str| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let line = line.trim().to_lowercase();
                if line.is_empty() {
                    break;
                }
                length = line.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
                head += &(line + "\n");
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            write!(stream, "HTTP/1.1 {reply}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}").unwrap();
            head
        };
        let servers = thread::spawn(move || {
            let at_first = head(&first, &format!("302 Found\r\nLocation: {elsewhere}"));
            let at_second = head(&second, "302 Found\r\nLocation: /c");
            (at_first, at_second, head(&second, "200 OK"))
        });
        let bounds = Bounds { timeout: Duration::from_secs(30), limit: 1024 };
        let token = Credentials::default().with_token("s3cret");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(post_following(&start, Some(&token), b"{}".to_vec(), bounds));
        assert_eq!(answer.unwrap(), b"{}");
        let (at_first, at_second, then) = servers.join().unwrap();
        assert!(at_first.contains("bearer s3cret"), "{at_first}");
        assert!(!at_second.contains("s3cret") && !then.contains("s3cret"), "{at_second}{then}");
    }

    #[test]
    fn where_a_redirect_leads() {
        for (location, to) in [
            ("http://b:2/x", "http://b:2/x"),
            ("//b:2/x", "http://b:2/x"),
            ("/x?y", "http://a:1/x?y"),
            ("x", "http://a:1/t/x"),
        ] {
            assert_eq!(super::resolve("http://a:1/t/tools", location).unwrap(), to);
        }
    }
}
