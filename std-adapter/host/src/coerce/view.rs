//! The facts of a JSON Schema that command lines, errors and tables show: types, members and
//! values.
//!
//! The crate `jsonschema` decides whether a value is valid.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

use indexmap::IndexMap;
use percent_encoding::percent_decode_str;
use rigline::json::{Json, JsonKind};
use rigline_std::mutex::lock;

use super::index::{Index, address};
use super::same;

/// A place in a JSON Schema: all subschemas that apply to one value. References and combinations
/// are resolved.
///
/// It reads the text of the schema, so that numbers have all their digits. A clone, and the places
/// that are reached from one, share what was found: a look at each of many members takes the time
/// of the text, not of its square.
#[derive(Debug, Clone)]
pub struct SchemaView<'s> {
    document: Arc<Document<'s>>,
    place: Arc<Subschemas<'s>>,
}

/// The document that the places of a schema share.
#[derive(Debug)]
struct Document<'s> {
    root: Json<'s>,
    index: Index<'s>,
    /// The places that were reached, by the addresses of the subschemas that led there.
    places: Mutex<HashMap<Vec<usize>, Arc<Subschemas<'s>>>>,
    anchors: OnceLock<HashMap<String, Json<'s>>>,
}

#[derive(Debug)]
struct Subschemas<'s> {
    parts: Vec<Json<'s>>,
    members: OnceLock<IndexMap<String, Vec<Json<'s>>>>,
}

/// How many lists in one another a type in a few words names. Schemas may refer to themselves.
const LISTS: usize = 5;
/// The number of subschemas that are read for one place. Schemas may refer to themselves.
const PARTS: usize = 200;

impl<'s> SchemaView<'s> {
    /// The place of the whole value.
    pub fn of(root: Json<'s>) -> Self {
        let document = Document { root, index: Index::default(), places: Mutex::default(), anchors: OnceLock::new() };
        let place = document.place([root]);
        Self { document: Arc::new(document), place }
    }

    /// The place of the whole value, for a schema as text. A text that is not JSON counts as a
    /// schema without keywords.
    pub fn of_text(root: &'s str) -> Self {
        Self::of(Json::parse(root.as_bytes()).unwrap_or(Json::NULL))
    }

    fn at(&self, schemas: impl IntoIterator<Item = Json<'s>>) -> Self {
        Self { document: Arc::clone(&self.document), place: self.document.place(schemas) }
    }

    /// Returns the place of the member with this name, or of the element with this index. Returns
    /// `None` if the schema does not describe it.
    pub fn member(&self, name: &str) -> Option<Self> {
        if let Some(found) = self.declared().get(name) {
            return Some(self.at(found.iter().copied()));
        }
        let mut found: Vec<Json<'s>> = match name.parse::<usize>() {
            Ok(place) => self.parts().filter_map(|part| self.document.element(part, place)).collect(),
            Err(_) => Vec::new(),
        };
        if found.is_empty() {
            found.extend(self.each("additionalProperties").filter(|others| others.kind() == JsonKind::Object));
        }
        (!found.is_empty()).then(|| self.at(found))
    }

    /// Returns the place of a list's elements.
    pub fn elements(&self) -> Option<Self> {
        let found: Vec<Json<'s>> = self.parts().filter_map(|part| self.document.element(part, usize::MAX)).collect();
        (!found.is_empty()).then(|| self.at(found))
    }

    /// Returns the names of the members, in the order of the schema.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.declared().keys().map(String::as_str)
    }

    /// Returns whether the schema names a member so.
    pub fn declares(&self, name: &str) -> bool {
        self.declared().contains_key(name)
    }

    /// Returns the names and places of all members, in the order of the schema.
    pub fn members(&self) -> impl ExactSizeIterator<Item = (&str, Self)> {
        self.declared().iter().map(|(name, schemas)| (name.as_str(), self.at(schemas.iter().copied())))
    }

    /// The subschemas of each member that has a name in the schema.
    fn declared(&self) -> &IndexMap<String, Vec<Json<'s>>> {
        self.place.members.get_or_init(|| {
            let mut found: IndexMap<String, Vec<Json<'s>>> = IndexMap::new();
            for properties in self.each("properties") {
                // Of a name that stands twice in one object, the last counts, as for any keyword.
                let members: IndexMap<String, Json<'s>> =
                    properties.members().map(|(name, schema)| (name.to_string(), schema)).collect();
                for (name, schema) in members {
                    found.entry(name).or_default().push(schema);
                }
            }
            found
        })
    }

    /// Returns the names of the required members.
    pub fn required_names(&self) -> HashSet<String> {
        let required = self.each("required").flat_map(|required| required.elements());
        required.filter_map(|name| Some(name.text()?.to_string())).collect()
    }

    /// Returns whether members that the schema does not name are refused.
    pub fn is_closed(&self) -> bool {
        let mut others = self.each("additionalProperties").chain(self.each("unevaluatedProperties"));
        others.any(|others| others.bool() == Some(false))
    }

    /// Returns the names of the types that the value may have. Empty if it may have any.
    pub fn types(&self) -> Vec<Cow<'s, str>> {
        let mut types: Vec<Cow<'s, str>> = Vec::new();
        let mut add = |name: Cow<'s, str>| {
            if !types.contains(&name) {
                types.push(name);
            }
        };
        for part in self.parts() {
            let named = self.get(part, "type");
            let one = named.filter(|named| named.kind() == JsonKind::String).into_iter();
            for name in one.chain(named.into_iter().flat_map(|named| named.elements())) {
                if let Some(name) = name.text() {
                    add(name.to_string().into());
                }
            }
            if self.get(part, "nullable").and_then(|nullable| nullable.bool()) == Some(true) {
                add("null".into());
            }
            if named.is_none() {
                self.values_of(part).for_each(|value| add(type_of(value).into()));
            }
        }
        // An object or a list need not say so.
        if types.is_empty() && self.each("properties").next().is_some() {
            types.push("object".into());
        }
        if types.is_empty() && self.each("items").chain(self.each("prefixItems")).next().is_some() {
            types.push("array".into());
        }
        types
    }

    /// Returns the values that `enum` and `const` list.
    pub fn values(&self) -> Vec<Json<'s>> {
        self.parts().flat_map(|part| self.values_of(part)).collect()
    }

    /// Returns the first value of a keyword, such as `description`.
    pub fn keyword(&self, name: &str) -> Option<Json<'s>> {
        self.each(name).next()
    }

    /// Returns the description of the value. Empty if the schema has none.
    pub fn description(&self) -> String {
        self.keyword("description").and_then(|text| Some(text.text()?.to_string())).unwrap_or_default()
    }

    /// Returns the type of the value in a few words, such as `integer 1..1000`, `"a" | "b"` or
    /// `list of string`.
    pub fn summary(&self) -> String {
        self.summary_to(LISTS)
    }

    /// `lists` is how many lists in one another it may still name.
    fn summary_to(&self, lists: usize) -> String {
        let values = self.values();
        if !values.is_empty() {
            const SHOWN: usize = 12;
            let mut texts: Vec<String> = values.iter().take(SHOWN).map(|value| value.as_str().to_owned()).collect();
            if values.len() > SHOWN {
                texts.push(format!("… ({} values)", values.len()));
            }
            return texts.join(" | ");
        }
        let types = self.types();
        let mut names: Vec<String> = Vec::new();
        for name in &types {
            // An integer is a number.
            if name != "integer" || !types.contains(&Cow::Borrowed("number")) {
                names.push(self.summary_of(name, lists));
            }
        }
        if names.is_empty() { "any".to_owned() } else { names.join(" | ") }
    }

    fn summary_of(&self, name: &str, lists: usize) -> String {
        let size = |minimum: &str, maximum: &str| self.range(minimum, maximum, "..");
        match name {
            "integer" | "number" => match self.range("minimum", "maximum", "..") {
                range if range.is_empty() => name.to_owned(),
                range => format!("{name} {range}"),
            },
            "array" => {
                let elements = match (self.elements(), lists.checked_sub(1)) {
                    (None, _) => "any".to_owned(),
                    (Some(_), None) => "…".to_owned(),
                    (Some(elements), Some(lists)) => elements.summary_to(lists),
                };
                let elements = if elements.contains(" | ") { format!("({elements})") } else { elements };
                match size("minItems", "maxItems") {
                    range if range.is_empty() => format!("list of {elements}"),
                    range => format!("list of {range} {elements}"),
                }
            }
            "string" => match (size("minLength", "maxLength"), self.keyword("format").and_then(|format| format.text()))
            {
                (_, Some(format)) => format!("string ({format})"),
                (range, None) if !range.is_empty() => format!("string, {range} characters"),
                _ => name.to_owned(),
            },
            name => name.to_owned(),
        }
    }

    fn range(&self, minimum: &str, maximum: &str, between: &str) -> String {
        let bound = |name: &str| {
            let bound = self.keyword(name).map(|bound| bound.as_str());
            bound.filter(|bound| !is_limit_of_type(bound)).map(str::to_owned)
        };
        match (bound(minimum), bound(maximum)) {
            (Some(minimum), Some(maximum)) if minimum == maximum => minimum,
            (Some(minimum), Some(maximum)) => format!("{minimum}{between}{maximum}"),
            (Some(minimum), None) => format!("from {minimum}"),
            (None, Some(maximum)) => format!("up to {maximum}"),
            (None, None) => String::new(),
        }
    }

    fn each(&self, keyword: &str) -> impl Iterator<Item = Json<'s>> {
        self.parts().filter_map(move |part| self.get(part, keyword))
    }

    fn parts(&self) -> impl Iterator<Item = Json<'s>> {
        self.place.parts.iter().copied()
    }

    fn get(&self, schema: Json<'s>, keyword: &str) -> Option<Json<'s>> {
        self.document.index.member(schema, keyword)
    }

    fn values_of(&self, schema: Json<'s>) -> impl Iterator<Item = Json<'s>> {
        let values = self.get(schema, "enum").into_iter().flat_map(|values| values.elements());
        values.chain(self.get(schema, "const"))
    }
}

impl<'s> Document<'s> {
    fn place(&self, schemas: impl IntoIterator<Item = Json<'s>>) -> Arc<Subschemas<'s>> {
        let mut waiting: Vec<Json<'s>> = schemas.into_iter().collect();
        let key: Vec<usize> = waiting.iter().copied().map(address).collect();
        if let Some(known) = lock(&self.places).get(&key) {
            return Arc::clone(known);
        }
        let mut parts: Vec<Json<'s>> = Vec::new();
        waiting.reverse();
        while let Some(schema) = waiting.pop() {
            if parts.len() >= PARTS || parts.iter().any(|part| address(*part) == address(schema)) {
                continue;
            }
            parts.push(schema);
            waiting.extend(self.referred(schema));
            for keyword in ["allOf", "anyOf", "oneOf"] {
                let all = self.index.member(schema, keyword);
                let combined: Vec<Json<'s>> = all.into_iter().flat_map(|all| all.elements()).collect();
                waiting.extend(combined.into_iter().rev());
            }
            waiting.extend(["then", "else"].iter().filter_map(|keyword| self.index.member(schema, keyword)));
        }
        let place = Arc::new(Subschemas { parts, members: OnceLock::new() });
        lock(&self.places).insert(key, Arc::clone(&place));
        place
    }

    /// The schema that `$ref` refers to, within the same document.
    fn referred(&self, schema: Json<'s>) -> Option<Json<'s>> {
        let root = self.root;
        let reference = self.index.member(schema, "$ref")?.text()?.to_string();
        let id = || {
            let id = self.index.member(root, "$id").or_else(|| self.index.member(root, "id"))?;
            Some(id.text()?.to_string())
        };
        let pointer = reference.strip_prefix('#').map(str::to_owned).or_else(|| {
            // A reference may contain the identifier of its own document.
            reference.strip_prefix(id()?.trim_end_matches('#'))?.strip_prefix('#').map(str::to_owned)
        })?;
        let mut names = pointer.split('/');
        if names.next().is_some_and(|anchor| !anchor.is_empty()) {
            return self.anchors().get(&pointer).copied();
        }
        names.try_fold(root, |json, name| {
            let name = percent_decode_str(name).decode_utf8_lossy();
            self.index.step(json, &name.replace("~1", "/").replace("~0", "~"))
        })
    }

    /// The schemas of the document by their anchors.
    fn anchors(&self) -> &HashMap<String, Json<'s>> {
        self.anchors.get_or_init(|| {
            let mut anchors = HashMap::new();
            let known = ["$defs", "definitions"].into_iter().filter_map(|name| self.index.member(self.root, name));
            for (_, schema) in known.flat_map(|known| known.members()) {
                if let Some(anchor) = self.index.member(schema, "$anchor").and_then(|name| name.text()) {
                    anchors.entry(anchor.to_string()).or_insert(schema);
                }
            }
            anchors
        })
    }

    /// The schema of an element. After those with separate schemas, it is the schema of the remaining
    /// elements.
    fn element(&self, schema: Json<'s>, place: usize) -> Option<Json<'s>> {
        let items = self.index.member(schema, "items");
        let listed = items.filter(|items| items.kind() == JsonKind::Array);
        self.index
            .member(schema, "prefixItems")
            .or(listed)
            .and_then(|listed| self.index.element(listed, place))
            .or(items.filter(|items| items.kind() == JsonKind::Object))
            .or_else(|| self.index.member(schema, "additionalItems"))
    }
}

fn type_of(value: Json<'_>) -> &'static str {
    match value.kind() {
        JsonKind::Null => "null",
        JsonKind::Bool => "boolean",
        JsonKind::Number => "number",
        JsonKind::String => "string",
        JsonKind::Array => "array",
        JsonKind::Object => "object",
    }
}

/// The limits of types of 64 bits and more, exact and as an `f64`. Tables omit them, since they are
/// the limits of the type.
const LIMITS: &[&str] = &[
    "9223372036854775807",
    "9223372036854775808",
    "9223372036854776000",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709552000",
    "170141183460469231731687303715884105727",
    "170141183460469231731687303715884105728",
    "1.7014118346046923e38",
    "340282366920938463463374607431768211455",
    "340282366920938463463374607431768211456",
    "3.402823669209385e38",
    "3.4028234663852886e38",
    "3.4028235e38",
    "340282346638528859811704183484516925440",
    "1.7976931348623157e308",
];

/// Whether a bound, as JSON text, is a limit of a Rust type.
fn is_limit_of_type(bound: &str) -> bool {
    let size = bound.strip_prefix('-').unwrap_or(bound);
    LIMITS.iter().any(|limit| same(size, limit))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The validator reads it so, too.
    #[test]
    fn of_two_members_with_one_name_the_last_counts_in_a_schema_of_any_length() {
        for length in [0, 300] {
            let padding = "d".repeat(length);
            let text = format!(
                r#"{{"properties":{{"x":{{"type":"boolean"}},"y":{{"type":"integer","description":"{padding}","type":"string"}},"x":{{"properties":{{"a":{{}}}}}}}}}}"#
            );
            let root = SchemaView::of_text(&text);
            assert_eq!(root.member("y").unwrap().types(), ["string"], "{length}");
            assert!(root.member("x").unwrap().declares("a"), "{length}");
            assert_eq!(root.names().collect::<Vec<_>>(), ["x", "y"], "{length}");
        }
    }

    #[test]
    fn a_type_in_a_few_words() {
        let table = [
            (json!({"type": "integer", "minimum": 1, "maximum": 1000}), "integer 1..1000"),
            (
                json!({"type": "number", "minimum": -3.402_823_466_385_288_6e38, "maximum": 3.402_823_466_385_288_6e38}),
                "number",
            ),
            (json!({"type": "number", "minimum": 0.5}), "number from 0.5"),
            (json!({"type": "integer", "maximum": 18_446_744_073_709_551_615_u64, "minimum": 0}), "integer from 0"),
            (json!({"enum": ["a", "b"]}), r#""a" | "b""#),
            (json!({"const": 3}), "3"),
            (json!({"type": "array", "items": {"type": "string"}}), "list of string"),
            (json!({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}), r#"list of up to 3 ("a" | "b")"#),
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "string | null"),
            (json!({"type": ["integer", "null"], "minimum": 1}), "integer from 1 | null"),
            (json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "boolean"}}}), "boolean"),
            (json!({"$ref": "#"}), "any"),
            (json!({"items": {"$ref": "#"}}), "list of list of list of list of list of list of …"),
            (json!({"$ref": "#/$defs/a%20b%5B%5D", "$defs": {"a b[]": {"type": "boolean"}}}), "boolean"),
            (json!({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "type": "boolean"}}}), "boolean"),
            (json!({"$id": "urn:a", "$ref": "urn:a#/$defs/x", "$defs": {"x": {"type": "boolean"}}}), "boolean"),
            (json!({"$ref": "urn:other#/$defs/x", "$defs": {"x": {"type": "boolean"}}}), "any"),
            (json!({"type": "string", "maxLength": 8}), "string, up to 8 characters"),
            (json!({"type": "string", "nullable": true}), "string | null"),
            (json!({"properties": {"a": {}}}), "object"),
            (json!(true), "any"),
        ];
        for (schema, summary) in table {
            assert_eq!(SchemaView::of_text(&schema.to_string()).summary(), summary, "{schema}");
        }
    }

    #[test]
    fn bounds_have_the_digits_that_they_were_written_with() {
        for (schema, summary) in [
            (r#"{"type":"number","maximum":1e20}"#, "number up to 1e20"),
            (r#"{"type":"integer","minimum":-9300000000000000000}"#, "integer from -9300000000000000000"),
            (
                r#"{"type":"integer","maximum":123456789012345678901234567890}"#,
                "integer up to 123456789012345678901234567890",
            ),
            (r#"{"type":"number","minimum":1.50,"maximum":1e400}"#, "number 1.50..1e400"),
            (r#"{"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807}"#, "integer"),
            (r#"{"type":"integer","minimum":0,"maximum":18446744073709551615}"#, "integer from 0"),
            (r#"{"type":"integer","maximum":18446744073709551614}"#, "integer up to 18446744073709551614"),
            (r#"{"type":"number","minimum":-3.4028234663852886e+38,"maximum":3.4028234663852886E38}"#, "number"),
            (r#"{"type":"number","minimum":-1.7976931348623157e308,"maximum":1.7976931348623157e308}"#, "number"),
            (r#"{"enum":[18446744073709551617,1.10]}"#, "18446744073709551617 | 1.10"),
        ] {
            assert_eq!(SchemaView::of_text(schema).summary(), summary, "{schema}");
        }
    }
}
