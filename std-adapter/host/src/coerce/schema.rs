//! A schema that is read once. Its numbers have all their digits, and those of a value are held
//! against them exactly.
//!
//! The validator has 64 bits for a number of a schema. So the keywords that compare numbers stand
//! under names of ours in what it reads, with their values as texts, and [`Exactly`] checks them.

use std::collections::{HashMap, HashSet};

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, Zero as _};
use jsonschema::{Keyword, ValidationError};
use percent_encoding::percent_decode_str;
use rigline::json::{Json, JsonKind};
use serde_json::{Map, Value};

use super::instance::{Exact, ExactJson};
use super::{Breach, Checked, Mismatch};
use crate::number;

/// The prefix of the keywords that [`Exactly`] checks.
const PREFIX: &str = "rigline:";
pub(super) const CONST: &str = "rigline:const";
pub(super) const ENUM: &str = "rigline:enum";
/// The keywords that only numbers have, by the names that the validator reads them under.
pub(super) const OF_NUMBERS: &[&str] = &[
    "rigline:minimum",
    "rigline:maximum",
    "rigline:exclusiveMinimum",
    "rigline:exclusiveMaximum",
    "rigline:multipleOf",
];

/// A JSON Schema that was read and compiled. Its numbers keep all their digits.
#[derive(Debug)]
pub struct Schema {
    text: String,
    root: Root,
    /// The validator, or why there is none.
    validator: Result<jsonschema::Validator<ExactJson>, String>,
}

impl Schema {
    /// Reads a schema from text. If the text is not a schema, every value is accepted and reported
    /// as [`unchecked`](Checked::unchecked).
    pub fn read(text: &str) -> Self {
        let json = Json::parse(text.as_bytes());
        let mut root = Root::of(json.map_or(Value::Null, prepared));
        let is_too_wide = Widths::default().of_all(&root.value, &root) > WIDTH_LIMIT;
        if is_too_wide {
            root = Root::of(Value::Bool(true));
        }
        let validator = match root.value.get("$schema").and_then(Value::as_str).filter(|dialect| !is_known(dialect)) {
            Some(dialect) => Err(format!("its schema is written in {dialect}, which is not known here")),
            None if is_too_wide => {
                Err(format!("its schema combines a value's schemas in more than {WIDTH_LIMIT} ways"))
            }
            None => build(&root.value).map_err(|error| format!("its schema cannot be evaluated here: {error}")),
        };
        Self { text: json.map_or("null", |json| json.as_str()).to_owned(), root, validator }
    }

    /// A schema that accepts every value.
    pub fn any() -> Self {
        Self::read("true")
    }

    /// Returns the schema as it was written.
    pub fn json(&self) -> Json<'_> {
        Json::parse(self.text.as_bytes()).unwrap_or(Json::NULL)
    }

    pub(super) fn value(&self) -> &Value {
        &self.root.value
    }

    pub(super) fn root(&self) -> &Root {
        &self.root
    }

    pub(super) fn check(&self, json: &str) -> Checked {
        let unchecked = |why: String| Checked { mismatches: Vec::new(), unchecked: Some(why) };
        let validator = match &self.validator {
            Ok(validator) => validator,
            Err(why) => return unchecked(why.clone()),
        };
        let instance = match Json::parse(json.as_bytes()) {
            Ok(json) => Exact::of(json),
            Err(error) => return unchecked(format!("the value cannot be checked here: {error}")),
        };
        let mut checked = Checked::default();
        let mut given_up = instance.beyond().map(|number| {
            let (digits, exponent) = (number::DIGIT_LIMIT, number::EXPONENT_DIGITS);
            format!(
                "a number of {} bytes is not compared; the longest has {digits}, and {exponent} in its exponent",
                number.len()
            )
        });
        for error in validator.iter_errors(&instance) {
            let names = names(error.instance_path().as_str());
            let path = names.join(".");
            // The pattern may fit: its search was given up.
            if matches!(error.kind(), jsonschema::error::ValidationErrorKind::BacktrackLimitExceeded { .. }) {
                given_up = Some(format!("the value cannot be checked here: {path}: {error}"));
                continue;
            }
            let (text, breach) = (error.to_string(), breach(error.kind()));
            // Ours quote the value as it was written. Those of names do not quote it: they are many, and
            // their value is the whole object.
            let is_ours = matches!(error.kind(), jsonschema::error::ValidationErrorKind::Custom { .. });
            let quotes = !is_ours && matches!(breach, Breach::Other | Breach::EqualElements);
            let text = match quotes.then(|| text.strip_prefix(&error.instance().to_string())).flatten() {
                Some(rest) => instance.at(&names).map(Exact::json).unwrap_or_default() + rest,
                None => text,
            };
            checked.mismatches.push(Mismatch { path, names, text, breach });
        }
        checked.unchecked = given_up.filter(|_| checked.mismatches.is_empty());
        checked
    }
}

/// The whole schema, as the validator reads it.
#[derive(Debug)]
pub(super) struct Root {
    value: Value,
    /// By its anchor, the place of a schema: the keyword and the name.
    anchors: HashMap<String, (&'static str, String)>,
}

impl Root {
    fn of(value: Value) -> Self {
        let mut anchors = HashMap::new();
        for keyword in ["$defs", "definitions"] {
            for (name, schema) in value.get(keyword).and_then(Value::as_object).into_iter().flatten() {
                if let Some(anchor) = schema.get("$anchor").and_then(Value::as_str) {
                    anchors.entry(anchor.to_owned()).or_insert((keyword, name.clone()));
                }
            }
        }
        Self { value, anchors }
    }

    /// The schema that a `$ref` refers to, within the same document.
    pub(super) fn referred(&self, schema: &Value) -> Option<&Value> {
        let (root, reference) = (&self.value, schema.get("$ref")?.as_str()?);
        let pointer = reference.strip_prefix('#').or_else(|| {
            // A reference may contain the identifier of its own document.
            let id = root.get("$id").or_else(|| root.get("id"))?.as_str()?;
            reference.strip_prefix(id.trim_end_matches('#'))?.strip_prefix('#')
        })?;
        match pointer {
            "" => Some(root),
            pointer if pointer.starts_with('/') => root.pointer(&percent_decode_str(pointer).decode_utf8_lossy()),
            anchor => {
                let (keyword, name) = self.anchors.get(anchor)?;
                root.get(keyword)?.get(name)
            }
        }
    }
}

fn breach(kind: &jsonschema::error::ValidationErrorKind) -> Breach {
    use jsonschema::error::ValidationErrorKind as JsonKind;
    match kind {
        JsonKind::UniqueItems => Breach::EqualElements,
        JsonKind::AdditionalProperties { .. } | JsonKind::UnevaluatedProperties { .. } => Breach::UnknownMember,
        JsonKind::Required { property } => Breach::Required(property.as_str().unwrap_or_default().to_owned()),
        _ => Breach::Other,
    }
}

/// How many schemas may apply to one value, with those that it combines and refers to. A validator
/// tries each of them, and references make their number grow exponentially with the size of the
/// text.
const WIDTH_LIMIT: u64 = 20_000;
/// How many references and combinations may be in one another.
const CHAIN_LIMIT: usize = 500;

/// How many schemas apply to one value, by the place of its schema. None while it is counted.
#[derive(Default)]
struct Widths(HashMap<*const Value, Option<u64>>);

impl Widths {
    /// The greatest among all schemas in a schema.
    fn of_all(&mut self, schema: &Value, root: &Root) -> u64 {
        match schema {
            Value::Object(members) => {
                let inner = members.values().map(|inner| self.of_all(inner, root)).max().unwrap_or_default();
                inner.max(self.of(schema, root, 0))
            }
            Value::Array(elements) => elements.iter().map(|inner| self.of_all(inner, root)).max().unwrap_or_default(),
            _ => 0,
        }
    }

    fn of(&mut self, schema: &Value, root: &Root, depth: usize) -> u64 {
        if depth > CHAIN_LIMIT {
            return WIDTH_LIMIT + 1;
        }
        let place = std::ptr::from_ref(schema);
        if let Some(known) = self.0.get(&place) {
            return known.unwrap_or(1);
        }
        self.0.insert(place, None);
        let listed = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|name| schema.get(name)?.as_array());
        let single = ["not", "if", "then", "else"].into_iter().filter_map(|name| schema.get(name));
        let named = schema.get("dependentSchemas").and_then(Value::as_object).into_iter().flat_map(Map::values);
        let combined = listed.flatten().chain(single).chain(named).chain(root.referred(schema));
        let width = combined.map(|inner| self.of(inner, root, depth + 1)).fold(0, u64::saturating_add).max(1);
        self.0.insert(place, Some(width));
        width
    }
}

impl From<&Value> for Schema {
    fn from(value: &Value) -> Self {
        Self::read(&value.to_string())
    }
}

/// The names and places of a JSON pointer.
fn names(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect()
}

fn is_known(dialect: &str) -> bool {
    let dialect = dialect.trim_end_matches('#').trim_start_matches("http://").trim_start_matches("https://");
    matches!(
        dialect,
        "json-schema.org/draft-04/schema"
            | "json-schema.org/draft-06/schema"
            | "json-schema.org/draft-07/schema"
            | "json-schema.org/draft/2019-09/schema"
            | "json-schema.org/draft/2020-12/schema"
            | "json-schema.org/schema"
    )
}

fn build(schema: &Value) -> Result<jsonschema::Validator<ExactJson>, ValidationError<'static>> {
    let mut options = jsonschema::options_for::<ExactJson>();
    for (name, rule) in RULES {
        options = options.with_keyword(format!("{PREFIX}{name}"), move |_, value, _| Ok(keyword(*rule, value)));
    }
    options.build(schema)
}

/// A schema for the validator: [`PREFIX`], and `nullable`, which OpenAPI 3.0 has and JSON Schema
/// does not, spelled out.
fn prepared(json: Json<'_>) -> Value {
    match json.kind() {
        JsonKind::Array => json.elements().map(prepared).collect(),
        JsonKind::Object => {
            let is_true = |name: &str| json.get(name).and_then(|flag| flag.bool()) == Some(true);
            let is_nullable = is_true("nullable");
            let is_number = |name: &str| json.get(name).is_some_and(|value| value.kind() == JsonKind::Number);
            let mut keywords = Map::new();
            for (name, member) in json.members() {
                let name = name.to_string();
                let exact = |name: &str| (format!("{PREFIX}{name}"), Value::from(member.as_str()));
                let (name, value) = match (name.as_str(), member.kind()) {
                    // Draft 4 and OpenAPI 3.0: a flag beside the bound.
                    ("exclusiveMinimum", JsonKind::Bool) if is_number("minimum") => continue,
                    ("exclusiveMaximum", JsonKind::Bool) if is_number("maximum") => continue,
                    ("minimum", JsonKind::Number) if is_true("exclusiveMinimum") => exact("exclusiveMinimum"),
                    ("maximum", JsonKind::Number) if is_true("exclusiveMaximum") => exact("exclusiveMaximum"),
                    ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", JsonKind::Number) => exact(&name),
                    // One that is not above zero is for the validator to refuse.
                    ("multipleOf", JsonKind::Number)
                        if number::decimal(member.as_str()).is_some_and(|number| number > BigDecimal::zero()) =>
                    {
                        exact(&name)
                    }
                    ("const", _) if has_number(member) => exact(&name),
                    ("enum", JsonKind::Array) if has_number(member) => {
                        let mut values: Vec<&str> = member.elements().map(|value| value.as_str()).collect();
                        values.extend(is_nullable.then_some("null"));
                        (ENUM.to_owned(), Value::from(format!("[{}]", values.join(","))))
                    }
                    ("enum", JsonKind::Array) => {
                        (name, member.elements().map(plain).chain(is_nullable.then_some(Value::Null)).collect())
                    }
                    ("type", JsonKind::String) if is_nullable => {
                        (name, Value::Array(vec![plain(member), "null".into()]))
                    }
                    ("const" | "default" | "example" | "examples", _) => (name, plain(member)),
                    (
                        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                        | "dependencies",
                        JsonKind::Object,
                    ) => {
                        let schemas = member.members();
                        (name, schemas.map(|(name, schema)| (name.to_string(), prepared(schema))).collect())
                    }
                    _ => (name, prepared(member)),
                };
                keywords.insert(name, value);
            }
            Value::Object(keywords)
        }
        _ => plain(json),
    }
}

fn has_number(json: Json<'_>) -> bool {
    match json.kind() {
        JsonKind::Number => true,
        JsonKind::Array => json.elements().any(has_number),
        JsonKind::Object => json.members().any(|(_, member)| has_number(member)),
        _ => false,
    }
}

/// A number beyond the range of 64 bits is stored as its text, since nothing is compared with it.
fn plain(json: Json<'_>) -> Value {
    serde_json::from_str(json.as_str()).unwrap_or_else(|_| Value::from(json.as_str()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Minimum,
    Maximum,
    ExclusiveMinimum,
    ExclusiveMaximum,
    MultipleOf,
    Const,
    Enum,
}

const RULES: &[(&str, Rule)] = &[
    ("minimum", Rule::Minimum),
    ("maximum", Rule::Maximum),
    ("exclusiveMinimum", Rule::ExclusiveMinimum),
    ("exclusiveMaximum", Rule::ExclusiveMaximum),
    ("multipleOf", Rule::MultipleOf),
    ("const", Rule::Const),
    ("enum", Rule::Enum),
];

/// A keyword that compares numbers, with all their digits. A number that is too long for that fits.
struct Exactly {
    rule: Rule,
    /// Its value in the schema, as it was written.
    written: String,
    number: Option<BigDecimal>,
    /// The values of `const` and `enum`, in their canonical spelling.
    values: HashSet<String>,
}

fn keyword(rule: Rule, value: &Value) -> Box<dyn for<'i> Keyword<'i, ExactJson>> {
    let written = value.as_str().unwrap_or_default().to_owned();
    let json = Json::parse(written.as_bytes()).unwrap_or(Json::NULL);
    let canonical = |json| Exact::of(json).canonical();
    let values = match rule {
        Rule::Const => HashSet::from([canonical(json)]),
        Rule::Enum => json.elements().map(canonical).collect(),
        _ => HashSet::new(),
    };
    Box::new(Exactly { rule, number: number::decimal(&written), values, written })
}

impl<'i> Keyword<'i, ExactJson> for Exactly {
    fn validate(&self, instance: &'i Exact) -> Result<(), ValidationError<'i>> {
        if self.takes(instance) {
            return Ok(());
        }
        let (found, written) = (instance.json(), &self.written);
        Err(ValidationError::custom(match self.rule {
            Rule::Minimum => format!("{found} is less than the minimum of {written}"),
            Rule::Maximum => format!("{found} is greater than the maximum of {written}"),
            Rule::ExclusiveMinimum => format!("{found} is less than or equal to the minimum of {written}"),
            Rule::ExclusiveMaximum => format!("{found} is greater than or equal to the maximum of {written}"),
            Rule::MultipleOf => format!("{found} is not a multiple of {written}"),
            Rule::Const => format!("{written} was expected"),
            Rule::Enum => {
                let json = Json::parse(written.as_bytes()).unwrap_or(Json::NULL);
                let values: Vec<&str> = json.elements().map(|value| value.as_str()).collect();
                format!("{found} is not one of {}", listed(&values))
            }
        }))
    }

    fn is_valid(&self, instance: &'i Exact) -> bool {
        self.takes(instance)
    }
}

impl Exactly {
    fn takes(&self, instance: &Exact) -> bool {
        if matches!(self.rule, Rule::Const | Rule::Enum) {
            return self.values.contains(&instance.canonical());
        }
        let Exact::Number(text) = instance else { return true };
        let (Some(number), Some(bound)) = (number::decimal(text), &self.number) else { return true };
        match self.rule {
            Rule::Minimum => number >= *bound,
            Rule::Maximum => number <= *bound,
            Rule::ExclusiveMinimum => number > *bound,
            Rule::ExclusiveMaximum => number < *bound,
            _ => is_multiple(&number, bound),
        }
    }
}

/// `a`, `b` or `c`, as the validator writes it.
fn listed(values: &[&str]) -> String {
    const SHOWN: usize = 3;
    match values {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] if values.len() <= SHOWN => format!("{} or {last}", first.join(", ")),
        values => {
            let first = values.get(..SHOWN - 1).unwrap_or_default();
            format!("{} or {} other candidates", first.join(", "), values.len() - first.len())
        }
    }
}

/// Whether a number is a multiple of another. Exponents may have 17 digits: a power of ten of that
/// size is never written out.
fn is_multiple(number: &BigDecimal, of: &BigDecimal) -> bool {
    let ((digits, scale), (divisor, divisor_scale)) = (number.as_bigint_and_exponent(), of.as_bigint_and_exponent());
    if digits.is_zero() {
        return true;
    }
    let ten = BigInt::from(10);
    let shift = i128::from(divisor_scale) - i128::from(scale);
    if shift >= 0 {
        return (digits * ten.modpow(&BigInt::from(shift), &divisor) % divisor).is_zero();
    }
    // The divisor is larger than a number with so many digits.
    match u32::try_from(-shift) {
        Ok(shift) if shift as usize <= 2 * number::DIGIT_LIMIT => (digits % (divisor * ten.pow(shift))).is_zero(),
        _ => false,
    }
}
