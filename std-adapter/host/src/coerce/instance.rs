//! A JSON value whose numbers have all their digits, in the form that the validator reads.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

use indexmap::IndexMap;
use jsonschema::JsonType;
use jsonschema::json::{Array, Json as Representation, JsonNumber, Node, NodeIdentity, Object};
use rigline::json::{Json, JsonKind};
use serde_json::{Number, Value};

use crate::number;

/// A value. Of several members with one name, the last one counts, as most readers have it.
#[derive(Debug, Default)]
pub(super) enum Exact {
    #[default]
    Null,
    Bool(bool),
    /// The number as it was written.
    Number(String),
    Text(String),
    List(Vec<Exact>, Plain),
    Map(IndexMap<String, Exact>, Plain),
}

/// The value as error texts have it. It is made once, however many errors a value has.
#[derive(Debug, Default)]
pub(super) struct Plain(OnceLock<Value>);

impl Exact {
    pub(super) fn of(json: Json<'_>) -> Self {
        match json.kind() {
            JsonKind::Null => Self::Null,
            JsonKind::Bool => Self::Bool(json.bool().unwrap_or_default()),
            JsonKind::Number => Self::Number(json.as_str().to_owned()),
            JsonKind::String => Self::Text(json.text().map(|text| text.to_string()).unwrap_or_default()),
            JsonKind::Array => Self::List(json.elements().map(Self::of).collect(), Plain::default()),
            JsonKind::Object => {
                let members = json.members().map(|(name, member)| (name.to_string(), Self::of(member)));
                Self::Map(members.collect(), Plain::default())
            }
        }
    }

    /// The value as JSON text.
    pub(super) fn json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, None);
        out
    }

    /// As JSON text that is the same for all values that are equal: members are sorted, and a
    /// number has one spelling.
    pub(super) fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(
            &mut out,
            Some(|text| match number::decimal(text) {
                Some(number) => {
                    let (digits, scale) = number.as_bigint_and_exponent();
                    format!("{digits}e{}", -i128::from(scale))
                }
                // It is too long to be compared as a number.
                None => text.to_owned(),
            }),
        );
        out
    }

    /// `canonical` is the one spelling of a number.
    fn write(&self, out: &mut String, canonical: Option<fn(&str) -> String>) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
            Self::Number(text) => match canonical {
                Some(canonical) => out.push_str(&canonical(text)),
                None => out.push_str(text),
            },
            Self::Text(text) => out.push_str(&super::string(text)),
            Self::List(elements, _) => {
                out.push('[');
                for (place, element) in elements.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    element.write(out, canonical);
                }
                out.push(']');
            }
            Self::Map(members, _) => {
                out.push('{');
                let mut members: Vec<_> = members.iter().collect();
                if canonical.is_some() {
                    members.sort_unstable_by_key(|(name, _)| *name);
                }
                for (place, (name, member)) in members.into_iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    out.push_str(&super::string(name));
                    out.push(':');
                    member.write(out, canonical);
                }
                out.push('}');
            }
        }
    }

    /// The value that names and places lead to.
    pub(super) fn at(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |value, name| match value {
            Self::List(elements, _) => elements.get(name.parse::<usize>().ok()?),
            Self::Map(members, _) => members.get(name),
            _ => None,
        })
    }

    /// A number that is too long to be compared.
    pub(super) fn beyond(&self) -> Option<&str> {
        match self {
            Self::Number(text) => number::decimal(text).is_none().then_some(text),
            Self::List(elements, _) => elements.iter().find_map(Self::beyond),
            Self::Map(members, _) => members.values().find_map(Self::beyond),
            _ => None,
        }
    }
}

/// The representation, for the validator.
#[derive(Debug)]
pub(super) struct ExactJson;

impl Representation for ExactJson {
    type Node<'a> = &'a Exact;
    type PreparedKey = String;
    type StringBuffer = Exact;

    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Exact, string: &str, f: impl FnOnce(&Exact) -> T) -> T {
        *buffer = Exact::Text(string.to_owned());
        f(buffer)
    }
}

/// A number, as it was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digits<'a>(&'a str);

impl JsonNumber for Digits<'_> {
    fn as_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    fn as_f64(&self) -> Option<f64> {
        self.0.parse().ok()
    }

    fn as_str(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.0)
    }

    fn to_number(&self) -> Cow<'_, Number> {
        Cow::Owned(serde_json::from_str(self.0).unwrap_or_else(|_| Number::from(0)))
    }

    fn is_integer(&self) -> bool {
        number::decimal(self.0).is_none_or(|number| number.is_integer())
    }
}

impl<'a> Node<'a, ExactJson> for &'a Exact {
    type Object = &'a IndexMap<String, Exact>;
    type Array = &'a [Exact];
    type Number = Digits<'a>;

    fn as_object(&self) -> Option<Self::Object> {
        match self {
            Exact::Map(members, _) => Some(members),
            _ => None,
        }
    }

    fn as_array(&self) -> Option<Self::Array> {
        match self {
            Exact::List(elements, _) => Some(elements),
            _ => None,
        }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self {
            Exact::Text(text) => Some(Cow::Borrowed(text)),
            _ => None,
        }
    }

    fn as_number(&self) -> Option<Digits<'a>> {
        match self {
            Exact::Number(text) => Some(Digits(text)),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        match self {
            Exact::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Exact::Null)
    }

    fn json_type(&self) -> JsonType {
        match self {
            Exact::Null => JsonType::Null,
            Exact::Bool(_) => JsonType::Boolean,
            Exact::Number(_) => JsonType::Number,
            Exact::Text(_) => JsonType::String,
            Exact::List(..) => JsonType::Array,
            Exact::Map(..) => JsonType::Object,
        }
    }

    /// For error texts, whose numbers are written again: see [`Exact::json`].
    fn to_value(&self) -> Cow<'a, Value> {
        fn value(exact: &Exact) -> Value {
            match exact {
                Exact::Null => Value::Null,
                Exact::Bool(bool) => Value::Bool(*bool),
                Exact::Number(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str())),
                Exact::Text(text) => Value::from(text.as_str()),
                Exact::List(elements, _) => elements.iter().map(value).collect(),
                Exact::Map(members, _) => members.iter().map(|(name, member)| (name.clone(), value(member))).collect(),
            }
        }
        match self {
            Exact::List(_, plain) | Exact::Map(_, plain) => Cow::Borrowed(plain.0.get_or_init(|| value(self))),
            _ => Cow::Owned(value(self)),
        }
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref::<Exact>(*self).addr()))
    }
}

impl<'a> Object<'a, ExactJson> for &'a IndexMap<String, Exact> {
    type Node = &'a Exact;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        IndexMap::len(self)
    }

    fn get(&self, key: &String) -> Option<&'a Exact> {
        IndexMap::get(self, key)
    }

    fn members(&self) -> Members<'a> {
        Members(self.iter())
    }
}

/// The members of an object.
#[derive(Debug)]
pub(super) struct Members<'a>(indexmap::map::Iter<'a, String, Exact>);

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a Exact);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, member)| (name.as_str(), member))
    }
}

impl<'a> Array<'a, ExactJson> for &'a [Exact] {
    type Node = &'a Exact;
    type ElementsIter = std::slice::Iter<'a, Exact>;

    fn len(&self) -> usize {
        <[Exact]>::len(self)
    }

    fn elements(&self) -> Self::ElementsIter {
        self.iter()
    }

    fn is_unique(&self) -> bool {
        let mut seen = HashSet::new();
        self.iter().all(|element| seen.insert(element.canonical()))
    }
}
