//! The settings of graders: their names, and what they hold.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::reader::Reader;
use crate::yaml::Node;
use rigline_host::coerce::nearest_or_longer;

pub(super) const SUPPORTED: &[&str] = &[
    "text",
    "file",
    "file_exists",
    "regex",
    "contains",
    "not_contains",
    "output_contains",
    "output_contains_any",
    "output_equals",
    "output_range",
    "measurement",
    "max_duration",
    "console",
];

/// The members that every grader may have.
const COMMON: &[&str] = &["type", "name", "metric", "weight", "step", "output", "config", "description"];

pub(super) const VALUES: &[&str] =
    &["values", "value", "contains", "text", "must_contain", "output_contains", "output_contains_any"];
pub(super) const NOT_VALUES: &[&str] = &["not_contains", "must_not_contain"];
pub(super) const MATCHES: &[&str] = &["must_match", "pattern", "patterns", "regex_match", "regex"];
pub(super) const NOT_MATCHES: &[&str] = &["must_not_match", "regex_not_match"];
pub(super) const PATHS: &[&str] = &["path", "paths", "files", "must_exist"];
pub(super) const NOT_PATHS: &[&str] = &["must_not_exist", "absent"];
const CASE: &[&str] = &["ignore_case", "case_sensitive"];
pub(super) const EQUALS: &[&str] = &["value", "equals", "expected"];
pub(super) const RANGE: &[&str] = &["min", "max"];
const LIMITS: &[&str] = &["low", "high", "marginal_low", "marginal_high", "unit", "equals", "matches", "one_of"];
pub(super) const SECONDS: &[&str] = &["max", "duration", "limit", "seconds", "max_seconds", "max_duration", "value"];
pub(super) const MILLIS: &[&str] = &["max_ms", "ms", "max_duration_ms"];

/// The settings of a grader, in addition to the common ones.
fn settings_of(kind: &str) -> Vec<&'static str> {
    let groups: &[&[&'static str]] = match kind {
        "text" | "console" => {
            &[VALUES, NOT_VALUES, &["contains_cs", "not_contains_cs", "contains_any"], MATCHES, NOT_MATCHES, CASE]
        }
        "file" => &[PATHS, NOT_PATHS, &["exists", "content_patterns", "contains"], NOT_VALUES, MATCHES, NOT_MATCHES],
        "file_exists" => &[PATHS, NOT_PATHS],
        "regex" => &[MATCHES, NOT_MATCHES],
        "contains" | "not_contains" | "output_contains" | "output_contains_any" => &[VALUES, NOT_VALUES, CASE],
        "output_equals" => &[EQUALS],
        "output_range" => &[RANGE],
        "measurement" => &[LIMITS],
        "max_duration" => &[SECONDS, MILLIS],
        _ => &[],
    };
    groups.concat()
}

/// One grader, as it is read.
pub(super) struct Settings<'n> {
    pub(super) node: &'n Node,
    pub(super) inner: Option<&'n Node>,
    pub(super) kind: String,
}

impl<'n> Settings<'n> {
    /// Notes settings that a grader does not have and that are nearly its own, or another's.
    pub(super) fn check(&self, reader: &mut Reader<'_>) {
        let kind = self.kind.as_str();
        if !SUPPORTED.contains(&kind) {
            return;
        }
        self.check_single(reader);
        let known: Vec<&str> = settings_of(kind).into_iter().chain(COMMON.iter().copied()).collect();
        let others: Vec<&str> = SUPPORTED.iter().flat_map(|kind| settings_of(kind)).collect();
        for (name, member) in self.node.members().iter().chain(self.inner.map(Node::members).unwrap_or_default()) {
            if known.contains(&name.as_str()) || name.starts_with("x-") || name.starts_with('$') {
                continue;
            }
            if others.contains(&name.as_str()) {
                reader.warn(member, format!("{name}: a grader of type {kind} has no such setting; it has no effect"));
            } else if let Some(meant) = nearest_or_longer(name, &known).or_else(|| nearest_or_longer(name, &others)) {
                reader.warn(member, format!("{name}: a grader has no such member; did you mean `{meant}`?"));
            } else {
                let known = known.join(", ");
                let text = format!(
                    "{name}: a grader of type {kind} has no such setting, so it has no effect; expected one of: {known}"
                );
                reader.warn(member, text);
            }
        }
    }

    /// Settings are at the top level or under `config`.
    pub(super) fn get(&self, names: &[&str]) -> Option<&'n Node> {
        names.iter().find_map(|name| self.node.get(name).or_else(|| self.inner.and_then(|inner| inner.get(name))))
    }

    /// All members of these names, at both levels.
    fn all(&self, names: &[&str]) -> Vec<&'n Node> {
        let levels = std::iter::once(self.node).chain(self.inner);
        levels.flat_map(|level| names.iter().filter_map(|name| level.get(name))).collect()
    }

    /// The texts of all members of these names.
    pub(super) fn texts(&self, reader: &mut Reader<'_>, names: &[&str]) -> Vec<String> {
        let name = names.first().copied().unwrap_or_default();
        self.all(names).into_iter().flat_map(|member| reader.texts(name, member)).collect()
    }

    /// Notes a setting that has several values, of which one would count: `min` at both levels, or `max` and `max_ms`.
    fn check_single(&self, reader: &mut Reader<'_>) {
        let durations = [SECONDS, MILLIS].concat();
        let own: &[&[&str]] = match self.kind.as_str() {
            "output_equals" => &[EQUALS],
            "output_range" => &[&["min"], &["max"]],
            "measurement" => &[
                &["low"],
                &["high"],
                &["marginal_low"],
                &["marginal_high"],
                &["unit"],
                &["equals"],
                &["matches"],
                &["one_of"],
            ],
            "max_duration" => &[&durations],
            "file" => &[&["exists"]],
            _ => &[],
        };
        for names in own.iter().chain(&[CASE, &["step"], &["output"], &["metric"]]) {
            let found: Vec<&str> = std::iter::once(self.node)
                .chain(self.inner)
                .flat_map(|level| names.iter().copied().filter(|name| level.get(name).is_some()))
                .collect();
            if found.len() > 1 {
                self.fault(reader, &format!("only one of these counts, so keep that one: {}", found.join(", ")));
            }
        }
    }

    pub(super) fn fault(&self, reader: &mut Reader<'_>, text: &str) {
        reader.fault(self.node, format!("{}: {text}", self.kind));
    }

    /// Texts to look for. An empty one is in every text, so that it says nothing.
    pub(super) fn looked_for(&self, reader: &mut Reader<'_>, names: &[&str]) -> Vec<String> {
        let texts = self.texts(reader, names);
        if texts.iter().any(String::is_empty) {
            self.fault(reader, "an empty text is in every output, so this can never fail, or never pass");
        }
        texts
    }

    pub(super) fn patterns(&self, reader: &mut Reader<'_>, names: &[&str], holder: &Node) -> Vec<Regex> {
        let name = names.first().copied().unwrap_or_default();
        let found = if std::ptr::eq(holder, self.node) {
            self.all(names)
        } else {
            names.iter().filter_map(|name| holder.get(name)).collect()
        };
        let mut compiled = Vec::new();
        let patterns: Vec<_> = found
            .into_iter()
            .flat_map(|at| reader.texts(name, at).into_iter().map(move |pattern| (at, pattern)))
            .collect();
        for (at, pattern) in patterns {
            match Regex::new(&pattern) {
                Ok(regex) => {
                    if matches_everything(&regex) {
                        reader.fault(
                            at,
                            format!(
                                "{name}: `{pattern}` matches every text, so this can never {}",
                                if name.contains("not") { "pass" } else { "fail" }
                            ),
                        );
                    }
                    compiled.push(regex);
                }
                Err(error) => {
                    let why = error.to_string();
                    let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
                    reader.fault(at, format!("{name}: `{pattern}` is not a regular expression: {why}"));
                }
            }
        }
        compiled
    }

    pub(super) fn paths(&self, reader: &mut Reader<'_>, names: &[&str]) -> Vec<String> {
        let paths = self.texts(reader, names);
        for path in &paths {
            if !Path::new(path).components().any(|part| matches!(part, std::path::Component::Normal(_))) {
                self.fault(reader, &format!("`{path}` is always there, so this can never fail, or never pass"));
            }
        }
        paths
    }

    pub(super) fn ignores_case(&self, reader: &mut Reader<'_>, usual: bool) -> bool {
        let ignore_case = reader.flag("ignore_case", self.get(&["ignore_case"]));
        let case_sensitive = reader.flag("case_sensitive", self.get(&["case_sensitive"]));
        ignore_case.or(case_sensitive.map(|sensitive| !sensitive)).unwrap_or(usual)
    }
}

/// Whether a pattern says nothing: it matches texts that have nothing in common.
fn matches_everything(regex: &Regex) -> bool {
    static PROBES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let ascii: String = (' '..='~').chain("\t\r\n\u{7f}".chars()).collect();
        let mut probes: Vec<String> =
            ["", "a", "0", " ", "\n", "\n\n", "Z\n9", "\u{0}", "é", "\u{1f600}\u{4e2d}", "--", "_._"]
                .into_iter()
                .map(str::to_owned)
                .collect();
        probes.push(ascii.repeat(200));
        probes.push(format!("\n{ascii}\n"));
        probes
    });
    PROBES.iter().all(|probe| regex.is_match(probe))
}
