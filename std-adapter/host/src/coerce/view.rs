//! The facts of a JSON Schema that command lines, errors and tables show: types, members and
//! values.
//!
//! The crate `jsonschema` decides whether a value is valid.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use percent_encoding::percent_decode_str;
use rigline::json::{Json, JsonKind};

use super::same;

/// A place in a JSON Schema: all subschemas that apply to one value. References and combinations
/// are resolved.
///
/// It reads the text of the schema, so that numbers have all their digits.
#[derive(Debug, Clone)]
pub struct SchemaView<'s> {
    root: Json<'s>,
    parts: Vec<Json<'s>>,
}

/// The number of subschemas that are read for one place. Schemas may refer to themselves.
const PARTS: usize = 200;

impl<'s> SchemaView<'s> {
    /// The place of the whole value.
    pub fn of(root: Json<'s>) -> Self {
        Self::at(root, [root])
    }

    /// The place of the whole value, for a schema as text. A text that is not JSON counts as a
    /// schema without keywords.
    pub fn of_text(root: &'s str) -> Self {
        Self::of(Json::parse(root.as_bytes()).unwrap_or(Json::NULL))
    }

    fn at(root: Json<'s>, schemas: impl IntoIterator<Item = Json<'s>>) -> Self {
        let mut parts: Vec<Json<'s>> = Vec::new();
        let mut waiting: Vec<Json<'s>> = schemas.into_iter().collect();
        waiting.reverse();
        while let Some(schema) = waiting.pop() {
            if parts.len() >= PARTS || parts.iter().any(|part| std::ptr::eq(part.as_str(), schema.as_str())) {
                continue;
            }
            parts.push(schema);
            waiting.extend(referred(root, schema));
            for keyword in ["allOf", "anyOf", "oneOf"] {
                let combined: Vec<Json<'s>> = schema.get(keyword).into_iter().flat_map(|all| all.elements()).collect();
                waiting.extend(combined.into_iter().rev());
            }
            waiting.extend(["then", "else"].iter().filter_map(|keyword| schema.get(keyword)));
        }
        Self { root, parts }
    }

    /// Returns the place of the member with this name, or of the element with this index. Returns
    /// `None` if the schema does not describe it.
    pub fn member(&self, name: &str) -> Option<Self> {
        let mut found: Vec<Json<'s>> = self.parts.iter().filter_map(|part| part.get("properties")?.get(name)).collect();
        if let (true, Ok(place)) = (found.is_empty(), name.parse::<usize>()) {
            found.extend(self.parts.iter().filter_map(|part| element(*part, place)));
        }
        if found.is_empty() {
            found.extend(self.each("additionalProperties").filter(|others| others.kind() == JsonKind::Object));
        }
        (!found.is_empty()).then(|| Self::at(self.root, found))
    }

    /// Returns the place of a list's elements.
    pub fn elements(&self) -> Option<Self> {
        let found: Vec<Json<'s>> = self.parts.iter().filter_map(|part| element(*part, usize::MAX)).collect();
        (!found.is_empty()).then(|| Self::at(self.root, found))
    }

    /// Returns the names of the members, in the order of the schema.
    pub fn names(&self) -> Vec<String> {
        let members = self.each("properties").flat_map(|properties| properties.members());
        let mut known = HashSet::new();
        members.map(|(name, _)| name.to_string()).filter(|name| known.insert(name.clone())).collect()
    }

    /// Returns the names and places of all members, in the order of the schema. It is faster than a
    /// call of [`member`](Self::member) for each.
    pub fn members(&self) -> Vec<(String, Self)> {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut found: Vec<(String, Vec<Json<'s>>)> = Vec::new();
        for part in &self.parts {
            let Some(properties) = part.get("properties") else { continue };
            // Of a name that stands twice in one object, the first counts, as for `member`.
            let mut known = HashSet::new();
            for (name, schema) in properties.members() {
                let name = name.to_string();
                if !known.insert(name.clone()) {
                    continue;
                }
                let place = *places.entry(name.clone()).or_insert(found.len());
                match found.get_mut(place) {
                    Some((_, schemas)) => schemas.push(schema),
                    None => found.push((name, vec![schema])),
                }
            }
        }
        found.into_iter().map(|(name, schemas)| (name, Self::at(self.root, schemas))).collect()
    }

    /// Returns the names of the required members.
    pub fn required_names(&self) -> HashSet<String> {
        let required = self.each("required").flat_map(|required| required.elements());
        required.filter_map(|name| Some(name.text()?.to_string())).collect()
    }

    /// Returns whether the member with this name is required.
    pub fn requires(&self, name: &str) -> bool {
        let mut required = self.each("required").flat_map(|required| required.elements());
        required.any(|required| required.text().is_some_and(|required| required == *name))
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
        for part in &self.parts {
            let named = part.get("type");
            let one = named.filter(|named| named.kind() == JsonKind::String).into_iter();
            for name in one.chain(named.into_iter().flat_map(|named| named.elements())) {
                if let Some(name) = name.text() {
                    add(name.to_string().into());
                }
            }
            if part.get("nullable").and_then(|nullable| nullable.bool()) == Some(true) {
                add("null".into());
            }
            if named.is_none() {
                values_of(*part).for_each(|value| add(type_of(value).into()));
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
        self.parts.iter().copied().flat_map(values_of).collect()
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
                names.push(self.summary_of(name));
            }
        }
        if names.is_empty() { "any".to_owned() } else { names.join(" | ") }
    }

    fn summary_of(&self, name: &str) -> String {
        let size = |minimum: &str, maximum: &str| self.range(minimum, maximum, "..");
        match name {
            "integer" | "number" => match self.range("minimum", "maximum", "..") {
                range if range.is_empty() => name.to_owned(),
                range => format!("{name} {range}"),
            },
            "array" => {
                let elements = self.elements().map_or_else(|| "any".to_owned(), |elements| elements.summary());
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
        self.parts.iter().filter_map(move |part| part.get(keyword))
    }
}

/// The schema that `$ref` refers to, within the same document.
fn referred<'s>(root: Json<'s>, schema: Json<'s>) -> Option<Json<'s>> {
    let reference = schema.get("$ref")?.text()?.to_string();
    let id = || Some(root.get("$id").or_else(|| root.get("id"))?.text()?.to_string());
    let pointer = reference.strip_prefix('#').map(str::to_owned).or_else(|| {
        // A reference may contain the identifier of its own document.
        reference.strip_prefix(id()?.trim_end_matches('#'))?.strip_prefix('#').map(str::to_owned)
    })?;
    let mut names = pointer.split('/');
    if names.next().is_some_and(|anchor| !anchor.is_empty()) {
        let has_anchor =
            |schema: &Json<'_>| schema.get("$anchor").and_then(|name| name.text()).is_some_and(|name| name == *pointer);
        let known = ["$defs", "definitions"].into_iter().filter_map(|name| root.get(name));
        return known.flat_map(|known| known.members()).map(|(_, schema)| schema).find(has_anchor);
    }
    names.try_fold(root, |json, name| {
        let name = percent_decode_str(name).decode_utf8_lossy();
        let name = name.replace("~1", "/").replace("~0", "~");
        match json.kind() {
            JsonKind::Array => json.elements().nth(name.parse().ok()?),
            _ => json.get(&name),
        }
    })
}

/// The schema of an element. After those with separate schemas, it is the schema of the remaining
/// elements.
fn element(schema: Json<'_>, place: usize) -> Option<Json<'_>> {
    let items = schema.get("items");
    let alone = schema.get("prefixItems").or(items.filter(|items| items.kind() == JsonKind::Array));
    alone
        .and_then(|alone| alone.elements().nth(place))
        .or(items.filter(|items| items.kind() == JsonKind::Object))
        .or_else(|| schema.get("additionalItems"))
}

fn values_of(schema: Json<'_>) -> impl Iterator<Item = Json<'_>> {
    schema.get("enum").into_iter().flat_map(|values| values.elements()).chain(schema.get("const"))
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
