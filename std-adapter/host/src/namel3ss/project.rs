//! A namel3ss project: its settings and the bindings of its tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::bindings::{Binding, Bindings, BindingsError, FILE_LIMIT, Pack, Runner};
use crate::files;

/// A project as it was when it was loaded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Project {
    /// The folder of the project.
    pub app_root: PathBuf,
    /// The settings in its `namel3ss.toml`.
    pub settings: Settings,
    /// The tools that belong to the project:  `.namel3ss/tools.yaml`, or `tools.yaml`.
    pub bindings: Bindings,
    /// The packs that are in use, with where they come from.
    pub packs: Vec<(Source, Pack)>,
    /// The tools of packs that are not verified or not enabled, with the pack's identifier. They are not run.
    pub unavailable: BTreeMap<String, String>,
    /// The binding of all other names, if there is one.
    pub fallback: Option<Binding>,
}

/// The settings for tools in `namel3ss.toml`. Other tables are left alone.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Settings {
    /// `[python_tools]`, or `[python]`.
    #[serde(alias = "python")]
    pub python_tools: PythonTools,
    /// `[tool_packs]`, or `[packs]`.
    #[serde(alias = "packs")]
    pub tool_packs: ToolPacks,
    /// `[capability_overrides]`: guarantees by tool, and `allow_unsafe_execution`.
    pub capability_overrides: BTreeMap<String, BTreeMap<String, Value>>,
}

/// How tools run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PythonTools {
    /// The time limit of tools that declare none, in seconds [default: 10]. `N3_PYTHON_TOOL_TIMEOUT_SECONDS` takes
    /// precedence.
    pub timeout_seconds: Option<f64>,
    /// The address of services that declare none. `N3_TOOL_SERVICE_URL` takes precedence.
    pub service_url: Option<String>,
    /// Whether a service must say which guarantees it enforces, before it is called.
    pub service_handshake_required: Option<bool>,
}

/// Which packs are in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolPacks {
    /// The installed packs that are in use; none is unless it is named here.
    pub enabled_packs: Vec<String>,
    /// Packs that are switched off.
    pub disabled_packs: Vec<String>,
    /// The preferred pack for a tool that several packs have.
    pub pinned_tools: BTreeMap<String, String>,
}

/// Where a tool comes from: the trace's `resolved_source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A pack that comes with the host.
    BuiltinPack,
    /// A pack in `.namel3ss/packs` or `packs/capability`.
    InstalledPack,
    /// The project's own `tools.yaml`.
    Binding,
}

impl Source {
    /// The name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BuiltinPack => "builtin_pack",
            Self::InstalledPack => "installed_pack",
            Self::Binding => "binding",
        }
    }
}

/// A tool, resolved: what is called, and how.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Resolved<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The binding of the tool.
    pub binding: &'a Binding,
    /// The source of the tool.
    pub source: Source,
    /// The pack, if it comes from one.
    pub pack: Option<&'a Pack>,
    /// The runner of the tool.
    pub runner: Runner,
}

impl Project {
    /// Loads the project in `app_root`; `builtin` are folders of packs that come with the host.
    ///
    /// As the real program has it, an installed pack counts if it is verified ([`Pack::is_verified`]) and
    /// enabled, and one in `packs/capability` if it is verified. A pack that is broken, a name that two packs have, and a tool
    /// that is bound twice are errors, here and not when they are called.
    pub fn load(app_root: &Path, builtin: &[PathBuf]) -> Result<Self, BindingsError> {
        let settings = settings(&app_root.join("namel3ss.toml"))?;
        let mut bindings = Bindings::default();
        for path in [app_root.join(".namel3ss/tools.yaml"), app_root.join("tools.yaml")] {
            if path.exists() {
                bindings = Bindings::read(&path)?;
                break;
            }
        }
        let mut packs = Vec::new();
        for folder in builtin {
            packs.push((Source::BuiltinPack, Pack::read(folder)?));
        }
        for root in [app_root.join(".namel3ss/packs"), app_root.join("packs/capability")] {
            let Ok(entries) = root.read_dir() else { continue };
            let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            folders.sort();
            for folder in folders.iter().filter(|folder| folder.join("pack.yaml").exists()) {
                packs.push((Source::InstalledPack, Pack::read(folder)?));
            }
        }
        let chosen = &settings.tool_packs;
        let local = app_root.join("packs/capability");
        let mut unavailable = BTreeMap::new();
        packs.retain(|(source, pack)| {
            let is_enabled = chosen.enabled_packs.contains(&pack.id) && !chosen.disabled_packs.contains(&pack.id);
            let is_used =
                *source == Source::BuiltinPack || (is_enabled || pack.folder.starts_with(&local)) && pack.is_verified();
            if !is_used {
                unavailable.extend(pack.tools.iter().map(|tool| (tool.clone(), pack.id.clone())));
            }
            is_used
        });
        let project = Self { app_root: app_root.to_owned(), settings, bindings, packs, unavailable, fallback: None };
        project.check()?;
        Ok(project)
    }

    /// A project without files, in which every name has the same binding: the service at `url`, or a
    /// program.
    pub(crate) fn of_one(url: Option<String>) -> Self {
        let binding = Binding {
            kind: "python".into(),
            entry: "rigline:run".into(),
            runner: Some(if url.is_some() { Runner::Service } else { Runner::Local }),
            url,
            ..Binding::default()
        };
        Self {
            app_root: std::env::current_dir().unwrap_or_else(|_| ".".into()),
            settings: Settings::default(),
            bindings: Bindings::default(),
            packs: Vec::new(),
            unavailable: BTreeMap::new(),
            fallback: Some(binding),
        }
    }

    /// The binding of a tool's name.
    pub fn resolve<'a>(&'a self, tool: &'a str) -> Option<Resolved<'a>> {
        let pinned = self.settings.tool_packs.pinned_tools.get(tool);
        let from_pack = self
            .packs
            .iter()
            .filter(|(_, pack)| pinned.is_none_or(|id| *id == pack.id))
            .find_map(|(source, pack)| Some((*source, Some(pack), pack.entrypoints.get(tool)?)));
        let own = || Some((Source::Binding, None, self.bindings.tools.get(tool).or(self.fallback.as_ref())?));
        let (source, pack, binding) = from_pack.or_else(own)?;
        Some(Resolved { tool, binding, source, pack, runner: binding.runner.unwrap_or_default() })
    }

    fn check(&self) -> Result<(), BindingsError> {
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for (_, pack) in &self.packs {
            for tool in pack.entrypoints.keys() {
                let fault = |other: &str| BindingsError::Invalid {
                    path: pack.folder.join("pack.yaml"),
                    reason: format!("the tool {tool:?} is {other}'s too"),
                };
                if self.bindings.tools.contains_key(tool) {
                    return Err(fault("the project"));
                }
                let is_pinned = self.settings.tool_packs.pinned_tools.contains_key(tool);
                if let Some(other) = seen.insert(tool, &pack.id)
                    && !is_pinned
                {
                    return Err(fault(other));
                }
            }
        }
        Ok(())
    }
}

fn settings(path: &Path) -> Result<Settings, BindingsError> {
    let text = match files::read_text(path, FILE_LIMIT) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(BindingsError::Read { path: path.to_owned(), source }),
    };
    let invalid = |reason: String| BindingsError::Invalid { path: path.to_owned(), reason };
    let mut settings: Settings = toml::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    if let Some(url) = variable("N3_TOOL_SERVICE_URL") {
        settings.python_tools.service_url = Some(url.trim().to_owned());
    }
    if let Some(seconds) = variable("N3_PYTHON_TOOL_TIMEOUT_SECONDS") {
        let wrong = |_| BindingsError::Invalid {
            path: "N3_PYTHON_TOOL_TIMEOUT_SECONDS".into(),
            reason: format!("expected a number of seconds, found {seconds:?}"),
        };
        settings.python_tools.timeout_seconds = Some(seconds.trim().parse().map_err(wrong)?);
    }
    if settings.python_tools.timeout_seconds.is_some_and(|seconds| seconds.is_nan() || seconds <= 0.0) {
        return Err(invalid("python_tools.timeout_seconds: a timeout must be positive".into()));
    }
    Ok(settings)
}
