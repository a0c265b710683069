//! Graders: what each type looks for.

use std::time::Duration;

use super::members::CONTENT_PATTERN;
use super::reader::Reader;
use super::settings::{
    EQUALS, MATCHES, MILLIS, NOT_MATCHES, NOT_PATHS, NOT_VALUES, PATHS, RANGE, SECONDS, SUPPORTED, Settings, VALUES,
};
use crate::foreign;
use crate::grade::{Condition, Grader, Marginal};
use crate::measurement::UNIT_LIMIT;
use crate::yaml::{Node, NodeKind};
use rigline_host::coerce::nearest_or_longer;
use rigline_host::number;

pub(super) fn graders(reader: &mut Reader<'_>, node: &Node, name: &str) -> Vec<Grader> {
    let mut graders = Vec::new();
    for element in reader.list(node, name) {
        if !matches!(element.kind, NodeKind::Map(_)) {
            reader.fault(element, format!("A grader is a map, found {}", element.what()));
            continue;
        }
        graders.extend(grader(reader, element));
    }
    graders
}

#[allow(clippy::too_many_lines, reason = "an arm for each type of grader")]
fn grader(reader: &mut Reader<'_>, node: &Node) -> Option<Grader> {
    let kind = reader.required(node, "type")?;
    let inner = reader.map(node, "config");
    let settings = Settings { node, inner, kind: kind.clone() };
    settings.check(reader);
    let mut unit = None;
    let check = match kind.as_str() {
        "file_exists" => {
            let (present, absent) = (settings.paths(reader, PATHS), settings.paths(reader, NOT_PATHS));
            if present.is_empty() && absent.is_empty() {
                settings.fault(reader, "Missing required field: path");
            }
            Condition::Files { present, absent }
        }
        "file" => file(reader, &settings),
        "text" => text(reader, &settings, true),
        "console" => {
            if settings.get(&["output"]).is_some() {
                settings.fault(reader, "the console of a step is judged as a whole, so output has no meaning");
            }
            Condition::Console(Box::new(text(reader, &settings, false)))
        }
        "regex" => {
            let matches = settings.patterns(reader, MATCHES, node);
            let not = settings.patterns(reader, NOT_MATCHES, node);
            if settings.texts(reader, MATCHES).is_empty() && settings.texts(reader, NOT_MATCHES).is_empty() {
                settings.fault(reader, "Missing required field: must_match or must_not_match");
            }
            Condition::Regex { matches, not }
        }
        "contains" | "not_contains" | "output_contains" | "output_contains_any" => {
            let (mut values, mut not) = (settings.looked_for(reader, VALUES), settings.looked_for(reader, NOT_VALUES));
            if kind == "not_contains" {
                not.append(&mut values);
            }
            if values.is_empty() && not.is_empty() {
                settings.fault(reader, "Missing required field: value");
            }
            let ignore_case = settings.ignores_case(reader, false);
            Condition::Contains { values, not, any: kind == "output_contains_any", ignore_case }
        }
        "output_equals" => {
            let wanted = settings.get(EQUALS);
            if wanted.is_none() {
                settings.fault(reader, "Missing required field: value");
            }
            Condition::Equals {
                text: wanted.map(|wanted| wanted.text().unwrap_or_else(|| wanted.json())).unwrap_or_default(),
                json: wanted.map_or_else(|| "null".to_owned(), Node::wanted),
            }
        }
        "output_range" => {
            let (min, max) = (bound(reader, &settings, "min"), bound(reader, &settings, "max"));
            if settings.get(RANGE).is_none() {
                settings.fault(reader, "Missing required field: min or max");
            }
            let value = |bound: &Option<String>| bound.as_deref().and_then(number::decimal);
            if value(&min).zip(value(&max)).is_some_and(|(min, max)| min > max) {
                settings.fault(reader, "min is greater than max");
            }
            Condition::Range { min, max, marginal: Marginal::default() }
        }
        "measurement" => {
            let check;
            (check, unit) = measurement(reader, &settings);
            if settings.get(&["output"]).is_none() {
                settings.fault(reader, "Missing required field: output");
            }
            check
        }
        "max_duration" => {
            let most = match (settings.get(SECONDS), settings.get(MILLIS)) {
                (Some(member), _) => reader.duration("max", member),
                (None, Some(member)) => {
                    let seconds = member.number().filter(|ms| *ms > 0.0).map(|ms| ms / 1000.0);
                    let most = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                    if most.is_none() {
                        reader.fault(member, "max_ms: expected a number of milliseconds");
                    }
                    most
                }
                (None, None) => {
                    settings.fault(reader, "Missing required field: max");
                    None
                }
            };
            Condition::Duration { most: most.unwrap_or_default() }
        }
        other if foreign::GRADERS.contains(&other) => Condition::Unsupported,
        other => {
            let at = node.get("type").unwrap_or(node);
            let meant =
                nearest_or_longer(other, SUPPORTED).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            reader.fault(at, format!("Unknown grader type: {other}{meant} (there are {})", SUPPORTED.join(", ")));
            return None;
        }
    };
    let one = |reader: &mut Reader<'_>, name: &str| reader.text_of(name, settings.get(&[name])?);
    Some(Grader {
        name: reader.text(node, "name"),
        metric: one(reader, "metric"),
        weight: reader.number(node, "weight", 0.0..=1e6).unwrap_or(1.0),
        step: one(reader, "step"),
        output: one(reader, "output"),
        kind,
        check,
        unit,
        measurement: None,
        line: node.line,
    })
}

/// `text` and `console`: what is found in the text, where case counts if the name ends in `_cs` or the settings say so; and
/// patterns.
fn text(reader: &mut Reader<'_>, settings: &Settings<'_>, ignores_case: bool) -> Condition {
    let mut checks = Vec::new();
    let ignore_case = settings.ignores_case(reader, ignores_case);
    for (values, not, any, ignore_case) in [
        (VALUES, NOT_VALUES, false, ignore_case),
        (&["contains_cs"][..], &["not_contains_cs"][..], false, false),
        (&["contains_any"][..], &[][..], true, ignore_case),
    ] {
        let (values, not) = (settings.looked_for(reader, values), settings.looked_for(reader, not));
        if !(values.is_empty() && not.is_empty()) {
            checks.push(Condition::Contains { values, not, any, ignore_case });
        }
    }
    let matches =
        settings.patterns(reader, &["regex_match", "regex", "must_match", "pattern", "patterns"], settings.node);
    let not = settings.patterns(reader, &["regex_not_match", "must_not_match"], settings.node);
    let has_patterns = settings.get(MATCHES).is_some() || settings.get(NOT_MATCHES).is_some();
    if !(matches.is_empty() && not.is_empty()) {
        checks.push(Condition::Regex { matches, not });
    } else if checks.is_empty() && !has_patterns {
        settings.fault(reader, "Missing required field: contains, not_contains, regex_match or regex_not_match");
    } else if checks.is_empty() {
        settings.fault(reader, "there is nothing to search for, so this can never fail");
    }
    Condition::All(checks)
}

/// `file`: files that are there, others that are not, and what is in them.
fn file(reader: &mut Reader<'_>, settings: &Settings<'_>) -> Condition {
    let (mut present, mut absent) = (settings.paths(reader, PATHS), settings.paths(reader, NOT_PATHS));
    let mut checks = Vec::new();
    let node = settings.node;
    let matches = settings.patterns(reader, MATCHES, node);
    let not_matches = settings.patterns(reader, NOT_MATCHES, node);
    let (values, not_values) = (settings.looked_for(reader, &["contains"]), settings.looked_for(reader, NOT_VALUES));
    if !(matches.is_empty() && not_matches.is_empty() && values.is_empty() && not_values.is_empty()) {
        if present.is_empty() {
            settings.fault(reader, "Missing required field: path");
        }
        for path in &present {
            checks.push(Condition::FileText {
                path: path.clone(),
                matches: matches.clone(),
                not_matches: not_matches.clone(),
                values: values.clone(),
                not_values: not_values.clone(),
            });
        }
    }
    for pattern in settings
        .get(&["content_patterns"])
        .map(|patterns| reader.elements("content_patterns", patterns))
        .unwrap_or_default()
    {
        reader.check_members(pattern, &CONTENT_PATTERN);
        let Some(path) = reader.required(pattern, "path") else { continue };
        let check = Condition::FileText {
            matches: settings.patterns(reader, &["must_match", "pattern", "patterns"], pattern),
            not_matches: settings.patterns(reader, &["must_not_match"], pattern),
            values: Vec::new(),
            not_values: Vec::new(),
            path,
        };
        let is_set =
            |name: &&str| pattern.get(name).is_some_and(|member| !(member.is_list() && member.elements().is_empty()));
        if !["must_match", "pattern", "patterns", "must_not_match"].iter().any(is_set) {
            reader.fault(pattern, "content_patterns: Missing required field: must_match or must_not_match");
        }
        checks.push(check);
    }
    if reader.flag("exists", settings.get(&["exists"])) == Some(false) {
        if !checks.is_empty() {
            settings.fault(reader, "a file that must not exist has nothing in it");
        }
        absent.append(&mut present);
    }
    if present.is_empty() && absent.is_empty() && checks.is_empty() {
        settings.fault(reader, "Missing required field: path, must_exist, must_not_exist or content_patterns");
    }
    checks.insert(0, Condition::Files { present, absent });
    Condition::All(checks)
}

/// The limits and the unit of a measurement.
pub(super) fn measurement(reader: &mut Reader<'_>, settings: &Settings<'_>) -> (Condition, Option<String>) {
    let limits = ["low", "marginal_low", "marginal_high", "high"].map(|name| (name, bound(reader, settings, name)));
    let there: Vec<_> =
        limits.iter().filter_map(|(name, limit)| Some((*name, number::decimal(limit.as_deref()?)?))).collect();
    for two in there.windows(2) {
        if let [(below, least), (above, most)] = two
            && least > most
        {
            settings.fault(reader, &format!("{below} is greater than {above}"));
        }
    }
    let [min, marginal_min, marginal_max, max] = limits.map(|(_, limit)| limit);
    let unit = settings.get(&["unit"]).and_then(|member| reader.text_of("unit", member));
    if let Some(unit) = &unit
        && (unit.chars().count() > UNIT_LIMIT || unit.chars().any(char::is_control))
    {
        settings.fault(reader, &format!("unit: expected at most {UNIT_LIMIT} characters, without control characters"));
    }
    let equals = settings.get(&["equals"]).and_then(|member| reader.text_of("equals", member));
    let matches = settings.patterns(reader, &["matches"], settings.node).into_iter().next();
    let one_of = settings.get(&["one_of"]).map(|member| reader.texts("one_of", member)).unwrap_or_default();
    if settings.get(&["one_of"]).is_some() && one_of.is_empty() {
        settings.fault(reader, "one_of: there are none, so this can never pass");
    }
    if equals.is_none() && matches.is_none() && one_of.is_empty() {
        let marginal = Marginal { min: marginal_min, max: marginal_max };
        return (Condition::Range { min, max, marginal }, unit);
    }
    if !there.is_empty() || unit.is_some() {
        settings.fault(reader, "a text (equals, matches, one_of) has neither limits nor a unit");
    }
    (Condition::Text { equals, matches, one_of }, unit)
}

/// A limit, with its digits.
fn bound(reader: &mut Reader<'_>, settings: &Settings<'_>, name: &str) -> Option<String> {
    let member = settings.get(&[name])?;
    let digits = member.digits().filter(|digits| number::decimal(digits).is_some());
    if digits.is_none() {
        reader.fault(member, format!("{name}: expected a number, found {}", member.what()));
    }
    digits.map(str::to_owned)
}
