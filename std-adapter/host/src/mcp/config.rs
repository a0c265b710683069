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

    /// Adds the server to the file, or replaces the entry of its name. The rest of the file stays as it is. A copy of
    /// the old file is written beside it.
    ///
    /// # Errors
    /// The file cannot be read or written, is a link, or cannot be edited without a loss.
    pub fn write(self, path: &Path, name: &str, server: &Server) -> Result<Edit, EditError> {
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
    match entry(&file) {
        Some(known) if Some(&known) == wanted.as_ref() => return Ok(None),
        Some(_) => return Err(format!("it has another server `{name}`: choose another --name, or edit it yourself")),
        None => {}
    }
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let new = format!("{text}{gap}{table}");
    match parse(&new) {
        Ok(file) if entry(&file) == wanted => Ok(Some(new)),
        _ => Err("a table cannot be added at its end: edit it yourself; nothing was changed".into()),
    }
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
            assert_eq!(client.write(&path, "rig", &program()).unwrap(), Edit::Created, "{path:?}");
            assert_eq!(client.write(&path, "rig", &program()).unwrap(), Edit::Unchanged);
            let edit = client.write(&path, "other rig", &Server::Url("http://127.0.0.1:1/mcp".into())).unwrap();
            let Edit::Changed { backup } = edit else { panic!("{edit:?}") };
            assert_eq!(std::fs::read_to_string(&backup).unwrap(), client.snippet("rig", &program()));
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains("exec:a \\\"b\\\"") && text.contains("http://127.0.0.1:1/mcp"), "{text}");
            std::fs::remove_dir_all(folder.path().join("project")).ok();
        }
    }

    #[test]
    fn a_file_of_others_keeps_its_members_and_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let theirs =
            "\u{feff}{\"z\":1,\"mcpServers\":{\"b\":{\"command\":\"x\"},\"rig\":{\"command\":\"old\"}},\"a\":[null]}";
        std::fs::write(&path, theirs).unwrap();
        Client::Cursor.write(&path, "rig", &program()).unwrap();
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
            Client::Cursor.write(&path, "third", &program()).unwrap();
            for path in [path.clone(), path.with_extension("json.bak2")] {
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            }
            std::fs::remove_file(path.with_extension("json.bak2")).unwrap();
        }
        // A second backup does not replace the first.
        Client::Cursor.write(&path, "second", &program()).unwrap();
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
            let error = client.write(&path, "rig", &program()).unwrap_err().to_string();
            assert!(error.contains("file"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let comments = "# mine\nmodel = \"x\"";
        std::fs::write(&path, comments).unwrap();
        Client::Codex.write(&path, "rig", &program()).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(comments));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (theirs, link) = (folder.path().join("theirs"), folder.path().join("link"));
        std::fs::write(&theirs, "{}").unwrap();
        std::os::unix::fs::symlink(&theirs, &link).unwrap();
        assert!(Client::Cursor.write(&link, "rig", &program()).is_err());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "{}");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
