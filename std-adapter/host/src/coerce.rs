//! Arguments, converted to the types of an operation's schema.
//!
//! What people write on a command line or in YAML, and what an operation returns as an output, is
//! text. Which JSON value a text means depends on where it goes: `00123` is a string where the
//! schema wants one, and `5` an integer where it does not. [`coerce()`] chooses by the whole schema
//! (`type`, `enum`, `const`, `$ref`, `anyOf`, `oneOf`, `allOf`, `nullable`, nested `properties` and
//! `items`), and keeps every digit.
//!
//! ```
//! use rigline_host::coerce::{Draft, Schema, coerce};
//! let schema = Schema::from(&serde_json::json!({ "properties": {
//!     "serial": { "type": "string" }, "count": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
//! } }));
//! let members = [("serial", "123456789012345678901"), ("count", "5")];
//! let draft = Draft::Map(members.map(|(name, text)| (name.to_owned(), Draft::written(text))).into());
//! let settled = coerce(&draft, &schema);
//! assert_eq!(settled.json, r#"{"serial":"123456789012345678901","count":5}"#);
//! assert!(settled.checked.mismatches.is_empty());
//! ```
//!
//! A schema that cannot be evaluated here, such as one of an unknown dialect, keeps nothing back:
//! [`Checked::unchecked`] says why, and the extension is the judge.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

use rigline::json::{Json, JsonKind};
use serde_json::Value;

use instance::Exact;
use schema::Root;

use crate::host::Operation;
use crate::number;

mod fit;
mod index;
mod instance;
mod names;
mod schema;
mod view;

pub use fit::{ArgumentFault, Fit, brief, fit};
pub use names::{nearest, nearest_or_longer, operation_named};
pub use schema::Schema;
pub use view::SchemaView;

/// A value whose JSON type is not decided yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draft {
    /// A text that may have several meanings. Each is a JSON text. The first that the schema
    /// accepts is taken.
    Scalar(Vec<String>),
    /// A list of values.
    List(Vec<Draft>),
    /// The members of an object, in their order.
    Map(Vec<(String, Draft)>),
    /// A text that stands for a list or an object. It has the JSON texts that it may mean as a
    /// whole, and its content.
    Container(Vec<String>, Box<Draft>),
}

impl Draft {
    /// A text from a command line. It means a JSON value if it is valid JSON and not a JSON string;
    /// otherwise it means itself. If the schema accepts neither, a number in another notation, such
    /// as `+3.30` or `0x1F`, is a number.
    pub fn written(text: &str) -> Self {
        let string = string(text);
        match json_unless_string(text) {
            Some(json) => Self::Scalar(vec![json, string]),
            None => Self::Scalar(std::iter::once(string).chain(number::json(text.trim())).collect()),
        }
    }

    /// A text that an extension returned as an output. It means itself. If the schema accepts no
    /// string, it means a JSON value or a number in another notation.
    pub fn output(text: &str) -> Self {
        Self::Scalar(
            std::iter::once(string(text))
                .chain(json_unless_string(text).or_else(|| number::json(text.trim())))
                .collect(),
        )
    }

    /// A text that an extension returned as an output and that stands for the list or object
    /// `inner`.
    pub fn container(text: &str, inner: Self) -> Self {
        Self::Container(std::iter::once(string(text)).chain(json_unless_string(text)).collect(), Box::new(inner))
    }

    /// A text that means itself and nothing else.
    pub fn text(text: &str) -> Self {
        Self::Scalar(vec![string(text)])
    }

    /// The same, with lists and objects that could also be texts as what is in them, where one of
    /// these paths leads to them, into them or to what they are in.
    fn opened(&self, paths: &[&[String]]) -> Self {
        fn of(json: Json<'_>) -> Draft {
            match json.kind() {
                JsonKind::Array => Draft::List(json.elements().map(of).collect()),
                JsonKind::Object => {
                    Draft::Map(json.members().map(|(name, member)| (name.to_string(), of(member))).collect())
                }
                JsonKind::String => Draft::json(json.as_str()),
                _ => Draft::Scalar(vec![json.as_str().to_owned(), string(json.as_str())]),
            }
        }
        // A path that ends here leads to all that is in this value.
        let ends_here = paths.iter().any(|path| path.is_empty());
        let mut below: HashMap<&str, Vec<&[String]>> = HashMap::new();
        for (first, rest) in paths.iter().filter(|_| !ends_here).filter_map(|path| path.split_first()) {
            below.entry(first).or_default().push(rest);
        }
        let inner = |name: &str, inner: &Self| match below.get(name) {
            _ if ends_here => inner.opened(&[&[]]),
            Some(paths) => inner.opened(paths),
            None => inner.clone(),
        };
        match self {
            _ if paths.is_empty() => self.clone(),
            Self::Scalar(texts) => {
                let container = texts.iter().find(|text| texts.len() > 1 && text.starts_with(['[', '{']));
                match container.and_then(|text| Json::parse(text.as_bytes()).ok()) {
                    Some(json) => of(json),
                    None => self.clone(),
                }
            }
            Self::Container(_, inner) => inner.opened(paths),
            Self::List(elements) => {
                let elements = elements.iter().enumerate();
                Self::List(elements.map(|(place, element)| inner(&place.to_string(), element)).collect())
            }
            Self::Map(members) => {
                Self::Map(members.iter().map(|(name, member)| (name.clone(), inner(name, member))).collect())
            }
        }
    }

    /// A JSON text that means exactly this value.
    pub fn json(text: impl Into<String>) -> Self {
        Self::Scalar(vec![text.into()])
    }
}

/// Arguments that were converted to the types of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coerced {
    /// The arguments as JSON text.
    pub json: String,
    /// The result of checking the arguments against the schema.
    pub checked: Checked,
}

/// The result of checking a value against a schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The parts of the value that do not fit the schema.
    pub mismatches: Vec<Mismatch>,
    /// The reason why the value could not be checked. `None` if it was checked.
    pub unchecked: Option<String>,
}

impl Checked {
    /// How many of the mismatches another kind of value could mend.
    fn of_kinds(&self) -> usize {
        self.mismatches.iter().filter(|mismatch| mismatch.breach != Breach::EqualElements).count()
    }
}

/// A part of a value that does not fit the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The path of the part, such as `days.0`: names and indexes, from the outside in. Empty for
    /// the whole value.
    pub path: String,
    /// The names and indexes of the path one by one, since a name may contain a point.
    pub names: Vec<String>,
    /// The reason why the part does not fit.
    pub text: String,
    /// The rule that the value breaks.
    pub(crate) breach: Breach,
}

/// The rules whose breach is told, or mended, in a way of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Breach {
    /// The list must have different elements, but some are equal. In another reading they may
    /// differ.
    EqualElements,
    /// The schema does not allow a member of this name.
    UnknownMember,
    /// The member with this name is missing.
    Required(String),
    /// Any other reason.
    Other,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.text) } else { write!(f, "{}: {}", self.path, self.text) }
    }
}

/// Chooses the meaning of each text so that the whole value fits the schema. If nothing fits, the
/// mismatches say why.
pub fn coerce(draft: &Draft, schema: &Schema) -> Coerced {
    let settled = settle_scalars(draft, schema);
    if settled.checked.mismatches.is_empty() {
        return settled;
    }
    // A list or an object that was written as JSON: what is in it may be what the schema wants in
    // another reading.
    let paths: Vec<&[String]> = settled.checked.mismatches.iter().map(|mismatch| mismatch.names.as_slice()).collect();
    let opened = settle_scalars(&draft.opened(&paths), schema);
    if opened.checked.mismatches.len() < settled.checked.mismatches.len() || opened.checked.mismatches.is_empty() {
        opened
    } else {
        settled
    }
}

fn settle_scalars(draft: &Draft, schema: &Schema) -> Coerced {
    let mut choices = Vec::new();
    choose(draft, schema.root(), &[schema.value()], &mut choices);
    let render = |choices: &[Choice<'_>]| {
        let mut json = String::new();
        write(draft, &mut choices.iter(), &mut json);
        json
    };
    let mut json = render(&choices);
    let mut checked = schema.check(&json);
    // The choice above goes by the kind of a value. Bounds, patterns and what hangs on other
    // members are for the validator.
    let open: Vec<usize> =
        choices.iter().enumerate().filter(|(_, choice)| choice.others.len() > 1).map(|(place, _)| place).collect();
    for place in open.into_iter().take(REPAIR_LIMIT) {
        if checked.of_kinds() == 0 {
            break;
        }
        let Some(before) = choices.get(place).cloned() else { continue };
        for text in before.others {
            if let Some(choice) = choices.get_mut(place) {
                choice.chosen.clone_from(text);
            }
            let tried = render(&choices);
            let result = schema.check(&tried);
            if result.of_kinds() < checked.of_kinds() && result.mismatches.len() <= checked.mismatches.len() {
                (json, checked) = (tried, result);
                break;
            }
            if let Some(choice) = choices.get_mut(place) {
                choice.chosen.clone_from(&before.chosen);
            }
        }
    }
    Coerced { json, checked }
}

/// Converts strings to numbers and booleans where the schema accepts those and no string. All digits
/// stay. The namel3ss engine writes the decimals of a flow as strings, and agents write what they
/// like, so their arguments need this. A text that is not JSON is returned as it is.
pub fn read_numeric_strings(json: &str, schema: &Schema) -> String {
    match Json::parse(json.as_bytes()) {
        Ok(value) => coerce(&with_numeric_strings(value), schema).json,
        Err(_) => json.to_owned(),
    }
}

fn with_numeric_strings(value: Json<'_>) -> Draft {
    match value.kind() {
        JsonKind::Object => {
            Draft::Map(value.members().map(|(name, member)| (name.to_string(), with_numeric_strings(member))).collect())
        }
        JsonKind::Array => Draft::List(value.elements().map(with_numeric_strings).collect()),
        _ => {
            let other = value
                .text()
                .map(|text| text.to_string())
                .filter(|text| is_number(text) || matches!(text.as_str(), "true" | "false"))
                .and_then(|text| json_unless_string(&text));
            Draft::Scalar(std::iter::once(value.as_str().to_owned()).chain(other).collect())
        }
    }
}

/// The argument schemas of an extension's operations, by the name of the operation. Calls are
/// checked against them before they are sent.
pub struct Schemas(BTreeMap<String, Described>);

/// The schema of an operation. It is read when the operation is called for the first time: a
/// validator takes time and memory, and of thousands of operations few are called.
struct Described {
    text: String,
    schema: OnceLock<Schema>,
}

impl Schemas {
    /// The argument schemas of these operations.
    pub fn of(operations: &[Operation]) -> Self {
        Self::new(operations.iter().map(|operation| (operation.name.as_str(), operation.params_text.as_str())))
    }

    /// Schemas from pairs of an operation's name and the text of its schema.
    pub fn new<'s>(schemas: impl Iterator<Item = (&'s str, &'s str)>) -> Self {
        let described = |text: &str| Described { text: text.to_owned(), schema: OnceLock::new() };
        Self(schemas.map(|(name, text)| (name.to_owned(), described(text))).collect())
    }

    /// Returns the arguments of a call with strings converted to numbers, as
    /// [`read_numeric_strings`] does.
    pub fn with_numbers(&self, operation: &str, args: &str) -> String {
        self.get(operation).map_or_else(|| args.to_owned(), |schema| read_numeric_strings(args, schema))
    }

    /// Removes the optional members that are `null` from the arguments of a call, if their schema
    /// does not accept `null`. Such a member means that the argument is absent.
    pub fn without_nulls(&self, operation: &str, args: String) -> String {
        let Some(schema) = self.get(operation).filter(|_| args.contains("null")) else { return args };
        let Ok(value) = Json::parse(args.as_bytes()) else { return args };
        let mut out = String::with_capacity(args.len());
        omit_nulls(value, schema.root(), &[schema.value()], &mut out);
        out
    }

    /// Returns the reasons why the arguments break the schema, in one line. Returns `None` if they
    /// fit, or cannot be checked.
    pub fn refusal(&self, operation: &str, args: &str) -> Option<String> {
        let checked = self.get(operation)?.check(args);
        let faults = checked.mismatches.iter().map(|Mismatch { path, text, .. }| match path.as_str() {
            "" => text.clone(),
            path => format!("{path}: {text}"),
        });
        let text = faults.collect::<Vec<_>>().join("; ");
        (!text.is_empty()).then(|| format!("{operation}: {text}"))
    }

    fn get(&self, operation: &str) -> Option<&Schema> {
        let described = self.0.get(operation)?;
        Some(described.schema.get_or_init(|| Schema::read(&described.text)))
    }
}

/// Writes a value, as it came where nothing in it is left out, and returns whether something is.
/// `schemas` are those that apply here.
fn omit_nulls(value: Json<'_>, root: &Root, schemas: &[&Value], out: &mut String) -> bool {
    let begin = out.len();
    let mut is_shorter = false;
    let mut separator = "";
    match value.kind() {
        JsonKind::Object => {
            let inner = Inner::of(schemas, root);
            let required = inner.flat.iter().filter_map(|schema| schema.get("required")?.as_array());
            let required: HashSet<&str> = required.flatten().filter_map(Value::as_str).collect();
            out.push('{');
            for (name, member) in value.members() {
                let name = name.to_string();
                let described = inner.member(&name);
                let is_refused = || described.iter().any(|schema| !takes(schema, root, "null", 0));
                if member.is_null() && !required.contains(&*name) && is_refused() {
                    is_shorter = true;
                    continue;
                }
                out.push_str(separator);
                separator = ",";
                out.push_str(&string(&name));
                out.push(':');
                is_shorter |= omit_nulls(member, root, &described, out);
            }
            out.push('}');
        }
        JsonKind::Array => {
            let inner = Inner::of(schemas, root);
            out.push('[');
            for (place, element) in value.elements().enumerate() {
                out.push_str(separator);
                separator = ",";
                is_shorter |= omit_nulls(element, root, &inner.element(place), out);
            }
            out.push(']');
        }
        _ => {}
    }
    if !is_shorter {
        out.truncate(begin);
        out.push_str(value.as_str());
    }
    is_shorter
}

/// How many scalars are tried in another reading when the whole does not fit.
const REPAIR_LIMIT: usize = 100;
/// How many references are followed on the way to one schema.
const REFERENCE_LIMIT: usize = 32;

#[derive(Clone)]
struct Choice<'d> {
    chosen: String,
    /// The readings that may be tried instead: those that a schema takes. A number does not become
    /// a text so that a bound no longer counts.
    others: Vec<&'d String>,
}

/// Chooses by the kinds of values that the schemas take. `schemas` are those that apply here.
fn choose<'d>(draft: &'d Draft, root: &Root, schemas: &[&Value], choices: &mut Vec<Choice<'d>>) {
    match draft {
        Draft::Scalar(texts) | Draft::Container(texts, _) => {
            let count = |text| schemas.iter().filter(|schema| takes(schema, root, text, 0)).count();
            let counted: Vec<(usize, &String)> = texts.iter().map(|text| (count(text), text)).collect();
            let most = counted.iter().map(|(count, _)| *count).max().unwrap_or_default();
            let best = counted.iter().find(|(count, _)| *count == most);
            let mut chosen = best.map_or_else(|| "null".to_owned(), |(_, text)| (*text).clone());
            let is_tried = |count: usize| count > 0 || most == 0 && !schemas.is_empty();
            let others = counted.iter().filter(|(count, _)| is_tried(*count)).map(|(_, text)| *text).collect();
            // 1e3 and 3.0 are whole numbers, which many readers take only in digits.
            if is_number(&chosen)
                && chosen.contains(['.', 'e', 'E'])
                && schemas.iter().any(|schema| is_whole(schema, root, 0))
            {
                chosen = number::whole(&chosen).unwrap_or(chosen);
            }
            choices.push(Choice { chosen, others });
        }
        Draft::List(elements) => {
            let inner = Inner::of(schemas, root);
            for (place, element) in elements.iter().enumerate() {
                choose(element, root, &inner.element(place), choices);
            }
        }
        Draft::Map(members) => {
            let inner = Inner::of(schemas, root);
            for (name, member) in members {
                choose(member, root, &inner.member(name), choices);
            }
        }
    }
}

fn write<'c, 'd: 'c>(draft: &Draft, choices: &mut impl Iterator<Item = &'c Choice<'d>>, out: &mut String) {
    match draft {
        Draft::Scalar(_) | Draft::Container(..) => out.push_str(choices.next().map_or("null", |choice| &choice.chosen)),
        Draft::List(elements) => {
            out.push('[');
            for (place, element) in elements.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write(element, choices, out);
            }
            out.push(']');
        }
        Draft::Map(members) => {
            out.push('{');
            for (place, (name, member)) in members.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                out.push_str(&string(name));
                out.push(':');
                write(member, choices, out);
            }
            out.push('}');
        }
    }
}

/// The schemas that apply to an object or a list.
struct Inner<'s> {
    flat: Vec<&'s Value>,
    /// The schemas of `patternProperties`, of each of those.
    patterns: Vec<Vec<(regex::Regex, &'s Value)>>,
}

impl<'s> Inner<'s> {
    fn of(schemas: &[&'s Value], root: &'s Root) -> Self {
        let mut flat = Vec::new();
        for schema in schemas {
            flatten(schema, root, 0, &mut flat);
        }
        let of_patterns = |schema: &&'s Value| {
            let patterns = schema.get("patternProperties").and_then(Value::as_object).into_iter().flatten();
            patterns.filter_map(|(pattern, inner)| Some((regex::Regex::new(pattern).ok()?, inner))).collect()
        };
        Self { patterns: flat.iter().map(of_patterns).collect(), flat }
    }

    /// The schemas that apply to the member with this name.
    fn member(&self, name: &str) -> Vec<&'s Value> {
        let mut found = Vec::new();
        for (schema, patterns) in self.flat.iter().zip(&self.patterns) {
            let before = found.len();
            found.extend(schema.get("properties").and_then(|all| all.get(name)));
            found.extend(patterns.iter().filter(|(pattern, _)| pattern.is_match(name)).map(|(_, inner)| *inner));
            if found.len() == before {
                found.extend(schema.get("additionalProperties"));
            }
        }
        found
    }

    /// The schemas that apply to the element with this index.
    fn element(&self, place: usize) -> Vec<&'s Value> {
        let of = |schema: &&'s Value| {
            let listed = |name| schema.get(name).and_then(Value::as_array);
            let first = listed("prefixItems").or_else(|| listed("items"));
            match first.and_then(|first| first.get(place)) {
                Some(inner) => Some(inner),
                None if listed("items").is_some() => schema.get("additionalItems"),
                None => schema.get("items"),
            }
        };
        self.flat.iter().filter_map(of).collect()
    }
}

/// A schema with those that it refers to and those that it combines.
fn flatten<'s>(schema: &'s Value, root: &'s Root, depth: usize, flat: &mut Vec<&'s Value>) {
    if depth > REFERENCE_LIMIT || flat.len() > 1000 {
        return;
    }
    flat.push(schema);
    if let Some(other) = root.referred(schema) {
        flatten(other, root, depth + 1, flat);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for other in schema.get(name).and_then(Value::as_array).into_iter().flatten() {
            flatten(other, root, depth + 1, flat);
        }
    }
    for name in ["then", "else"] {
        if let Some(other) = schema.get(name) {
            flatten(other, root, depth + 1, flat);
        }
    }
}

/// Whether a schema accepts values of this kind.
fn takes(schema: &Value, root: &Root, json: &str, depth: usize) -> bool {
    let Value::Object(keywords) = schema else { return schema != &Value::Bool(false) };
    if depth > REFERENCE_LIMIT {
        return true;
    }
    let parsed = Json::parse(json.as_bytes()).unwrap_or(Json::NULL);
    if parsed.is_null() && keywords.get("nullable") == Some(&Value::Bool(true)) {
        return true;
    }
    let is = |kind: &str| match parsed.kind() {
        JsonKind::Null => kind == "null",
        JsonKind::Bool => kind == "boolean",
        JsonKind::Number => {
            kind == "number" || kind == "integer" && number::decimal(json).is_none_or(|number| number.is_integer())
        }
        JsonKind::String => kind == "string",
        JsonKind::Array => kind == "array",
        JsonKind::Object => kind == "object",
    };
    let any = |name: &str| {
        keywords
            .get(name)
            .and_then(Value::as_array)
            .is_none_or(|schemas| schemas.iter().any(|schema| takes(schema, root, json, depth + 1)))
    };
    let has = |names: &[&str]| names.iter().any(|name| keywords.contains_key(*name));
    let is_kind = match keywords.get("type") {
        Some(Value::String(kind)) => is(kind),
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind.as_str().is_some_and(is)),
        // What is bounded as numbers are, or as texts are, is meant to be one, though any other
        // value would pass.
        _ if has(schema::OF_NUMBERS) => is("number"),
        _ if has(&["pattern", "minLength", "maxLength"]) => is("string"),
        _ => true,
    };
    let exact = |name: &str| keywords.get(name).and_then(Value::as_str);
    let is_listed = |values: &str| {
        Json::parse(values.as_bytes()).is_ok_and(|values| values.elements().any(|value| same(json, value.as_str())))
    };
    is_kind
        && keywords.get("const").is_none_or(|constant| same(json, &constant.to_string()))
        && exact(schema::CONST).is_none_or(|constant| same(json, constant))
        && keywords
            .get("enum")
            .and_then(Value::as_array)
            .is_none_or(|values| values.iter().any(|value| same(json, &value.to_string())))
        && exact(schema::ENUM).is_none_or(is_listed)
        && root.referred(schema).is_none_or(|other| takes(other, root, json, depth + 1))
        && keywords
            .get("allOf")
            .and_then(Value::as_array)
            .is_none_or(|schemas| schemas.iter().all(|schema| takes(schema, root, json, depth + 1)))
        && any("anyOf")
        && any("oneOf")
}

/// Whether a schema accepts only whole numbers.
fn is_whole(schema: &Value, root: &Root, depth: usize) -> bool {
    let mut flat = Vec::new();
    flatten(schema, root, depth, &mut flat);
    let is = |schema: &Value, kind: &str| match schema.get("type") {
        Some(Value::String(found)) => found == kind,
        Some(Value::Array(kinds)) => kinds.iter().any(|found| found == kind),
        _ => false,
    };
    flat.iter().any(|schema| is(schema, "integer")) && !flat.iter().any(|schema| is(schema, "number"))
}

/// Returns whether two JSON texts have the same value. Numbers are compared by all their digits.
/// The order of members does not matter.
pub fn same(a: &str, b: &str) -> bool {
    match (Json::parse(a.as_bytes()), Json::parse(b.as_bytes())) {
        (Ok(a), Ok(b)) => a.kind() == b.kind() && Exact::of(a).canonical() == Exact::of(b).canonical(),
        _ => false,
    }
}

fn is_number(json: &str) -> bool {
    json.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// Returns a text as JSON if it is valid JSON and not a JSON string. Each digit stays.
pub fn json_unless_string(text: &str) -> Option<String> {
    let json = Json::parse(text.as_bytes()).ok()?;
    (json.kind() != JsonKind::String).then(|| json.as_str().to_owned())
}

/// A text as a JSON string.
fn string(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_is_left_out_where_an_optional_member_does_not_accept_it() {
        let schema = r##"{"required":["r"],"properties":{"r":{"type":"integer"},"o":{"type":"integer"},"n":{"type":["string","null"]},
            "l":{"items":{"$ref":"#/$defs/inner"}}},"$defs":{"inner":{"required":["x"],"properties":{"x":{"type":"string"},"y":{"enum":["a"]}}}}}"##;
        let schemas = Schemas::new([("f", schema)].into_iter());
        for (args, sent) in [
            (r#"{"r":1,"o":null}"#, r#"{"r":1}"#),
            (r#"{"o":null,"r":1.50,"n":null}"#, r#"{"r":1.50,"n":null}"#),
            // Required, so that it is refused; unknown, so that it is for the extension to refuse.
            (r#"{"r":null,"u":null}"#, r#"{"r":null,"u":null}"#),
            (r#"{"l":[{"x":"null","y":null},{"x":null}]}"#, r#"{"l":[{"x":"null"},{"x":null}]}"#),
            (r#"{"o" : null, "u": [1.50]}"#, r#"{"u":[1.50]}"#),
            (r#"{ "n": null, "u": {"a": [1.50]} }"#, r#"{ "n": null, "u": {"a": [1.50]} }"#),
            ("null", "null"),
        ] {
            assert_eq!(schemas.without_nulls("f", args.to_owned()), sent, "{args}");
        }
        assert_eq!(schemas.without_nulls("other", r#"{"o":null}"#.to_owned()), r#"{"o":null}"#);
    }

    /// The pattern has a back reference, so its search needs exponential time, and ends at a limit.
    #[test]
    fn a_pattern_whose_search_is_given_up_refuses_nothing() {
        let schema = json!({ "properties": {
            "s": { "type": "string", "pattern": "^(?=a)(a|aa)+\\1$" }, "n": { "type": "integer" },
        } });
        let text = "a".repeat(40) + "b";
        let checked = Schema::from(&schema).check(&json!({ "s": text }).to_string());
        assert!(checked.mismatches.is_empty(), "{checked:?}");
        assert!(checked.unchecked.is_some_and(|why| why.contains("cannot be checked here: s: ")));
        let checked = Schema::from(&schema).check(&json!({ "s": text, "n": "x" }).to_string());
        assert_eq!(checked.mismatches.iter().map(|mismatch| mismatch.path.as_str()).collect::<Vec<_>>(), ["n"]);
    }

    /// Reports: wong2/mcp-cli#1, knowsuchagency/mcp2cli#83.
    #[test]
    fn a_text_is_what_the_whole_schema_wants() {
        let schema = json!({
            "properties": {
                "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
                "level": {"enum": ["0", "1", "auto"]}, "mode": {"enum": [0, 1]}, "label": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "ref": {"$ref": "#/$defs/count"},
                "deep": {"$ref": "#/$defs/list"}, "one": {"const": 1}, "text": {"const": "1"}, "nullable": {"type": "integer", "nullable": true},
                "all": {"allOf": [{"$ref": "#/$defs/count"}, {"minimum": 1}]}, "word": {"anyOf": [{"type": "string", "pattern": "^[a-z]+$"}, {"type": "integer"}]},
                "kinds": {"type": ["integer", "null"]}, "list": {"type": "array", "items": {"type": "integer"}}, "object": {"type": "object"},
            },
            "$defs": {"count": {"type": "integer"}, "list": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"$ref": "#/$defs/count"}}},
        });
        let big = "123456789012345678901234567890";
        // Name, text, as it is written on a command line, as an output.
        let table = [
            ("s", "00123", r#""00123""#, r#""00123""#),
            ("s", "5", r#""5""#, r#""5""#),
            ("s", "null", r#""null""#, r#""null""#),
            ("i", "5", "5", "5"),
            ("i", big, big, big),
            ("i", "1e3", "1000", "1000"),
            ("n", "1e3", "1e3", "1e3"),
            ("n", "3.10", "3.10", "3.10"),
            ("b", "true", "true", "true"),
            ("b", "yes", r#""yes""#, r#""yes""#),
            ("level", "1", r#""1""#, r#""1""#),
            ("mode", "1", "1", "1"),
            ("mode", "1.0", "1.0", "1.0"),
            ("label", "123", r#""123""#, r#""123""#),
            ("label", "null", "null", r#""null""#),
            ("maybe", "5", "5", "5"),
            ("maybe", "null", "null", "null"),
            ("ref", "5", "5", "5"),
            ("ref", "1e3", "1000", "1000"),
            ("one", "1", "1", "1"),
            ("text", "1", r#""1""#, r#""1""#),
            ("nullable", "null", "null", "null"),
            ("nullable", "7", "7", "7"),
            ("all", "7", "7", "7"),
            ("word", "abc", r#""abc""#, r#""abc""#),
            ("word", "12", "12", "12"),
            ("kinds", "3", "3", "3"),
            ("list", "[1, 2]", "[1, 2]", "[1, 2]"),
            ("object", r#"{"a":1}"#, r#"{"a":1}"#, r#"{"a":1}"#),
            ("free", "5", "5", r#""5""#),
            ("free", r#""x""#, r#""\"x\"""#, r#""\"x\"""#),
        ];
        for (name, text, written, output) in table {
            for (draft, expected) in [(Draft::written(text), written), (Draft::output(text), output)] {
                let settled = coerce(&Draft::Map(vec![(name.into(), draft)]), &Schema::from(&schema));
                assert_eq!(settled.json, format!("{{\"{name}\":{expected}}}"), "{name}={text}");
                assert_eq!(
                    settled.checked.mismatches.is_empty(),
                    text != "yes",
                    "{name}={text}: {:?}",
                    settled.checked
                );
            }
        }
        let list = Draft::List(vec![Draft::output("1"), Draft::output("2"), Draft::output(big)]);
        let settled = coerce(&Draft::Map(vec![("deep".into(), list)]), &Schema::from(&schema));
        assert_eq!(settled.json, format!(r#"{{"deep":["1",2,{big}]}}"#));
    }

    #[test]
    fn the_type_of_a_member_may_depend_on_another() {
        let schema = json!({"oneOf": [
            {"properties": {"kind": {"const": "a"}, "v": {"type": "string"}}, "required": ["kind"]},
            {"properties": {"kind": {"const": "b"}, "v": {"type": "integer"}}, "required": ["kind"]},
        ]});
        for (kind, expected) in [("a", r#"{"kind":"a","v":"5"}"#), ("b", r#"{"kind":"b","v":5}"#)] {
            for v in [Draft::written("5"), Draft::output("5")] {
                let draft = Draft::Map(vec![("kind".into(), Draft::text(kind)), ("v".into(), v)]);
                let settled = coerce(&draft, &Schema::from(&schema));
                assert_eq!((settled.json.as_str(), settled.checked.mismatches.len()), (expected, 0));
            }
        }
    }

    #[test]
    fn no_value_changes_its_kind_so_that_a_rule_no_longer_counts() {
        for (schema, text, sent, mismatches) in [
            (json!({"minimum": 0}), "-5", "-5", 1),
            (json!({"minimum": 0}), "5", "5", 0),
            (json!({"multipleOf": 0.01}), "19.995", "19.995", 1),
            (json!({"exclusiveMaximum": 1, "description": "a share"}), "1", "1", 1),
            (json!({"maxLength": 2}), "123", r#""123""#, 1),
            (json!({"pattern": "^[a-z]+$"}), "12", r#""12""#, 1),
            (json!({"type": "array", "uniqueItems": true}), "[1, 1.0]", "[1, 1.0]", 1),
            (
                json!({"type": "array", "uniqueItems": true, "items": {"type": ["integer", "string"]}}),
                "[1,1]",
                "[1,1]",
                1,
            ),
            (json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}), "[1,2]", r#"["1","2"]"#, 0),
            (json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}), "[1,1]", r#"["1","1"]"#, 1),
            (json!({"anyOf": [{"minimum": 0}, {"type": "string"}]}), "-5", r#""-5""#, 0),
            (json!({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]}), "123", "123", 0),
            (json!({"not": {"type": "number"}}), "5", r#""5""#, 0),
        ] {
            let schema = Schema::from(&json!({ "properties": { "v": schema } }));
            for draft in [Draft::written(text), Draft::output(text)] {
                let settled = coerce(&Draft::Map(vec![("v".into(), draft)]), &schema);
                assert_eq!(settled.json, format!("{{\"v\":{sent}}}"), "{text}");
                assert_eq!(settled.checked.mismatches.len(), mismatches, "{text}: {:?}", settled.checked);
            }
        }
    }

    #[test]
    fn a_schema_that_would_be_evaluated_for_years_is_not() {
        let doubled = |steps: usize| {
            let mut definitions = serde_json::Map::new();
            for step in 0..steps {
                let next = json!({ "$ref": format!("#/$defs/d{}", step + 1) });
                definitions.insert(format!("d{step}"), json!({ "anyOf": [next, next] }));
            }
            definitions.insert(format!("d{steps}"), json!({ "type": "integer" }));
            json!({ "properties": { "n": { "$ref": "#/$defs/d0" } }, "$defs": definitions })
        };
        for (steps, is_checked) in [(3, true), (40, false), (450, false), (5000, false)] {
            let settled = coerce(&Draft::Map(vec![("n".into(), Draft::output("x"))]), &Schema::from(&doubled(steps)));
            assert_eq!(settled.checked.unchecked.is_none(), is_checked, "{steps}: {:?}", settled.checked);
            assert_eq!(settled.checked.mismatches.is_empty(), !is_checked, "{steps}: {:?}", settled.checked);
        }
        // Many values, each once, and a tree of any depth.
        let values: Vec<Value> = (0..5000).map(|value| json!({ "const": value })).collect();
        let tree = json!({ "properties": { "n": { "oneOf": values }, "t": { "$ref": "#/$defs/tree" } }, "$defs": {
            "tree": { "anyOf": [{ "type": "integer" }, { "type": "array", "items": { "$ref": "#/$defs/tree" } }] },
        } });
        let draft = Draft::Map(vec![("n".into(), Draft::output("4999")), ("t".into(), Draft::written("[[1,[2]]]"))]);
        let settled = coerce(&draft, &Schema::from(&tree));
        assert_eq!((settled.json.as_str(), settled.checked), (r#"{"n":4999,"t":[[1,[2]]]}"#, Checked::default()));
    }

    /// Reports: anthropics/claude-code#90549, marianfoo/sap-mcp-servers#52.
    #[test]
    fn a_schema_that_cannot_be_evaluated_keeps_nothing_back() {
        let integer = json!({"type": "integer"});
        for mut schema in [
            json!({"$schema": "https://spec.openapis.org/oas/3.1/dialect/base"}),
            json!({"$schema": "https://example.com/my-own"}),
            json!({"properties": {"s": {"type": "string", "pattern": "^a\\Z(?<"}}}),
            json!({"properties": {"s": {"$ref": "https://example.com/elsewhere"}}}),
            json!({"properties": {"s": {"$ref": "#/$defs/nowhere"}}}),
            json!({"type": 5}),
        ] {
            schema.as_object_mut().unwrap().entry("properties").or_insert(json!({}))["n"] = integer.clone();
            let settled = coerce(&Draft::Map(vec![("n".into(), Draft::output("5"))]), &Schema::from(&schema));
            assert_eq!(settled.json, r#"{"n":5}"#, "{schema}");
            assert!(settled.checked.unchecked.is_some() && settled.checked.mismatches.is_empty(), "{schema}");
        }
        let circular = json!({"properties": {"n": {"$ref": "#/properties/n"}}});
        assert_eq!(
            coerce(&Draft::Map(vec![("n".into(), Draft::output("5"))]), &Schema::from(&circular)).json,
            r#"{"n":"5"}"#
        );
        let checked = Schema::from(&json!({"properties": {"n": integer, "m": {"items": integer}}}))
            .check(r#"{"n":"x","m":[1,"y"]}"#);
        assert_eq!(checked.mismatches.iter().map(|mismatch| mismatch.path.as_str()).collect::<Vec<_>>(), ["n", "m.1"]);
    }

    #[test]
    fn texts_of_numbers_and_booleans_become_those_where_they_are_wanted() {
        let schema = json!({ "properties": {
            "max": { "type": "number" }, "count": { "type": "integer" }, "name": { "type": "string" }, "any": {},
            "maybe": { "type": ["number", "null"] }, "either": { "type": ["number", "string"] },
            "on": { "type": "boolean" }, "word": { "enum": ["true", "false"] },
            "perhaps": { "anyOf": [{ "type": "boolean" }, { "type": "null" }] },
            "both": { "anyOf": [{ "type": "boolean" }, { "type": "string" }] },
            "deep": { "items": { "properties": { "on": { "type": "boolean" } } } },
            "list": { "items": { "type": "number" } }, "inner": { "properties": { "x": { "$ref": "#/$defs/n" } } },
        }, "$defs": { "n": { "type": "number" } } });
        for (args, wanted) in [
            (r#"{"max": "3.465"}"#, r#"{"max":3.465}"#),
            (r#"{"max": "12345678901234567890.10"}"#, r#"{"max":12345678901234567890.10}"#),
            (r#"{"max": "1E+3"}"#, r#"{"max":1E+3}"#),
            (r#"{"max": "high"}"#, r#"{"max":"high"}"#),
            (r#"{"max": "NaN"}"#, r#"{"max":"NaN"}"#),
            (r#"{"max": " 1"}"#, r#"{"max":" 1"}"#),
            (r#"{"max": 2.50}"#, r#"{"max":2.50}"#),
            (r#"{"max": "true"}"#, r#"{"max":"true"}"#),
            (r#"{"count": "7"}"#, r#"{"count":7}"#),
            (r#"{"count": "7.5"}"#, r#"{"count":"7.5"}"#),
            (r#"{"name": "3.465"}"#, r#"{"name":"3.465"}"#),
            (r#"{"any": "3.465"}"#, r#"{"any":"3.465"}"#),
            (r#"{"maybe": "1.5"}"#, r#"{"maybe":1.5}"#),
            (r#"{"either": "1.5"}"#, r#"{"either":"1.5"}"#),
            (r#"{"list": ["1.5", 2]}"#, r#"{"list":[1.5,2]}"#),
            (r#"{"inner": {"x": "1.5"}}"#, r#"{"inner":{"x":1.5}}"#),
            (r#"{"more\u0022": "1.5"}"#, r#"{"more\"":"1.5"}"#),
            (r#"{"on": "true"}"#, r#"{"on":true}"#),
            (r#"{"on": "false"}"#, r#"{"on":false}"#),
            (r#"{"on": "True"}"#, r#"{"on":"True"}"#),
            (r#"{"on": "1"}"#, r#"{"on":"1"}"#),
            (r#"{"name": "true"}"#, r#"{"name":"true"}"#),
            (r#"{"word": "true"}"#, r#"{"word":"true"}"#),
            (r#"{"perhaps": "true"}"#, r#"{"perhaps":true}"#),
            (r#"{"both": "true"}"#, r#"{"both":"true"}"#),
            (r#"{"deep": [{"on": "false"}]}"#, r#"{"deep":[{"on":false}]}"#),
        ] {
            assert_eq!(read_numeric_strings(args, &Schema::from(&schema)), wanted, "{args}");
        }
    }

    #[test]
    fn numbers_are_held_against_bounds_with_all_their_digits() {
        // Keywords, values that fit, values that do not.
        let table: &[(&str, &[&str], &[&str])] = &[
            (
                r#""exclusiveMinimum":18446744073709551616"#,
                &["18446744073709551617", "1e400", "18446744073709551616.5"],
                &["18446744073709551616", "18446744073709551615", "0", "-1e400"],
            ),
            (
                r#""maximum":9007199254740992"#,
                &["9007199254740992", "9007199254740992.0", "9.007199254740992e15"],
                &["9007199254740993", "9007199254740992.5", "9007199254740992.0000000000000000001"],
            ),
            (r#""minimum":0.1"#, &["0.1", "1e-1", "0.10000000000000000001"], &["0.09999999999999999999", "1e-400"]),
            (r#""exclusiveMaximum":0.3"#, &["0.29999999999999999999"], &["0.3", "0.30"]),
            (r#""minimum":-1e400,"maximum":1e400"#, &["1e399", "-1e400", "0", "1e400"], &["1e401", "-1e401"]),
            (r#""minimum":5,"exclusiveMinimum":true"#, &["5.1"], &["5", "4"]),
            (r#""maximum":5,"exclusiveMaximum":true,"minimum":0,"exclusiveMinimum":false"#, &["4", "0"], &["5", "-1"]),
            (r#""multipleOf":0.01"#, &["0.07", "4.35", "1e400", "0", "-0.29", "19.99"], &["0.075", "1e-3"]),
            (r#""multipleOf":1e-999999999"#, &["1e999999999", "0.07"], &["1e-1000000000", "3e-1000000000"]),
            (r#""multipleOf":1e999999999"#, &["0", "1e999999999", "-20e999999999"], &["1", "1e999999998"]),
            (
                r#""multipleOf":3"#,
                &["123456789012345678901234567890", "300000000000000000000000000000000"],
                &["123456789012345678901234567891", "1e30"],
            ),
            (
                r#""const":123456789012345678901234567890"#,
                &["123456789012345678901234567890", "12345678901234567890123456789e1"],
                &["123456789012345678901234567891", "1.2345678901234568e29"],
            ),
            (
                r#""enum":[9007199254740993,"x",[1.0]]"#,
                &["9007199254740993", r#""x""#, "[1]"],
                &["9007199254740992", "[2]"],
            ),
            (r#""const":{"a":1e400}"#, &[r#"{"a":10e399}"#], &[r#"{"a":1e401}"#, r#"{"a":1e400,"b":1}"#]),
            (
                r#""uniqueItems":true"#,
                &["[123456789012345678901234567890,123456789012345678901234567891]", "[1,true,\"1\",[1]]"],
                &["[1,1.0]", "[1e400,10e399]", r#"[{"a":1,"b":2},{"b":2.0,"a":1}]"#],
            ),
            (
                r#""type":"integer""#,
                &["1.0", "1e400", "123456789012345678901234567890", "10e-1"],
                &["9007199254740993.5", "1e-400", "123456789012345678901234567890.5"],
            ),
            (r#""items":{"minimum":18446744073709551616}"#, &["[18446744073709551616]"], &["[18446744073709551615]"]),
            (r#""anyOf":[{"const":1e30},{"minimum":1e40}]"#, &["1e30", "1e41"], &["1e31"]),
            (r#""not":{"maximum":18446744073709551616}"#, &["18446744073709551617"], &["18446744073709551616"]),
            (r##""$ref":"#/$defs/x","$defs":{"x":{"maximum":0.1}}"##, &["0.1"], &["0.10000000000000000001"]),
            (r#""minimum":1,"nullable":true,"enum":[1,2]"#, &["1", "null"], &["3", r#""1""#]),
        ];
        for (keywords, fit, mismatch) in table {
            let schema = Schema::read(&format!("{{\"properties\":{{\"v\":{{{keywords}}}}}}}"));
            let schema = if keywords.contains("$defs") { Schema::read(&format!("{{{keywords}}}")) } else { schema };
            let args = |value: &str| {
                if keywords.contains("$defs") { (*value).to_owned() } else { format!("{{\"v\":{value}}}") }
            };
            for value in *fit {
                assert_eq!(schema.check(&args(value)), Checked::default(), "{keywords}: {value}");
            }
            for value in *mismatch {
                assert_eq!(schema.check(&args(value)).mismatches.len(), 1, "{keywords}: {value}");
            }
        }
        // Names that are keywords, and values that are not compared.
        let schema = Schema::read(
            r#"{"properties":{"minimum":{"type":"integer"},"const":{"const":5}},"default":{"minimum":7},"x":{"const":1e400}}"#,
        );
        assert_eq!(schema.check(r#"{"minimum":1,"const":5.0}"#), Checked::default());
        assert_eq!(schema.check(r#"{"minimum":"1","const":6}"#).mismatches.len(), 2);
        let long = "1".repeat(number::DIGIT_LIMIT + 1);
        let schema = Schema::read(r#"{"maximum":5}"#);
        assert!(
            schema.check(&long).unchecked.is_some_and(|why| why.contains("a number of 10001 bytes is not compared"))
        );
        for schema in [r#"{"multipleOf":0}"#, r#"{"minimum":"5"}"#, r#"{"const":"#, ""] {
            assert!(Schema::read(schema).check("7").unchecked.is_some(), "{schema}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_quoted_as_it_was_written() {
        let text = |schema: &str, value: &str| {
            let mismatches = Schema::read(schema).check(value).mismatches;
            mismatches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let big = "123456789012345678901234567890";
        for (schema, value, wanted) in [
            (
                r#"{"maximum":18446744073709551616}"#,
                big,
                format!("{big} is greater than the maximum of 18446744073709551616"),
            ),
            (r#"{"minimum":2.50}"#, "1.10", "1.10 is less than the minimum of 2.50".into()),
            (r#"{"exclusiveMinimum":1e30}"#, "1e30", "1e30 is less than or equal to the minimum of 1e30".into()),
            (r#"{"exclusiveMaximum":1e30}"#, "1e31", "1e31 is greater than or equal to the maximum of 1e30".into()),
            (r#"{"multipleOf":0.10}"#, "0.15", "0.15 is not a multiple of 0.10".into()),
            (r#"{"const":1.10}"#, "1.11", "1.10 was expected".into()),
            (r#"{"enum":[1.10,2,3,4]}"#, "1.11", "1.11 is not one of 1.10, 2 or 2 other candidates".into()),
            (r#"{"enum":[1.10,2]}"#, "1.11", "1.11 is not one of 1.10 or 2".into()),
            (r#"{"type":"string"}"#, big, format!(r#"{big} is not of type "string""#)),
            (r#"{"items":{"type":"string"}}"#, "[1e400]", r#"0: 1e400 is not of type "string""#.into()),
            (
                r#"{"properties":{"a.b":{"properties":{"x/y":{"type":"string"}}}}}"#,
                r#"{"a.b":{"x/y":5}}"#,
                r#"a.b.x/y: 5 is not of type "string""#.into(),
            ),
        ] {
            assert_eq!(text(schema, value), wanted, "{schema}");
        }
    }

    #[test]
    fn a_choice_goes_by_all_digits_of_the_schema() {
        let schema = Schema::read(
            r#"{"properties":{"c":{"const":123456789012345678901234567890},"e":{"enum":[18446744073709551617,"18446744073709551618"]}}}"#,
        );
        for (name, text, wanted) in [
            ("c", "123456789012345678901234567890", "123456789012345678901234567890"),
            ("e", "18446744073709551617", "18446744073709551617"),
            ("e", "18446744073709551618", r#""18446744073709551618""#),
        ] {
            let settled = coerce(&Draft::Map(vec![(name.into(), Draft::output(text))]), &schema);
            assert_eq!(settled.json, format!("{{\"{name}\":{wanted}}}"));
            assert_eq!(settled.checked, Checked::default(), "{name}={text}");
        }
    }

    #[test]
    fn a_number_in_another_spelling_is_one_where_a_number_is_wanted() {
        let schema = Schema::read(
            r#"{"properties":{"n":{"type":"number"},"i":{"type":"integer"},"s":{"type":"string"},"any":{},"either":{"type":["string","number"]}}}"#,
        );
        for (name, text, wanted) in [
            ("n", "+3.30E+00", "3.30E+00"),
            ("n", "-.5", "-0.5"),
            ("n", "5.", "5.0"),
            ("i", "007", "7"),
            ("i", "+12", "12"),
            ("i", "0x1F", "31"),
            ("i", "+1e3", "1000"),
            ("s", "+3.30E+00", r#""+3.30E+00""#),
            ("any", "007", r#""007""#),
            ("either", "007", r#""007""#),
            ("n", "NaN", r#""NaN""#),
            ("n", "1_000", r#""1_000""#),
            ("n", "3.3 V", r#""3.3 V""#),
        ] {
            for draft in [Draft::written(text), Draft::output(text)] {
                let settled = coerce(&Draft::Map(vec![(name.into(), draft)]), &schema);
                assert_eq!(settled.json, format!("{{\"{name}\":{wanted}}}"), "{name}={text}");
            }
        }
    }

    #[test]
    fn elements_of_a_list_have_the_types_of_its_schema() {
        let schema = Schema::read(
            r#"{"properties":{"l":{"items":{"type":"string"}},"o":{"type":"object","properties":{"s":{"type":"string"},"l":{"items":{"type":"string"}}}},
                "n":{"type":"array","items":{"type":"integer"}},"text":{"type":"string"},"l2":{"type":"array","items":{"type":"string"}}}}"#,
        );
        for (name, text, wanted) in [
            ("l2", "[1, 007]", r#""[1, 007]""#),
            ("l2", "[1, 1.50, true, null]", r#"["1","1.50","true","null"]"#),
            ("l2", r#"["007", "b"]"#, r#"["007", "b"]"#),
            ("o", r#"{"s": 5, "l": [1e400, "x"]}"#, r#"{"s":"5","l":["1e400","x"]}"#),
            ("o", r#"{"s": "5"}"#, r#"{"s": "5"}"#),
            ("n", r#"["5"]"#, r#"["5"]"#),
            ("text", "[1, 2]", r#""[1, 2]""#),
        ] {
            for draft in [Draft::written(text), Draft::output(text)] {
                let settled = coerce(&Draft::Map(vec![(name.into(), draft)]), &schema);
                assert_eq!(settled.json, format!("{{\"{name}\":{wanted}}}"), "{name}={text}");
            }
        }
        // What does not fit is named by its place.
        let settled = coerce(&Draft::Map(vec![("n".into(), Draft::written(r#"[1, "x"]"#))]), &schema);
        assert_eq!(settled.checked.mismatches[0].to_string(), r#"n.1: "x" is not of type "integer""#);
    }
}
