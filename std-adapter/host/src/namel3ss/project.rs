//! A namel3ss project: its settings and the bindings of its tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::bindings::{Binding, Bindings, BindingsError, FILE_LIMIT, Pack, Runner};
use crate::files;

/// A namel3ss project, as it was when it was loaded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Project {
    /// The folder of the project.
    pub app_root: PathBuf,
    /// The settings in the project's `namel3ss.toml`.
    pub settings: Settings,
    /// The bindings of the project's own tools, from `.namel3ss/tools.yaml` or `tools.yaml`.
    pub bindings: Bindings,
    /// The packs that are in use. Each has its source before it.
    pub packs: Vec<(Source, Pack)>,
    /// The tools of packs that are not verified or not enabled, with the id of their pack. They are
    /// not run.
    pub unavailable: BTreeMap<String, String>,
    /// The binding of all other names. `None` if other names are unknown tools.
    pub fallback: Option<Binding>,
}

/// The settings in `namel3ss.toml` that concern tools. Other tables are ignored.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Settings {
    /// The table `[python_tools]`, or `[python]`: how tools run.
    #[serde(alias = "python")]
    pub python_tools: PythonTools,
    /// The table `[tool_packs]`, or `[packs]`: which packs are in use.
    #[serde(alias = "packs")]
    pub tool_packs: ToolPacks,
    /// The table `[capability_overrides]`: the guarantees of each tool, and
    /// `allow_unsafe_execution`.
    pub capability_overrides: BTreeMap<String, BTreeMap<String, Value>>,
}

/// The settings for running tools.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PythonTools {
    /// The time limit of tools that declare none, in seconds [default: 10]. The variable
    /// `N3_PYTHON_TOOL_TIMEOUT_SECONDS` takes precedence.
    pub timeout_seconds: Option<f64>,
    /// The address of services that declare none. The variable `N3_TOOL_SERVICE_URL` takes
    /// precedence.
    pub service_url: Option<String>,
    /// Whether a service must declare the guarantees that it enforces before it is called.
    pub service_handshake_required: Option<bool>,
}

/// The choice of the packs that the project uses. A pack is an installed collection of tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolPacks {
    /// The ids of the installed packs that are in use. An installed pack that is not named here is
    /// not used.
    pub enabled_packs: Vec<String>,
    /// The ids of the packs that are switched off.
    pub disabled_packs: Vec<String>,
    /// The id of the preferred pack for a tool that several packs have, by the name of the tool.
    pub pinned_tools: BTreeMap<String, String>,
}

/// The source of a tool: the member `resolved_source` of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The tool is in a pack that comes with the host.
    BuiltinPack,
    /// The tool is in a pack in `.namel3ss/packs` or `packs/capability`.
    InstalledPack,
    /// The tool is in the project's own `tools.yaml`.
    Binding,
}

impl Source {
    /// Returns the name of the source in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BuiltinPack => "builtin_pack",
            Self::InstalledPack => "installed_pack",
            Self::Binding => "binding",
        }
    }
}

/// A tool whose name was resolved: its binding, its source and its runner.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Resolved<'a> {
    /// The name of the tool.
    pub tool: &'a str,
    /// The binding of the tool.
    pub binding: &'a Binding,
    /// The source of the tool.
    pub source: Source,
    /// The pack of the tool. `None` if the tool is the project's own.
    pub pack: Option<&'a Pack>,
    /// The runner of the tool.
    pub runner: Runner,
}

impl Project {
    /// Loads the project in the folder `app_root`. `builtin` lists folders of packs that come with
    /// the host.
    ///
    /// As in namel3ss, an installed pack counts if it is verified ([`Pack::is_verified`]) and
    /// enabled, and a pack in `packs/capability` if it is verified. A broken pack, a name that two
    /// packs have, and a tool that is bound twice are errors here, and not only when they are
    /// called.
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

    /// Finds the binding of a tool's name. Returns `None` if no tool has the name.
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
