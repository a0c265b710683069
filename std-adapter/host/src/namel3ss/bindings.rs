//! `tools.yaml` and `pack.yaml`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::files;

/// The largest file of a project that is read, in bytes.
pub(super) const FILE_LIMIT: u64 = 4 << 20;

/// Where and how a tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Runner {
    /// As a process for each call.
    #[default]
    Local,
    /// Over HTTP.
    Service,
    /// In a container for each call.
    Container,
    /// namel3ss's runner for JavaScript. It is not supported here.
    Node,
    /// None of these: a call of the tool fails, and the other tools of the project work.
    #[serde(other)]
    Unknown,
}

impl Runner {
    /// The name in files and traces.
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

/// The binding of a tool's name: one entry of `tools.yaml`, or of `entrypoints` in `pack.yaml`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Binding {
    /// The kind of tool: `python`, or `node`.
    pub kind: String,
    /// The function to call in it, `module:function`.
    pub entry: String,
    /// Where the tool runs [default: the pack's default, or locally].
    pub runner: Option<Runner>,
    /// The service's address.
    pub url: Option<String>,
    /// The container's image.
    pub image: Option<String>,
    /// The command to run in the container.
    pub command: Option<Vec<String>>,
    /// Variables for the container.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// `pure` or `impure`.
    pub purity: Option<String>,
    /// The time limit, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The time limit, in seconds; `timeout_ms` goes first.
    pub timeout_seconds: Option<f64>,
    /// Whether the tool is to be run in namel3ss's sandbox.
    pub sandbox: Option<bool>,
    /// Whether a container enforces guarantees: `declared` or `verified`.
    pub enforcement: Option<String>,
}

/// The tools of a project, by their names.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Bindings {
    /// The tools. Nothing behind `tools:`, as the real program leaves it, is none.
    #[serde(default, deserialize_with = "or_none")]
    pub tools: BTreeMap<String, Binding>,
}

/// A pack: tools that come together.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Pack {
    /// The identifier of the pack.
    pub id: String,
    /// The name of the pack.
    pub name: String,
    /// The version of the pack, such as `1.2.0` or `stable`.
    #[serde(deserialize_with = "text")]
    pub version: String,
    /// The purpose of the pack.
    #[serde(default)]
    pub description: String,
    /// The author.
    #[serde(default)]
    pub author: String,
    /// On what terms.
    #[serde(default)]
    pub license: String,
    /// The names of its tools.
    pub tools: Vec<String>,
    #[serde(default)]
    runners: Runners,
    #[serde(default)]
    service_url: Option<String>,
    #[serde(default)]
    container: Container,
    /// The bindings of the pack, unless it has a `tools.yaml`, whose bindings count then.
    #[serde(default)]
    pub entrypoints: BTreeMap<String, Binding>,
    /// The file that contains it.
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

/// Why a file is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindingsError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not of the form that it should be.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The fault and its place.
        reason: String,
    },
}

impl Bindings {
    /// Reads `tools.yaml`.
    pub fn read(path: &Path) -> Result<Self, BindingsError> {
        Self::parse(&read(path)?, path)
    }

    /// Reads the text of a `tools.yaml`; `path` is for errors.
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
    /// Whether `n3 packs verify` has passed the pack as it is now: its `verification.json` says so for the digest of its files.
    /// Signatures are not checked here.
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
