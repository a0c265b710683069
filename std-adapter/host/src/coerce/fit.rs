//! The check of a call's arguments against the description of the operation. Command lines and
//! steps of evals share it.

use std::collections::HashSet;
use std::sync::Arc;

use rigline::json::{Json, JsonKind};

use super::index::Index;
use super::names::Known;
use super::{Breach, Draft, Mismatch, Schema, SchemaView, coerce, nearest_or_longer};
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
    pub known: Option<Arc<[String]>>,
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
    // The objects with unknown names, and the names that were meant there.
    let places =
        found.faults.iter().filter_map(|fault| Some((fault.names.split_last()?.1.to_vec(), fault.near.clone())));
    let meant: HashSet<(Vec<String>, Option<String>)> = places.collect();
    let unknown: HashSet<Vec<String>> = meant.iter().map(|(place, _)| place.clone()).collect();
    let is_told = |mismatch: &Mismatch| match &mismatch.breach {
        Breach::UnknownMember => unknown.contains(&mismatch.names),
        // The name that was meant is missing on account of the one that was written.
        Breach::Required(name) => meant.contains(&(mismatch.names.clone(), Some(name.clone()))),
        _ => false,
    };
    let values = Index::default();
    let mismatches = settled.checked.mismatches.into_iter().filter(|mismatch| !is_told(mismatch));
    for (count, mismatch) in mismatches.enumerate() {
        let place = mismatch.names.iter().try_fold(root.clone(), |place, name| place.member(name));
        let given = mismatch.names.iter().try_fold(json, |json, name| values.step(json, name));
        let (text, is_of_flag) = why(&mismatch.text, given, place.as_ref(), count < SUGGESTIONS);
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
                let members: Vec<(String, Json<'_>)> =
                    json.members().map(|(name, member)| (name.to_string(), member)).collect();
                // Names of a pattern, or of a kind that all others have, are known as well.
                let has_patterns = place.keyword("patternProperties").is_some();
                let mut unknown = None;
                for (name, member) in &members {
                    let inner = place.member(name);
                    if !place.declares(name) && inner.is_none() && !has_patterns {
                        let unknown = unknown.get_or_insert_with(|| Unknown::of(&place, &members));
                        unknown.add(below(name), name, is_checked, found);
                    }
                    waiting.extend(inner.map(|place| (below(name), place, *member)));
                }
            }
            _ => {}
        }
    }
}

/// How many faults of names, and how many of values, may have a suggestion.
const SUGGESTIONS: usize = 100;

/// The names of an object that its schema does not have.
struct Unknown<'p> {
    near: Known<'p>,
    known: Arc<[String]>,
    given: HashSet<&'p str>,
    is_closed: bool,
    /// Whether the schema leaves open what other names there may be.
    says_nothing: bool,
}

impl<'p> Unknown<'p> {
    fn of(place: &'p SchemaView<'_>, members: &'p [(String, Json<'_>)]) -> Self {
        let says_nothing = place.types() == ["object"]
            && ["additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref"]
                .iter()
                .all(|keyword| place.keyword(keyword).is_none());
        Self {
            near: Known::of(place.names()),
            known: place.names().map(str::to_owned).collect(),
            given: members.iter().map(|(name, _)| name.as_str()).collect(),
            is_closed: place.is_closed(),
            says_nothing,
        }
    }

    /// An open schema accepts any name. A name that is similar to a known one is probably a mistake,
    /// and is refused.
    fn add(&mut self, names: Vec<String>, name: &str, is_checked: bool, found: &mut Fit) {
        let is_free = |near: &&str| !self.given.contains(*near);
        // A call with many faults is refused, whatever the other names may mean.
        let told = if is_checked { found.faults.len() } else { found.undeclared.len() };
        let is_searched = told < SUGGESTIONS;
        let near = is_searched.then(|| self.near.nearest(name).filter(is_free)).flatten();
        let longer = || is_searched.then(|| self.near.longer(name).filter(is_free)).flatten();
        let path = names.join(".");
        if (self.is_closed || near.is_some()) && is_checked {
            let near = near.or_else(longer);
            let meant = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            found.faults.push(ArgumentFault {
                text: format!("there is no argument `{}`{meant}", terminal::one_line(&path)),
                names,
                path,
                known: Some(Arc::clone(&self.known)),
                near: near.map(str::to_owned),
                is_of_flag: false,
                is_of_missing: false,
            });
        } else if self.says_nothing || near.is_some() {
            found.undeclared.push((path, near.or_else(longer).map(str::to_owned)));
        }
    }
}

/// The fault, and the probable meaning; and whether it is a flag.
fn why(text: &str, given: Option<Json<'_>>, place: Option<&SchemaView<'_>>, is_suggested: bool) -> (String, bool) {
    let text = brief(text);
    let (Some(place), Some(given)) = (place, given.and_then(|given| given.text())) else { return (text, false) };
    let given = given.to_string();
    if place.types() == ["boolean"] {
        return (format!("`{}` is neither true nor false", brief(&given)), true);
    }
    if !is_suggested {
        return (text, false);
    }
    let names: Vec<String> = place.values().into_iter().filter_map(|value| Some(value.text()?.to_string())).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match nearest_or_longer(&given, &names).filter(|near| *near != given) {
        Some(near) => (format!("{text}; did you mean `{near}`?"), false),
        None => (text, false),
    }
}

/// Returns the beginning of a text, 500 characters at most.
pub fn brief(text: &str) -> String {
    terminal::cut_and_counted(text, 500)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};

    use super::*;

    /// A schema and arguments of a size.
    type Case = fn(usize) -> (Value, Vec<(String, Draft)>);

    fn members(count: usize, of: impl Fn(usize) -> Value) -> Value {
        (0..count).map(|number| (format!("name-{number}"), of(number))).collect()
    }

    fn given(count: usize, name: &str, text: &str) -> Vec<(String, Draft)> {
        (0..count).map(|number| (format!("{name}-{number}"), Draft::written(text))).collect()
    }

    #[test]
    fn the_time_of_many_arguments_grows_with_their_number() {
        let cases: [(&str, Case); 9] = [
            ("fit", |count| {
                (json!({"properties": members(count, |_| json!({"type": "integer"}))}), given(count, "name", "5"))
            }),
            ("refer to definitions", |count| {
                let of = |number| json!({"$ref": format!("#/$defs/name-{number}")});
                let schema =
                    json!({"properties": members(count, of), "$defs": members(count, |_| json!({"type": "integer"}))});
                (schema, given(count, "name", "5"))
            }),
            ("refer to anchors", |count| {
                let of = |number| json!({"$ref": format!("#a{number}")});
                let anchors = members(count, |number| json!({"$anchor": format!("a{number}"), "type": "integer"}));
                (json!({"properties": members(count, of), "$defs": anchors}), given(count, "name", "5"))
            }),
            ("have wrong values", |count| {
                (json!({"properties": members(count, |_| json!({"type": "integer"}))}), given(count, "name", "x"))
            }),
            ("are missing", |count| {
                let names: Vec<String> = (0..count).map(|number| format!("required-{number}")).collect();
                (json!({"properties": members(count, |_| json!({})), "required": names}), given(count, "name", "x"))
            }),
            ("are unknown", |count| {
                let schema = json!({"properties": members(count, |_| json!({})), "additionalProperties": false});
                (schema, given(count, "nam", "x"))
            }),
            ("are undeclared", |count| {
                (
                    json!({"type": "object", "properties": members(count, |_| json!({}))}),
                    given(count, "quite-another", "x"),
                )
            }),
            ("are elements with wrong values", |count| {
                let schema = json!({"properties": {"l": {"prefixItems": vec![json!({"type": "integer"}); count]}}});
                (schema, vec![("l".to_owned(), Draft::List(vec![Draft::written("x"); count]))])
            }),
            ("are of an object in JSON", |count| {
                let inner = json!({"properties": members(count, |_| json!({"type": "string"}))});
                let object = members(count, |_| json!(5)).to_string();
                (json!({"properties": {"o": inner}}), vec![("o".to_owned(), Draft::written(&object))])
            }),
        ];
        for (what, case) in cases {
            let time = |count: usize| {
                let (schema, members) = case(count);
                let (schema, draft) = (schema.to_string(), Draft::Map(members));
                let began = Instant::now();
                let found = fit(&draft, &Schema::read(&schema));
                assert!(found.unchecked.is_none(), "{what}: {found:?}");
                began.elapsed().max(Duration::from_millis(20))
            };
            // Eight times as many would take 64 times as long. Another program may take the time of one try.
            let ratios = std::iter::repeat_with(|| time(2400).div_duration_f64(time(300)));
            let least = ratios.take(3).find(|ratio| *ratio < 24.0);
            assert!(least.is_some(), "arguments that {what}: the time grows faster than their number");
        }
    }
}
