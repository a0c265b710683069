//! Entries by which a client finds a server: the entry in the client's own configuration file.
//!
//! | client | file | member | a server at a URL | a variable in a header | read in |
//! |---|---|---|---|---|---|
//! | Claude Code | `.mcp.json` of the project | `mcpServers` | `type: http`, `url`, `headers` | `${VAR}` | code.claude.com/docs/en/mcp |
//! | Claude Desktop | `claude_desktop_config.json` | `mcpServers` | none: it drops such entries, so that the command is started instead | | anthropics/claude-code#37286, anthropics/claude-ai-mcp#120 |
//! | Cursor | `.cursor/mcp.json` | `mcpServers` | `url`, `headers` | `${env:VAR}` | cursor.com/docs/mcp |
//! | Visual Studio Code | `.vscode/mcp.json` | `servers` | `type: http`, `url`, `headers` | `${env:VAR}` | microsoft/vscode-docs, mcp-configuration.md; microsoft/vscode#245237 |
//! | Codex | `.codex/config.toml` of the user | `mcp_servers` | `url`, `http_headers` | `bearer_token_env_var`, `env_http_headers` | developers.openai.com/codex/mcp |
//! | Gemini CLI | `.gemini/settings.json` | `mcpServers` | `httpUrl`, `headers` | `${VAR}` | google-gemini/gemini-cli, docs/tools/mcp-server.md |
//! | Windsurf | `mcp_config.json` of the user | `mcpServers` | `serverUrl`, `headers` | `${env:VAR}` | docs.windsurf.com/windsurf/cascade/mcp |
//!
//! A file is edited in place. Comments, the order of members, escapes, indentation, line ends, a byte order mark and trailing commas stay as
//! they are, and so does what an entry has beside the members that are set.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::files;

mod json;
mod splice;
mod toml;

/// The longest configuration file that is edited, in bytes.
const LONGEST: u64 = 8 << 20;

/// An MCP client: a program whose agents use MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpProgram {
    /// Claude Code, with the file `.mcp.json` in the project.
    ClaudeCode,
    /// Claude Desktop, with its file among the user's settings.
    ClaudeDesktop,
    /// Cursor, with the file `.cursor/mcp.json` in the project.
    Cursor,
    /// Visual Studio Code, with the file `.vscode/mcp.json` in the project.
    VsCode,
    /// Codex, with the file `.codex/config.toml` in the user's home.
    Codex,
    /// Gemini CLI, with the file `.gemini/settings.json` in the project.
    Gemini,
    /// Windsurf, with the file `.codeium/windsurf/mcp_config.json` in the user's home.
    Windsurf,
}

/// The way in which a client reaches an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEntry {
    /// The client starts a program, and speaks over its standard streams.
    Program {
        /// The path of the program.
        command: String,
        /// The arguments of the program.
        args: Vec<String>,
    },
    /// The client sends requests to a URL.
    Url {
        /// The URL of the server.
        url: String,
        /// The headers that each request carries.
        headers: Vec<Header>,
    },
}

/// A header that each request carries. `${NAME}` in its value stands for an environment variable of
/// the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    name: String,
    value: String,
}

impl Header {
    /// The header `Authorization: Bearer …`. The client takes the token from the environment
    /// variable `variable`.
    ///
    /// # Errors
    /// The text is not the name of a variable.
    pub fn bearer(variable: &str) -> Result<Self, String> {
        if is_variable(variable) {
            Ok(Self { name: "Authorization".to_owned(), value: format!("Bearer ${{{variable}}}") })
        } else {
            Err(format!("`{variable}` is not the name of an environment variable"))
        }
    }

    /// The text of the value, where `written` writes a variable.
    fn value(&self, written: impl Fn(&str) -> String) -> String {
        let (mut text, mut rest) = (String::new(), self.value.as_str());
        while let Some((before, after)) = rest.split_once("${") {
            text += before;
            match after.split_once('}') {
                Some((name, after)) if is_variable(name) => {
                    text += &written(name);
                    rest = after;
                }
                _ => {
                    text += "${";
                    rest = after;
                }
            }
        }
        text + rest
    }

    /// The variable that is the value, after `prefix`.
    fn variable(&self, prefix: &str) -> Option<&str> {
        let name = self.value.strip_prefix(prefix)?.strip_prefix("${")?.strip_suffix('}')?;
        is_variable(name).then_some(name)
    }

    fn has_variable(&self) -> bool {
        self.value(|_| String::new()) != self.value
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl std::str::FromStr for Header {
    type Err = String;

    /// Reads `NAME: VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = crate::http_client::header(text)?;
        if name.to_ascii_lowercase().starts_with("mcp-") {
            return Err(format!("header {name}: it is set by the protocol, and cannot be chosen"));
        }
        Ok(Self { name, value })
    }
}

/// The name of a server's entry in the file of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'n> {
    /// Exactly this name.
    Given(&'n str),
    /// The name of the entry that the file already has for the same target. If it has none, this
    /// name; a number is added if another target has it.
    Derived(&'n str),
}

/// The result of editing the file of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edit {
    /// The entry was already there. Nothing was changed.
    Unchanged,
    /// The file did not exist, and was created.
    Created,
    /// The file was changed, and a copy of the old file was made.
    Changed {
        /// The path of the copy.
        backup: PathBuf,
    },
}

/// The reason why a file was not edited.
#[derive(Debug)]
#[non_exhaustive]
pub enum EditError {
    /// The file cannot be read or written.
    Io(io::Error),
    /// The file does not have the form that the client requires.
    Content(String),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Content(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for EditError {}

impl McpProgram {
    /// All known clients.
    pub const ALL: [Self; 7] =
        [Self::ClaudeCode, Self::ClaudeDesktop, Self::Cursor, Self::VsCode, Self::Codex, Self::Gemini, Self::Windsurf];

    /// Returns the name of the client on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Windsurf => "windsurf",
        }
    }

    /// Returns the file that has the client's servers. It is below the folder `project` or below
    /// the user's folder `home`.
    pub fn file(self, project: &Path, home: &Path) -> PathBuf {
        match self {
            Self::ClaudeCode => project.join(".mcp.json"),
            Self::Cursor => project.join(".cursor").join("mcp.json"),
            Self::VsCode => project.join(".vscode").join("mcp.json"),
            Self::Gemini => project.join(".gemini").join("settings.json"),
            Self::Codex => home.join(".codex").join("config.toml"),
            Self::Windsurf => home.join(".codeium").join("windsurf").join("mcp_config.json"),
            Self::ClaudeDesktop => {
                let settings = if cfg!(target_os = "macos") {
                    home.join("Library").join("Application Support")
                } else if cfg!(windows) {
                    home.join("AppData").join("Roaming")
                } else {
                    home.join(".config")
                };
                settings.join("Claude").join("claude_desktop_config.json")
            }
        }
    }

    /// The member of the file that holds the servers.
    const fn member(self) -> &'static str {
        if let Self::VsCode = self { "servers" } else { "mcpServers" }
    }

    /// Returns whether the client's file can have a server at a URL.
    pub const fn takes_urls(self) -> bool {
        !matches!(self, Self::ClaudeDesktop)
    }

    /// The members of a server's entry.
    fn entry(self, server: &ServerEntry) -> Result<Map<String, Value>, String> {
        let members = |value: Value| match value {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        let (url, headers) = match server {
            ServerEntry::Program { command, args } if self == Self::VsCode => {
                return Ok(members(json!({ "type": "stdio", "command": command, "args": args })));
            }
            ServerEntry::Program { command, args } => return Ok(members(json!({ "command": command, "args": args }))),
            ServerEntry::Url { url, headers } => (url, headers),
        };
        let mut entry = members(match self {
            Self::ClaudeDesktop => {
                return Err("Claude Desktop drops entries that have a URL: it must start a program".to_owned());
            }
            Self::ClaudeCode | Self::VsCode => json!({ "type": "http", "url": url }),
            Self::Gemini => json!({ "httpUrl": url }),
            Self::Windsurf => json!({ "serverUrl": url }),
            Self::Cursor | Self::Codex => json!({ "url": url }),
        });
        let mut set = |member: &str, name: &str, value: String| {
            let table = entry.entry(member).or_insert_with(|| json!({}));
            if let Some(table) = table.as_object_mut() {
                table.insert(name.to_owned(), value.into());
            }
        };
        let mut bearer = None;
        for header in headers {
            let name = header.name.as_str();
            match self {
                Self::Codex => match (header.variable("Bearer "), header.variable("")) {
                    (Some(variable), _) if name.eq_ignore_ascii_case("authorization") => bearer = Some(variable),
                    (_, Some(variable)) => set("env_http_headers", name, variable.to_owned()),
                    _ if header.has_variable() => {
                        return Err(format!(
                            "header {name}: Codex takes a variable for a whole value, or for a bearer token, and not within other text"
                        ));
                    }
                    _ => set("http_headers", name, header.value.clone()),
                },
                Self::ClaudeCode | Self::Gemini => set("headers", name, header.value.clone()),
                _ => set("headers", name, header.value(|variable| format!("${{env:{variable}}}"))),
            }
        }
        if let Some(variable) = bearer {
            entry.insert("bearer_token_env_var".to_owned(), variable.into());
        }
        Ok(entry)
    }

    /// The members of an entry for the other kind of server, which must not stay.
    const fn others(server: &ServerEntry) -> &'static [&'static str] {
        match server {
            ServerEntry::Program { .. } => {
                &["url", "httpUrl", "serverUrl", "headers", "http_headers", "env_http_headers", "bearer_token_env_var"]
            }
            ServerEntry::Url { .. } => &["command", "args"],
        }
    }

    /// Returns the text of a file that has only this server, under this name. A user can paste it
    /// into the client's file.
    ///
    /// # Errors
    /// The client's file cannot have such a server.
    pub fn snippet(self, name: &str, server: &ServerEntry) -> Result<String, String> {
        let entry = self.entry(server)?;
        if self == Self::Codex {
            return Ok(toml::table(name, &entry, "\n"));
        }
        let new = json::with_entry("", self.member(), name, &entry, &[])?;
        Ok(new.unwrap_or_default())
    }

    /// Adds the server to the client's file, or changes the entry of the same target. Every other
    /// byte stays. A copy of the old file is written beside it.
    ///
    /// # Errors
    /// The file cannot be read or written, is a link, or cannot be edited without a loss. Another
    /// target has the given name.
    pub fn write(self, path: &Path, name: Name<'_>, server: &ServerEntry) -> Result<Edit, EditError> {
        let content = |text: &str| EditError::Content(format!("{}: {text}", path.display()));
        let failed =
            |error: io::Error| EditError::Io(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
        let old = match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
            Ok(found) if found.is_symlink() => {
                return Err(content(
                    "this is a link, which is not followed; name the file with --file, or paste the text yourself",
                ));
            }
            Ok(_) => Some(files::read_text(path, LONGEST).map_err(failed)?),
        };
        let text = old.as_deref().unwrap_or_default();
        let entry = self.entry(server).map_err(EditError::Content)?;
        let name = self.name_in(text, name, &entry).map_err(|text| content(&text))?;
        let without = Self::others(server);
        let new = if self == Self::Codex {
            toml::with_entry(text, &name, &entry, without)
        } else {
            json::with_entry(text, self.member(), &name, &entry, without)
        };
        let new = new.map_err(|text| content(&format!("{text}; nothing was changed")))?;
        let Some(new) = new else { return Ok(Edit::Unchanged) };
        let edit = match &old {
            None => Edit::Created,
            Some(old) => {
                let backup = free_name(path);
                files::write_like(&backup, old.as_bytes(), path).map_err(failed)?;
                Edit::Changed { backup }
            }
        };
        // What is written out may be a secret.
        let is_secret =
            matches!(server, ServerEntry::Url { headers, .. } if headers.iter().any(|header| !header.has_variable()));
        let written = match edit {
            Edit::Created | Edit::Changed { .. } if is_secret => files::write_secret(path, new.as_bytes()),
            _ => files::write(path, new.as_bytes()),
        };
        written.map_err(failed)?;
        Ok(edit)
    }

    /// The name of the server in a file with this text.
    fn name_in(self, text: &str, name: Name<'_>, entry: &Map<String, Value>) -> Result<String, String> {
        let servers = self.servers(text);
        let own = subject(&Value::Object(entry.clone()));
        let of = |name: &str| servers.iter().find(|(known, _)| known == name).map(|(_, entry)| subject(entry));
        match name {
            Name::Given(name) => match of(name) {
                Some(other) if other != own => {
                    let whose = other.map(|target| format!(", of {target}")).unwrap_or_default();
                    Err(format!("it has another server `{name}`{whose}: choose another --name, or edit it yourself"))
                }
                _ => Ok(name.to_owned()),
            },
            Name::Derived(name) => {
                if let Some((known, _)) = servers.iter().find(|(_, entry)| subject(entry) == own) {
                    return Ok(known.clone());
                }
                let numbered = (2..=u32::MAX).map(|number| format!("{name}-{number}"));
                let mut names = std::iter::once(name.to_owned()).chain(numbered);
                Ok(names.find(|name| of(name).is_none()).unwrap_or_else(|| name.to_owned()))
            }
        }
    }

    /// The servers in a file with this text. One that cannot be read has none here, and is refused elsewhere.
    fn servers(self, text: &str) -> Vec<(String, Value)> {
        if self == Self::Codex {
            return toml::servers(text).unwrap_or_default();
        }
        match json::value(text) {
            Ok(Some(file)) => match file.get(self.member()) {
                Some(Value::Object(servers)) => servers.clone().into_iter().collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

/// The target or the URL of an entry, if it is one of rigline.
fn subject(entry: &Value) -> Option<String> {
    let args = entry.get("args").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let target = match args {
        [command, target, ..] if command == "mcp" => Some(target),
        _ => ["url", "httpUrl", "serverUrl"].into_iter().find_map(|name| entry.get(name)),
    };
    Some(target?.as_str()?.to_owned())
}

/// `FILE.bak`, or `FILE.bak2` and so on, whichever is free.
fn free_name(path: &Path) -> PathBuf {
    let named = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let first = named(".bak");
    if std::fs::symlink_metadata(&first).is_err() {
        return first;
    }
    (2..=u32::MAX)
        .map(|number: u32| named(&format!(".bak{number}")))
        .find(|path| std::fs::symlink_metadata(path).is_err())
        .unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> ServerEntry {
        ServerEntry::Program { command: "rigline".into(), args: vec!["mcp".into(), "exec:a \"b\"".into()] }
    }

    fn url(url: &str, headers: &[&str]) -> ServerEntry {
        ServerEntry::Url { url: url.into(), headers: headers.iter().map(|header| header.parse().unwrap()).collect() }
    }

    /// Whether a text was made from another by an insertion, or by a comma and an insertion.
    fn is_inserted(old: &str, new: &str) -> bool {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        let prefix = |old: &[u8], new: &[u8]| old.iter().zip(new).take_while(|(one, other)| one == other).count();
        let is_one = |old: &[u8], new: &[u8]| {
            let suffix = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
            prefix(old, new) + suffix >= old.len()
        };
        let first = prefix(old, new);
        is_one(old, new) || (new.get(first) == Some(&b',') && is_one(&old[first..], &new[first + 1..]))
    }

    #[test]
    fn every_byte_of_a_json_file_stays_whatever_its_style() {
        let with = |member: &str| {
            [
                "",
                "{}",
                "{\n}\n",
                "\u{feff}{}",
                "// of nobody\n",
                "// head\n{}\n/* foot */\n",
                "{ // mine\n  \"a\": 1,\n  // end\n}",
                "{\"z\":1,\"MEMBER\":{\"b\":{\"command\":\"x\"}},\"a\":[null]}",
                "{\"MEMBER\":{}}",
                "{\"MEMBER\": { }, \"z\": 1e3 }\n",
                "{\n\t\"MEMBER\": {\n\t\t\"b\": {\"n\": 1.0, \"e\": \"\\u00e9\\/\"} // tail\n\t}\n}\n",
                "\u{feff}{\r\n    \"MEMBER\": {\r\n        \"b\": {},\r\n        // \"old\": {}\r\n    },\r\n}\r\n",
                "{\n  \"MEMBER\": {\n    // none yet\n  }\n}",
                "{\n  \"MEMBER\": { \"b\": {} /* , */ }, // \"c\"\n  \"big\": 9007199254740993\n}",
                "{\n  \"MEMBER\": {\"b\": 1}, \"MEMBER\": {\"c\": 2}\n}",
                "{\n    \"MEMBER\": {\n        \"b\": {\n            \"args\": [\n                \"x\"\n            ]\n        }\n    }}",
            ]
            .map(|text| text.replace("MEMBER", member))
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        for client in McpProgram::ALL.into_iter().filter(|client| *client != McpProgram::Codex) {
            for old in with(client.member()) {
                std::fs::write(&path, &old).unwrap();
                client.write(&path, Name::Given("the \"rig\""), &program()).unwrap();
                let new = std::fs::read_to_string(&path).unwrap();
                assert!(is_inserted(&old, &new), "{old:?}\n{new:?}");
                assert_eq!(new.contains("\r\n"), old.contains("\r\n"), "{new:?}");
                assert!(!new.replace("\r\n", "").contains('\n') || !old.contains("\r\n"), "{new:?}");
                let value = json::value(&new).unwrap().unwrap();
                assert_eq!(value[client.member()]["the \"rig\""]["args"][1], "exec:a \"b\"", "{new}");
                if let Some(known) = json::value(&old).unwrap() {
                    let mut value = value;
                    value[client.member()].as_object_mut().unwrap().remove("the \"rig\"");
                    let mut known = known;
                    known.as_object_mut().unwrap().entry(client.member()).or_insert_with(|| json!({}));
                    assert_eq!(value, known, "{new}");
                }
                // What is plain JSON stays plain JSON.
                if serde_json::from_str::<Value>(&old).is_ok() {
                    assert!(serde_json::from_str::<Value>(&new).is_ok(), "{new}");
                }
                assert_eq!(client.write(&path, Name::Given("the \"rig\""), &program()).unwrap(), Edit::Unchanged);
            }
        }
    }

    #[test]
    fn every_byte_of_a_toml_file_stays_whatever_its_style() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        for old in [
            "# mine\r\nmodel = 'x'\r\n\r\n[mcp_servers.a] # c\r\ncommand = \"x\"\r\n[profiles.z]\r\nq=1_0\r\n",
            "\u{feff}a = 1",
            "mcp_servers.a.command = 'x'\n",
            "[mcp_servers]\na = { command = 'x' }\n",
            "text = \"\"\"\n[mcp_servers.rig]\n\"\"\"\n",
        ] {
            std::fs::write(&path, old).unwrap();
            McpProgram::Codex.write(&path, Name::Given("the rig"), &program()).unwrap();
            let new = std::fs::read_to_string(&path).unwrap();
            assert!(new.starts_with(old), "{new}");
            assert!(!new.replace("\r\n", "").contains('\n') || !old.contains("\r\n"), "{new:?}");
            assert_eq!(McpProgram::Codex.write(&path, Name::Given("the rig"), &program()).unwrap(), Edit::Unchanged);
        }
    }

    #[test]
    fn what_an_entry_has_beside_the_members_that_are_set_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let server = |more: &[&str]| {
            let args = ["mcp", "serial:one"].iter().chain(more).map(|word| (*word).to_owned()).collect();
            ServerEntry::Program { command: "rigline".into(), args }
        };
        for (client, old, new) in [
            (
                McpProgram::Cursor,
                "{\n  \"mcpServers\": {\n    \"rig\": { // bench 3\n      \"command\": \"rigline\", \"args\": [\"mcp\", \"serial:one\"],\n      \"env\": {\"A\": \"1\"}\n    }\n  }\n}\n",
                "{\n  \"mcpServers\": {\n    \"rig\": { // bench 3\n      \"command\": \"rigline\", \"args\": [\"mcp\", \"serial:one\", \"--read-only\"],\n      \"env\": {\"A\": \"1\"}\n    }\n  }\n}\n",
            ),
            (
                McpProgram::VsCode,
                "{\"servers\":{\"rig\":{\"command\":\"rigline\",\"args\":[\"mcp\",\"serial:one\"],\"dev\":{}}}}",
                "{\"servers\":{\"rig\":{\"command\":\"rigline\",\"args\":[\"mcp\", \"serial:one\", \"--read-only\"],\"dev\":{}, \"type\": \"stdio\"}}}",
            ),
            (
                McpProgram::Codex,
                "[mcp_servers.rig] # bench 3\r\nargs = [ 'mcp', 'serial:one' ]\r\nstartup_timeout_sec = 60 # slow\r\n[mcp_servers.rig.env]\r\nA = '1'\r\n",
                "[mcp_servers.rig] # bench 3\r\nargs = [\"mcp\", \"serial:one\", \"--read-only\"]\r\nstartup_timeout_sec = 60 # slow\r\ncommand = \"rigline\"\r\n[mcp_servers.rig.env]\r\nA = '1'\r\n",
            ),
        ] {
            std::fs::write(&path, old).unwrap();
            client.write(&path, Name::Derived("other"), &server(&["--read-only"])).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), new, "{client:?}");
        }
        // A server that the client asked itself, and that a command asks now.
        let text =
            "{\"mcpServers\": {\"rig\": {\"url\": \"http://h/mcp\", \"headers\": {\"a\": \"b\"}, \"disabled\": true}}}";
        std::fs::write(&path, text).unwrap();
        let server =
            ServerEntry::Program { command: "rigline".into(), args: vec!["mcp".into(), "http://h/mcp".into()] };
        McpProgram::Cursor.write(&path, Name::Derived("rig"), &server).unwrap();
        let new = json::value(&std::fs::read_to_string(&path).unwrap()).unwrap().unwrap();
        let wanted = json!({ "disabled": true, "command": "rigline", "args": ["mcp", "http://h/mcp"] });
        assert_eq!(new["mcpServers"]["rig"], wanted);
    }

    #[test]
    fn headers_are_written_as_each_client_reads_them() {
        let mut server = url("http://h/mcp", &["X-Rig: bench-3", "X-Key: ${KEY}"]);
        if let ServerEntry::Url { headers, .. } = &mut server {
            headers.push(Header::bearer("TOKEN").unwrap());
        }
        let braces = json!({ "X-Rig": "bench-3", "X-Key": "${KEY}", "Authorization": "Bearer ${TOKEN}" });
        let env = json!({ "X-Rig": "bench-3", "X-Key": "${env:KEY}", "Authorization": "Bearer ${env:TOKEN}" });
        for (client, entry) in [
            (McpProgram::ClaudeCode, json!({ "type": "http", "url": "http://h/mcp", "headers": braces })),
            (McpProgram::Gemini, json!({ "httpUrl": "http://h/mcp", "headers": braces })),
            (McpProgram::VsCode, json!({ "type": "http", "url": "http://h/mcp", "headers": env })),
            (McpProgram::Cursor, json!({ "url": "http://h/mcp", "headers": env })),
            (McpProgram::Windsurf, json!({ "serverUrl": "http://h/mcp", "headers": env })),
            (
                McpProgram::Codex,
                json!({
                    "url": "http://h/mcp",
                    "bearer_token_env_var": "TOKEN",
                    "env_http_headers": { "X-Key": "KEY" },
                    "http_headers": { "X-Rig": "bench-3" },
                }),
            ),
        ] {
            let text = client.snippet("rig", &server).unwrap();
            let servers = client.servers(&text);
            assert_eq!(servers, [("rig".to_owned(), entry)], "{text}");
        }
        assert!(McpProgram::ClaudeDesktop.snippet("rig", &server).unwrap_err().contains("Claude Desktop"));
        let error = McpProgram::Codex.snippet("rig", &url("http://h/mcp", &["X-Key: a${KEY}"])).unwrap_err();
        assert!(error.contains("X-Key") && error.contains("Codex"), "{error}");
        for bad in ["X-Key", "X Key: a", "X-Key: a\nb", "Host: h", "content-length: 3", "mcp-session-id: x", ": a"] {
            assert!(bad.parse::<Header>().is_err(), "{bad}");
        }
        for bad in ["", "1A", "A-B", "A}"] {
            assert!(Header::bearer(bad).is_err(), "{bad}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_with_a_header_that_is_written_out_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        for (headers, is_private) in [(&["X-Key: s3cret"][..], true), (&["X-Key: ${KEY}"], false)] {
            let path = folder.path().join(format!("{is_private}"));
            McpProgram::Cursor.write(&path, Name::Given("rig"), &url("http://h/mcp", headers)).unwrap();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            let usual = folder.path().join("usual");
            std::fs::write(&usual, "").unwrap();
            // What the user's own file mode makes of a new file.
            let usual = std::fs::metadata(&usual).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, if is_private { 0o600 } else { usual & 0o777 }, "{headers:?}");
        }
    }

    #[test]
    fn what_else_is_in_a_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        for client in McpProgram::ALL.into_iter().filter(|client| client.takes_urls()) {
            let path = client.file(&folder.path().join("project"), &folder.path().join("home"));
            assert_eq!(client.write(&path, Name::Given("rig"), &program()).unwrap(), Edit::Created, "{path:?}");
            assert_eq!(client.write(&path, Name::Given("rig"), &program()).unwrap(), Edit::Unchanged);
            let edit = client.write(&path, Name::Given("other rig"), &url("http://127.0.0.1:1/mcp", &[])).unwrap();
            let Edit::Changed { backup } = edit else { panic!("{edit:?}") };
            assert_eq!(std::fs::read_to_string(&backup).unwrap(), client.snippet("rig", &program()).unwrap());
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("exec:a \\\"b\\\"") && text.contains("http://127.0.0.1:1/mcp"), "{text}");
            std::fs::remove_dir_all(folder.path().join("project")).ok();
        }
    }

    #[test]
    fn an_entry_of_the_same_target_is_replaced_and_one_of_another_is_not() {
        let server = |target: &str, more: &[&str]| {
            let args = ["mcp", target].iter().chain(more).map(|word| (*word).to_owned()).collect();
            ServerEntry::Program { command: "rigline".into(), args }
        };
        for client in McpProgram::ALL {
            let folder = tempfile::tempdir().unwrap();
            let path = client.file(&folder.path().join("project"), &folder.path().join("home"));
            let names = || {
                let servers = client.servers(&std::fs::read_to_string(&path).unwrap());
                servers.into_iter().map(|(name, entry)| (name, subject(&entry).unwrap())).collect::<Vec<_>>()
            };
            let pair = |name: &str, target: &str| (name.to_owned(), target.to_owned());
            client.write(&path, Name::Derived("board"), &server("serial:one", &[])).unwrap();
            // Another target with the same name gets a number.
            client.write(&path, Name::Derived("board"), &server("serial:two", &[])).unwrap();
            assert_eq!(names(), [pair("board", "serial:one"), pair("board-2", "serial:two")], "{client:?}");
            // The same target with other options is replaced, under the name that it has.
            client.write(&path, Name::Derived("else"), &server("serial:one", &["--read-only"])).unwrap();
            let mut found = names();
            found.sort();
            assert_eq!(found, [pair("board", "serial:one"), pair("board-2", "serial:two")], "{client:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap().matches("--read-only").count(), 1, "{client:?}");
            // A name that is given is taken, unless it is another target's.
            client.write(&path, Name::Given("mine"), &server("serial:one", &[])).unwrap();
            assert_eq!(names().len(), 3, "{client:?}");
            let before = std::fs::read_to_string(&path).unwrap();
            let error =
                client.write(&path, Name::Given("board-2"), &server("serial:three", &[])).unwrap_err().to_string();
            assert!(error.contains("it has another server `board-2`, of serial:two"), "{client:?}: {error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
        }
    }

    #[test]
    fn a_file_of_others_keeps_its_members_and_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let theirs = "\u{feff}{\"z\":1,\"mcpServers\":{\"b\":{\"command\":\"x\"},\"rig\":{\"command\":\"old\",\"args\":[\"mcp\",\"exec:a \\\"b\\\"\"]}},\"a\":[null]}";
        std::fs::write(&path, theirs).unwrap();
        McpProgram::Cursor.write(&path, Name::Derived("rigline"), &program()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let places: Vec<usize> =
            ["\"z\"", "\"b\"", "\"rig\"", "\"a\""].iter().map(|name| text.find(name).unwrap()).collect();
        assert!(places.is_sorted() && !text.contains("old"), "{text}");
        assert_eq!(std::fs::read_to_string(path.with_extension("json.bak")).unwrap(), theirs);
        // A file that others cannot read may have a token in it, and so has its copy.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            McpProgram::Cursor.write(&path, Name::Given("third"), &program()).unwrap();
            for path in [path.clone(), path.with_extension("json.bak2")] {
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            }
            std::fs::remove_file(path.with_extension("json.bak2")).unwrap();
            // A header that is written out may be a secret: whoever could read the file cannot any more.
            let shared = folder.path().join("shared.json");
            std::fs::write(&shared, theirs).unwrap();
            std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o644)).unwrap();
            for (header, mode) in [("X-Token: ${TOKEN}", 0o644), ("X-Token: s3cret", 0o600)] {
                let server =
                    ServerEntry::Url { url: "http://127.0.0.1:9/mcp".into(), headers: vec![header.parse().unwrap()] };
                McpProgram::Cursor.write(&shared, Name::Given("web"), &server).unwrap();
                let found = std::fs::metadata(&shared).unwrap().permissions().mode();
                assert_eq!(found & 0o777, mode, "{header}");
            }
        }
        // A second backup does not replace the first.
        McpProgram::Cursor.write(&path, Name::Given("second"), &program()).unwrap();
        assert!(path.with_extension("json.bak2").exists());
    }

    #[test]
    fn what_cannot_be_edited_without_a_loss_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (client, text) in [
            (McpProgram::VsCode, "{ mine: 1 }"),
            (McpProgram::VsCode, "{ \"a\": 1 \"b\": 2 }"),
            (McpProgram::VsCode, "[]"),
            (McpProgram::VsCode, "{\"servers\":[]}"),
            (McpProgram::Codex, "[broken"),
            (McpProgram::Codex, "[mcp_servers.rig]\ncommand = \"other\"\n"),
            (McpProgram::Codex, "mcp_servers = 3\n"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = client.write(&path, Name::Given("rig"), &program()).unwrap_err().to_string();
            assert!(error.contains("file"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let comments = "# mine\nmodel = \"x\"";
        std::fs::write(&path, comments).unwrap();
        McpProgram::Codex.write(&path, Name::Given("rig"), &program()).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(comments));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (theirs, link) = (folder.path().join("theirs"), folder.path().join("link"));
        std::fs::write(&theirs, "{}").unwrap();
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        assert!(McpProgram::Cursor.write(&link, Name::Given("rig"), &program()).is_err());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "{}");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
