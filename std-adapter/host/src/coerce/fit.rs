//! The check of a call's arguments against the description of the operation. Command lines and
//! steps of evals share it.

use rigline::json::{Json, JsonKind};

use super::{Breach, Draft, Mismatch, Schema, SchemaView, coerce, nearest, nearest_or_longer};
use crate::terminal;

/// The arguments of a call, and all their faults.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fit {
    /// The arguments as JSON text.
    pub json: String,
    /// The faults. Those of names come first. Empty if the schema cannot be evaluated.
    pub faults: Vec<ArgumentFault>,
    /// The arguments that the schema accepts but does not declare. Each has the declared name that
    /// was perhaps meant.
    pub undeclared: Vec<(String, Option<String>)>,
    /// The reason why the values could not be checked. `None` if they were checked.
    pub unchecked: Option<String>,
}

/// A fault of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArgumentFault {
    /// The path of the argument: names and indexes, from the outside in. Empty for the arguments as
    /// a whole.
    pub names: Vec<String>,
    /// The path as one text, such as `days.0`.
    pub path: String,
    /// The reason why the argument is wrong.
    pub text: String,
    /// The declared names, if the name of the argument is unknown.
    pub known: Option<Vec<String>>,
    /// The declared name that was probably meant.
    pub near: Option<String>,
    /// Whether the argument must be true or false, and is something else.
    pub is_of_flag: bool,
    /// Whether the fault is that an argument is missing here.
    pub is_of_missing: bool,
}

impl std::fmt::Display for ArgumentFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() || self.known.is_some() {
            f.write_str(&self.text)
        } else {
            write!(f, "{}: {}", self.path, self.text)
        }
    }
}

/// Converts the arguments of a call to the types of a schema, and finds the faults of their names
/// and values.
///
/// If the schema allows undeclared names, such a name is a fault only if it nearly equals a
/// declared one. If the schema cannot be evaluated, every value is accepted.
pub fn fit(draft: &Draft, schema: &Schema) -> Fit {
    let settled = coerce(draft, schema);
    let is_checked = settled.checked.unchecked.is_none();
    let mut found =
        Fit { json: settled.json, faults: Vec::new(), undeclared: Vec::new(), unchecked: settled.checked.unchecked };
    let json = found.json.clone();
    let Ok(json) = Json::parse(json.as_bytes()) else { return found };
    let root = SchemaView::of(schema.json());
    names(&root, json, is_checked, &mut found);
    let unknown: Vec<(Vec<String>, Option<String>)> =
        found.faults.iter().map(|fault| (fault.names.clone(), fault.near.clone())).collect();
    let is_told = |mismatch: &Mismatch| {
        unknown.iter().any(|(names, near)| match &mismatch.breach {
            Breach::UnknownMember => names.split_last().is_some_and(|(_, place)| *place == *mismatch.names),
            // The name that was meant is missing on account of the one that was written.
            Breach::Required(name) => {
                near.as_ref() == Some(name) && names.split_last().is_some_and(|(_, place)| *place == *mismatch.names)
            }
            _ => false,
        })
    };
    for mismatch in settled.checked.mismatches.into_iter().filter(|mismatch| !is_told(mismatch)) {
        let place = mismatch.names.iter().try_fold(root.clone(), |place, name| place.member(name));
        let (text, is_of_flag) = why(&mismatch.text, value(json, &mismatch.names), place.as_ref());
        found.faults.push(ArgumentFault {
            is_of_missing: matches!(mismatch.breach, Breach::Required(_)),
            names: mismatch.names,
            path: mismatch.path,
            text,
            known: None,
            near: None,
            is_of_flag,
        });
    }
    found
}

/// Finds the names that the schema does not have, in every object that it describes.
fn names(root: &SchemaView<'_>, json: Json<'_>, is_checked: bool, found: &mut Fit) {
    let mut waiting = vec![(Vec::new(), root.clone(), json)];
    while let Some((path, place, json)) = waiting.pop() {
        let below = |name: &str| path.iter().cloned().chain([name.to_owned()]).collect::<Vec<String>>();
        match json.kind() {
            JsonKind::Array => {
                for (number, element) in json.elements().enumerate() {
                    let number = number.to_string();
                    waiting.extend(place.member(&number).map(|place| (below(&number), place, element)));
                }
            }
            JsonKind::Object => {
                let known = place.names();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                for (name, member) in json.members() {
                    let name = name.to_string();
                    let inner = place.member(&name);
                    if !known.contains(&name.as_str()) && !is_matched(&place, &name) {
                        let is_given = |known: &str| json.get(known).is_some();
                        unknown(below(&name), &name, &known, &place, is_given, is_checked, found);
                    }
                    waiting.extend(inner.map(|place| (below(&name), place, member)));
                }
            }
            _ => {}
        }
    }
}

/// Names of a pattern, or of a kind that all others have, are known as well.
fn is_matched(place: &SchemaView<'_>, name: &str) -> bool {
    place.keyword("patternProperties").is_some() || place.member(name).is_some()
}

/// An open schema accepts any name. A name that is similar to a known one is probably a mistake,
/// and is refused.
fn unknown(
    names: Vec<String>,
    name: &str,
    known: &[&str],
    place: &SchemaView<'_>,
    is_given: impl Fn(&str) -> bool,
    is_checked: bool,
    found: &mut Fit,
) {
    let is_free = |near: &&str| !is_given(near);
    let near = nearest(name, known).filter(is_free);
    let path = names.join(".");
    if (place.is_closed() || near.is_some()) && is_checked {
        let near = near.or_else(|| nearest_or_longer(name, known).filter(is_free));
        let meant = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        found.faults.push(ArgumentFault {
            text: format!("there is no argument `{}`{meant}", terminal::one_line(&path)),
            names,
            path,
            known: Some(known.iter().map(|name| (*name).to_owned()).collect()),
            near: near.map(str::to_owned),
            is_of_flag: false,
            is_of_missing: false,
        });
        return;
    }
    let says_nothing = place.types() == ["object"]
        && ["additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref"]
            .iter()
            .all(|keyword| place.keyword(keyword).is_none());
    if says_nothing || near.is_some() {
        let near = nearest_or_longer(name, known).filter(is_free).map(str::to_owned);
        found.undeclared.push((path, near));
    }
}

/// The fault, and the probable meaning; and whether it is a flag.
fn why(text: &str, given: Option<Json<'_>>, place: Option<&SchemaView<'_>>) -> (String, bool) {
    let text = brief(text);
    let (Some(place), Some(given)) = (place, given.and_then(|given| given.text())) else { return (text, false) };
    let given = given.to_string();
    if place.types() == ["boolean"] {
        return (format!("`{}` is neither true nor false", brief(&given)), true);
    }
    let names: Vec<String> = place.values().into_iter().filter_map(|value| Some(value.text()?.to_string())).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest_or_longer(&given, &names).filter(|near| *near != given) {
        Some(near) => (format!("{text}; did you mean `{near}`?"), false),
        None => (text, false),
    }
}

fn value<'j>(json: Json<'j>, path: &[String]) -> Option<Json<'j>> {
    path.iter().try_fold(json, |json, name| match json.kind() {
        JsonKind::Array => json.elements().nth(name.parse().ok()?),
        _ => json.get(name),
    })
}

/// Returns the beginning of a text, 500 characters at most.
pub fn brief(text: &str) -> String {
    terminal::cut_and_counted(text, 500)
}
