//! One document: its members are read with their types, and their faults are recorded.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rigline::GoDuration;

use super::members::{Known, level_of};
use super::{Fault, TIME_LIMIT};
use crate::expand;
use crate::yaml::{Node, NodeKind};
use rigline_host::coerce::nearest_or_longer;
use rigline_host::terminal::is_control;

/// Reads one document, and records its faults.
pub(super) struct Reader<'r> {
    pub(super) path: &'r Path,
    pub(super) file: &'r str,
    pub(super) faults: &'r mut Vec<Fault>,
    /// Warnings, which do not make the eval invalid.
    pub(super) warnings: &'r mut Vec<Fault>,
    /// The values of `{{.Vars.NAME}}`.
    pub(super) vars: &'r [(String, String)],
}

impl Reader<'_> {
    /// The same, with other variables.
    pub(super) fn with<'s>(&'s mut self, vars: &'s [(String, String)]) -> Reader<'s> {
        Reader { path: self.path, file: self.file, faults: self.faults, warnings: self.warnings, vars }
    }

    pub(super) fn fault(&mut self, at: &Node, text: impl Into<String>) {
        self.fault_in(Some(at.line), text);
    }

    /// Records the variables that remain in a node as faults. `of` is the purpose of the node.
    pub(super) fn unfilled(&mut self, node: &Node, of: &str) {
        let mut wrong = Vec::new();
        expand::unfilled(node, self.vars, &mut wrong);
        wrong.into_iter().for_each(|(line, text)| self.fault_in(Some(line), text + of));
    }

    /// Notes what may be a mistake.
    pub(super) fn warn(&mut self, at: &Node, text: impl Into<String>) {
        let (path, file) = (self.path.to_owned(), self.file.to_owned());
        let warning = Fault { text: text.into(), path, file, line: Some(at.line) };
        // Several rows of one table have the same faults.
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Notes members of a map that are nearly known ones, and those that do nothing here. In some maps others are the file's own.
    pub(super) fn check_members(&mut self, node: &Node, known: &Known) {
        for (name, member) in node.members() {
            if known.names.contains(&name.as_str()) || name.starts_with("x-") || name.starts_with('$') {
                continue;
            }
            if known.elsewhere.contains(&name.as_str()) {
                self.warn(member, format!("{name}: not supported here; it has no effect"));
                continue;
            }
            let meant = known.meant.iter().find(|(written, _)| written == name).map(|(_, meant)| *meant);
            let what = known.what;
            if let Some(meant) = meant.or_else(|| nearest_or_longer(name, known.names)) {
                let advice = if node.get(meant).is_some() {
                    format!(", so it has no effect; `{meant}` is there too")
                } else {
                    format!("; did you mean `{meant}`?")
                };
                self.warn(member, format!("{name}: {what} has no such member{advice}"));
            } else if let Some(level) = level_of(name) {
                self.warn(member, format!("{name}: {what} has no such member; it is one of {level}"));
            } else if !known.is_open {
                let names = known.names.join(", ");
                self.warn(
                    member,
                    format!("{name}: {what} has no such member, so it has no effect; expected one of: {names}"),
                );
            }
        }
    }

    pub(super) fn fault_in(&mut self, line: Option<u32>, text: impl Into<String>) {
        self.faults.push(Fault { text: text.into(), path: self.path.to_owned(), file: self.file.to_owned(), line });
    }

    pub(super) fn fault_of_cases(&mut self, line: u32, text: String) {
        let is_of_option = line == expand::OPTION;
        let file = if is_of_option { String::new() } else { self.file.to_owned() };
        let fault = Fault { text, path: self.path.to_owned(), file, line: (!is_of_option).then_some(line) };
        // Several tasks have the same fault.
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    pub(super) fn text(&mut self, node: &Node, name: &str) -> Option<String> {
        self.text_of(name, node.get(name)?)
    }

    pub(super) fn text_of(&mut self, name: &str, member: &Node) -> Option<String> {
        let text = member.text();
        if text.is_none() {
            self.fault(member, format!("{name}: expected a string, found {}", member.what()));
        }
        text
    }

    pub(super) fn required(&mut self, node: &Node, name: &str) -> Option<String> {
        if node.get(name).is_none() {
            self.fault(node, format!("Missing required field: {name}"));
            return None;
        }
        let text = self.text(node, name)?;
        if text.trim().is_empty() {
            self.fault(node.get(name).unwrap_or(node), format!("{name}: must not be empty"));
        }
        Some(text)
    }

    /// A text, or a list of texts.
    pub(super) fn texts(&mut self, name: &str, member: &Node) -> Vec<String> {
        let elements = match member.kind {
            NodeKind::List(ref elements) => elements.as_slice(),
            _ => std::slice::from_ref(member),
        };
        let mut texts = Vec::new();
        for element in elements {
            match element.text() {
                Some(text) => texts.push(text),
                None => self.fault(element, format!("{name}: expected a string, found {}", element.what())),
            }
        }
        texts
    }

    /// Records an id with control characters as a fault, since lists, logs and reports show it.
    pub(super) fn check_id(&mut self, node: &Node, id: &str) {
        if id.trim().is_empty() && node.get("id").is_some() {
            self.fault(node, "id: must not be empty");
        }
        if id.chars().any(is_control) {
            let text = "id: must not have control characters or marks that reorder text";
            self.fault(node.get("id").unwrap_or(node), text);
        }
    }

    pub(super) fn number(&mut self, node: &Node, name: &str, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
        let member = node.get(name)?;
        match member.number() {
            Some(number) if range.contains(&number) => Some(number),
            found if found.is_some() || member.digits().is_some() => {
                let (least, most) = range.into_inner();
                let written = member.text().unwrap_or_default();
                self.fault(member, format!("{name}: must be from {least} to {most}, is {written}"));
                None
            }
            _ => {
                self.fault(member, format!("{name}: expected a number, found {}", member.what()));
                None
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range, and whole")]
    pub(super) fn whole(&mut self, node: &Node, name: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
        let (least, most) = range.into_inner();
        let number = self.number(node, name, f64::from(least)..=f64::from(most))?;
        if number.fract() != 0.0 {
            self.fault(node.get(name).unwrap_or(node), format!("{name}: expected a whole number, found {number}"));
            return None;
        }
        Some(number as u32)
    }

    pub(super) fn seconds(&mut self, node: &Node, name: &str) -> Option<Duration> {
        self.number(node, name, 0.001..=TIME_LIMIT.as_secs_f64()).map(Duration::from_secs_f64)
    }

    /// `2s`, `1m30s`, or a number of seconds.
    pub(super) fn duration(&mut self, name: &str, member: &Node) -> Option<Duration> {
        let duration = match &member.kind {
            // Also a placeholder that a number filled.
            _ if member.digits().is_some() => {
                member.number().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            }
            NodeKind::Text(text) => {
                let nanos = GoDuration::parse(text.trim()).ok().map(GoDuration::as_nanos);
                nanos.and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
            }
            _ => None,
        };
        match duration.filter(|duration| !duration.is_zero()) {
            Some(duration) if duration <= TIME_LIMIT => Some(duration),
            Some(_) => {
                self.fault(member, format!("{name}: must be at most {} hours", TIME_LIMIT.as_secs() / 3600));
                None
            }
            None => {
                self.fault(member, format!("{name}: expected a duration such as 2s, 1m30s or 500ms"));
                None
            }
        }
    }

    pub(super) fn flag(&mut self, name: &str, member: Option<&Node>) -> Option<bool> {
        let member = member?;
        let flag = member.bool();
        if flag.is_none() {
            self.fault(member, format!("{name}: expected true or false, found {}", member.what()));
        }
        flag
    }

    pub(super) fn map<'n>(&mut self, node: &'n Node, name: &str) -> Option<&'n Node> {
        let member = node.get(name)?;
        if matches!(member.kind, NodeKind::Map(_)) {
            return Some(member);
        }
        self.fault(member, format!("{name}: expected a map, found {}", member.what()));
        None
    }

    pub(super) fn list<'n>(&mut self, node: &'n Node, name: &str) -> &'n [Node] {
        node.get(name).map(|member| self.elements(name, member)).unwrap_or_default()
    }

    pub(super) fn elements<'n>(&mut self, name: &str, member: &'n Node) -> &'n [Node] {
        if !matches!(member.kind, NodeKind::List(_)) {
            self.fault(member, format!("{name}: expected a list, found {}", member.what()));
        }
        member.elements()
    }

    pub(super) fn env(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for (name, value) in self.map(node, "env").map(Node::members).unwrap_or_default() {
            match value.text() {
                Some(text) => drop(env.insert(name.clone(), text)),
                None => self.fault(value, format!("env.{name}: expected a string, found {}", value.what())),
            }
        }
        env
    }
}
