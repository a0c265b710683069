//! What a JSON Schema says about a value, as far as a command line and a table need it: its types, its members, its values.
//!
//! Whether a value is valid is not decided here but by `jsonschema`.

use rigline_std::cli::by_schema::referred;
use serde_json::Value;

/// A place in a schema: all subschemas that speak about it, with references and combinations resolved.
#[derive(Debug, Clone)]
pub(crate) struct Place<'s> {
    root: &'s Value,
    parts: Vec<&'s Value>,
}

/// How many subschemas are looked at for one place. Schemas may refer to themselves.
const PARTS: usize = 200;

impl<'s> Place<'s> {
    /// The whole value.
    pub(crate) fn of(root: &'s Value) -> Self {
        Self::at(root, [root])
    }

    fn at(root: &'s Value, schemas: impl IntoIterator<Item = &'s Value>) -> Self {
        let mut parts: Vec<&'s Value> = Vec::new();
        let mut waiting: Vec<&'s Value> = schemas.into_iter().collect();
        waiting.reverse();
        while let Some(schema) = waiting.pop() {
            if parts.len() >= PARTS || parts.iter().any(|part| std::ptr::eq(*part, schema)) {
                continue;
            }
            parts.push(schema);
            waiting.extend(referred(schema, root));
            for keyword in ["allOf", "anyOf", "oneOf"] {
                waiting.extend(schema.get(keyword).and_then(Value::as_array).into_iter().flatten().rev());
            }
            waiting.extend(["then", "else"].iter().filter_map(|keyword| schema.get(*keyword)));
        }
        Self { root, parts }
    }

    /// The member of that name, or the element with that number; nothing if the schema does not know it.
    pub(crate) fn member(&self, name: &str) -> Option<Self> {
        let mut found: Vec<&'s Value> =
            self.parts.iter().filter_map(|part| part.get("properties")?.get(name)).collect();
        if let (true, Ok(place)) = (found.is_empty(), name.parse::<usize>()) {
            found.extend(self.parts.iter().filter_map(|part| element(part, place)));
        }
        if found.is_empty() {
            let others = self.parts.iter().filter_map(|part| part.get("additionalProperties"));
            found.extend(others.filter(|others| others.is_object()));
        }
        (!found.is_empty()).then(|| Self::at(self.root, found))
    }

    /// What the elements of a list are.
    pub(crate) fn elements(&self) -> Option<Self> {
        let found: Vec<&'s Value> = self.parts.iter().filter_map(|part| element(part, usize::MAX)).collect();
        (!found.is_empty()).then(|| Self::at(self.root, found))
    }

    /// The names of its members, in the schema's order.
    pub(crate) fn names(&self) -> Vec<&'s str> {
        let mut names: Vec<&'s str> = Vec::new();
        for name in self.each("properties").filter_map(Value::as_object).flat_map(serde_json::Map::keys) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Whether it must have this member.
    pub(crate) fn requires(&self, name: &str) -> bool {
        self.each("required").filter_map(Value::as_array).flatten().any(|required| required == name)
    }

    /// Whether it refuses members that it does not name.
    pub(crate) fn is_closed(&self) -> bool {
        self.each("additionalProperties").chain(self.each("unevaluatedProperties")).any(|others| *others == false)
    }

    /// The types that it may have; empty if it may have any.
    pub(crate) fn types(&self) -> Vec<&'s str> {
        let mut types: Vec<&'s str> = Vec::new();
        let mut add = |name: &'s str| {
            if !types.contains(&name) {
                types.push(name);
            }
        };
        for part in &self.parts {
            match part.get("type") {
                Some(Value::String(name)) => add(name),
                Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).for_each(&mut add),
                _ => {}
            }
            if part.get("nullable") == Some(&Value::Bool(true)) {
                add("null");
            }
            if part.get("type").is_none() {
                values_of(part).for_each(|value| add(type_of(value)));
            }
        }
        // An object or a list need not say so.
        if types.is_empty() && self.each("properties").next().is_some() {
            types.push("object");
        }
        if types.is_empty() && self.each("items").chain(self.each("prefixItems")).next().is_some() {
            types.push("array");
        }
        types
    }

    /// The values of `enum` and `const`.
    pub(crate) fn values(&self) -> Vec<&'s Value> {
        self.parts.iter().copied().flat_map(values_of).collect()
    }

    /// The first value of a keyword such as `description`.
    pub(crate) fn keyword(&self, name: &str) -> Option<&'s Value> {
        self.each(name).next()
    }

    pub(crate) fn description(&self) -> &'s str {
        self.keyword("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its type in a few words: `integer 1..1000`, `"a" | "b"`, `list of string`.
    pub(crate) fn summary(&self) -> String {
        let values = self.values();
        if !values.is_empty() {
            const SHOWN: usize = 12;
            let mut texts: Vec<String> = values.iter().take(SHOWN).map(ToString::to_string).collect();
            if values.len() > SHOWN {
                texts.push(format!("… ({} values)", values.len()));
            }
            return texts.join(" | ");
        }
        let types = self.types();
        let mut names: Vec<String> = Vec::new();
        for name in &types {
            // An integer is a number.
            if *name != "integer" || !types.contains(&"number") {
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
            "string" => match (size("minLength", "maxLength"), self.keyword("format").and_then(Value::as_str)) {
                (_, Some(format)) => format!("string ({format})"),
                (range, None) if !range.is_empty() => format!("string, {range} characters"),
                _ => name.to_owned(),
            },
            name => name.to_owned(),
        }
    }

    fn range(&self, minimum: &str, maximum: &str, between: &str) -> String {
        let bound = |name: &str| self.keyword(name).filter(|bound| !is_limit_of_type(bound)).map(number);
        match (bound(minimum), bound(maximum)) {
            (Some(minimum), Some(maximum)) if minimum == maximum => minimum,
            (Some(minimum), Some(maximum)) => format!("{minimum}{between}{maximum}"),
            (Some(minimum), None) => format!("from {minimum}"),
            (None, Some(maximum)) => format!("up to {maximum}"),
            (None, None) => String::new(),
        }
    }

    fn each(&self, keyword: &str) -> impl Iterator<Item = &'s Value> {
        self.parts.iter().filter_map(move |part| part.get(keyword))
    }
}

/// The schema of an element; of those at the end, if the place is beyond all that stand alone.
fn element(schema: &Value, place: usize) -> Option<&Value> {
    let alone = schema.get("prefixItems").or_else(|| schema.get("items").filter(|items| items.is_array()));
    if let Some(schema) = alone.and_then(Value::as_array).and_then(|schemas| schemas.get(place)) {
        return Some(schema);
    }
    schema.get("items").filter(|items| items.is_object()).or_else(|| schema.get("additionalItems"))
}

fn values_of(schema: &Value) -> impl Iterator<Item = &Value> {
    schema.get("enum").and_then(Value::as_array).into_iter().flatten().chain(schema.get("const"))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A bound that a Rust type has anyway, such as `f32`'s -3.4e+38, says nothing to a reader.
pub(crate) fn is_limit_of_type(bound: &Value) -> bool {
    bound.as_f64().is_some_and(|bound| bound.abs() >= 9.0e18)
}

/// As people write it: no exponent where there need not be one.
fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(number)
            if value.is_f64() && number.abs() < 1e15 && number.abs() >= 1e-9 || value.as_f64() == Some(0.0) =>
        {
            value.as_f64().unwrap_or_default().to_string()
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn n_11_a_type_in_a_few_words() {
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
            (json!({"$ref": "#count", "$defs": {"x": {"$anchor": "count", "type": "integer"}}}), "integer"),
            (
                json!({"$id": "https://a.b/c", "$ref": "https://a.b/c#/$defs/%78", "$defs": {"x": {"type": "null"}}}),
                "null",
            ),
            (json!({"type": "string", "maxLength": 8}), "string, up to 8 characters"),
            (json!({"type": "string", "nullable": true}), "string | null"),
            (json!({"properties": {"a": {}}}), "object"),
            (json!(true), "any"),
        ];
        for (schema, summary) in table {
            assert_eq!(Place::of(&schema).summary(), summary, "{schema}");
        }
    }
}
