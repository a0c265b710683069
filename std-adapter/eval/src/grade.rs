//! Graders. A grader judges one aspect of a trial.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use bigdecimal::BigDecimal;
use regex::Regex;
use rigline::json::{Json, JsonKind};
use rigline::protocol::waza::Verdict;

use super::console::Transcript;
use super::placeholders::{is_whole, substitute};
pub(crate) use super::records::{Grade, GradeVerdict};
use super::records::{Measurement, StepRecord};
use super::root::FILE_LIMIT;
use rigline_host::terminal::cut;
use rigline_host::{coerce, files, number};

/// The longest text that a message quotes, in characters.
const LONGEST_TEXT: usize = 120;

/// The longest number, or list of numbers, that a measurement keeps as a whole, in bytes.
const LONGEST_NUMBERS: usize = 16 * 1024;

/// One condition that a trial is judged by, as the eval or its task has it under `graders`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Grader {
    /// The name of the grader, if the file gives it one.
    pub name: Option<String>,
    /// The name of the metric that the grader counts for. `None` if it counts for no metric.
    pub metric: Option<String>,
    /// The weight of the grader in its metric, relative to the other graders of that metric.
    pub weight: f64,
    /// The id of the step whose output is judged. `None` means all steps and the answer of the
    /// agent.
    pub step: Option<String>,
    /// The name of the output that is judged. `None` means the message of the step and all its
    /// outputs.
    pub output: Option<String>,
    /// The type of the grader, as the file spells it, such as `output_range`.
    pub kind: String,
    /// The condition under which the grader passes.
    pub check: Condition,
    /// The unit of the measured number, such as `V`.
    pub unit: Option<String>,
    /// The name of its measurement, which no other one of its task has. `None` until all graders
    /// of the task are known.
    pub(super) measurement: Option<String>,
    /// The number of the grader's line in its file, from 1.
    pub(super) line: u32,
}

/// The condition under which a grader passes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Condition {
    /// Some files exist, and others do not. A relative path starts at the working folder of the
    /// trial.
    Files {
        /// The files that must exist.
        present: Vec<String>,
        /// The files that must not exist.
        absent: Vec<String>,
    },
    /// Some regular expressions match the judged text, and others do not.
    Regex {
        /// The patterns that must match.
        matches: Vec<Regex>,
        /// The patterns that must not match.
        not: Vec<Regex>,
    },
    /// The judged text contains some texts and does not contain others.
    Contains {
        /// The texts that must occur. All of them must, unless `any` is set.
        values: Vec<String>,
        /// The texts that must not occur.
        not: Vec<String>,
        /// Whether a single one of `values` is enough.
        any: bool,
        /// Whether upper case and lower case are the same.
        ignore_case: bool,
    },
    /// The text of a file. A relative path starts at the working folder of the trial.
    FileText {
        /// The path of the file.
        path: String,
        /// The patterns that must match the text of the file.
        matches: Vec<Regex>,
        /// The patterns that must not match.
        not_matches: Vec<Regex>,
        /// The texts that must occur in the file.
        values: Vec<String>,
        /// The texts that must not occur.
        not_values: Vec<String>,
    },
    /// All of the listed checks pass.
    All(Vec<Condition>),
    /// The condition holds for what the steps read from the console of the board under test.
    ///
    /// If steps did not read all that came, a condition on what must not occur fails.
    Console(Box<Condition>),
    /// The judged text equals an expected value.
    ///
    /// The two are compared as text, without the white space at their ends, or as JSON values.
    /// Numbers are equal if their values are equal, however they are written.
    Equals {
        /// The value as text.
        text: String,
        /// The value as JSON text.
        json: String,
    },
    /// The judged text is a number from `min` to `max`, both included. All its digits are compared.
    ///
    /// A grader of type `measurement` also accepts a list of numbers. Each of them must be in the
    /// range.
    Range {
        /// The smallest number that passes, as JSON text. `None` means no lower limit.
        min: Option<String>,
        /// The largest number that passes, as JSON text. `None` means no upper limit.
        max: Option<String>,
        /// Narrower limits. A number beyond them passes, and is reported as marginal.
        marginal: Marginal,
    },
    /// The judged text fulfils conditions on text. It is recorded as a measurement.
    Text {
        /// The expected text. White space at the ends is ignored.
        equals: Option<String>,
        /// A pattern that must match the whole text.
        matches: Option<Regex>,
        /// The allowed texts. If the list is empty, any text is allowed.
        one_of: Vec<String>,
    },
    /// The trial or the step took at most a given time.
    Duration {
        /// The longest time that passes.
        most: Duration,
    },
    /// The type of the grader is one that this runner does not support. It counts neither way.
    Unsupported,
}

impl Condition {
    /// Whether these steps have all that it is filled with. A later step may still make a file.
    fn has_all(&self, steps: &[StepRecord]) -> bool {
        let is_filled = |text: &String| substitute(text, steps).is_ok();
        match self {
            Self::Files { .. } | Self::FileText { .. } => false,
            Self::Contains { values, not, .. } => values.iter().chain(not).all(is_filled),
            Self::Equals { text, json } => is_filled(text) && is_filled(json),
            Self::Text { equals, one_of, .. } => equals.iter().chain(one_of).all(is_filled),
            Self::All(checks) => checks.iter().all(|check| check.has_all(steps)),
            Self::Console(check) => check.has_all(steps),
            Self::Regex { .. } | Self::Range { .. } | Self::Duration { .. } | Self::Unsupported => true,
        }
    }
}

impl Condition {
    /// Whether it says what must not occur.
    fn has_negatives(&self) -> bool {
        match self {
            Self::Regex { not, .. } => !not.is_empty(),
            Self::Contains { not, .. } => !not.is_empty(),
            Self::All(checks) => checks.iter().any(Self::has_negatives),
            _ => false,
        }
    }
}

/// Limits within the limits of a measurement. A number beyond them passes, and is reported as
/// marginal.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Marginal {
    /// The smallest number that is not marginal, as JSON text. `None` means no lower limit.
    pub min: Option<String>,
    /// The largest number that is not marginal, as JSON text. `None` means no upper limit.
    pub max: Option<String>,
}

/// The data of a trial that graders judge.
pub(super) struct Evidence<'a> {
    pub(super) workdir: &'a Path,
    pub(super) agent: Option<&'a str>,
    pub(super) steps: &'a [StepRecord],
    pub(super) elapsed: Duration,
}

impl Grader {
    /// A grader from a task's `expected`.
    pub(super) fn expected(kind: &str, texts: Vec<String>) -> Self {
        let (values, not) = if kind == "output_not_contains" { (Vec::new(), texts) } else { (texts, Vec::new()) };
        let check = Condition::Contains { values, not, any: kind == "output_contains_any", ignore_case: false };
        Self { check, ..Self::unjudged(kind) }
    }

    /// A grader of type `kind` that this runner cannot judge.
    pub(super) fn unjudged(kind: &str) -> Self {
        Self {
            name: None,
            metric: None,
            weight: 1.0,
            step: None,
            output: None,
            kind: kind.to_owned(),
            check: Condition::Unsupported,
            unit: None,
            measurement: None,
            line: 0,
        }
    }

    /// A grader that passes if an output of a step equals `text`, or the JSON text `json`.
    pub(super) fn equals(step: &str, output: &str, text: String, json: String, line: u32) -> Self {
        let check = Condition::Equals { text, json };
        let (step, output) = (Some(step.to_owned()), Some(output.to_owned()));
        Self { step, output, kind: "output_equals".into(), check, line, ..Self::unjudged("") }
    }

    /// Returns the name of the grader. If it has no name, returns its type.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.kind)
    }

    /// The name of the measurement, without its step and number.
    pub(super) fn measured(&self) -> &str {
        self.name.as_deref().or(self.output.as_deref()).unwrap_or(&self.kind)
    }

    /// Whether both are measurements of one name. Without names, they must be of the same step.
    pub(super) fn is_same_measurement(&self, other: &Self) -> bool {
        let are_measurements = self.kind == "measurement" && other.kind == "measurement";
        let have_names = self.name.is_some() || other.name.is_some();
        are_measurements && self.measured() == other.measured() && (have_names || self.step == other.step)
    }

    /// Whether it judges a single step, which did its part.
    pub(super) fn is_of_passed_step(&self, steps: &[StepRecord]) -> bool {
        let has_passed = |step: &StepRecord| step.verdict == Verdict::Passed;
        self.step.as_deref().is_some_and(|id| steps.iter().any(|step| step.id == id && has_passed(step)))
    }

    /// Whether its judgement stays as it is, whatever steps may still come.
    pub(super) fn is_certain(&self, steps: &[StepRecord]) -> bool {
        self.is_of_passed_step(steps) && self.check.has_all(steps)
    }

    pub(super) fn grade(&self, evidence: &Evidence<'_>) -> Grade {
        let (judgement, message) = match self.judge(&self.check, evidence) {
            Ok(message) if matches!(self.check, Condition::Unsupported) => (GradeVerdict::Unsupported, message),
            Ok(message) => (GradeVerdict::Passed, message),
            Err(message) => (GradeVerdict::Failed, message),
        };
        Grade {
            grader: self.label().to_owned(),
            kind: self.kind.clone(),
            metric: self.metric.clone(),
            weight: self.weight,
            judgement,
            message,
            measurement: self.measurement(evidence, judgement == GradeVerdict::Passed),
        }
    }

    fn measurement(&self, evidence: &Evidence<'_>, passed: bool) -> Option<Measurement> {
        let without = (None, Marginal::default());
        let (min, max, marginal) = match &self.check {
            Condition::Range { min, max, marginal } => (min, max, marginal),
            Condition::Text { .. } => (&without.0, &without.0, &without.1),
            _ => return None,
        };
        let value = match self.text(evidence) {
            // With all digits, which statistics need.
            Ok(text) if text.len() <= LONGEST_NUMBERS && self.numbers(&text).is_ok() => text.trim().to_owned(),
            Ok(text) => cut(text.trim(), LONGEST_TEXT),
            // Nothing is known of what was not measured, but a step that did its part should have the output.
            Err(_) if self.is_of_passed_step(evidence.steps) => String::new(),
            Err(_) => return None,
        };
        let name = self.measurement.as_deref().unwrap_or_else(|| self.measured()).to_owned();
        let is_marginal = passed
            && self.text(evidence).and_then(|text| self.numbers(&text)).is_ok_and(|numbers| {
                numbers.iter().any(|number| is_beyond(number, marginal.min.as_deref(), marginal.max.as_deref()))
            });
        let measured = Measurement::new(name, value, self.unit.clone(), min.clone(), max.clone(), passed);
        Some(Measurement { is_marginal, ..measured })
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each kind of check")]
    fn judge(&self, check: &Condition, evidence: &Evidence<'_>) -> Result<String, String> {
        match check {
            Condition::All(checks) => {
                for check in checks {
                    self.judge(check, evidence)?;
                }
                Ok("all is as it should be".into())
            }
            Condition::Console(check) => {
                let lost = self.transcript(evidence)?.lost();
                if lost > 0 && check.has_negatives() {
                    return Err(format!(
                        "{lost} bytes of the console were not read, so nobody knows what they were: read more often"
                    ));
                }
                self.judge(check, evidence)
            }
            Condition::FileText { path, matches, not_matches, values, not_values } => {
                let path = substitute(path, evidence.steps)?;
                let text = files::read_text(&evidence.workdir.join(&*path), FILE_LIMIT)
                    .map_err(|error| format!("{path}: {error}"))?;
                let none = |regex: &&Regex| !regex.is_match(&text);
                if let Some(regex) = matches.iter().find(none) {
                    return Err(format!("/{regex}/ does not match {path}"));
                }
                if let Some(regex) = not_matches.iter().find(|regex| regex.is_match(&text)) {
                    return Err(format!("/{regex}/ matches {path}"));
                }
                for (values, wanted) in [(values, true), (not_values, false)] {
                    for value in values {
                        let value = filled(value, evidence)?;
                        if text.contains(&*value) != wanted {
                            return Err(format!("{} is {}in {path}", shown(&value), if wanted { "not " } else { "" }));
                        }
                    }
                }
                Ok(format!("{path} is as it should be"))
            }
            Condition::Unsupported => Ok(format!("graders of type {} are not supported here", self.kind)),
            Condition::Files { present, absent } => {
                for (paths, wanted) in [(present, true), (absent, false)] {
                    for path in paths {
                        let path = substitute(path, evidence.steps)?;
                        // Of a path that cannot be looked at, neither is known.
                        let exists = match evidence.workdir.join(&*path).try_exists() {
                            Err(error) if error.kind() != ErrorKind::NotADirectory => {
                                return Err(format!("{path}: {error}"));
                            }
                            exists => exists.unwrap_or(false),
                        };
                        if exists != wanted {
                            return Err(format!("{path} {}", if wanted { "is missing" } else { "is there" }));
                        }
                    }
                }
                Ok("files are as they should be".into())
            }
            Condition::Regex { matches, not } => {
                let text = self.text(evidence)?;
                if let Some(regex) = matches.iter().find(|regex| !regex.is_match(&text)) {
                    return Err(format!("/{regex}/ does not match {}", shown(&text)));
                }
                match not.iter().find_map(|regex| Some((regex, regex.find(&text)?))) {
                    Some((regex, found)) => Err(format!("/{regex}/ matches {}", shown(found.as_str()))),
                    None => Ok("matches".into()),
                }
            }
            Condition::Contains { values, not, any, ignore_case } => {
                let fold = |text: &str| if *ignore_case { without_case(text) } else { text.to_owned() };
                let text = self.text(evidence)?;
                let folded = fold(&text);
                let found = |value: &String| Ok::<_, String>(folded.contains(&fold(&filled(value, evidence)?)));
                let mut missing = Vec::new();
                for value in values {
                    if !found(value)? {
                        missing.push(value);
                    }
                }
                let failed =
                    if *any { missing.len() == values.len() && !values.is_empty() } else { !missing.is_empty() };
                if failed {
                    let missing = missing.iter().map(|value| shown(value)).collect::<Vec<_>>().join(", ");
                    let which = if *any { "none of " } else { "" };
                    return Err(format!("{which}{missing} not in {}", shown(&text)));
                }
                for value in not {
                    if found(value)? {
                        return Err(format!("{} is in {}", shown(value), shown(&text)));
                    }
                }
                Ok("found".into())
            }
            Condition::Equals { text: wanted, json } => {
                let text = self.text(evidence)?;
                let filled = substitute(wanted, evidence.steps)?;
                let equal = text.trim() == filled.trim()
                    || coerce::same(text.trim(), json)
                    || is_wanted(json, &text, *filled != **wanted, evidence.steps)?;
                let message = format!("{} {} {}", shown(&text), if equal { "is" } else { "is not" }, shown(&filled));
                if equal { Ok(message) } else { Err(message) }
            }
            Condition::Text { equals, matches, one_of } => {
                let text = self.text(evidence)?;
                let found = text.trim();
                let fault = match (equals, matches) {
                    (Some(wanted), _) if found != wanted.trim() => Some(format!("is not {}", shown(wanted))),
                    (_, Some(regex)) if !is_whole_match(regex, found) => Some(format!("does not match /{regex}/")),
                    _ if !one_of.is_empty() && !one_of.iter().any(|one| one.trim() == found) => Some(format!(
                        "is none of {}",
                        one_of.iter().map(|one| shown(one)).collect::<Vec<_>>().join(", ")
                    )),
                    _ => None,
                };
                match fault {
                    Some(fault) => Err(format!("{} {fault}", shown(found))),
                    None => Ok(format!("{} was measured", shown(found))),
                }
            }
            Condition::Range { min, max, .. } => {
                let text = self.text(evidence)?;
                let found = self.numbers(&text)?;
                let is_outside = found.iter().any(|found| is_beyond(found, min.as_deref(), max.as_deref()));
                let say = |bound: &Option<String>| bound.clone().unwrap_or_else(|| "…".to_owned());
                if min.is_none() && max.is_none() {
                    return Ok(format!("{} was measured", cut(text.trim(), LONGEST_TEXT)));
                }
                let message = format!(
                    "{} is {} {} to {}",
                    cut(text.trim(), LONGEST_TEXT),
                    if is_outside { "outside" } else { "in" },
                    say(min),
                    say(max)
                );
                if is_outside { Err(message) } else { Ok(message) }
            }
            Condition::Duration { most } => {
                let took = match &self.step {
                    Some(_) => self.step_of(evidence)?.duration,
                    None => evidence.elapsed,
                };
                let message = format!("took {took:.0?}, the limit is {most:?}");
                if took <= *most { Ok(message) } else { Err(message) }
            }
        }
    }

    /// The numbers that are measured: one, or those of a list.
    fn numbers(&self, text: &str) -> Result<Vec<BigDecimal>, String> {
        if self.kind == "measurement"
            && let Ok(list) = Json::parse(text.trim().as_bytes())
            && list.kind() == JsonKind::Array
        {
            let numbers = list.elements().map(|element| match element.kind() {
                JsonKind::Number => number::decimal(element.as_str()).ok_or_else(|| not_comparable(element.as_str())),
                _ => Err(format!("{} is no number", cut(element.as_str(), LONGEST_TEXT))),
            });
            let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
            return if numbers.is_empty() { Err("the list has no numbers".to_owned()) } else { Ok(numbers) };
        }
        number::decimal(text).map(|number| vec![number]).ok_or_else(|| not_comparable(text))
    }

    fn step_of<'e>(&self, evidence: &Evidence<'e>) -> Result<&'e StepRecord, String> {
        let id = self.step.as_deref().unwrap_or_default();
        evidence.steps.iter().find(|step| step.id == id).ok_or_else(|| format!("step {id} did not run"))
    }

    /// The text that the step, or all steps, read from the console.
    fn transcript(&self, evidence: &Evidence<'_>) -> Result<Transcript, String> {
        match &self.step {
            Some(step) => {
                Transcript::of([self.step_of(evidence)?]).ok_or_else(|| format!("step {step} did not read the console"))
            }
            None => Transcript::of(evidence.steps).ok_or_else(|| "no step read the console".to_owned()),
        }
    }

    /// The text that is judged.
    fn text(&self, evidence: &Evidence<'_>) -> Result<String, String> {
        if matches!(self.check, Condition::Console(_)) {
            return self.transcript(evidence).map(|transcript| transcript.text());
        }
        match (&self.step, &self.output) {
            (Some(_), Some(output)) => {
                let step = self.step_of(evidence)?;
                step.output(output).map(str::to_owned).ok_or_else(|| step.no_output(output))
            }
            (Some(_), None) => Ok(self.step_of(evidence)?.text()),
            (None, Some(output)) => {
                let found = evidence.steps.iter().rev().find_map(|step| step.output(output));
                found.map(str::to_owned).ok_or_else(|| format!("no step has an output {output}"))
            }
            (None, None) => {
                let steps = evidence.steps.iter().map(StepRecord::text);
                Ok(evidence.agent.map(str::to_owned).into_iter().chain(steps).collect::<Vec<_>>().join("\n"))
            }
        }
    }
}

/// Whether a number is below the least or above the most.
fn is_beyond(found: &BigDecimal, min: Option<&str>, max: Option<&str>) -> bool {
    let bound = |bound: Option<&str>| bound.and_then(number::decimal);
    bound(min).is_some_and(|min| *found < min) || bound(max).is_some_and(|max| *found > max)
}

/// Whether a pattern matches a text from its beginning to its end.
fn is_whole_match(regex: &Regex, text: &str) -> bool {
    Regex::new(&format!(r"\A(?:{regex})\z")).is_ok_and(|whole| whole.is_match(text))
}

/// A text in lower case, letter by letter: a sigma at the end of a word has a letter of its own, and a part of a word ends elsewhere.
fn without_case(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).map(|char| if char == 'ς' { 'σ' } else { char }).collect()
}

/// A text to look for, with the outputs of steps in their places.
fn filled<'t>(text: &'t str, evidence: &Evidence<'_>) -> Result<std::borrow::Cow<'t, str>, String> {
    let filled = substitute(text, evidence.steps)?;
    // It would be found everywhere.
    if filled.is_empty() { Err(format!("{text} is empty, so there is nothing to search for")) } else { Ok(filled) }
}

/// Whether an output equals the expected JSON text: a number in any notation, such as the `+3.30E+00` of instruments,
/// or a value that contains outputs of earlier steps.
fn is_wanted(wanted: &str, output: &str, is_filled: bool, steps: &[StepRecord]) -> Result<bool, String> {
    let Ok(wanted) = Json::parse(wanted.as_bytes()) else { return Ok(false) };
    if wanted.kind() == JsonKind::Number {
        return Ok(number::decimal(output).is_some_and(|found| number::decimal(wanted.as_str()) == Some(found)));
    }
    if !is_filled {
        return Ok(false);
    }
    if let Some(text) = wanted.text() {
        // A number that another step gave, or a part of a text.
        let filled = substitute_text(&text.to_string(), steps)?;
        return Ok(number::decimal(output).is_some_and(|found| number::decimal(&filled) == Some(found))
            || coerce::same(output.trim(), filled.trim()));
    }
    match Json::parse(output.trim().as_bytes()) {
        Ok(found) => is_filled_same(wanted, found, steps),
        Err(_) => Ok(false),
    }
}

/// Whether a value is another, whose texts may have placeholders.
fn is_filled_same(wanted: Json<'_>, found: Json<'_>, steps: &[StepRecord]) -> Result<bool, String> {
    if let Some(text) = wanted.text() {
        let filled = substitute_text(&text.to_string(), steps)?;
        let is_text = found.text().is_some_and(|found| found == *filled);
        return Ok(is_text || is_whole(&text.to_string()) && coerce::same(&filled, found.as_str()));
    }
    match (wanted.kind(), found.kind()) {
        (JsonKind::Array, JsonKind::Array) => {
            let (wanted, found): (Vec<_>, Vec<_>) = (wanted.elements().collect(), found.elements().collect());
            let mut same = wanted.len() == found.len();
            for (wanted, found) in wanted.into_iter().zip(found) {
                same = same && is_filled_same(wanted, found, steps)?;
            }
            Ok(same)
        }
        (JsonKind::Object, JsonKind::Object) => {
            let names = |json: Json<'_>| json.members().map(|(name, _)| name.to_string()).collect::<HashSet<_>>();
            let mut same = names(wanted) == names(found);
            for (name, wanted) in wanted.members() {
                same = match found.get(&name.to_string()) {
                    Some(found) => same && is_filled_same(wanted, found, steps)?,
                    None => false,
                };
            }
            Ok(same)
        }
        _ => Ok(coerce::same(wanted.as_str(), found.as_str())),
    }
}

fn substitute_text(text: &str, steps: &[StepRecord]) -> Result<String, String> {
    substitute(text, steps).map(std::borrow::Cow::into_owned)
}

/// Why an output is not held against a limit.
fn not_comparable(output: &str) -> String {
    match Json::parse(output.trim().as_bytes()) {
        Ok(json) if json.kind() == JsonKind::Number => format!(
            "{} is not compared: a number may have {} bytes, and {} digits in its exponent",
            shown(output),
            number::DIGIT_LIMIT,
            number::EXPONENT_DIGITS
        ),
        _ => format!("{} is not a number", shown(output)),
    }
}

/// A text in a message: quoted, and cut.
fn shown(text: &str) -> String {
    format!("{:?}", cut(text.trim(), LONGEST_TEXT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grader(check: Condition, step: Option<&str>, output: Option<&str>) -> Grader {
        Grader {
            name: None,
            metric: None,
            weight: 1.0,
            step: step.map(str::to_owned),
            output: output.map(str::to_owned),
            kind: "k".into(),
            check,
            unit: None,
            measurement: None,
            line: 0,
        }
    }

    /// The console of a trial in which two steps read, and a third measured.
    #[test]
    fn a_console_is_judged_as_one_text_however_many_steps_read_it() {
        let read = |id: &str, data: &str, mark: &str, missed: &str| {
            StepRecord::done(id, "", &[("data", data), ("encoding", "text"), ("mark", mark), ("missed", missed)])
        };
        let grade = |steps: &[StepRecord], step: Option<&str>, values: &[&str], not: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            let check = Condition::Contains { values: texts(values), not: texts(not), any: false, ignore_case: false };
            let evidence = Evidence { workdir: Path::new("/"), agent: None, steps, elapsed: Duration::ZERO };
            let grade = grader(Condition::Console(Box::new(Condition::All(vec![check]))), step, None).grade(&evidence);
            (grade.judgement.as_str(), grade.message)
        };
        let steps = [
            read("first", "boot\r\nrea", "9", "0"),
            StepRecord::done("volts", "panic at 3.3 V", &[("volts", "3.3")]),
            read("second", "dy\r\n> ", "15", "0"),
        ];
        assert_eq!(grade(&steps, None, &["boot", "ready\r\n>"], &["panic"]).0, "passed");
        assert_eq!(grade(&steps, None, &["boot"], &["ready"]).0, "failed");
        assert_eq!(grade(&steps, Some("second"), &["dy"], &["boot"]).0, "passed");
        for (step, why) in [(Some("volts"), "step volts did not read the console"), (Some("x"), "step x did not run")] {
            assert_eq!(grade(&steps, step, &["dy"], &[]), ("failed", why.to_owned()));
        }
        assert_eq!(grade(&steps[1..2], None, &["panic"], &[]).1, "no step read the console");
        // Of bytes that nobody read, nobody can say that they were no panic.
        let gap = [read("first", "boot", "4", "0"), read("second", "> ", "106", "100")];
        assert_eq!(grade(&gap, None, &["boot"], &[]).0, "passed");
        assert_eq!(
            grade(&gap, None, &["boot"], &["panic"]),
            (
                "failed",
                "100 bytes of the console were not read, so nobody knows what they were: read more often".into()
            )
        );
    }

    #[test]
    fn what_graders_say() {
        let steps =
            [StepRecord::done("read", "3V3 is at 3.3 V", &[("volts", "3.300"), ("high", "true"), ("list", "[1, 2]")])];
        let evidence = Evidence {
            workdir: Path::new("/"),
            agent: Some("Hello World"),
            steps: &steps,
            elapsed: Duration::from_millis(1500),
        };
        let contains = |values: &[&str], any, ignore_case| Condition::Contains {
            values: values.iter().map(|&value| value.into()).collect(),
            not: vec!["secret".into()],
            any,
            ignore_case,
        };
        let range = |min: Option<&str>, max: Option<&str>| Condition::Range {
            min: min.map(str::to_owned),
            max: max.map(str::to_owned),
            marginal: Marginal::default(),
        };
        let equals = |json: &str| Condition::Equals {
            text: serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned()),
            json: json.to_owned(),
        };
        let regex = |matches: &str, not: &str| Condition::Regex {
            matches: vec![Regex::new(matches).unwrap()],
            not: vec![Regex::new(not).unwrap()],
        };
        let files = |present: &str, absent: &str| Condition::Files {
            present: vec![present.into()],
            absent: vec![absent.into()],
        };
        let duration = |millis| Condition::Duration { most: Duration::from_millis(millis) };
        let (read, volts) = (Some("read"), Some("volts"));
        let table = [
            (grader(range(Some("3.135"), Some("3.465")), read, volts), "passed"),
            (grader(range(Some("3.3"), Some("3.3")), read, volts), "passed"),
            (grader(range(Some("3.4"), None), read, volts), "failed"),
            (grader(range(None, Some("3.0")), read, volts), "failed"),
            (grader(range(None, Some("3.5")), None, volts), "passed"),
            (grader(range(None, Some("3.5")), read, Some("amps")), "failed"),
            (grader(range(None, Some("3.5")), Some("other"), volts), "failed"),
            (grader(range(None, Some("3.5")), read, Some("high")), "failed"),
            (grader(equals("true"), read, Some("high")), "passed"),
            (grader(equals("\"true\""), read, Some("high")), "passed"),
            (grader(equals("3.3"), read, volts), "passed"),
            (grader(equals("[1, 2.0]"), read, Some("list")), "passed"),
            (grader(equals("\"{{steps.read.outputs.volts}}\""), read, volts), "passed"),
            (grader(equals("\"3.3\""), read, volts), "failed"),
            (grader(contains(&["Hello", "World"], false, false), None, None), "passed"),
            (grader(contains(&["hello"], false, false), None, None), "failed"),
            (grader(contains(&["hello"], false, true), None, None), "passed"),
            (grader(contains(&["nope", "World"], false, false), None, None), "failed"),
            (grader(contains(&["nope", "World"], true, false), None, None), "passed"),
            (grader(contains(&["nope"], true, false), None, None), "failed"),
            (grader(contains(&["volts: 3.300"], false, false), read, None), "passed"),
            (grader(regex("^Hello", "Bye"), None, None), "passed"),
            (grader(regex("^Hello", "W.r"), None, None), "failed"),
            (grader(files("etc", "no-such-file"), None, None), "passed"),
            (grader(files("no-such-file", "no-such-file"), None, None), "failed"),
            (grader(files("etc", "etc"), None, None), "failed"),
            (grader(duration(1500), None, None), "passed"),
            (grader(duration(1499), None, None), "failed"),
            (grader(duration(1), read, None), "passed"),
            (grader(Condition::Unsupported, None, None), "unsupported"),
        ];
        for (grader, judgement) in table {
            let grade = grader.grade(&evidence);
            assert_eq!(grade.judgement.as_str(), judgement, "{:?}: {}", grader.check, grade.message);
        }
    }

    /// Reports: karatelabs/karate#2974, skyscreamer/JSONassert#107.
    #[test]
    fn different_numbers_are_not_equal_and_are_on_their_side_of_a_bound() {
        let big = "123456789012345678901234567890";
        let judge = |check: Condition, output: &str| {
            let steps = [StepRecord::done("a", "", &[("v", output)])];
            let evidence =
                Evidence { workdir: Path::new("/"), agent: None, steps: &steps, elapsed: Duration::from_millis(1) };
            grader(check, Some("a"), Some("v")).grade(&evidence).judgement.as_str()
        };
        for (wanted, output, judgement) in [
            ("9007199254740992", "9007199254740993", "failed"),
            ("9007199254740993", "9007199254740993", "passed"),
            ("18446744073709551615", "18446744073709551614", "failed"),
            (big, "123456789012345678901234567891", "failed"),
            (big, "123456789012345678901234567890.0", "passed"),
            ("1", "1.0", "passed"),
            ("1.0", "1e0", "passed"),
            ("0.1", "0.10000000000000000001", "failed"),
            ("1e999999999", "1e999999998", "failed"),
            ("1e999999999", "10e999999998", "passed"),
            (r#"{"a":[{"b":9007199254740992}]}"#, r#"{"a": [{"b": 9007199254740993}]}"#, "failed"),
            (r#"{"a":[{"b":1.0}],"c":2}"#, r#"{"c": 2.00, "a": [{"b": 1}]}"#, "passed"),
            (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, "failed"),
            ("[1,2]", "[1,2,3]", "failed"),
            ("true", "1", "failed"),
        ] {
            let check = Condition::Equals { text: wanted.into(), json: wanted.into() };
            assert_eq!(judge(check, output), judgement, "{output} is {wanted}");
        }
        for (min, max, output, judgement) in [
            (Some("9007199254740993"), None, "9007199254740992", "failed"),
            (Some("9007199254740993"), None, "9007199254740993", "passed"),
            (None, Some("3.465"), "3.46500000000000000001", "failed"),
            (None, Some("3.465"), "3465e-3", "passed"),
            (None, Some(big), "123456789012345678901234567891", "failed"),
            (Some("1e999999998"), None, "1e999999999", "passed"),
            (Some("0"), None, "NaN", "failed"),
        ] {
            let check = Condition::Range {
                min: min.map(str::to_owned),
                max: max.map(str::to_owned),
                marginal: Marginal::default(),
            };
            assert_eq!(judge(check, output), judgement, "{output} in {min:?} to {max:?}");
        }
    }
}
