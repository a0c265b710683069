//! Tokens and headers of HTTP servers, sent by the command and written for clients.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::Value;

use crate::agents::support::{Listening, RIGLINE, ServerProcess, refused, run};

/// Variables of the environment.
type Env<'e> = &'e [(&'e str, &'e str)];

fn secret(folder: &std::path::Path) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("token");
    std::fs::write(&path, "s3cret\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn every_client_of_ours_sends_a_token_from_a_file_or_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = secret(folder.path());
    let serve = ["serve", "sim", "--http", "127.0.0.1:0", "--protocol", "mcp", "--token-file", &file];
    let server = Listening::start(&serve, "on ");
    let url = server.address.as_str();
    let ways: [(&[&str], Env<'_>); 4] = [
        (&["--token-file", &file], &[]),
        (&["--token-env", "RIG_TOKEN"], &[("RIG_TOKEN", "s3cret")]),
        (&["--header", "Authorization: Bearer ${RIG_TOKEN}"], &[("RIG_TOKEN", "s3cret")]),
        (&["--header", "@"], &[]),
    ];
    let headers = folder.path().join("headers");
    std::fs::write(&headers, "# of the bench\nAuthorization: Bearer s3cret\n\nX-Rig: 3\n").unwrap();
    let headers = format!("@{}", headers.display());
    for (way, env) in ways {
        let way: Vec<&str> = way.iter().map(|word| if *word == "@" { headers.as_str() } else { *word }).collect();
        let with =
            |words: &[&str]| -> Vec<String> { words.iter().chain(&way).map(|word| (*word).to_owned()).collect() };
        for words in [
            with(&["call", url, "measure", "channel=3V3", "--protocol", "mcp"]),
            with(&["describe", url, "--protocol", "mcp"]),
            with(&["check", url, "--protocol", "mcp", "--case", "legacy.ping", "--strict"]),
        ] {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let output = run(&words, env);
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{words:?}: {text}");
        }
        let words = with(&["mcp", url]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut agent = ServerProcess::start_with(&words, env);
        assert!(agent.tools().contains(&"measure".to_owned()), "{way:?}");
    }
    for (way, env, why) in [
        (&[][..], &[][..], "bearer token"),
        (&["--token-env", "RIG_TOKEN"], &[], "RIG_TOKEN"),
        (&["--token-env", "RIG_TOKEN"], &[("RIG_TOKEN", "wrong")], "bearer token"),
        (&["--header", "X-Key: ${RIG_TOKEN}"], &[], "RIG_TOKEN"),
        (&["--header", "X-Key"], &[], "NAME: VALUE"),
        (&["--header", "Host: x"], &[], "Host"),
        (&["--token-file", "/nowhere"], &[], "/nowhere"),
    ] {
        let words = [&["call", url, "identify", "--protocol", "mcp"], way].concat();
        let (code, text) = refused(&words, env);
        assert!(code != Some(0) && text.contains(why), "{words:?}: {code:?} {text}");
    }
    let (code, text) = refused(&["call", "sim", "identify", "--token-env", "HOME"], &[]);
    assert!(code == Some(2) && text.contains("HTTP"), "{text}");
    let (code, text) = refused(&["call", "tcp:127.0.0.1:1", "identify", "--token-env", "HOME"], &[]);
    assert!(code == Some(2) && text.contains("token-file=FILE"), "{text}");
}

#[test]
fn headers_are_sent_with_every_request_in_each_protocol() {
    for (protocol, reply) in
        [("amplifier", r#"{"ok":true,"result":{}}"#), ("namel3ss", r#"{"ok":true,"result":{},"protocol_version":1}"#)]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                head.extend_from_slice(&byte);
            }
            let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.unwrap().trim().parse().unwrap()];
            stream.read_exact(&mut body).unwrap();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{reply}",
                reply.len()
            );
            stream.write_all(answer.as_bytes()).unwrap();
            text
        });
        let words = ["call", &url, "op", "--protocol", protocol, "--token-env", "T", "--header", "X-Rig: bench-3"];
        let _ = run(&words, &[("T", "s3cret")]);
        let head = heard.join().unwrap();
        assert!(head.contains("authorization: bearer s3cret\r\n") && head.contains("x-rig: bench-3\r\n"), "{head}");
    }
}

#[test]
fn an_entry_for_a_server_carries_a_token_without_its_value() {
    let folder = tempfile::tempdir().unwrap();
    let file = secret(folder.path());
    let url = "http://127.0.0.1:8080/mcp";
    let entry = |client: &str, more: &[&str]| {
        let output = run(&[&["mcp-config", url, "--client", client, "--name", "rig"], more].concat(), &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("s3cret"), "{text}");
        serde_json::from_str::<Value>(&text)
            .map_or(Value::Null, |file| file.as_object().unwrap().values().next().unwrap()["rig"].clone())
    };
    let claude = entry("claude-code", &["--token-env", "RIG_TOKEN", "--header", "X-Rig: ${BENCH}"]);
    assert_eq!(claude["headers"]["Authorization"], "Bearer ${RIG_TOKEN}");
    assert_eq!(claude["headers"]["X-Rig"], "${BENCH}");
    assert_eq!(entry("vscode", &["--token-env", "RIG_TOKEN"])["headers"]["Authorization"], "Bearer ${env:RIG_TOKEN}");
    // A file's content is read by the command, which the client starts.
    let cursor = entry("cursor", &["--token-file", &file]);
    assert_eq!(cursor["command"], RIGLINE);
    assert_eq!(cursor["args"], serde_json::json!(["mcp", url, "--token-file", file]));
    // anthropics/claude-code#37286: the application removes all servers if one of them has a URL.
    let desktop = entry("claude-desktop", &["--token-env", "RIG_TOKEN"]);
    assert_eq!(desktop["args"], serde_json::json!(["mcp", url, "--token-env", "RIG_TOKEN"]));
    // What only the command can do, it does.
    assert_eq!(entry("cursor", &["--read-only"])["args"], serde_json::json!(["mcp", url, "--read-only"]));
    let (code, text) = refused(&["mcp-config", url, "--client", "claude-desktop", "--header", "X-Key: s3cret"], &[]);
    assert!(code == Some(2) && text.contains("@FILE") && !text.contains("s3cret"), "{text}");
}
