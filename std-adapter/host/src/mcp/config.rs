//! What makes a client find a server: the entry in the client's own configuration file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::files;

/// The longest configuration file that is edited, in bytes.
const LONGEST: u64 = 8 << 20;

/// A program whose agents use MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Client {
    /// Claude Code: `.mcp.json` of the project.
    ClaudeCode,
    /// Claude Desktop: its file among the user's settings.
    ClaudeDesktop,
    /// Cursor: `.cursor/mcp.json` of the project.
    Cursor,
    /// Visual Studio Code: `.vscode/mcp.json` of the project.
    VsCode,
    /// Codex: `.codex/config.toml` in the user's folder.
    Codex,
    /// Gemini CLI: `.gemini/settings.json` of the project.
    Gemini,
    /// Windsurf: `.codeium/windsurf/mcp_config.json` in the user's folder.
    Windsurf,
}

/// How a client reaches a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// It starts this program.
    Program {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// It sends requests to this URL.
    Url(String),
}

/// What a server is called in a client's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'n> {
    /// This, and nothing else.
    Given(&'n str),
    /// The name of the entry that the file has for the same target; else this, with a number if another target has it.
    Derived(&'n str),
}

/// What an edit did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edit {
    /// The entry was there already, and nothing was changed.
    Unchanged,
    /// The file is new.
    Created,
    /// The file was changed. This is the copy of the old one.
    Changed {
        /// The copy of the old file.
        backup: PathBuf,
    },
}

/// Why a file was not edited.
#[derive(Debug)]
#[non_exhaustive]
pub enum EditError {
    /// It cannot be read or written.
    Io(io::Error),
    /// The file does not have the form of the client's file.
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

impl Client {
    /// All clients.
    pub const ALL: [Self; 7] =
        [Self::ClaudeCode, Self::ClaudeDesktop, Self::Cursor, Self::VsCode, Self::Codex, Self::Gemini, Self::Windsurf];

    /// Its name on the command line.
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

    /// The file that has the client's servers: in the project's folder, or in the user's.
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

    fn entry(self, server: &Server) -> Value {
        match (self, server) {
            (Self::VsCode, Server::Program { command, args }) => {
                json!({ "type": "stdio", "command": command, "args": args })
            }
            (_, Server::Program { command, args }) => json!({ "command": command, "args": args }),
            (Self::ClaudeCode | Self::VsCode, Server::Url(url)) => json!({ "type": "http", "url": url }),
            (Self::Gemini, Server::Url(url)) => json!({ "httpUrl": url }),
            (Self::Windsurf, Server::Url(url)) => json!({ "serverUrl": url }),
            (_, Server::Url(url)) => json!({ "url": url }),
        }
    }

    /// The text that makes the client find the server under this name: a whole file, were there no other servers.
    pub fn snippet(self, name: &str, server: &Server) -> String {
        if self == Self::Codex {
            return codex_table(name, server);
        }
        let mut servers = Map::new();
        servers.insert(name.to_owned(), self.entry(server));
        let mut file = Map::new();
        file.insert(self.member().to_owned(), Value::Object(servers));
        format!("{:#}\n", Value::Object(file))
    }

    /// Adds the server to the file, or replaces the entry of the same target. The rest of the file stays as it is. A copy of
    /// the old file is written beside it.
    ///
    /// # Errors
    /// The file cannot be read or written, is a link, or cannot be edited without a loss; or the given name is another target's.
    pub fn write(self, path: &Path, name: Name<'_>, server: &Server) -> Result<Edit, EditError> {
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
        let name = self.name_in(text, name, server).map_err(|text| content(&text))?;
        let name = name.as_str();
        let new = if self == Self::Codex {
            with_codex_table(text, name, server).map_err(|text| content(&text))?
        } else {
            self.with_entry(text, name, server).map_err(|text| content(&text))?
        };
        let Some(new) = new else { return Ok(Edit::Unchanged) };
        let edit = match &old {
            None => Edit::Created,
            Some(old) => {
                let backup = free_name(path);
                files::write_like(&backup, old.as_bytes(), path).map_err(failed)?;
                Edit::Changed { backup }
            }
        };
        files::write(path, new.as_bytes()).map_err(failed)?;
        Ok(edit)
    }

    /// What the server is called in a file with this text.
    fn name_in(self, text: &str, name: Name<'_>, server: &Server) -> Result<String, String> {
        let servers = self.servers(text);
        let own = subject(&self.entry(server));
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
        let servers = if self == Self::Codex {
            let file = toml::from_str::<toml::Table>(text).ok();
            file.and_then(|file| serde_json::to_value(file.get("mcp_servers")?).ok())
        } else {
            let file = serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}').trim()).ok();
            file.and_then(|file| file.get(self.member()).cloned())
        };
        match servers {
            Some(Value::Object(servers)) => servers.into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The text of a JSON file with the entry; none if it is there already.
    fn with_entry(self, text: &str, name: &str, server: &Server) -> Result<Option<String>, String> {
        let trimmed = text.trim_start_matches('\u{feff}').trim();
        let mut file: Value = if trimmed.is_empty() {
            json!({})
        } else {
            serde_json::from_str(trimmed).map_err(|error| {
                let comments = if trimmed.contains("//") || trimmed.contains("/*") {
                    " (comments would be lost: paste the text yourself)"
                } else {
                    ""
                };
                format!("not JSON: {error}{comments}; nothing was changed")
            })?
        };
        let Some(members) = file.as_object_mut() else { return Err("not a JSON object; nothing was changed".into()) };
        let servers = members.entry(self.member()).or_insert_with(|| json!({}));
        let Some(servers) = servers.as_object_mut() else {
            return Err(format!("`{}` is not an object; nothing was changed", self.member()));
        };
        let entry = self.entry(server);
        if servers.get(name) == Some(&entry) {
            return Ok(None);
        }
        servers.insert(name.to_owned(), entry);
        Ok(Some(format!("{file:#}\n")))
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

/// The table of a server in Codex's TOML.
fn codex_table(name: &str, server: &Server) -> String {
    // JSON's strings are TOML's, too.
    let name = if name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_')) {
        name.to_owned()
    } else {
        json!(name).to_string()
    };
    match server {
        Server::Program { command, args } => {
            let args: Vec<String> = args.iter().map(|arg| json!(arg).to_string()).collect();
            format!("[mcp_servers.{name}]\ncommand = {}\nargs = [{}]\n", json!(command), args.join(", "))
        }
        Server::Url(url) => format!("[mcp_servers.{name}]\nurl = {}\n", json!(url)),
    }
}

/// Codex's file with the table at its end; none if it is there already.
fn with_codex_table(text: &str, name: &str, server: &Server) -> Result<Option<String>, String> {
    let parse = |text: &str| toml::from_str::<toml::Table>(text);
    let table = codex_table(name, server);
    let entry = |file: &toml::Table| file.get("mcp_servers")?.get(name).cloned();
    let file = parse(text).map_err(|error| format!("not TOML: {}; nothing was changed", error.message()))?;
    let wanted = parse(&table).ok().as_ref().and_then(entry);
    let without;
    let text = match entry(&file) {
        Some(known) if Some(&known) == wanted.as_ref() => return Ok(None),
        // Of the same target, so that it is replaced.
        Some(_) => {
            without = without_table(text, table.lines().next().unwrap_or_default());
            without.as_str()
        }
        None => text,
    };
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let new = format!("{text}{gap}{table}");
    match parse(&new) {
        Ok(new_file) if entry(&new_file) == wanted && others(&new_file, name) == others(&file, name) => Ok(Some(new)),
        _ => Err("a table cannot be added at its end: edit it yourself; nothing was changed".into()),
    }
}

/// A text without the table that begins with this line.
fn without_table(text: &str, header: &str) -> String {
    let mut is_in = false;
    let kept = text.split_inclusive('\n').filter(|line| {
        let line = line.trim();
        if line.starts_with('[') {
            is_in = line == header;
        }
        !is_in
    });
    kept.collect()
}

/// What a file has beside a server.
fn others(file: &toml::Table, name: &str) -> toml::Table {
    let mut file = file.clone();
    if let Some(toml::Value::Table(servers)) = file.get_mut("mcp_servers") {
        servers.remove(name);
    }
    // One without servers is as good as none.
    file.retain(|key, value| key != "mcp_servers" || value.as_table().is_none_or(|servers| !servers.is_empty()));
    file
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

    fn program() -> Server {
        Server::Program { command: "rigline".into(), args: vec!["mcp".into(), "exec:a \"b\"".into()] }
    }

    #[test]
    fn what_else_is_in_a_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        for client in Client::ALL {
            let path = client.file(&folder.path().join("project"), &folder.path().join("home"));
            assert_eq!(client.write(&path, Name::Given("rig"), &program()).unwrap(), Edit::Created, "{path:?}");
            assert_eq!(client.write(&path, Name::Given("rig"), &program()).unwrap(), Edit::Unchanged);
            let edit =
                client.write(&path, Name::Given("other rig"), &Server::Url("http://127.0.0.1:1/mcp".into())).unwrap();
            let Edit::Changed { backup } = edit else { panic!("{edit:?}") };
            assert_eq!(std::fs::read_to_string(&backup).unwrap(), client.snippet("rig", &program()));
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("exec:a \\\"b\\\"") && text.contains("http://127.0.0.1:1/mcp"), "{text}");
            std::fs::remove_dir_all(folder.path().join("project")).ok();
        }
    }

    #[test]
    fn an_entry_of_the_same_target_is_replaced_and_one_of_another_is_not() {
        let server = |target: &str, more: &[&str]| {
            let args = ["mcp", target].iter().chain(more).map(|word| (*word).to_owned()).collect();
            Server::Program { command: "rigline".into(), args }
        };
        for client in Client::ALL {
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
        Client::Cursor.write(&path, Name::Derived("rigline"), &program()).unwrap();
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
            Client::Cursor.write(&path, Name::Given("third"), &program()).unwrap();
            for path in [path.clone(), path.with_extension("json.bak2")] {
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            }
            std::fs::remove_file(path.with_extension("json.bak2")).unwrap();
        }
        // A second backup does not replace the first.
        Client::Cursor.write(&path, Name::Given("second"), &program()).unwrap();
        assert!(path.with_extension("json.bak2").exists());
    }

    #[test]
    fn what_cannot_be_edited_without_a_loss_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (client, text) in [
            (Client::VsCode, "{ // mine\n }"),
            (Client::VsCode, "[]"),
            (Client::VsCode, "{\"servers\":[]}"),
            (Client::Codex, "[broken"),
            (Client::Codex, "[mcp_servers.rig]\ncommand = \"other\"\n"),
            (Client::Codex, "mcp_servers = 3\n"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = client.write(&path, Name::Given("rig"), &program()).unwrap_err().to_string();
            assert!(error.contains("file"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let comments = "# mine\nmodel = \"x\"";
        std::fs::write(&path, comments).unwrap();
        Client::Codex.write(&path, Name::Given("rig"), &program()).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(comments));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (theirs, link) = (folder.path().join("theirs"), folder.path().join("link"));
        std::fs::write(&theirs, "{}").unwrap();
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        assert!(Client::Cursor.write(&link, Name::Given("rig"), &program()).is_err());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "{}");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
