//! `check --protocol mcp` judges servers by what real clients need.

use std::path::Path;

use serde_json::Value;

use crate::agents::support::run;

/// A server of one era, which says nothing to a line that is not JSON, as those of both official kits.
fn server(folder: &Path, era: &str, on_bad_json: &str) -> String {
    let script = folder.join(format!("{era}-{on_bad_json}.py"));
    let text = r#"
import json, sys
ERA, ON_BAD = "ERA-NAME", "ON-BAD"
TOOL = {"name": "blink", "description": "Blinks", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
INFO = {"name": "plain", "version": "1.0.0"}
def answer(request):
    method, params = request.get("method"), request.get("params") or {}
    meta = params.get("_meta") or {}
    modern = "io.modelcontextprotocol/protocolVersion" in meta
    if ERA == "modern":
        if not modern or "io.modelcontextprotocol/clientCapabilities" not in meta:
            return {"error": {"code": -32602, "message": "_meta"}}
        if meta["io.modelcontextprotocol/protocolVersion"] != "2026-07-28":
            data = {"supported": ["2026-07-28"], "requested": meta["io.modelcontextprotocol/protocolVersion"]}
            return {"error": {"code": -32022, "message": "version", "data": data}}
        end = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": INFO}}
        listed = {"ttlMs": 0, "cacheScope": "private", **end}
        if method == "server/discover":
            return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **listed}}
    else:
        end = listed = {}
        if method == "initialize":
            known = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
            version = params.get("protocolVersion")
            version = version if version in known else known[0]
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": INFO}}
        if method == "ping":
            return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": [TOOL], **listed}}
    if method == "tools/call" and params.get("name") == "blink":
        text = [{"type": "text", "text": "blinked"}]
        return {"result": {"content": text, "isError": "n" not in (params.get("arguments") or {}), **end}}
    if method == "tools/call":
        return {"error": {"code": -32602, "message": "Unknown tool"}}
    return {"error": {"code": -32601, "message": "Method not found"}}
for line in sys.stdin:
    try:
        request = json.loads(line)
    except ValueError:
        if ON_BAD == "dies":
            sys.exit(1)
        continue
    if isinstance(request, dict) and request.get("id") is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer(request)}), flush=True)
"#;
    std::fs::write(&script, text.replace("ERA-NAME", era).replace("ON-BAD", on_bad_json)).unwrap();
    format!("exec:python3 {}", script.display())
}

// modelcontextprotocol/servers
#[test]
fn a_server_of_one_era_that_is_silent_on_bad_lines_passes() {
    let folder = tempfile::tempdir().unwrap();
    for (era, other) in [("legacy", "modern."), ("modern", "legacy.")] {
        let target = server(folder.path(), era, "silent");
        let output = run(&["check", &target, "--protocol", "mcp", "--call", "blink", r#"{"n":1}"#, "--json"], &[]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{era}: {report:#}");
        let cases = report["cases"].as_array().or_else(|| report["results"].as_array()).unwrap();
        let of = |name: &str| cases.iter().find(|case| case["name"] == name).unwrap()["outcome"].clone();
        assert_eq!((of("bad-json"), of("bad-json.reply")), ("pass".into(), "fail".into()), "{era}");
        assert_eq!(of("tool.call"), "pass", "{era}");
        for case in cases {
            let is_of_other = case["name"].as_str().unwrap().starts_with(other);
            assert_eq!(case["outcome"] == "skip", is_of_other || is_optional(case, era), "{era}: {case}");
        }
    }
    // One that does not outlive such a line is of no use to anybody.
    let target = server(folder.path(), "legacy", "dies");
    let output = run(&["check", &target, "--protocol", "mcp", "--case", "bad-json"], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Cases that say themselves that they do not apply.
fn is_optional(case: &Value, era: &str) -> bool {
    let of_legacy = ["modern.both-eras", "id.null"];
    let name = case["name"].as_str().unwrap();
    name == "legacy.set-level" || (era == "modern" && of_legacy.contains(&name))
}
