//! The files `tools.yaml` and `pack.yaml` of namel3ss: bindings of tools, and packs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::files;

/// The largest file of a project that is read, in bytes.
pub(super) const FILE_LIMIT: u64 = 4 << 20;

/// The runner of a tool: it decides where the tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Runner {
    /// A process runs for each call.
    #[default]
    Local,
    /// A service is called over HTTP.
    Service,
    /// A container runs for each call.
    Container,
    /// namel3ss's own runner for JavaScript runs the tool. It is not supported here.
    Node,
    /// The file names another runner. A call of this tool fails, and the other tools of the project
    /// work.
    #[serde(other)]
    Unknown,
}

impl Runner {
    /// Returns the name of the runner in files and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Service => "service",
            Self::Container => "container",
            Self::Node => "node",
            Self::Unknown => "unknown",
        }
    }
}

/// A binding: it says what runs for the name of a tool. It is an entry of `tools.yaml`, or of
/// `entrypoints` in `pack.yaml`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Binding {
    /// The language of the tool: `python` or `node`.
    pub kind: String,
    /// The function to call, as `module:function`.
    pub entry: String,
    /// The runner of the tool [default: that of the pack, or local].
    pub runner: Option<Runner>,
    /// The address of the service that runs the tool.
    pub url: Option<String>,
    /// The image of the container that runs the tool.
    pub image: Option<String>,
    /// The command that runs in the container.
    pub command: Option<Vec<String>>,
    /// The environment variables of the container.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether the tool has side effects: `pure` or `impure`.
    pub purity: Option<String>,
    /// The time limit of a call, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The time limit of a call, in seconds. It is ignored if `timeout_ms` is set.
    pub timeout_seconds: Option<f64>,
    /// Whether the tool must run in namel3ss's sandbox.
    pub sandbox: Option<bool>,
    /// The way in which a container enforces guarantees: `declared` or `verified`.
    pub enforcement: Option<String>,
}

/// The bindings of a project's tools, by the names of the tools.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Bindings {
    /// The bindings. If nothing follows `tools:` in the file, as namel3ss itself leaves it, there
    /// are none.
    #[serde(default, deserialize_with = "or_none")]
    pub tools: BTreeMap<String, Binding>,
}

/// A pack: a set of tools that are distributed together.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Pack {
    /// The id of the pack.
    pub id: String,
    /// The name of the pack.
    pub name: String,
    /// The version of the pack, such as `1.2.0` or `stable`.
    #[serde(deserialize_with = "text")]
    pub version: String,
    /// The description of the pack.
    #[serde(default)]
    pub description: String,
    /// The author of the pack.
    #[serde(default)]
    pub author: String,
    /// The license of the pack.
    #[serde(default)]
    pub license: String,
    /// The names of the pack's tools.
    pub tools: Vec<String>,
    #[serde(default)]
    runners: Runners,
    #[serde(default)]
    service_url: Option<String>,
    #[serde(default)]
    container: Container,
    /// The bindings of the pack's tools. If the pack has a `tools.yaml`, they come from there.
    #[serde(default)]
    pub entrypoints: BTreeMap<String, Binding>,
    /// The folder of the pack.
    #[serde(skip)]
    pub folder: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
struct Runners {
    #[serde(default)]
    default: Option<Runner>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
struct Container {
    #[serde(default)]
    image: Option<String>,
}

/// The reason why a file of a project is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindingsError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file does not have the required form.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// The fault, and its place in the file.
        reason: String,
    },
}

impl Bindings {
    /// Reads the file `tools.yaml` at `path`.
    pub fn read(path: &Path) -> Result<Self, BindingsError> {
        Self::parse(&read(path)?, path)
    }

    /// Reads the text of a `tools.yaml`. Errors name `path` as its file.
    pub fn parse(text: &str, path: &Path) -> Result<Self, BindingsError> {
        let is_blank = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if is_blank {
            return Ok(Self::default());
        }
        let bindings: Self = yaml(text, path)?;
        for (name, binding) in &bindings.tools {
            binding.check().map_err(|reason| invalid(path, format!("tools.{name}: {reason}")))?;
        }
        Ok(bindings)
    }
}

impl Pack {
    /// Reads the pack in a folder: its `pack.yaml`, and its `tools.yaml` if there is one.
    pub fn read(folder: &Path) -> Result<Self, BindingsError> {
        let path = folder.join("pack.yaml");
        let mut pack: Self = yaml(&read(&path)?, &path)?;
        pack.folder = folder.to_owned();
        let tools = folder.join("tools.yaml");
        if tools.exists() {
            pack.entrypoints = Bindings::read(&tools)?.tools;
        }
        let (default, url, image) = (pack.runners.default, &pack.service_url, &pack.container.image);
        for (name, binding) in &mut pack.entrypoints {
            binding.runner = binding.runner.or(default);
            match binding.runner {
                Some(Runner::Service) if binding.url.is_none() => binding.url.clone_from(url),
                Some(Runner::Container) if binding.image.is_none() => binding.image.clone_from(image),
                // As in the real host, code from outside the project runs in the sandbox.
                None | Some(Runner::Local) if binding.sandbox.is_none() => binding.sandbox = Some(true),
                _ => {}
            }
            binding.check().map_err(|reason| invalid(&path, format!("{name}: {reason}")))?;
        }
        if pack.entrypoints.is_empty() {
            return Err(invalid(&path, "neither entrypoints nor a tools.yaml beside it".into()));
        }
        if let Some(name) = pack.tools.iter().find(|name| !pack.entrypoints.contains_key(*name)) {
            return Err(invalid(&path, format!("the tool {name:?} has no binding")));
        }
        if let Some(name) = pack.entrypoints.keys().find(|name| !pack.tools.contains(name)) {
            return Err(invalid(&path, format!("the binding {name:?} is not in its list of tools")));
        }
        Ok(pack)
    }
}

impl Pack {
    /// Returns whether `n3 packs verify` has verified the pack in its present form. Its
    /// `verification.json` must have the digest of its present files. Signatures are not checked
    /// here.
    pub fn is_verified(&self) -> bool {
        #[derive(Deserialize)]
        struct Verification {
            #[serde(default)]
            verified: bool,
            #[serde(default)]
            digest: String,
            #[serde(default)]
            pack_id: Option<String>,
            #[serde(default)]
            version: Option<String>,
        }
        let read = |name: &str| read(&self.folder.join(name)).ok();
        let Some(manifest) = read("pack.yaml") else { return false };
        let Some(verification) = read("verification.json") else { return false };
        let Ok(verification) = serde_json::from_str::<Verification>(&verification) else { return false };
        let is_same =
            |said: &Option<String>, known: &str| said.as_deref().is_none_or(|said| said.is_empty() || said == known);
        verification.verified
            && verification.digest == digest(&manifest, read("tools.yaml").as_deref())
            && is_same(&verification.pack_id, &self.id)
            && is_same(&verification.version, &self.version)
    }
}

/// The digest of a pack's files as the real program computes it: without the members that signing adds, white space at
/// the ends of lines, and blank lines at the ends.
fn digest(manifest: &str, tools: Option<&str>) -> String {
    use sha2::{Digest as _, Sha256};
    let unsigned = |line: &&str| {
        let key = line.split(':').next().unwrap_or_default().trim();
        line.starts_with(char::is_whitespace)
            || !line.contains(':')
            || !["signer_id", "signed_at", "digest"].contains(&key)
    };
    let normal =
        |lines: Vec<&str>| lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n").trim().to_owned();
    let mut text = normal(lines(manifest).filter(unsigned).collect());
    if let Some(tools) = tools {
        text.push('\n');
        text.push_str(&normal(lines(tools).collect()));
    }
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The lines of a text, whichever of LF, CR LF and CR end them.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

impl Binding {
    fn check(&self) -> Result<(), String> {
        let one_of = |name: &str, value: &Option<String>, words: [&str; 2]| match value.as_deref() {
            Some(value) if !words.contains(&value) => {
                Err(format!("{name} must be {} or {}, not {value:?}", words[0], words[1]))
            }
            _ => Ok(()),
        };
        one_of("kind", &Some(self.kind.clone()), ["python", "node"])?;
        one_of("purity", &self.purity, ["pure", "impure"])?;
        one_of("enforcement", &self.enforcement, ["declared", "verified"])?;
        if self.entry.is_empty() {
            return Err("entry must not be empty".into());
        }
        if self.timeout_ms == Some(0) || self.timeout_seconds.is_some_and(|seconds| seconds.is_nan() || seconds <= 0.0)
        {
            return Err("a timeout must be positive".into());
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<String, BindingsError> {
    files::read_text(path, FILE_LIMIT).map_err(|source| BindingsError::Read { path: path.to_owned(), source })
}

fn invalid(path: &Path, reason: String) -> BindingsError {
    BindingsError::Invalid { path: path.to_owned(), reason }
}

fn yaml<T: for<'de> Deserialize<'de>>(text: &str, path: &Path) -> Result<T, BindingsError> {
    serde_saphyr::from_str(text).map_err(|error| invalid(path, error.to_string()))
}

/// A value that may be null.
fn or_none<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A scalar as text, since versions such as `1.0` read as numbers.
fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer)
}
