//! The arguments of an operation, from `NAME=VALUE` and `--args`, by its schema.

use std::collections::{BTreeMap, HashSet};

use indexmap::IndexMap;
use rigline::json::de::MAX_DEPTH;
use rigline::json::{Json, JsonKind};
use rigline_host::coerce::{ArgumentFault, Draft, Schema, SchemaView, brief, fit};

use crate::connect::Failure;
use crate::out::{complain, word};

/// The arguments on the command line.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    pub(crate) operation: &'a str,
    /// `--args`: a JSON object.
    pub(crate) args: Option<&'a str>,
    /// `NAME=VALUE`.
    pub(crate) values: &'a [String],
    /// Only errors are printed.
    pub(crate) is_quiet: bool,
    /// The command that shows the operation.
    pub(crate) help: String,
}

/// A value under construction.
#[derive(Debug)]
enum Node {
    Leaf(Draft),
    Object(IndexMap<String, Node>),
    Array(BTreeMap<usize, Node>),
}

/// The longest list that is made of `NAME.NUMBER=VALUE`.
const LONGEST_LIST: usize = 10_000;

impl Given<'_> {
    /// The arguments as JSON text on one line. Arguments that break the schema are an error. If the schema cannot be
    /// evaluated here, nothing is refused, since the extension checks its arguments itself.
    pub(crate) fn arguments(&self, schema: &Schema) -> Result<String, Failure> {
        let root = SchemaView::of(schema.json());
        let mut tree = Node::Object(self.object()?);
        let mut paths: HashSet<Vec<String>> = HashSet::new();
        for text in self.values {
            let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                return Err(self.not_a_pair(&root, text));
            };
            if !root.declares(name) && name.split('.').count() > MAX_DEPTH.into() {
                return Err(
                    self.fault(&brief(name), &format!("is too deep: a name has at most {MAX_DEPTH} parts; use --args"))
                );
            }
            let path = path(&root, name);
            if paths.contains(&path) {
                return Err(self.twice(name));
            }
            // Of two values for one name, one would be lost.
            if let Some(Err(name)) = Json::parse(value.as_bytes()).ok().map(Node::of) {
                return Err(self.twice(&name));
            }
            tree.put(&root, &path, written(value)).map_err(|why| self.fault(name, &why))?;
            paths.insert(path);
        }
        tree.check_lists("").map_err(|(path, why)| self.fault(&path, &why))?;
        let fit = fit(&tree.draft(), schema);
        if let Some(why) = &fit.unchecked {
            self.warn(&format!("cannot be checked here; the extension checks it: {}", brief(why)));
        }
        if !fit.faults.is_empty() {
            return Err(self.faults(&fit.faults));
        }
        for (path, near) in &fit.undeclared {
            let near = near.as_ref().map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
            self.warn(&format!("does not declare the argument `{}`{near}; sending it anyway", word(path)));
        }
        // Two of the protocols need a request on one line. Within a string no line can break.
        Ok(fit.json.replace(['\r', '\n'], ""))
    }

    /// The members of `--args`.
    fn object(&self) -> Result<IndexMap<String, Node>, Failure> {
        let Some(text) = self.args else { return Ok(IndexMap::new()) };
        match Json::parse(text.as_bytes()) {
            Ok(json) if json.kind() == JsonKind::Object => match Node::of(json).map_err(|name| self.twice(&name))? {
                Node::Object(members) => Ok(members),
                _ => Ok(IndexMap::new()),
            },
            Ok(_) => Err(Failure::usage("--args: expected a JSON object")),
            Err(error) => Err(Failure::usage(format!("--args: not JSON: {error}"))),
        }
    }

    /// A text that is no NAME=VALUE, with what may have been meant.
    fn not_a_pair(&self, root: &SchemaView<'_>, text: &str) -> Failure {
        let text = word(text);
        let pair = |(name, value): (&str, &str)| {
            let value = value.trim_start();
            root.declares(name).then(|| format!("did you mean `{name}={value}`?"))
        };
        let hint = if text.trim_start().starts_with('{') {
            "a JSON object is given by --args".to_owned()
        } else if root.declares(&text) {
            format!("write `{text}=VALUE`")
        } else if let Some(meant) = text.split_once(':').and_then(pair) {
            meant
        } else {
            format!("`{}` shows its arguments", self.help)
        };
        Failure::usage(format!("`{text}`: expected NAME=VALUE; {hint}"))
    }

    /// Of two values for one name, one would be lost.
    fn twice(&self, name: &str) -> Failure {
        self.fault(name, "is given more than once")
    }

    /// All that is wrong with the arguments, each by its place.
    fn faults(&self, faults: &[ArgumentFault]) -> Failure {
        let mut lines: Vec<String> = Vec::new();
        let mut known: Option<&[String]> = None;
        for fault in faults {
            let hint =
                if fault.is_of_flag { format!("; write {0}=true or {0}=false", fault.path) } else { String::new() };
            lines.push(format!("{}: {fault}{hint}", self.operation));
            known = known.or(fault.known.as_deref());
        }
        lines.extend(known.map(|known| match known {
            [] => "it has no arguments".to_owned(),
            known => format!("expected one of: {}", known.join(", ")),
        }));
        if faults.iter().any(|fault| fault.known.is_none()) {
            lines.push(format!("`{}` shows its arguments", self.help));
        }
        Failure::usage(lines.join("\n"))
    }

    fn fault(&self, name: &str, why: &str) -> Failure {
        Failure::usage(format!("{}: `{}` {why}", self.operation, word(name)))
    }

    fn warn(&self, text: &str) {
        if !self.is_quiet {
            complain(format_args!("rigline: {} {text}", self.operation));
        }
    }
}

/// The path that a name means. A dotted name is a path through objects and lists, unless the schema has an argument of
/// exactly this name.
fn path(root: &SchemaView<'_>, name: &str) -> Vec<String> {
    let whole = || vec![name.to_owned()];
    if root.declares(name) || !name.contains('.') || name.split('.').any(str::is_empty) {
        return whole();
    }
    let is_container = |place: SchemaView<'_>| {
        let types = place.types();
        types.is_empty() || types.iter().any(|name| name == "object" || name == "array")
    };
    // A name may have dots in it: the longest known one counts.
    let parts: Vec<&str> = name.split('.').collect();
    let known = |place: &SchemaView<'_>, parts: &[&str]| {
        let joined = (1..=parts.len()).rev().map(|count| (count, parts.get(..count).unwrap_or_default().join(".")));
        joined.into_iter().find(|(_, joined)| place.declares(joined))
    };
    let Some((mut count, mut next)) = known(root, &parts) else { return whole() };
    if !root.member(&next).is_some_and(is_container) {
        return whole();
    }
    let (mut path, mut rest, mut place) = (Vec::new(), parts.as_slice(), root.member(&next));
    loop {
        path.push(next);
        rest = rest.get(count..).unwrap_or_default();
        let Some(first) = rest.first() else { return path };
        (count, next) = place.as_ref().and_then(|place| known(place, rest)).unwrap_or((1, (*first).to_owned()));
        place = place.and_then(|place| place.member(&next));
    }
}

/// The ways to read a text: as JSON, as itself, and as a JSON string, which is written where a quoted text is meant.
fn written(text: &str) -> Draft {
    let mut draft = Draft::written(text);
    if let (Draft::Scalar(readings), Ok(json)) = (&mut draft, Json::parse(text.trim().as_bytes()))
        && json.kind() == JsonKind::String
    {
        readings.push(json.as_str().to_owned());
    }
    draft
}

impl Node {
    /// The error is the name of a member that an object has twice.
    fn of(json: Json<'_>) -> Result<Self, String> {
        Ok(match json.kind() {
            JsonKind::Object => {
                let mut members = IndexMap::new();
                for (name, value) in json.members() {
                    let name = name.to_string();
                    if members.insert(name.clone(), Self::of(value)?).is_some() {
                        return Err(name);
                    }
                }
                Self::Object(members)
            }
            JsonKind::Array => {
                let elements: Result<Vec<Self>, String> = json.elements().map(Self::of).collect();
                Self::Array(elements?.into_iter().enumerate().collect())
            }
            _ => Self::Leaf(Draft::json(json.as_str())),
        })
    }

    /// Puts a draft where the path leads, and makes the objects and lists on the way.
    fn put(&mut self, place: &SchemaView<'_>, path: &[String], text: Draft) -> Result<(), String> {
        let Some((name, rest)) = path.split_first() else {
            *self = Self::Leaf(text);
            return Ok(());
        };
        let inner = place.member(name);
        let next = match self {
            Self::Object(members) => members.entry(name.clone()).or_insert_with(|| Self::empty(inner.as_ref(), rest)),
            Self::Array(elements) => {
                let number: usize = name
                    .parse()
                    .map_err(|_| format!("names no element of a list: `{}` is not a number", word(name)))?;
                if number >= LONGEST_LIST {
                    return Err(format!(
                        "is too far: a list made of single elements has at most {LONGEST_LIST}; use --args"
                    ));
                }
                elements.entry(number).or_insert_with(|| Self::empty(inner.as_ref(), rest))
            }
            Self::Leaf(_) => return Err("cannot be set: it already has a value".to_owned()),
        };
        next.put(inner.as_ref().unwrap_or(&SchemaView::of_text("true")), rest, text)
    }

    /// A container for the values below it.
    fn empty(place: Option<&SchemaView<'_>>, rest: &[String]) -> Self {
        let Some(name) = rest.first() else { return Self::Leaf(Draft::json("null")) };
        let types = place.map(SchemaView::types).unwrap_or_default();
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        let has = |wanted: &str| types.iter().any(|name| name == wanted);
        if has("array") && (is_number || !has("object")) || types.is_empty() && is_number {
            Self::Array(BTreeMap::new())
        } else {
            Self::Object(IndexMap::new())
        }
    }

    /// A list has all its elements from 0 on.
    fn check_lists(&self, path: &str) -> Result<(), (String, String)> {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match self {
            Self::Leaf(_) => Ok(()),
            Self::Object(members) => members.iter().try_for_each(|(name, node)| node.check_lists(&below(name))),
            Self::Array(elements) => {
                if let Some(missing) = (0..elements.len()).find(|place| !elements.contains_key(place)) {
                    return Err((
                        below(&missing.to_string()),
                        "is missing: a list has all its elements from 0 on".to_owned(),
                    ));
                }
                elements.iter().try_for_each(|(place, node)| node.check_lists(&below(&place.to_string())))
            }
        }
    }

    fn draft(&self) -> Draft {
        match self {
            Self::Leaf(draft) => draft.clone(),
            Self::Object(members) => {
                Draft::Map(members.iter().map(|(name, node)| (name.clone(), node.draft())).collect())
            }
            Self::Array(elements) => Draft::List(elements.values().map(Self::draft).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn given(schema: &Value, values: &[&str]) -> Result<String, String> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let given = Given { operation: "op", args: None, values: &values, is_quiet: true, help: "help".into() };
        given.arguments(&Schema::from(schema)).map_err(|failure| failure.text)
    }

    /// Reports: knowsuchagency/mcp2cli#83.
    #[test]
    fn the_whole_schema_decides_what_a_value_is() {
        let schema = json!({
            "type": "object",
            "$defs": {"text": {"type": "string"}, "count": {"type": "integer"}},
            "properties": {
                "level": {"enum": ["0", "1", "auto"]},
                "mixed": {"enum": ["0", 1, null, true]},
                "label": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "ref": {"$ref": "#/$defs/text"},
                "n": {"anyOf": [{"$ref": "#/$defs/count"}, {"type": "null"}]},
                "all": {"allOf": [{"type": "string"}, {"minLength": 1}]},
                "exact": {"const": "7"},
                "number": {"const": 7},
                "one": {"oneOf": [{"type": "integer", "minimum": 10}, {"type": "string", "pattern": "^[0-9]$"}]},
                "nullable": {"type": "string", "nullable": true},
                "list": {"type": "array", "items": {"type": "string"}},
                "big": {"type": "integer"},
                "quoted": {"enum": ["a"]},
            },
        });
        for (pair, args) in [
            ("level=1", r#"{"level":"1"}"#),
            ("mixed=0", r#"{"mixed":"0"}"#),
            ("mixed=1", r#"{"mixed":1}"#),
            ("mixed=null", r#"{"mixed":null}"#),
            ("mixed=true", r#"{"mixed":true}"#),
            ("label=123", r#"{"label":"123"}"#),
            ("label=null", r#"{"label":null}"#),
            ("ref=1e3", r#"{"ref":"1e3"}"#),
            ("n=5", r#"{"n":5}"#),
            ("n=null", r#"{"n":null}"#),
            ("all=12", r#"{"all":"12"}"#),
            ("exact=7", r#"{"exact":"7"}"#),
            ("number=7", r#"{"number":7}"#),
            ("one=12", r#"{"one":12}"#),
            ("one=7", r#"{"one":"7"}"#),
            ("nullable=007", r#"{"nullable":"007"}"#),
            (r#"list=["1","2"]"#, r#"{"list":["1","2"]}"#),
            ("list.0=1", r#"{"list":["1"]}"#),
            ("big=123456789012345678901234567890", r#"{"big":123456789012345678901234567890}"#),
            (r#"quoted="a""#, r#"{"quoted":"a"}"#),
        ] {
            assert_eq!(given(&schema, &[pair]).as_deref(), Ok(args), "{pair}");
        }
    }

    /// Reports: anthropics/claude-code#90549, marianfoo/sap-mcp-servers#52.
    #[test]
    fn a_schema_that_cannot_be_evaluated_refuses_nothing() {
        for schema in [
            json!({"$schema": "https://spec.openapis.org/oas/3.1/dialect/base", "type": "object"}),
            json!({"$schema": "my own", "properties": {"x": {"type": "string"}}}),
            json!({"properties": {"x": {"type": "string", "pattern": "^a\\Z"}}}),
            json!({"properties": {"x": {"pattern": "("}}}),
            json!({"properties": {"x": {"$ref": "https://example.org/schema.json"}}}),
            json!({"properties": {"x": {"$ref": "#/nowhere"}}}),
            json!({"type": "thing"}),
            json!({"properties": 3}),
            json!(7),
        ] {
            assert_eq!(given(&schema, &["x=a"]).as_deref(), Ok(r#"{"x":"a"}"#), "{schema}");
        }
        // What types there are is known all the same.
        let schema = json!({"$schema": "my own", "properties": {"x": {"type": "string"}, "y": {"type": "integer"}}});
        assert_eq!(given(&schema, &["x=1", "y=1"]).as_deref(), Ok(r#"{"x":"1","y":1}"#));
    }

    #[test]
    fn dotted_names_go_into_objects_and_lists() {
        let schema = json!({
            "type": "object",
            "properties": {
                "place": {"type": "object", "properties": {
                    "city": {"type": "string"}, "at": {"type": "array", "items": {"type": "number"}}}},
                "days": {"type": "array", "items": {"type": "integer"}},
                "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
                "a.b": {"type": "integer"},
                "c.d": {"type": "object", "properties": {"e.f": {"type": "string"}, "g": {"properties": {"h.i": {"type": "string"}}}}},
                "any": {},
            },
            "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
        });
        let table: &[(&[&str], &str)] = &[
            (
                &["place.city=Bonn", "place.at.0=50.70", "place.at.1=7.1"],
                r#"{"place":{"city":"Bonn","at":[50.70,7.1]}}"#,
            ),
            (&["days.1=4", "days.0=3"], r#"{"days":[3,4]}"#),
            (&["people.0.name=7"], r#"{"people":[{"name":"7"}]}"#),
            (&["a.b=1"], r#"{"a.b":1}"#),
            (&["c.d.e.f=1"], r#"{"c.d":{"e.f":"1"}}"#),
            (&["c.d.g.h.i=1", "c.d.e.f=2"], r#"{"c.d":{"g":{"h.i":"1"},"e.f":"2"}}"#),
            (&["place.at=[1,2.50]"], r#"{"place":{"at":[1,2.50]}}"#),
            (&["any.x.0=1"], r#"{"any":{"x":[1]}}"#),
            (&["other.name=1"], r#"{"other.name":1}"#),
        ];
        for (values, args) in table {
            assert_eq!(given(&schema, values).as_deref(), Ok(*args), "{values:?}");
        }
        let table: &[(&[&str], &str)] = &[
            (&["days.1=4"], "op: `days.0` is missing: a list"),
            (&["days.x=4"], "op: `days.x` names no element of a list: `x` is not a number"),
            (&["days.99999999999=4"], "at most 10000"),
            (&["place.city=a", "place.city=b"], "more than once"),
            (&[r#"any={"x":{"y":1,"y":2}}"#], "`y` is given more than once"),
            (&["place=a", "place.city=b"], "it already has a value"),
            (&[&format!("any{}=1", ".x".repeat(128))], "` is too deep: a name has at most 128 parts; use --args"),
            (&["place.cty=b"], "there is no argument `place.cty`; did you mean `city`?"),
            (&["people.0.age=7"], "op: people.0: \"name\" is a required property"),
        ];
        for (values, text) in table {
            let error = given(&schema, values).unwrap_err();
            assert!(error.contains(text), "{values:?}: {error}");
        }
    }

    #[test]
    fn an_error_says_what_is_right() {
        let schema = json!({"properties": {
            "on": {"type": "boolean"}, "mode": {"enum": ["fast", "slow"]},
            "both": {"anyOf": [{"const": "Left"}, {"const": "Right"}]}}});
        for (pair, text) in [
            ("on=yes", "op: on: `yes` is neither true nor false; write on=true or on=false"),
            ("mode=FAST", "did you mean `fast`?"),
            ("mode=fats", "did you mean `fast`?"),
            ("both=right", "did you mean `Right`?"),
        ] {
            let error = given(&schema, &[pair]).unwrap_err();
            assert!(error.contains(text) && error.ends_with("`help` shows its arguments"), "{pair}: {error}");
        }
        let long = format!("mode={}", "x".repeat(100_000));
        assert!(given(&schema, &[&long]).unwrap_err().len() < 2000);
    }
}
